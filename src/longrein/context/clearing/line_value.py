"""Value of lines and identifiers, and the short form of an item that keeps the valuable ones.

A line is kept when nothing else shows it and its value exceeds the cost of re-reading it. Its value
is the chance that a later step needs it times the price of bringing it back. The chance comes from
an additive model over a few small codes (`weights` holds the fitted weights): class, idle time and
size of the item, how recently names in and near the line were mentioned, and its copies.
Identifiers of removed lines are valued the same way and shown alone.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import exp, log

import msgspec

from longrein.context.clearing.needs import NeedsMemory
from longrein.context.clearing.text_features import EDIT_CALL, WRITE_CALL, ItemRecord, parts_of
from longrein.context.clearing.text_index import (
    TextIndex,
    bare_line,
    new_text_rows,
    rows_of,
    texts_of,
)

# --- Codes of items, lines and identifiers --------------------------------------------------------
# A `TextIndex` holds the codes of a line that never change; the others are looked up in the memory.
# Codes are small numbers, so that models are tables.

ITEM_CODES = {"cls": 13, "idle": 8, "state": 3, "activity": 8, "size": 6}
LINE_CODES = {"mention": 7, "nearby": 7, "block": 7, "spread": 4, "origin": 4, "copies": 4}
WORD_CODES = {"mention": 7, "spread": 4}
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
    found = bytearray([_NEVER]) * (
        len(index.keys) + 4
    )  # two before the first row, two after the last
    named = [name for name in index.places if name in mentioned]
    for name in sorted(
        named, key=mentioned.__getitem__
    ):  # the latest mention overwrites earlier ones
        code = bisect_right(_MENTION, now - mentioned[name])
        for row in index.places[name]:
            found[row + 2] = code
    nearby = bytes(map(min, found, found[1:], found[3:], found[4:]))
    return bytes(found[2:-2]), nearby, bytes(map(found[1:].__getitem__, index.heads))


def word_codes(memory: NeedsMemory, names: Iterable[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (identifier, codes in the order of `WORD_CODES`)."""
    mentioned = memory.mentioned
    now = memory.now
    spread = memory.spread
    for name in names:
        at = mentioned.get(name, -1)
        mention = _NEVER if at < 0 else bisect_right(_MENTION, now - at)
        yield name, (mention, bisect_right(_SPREAD, spread.get(name, 1)))


# --- Models ---------------------------------------------------------------------------------------


THRESHOLDS_MAX = 8_192
"""Cached thresholds of prices and sizes."""
EDIT_LOSSES = 2.0
"""Factor for losses in edits and new files, which are harder to get back."""
WORDS_TOKENS_MAX = 600
"""Tokens of the identifiers that are shown alone."""
GAP_ROWS_MAX, GAP_CHARS_MAX = 3, 40
"""Largest gap between kept lines that may be filled, and characters of a short line."""
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
    word: float = 2500.0
    """Cost of removing an identifier that is needed later."""
    keep: float = 1.5
    """Cost of keeping one token for the rest of the session."""
    whole: int = 0
    """Requests after an edit for which its new text stays whole."""

    def times(self, factor: float) -> "LossPrices":
        """Return the prices with every loss multiplied by `factor`."""
        return LossPrices(self.line * factor, self.word * factor, self.keep, self.whole)


class ShortForm(msgspec.Struct):
    """Lines and identifiers that an item would show."""

    rows: Sequence[int]
    words: list[str]
    chars: int
    """Characters of the body, with line ends and gaps."""


@lru_cache(maxsize=THRESHOLDS_MAX)
def _least_odds(share: float, chars: int) -> float:
    """Return the log-odds above which keeping so many characters pays. Zero characters always pay.

    `share`: price of keeping one character over the cost of losing.
    """
    chance = share * chars
    if 0 < chance < 1:
        return log(chance / (1 - chance))
    if chance:
        return 99.0
    return -99.0


class ValueModels:
    """Models for lines and identifiers."""

    def __init__(self, tables: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        self.lines = AdditiveModel(tables["line"], LINE_CODES)
        self.words = AdditiveModel(tables["word"], WORD_CODES)


def ideal_form(
    memory: NeedsMemory,
    record: ItemRecord,
    values: ValueModels,
    price: LossPrices,
    measure: SizeEstimate,
    *,
    folded: bool = False,
) -> ShortForm:
    """Return the form that an item should have now. It never shows more than now."""
    if record.rows is not None and not record.rows and not record.words:
        return ShortForm([], [], 0)
    index = memory.text_indexes.of(record)
    keep, weight = (
        price.keep / measure.per_token,
        EDIT_LOSSES if record.cls in (EDIT_CALL, WRITE_CALL) else 1.0,
    )
    rows, worthy = _rows_to_keep(
        memory, record, values.lines, _share(keep, price.line * weight), folded
    )
    rows = fill_gaps(rows, rows_of(record, index), index, worthy)
    if record.cls in (EDIT_CALL, WRITE_CALL) and memory.now - record.born < price.whole:
        rows = _with_new_text(record, rows)
    words: list[str] = []
    if index.places:
        kept = {name: None for row in rows for name in index.names[row]}
        words = _words_to_keep(
            memory, record, values.words, _share(keep, price.word * weight), kept, measure.per_token
        )
    return ShortForm(rows, words, body_chars(index, rows, words))


def _share(keep: float, loss: float) -> float:
    return keep / loss if loss > 0 else 1e9


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
    memory: NeedsMemory, record: ItemRecord, model: AdditiveModel, share: float, folded: bool
) -> tuple[list[int], list[int]]:
    """Return the rows to keep, and all rows whose value pays, also those that another item
    shows.
    """
    index, visible = memory.text_indexes.of(record), memory.visible
    keys = index.keys
    sizes = index.sizes
    rows = []
    asked = index.asked if record.rows is None else []
    if not asked:
        shown = rows_of(record, index)
        rows = [row for row in shown if index.fixed[row] > folded]
        first = {
            keys[row]: row for row in reversed(shown) if keys[row] and index.fixed[row] <= folded
        }
        asked = sorted(first.values())
    base, odds = model.of(item_codes(memory, record)), model.added
    codes = line_codes(memory, index, asked)
    worthy = [
        row
        for row, code in zip(asked, codes, strict=True)
        if base + odds[code] > _least_odds(share, sizes[row])
    ]
    return sorted(rows + [row for row in worthy if visible.get(keys[row], 0) < 2]), worthy


def fill_gaps(
    rows: list[int], alive: Collection[int], index: TextIndex, worthy: Collection[int] = ()
) -> list[int]:
    """Add the missing line of each gap of one line, and short gaps of lines that have no value of
    their own.

    Those are lines that are too short to be valued, such as braces, and `worthy` lines that another
    item shows.
    """
    if len(rows) < 2 or rows[-1] - rows[0] < len(rows):
        return rows
    have, filled = alive if isinstance(alive, range) else set(alive), rows[:1]
    held = set(worthy)
    for row in rows[1:]:
        gap = range(filled[-1] + 1, row)
        if 0 < len(gap) <= GAP_ROWS_MAX and all(
            at in have and (len(gap) == 1 or at in held or _is_short(index, at)) for at in gap
        ):
            filled += gap
        filled.append(row)
    return filled


def _is_short(index: TextIndex, row: int) -> bool:
    return not index.keys[row] and index.sizes[row] <= GAP_CHARS_MAX


def _with_new_text(record: ItemRecord, rows: list[int]) -> list[int]:
    """Add the new text of an edit, of which a later edit needs every line: short lines and
    copies, too.
    """
    if record.again or record.piece.tokens > WHOLE_TOKENS_MAX:
        return rows
    alive = None if record.rows is None else set(record.rows)
    return sorted({*rows, *(row for row in new_text_rows(record) if alive is None or row in alive)})


def _words_to_keep(
    memory: NeedsMemory,
    record: ItemRecord,
    model: AdditiveModel,
    share: float,
    kept: Mapping[str, None],
    per_token: float,
) -> list[str]:
    visible, index = memory.visible, memory.text_indexes.of(record)
    left_names = (name for row in rows_of(record, index) for name in index.names[row])
    own = index.places if record.rows is None else dict.fromkeys((*record.words, *left_names))
    names = [name for name in own if name not in kept and visible.get(name, 0) < 2]
    base, odds = model.of(item_codes(memory, record)), model.added
    found: list[tuple[float, str]] = []
    for name, codes in word_codes(memory, names):
        surplus = base + odds[codes] - _least_odds(share, len(name) + 1)
        if surplus > 0:
            found.append((-round(surplus, 9), name))  # ties are ordered by name
    left, chosen = WORDS_TOKENS_MAX * per_token, []
    covered: set[str] = set()
    for _, name in sorted(found):
        if name in covered:
            continue
        left -= len(name) + 1
        if left < 0:
            break
        chosen.append(name)
        covered.update(parts_of(name))
    inside = {part for name in chosen for part in parts_of(name) if part != name}
    return [name for name in chosen if name not in inside]


def body_chars(index: TextIndex, rows: list[int], words: list[str]) -> int:
    """Return the characters of the body with these rows and words."""
    chars = sum(map(index.sizes.__getitem__, rows))
    gaps = (
        sum(b - a > 1 for a, b in pairwise(rows)) if rows and rows[-1] - rows[0] >= len(rows) else 0
    )
    return chars + (6 if index.numbered else 2) * gaps + sum(len(word) + 1 for word in words)


def body_text(
    record: ItemRecord, index: TextIndex, rows: Sequence[int], words: Sequence[str]
) -> str:
    """Return the kept lines in order, `…` for gaps, then the identifiers that are shown alone."""
    lines: list[str] = []
    texts = texts_of(record) if rows else []
    before = -2
    for row in rows:
        runs_on = row - before == 1
        if before >= 0 and not runs_on:
            lines.append("…")
        if runs_on:
            lines.append(bare_line(texts[row]))
        else:
            lines.append(texts[row].lstrip() if index.numbered else texts[row])
        before = row
    if words:
        lines.append(" ".join(words))
    return "\n".join(lines)
