"""How many tokens something will cost: a guess by what it is made of, corrected by what the provider counts.

The provider's last count is the truth; only what came after it is guessed, each class of text by the factor that this
session has learned for it. A count that cannot be true (zero, a tenth, ten times) is passed over. No tokenizer needed.
"""

import msgspec

from longrein.context.calibration import FACTOR_MAX, FACTOR_MIN, Learned, learn
from longrein.context.mix import BLOCKS, MEDIA, NO_MIX, Mix, added, mix_of, only, plus, scaled
from longrein.events import AnyPart, Document, Image, Text, Thinking, ToolCall, ToolResult

CHARS_PER_TOKEN_CODE = 3.0
"""Code, JSON and paths, about: for turning a limit in tokens into one in characters."""
ITEM_TOKENS = 6
"""Brackets, role and ids around one block."""
IMAGE_TOKENS_PER_PIXEL = 1 / 750
"""The published rule of one large provider; others charge about the same."""
IMAGE_TOKENS_DEFAULT = 1_600
"""An image of unknown size."""
DOUBTS_MAX = 3
"""So many counts in a row that contradict all before but not each other are believed: another tokenizer answers."""
CEILING_COUNTS = 3
"""So many equal counts in a row of a view that grows mean that the provider cuts it silently …"""
CEILING_GROWTH = 1.1
"""… when the guess has grown by this factor meanwhile …"""
CEILING_TOKENS_MIN = 2_000
"""… and the count is one that a window may have: a smaller one is no count of the whole."""


def estimate_text(text: str) -> int:
    """Tokens of `text`, before calibration; at least 1 unless it is empty."""
    return max(1, round(sum(mix_of(text)))) if text else 0


def estimate_part(part: AnyPart) -> int:
    """Tokens of one part as the model would be sent it, before calibration."""
    return round(sum(mix_of_part(part)))


def mix_of_part(part: AnyPart) -> Mix:
    """The same by class."""
    match part:
        case Text(text) | Thinking(text):
            return mix_of(text)
        case Image():
            return only(MEDIA, part.width * part.height * IMAGE_TOKENS_PER_PIXEL or IMAGE_TOKENS_DEFAULT)
        case Document():
            return added([mix_of(part.head), mix_of(part.tail), only(BLOCKS, ITEM_TOKENS)])
        case ToolCall():
            return added([mix_of(part.name), mix_of(arguments_text(part))])
        case ToolResult():
            return added([mix_of_part(inner) for inner in part.parts])


def arguments_text(call: ToolCall) -> str:
    """The arguments of a call as one JSON text."""
    return call.received or msgspec.json.encode(call.arguments).decode()


class Gauge(msgspec.Struct):
    """Guessed and counted tokens of the view, kept up to date by `step`.

    `raw` is the guess before calibration and may be set by anybody who changes the view; `grow` sets it together with
    its classes, which makes `tokens` exact where the session is of many scripts.
    """

    raw: int = 0
    """Guess for the whole view, prefix included."""
    counted: int = 0
    """What the provider counted for the last answered request; 0 when it never did."""
    counted_raw: int = 0
    """The guess for that same request."""
    ratio: float = 1.0
    """Counted over guessed for the whole view, as the session goes."""
    fresh: Mix = NO_MIX
    """What came into the view since the last count, by class."""
    whole: Mix = NO_MIX
    """The whole view by class."""
    learned: Learned = Learned()
    """The factor of each class."""
    told: tuple[tuple[int, int], ...] = ()
    """The last counts that were not believed, with the guess for each: (counted, raw)."""
    ceiling: int = 0
    """Tokens at which the provider's count stopped growing while the view went on; 0 when it did not. Folded into the
    window that is known of it."""
    flat: tuple[int, int, int] = (0, 0, 0)
    """The last count, the guess when it first came, how often it came."""

    @property
    def tokens(self) -> int:
        """Tokens the next request's input will have."""
        if not self.counted and not self.learned.counts:
            return round(self.raw * self.ratio)
        if sum(map(abs, self.fresh)) > sum(self.whole):  # more came and went than there is: its sum is the better guess
            return round(self.learned.tokens(self.whole) + (self.raw - sum(self.whole)) * self.ratio)
        other = self.raw - self.counted_raw - sum(self.fresh)  # what came or went without its classes
        return max(0, self.counted + round(self.learned.tokens(self.fresh) + other * self.ratio))

    def scale(self, raw: int) -> int:
        """A guess in calibrated tokens, for a mix like that of the view."""
        return round(raw * self.ratio)

    def tokens_of(self, part: AnyPart) -> int:
        """Calibrated tokens of one part and its brackets."""
        return round(self.learned.tokens(plus(mix_of_part(part), only(BLOCKS, ITEM_TOKENS))))

    def tokens_of_text(self, text: str) -> int:
        """Calibrated tokens of a text without brackets."""
        return round(self.learned.tokens(mix_of(text)))

    def grow(self, part: AnyPart, tokens: int, sign: int = 1) -> None:
        """`part`, whose guess is `tokens` with its brackets, came into the view or, with `sign` -1, left it."""
        self.raw += sign * tokens
        mix = mix_of_part(part)
        change = plus(mix if sign == 1 else scaled(mix, sign), only(BLOCKS, sign * (tokens - sum(mix))))
        self.fresh, self.whole = plus(self.fresh, change), plus(self.whole, change)

    def calibrate(self, counted: int, raw: int) -> None:
        """The provider counted `counted` tokens where the guess was `raw`: the view as it is now, reply not in it."""
        if counted <= 0 or raw <= 0:
            return
        self._look_for_ceiling(counted, raw)
        if not self._believable(counted, raw):
            self.told = (*self.told[-DOUBTS_MAX + 1 :], (counted, raw))
            if not self._insists():
                return
            self.learned = Learned()
        else:
            self._learn(counted, raw)
        self.counted, self.counted_raw, self.told = counted, raw, ()
        self.ratio = min(FACTOR_MAX, max(FACTOR_MIN, counted / raw))
        self.fresh = NO_MIX

    def _learn(self, counted: int, raw: int) -> None:
        grown = raw - self.counted_raw
        if abs(grown - sum(self.fresh)) <= 1:  # else something came or went without its classes
            self.learned = learn(self.learned, self.fresh, counted - self.counted)

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
        """Whether the last counts, none of them believed, agree with each other on what text costs."""
        if len(self.told) < DOUBTS_MAX or not all(FACTOR_MIN <= c / r <= FACTOR_MAX for c, r in self.told):
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
        if times + 1 >= CEILING_COUNTS and raw > CEILING_GROWTH * since and count >= CEILING_TOKENS_MIN:
            self.ceiling = min(self.ceiling or count, count)
