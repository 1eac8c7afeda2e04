"""A stand-in for a provider's tokenizer: cuts text the way byte-pair encoders do, without a
vocabulary.

Pieces are cut as the published tokenizers pre-cut them (a word with its blank, up to three digits,
a run of punctuation, a run of blanks); a piece then costs so many tokens by its script. The costs
follow what is publicly known of three families, so that no guess that fits one of them fits the
others; a fourth counts bytes:

    `wide`    a vocabulary of 200k: CJK 0.75 tokens a character, Cyrillic and Arabic 3 characters a
    token `narrow`  a vocabulary of 100k: CJK 1.25 tokens a character, Cyrillic 2.2, Arabic 1.5,
    Thai 1 characters a token `dense`   one that cuts everything finer: English at 3.3 characters a
    token, code at 2.5
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from longrein_context import Item, Request
from longrein_context.events import AnyPart, Document, Image, Text, Thinking, ToolCall, ToolResult

_PIECES = re.compile(
    r"(?P<word> ?[A-Za-z]+)|(?P<digits>\d{1,3})|(?P<accent> ?[\u00c0-\u024f][A-Za-z\u00c0-\u024f]*)"
    r"|(?P<cyrillic> ?[\u0370-\u052f]+)|(?P<arabic> ?[\u0590-\u06ff]+)|(?P<thai>[\u0900-\u0eff]+)"
    r"|(?P<cjk>[\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]+)|(?P<emoji>[\u2600-\u27bf\U0001f000-\U0001faff])"
    r"|(?P<blank>\s+)|(?P<point> ?[!-/:-@\[-`{-~]+)|(?P<rest>.)",
    re.DOTALL,
)
_SUBWORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True)
class Dialect:
    """Token counts of one tokenizer."""

    name: str
    word_chars: int  # Longest run of lower-case letters that is one token
    cjk: float
    cyrillic: float
    arabic: float
    thai: float
    emoji: float  # Tokens of a character, for each script
    point_chars: float  # Characters of punctuation in a token
    image_pixels: float = 750.0  # Pixels of a picture in a token
    block: int = 5  # Tokens of the brackets around a block

    def text(self, text: str) -> int:
        """Tokens of `text`."""
        return max(1, round(sum(map(self._piece, _PIECES.finditer(text))))) if text else 0

    def _piece(self, found: "re.Match[str]") -> float:
        kind, piece = found.lastgroup, found[0]
        if kind == "word":
            return sum(-(-len(part) // self.word_chars) for part in _SUBWORDS.findall(piece))
        if kind == "blank":
            return 0.0 if piece == " " else 1.0
        if kind == "point":
            return -(-len(piece) // self.point_chars)
        if kind == "accent":
            return max(1.0, len(piece) / 3)
        per_char = {
            "cjk": self.cjk,
            "cyrillic": self.cyrillic,
            "arabic": self.arabic,
            "thai": self.thai,
        }
        if kind in per_char:
            return max(1.0, len(piece) * per_char[kind])
        return {"digits": 1.0, "emoji": self.emoji}.get(kind or "", 1.5)


@dataclass(frozen=True)
class Bytes(Dialect):
    """A server that counts four bytes of JSON as a token, as the loopback provider does."""

    def text(self, text: str) -> int:
        """Tokens of `text`."""
        return -(-len(msgspec.json.encode(text)) // 4)


WIDE = Dialect("wide", 8, 0.75, 0.36, 0.33, 0.45, 1.5, 3.0)
NARROW = Dialect("narrow", 7, 1.25, 0.45, 0.66, 1.0, 2.5, 2.5)
DENSE = Dialect("dense", 5, 1.1, 0.6, 0.75, 0.9, 3.0, 1.5, block=9)
BYTES = Bytes("bytes / 4", 8, 0.75, 0.5, 0.5, 0.75, 1.0, 4.0, block=12)
DIALECTS = (WIDE, NARROW, DENSE, BYTES)


class Counter:
    """Counts requests in one dialect; a block is counted once while it stays in the view."""

    def __init__(self, dialect: Dialect = WIDE) -> None:
        self.dialect = dialect
        self._items: dict[tuple[int, int, int], int] = {}
        self._prefixes: dict[int, int] = {}

    def request(self, request: Request) -> int:
        """Tokens of its whole input."""
        self._items = {item.key: self.item(item) for item in request.items}
        return self._prefix(request) + sum(self._items.values())

    def item(self, item: Item) -> int:
        """Tokens of one block."""
        if item.key in self._items and item.key[2] >= 0:
            return self._items[item.key]
        return self.part(item.part) + self.dialect.block

    def part(self, part: AnyPart) -> int:
        """Tokens of one part."""
        count: Callable[[str], int] = self.dialect.text
        match part:
            case Text(text) | Thinking(text):
                return count(text)
            case ToolCall():
                return count(part.name) + count(part.received or str(part.arguments or {}))
            case ToolResult(parts=parts):
                return sum(map(self.part, parts))
            case Document():
                return count(part.head) + count(part.tail)
            case Image():
                return round(part.width * part.height / self.dialect.image_pixels) or 1_600

    def _prefix(self, request: Request) -> int:
        if request.prefix_seq not in self._prefixes:
            tools = "".join(
                f"{tool.name}{tool.description}{tool.schema}" for tool in request.prefix.tools
            )
            self._prefixes[request.prefix_seq] = self.dialect.text(
                request.prefix.system
            ) + self.dialect.text(tools)
        return self._prefixes[request.prefix_seq]
