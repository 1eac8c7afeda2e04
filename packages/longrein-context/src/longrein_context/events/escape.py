r"""Invisible and cursor-moving characters of text from outside, written as `\x1b`, `\u202e`,
`\U000e0041`.

Letters of every script and emoji with their joiners are kept.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from unicodedata import normalize

_UNSEEN = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""C0 but newline and tab, DEL, C1, bidirectional and zero-width characters, tags, fillers, lone
surrogates.
"""
JOINERS = "\u200c\u200d"
SELECTORS = "\ufe0e\ufe0f"
SEEN_ASCII = bytes([*b"\t\n", *range(0x20, 0x7F)])
"""ASCII characters that `escape` keeps."""
KINDS_MAX = 5
"""Kinds of characters that are named."""
DIGITS_MAX = 15
"""Digits of the largest number that is read from a text."""
_EMOJI_BASES = "#*0123456789©®"


def escape(text: str, write: Callable[[str], str] | None = None) -> str:
    r"""Write every invisible or cursor-moving character as `\x1b`, `\u202e`, …; newline and tab are
    kept.

    Blanks of every width are kept too, since many languages use no-break spaces. One scan for clean
    text. `write` replaces a character; None for the form above.
    """
    if text.isascii() and not text.encode().translate(None, SEEN_ASCII):
        return text  # the pattern needs forty times as long for this
    by = write or written
    return _unseen().sub(lambda m: m[0] if _belongs(m[0], text, m.start()) else by(m[0]), text)


def escape_bytes(data: bytes) -> bytes:
    r"""Escape UTF-8 text or JSON for a terminal; the values of JSON stay the same.

    Invisible characters become `\u001b`, those beyond 16 bits two of these; CRLF becomes a newline.
    """
    return escape(data.decode("utf-8", "replace").replace("\r\n", "\n"), _as_json).encode()


def _as_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def count_unseen(text: str) -> int:
    """Return the number of characters that `escape` writes out."""
    return sum(not _belongs(m[0], text, m.start()) for m in _unseen().finditer(text))


def describe_unseen(text: str) -> str:
    """Name the characters that `escape` writes out: `3 × U+202E, 1 × U+200B`; '' for none."""
    if text.isascii() and text.isprintable():
        return ""
    counts: dict[str, int] = {}
    for found in _unseen().finditer(text):
        if not _belongs(found[0], text, found.start()):
            counts[found[0]] = counts.get(found[0], 0) + 1
    most = sorted(counts, key=lambda char: -counts[char])[:KINDS_MAX]
    return ", ".join(f"{counts[char]} × U+{ord(char):04X}" for char in most)


def quote_line(text: str, chars_max: int) -> str:
    """Return text from outside for a line of longrein's own: one line in backquotes, with nothing
    that ends the quotation or is invisible.
    """
    line = escape(" ".join(text[: 4 * chars_max].split()).replace("`", "'"))
    is_whole = len(line) <= chars_max and len(text) <= 4 * chars_max
    return f"`{line}`" if is_whole else f"`{line[: chars_max - 1]}…`"


def without_unseen(text: str) -> str:
    """Return `text` without the characters that nobody sees, for a comparison of names."""
    return "".join(c for c in _unseen().sub("", text) if c.isprintable())


def plain_name(path: str) -> str:
    """Return a file name or path without case, width and invisible characters, with a plain `i`,
    for a comparison.
    """
    if path.isascii() and path.isprintable():
        return path.lower()
    plain = normalize("NFKC", normalize("NFKC", without_unseen(path)).casefold())
    return without_unseen(plain).replace("\u0131", "i").replace("i\u0307", "i").lower()


@cache
def _unseen() -> re.Pattern[str]:
    """Return the pattern of escaped characters. Compiled at first use: most headless runs escape
    nothing.
    """
    return re.compile(_UNSEEN)


def written(char: str) -> str:
    """Return the escape of a character."""
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def _belongs(char: str, text: str, at: int) -> bool:
    """Return True if a joiner or an emoji selector is in a place where scripts or emoji need it."""
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if char in SELECTORS:
        return before >= "\u203c" or (before != "" and before in _EMOJI_BASES)
    if char in JOINERS:
        return (
            before >= "\u0600"
            and after >= "\u0600"
            and before not in JOINERS
            and after not in JOINERS
        )
    return False


def valid_text(text: str) -> str:
    """Return `text` with U+FFFD for halves of surrogate pairs, which JSON cannot hold: Python reads
    bytes that are not UTF-8 as such, for instance of a file's name.
    """
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def one_line(text: str) -> str:
    """Return the words of `text` with one space between them."""
    return " ".join(text.split())


def whole_number(text: str, otherwise: int = 0) -> int:
    """Return the number that at most `DIGITS_MAX` ASCII digits write; `otherwise` for other text.

    Python reads no more than 4,300 digits, and `str.isdigit` takes `²` for one.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_number else otherwise


def regular_expression(text: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern of a file or a model. Raises `re.error` for whatever Python cannot compile,
    such as a repetition of 99999999999 times or a thousand nested groups.
    """
    try:
        return re.compile(text, flags)
    except (ValueError, OverflowError, RecursionError) as error:
        raise re.error(str(error)) from None


def shortened(text: str, chars_max: int) -> str:
    """Return `text` in at most `chars_max` characters, with `…` where it is cut."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def nearest(word: str, words: Iterable[str], ratio: float = 0.65) -> str:
    """Return the word most similar to `word`; '' without one of at least `ratio`, from 0
    (anything) to 1 (the same).
    """
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(words), 1, ratio)), "")
