"""Value of blocks of lines, and the short form of an item that keeps the valuable ones.

A block is what a reader can take in by itself (`line_index.blocks_of`). It is kept when its value
exceeds the cost of re-reading it. Its value is that of its lines which nothing else shows: the
chance that a later step needs the line times the price of bringing it back. The chance comes from
an additive model over a few small codes (`weights` holds the fitted weights): class, idle time and
size of the item, how recently names in and near the line were mentioned, and its copies.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from math import exp

import msgspec

from longrein_context.clearing.line_index import (
    TextIndex,
    argument_rows,
    bare_line,
    blocks_of,
    rows_of,
    texts_of,
)
from longrein_context.clearing.needs import NeedsMemory
from longrein_context.clearing.text_features import (
    EDIT_CALL,
    SHORT_CHARS,
    TEXT,
    THINKING,
    WRITE_CALL,
    ItemRecord,
)

# --- Codes of items, lines and identifiers --------------------------------------------------------
# A `TextIndex` holds the codes of a line that never change; the others are looked up in the memory.
# Codes are small numbers, so that models are tables.

ITEM_CODES = {"cls": 13, "idle": 8, "state": 3, "activity": 8, "size": 6}
LINE_CODES = {"mention": 7, "nearby": 7, "block": 7, "spread": 4, "origin": 4, "copies": 4}
"""Codes of a model with the number of values of each."""

_IDLE = (2, 3, 5, 9, 17, 33, 65)
_ACTIVITY = (2, 4, 8, 16, 32, 64)
_SIZE = (60, 150, 400, 1000, 3000)
_MENTION = (2, 4, 8, 16, 40)
_SPREAD = (2, 3, 5)
_NEVER = 6


def item_codes(memory: NeedsMemory, record: ItemRecord) -> tuple[int, ...]:
    """Return the codes of an item in the order of `ITEM_CODES`."""
    now, born = memory.now, record.born
    active = max((memory.touched_at.get(path, -1000) for path in record.paths), default=-1000)
    changed = 2 if record.superseded else int(record.edited)
    return (
        record.cls,
        bisect_right(_IDLE, now - max(born, record.last)),
        changed,
        7 if active < 0 else bisect_right(_ACTIVITY, now - active),
        bisect_right(_SIZE, record.piece.tokens),
    )


def line_codes(
    memory: NeedsMemory, index: TextIndex, rows: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Return the codes of each of `rows` in the order of `LINE_CODES`."""
    columns = (*_mentions(memory, index), _spreads(memory, index, rows), *index.static)
    return map(list(zip(*columns, strict=True)).__getitem__, rows)


def _spreads(memory: NeedsMemory, index: TextIndex, rows: Sequence[int]) -> bytes:
    """Return how many items ever had each line."""
    spread, keys = memory.spread, index.keys
    spreads = bytearray(len(keys))
    if not spread.keys().isdisjoint(keys):
        for row in rows:
            if keys[row] in spread:
                spreads[row] = bisect_right(_SPREAD, spread[keys[row]])
    return bytes(spreads)


def _mentions(memory: NeedsMemory, index: TextIndex) -> tuple[bytes, bytes, bytes]:
    """Return recency codes of the names in each row, in its neighbours, and in the declaration
    above it.
    """
    mentioned, now = memory.mentioned, memory.now
    named = [name for name in index.places if name in mentioned]
    if not named:  # as in most texts
        never = bytes([_NEVER]) * len(index.keys)
        return never, never, never
    found = bytearray([_NEVER]) * (
        len(index.keys) + 4
    )  # two before the first row, two after the last
    for name in sorted(
        named, key=mentioned.__getitem__
    ):  # the latest mention overwrites earlier ones
        code = bisect_right(_MENTION, now - mentioned[name])
        for row in index.places[name]:
            found[row + 2] = code
    nearby = bytes(map(min, found, found[1:], found[3:], found[4:]))
    return bytes(found[2:-2]), nearby, bytes(map(found[1:].__getitem__, index.heads))


# --- Models ---------------------------------------------------------------------------------------


REPLACED = ("old_string", "old_str")
"""Arguments whose text a change replaced."""
EDIT_LOSSES = 2.0
"""Factor for losses in edits and new files, which are harder to get back."""
GAP_ROWS_MAX = 2
"""Largest gap that is filled: the line that would stand for it is as long."""
GAP_CHARS = 18
"""Characters of a line that stands for missing ones."""
WHOLE_TOKENS_MAX = 2_000
"""Larger edits do not stay whole: keeping them costs more than reading the file again."""


class SizeEstimate(msgspec.Struct, frozen=True):
    """Estimate of the size of a shown text."""

    per_token: float = 2.9  # Characters per token
    block: float = 31.0  # Tokens around an item

    def of(self, chars: float) -> float:
        """Return the tokens of an item with this many characters."""
        return chars / self.per_token + self.block


class WeightSums(dict[tuple[int, ...], float]):
    """Mapping from codes to the sum of their weights. Each combination is computed once."""

    def __init__(self, tables: Mapping[str, Sequence[float]], codes: Mapping[str, int]) -> None:
        super().__init__()
        names = list(codes)
        self.terms: list[tuple[Sequence[float], list[tuple[int, int]]]] = []
        for term in (term for term in tables if codes.keys() >= set(term.split("*"))):
            places, stride = [], 1
            for name in reversed(term.split("*")):
                places.append((names.index(name), stride))
                stride *= codes[name]
            if len(tables[term]) != stride:
                raise ValueError(f"table {term} needs {stride} weights")
            self.terms.append((tables[term], places))

    def __missing__(self, codes: tuple[int, ...]) -> float:
        odds = self[codes] = sum(
            table[sum(codes[at] * stride for at, stride in places)] for table, places in self.terms
        )
        return odds


class AdditiveModel:
    """Additive model of log-odds. `tables` names the codes of each table, such as `cls*idle`."""

    def __init__(self, tables: Mapping[str, Sequence[float]], codes: Mapping[str, int]) -> None:
        self.bias = tables["bias"][0]
        self.items, self.added = WeightSums(tables, ITEM_CODES), WeightSums(tables, codes)

    def of(self, item: tuple[int, ...]) -> float:
        """Return the log-odds of an item's codes. Those of a line in it are added."""
        return self.bias + self.items[item]


# --- Forms of items -------------------------------------------------------------------------------


class LossPrices(msgspec.Struct, frozen=True):
    """Prices of losing and of keeping, in units of one uncached input token."""

    line: float = 3000.0
    """Cost of removing a line that is needed later."""
    keep: float = 1.5
    """Cost of keeping one token for the rest of the session."""
    whole: int = 0
    """Requests after an edit for which its new text stays whole."""
    read: float = 0.0
    """Cost of reading one token once. If set, keeping costs at most the reading since the item was
    needed.
    """

    def times(self, factor: float) -> "LossPrices":
        """Return the prices with every loss multiplied by `factor`."""
        return LossPrices(self.line * factor, self.keep, self.whole, self.read)


class ShortForm(msgspec.Struct):
    """Lines that an item would show."""

    rows: Sequence[int]
    chars: int
    """Characters of the body, with line ends and gaps."""


class ValueModels:
    """Model for lines."""

    def __init__(self, tables: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        self.lines = AdditiveModel(tables["line"], LINE_CODES)


def ideal_form(
    memory: NeedsMemory,
    record: ItemRecord,
    values: ValueModels,
    price: LossPrices,
    measure: SizeEstimate,
) -> ShortForm:
    """Return the form that an item should have now. It never shows more than now."""
    if record.rows is not None and not record.rows:
        return ShortForm([], 0)
    index = memory.text_indexes.of(record)
    alive = rows_of(record, index)
    if record.piece.kind in ("result", "text") and len(record.piece.content) <= SHORT_CHARS:
        return ShortForm(alive, body_chars(index, alive))
    is_change = record.cls in (EDIT_CALL, WRITE_CALL)
    if record.piece.kind == "call":
        alive = _new_text(record, alive)
    if is_change and memory.now - record.born < price.whole and _may_stay_whole(record):
        rows = list(alive)
    else:
        loss = price.line * (EDIT_LOSSES if is_change else 1.0)
        keep = price.keep
        if price.read:
            keep = min(keep, price.read * memory.idle_requests(record))
        keep /= measure.per_token
        rows = _rows_to_keep(memory, record, values.lines, loss, keep, alive)
    if record.cls == THINKING and rows:
        rows = list(alive)
    elif wanted := memory.wanted.get(record.piece.handle):
        texts = texts_of(record)
        rows = fill_gaps(
            sorted({*rows, *(row for row in alive if texts[row] in wanted)}), set(alive)
        )
    elif record.cls == TEXT:
        rows = fill_gaps(sorted({*rows, *_decision_rows(record, index, alive)}), set(alive))
    return ShortForm(rows, body_chars(index, rows))


def _new_text(record: ItemRecord, alive: Sequence[int]) -> Sequence[int]:
    """Return the rows of the long arguments of a call, without what a change replaced: that is no
    longer in the file.
    """
    held = set(alive)
    return [
        row
        for key, rows, is_long in argument_rows(record)
        for row in rows
        if is_long and key not in REPLACED and row in held
    ]


def _decision_rows(record: ItemRecord, index: TextIndex, alive: Sequence[int]) -> Iterator[int]:
    """Yield the rows of a text that say what was decided: its first and last paragraph and its
    headings.
    """
    blocks, texts = blocks_of(record, index), texts_of(record)
    if not blocks:
        return
    for row in alive:
        in_ends = row < blocks[0][1] or row >= blocks[-1][0]
        if in_ends or texts[row].startswith("#"):
            yield row


def _may_stay_whole(record: ItemRecord) -> bool:
    return not record.again and record.piece.tokens <= WHOLE_TOKENS_MAX


class LineReason(msgspec.Struct, frozen=True):
    """Reason why a line is kept or removed."""

    line: str
    chance: float
    """Chance that a later step needs the line, 0 to 1."""
    stays: bool
    why: str


def explain_lines(
    memory: NeedsMemory,
    record: ItemRecord,
    values: ValueModels,
    price: LossPrices,
    measure: SizeEstimate,
) -> list[LineReason]:
    """Return chance, decision and reason for each line of an item that is shown now."""
    index, texts = memory.text_indexes.of(record), texts_of(record)
    stay = set(ideal_form(memory, record, values, price, measure).rows)
    base, odds = values.lines.of(item_codes(memory, record)), values.lines.added
    found = []
    rows = rows_of(record, index)
    for row, codes in zip(rows, line_codes(memory, index, rows), strict=True):
        key = index.keys[row]
        chance = 1 / (1 + exp(-base - odds[codes])) if key else 0.0
        found.append(
            LineReason(
                bare_line(texts[row]),
                round(chance, 4),
                row in stay,
                _explanation(memory, index.fixed[row], key, codes),
            )
        )
    return found


def _explanation(memory: NeedsMemory, fixed: int, key: str, codes: Sequence[int]) -> str:
    mention, nearby, block = codes[:3]
    cases = (
        (fixed > 0, "belongs to the call"),
        (not key, "too short or too long to be looked for"),
        (memory.visible.get(key, 0) > 1, "also shown elsewhere"),
        (mention < _NEVER, "a name in it was mentioned"),
        (nearby < _NEVER, "next to a name that was mentioned"),
        (block < _NEVER, "under a declaration that was mentioned"),
    )
    return next((text for holds, text in cases if holds), "its kind and age alone")


def _rows_to_keep(
    memory: NeedsMemory,
    record: ItemRecord,
    model: AdditiveModel,
    loss: float,
    keep: float,
    alive: Sequence[int],
) -> list[int]:
    """Return the rows of the blocks whose value pays, with the declarations above them.

    `loss`: cost of removing a line that is needed later. `keep`: cost of keeping a character.
    """
    index = memory.text_indexes.of(record)
    worth = _values(memory, record, model, index, alive)
    sizes, fixed = index.sizes, index.fixed
    held = set(alive)
    is_whole = len(held) == len(sizes)
    rows: list[int] = []
    if record.again:  # what is left of it stays as one text
        fits = loss * sum(worth) > keep * sum(sizes[row] for row in alive)
        return list(alive) if fits else [row for row in alive if fixed[row]]
    for first, end in blocks_of(record, index):
        block: Sequence[int] = range(first, end)
        if is_whole:
            value, chars = sum(worth[first:end]), sum(sizes[first:end])
        else:
            block = [row for row in block if row in held]
            value = sum(map(worth.__getitem__, block))
            chars = sum(map(sizes.__getitem__, block))
        if block and loss * value > keep * (GAP_CHARS + chars):
            head = index.heads[block[0]] - 1
            rows += [head] if head in held and head < first else []
            rows += block
    return fill_gaps(sorted(set(rows)), held)


def _values(
    memory: NeedsMemory,
    record: ItemRecord,
    model: AdditiveModel,
    index: TextIndex,
    alive: Sequence[int],
) -> list[float]:
    """Return the chance of each row that a line is needed, 0 where another item shows the line; of
    equal lines the first has it.
    """
    keys, visible = index.keys, memory.visible
    if index.asked and record.rows is None and len(alive) == len(keys):
        asked = index.asked
    else:
        first = {keys[row]: row for row in reversed(alive) if keys[row]}
        asked = sorted(first.values())
    asked = [row for row in asked if visible.get(keys[row], 0) < 2]
    base, odds = model.of(item_codes(memory, record)), model.added
    codes = [*line_codes(memory, index, asked)]
    chances = {code: 1 / (1 + exp(-base - odds[code])) for code in set(codes)}
    worth = [0.0] * len(keys)
    for row, code in zip(asked, codes, strict=True):
        worth[row] = chances[code]
    return worth


def _has_no_gap(rows: Sequence[int]) -> bool:
    """Return whether rows in rising order follow each other, as in an item that stays whole."""
    return not rows or rows[-1] - rows[0] < len(rows)


def fill_gaps(rows: list[int], alive: Collection[int]) -> list[int]:
    """Add the missing lines of each short gap."""
    if _has_no_gap(rows):
        return rows
    filled = rows[:1]
    for row in rows[1:]:
        gap = range(filled[-1] + 1, row)
        if 0 < len(gap) <= GAP_ROWS_MAX and all(at in alive for at in gap):
            filled += gap
        filled.append(row)
    return filled


def body_chars(index: TextIndex, rows: Sequence[int]) -> int:
    """Return the characters of the body with these rows."""
    if not rows:
        return 0
    gaps = 0 if _has_no_gap(rows) else sum(b - a > 1 for a, b in pairwise(rows))
    gaps += (rows[0] > 0) + (rows[-1] < len(index.keys) - 1)
    return sum(map(index.sizes.__getitem__, rows)) + GAP_CHARS * gaps


def body_text(
    texts: Sequence[str], rows: Sequence[int], within: range, handle: str, *, numbered: bool
) -> str:
    """Return the kept lines of a text in order, with a line for each gap, also before the first
    and after the last. `within`: rows of the text.
    """
    lines: list[str] = []
    before = within.start - 1
    for row in (*rows, within.stop):
        missing = row - before - 1
        if missing:
            lines.append(f"⋮ {missing} line{'s' if missing != 1 else ''}, {handle}")
        if row < within.stop:
            runs_on = row - before == 1 and row > within.start
            bare = bare_line(texts[row]) if numbered and runs_on else texts[row]
            is_first = numbered and not runs_on and bare_line(bare) != bare
            lines.append(bare.lstrip() if is_first else bare)
        before = row
    return "\n".join(lines)
