"""Token estimates: class counts of a text, corrected by the counts of the provider.

The provider's last count is taken as it is. Only what came after it is estimated, each class of
text by the factor learned in this session. A count that cannot be true (zero, a tenth, ten times)
is ignored. No tokenizer is needed.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import add

import msgspec

from longrein_context.events import (
    AnyPart,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)

# --- Class counts of a text -----------------------------------------------------------------------
#
# Byte-pair encoders split a text into words, numbers and marks first, so the number of such pieces
# predicts tokens better than the number of characters. `bytes.translate` and `count` do the work at
# the speed of the C library. Of a long text only evenly spaced pieces are counted.

CLASSES: tuple[str, ...] = ("words", "marks", "dense", "media", "blocks")
CLASSES += ("cjk", "accents", "cyrillic", "arabic", "thai", "symbols", "emoji")
"""Classes of text that tokenizers charge differently; calibration learns one factor for each."""
MEDIA, BLOCKS = 3, 4
MIX_CACHE_SIZE = 256  # Texts whose mix is cached; removing an item needs it
Mix = tuple[float, ...]  # Estimated tokens by class, in the order of `CLASSES`
EMPTY_MIX: Mix = (0.0,) * len(CLASSES)
NO_WIDE: Mix = (0.0,) * 7

TOKENS_PER_WORD = 0.85
TOKENS_PER_LETTER = 0.075
"""With `TOKENS_PER_WORD`: 1.2 tokens for an English word of 4.7 letters, 1.8 for an identifier
of 12.
"""
TOKENS_PER_MARK = 0.5  # A mark before a word is often one token with it
TOKENS_PER_DIGIT = 0.45  # Up to three digits are one token; some tokenizers take each alone
TOKENS_PER_LINE = 0.8  # A line end and the blanks of the next line are mostly one token
TOKENS_PER_DENSE_CHAR = 0.62  # Base64: hardly any pair of letters is a word
TOKENS_PER_WIDE_CHAR = (
    (b"c", 1.0),
    (b"l", 0.6),
    (b"y", 0.45),
    (b"h", 0.55),
    (b"t", 0.7),
    (b"s", 0.8),
    (b"e", 2.0),
)
"""The last seven classes: CJK (0.7 with vocabularies of 200k, 1.3 with 100k), letters with
accents (each splits a word), Greek and Cyrillic, Hebrew and Arabic, Thai and Indic, symbols,
emoji.
"""
PIECE_CHARS = 2_048
PIECES_MAX = 8  # Number of evenly spaced pieces that stand for a longer text
DENSE_BLANKS_MAX = (
    0.02  # Largest share of blanks in base64; ten times that if it also has its share of digits
)
DENSE_DIGITS_MIN = 0.08
DENSE_CHANGES_MIN = 0.08  # Smallest share of lower-case letters followed by a capital in base64
DENSE_CHARS_MIN = 120  # A shorter run is a word or a hash, not base64


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
"""Class -> whether the byte continues a word."""


@lru_cache(maxsize=MIX_CACHE_SIZE)
def mix_of(text: str) -> Mix:
    """Return the estimated tokens of `text` by class, without message brackets."""
    if len(text) <= PIECE_CHARS:
        return _mix_of_piece(text)
    count = -(-len(text) // PIECE_CHARS)
    if count <= PIECES_MAX:
        return sum_mixes(
            [_mix_of_piece(text[at : at + PIECE_CHARS]) for at in range(0, len(text), PIECE_CHARS)]
        )
    stride = (len(text) - PIECE_CHARS) / (PIECES_MAX - 1)
    starts = [round(n * stride) for n in range(PIECES_MAX)]
    looked_at = sum_mixes([_mix_of_piece(text[at : at + PIECE_CHARS]) for at in starts])
    return scale_mix(looked_at, len(text) / (PIECES_MAX * PIECE_CHARS))


def _mix_of_piece(text: str) -> Mix:
    """Estimate long lines without blanks separately, so that base64 between two lines of prose
    is recognised.
    """
    lines = text.split("\n")
    if max(map(len, lines)) < DENSE_CHARS_MIN:
        return _mix_of_lines(text)
    runs = [line for line in lines if len(line) >= DENSE_CHARS_MIN and " " not in line]
    if not runs or len(runs) == len(lines):
        return _mix_of_lines(text)
    rest = [line for line in lines if len(line) < DENSE_CHARS_MIN or " " in line]
    return add_mixes(_mix_of_lines("\n".join(runs)), _mix_of_lines("\n".join(rest)))


def _mix_of_lines(text: str) -> Mix:
    if not text:
        return EMPTY_MIX
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
    if (
        narrow >= DENSE_CHARS_MIN
        and changes > DENSE_CHANGES_MIN * narrow
        and blanks + lines < blanks_max * narrow
    ):
        return (0.0, 0.0, narrow * TOKENS_PER_DENSE_CHAR, 0.0, 0.0, *wide)
    runs = shape.translate(_LETTERS)
    words = runs.count(b".a") + (runs[0] == 97) + changes if letters else 0
    in_words = words * TOKENS_PER_WORD + letters * TOKENS_PER_LETTER
    return (
        in_words,
        marks * TOKENS_PER_MARK + digits * TOKENS_PER_DIGIT + lines * TOKENS_PER_LINE,
        0.0,
        0.0,
        0.0,
        *wide,
    )


def sum_mixes(mixes: Sequence[Mix]) -> Mix:
    """Return the sum of `mixes`."""
    if len(mixes) == 1:
        return mixes[0]
    return tuple(map(sum, zip(*mixes, strict=True))) if mixes else EMPTY_MIX


def add_mixes(one: Mix, other: Sequence[float]) -> Mix:
    """Return the sum of two mixes."""
    return tuple(map(add, one, other))


def scale_mix(mix: Mix, factor: float) -> Mix:
    """Return `factor` times `mix`."""
    return tuple([factor * part for part in mix])


def class_mix(kind: int, tokens: float) -> Mix:
    """Return a mix of `tokens` of one class."""
    return tuple([tokens if at == kind else 0.0 for at in range(len(CLASSES))])


# --- Calibration: one factor per class, learned by a Kalman filter --------------------------------
#
# Each answered request tells the cost of a known mix of classes. The factors start at 1. Their
# prior covariance says that a tokenizer that is expensive for English is likely expensive for
# everything.

SHARED_VARIANCE = 0.04  # Variance between tokenizers as a whole (standard deviation 20 %)
OWN_VARIANCES = (0.01, 0.04, 0.06, 0.25, 0.25, 0.09, 0.09, 0.09, 0.12, 0.12, 0.12, 0.12)
"""Additional variance of each of `CLASSES`: words the least, pictures and brackets the most."""
NOISE_SHARE = 0.03
NOISE_TOKENS = 4.0  # With `NOISE_SHARE`: distance between a count and the sum of its classes
DRIFT = (
    0.0004  # Variance added with each count, because the content of a class changes in a session
)
FACTOR_MIN = 0.25
FACTOR_MAX = 4.0  # No tokenizer is further from the estimate; a count that says so is wrong

Row = tuple[float, ...]
_N = len(OWN_VARIANCES)


def _prior() -> tuple[Row, ...]:
    return tuple(
        tuple(SHARED_VARIANCE + (OWN_VARIANCES[at] if at == row else 0.0) for at in range(_N))
        for row in range(_N)
    )


class ClassFactors(msgspec.Struct, frozen=True):
    """Learned factors and their covariance; immutable, so that states can share it."""

    factors: Row = (1.0,) * _N  # Provider's tokens per estimated token, by class
    covariance: tuple[Row, ...] = _prior()  # Covariance of the factors
    counts: int = 0  # Number of counts learned from

    def tokens(self, mix: Mix) -> float:
        """Return the calibrated tokens of `mix`."""
        return sum([factor * tokens for factor, tokens in zip(self.factors, mix, strict=True)])


def update_factors(known: ClassFactors, mix: Mix, counted: float) -> ClassFactors:
    """Return `known` after the provider counted `counted` tokens for `mix`.

    Both may be differences of two requests.
    """
    held = [(at, tokens) for at, tokens in enumerate(mix) if tokens]
    drifted = [list(cells) for cells in known.covariance]
    for row, cells in enumerate(drifted):
        cells[row] += DRIFT
    toward = [sum([cells[at] * tokens for at, tokens in held]) for cells in drifted]
    noise = (NOISE_SHARE * sum(map(abs, mix)) + NOISE_TOKENS) ** 2
    spread = sum([tokens * pull for tokens, pull in zip(mix, toward, strict=True)]) + noise
    missed = counted - known.tokens(mix)
    factors = tuple(
        min(FACTOR_MAX, max(FACTOR_MIN, factor + pull * missed / spread))
        for factor, pull in zip(known.factors, toward, strict=True)
    )
    covariance = tuple(
        tuple([cell - pull * other / spread for cell, other in zip(cells, toward, strict=True)])
        for pull, cells in zip(toward, drifted, strict=True)
    )
    return ClassFactors(factors, covariance, known.counts + 1)


# --- Tokens of parts and of the view --------------------------------------------------------------

CHARS_PER_TOKEN_CODE = (
    3.0  # Approximate rate of code, JSON and paths, to turn a limit in tokens into characters
)
ITEM_TOKENS = 6  # Tokens of brackets, role and ids around one block
IMAGE_TOKENS_PER_PIXEL = (
    1 / 750
)  # Published rule of one large provider; others charge about the same
IMAGE_TOKENS_DEFAULT = 1_600  # Tokens of an image of unknown size
# After so many consecutive implausible counts that agree with each other, another tokenizer is
# assumed
DOUBTS_MAX = 3
# Number of equal counts of a growing view after which the provider is assumed to cut it silently
CEILING_COUNTS = 3
CEILING_GROWTH = 1.1  # Factor by which the estimate must have grown meanwhile
CEILING_TOKENS_MIN = 2_000  # A smaller count is not a window


def estimate_text(text: str) -> int:
    """Estimate the tokens of `text` before calibration; at least 1 unless it is empty."""
    return max(1, round(sum(mix_of(text)))) if text else 0


def estimate_part(part: AnyPart) -> int:
    """Estimate the tokens of a part before calibration."""
    return round(sum(mix_of_part(part)))


def mix_of_part(part: AnyPart) -> Mix:
    """Return the estimated tokens of a part by class."""
    match part:
        case Text(text) | Thinking(text):
            return mix_of(text)
        case Image():
            return class_mix(
                MEDIA, part.width * part.height * IMAGE_TOKENS_PER_PIXEL or IMAGE_TOKENS_DEFAULT
            )
        case Document():
            return sum_mixes([mix_of(part.head), mix_of(part.tail), class_mix(BLOCKS, ITEM_TOKENS)])
        case ToolCall():
            return sum_mixes([mix_of(part.name), mix_of(arguments_text(part))])
        case ToolResult():
            return sum_mixes([mix_of_part(inner) for inner in part.parts])


def spec_text(spec: ToolSpec) -> str:
    """Return all text of a tool that is listed in full."""
    return spec.name + spec.description + str(spec.schema)


def spec_tokens(spec: ToolSpec) -> int:
    """Estimate the tokens of a tool that is listed in full."""
    return estimate_text(spec_text(spec)) + ITEM_TOKENS


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text."""
    return call.received or msgspec.json.encode(call.arguments).decode()


class TokenGauge(msgspec.Struct):
    """Estimated and counted tokens of the view, kept up to date by `step`.

    `raw` is the estimate before calibration. `add_part` changes it together with its classes, which
    keeps `tokens` accurate in a session of many scripts.
    """

    raw: int = 0  # Estimate for the whole view, prefix included, before calibration
    counted: int = 0  # Provider's count for the last answered request; 0 if there is none
    counted_raw: int = 0  # Estimate for the same request
    ratio: float = 1.0  # Count divided by estimate for the whole view
    fresh: Mix = EMPTY_MIX  # Additions to the view since the last count, by class
    whole: Mix = EMPTY_MIX  # Whole view by class
    learned: ClassFactors = ClassFactors()  # Factors of the classes
    told: tuple[
        tuple[int, int], ...
    ] = ()  # Last implausible counts with the estimate for each: (counted, raw)
    # Tokens at which the provider's count stopped growing; 0 if it did not. Limits the known
    # window.
    ceiling: int = 0
    flat: tuple[int, int, int] = (
        0,
        0,
        0,
    )  # Last count, the estimate when it first came, and its number of repetitions

    @property
    def tokens(self) -> int:
        """Calibrated input tokens of the next request."""
        if not self.counted and not self.learned.counts:
            return round(self.raw * self.ratio)
        if sum(map(abs, self.fresh)) > sum(self.whole):  # the sum is the better estimate
            return round(
                self.learned.tokens(self.whole) + (self.raw - sum(self.whole)) * self.ratio
            )
        other = self.raw - self.counted_raw - sum(self.fresh)  # changes without their classes
        return max(0, self.counted + round(self.learned.tokens(self.fresh) + other * self.ratio))

    def scale(self, raw: int) -> int:
        """Calibrate an estimate for content like that of the view."""
        return round(raw * self.ratio)

    def tokens_of(self, part: AnyPart) -> int:
        """Return the calibrated tokens of a part with its brackets."""
        return round(
            self.learned.tokens(add_mixes(mix_of_part(part), class_mix(BLOCKS, ITEM_TOKENS)))
        )

    def tokens_of_text(self, text: str) -> int:
        """Return the calibrated tokens of a text without brackets."""
        return round(self.learned.tokens(mix_of(text)))

    def add_part(self, part: AnyPart, tokens: int, sign: int = 1) -> None:
        """Add `part` to the view's estimate, or remove it with `sign` -1. `tokens`: its estimate
        with brackets.
        """
        self.raw += sign * tokens
        mix = mix_of_part(part)
        change = list(mix if sign == 1 else scale_mix(mix, sign))
        change[BLOCKS] += sign * (tokens - sum(mix))
        self.fresh, self.whole = add_mixes(self.fresh, change), add_mixes(self.whole, change)

    def drop_all(self) -> None:
        """Remove the whole view."""
        self.fresh = add_mixes(self.fresh, scale_mix(self.whole, -1))
        self.raw, self.whole = 0, EMPTY_MIX

    def calibrate(self, counted: int, raw: int) -> None:
        """Learn from a count of the provider. `raw`: the estimate for the same request."""
        if counted <= 0 or raw <= 0:
            return
        self._look_for_ceiling(counted, raw)
        if not self._believable(counted, raw):
            self.told = (*self.told[-DOUBTS_MAX + 1 :], (counted, raw))
            if not self._insists():
                return
            self.learned = ClassFactors()
        else:
            self._learn(counted, raw)
        self.counted = counted
        self.counted_raw = raw
        self.told = ()
        self.ratio = min(FACTOR_MAX, max(FACTOR_MIN, counted / raw))
        self.fresh = EMPTY_MIX

    def _learn(self, counted: int, raw: int) -> None:
        grown = raw - self.counted_raw
        if abs(grown - sum(self.fresh)) <= 1:  # otherwise something changed without its classes
            self.learned = update_factors(self.learned, self.fresh, counted - self.counted)

    def _believable(self, counted: int, raw: int) -> bool:
        if not FACTOR_MIN <= counted / raw <= FACTOR_MAX:
            return False
        if not self.counted:
            return True
        slack = 0.1 * self.counted + 50
        grown = raw - self.counted_raw
        most, least = (FACTOR_MAX, FACTOR_MIN) if grown >= 0 else (FACTOR_MIN, FACTOR_MAX)
        return grown * least - slack <= counted - self.counted <= grown * most + slack

    def _insists(self) -> bool:
        """True if the last implausible counts agree with each other on the price of text."""
        if len(self.told) < DOUBTS_MAX or not all(
            FACTOR_MIN <= c / r <= FACTOR_MAX for c, r in self.told
        ):
            return False
        (first, first_raw), (last, last_raw) = self.told[0], self.told[-1]
        grown = last_raw - first_raw
        return abs(grown) >= 20 and FACTOR_MIN <= (last - first) / grown <= FACTOR_MAX

    def _look_for_ceiling(self, counted: int, raw: int) -> None:
        count, since, times = self.flat
        if abs(counted - count) > 0.01 * count:
            self.flat = (counted, raw, 1)
            return
        self.flat = (count, since, times + 1)
        if (
            times + 1 >= CEILING_COUNTS
            and raw > CEILING_GROWTH * since
            and count >= CEILING_TOKENS_MIN
        ):
            self.ceiling = min(self.ceiling or count, count)
