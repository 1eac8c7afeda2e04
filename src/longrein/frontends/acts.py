"""What somebody did last, in one line: the same words on the screen, in lists and in progress lines. Pure."""

from typing import Any

from longrein.events import AnyEvent, AskFailed, PermissionAsked, Replied, Text, ToolCall, ToolEnded, unwrapped
from longrein.frontends.safe import escape_line

KEYS = ("command", "file_path", "path", "pattern", "query", "url", "handle", "description", "prompt", "focus")
"""Arguments that say what a call is about, the most telling first."""
CHARS_MAX = 500
"""Of what an act is about."""


def key_argument(arguments: dict[str, Any] | None) -> str:
    """The argument that says what a call is about, escaped, on one line; '' when there is none."""
    values = arguments or {}
    named = [values[key] for key in KEYS if isinstance(values.get(key), str) and values[key]]
    found = named or [value for value in values.values() if isinstance(value, str) and value]
    return _first_line(found[0]) if found else ""


def act_of(event: AnyEvent) -> str:
    """What this was, escaped, such as `Read src/app.py`; '' for what is no act."""
    match event:
        case Replied():
            return _reply(event)
        case ToolEnded(status="failed", name=name):
            return f"{escape_line(name)} failed"
        case PermissionAsked(name=name):
            return f"asks: {escape_line(name)}"
        case AskFailed(message=message, kind=kind):
            return f"no answer: {_first_line(message or kind)}"
        case _:
            return ""


def _reply(reply: Replied) -> str:
    """The last call of a reply, with how many there were; without calls the beginning of its last text."""
    calls = [unwrapped(part) for part in reply.parts if isinstance(part, ToolCall)]
    if calls:
        last = f"{escape_line(calls[-1].name)} {key_argument(calls[-1].arguments)}".rstrip()
        return last if len(calls) == 1 else f"{last} (and {len(calls) - 1} more)"
    texts = [part.text for part in reply.parts if isinstance(part, Text) and part.text.strip()]
    return _first_line(texts[-1]) if texts else ""


def _first_line(text: str) -> str:
    first, newline, _ = text.strip().partition("\n")
    return escape_line(first[:CHARS_MAX]) + (" …" if newline else "")
