"""The arguments of a call: from what a model wrote to an object, and back to what a wire takes.

What cannot be read stays as it was received, with `arguments` None: such a call never runs and the model is told. So
that the reply can be sent back, each wire gets an object that holds the received text.
"""

from typing import Any

import msgspec

from longrein.events import TOO_DEEP, ToolCall, decode_json, is_too_deep
from longrein.models.content import encode_json, exact_json

MALFORMED_KEY = "malformed_arguments"
"""Key under which text that is no JSON object is sent back to the model that wrote it."""


def read_arguments(received: str) -> dict[str, Any] | None:
    """The object in `received`; None when there is none. No text at all is the empty object: a call without arguments.

    An object wrapped in one more layer of quotes is unwrapped: several open models write that.
    """
    if not received.strip():
        return {}
    value = _decoded(received)
    if isinstance(value, str):
        value = _decoded(value)
    return value if isinstance(value, dict) else None


def _decoded(text: str) -> object:
    try:
        value: object = decode_json(text)
    except msgspec.DecodeError:
        return None
    return value


def make_call(name: str, received: str) -> ToolCall:
    """A call without an id, as the reply holds it."""
    arguments = read_arguments(received)
    if arguments is not None and (not received.strip() or exact_json(arguments).decode() == received):
        return ToolCall("", name, arguments)
    return ToolCall("", name, arguments, received)


def given_json(arguments: dict[str, Any]) -> str:
    """The text of arguments that a provider sent as an object; what is nested too deep is no object any more."""
    return f"({TOO_DEEP})" if is_too_deep(arguments) else exact_json(arguments).decode()


def object_json(call: ToolCall) -> bytes:
    """The arguments as a JSON object, whatever was received."""
    return encode_json(call.arguments if call.arguments is not None else {MALFORMED_KEY: call.received})


def text_json(call: ToolCall) -> bytes:
    """The same for wires that take the arguments as a JSON string: what was received if it is that object."""
    if call.arguments is not None and call.received and _decoded(call.received) == call.arguments:
        return encode_json(call.received)
    return encode_json(object_json(call).decode())
