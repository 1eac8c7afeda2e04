"""Secrets are replaced at the door: every text of an event passes here before it is folded or stored (law 4)."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

from longrein.events import ProviderBlock, Replied, Thinking, ToolCall

Redact = Callable[[str], str]
S = TypeVar("S", bound=msgspec.Struct)

NAMES = frozenset(
    """
    session nonce parent label child call id running handle again provider model wire tools deferred
    TaskStarted.task TaskEnded.task StopTask.task ToolSpec.name ToolCall.name ToolResult.name ToolStarted.name
    ToolEnded.name PermissionAsked.name HookAnswered.event
    roots cwd path Summarized.files ChildEnded.files sources worktree hash blob before over partial output
    profile kind purpose origin stop status verdict by scope decision mode form policy promoted media owner grant usage
    how to lines source
    """.split()  # noqa: SIM905 - sixty short words read better so
)
"""Fields that name something: replacing a part of them would lose what they name. All others are text."""


def redacted(event: S, redact: Redact) -> S:
    """`event` (or a word for the inbox) with the secrets in all of its texts replaced; the same object without any."""
    changed = {}
    for name in _texts(type(event)):
        old = getattr(event, name)
        new = _clean(old, redact)
        if new is not old:
            changed[name] = new
    if not changed:
        return event
    clean = msgspec.structs.replace(event, **changed)
    if isinstance(event, Replied) and isinstance(clean, Replied):
        return msgspec.structs.replace(clean, blocks=_blocks(event, clean))
    return clean


def changed_calls(said: Replied, clean: Replied) -> dict[str, ToolCall]:
    """Calls of a reply whose arguments held a secret, by id, as the model made them."""
    pairs = zip(said.parts, clean.parts, strict=True)
    return {old.id: old for old, new in pairs if isinstance(old, ToolCall) and old is not new}


@cache
def _texts(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Fields of `kind` that hold texts, or what texts stand in."""
    names = (field.name for field in msgspec.structs.fields(kind) if field.type not in (int, float, bool))
    return tuple(name for name in names if name not in NAMES and f"{kind.__name__}.{name}" not in NAMES)


def _clean(value: Any, redact: Redact) -> Any:
    """`value` with its texts redacted; the same object when nothing was replaced."""
    if isinstance(value, str):
        clean = redact(value)
        return value if clean == value else clean
    if isinstance(value, ToolCall):
        return _call(value, redact)
    if isinstance(value, msgspec.Struct):
        return redacted(value, redact)
    if isinstance(value, tuple | list):
        items = [_clean(item, redact) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    if isinstance(value, dict):
        pairs = [(_clean(key, redact), _clean(item, redact)) for key, item in value.items()]
        same = all(key is old and item is value[old] for (key, item), old in zip(pairs, value, strict=True))
        return value if same else dict(pairs)
    return value


def _call(call: ToolCall, redact: Redact) -> ToolCall:
    """Redact the arguments; the text as received is dropped where it held a secret and could be parsed."""
    try:
        arguments = _clean(call.arguments, redact)
    except RecursionError:  # nested too deep to be looked through value by value
        return _deep_call(call, redact)
    received = redact(call.received)
    if arguments is call.arguments and received == call.received:
        return call
    return msgspec.structs.replace(call, arguments=arguments, received=received if arguments is None else "")


def _deep_call(call: ToolCall, redact: Redact) -> ToolCall:
    """Redact the arguments as JSON text; what no JSON can hold is left out, as no log could hold it."""
    try:
        text = json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return msgspec.structs.replace(call, arguments=None, received=redact(call.received))
    clean = redact(text)
    return call if clean == text else msgspec.structs.replace(call, arguments=None, received=clean)


def _blocks(said: Replied, clean: Replied) -> tuple[ProviderBlock, ...]:
    """The provider's own bytes without those that hold a secret or stand for thinking that did.

    A signature would not fit redacted thinking.
    """
    thought = [n for n, part in enumerate(said.parts) if isinstance(part, Thinking) and part is not clean.parts[n]]
    blocks = zip(said.blocks, clean.blocks, strict=True)
    return tuple(old for old, new in blocks if old is new and old.part not in thought)
