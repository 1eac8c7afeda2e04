"""Text for people: figures, escaping, and one-line descriptions of calls and events.
Pure.
"""

import re
from typing import TYPE_CHECKING, Any

import msgspec

from longrein.permissions import escape
from longrein.steps.steps import CallStep, QuestionStep, RequestStep, Step
from longrein_context.events import Replied, Text, ToolCall, unwrapped

if TYPE_CHECKING:
    from longrein.tools.patch_text import FilePatch

__all__ = ["escape", "escape_line"]

CHARS_MAX = 500
"""Longest description of a call or an event."""


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
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} m"
    return elapsed(whole)


def age(us: int) -> str:
    """Return an age in words: `just now`, `5 m ago`, `3 h ago`, `2 days ago`, `5 weeks ago`."""
    minutes = max(us, 0) // 60_000_000
    if minutes < 60:
        return f"{minutes} m ago" if minutes else "just now"
    hours, days = minutes // 60, minutes // 1_440
    if days < 14:
        return f"{counted(days, 'day')} ago" if days else f"{hours} h ago"
    return f"{counted(days // 7, 'week')} ago"


def counted(count: int, word: str) -> str:
    """A count with its noun: `1 prompt`, `3 prompts`, `2 entries`, `2 searches`."""
    if count == 1:
        return f"{count} {word}"
    if word.endswith(("ry", "ly")):
        return f"{count} {word[:-1]}ies"
    return f"{count} {word}{'es' if word.endswith('ch') else 's'}"


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
    if count < 1_000:
        return f"{count} B"
    if count < 1e6:
        return f"{count / 1e3:.1f} kB"
    if count < 1e9:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e9:.1f} GB"


def joined(*facts: str, by: str = ", ") -> str:
    """The facts that are not empty, joined."""
    return by.join(filter(None, facts))


def usage(steps: int, tokens_used: int, usd: float) -> str:
    """Work of a subagent: `3 steps, 12.3k tokens, $0.50`, without figures that are 0."""
    return joined(
        counted(steps, "step") if steps else "",
        f"{tokens(tokens_used)} tokens" if tokens_used else "",
        money(usd) if usd else "",
    )


def json_page(value: Any) -> bytes:
    """`value` as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


# --- Escaping of text from outside: control and invisible characters are shown as `\x1b` ----------


def escape_line(text: str) -> str:
    r"""Escape `text` for one line: a newline becomes `\n`, a tab a space."""
    return escape(text).replace("\n", "\\n").replace("\t", " ")


_FOR_MODEL = re.compile(
    r"^\[[a-z-]{1,40}\] (?=[A-Z/])| Next: call \w{1,40} with [^\n]*\.(?=\n|$)"
    r"|; timeout may be up to \d{1,9} ms|; TaskOutput shows more| Go by this and call again:",
    re.MULTILINE,
)


def for_people(text: str) -> str:
    """Return the result of a call without what says to the model how to go on.

    >>> for_people('[not-found] No such file: /w/a. Here: b. Next: call Read with file_path "b".')
    'No such file: /w/a. Here: b.'
    """
    return _FOR_MODEL.sub("", text)


def first_line(text: str) -> str:
    """The first line of `text`, escaped; ` …` when more follow."""
    first, newline, _ = text.strip().partition("\n")
    return escape_line(first[:CHARS_MAX]) + (" …" if newline else "")


KEYS = (
    "command",
    "file_path",
    "path",
    "pattern",
    "query",
    "url",
    "handle",
    "description",
    "prompt",
    "focus",
)
"""Arguments that describe a call, best first."""


def key_argument(arguments: dict[str, Any] | None, stated: str = "") -> str:
    """The argument that describes a call best, escaped, on one line; '' without one.

    Of a search these are the searched words, then the path. `stated`: the argument that the tool
    states (`ToolTraits.key_argument`); '' when it states none or is unknown.
    """
    values = arguments or {}
    named = [
        values[key] for key in (stated, *KEYS) if isinstance(values.get(key), str) and values[key]
    ]
    found = named or [value for value in values.values() if isinstance(value, str) and value]
    if found and found[0] == values.get("input") and (patches := file_patches(values)):
        found = [", ".join(path for one in patches for path in (one.path, one.moved_to) if path)]
    pattern, place = values.get("pattern"), values.get("path") or values.get("glob")
    if not stated and isinstance(pattern, str) and pattern and isinstance(place, str):
        found = [f"{pattern} in {place}" if place else pattern]
    return first_line(found[0]) if found else ""


def file_patches(arguments: dict[str, Any] | None) -> "list[FilePatch]":
    """The changes of files that a call of `apply_patch` makes; [] for text that is no patch."""
    from longrein.tools.patch_text import patches_of

    return patches_of(arguments)


def activity_text(step: Step) -> str:
    """Return an escaped line that describes a step, such as `Read src/app.py`; '' for other
    steps.
    """
    match step:
        case RequestStep(reply=reply) if reply:
            return _reply(reply)
        case RequestStep(failure=failure) if failure:
            return f"no answer: {first_line(failure.message or failure.kind)}"
        case CallStep(ended=end) if end and end.status == "failed":
            return f"{escape_line(end.name)} failed"
        case QuestionStep(answer=None, asked=asked) if asked:
            return f"asks: {escape_line(asked.name)}"
        case _:
            return ""


def _reply(reply: Replied) -> str:
    """The last call of a reply and the number of others; without calls, the first line of its
    last text.
    """
    calls = [unwrapped(part) for part in reply.parts if isinstance(part, ToolCall)]
    if calls:
        last = f"{escape_line(calls[-1].name)} {key_argument(calls[-1].arguments)}".rstrip()
        return last if len(calls) == 1 else f"{last} (and {len(calls) - 1} more)"
    texts = [part.text for part in reply.parts if isinstance(part, Text) and part.text.strip()]
    return first_line(texts[-1]) if texts else ""
