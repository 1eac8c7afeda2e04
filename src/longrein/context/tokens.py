"""How many tokens a text will cost, guessed from its script and corrected by what providers count.

The guess is linear in characters per script; `Gauge` keeps the provider's last count as the truth and scales the guess
for what came after it by the ratio of the two (calibration). No tokenizer is needed for that.
"""

import msgspec

from longrein.events import AnyPart, Document, Image, Text, Thinking, ToolCall, ToolResult

CHARS_PER_TOKEN_PROSE = 4.0
"""English prose."""
CHARS_PER_TOKEN_CODE = 3.0
"""Code, JSON and paths: more punctuation, so shorter tokens."""
CHARS_PER_TOKEN_DENSE = 1.6
"""Base64 and hashes: hardly a word among them."""
TOKENS_PER_WIDE_CHAR = 1.0
"""CJK, Hangul, emoji."""
ITEM_TOKENS = 6
"""Brackets, role and ids around one block."""
IMAGE_TOKENS_PER_PIXEL = 1 / 750
"""The published rule of one large provider; others charge about the same."""
IMAGE_TOKENS_DEFAULT = 1_600
"""An image of unknown size."""


def estimate_text(text: str) -> int:
    """Tokens of `text`, before calibration."""
    if not text:
        return 0
    length = len(text)
    wide = 0
    if not text.isascii():
        # A CJK character is three bytes of UTF-8, so two more than its length in characters; a Latin letter with an
        # accent one more. Half of the surplus counts the first kind exactly and the second as half a wide one.
        wide = (len(text.encode("utf-8", "replace")) - length) // 2
    narrow = max(0, length - wide)
    return round(wide * TOKENS_PER_WIDE_CHAR + narrow / _chars_per_token(text, narrow)) or 1


def _chars_per_token(text: str, narrow: int) -> float:
    sample = text[:4000]
    blanks = sample.count(" ") + sample.count("\n")
    share = blanks / len(sample)
    if share < 0.02 and narrow > 200:
        return CHARS_PER_TOKEN_DENSE
    if share > 0.13 and sample.count("(") + sample.count('"') + sample.count("=") < len(sample) / 60:
        return CHARS_PER_TOKEN_PROSE
    return CHARS_PER_TOKEN_CODE


def estimate_part(part: AnyPart) -> int:
    """Tokens of one part as the model would be sent it."""
    match part:
        case Text(text) | Thinking(text):
            return estimate_text(text)
        case Image():
            return round(part.width * part.height * IMAGE_TOKENS_PER_PIXEL) or IMAGE_TOKENS_DEFAULT
        case Document():
            return estimate_text(part.head) + estimate_text(part.tail) + ITEM_TOKENS
        case ToolCall():
            return estimate_text(part.name) + estimate_text(arguments_text(part))
        case ToolResult():
            return sum(map(estimate_part, part.parts))


def arguments_text(call: ToolCall) -> str:
    """The arguments of a call as one JSON text."""
    return call.received or msgspec.json.encode(call.arguments).decode()


class Gauge(msgspec.Struct):
    """Guessed and counted tokens of the view, kept up to date by `step`."""

    raw: int = 0
    """Guess for the whole view, prefix included."""
    counted: int = 0
    """What the provider counted for the last answered request; 0 when it never did."""
    counted_raw: int = 0
    """The guess for that same request."""
    ratio: float = 1.0
    """Counted over guessed, as the session goes."""

    @property
    def tokens(self) -> int:
        """Tokens the next request's input will have."""
        if not self.counted:
            return round(self.raw * self.ratio)
        return max(0, self.counted + round((self.raw - self.counted_raw) * self.ratio))

    def scale(self, raw: int) -> int:
        """A guess in calibrated tokens."""
        return round(raw * self.ratio)

    def calibrate(self, counted: int, raw: int) -> None:
        """The provider counted `counted` tokens where the guess was `raw`."""
        if counted <= 0 or raw <= 0:
            return
        self.counted, self.counted_raw = counted, raw
        self.ratio = min(4.0, max(0.25, counted / raw))
