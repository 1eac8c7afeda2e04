"""Index of the lines of an item: keys, identifiers and the codes that never change.

A text is read as a whole rather than line by line, and each kind of code is one row of bytes,
because thousands of lines are valued between two requests.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from longrein_context.clearing.text_features import (
    SEARCH,
    ItemRecord,
    call_content,
    features,
    is_declaration,
    line_key,
    line_keys,
    names_by_line,
)

ROWS_CACHED_MAX = 20_000  # Lines of the cached indexes; about 100 bytes each
HEAD = re.compile(r"r\d+ \S+:")  # First line of a call in a history
OUTCOME = "→ "  # Start of the line that ends its head
BLOCK_ROWS_MAX = 12  # Longer paragraphs are taken as several blocks
LONG_CHARS = 160  # Longer argument values of a call may be shortened
FILE_TEXTS = frozenset(
    (
        *("content", "file_text", "old_string", "new_string"),
        *("old_str", "new_str", "insert_text", "new_source"),
    )
)
"""Arguments that hold text of a file."""
_COUNT = (2, 3, 6)
DEEP_BLANKS = 6  # Indentation from which a declaration is inside of another
LINE_NUMBER = r"[^\S\n]*(\d{1,9})[→\t]"
_NUMBERED = re.compile(rf"\n{LINE_NUMBER}")
_LINE_NUMBER = re.compile(LINE_NUMBER)
_NUMBERS = re.compile(rf"\n(?:{LINE_NUMBER})?")


class TextIndex:
    """Index of the lines of one item. Codes are bytes, one per row."""

    def __init__(
        self,
        texts: Sequence[str],
        fixed: bytes,
        origins: Mapping[str, int],
        starts: Sequence[int] = (),
    ) -> None:
        self.starts = starts or (0,)  # First row of each argument of a call
        self.blocks: list[tuple[int, int]] = []  # Made at first use by `blocks_of`
        text, count = "\n".join(["", *texts]), len(texts)
        without, numbers = _NUMBERED.subn("\n", text)
        self.numbered = numbers * 2 > count and _rise_by_one(text)
        """True if the lines are numbered. A run of kept lines shows only its first number."""
        bare = without.split("\n")[1:] if self.numbered else texts
        # Rows that are always kept: 1 for a short argument, 2 for a marker or head of a history
        self.fixed = fixed
        self.sizes = [
            len(line) + 1 for line in bare
        ]  # Characters per line, with line end, without the line number
        self.keys = line_keys(text)
        first = dict(zip(reversed(self.keys), range(count - 1, -1, -1), strict=True))
        first.pop("", None)
        self.asked = [] if any(fixed) else sorted(first.values())
        """Rows with a key, the first of equal lines; empty when the item has fixed rows."""
        names = names_by_line(text)[1:]
        self.places = _places(names)  # Identifier -> rows that hold it
        declaring = [
            found != () and is_declaration(line) for found, line in zip(names, texts, strict=True)
        ]
        self.heads = _heads(texts, declaring) if self.places else [0] * count
        """Row of the enclosing declaration of each row, from 1; 0 for none."""
        self.static = (
            bytes(origins.get(key, 0) for key in self.keys) if origins else bytes(count),
            bytes(count) if len(first) + self.keys.count("") == count else _copies(self.keys),
        )
        """The last two codes of `LINE_CODES`."""


def _rise_by_one(text: str) -> bool:
    """Return whether each number at the start of a line follows that of the line before: then it
    is the number of the line, and no column of numbers. Each line begins with a newline.
    """
    numbers = [int(number) if number else None for number in _NUMBERS.findall(text)]
    return all(b == a + 1 for a, b in pairwise(numbers) if a is not None and b is not None)


class TextIndexCache:
    """Indexes of a conversation. The newest are cached; others are rebuilt from the text."""

    def __init__(self) -> None:
        self._kept: dict[int, TextIndex] = {}
        self._rows = 0

    def of(self, record: ItemRecord) -> TextIndex:
        """Return the index of an item."""
        found = self._kept.get(record.n)
        if found is None:
            found = self._kept[record.n] = TextIndex(*_lines(record))
            self._rows += len(found.keys)
            while self._rows > ROWS_CACHED_MAX and len(self._kept) > 1:
                self.forget(next(iter(self._kept)))
        return found

    def features(self, record: ItemRecord) -> tuple[str, ...]:
        """Return the `features` of a new item. A result is indexed at once, because it is valued
        soon.
        """
        piece = record.piece
        if piece.kind != "result" or record.header:
            return tuple(
                features(call_content(piece.arguments) if piece.kind == "call" else piece.content)
            )
        index = self.of(record)
        found = dict.fromkeys((*index.places, *index.keys))
        found.pop("", None)
        return tuple(found)

    def forget(self, n: int) -> None:
        """Drop the index of item `n`, whose text has changed."""
        if n in self._kept:
            self._rows -= len(self._kept.pop(n).keys)


def rows_of(record: ItemRecord, index: TextIndex) -> Sequence[int]:
    """Return the lines of an item that are still shown."""
    return range(len(index.keys)) if record.rows is None else record.rows


def texts_of(record: ItemRecord) -> list[str]:
    """Return the lines that the rows of an item's index stand for."""
    return _lines(record)[0]


def blocks_of(record: ItemRecord, index: TextIndex) -> list[tuple[int, int]]:
    """Return the blocks of an item as (first row, row after the last): what a reader can take in
    by itself.

    A block is a paragraph, of a long one a part that begins where the text is least indented. Each
    line of a search stands for itself.
    """
    if not index.blocks:
        texts = texts_of(record)
        if record.cls == SEARCH:
            index.blocks = [(row, row + 1) for row in range(len(texts))]
        else:
            index.blocks = list(_blocks(texts, set(index.starts)))
    return index.blocks


def _blocks(texts: Sequence[str], starts: Collection[int]) -> Iterator[tuple[int, int]]:
    indents = indents_of(texts)
    first = -1
    for row, indent in enumerate(indents):
        if first >= 0 and (indent < 0 or row in starts):
            yield from _parts_of_block(indents, first, row)
            first = -1
        if first < 0 <= indent:
            first = row
    if first >= 0:
        yield from _parts_of_block(indents, first, len(indents))


def _parts_of_block(indents: Sequence[int], first: int, end: int) -> Iterator[tuple[int, int]]:
    ends = [end]
    while ends:
        if ends[-1] - first <= BLOCK_ROWS_MAX:
            yield first, ends[-1]
            first = ends.pop()
        else:
            ends.append(_cut(indents, first, ends[-1]))


def _cut(indents: Sequence[int], first: int, end: int) -> int:
    """Return the row nearest to the middle among those that are least indented."""
    middle = (first + end) / 2
    inner = indents[first + 2 : end - 1]
    least = max(0, min(inner))
    rows = [row for row, indent in enumerate(inner, first + 2) if indent <= least]
    at = bisect_right(rows, middle)
    return min(rows[max(at - 1, 0) : at + 1], key=lambda row: abs(row - middle))


def indents_of(lines: Sequence[str]) -> list[int]:
    """Return the columns before the text of each line, without its number; -1 for a blank one."""
    bare = _NUMBERED.sub("\n", "\n".join(["", *lines]))
    return [_columns(line) for line in bare.split("\n")[1:]]


def _columns(line: str) -> int:
    text = line.lstrip()
    if not text:
        return -1
    blanks = len(line) - len(text)
    return blanks and blanks + 3 * line.count("\t", 0, blanks)


def _lines(record: ItemRecord) -> tuple[list[str], bytes, dict[str, int], Sequence[int]]:
    """Return the lines, which of them are fixed (see `TextIndex.fixed`), the origins of edited
    lines, and the first row of each argument.
    """
    if record.piece.kind != "call":
        texts = record.piece.content.split("\n")
        if record.header:
            del texts[0]
        sign = record.piece.sign
        if sign not in record.piece.content:
            return texts, bytes(len(texts)), {}, ()
        return texts, _heads_of_history(texts, sign), {}, ()
    texts, starts, short = [], list[int](), bytearray()
    for _, text, is_long in long_and_short(record.arguments or {}):
        lines = text.split("\n")
        starts.append(len(texts))
        texts += lines
        short += bytes([not is_long]) * len(lines)
    return texts, bytes(short), _origins(record.arguments or {}), starts


def _heads_of_history(texts: Sequence[str], sign: str) -> bytes:
    """Return 2 for the markers and the heads of calls in a text that arrived shortened, else 0."""
    fixed = bytearray(len(texts))
    in_head = False
    for row, text in enumerate(texts):
        in_head = in_head or HEAD.fullmatch(text) is not None
        if in_head or text.startswith(sign):
            fixed[row] = 2
        if text.startswith(OUTCOME):
            in_head = False
    return bytes(fixed)


def long_and_short(arguments: Mapping[str, object]) -> list[tuple[str, str, bool]]:
    """Return (key, text, is long) of each argument that holds text."""
    found = []
    for key, value in arguments.items():
        if isinstance(value, str | list | dict):
            text = argument_text(value)
            is_file_text = isinstance(value, str) and key in FILE_TEXTS
            found.append((key, text, len(text) > LONG_CHARS or is_file_text))
    return found


def argument_text(value: object) -> str:
    """Return an argument as text: lists and objects as JSON with a line for each value."""
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode() if value else ""


def argument_rows(record: ItemRecord) -> list[tuple[str, range, bool]]:
    """Return (name, rows, is long) of each argument of a call that holds text."""
    found, end = [], 0
    for key, text, is_long in long_and_short(record.arguments or {}):
        start, end = end, end + text.count("\n") + 1
        found.append((key, range(start, end), is_long))
    return found


def _origins(arguments: Mapping[str, object]) -> dict[str, int]:
    """Return line -> 1 if an edit removes it, 2 if it adds it, 3 if it leaves it."""
    old, new = arguments.get("old_string"), arguments.get("new_string")
    if not isinstance(old, str) or not isinstance(new, str):
        return {}
    before = {line_key(line) for line in old.split("\n")}
    after = {line_key(line) for line in new.split("\n")}
    return {key: (key in before) + 2 * (key in after) for key in before | after if key}


# --- Constant codes of lines ----------------------------------------------------------------------


def bare_line(text: str) -> str:
    """Return one line without its line number."""
    number = _LINE_NUMBER.match(text)
    return text[number.end() :] if number is not None else text


def _heads(texts: Sequence[str], declaring: list[bool]) -> list[int]:
    head, heads = 0, []
    for row, declares_here in enumerate(declaring):
        if declares_here and _is_shallow(texts[row]):
            head = row + 1
        heads.append(head)
    return heads


def _is_shallow(line: str) -> bool:
    """Return whether a line is indented by less than six blanks."""
    return indents_of([line])[0] < DEEP_BLANKS


def _copies(keys: list[str]) -> bytes:
    copies: dict[str, int] = {}
    for key in keys:
        copies[key] = copies.get(key, 0) + 1
    return bytes([bisect_right(_COUNT, copies[key]) for key in keys])


def _places(names: list[tuple[str, ...]]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for row, found in enumerate(names):
        for name in found:
            places.setdefault(name, []).append(row)
    return places
