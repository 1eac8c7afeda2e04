"""Text for people: times, counts, sizes, money, escaping, and one-line descriptions of acts. Pure."""

from typing import Any

from longrein.events import AnyEvent, AskFailed, PermissionAsked, Replied, Text, ToolCall, ToolEnded, unwrapped
from longrein.permissions import escape

KB = 1_000


def elapsed(seconds: float) -> str:
    """A duration: `0.4 s`, `12 s`, `3 m 05 s`, `2 h 05 m`; '' below 0.05 s."""
    if seconds < 0.05:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} m"
    return f"{minutes} m {rest:02d} s" if minutes else f"{rest} s"


def live_elapsed(seconds: float) -> str:
    """A running time that is redrawn rarely: `3 s`, `12 s`, `3 m`, `2 h 05 m`."""
    whole = max(int(seconds), 0)
    return f"{whole} s" if whole < 60 else f"{whole // 60} m" if whole < 3_600 else elapsed(whole)


def counted(count: int, word: str) -> str:
    """A count with its noun: `1 prompt`, `3 prompts`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def tokens(count: int) -> str:
    """A token count: `950`, `12.3k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def money(usd: float) -> str:
    """An amount: `$0.12`, with four digits below a cent."""
    return f"${usd:.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4f}"


def size(count: int) -> str:
    """A size in bytes: `0 B`, `950 B`, `12.3 kB`, `1.2 MB`, `10.0 GB`."""
    if count < KB:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_in = count / KB
        if count_in < KB:
            return f"{count_in:.1f} {unit}"
        count = int(count_in)
    return f"{count / KB:.1f} GB"


# --- Escaping of text from outside: control and invisible characters are shown as `\x1b` -----------------------------


__all__ = ["escape", "escape_bytes", "escape_line"]


def escape_line(text: str) -> str:
    r"""Escape `text` for one line: a newline becomes `\n`, a tab a space."""
    return escape(text).replace("\n", "\\n").replace("\t", " ")


def escape_bytes(data: bytes) -> bytes:
    r"""Escape UTF-8 text or JSON for a terminal; the values of JSON stay the same.

    Invisible characters become `\u001b`, those beyond 16 bits two of these; CRLF becomes a newline.
    """
    return escape(data.decode("utf-8", "replace").replace("\r\n", "\n"), _as_json).encode()


def _as_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


# --- Acts in one line ------------------------------------------------------------------------------------------------


KEYS = ("command", "file_path", "path", "pattern", "query", "url", "handle", "description", "prompt", "focus")
"""Arguments that describe a call, best first."""
CHARS_MAX = 500
"""Characters of a description."""


def key_argument(arguments: dict[str, Any] | None, stated: str = "") -> str:
    """The argument that describes a call best, escaped, on one line; '' without one.

    `stated`: the argument that the tool states (`ToolTraits.key_argument`); '' when it states none or is unknown.
    """
    values = arguments or {}
    named = [values[key] for key in (stated, *KEYS) if isinstance(values.get(key), str) and values[key]]
    found = named or [value for value in values.values() if isinstance(value, str) and value]
    return _first_line(found[0]) if found else ""


def activity_text(event: AnyEvent) -> str:
    """One-line description of an event, escaped, such as `Read src/app.py`; '' for other events."""
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
    """The last call of a reply and the number of others; without calls, the first line of its last text."""
    calls = [unwrapped(part) for part in reply.parts if isinstance(part, ToolCall)]
    if calls:
        last = f"{escape_line(calls[-1].name)} {key_argument(calls[-1].arguments)}".rstrip()
        return last if len(calls) == 1 else f"{last} (and {len(calls) - 1} more)"
    texts = [part.text for part in reply.parts if isinstance(part, Text) and part.text.strip()]
    return _first_line(texts[-1]) if texts else ""


def _first_line(text: str) -> str:
    first, newline, _ = text.strip().partition("\n")
    return escape_line(first[:CHARS_MAX]) + (" …" if newline else "")
