"""What a text is made of, as far as tokenizers care: words, marks, dense runs, CJK, other scripts. Counted, not read.

Byte-pair encoders cut a text into words, numbers and marks before they look anything up, so the number of such pieces
says more than the number of characters. Bytes are mapped to classes in one pass and pairs of classes counted in others,
all at the speed of the C library; of a long text evenly spaced pieces stand for the whole.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import add

CLASSES = (
    "words",
    "marks",
    "dense",
    "media",
    "blocks",
    "cjk",
    "accents",
    "cyrillic",
    "arabic",
    "thai",
    "symbols",
    "emoji",
)
"""What tokenizers charge differently; calibration learns one factor for each."""
MEDIA, BLOCKS = 3, 4
RECENT_MAX = 32
"""Texts whose mix is kept at hand: those of a step or two."""
Mix = tuple[float, ...]
"""Guessed tokens for each of `CLASSES`."""
NO_MIX: Mix = (0.0,) * len(CLASSES)
NO_WIDE: Mix = (0.0,) * 7

TOKENS_PER_WORD = 0.85
TOKENS_PER_LETTER = 0.075
"""Together 1.2 tokens for an English word of 4.7 letters, 1.8 for an identifier of 12."""
TOKENS_PER_MARK = 0.5
"""A mark before a word is often one token with it."""
TOKENS_PER_DIGIT = 0.45
"""Up to three digits are one token; some providers take each alone."""
TOKENS_PER_LINE = 0.8
"""The end of a line and the blanks that begin the next are mostly one token."""
TOKENS_PER_DENSE_CHAR = 0.62
"""Base64: hardly a pair of letters that is a word."""
TOKENS_PER_WIDE_CHAR = ((b"c", 1.0), (b"l", 0.6), (b"y", 0.45), (b"h", 0.55), (b"t", 0.7), (b"s", 0.8), (b"e", 2.0))
"""CJK (between 0.7 with vocabularies of 200k and 1.3 with 100k), letters with accents (each cuts a word), Greek and
Cyrillic, Hebrew and Arabic, Thai and Indic, symbols, emoji: the last seven classes."""
PIECE_CHARS = 2_048
PIECES_MAX = 8
"""Of a text longer than so many pieces of that length, as many evenly spaced ones are looked at."""
DENSE_BLANKS_MAX = 0.02
"""Share of blanks above which a piece is no base64, ten times that where it has its share of digits …"""
DENSE_DIGITS_MIN = 0.08
DENSE_CHANGES_MIN = 0.08
"""… and share of lower-case letters followed by a capital below which it is none."""
DENSE_CHARS_MIN = 120
"""A shorter piece is a word or a hash."""


def _classes() -> bytes:
    table = bytearray(b"." * 256)
    for first, last, kind in (
        ("a", "z", "a"), ("A", "Z", "A"), ("0", "9", "0"), ("\t", "\t", " "), (" ", " ", " "),
        ("\n", "\r", "\n"), ("\x80", "\xbf", "x"), ("\xc0", "\xcd", "l"), ("\xce", "\xd5", "y"),
        ("\xd6", "\xdf", "h"), ("\xe0", "\xe1", "t"), ("\xe2", "\xe2", "s"), ("\xe3", "\xef", "c"),
        ("\xf0", "\xff", "e"),
    ):  # fmt: skip
        for byte in range(ord(first), ord(last) + 1):
            table[byte] = ord(kind)
    return bytes(table)


_CLASS = _classes()
_LETTERS = bytes(ord("a") if chr(kind) in "aAlx" else ord(".") for kind in range(256))
"""From classes on: whether a byte goes on with a word."""


@lru_cache(maxsize=RECENT_MAX)
def mix_of(text: str) -> Mix:
    """Guessed tokens of `text` by class, brackets not counted. A new text is weighed several times in one step."""
    if len(text) <= PIECE_CHARS:
        return _mix_of_piece(text)
    count = -(-len(text) // PIECE_CHARS)
    if count <= PIECES_MAX:
        return added([_mix_of_piece(text[at : at + PIECE_CHARS]) for at in range(0, len(text), PIECE_CHARS)])
    stride = (len(text) - PIECE_CHARS) / (PIECES_MAX - 1)
    starts = [round(n * stride) for n in range(PIECES_MAX)]
    looked_at = added([_mix_of_piece(text[at : at + PIECE_CHARS]) for at in starts])
    return scaled(looked_at, len(text) / (PIECES_MAX * PIECE_CHARS))


def _mix_of_piece(text: str) -> Mix:
    """Long lines without a blank apart from the rest: base64 between two lines of prose is still base64."""
    lines = text.split("\n")
    if max(map(len, lines)) < DENSE_CHARS_MIN:
        return _mix_of_lines(text)
    runs = [line for line in lines if len(line) >= DENSE_CHARS_MIN and " " not in line]
    if not runs or len(runs) == len(lines):
        return _mix_of_lines(text)
    rest = [line for line in lines if len(line) < DENSE_CHARS_MIN or " " in line]
    return plus(_mix_of_lines("\n".join(runs)), _mix_of_lines("\n".join(rest)))


def _mix_of_lines(text: str) -> Mix:
    if not text:
        return NO_MIX
    shape = text.encode("utf-8", "replace").translate(_CLASS)
    rest = shape.translate(None, b"aAx")  # few are left, and counting costs by the match
    letters = len(shape) - len(rest)
    digits, blanks, lines, marks = map(rest.count, (b"0", b" ", b"\n", b"."))
    wide = NO_WIDE
    if not text.isascii():
        letters -= shape.count(b"x")
        wide = tuple([rest.count(kind) * tokens for kind, tokens in TOKENS_PER_WIDE_CHAR])
    narrow, changes = letters + digits + marks, shape.count(b"aA") if letters else 0
    blanks_max = DENSE_BLANKS_MAX * (10 if digits > DENSE_DIGITS_MIN * narrow else 1)
    if narrow >= DENSE_CHARS_MIN and changes > DENSE_CHANGES_MIN * narrow and blanks + lines < blanks_max * narrow:
        return (0.0, 0.0, narrow * TOKENS_PER_DENSE_CHAR, 0.0, 0.0, *wide)
    runs = shape.translate(_LETTERS)
    words = runs.count(b".a") + (runs[0] == 97) + changes if letters else 0
    return (
        words * TOKENS_PER_WORD + letters * TOKENS_PER_LETTER,
        marks * TOKENS_PER_MARK + digits * TOKENS_PER_DIGIT + lines * TOKENS_PER_LINE,
        0.0,
        0.0,
        0.0,
        *wide,
    )


def added(mixes: Sequence[Mix]) -> Mix:
    """The sum."""
    return tuple(map(sum, zip(*mixes, strict=True))) if mixes else NO_MIX


def plus(one: Mix, other: Mix) -> Mix:
    """The sum of two."""
    return tuple(map(add, one, other))


def scaled(mix: Mix, factor: float) -> Mix:
    """`factor` times `mix`."""
    return tuple([factor * part for part in mix])


def only(kind: int, tokens: float) -> Mix:
    """`tokens` of one class."""
    return tuple([tokens if at == kind else 0.0 for at in range(len(CLASSES))])
