"""A call of a deferred tool: the model writes `CallTool(name, args)`, everybody but the provider sees what it names.

The log keeps the reply as it came, since the provider's cache holds those bytes; `unwrapped` is the one place that
knows what they mean.
"""

import msgspec

from longrein.events.nesting import decode_json
from longrein.events.parts import ToolCall

CALL_TOOL = "CallTool"
"""The tool that calls deferred ones."""


def unwrapped(call: ToolCall) -> ToolCall:
    """The call that `call` stands for, under the same id; itself when it is an ordinary one.

    `args` may be left out, be null or come as JSON text. What does not fit the schema of `CallTool` stays as it is, so
    that it is refused by name.
    """
    while call.name == CALL_TOOL and call.arguments is not None and call.arguments.keys() <= {"name", "args"}:
        name, inner = call.arguments.get("name"), _object(call.arguments.get("args"))
        if not isinstance(name, str) or not name or inner is None:
            return call
        call = ToolCall(call.id, name, inner)
    return call


def _object(value: object) -> "dict[str, object] | None":
    if isinstance(value, str):
        try:
            value = decode_json(value)
        except msgspec.DecodeError:
            return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None
