r"""Text from outside never reaches the terminal raw: what is unseen, or would move the cursor, is shown as `\x1b`.

Escaped: C0 but newline and tab, DEL, C1, bidirectional and zero-width characters, tags, fillers, lone surrogates.
Untouched: letters of every script, emoji with their joiners and selectors. One scan for clean text.
"""

import re
from functools import cache

_UNSEEN = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200c\u200d"
_EMOJI_BASES = "#*0123456789©®"


def escape(text: str) -> str:
    r"""`text` with everything unseen written as `\x1b`, `\u202e`, `\U000e0041`; newline and tab stay."""
    return _unseen().sub(_written, text)


def escape_line(text: str) -> str:
    r"""The same for what must stay on one line: newline and tab are written as `\n` and a space."""
    return escape(text).replace("\n", "\\n").replace("\t", " ")


def escape_bytes(data: bytes) -> bytes:
    r"""UTF-8 for a terminal, where bytes go as they are to files and pipes: text, or JSON, whose values stay the same.

    Everything unseen is written as `\u001b`, what needs more digits as two of these; CRLF becomes a newline.
    """
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return _unseen().sub(_as_json, text).encode()


@cache
def _unseen() -> re.Pattern[str]:
    """Compiled when something is first shown: most headless runs escape nothing."""
    return re.compile(_UNSEEN)


def _written(match: re.Match[str]) -> str:
    char, code = match[0], ord(match[0])
    if _belongs(char, match.string, match.start()):
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _as_json(match: re.Match[str]) -> str:
    char = match[0]
    if _belongs(char, match.string, match.start()):
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _belongs(char: str, text: str, at: int) -> bool:
    """Whether a joiner or an emoji selector stands where scripts and emoji need one."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if char in "\ufe0e\ufe0f":
        return before >= "\u203c" or (before != "" and before in _EMOJI_BASES)
    if char in _JOINERS:
        return before >= "\u0600" and after >= "\u0600" and before not in _JOINERS and after not in _JOINERS
    return False
