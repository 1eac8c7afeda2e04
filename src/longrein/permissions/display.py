r"""Text from outside as a person sees it: `escape` for every screen, `visible` for what must be approved.

Both write characters that are invisible or move the cursor as `\x1b`, `\u202e`, `\U000e0041`. Letters of every script
stay, and so do emoji with their joiners.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

_UNSEEN = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""C0 but newline and tab, DEL, C1, bidirectional and zero-width characters, tags, fillers, lone surrogates."""
_JOINERS = "\u200c\u200d"
_SELECTORS = "\ufe0e\ufe0f"
_EMOJI_BASES = "#*0123456789©®"
_BLANKS = r"[ \t\u3000]{33,}"
_LINES = r"\n(?:[ \t]*\n){3,}"


def escape(text: str, write: Callable[[str], str] | None = None) -> str:
    r"""`text` with every invisible or cursor-moving character written as `\x1b`, `\u202e`, …; newline and tab stay.

    Blanks of every width stay too: text of several languages is full of no-break spaces. One scan for clean text.
    `write` says how a character is written; None: as above.
    """
    by = write or _written
    return _unseen().sub(lambda m: m[0] if _belongs(m[0], text, m.start()) else by(m[0]), text)


def visible(text: str) -> str:
    """`text` as it is shown for approval: escaped, long gaps folded with their count.

    Also written out: blanks that a shell takes for letters (U+00A0), and characters that the terminal may have no sign
    for (unassigned, private).
    """
    text = escape(text)
    if not (text.isascii() or text.isprintable()):
        text = "".join(c if c.isprintable() or c in _KEPT else _written(c) for c in text)
    text = re.compile(_LINES).sub(lambda m: f"\n[{m[0].count(chr(10))} line breaks]\n", text)
    return re.compile(_BLANKS).sub(lambda m: f" [{len(m[0])} blanks] ", text)


_KEPT = "\n\t\u3000" + _JOINERS + _SELECTORS


@cache
def _unseen() -> re.Pattern[str]:
    """Compiled when something is first shown: most headless runs escape nothing."""
    return re.compile(_UNSEEN)


def _written(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _belongs(char: str, text: str, at: int) -> bool:
    """Whether a joiner or an emoji selector stands where scripts and emoji need one."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if char in _SELECTORS:
        return before >= "\u203c" or (before != "" and before in _EMOJI_BASES)
    if char in _JOINERS:
        return before >= "\u0600" and after >= "\u0600" and before not in _JOINERS and after not in _JOINERS
    return False


def shown_call(arguments: dict[str, Any]) -> str:
    """What the user approves: the command alone, or each argument under its name."""
    if isinstance(arguments.get("command"), str):
        rest = {k: v for k, v in arguments.items() if k not in ("command", "description", "timeout")}
        return "\n".join([visible(arguments["command"]), *(_argument(k, v) for k, v in rest.items() if v is not None)])
    return "\n".join(_argument(k, v) for k, v in arguments.items() if v is not None)


def _argument(name: str, value: object) -> str:
    text = visible(value if isinstance(value, str) else repr(value))
    return f"{visible(name)}:\n{text}" if "\n" in text else f"{visible(name)}: {text}"
