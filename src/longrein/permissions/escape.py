r"""Safe display of text from outside: `escape` for every screen, `visible` for text that a person must approve.

Both write invisible and cursor-moving characters as `\x1b`, `\u202e`, `\U000e0041`. Letters of every script and emoji
with their joiners are kept.
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
    r"""Write every invisible or cursor-moving character as `\x1b`, `\u202e`, …; newline and tab are kept.

    Blanks of every width are kept too, since many languages use no-break spaces. One scan for clean text.
    `write` replaces a character; None for the form above.
    """
    by = write or _written
    return _unseen().sub(lambda m: m[0] if _belongs(m[0], text, m.start()) else by(m[0]), text)


def visible(text: str) -> str:
    """Return `text` for approval: escaped, with long gaps replaced by their length.

    Also escapes blanks that a shell takes for letters (U+00A0), and characters that the terminal may not be able to
    show (unassigned, private).
    """
    text = escape(text)
    if not (text.isascii() or text.isprintable()):
        text = "".join(c if c.isprintable() or c in _KEPT else _written(c) for c in text)
    text = re.compile(_LINES).sub(lambda m: f"\n[{m[0].count(chr(10))} line breaks]\n", text)
    return re.compile(_BLANKS).sub(lambda m: f" [{len(m[0])} blanks] ", text)


def without_unseen(text: str) -> str:
    """Return `text` without the characters that nobody sees, for a comparison of names."""
    return "".join(c for c in _unseen().sub("", text) if c.isprintable())


_KEPT = "\n\t\u3000" + _JOINERS + _SELECTORS


@cache
def _unseen() -> re.Pattern[str]:
    """Return the pattern of escaped characters. Compiled at first use: most headless runs escape nothing."""
    return re.compile(_UNSEEN)


def _written(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _belongs(char: str, text: str, at: int) -> bool:
    """Whether a joiner or an emoji selector is in a place where scripts or emoji need it."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if char in _SELECTORS:
        return before >= "\u203c" or (before != "" and before in _EMOJI_BASES)
    if char in _JOINERS:
        return before >= "\u0600" and after >= "\u0600" and before not in _JOINERS and after not in _JOINERS
    return False


def shown_call(arguments: dict[str, Any]) -> str:
    """Return the text that the user approves: the command alone, or each argument with its name."""
    if isinstance(arguments.get("command"), str):
        rest = {k: v for k, v in arguments.items() if k not in ("command", "description", "timeout")}
        return "\n".join([visible(arguments["command"]), *(_argument(k, v) for k, v in rest.items() if v is not None)])
    return "\n".join(_argument(k, v) for k, v in arguments.items() if v is not None)


def _argument(name: str, value: object) -> str:
    text = visible(value if isinstance(value, str) else repr(value))
    return f"{visible(name)}:\n{text}" if "\n" in text else f"{visible(name)}: {text}"
