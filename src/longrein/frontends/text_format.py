"""Times, counts, sizes and sums as people read them. Pure."""

from typing import Any

from longrein.events import AnyEvent, AskFailed, PermissionAsked, Replied, Text, ToolCall, ToolEnded, unwrapped
from longrein.permissions import escape

KB = 1_000


def elapsed(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 m 05 s`, `2 h 05 m`; '' below a twentieth of a second."""
    if seconds < 0.05:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} m"
    return f"{minutes} m {rest:02d} s" if minutes else f"{rest} s"


def live_elapsed(seconds: float) -> str:
    """The same for what goes on and is drawn again now and then: `3 s`, `12 s`, `3 m`, `2 h 05 m`."""
    whole = max(int(seconds), 0)
    return f"{whole} s" if whole < 60 else f"{whole // 60} m" if whole < 3_600 else elapsed(whole)


def counted(count: int, word: str) -> str:
    """`1 prompt`, `3 prompts`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def tokens(count: int) -> str:
    """`950`, `12.3k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def money(usd: float) -> str:
    """`$0.12`; four digits below a cent."""
    return f"${usd:.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.4f}"


def size(count: int) -> str:
    """Bytes: `0 B`, `950 B`, `12.3 kB`, `1.2 MB`, `10.0 GB`."""
    if count < KB:
        return f"{count} B"
    for unit in ("kB", "MB"):
        count_in = count / KB
        if count_in < KB:
            return f"{count_in:.1f} {unit}"
        count = int(count_in)
    return f"{count / KB:.1f} GB"


# ---------------------------------------------------------------------------------------------------------------------
#
# Text from outside never reaches the terminal raw: what is unseen, or would move the cursor, is shown as `\x1b`.


__all__ = ["escape", "escape_bytes", "escape_line"]


def escape_line(text: str) -> str:
    r"""`text` escaped for one line: newline and tab are written as `\n` and a space."""
    return escape(text).replace("\n", "\\n").replace("\t", " ")


def escape_bytes(data: bytes) -> bytes:
    r"""UTF-8 for a terminal, where bytes go as they are to files and pipes: text, or JSON, whose values stay the same.

    Everything unseen is written as `\u001b`, what needs more digits as two of these; CRLF becomes a newline.
    """
    return escape(data.decode("utf-8", "replace").replace("\r\n", "\n"), _as_json).encode()


def _as_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


# ---------------------------------------------------------------------------------------------------------------------
#
# What somebody did last, in one line: the same words on the screen, in lists and in progress lines. Pure.


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


def activity_text(event: AnyEvent) -> str:
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
