r"""Text as a person must see it before saying yes: nothing hidden, nothing that moves the cursor.

Control, bidirectional, zero-width and tag characters are written as `\x1b`, `\u202e`, `\U000e0041`; long runs of
blanks or empty lines are folded with their count. Letters of every script, and emoji with their joiners, stay.
"""

import re
from typing import Any

_SUSPECT = r"[^\n\t -~]+"
_SELECTORS = "[\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180f]"
_JOINERS = frozenset("\u200c\u200d\ufe0e\ufe0f")
RUN_MAX = 10_000
"""Characters in a row that are looked at one by one; in a longer row joiners are written out, too."""
_BLANKS = r"[ \t\u3000]{33,}"
_LINES = r"\n(?:[ \t]*\n){3,}"
_UNSEEN = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5")
"""Letters and marks that show nothing though they count as printable."""


def visible(text: str) -> str:
    """`text` with everything unseen escaped and long gaps folded. Blank-free printable text comes back as it is."""
    text = escaped(text)
    text = re.compile(_LINES).sub(lambda m: f"\n[{m[0].count(chr(10))} line breaks]\n", text)
    return re.compile(_BLANKS).sub(lambda m: f" [{len(m[0])} blanks] ", text)


def escaped(text: str) -> str:
    """`text` with every character that shows nothing or moves the cursor written out; gaps stay as they are."""
    if text.isascii() and text.isprintable():
        return text
    return re.compile(_SUSPECT).sub(lambda match: _run(text, match), text)


def _run(text: str, match: re.Match[str]) -> str:
    """Characters in a row that may have to be written out."""
    run = match[0]
    if run.isprintable() and _UNSEEN.isdisjoint(run) and not re.search(_SELECTORS, run):
        return run
    if len(run) > RUN_MAX or _JOINERS.isdisjoint(run):
        return run.translate({ord(c): _shown(c, 0) for c in set(run)})
    return "".join(_shown(text, i) for i in range(*match.span()))


def _shown(text: str, i: int) -> str:
    c = text[i]
    code = ord(c)
    if c in "\n\t\u3000" or (c.isprintable() and c not in _UNSEEN and not _selector(code)):
        return c
    if c in _JOINERS and _joins(text, i):
        return c
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _selector(code: int) -> bool:
    return 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or 0x180B <= code <= 0x180F


def _joins(text: str, i: int) -> bool:
    """Whether a joiner or an emoji selector stands where scripts and emoji need one."""
    before = ord(text[i - 1]) if i else 0
    after = ord(text[i + 1]) if i + 1 < len(text) else 0
    if ord(text[i]) >= 0xFE00:
        return before >= 0x203C or text[i - 1 : i] in tuple("#*0123456789©®")
    return before >= 0x600 and after >= 0x600 and before not in (0x200C, 0x200D) and after not in (0x200C, 0x200D)


def shown_call(arguments: dict[str, Any]) -> str:
    """What the user approves: the command alone, or each argument under its name."""
    if isinstance(arguments.get("command"), str):
        rest = {k: v for k, v in arguments.items() if k not in ("command", "description", "timeout")}
        return "\n".join([visible(arguments["command"]), *(_argument(k, v) for k, v in rest.items() if v is not None)])
    return "\n".join(_argument(k, v) for k, v in arguments.items() if v is not None)


def _argument(name: str, value: object) -> str:
    text = visible(value if isinstance(value, str) else repr(value))
    return f"{visible(name)}:\n{text}" if "\n" in text else f"{visible(name)}: {text}"
