"""Value of lines and identifiers, and the short form of an item that keeps the valuable ones.

A line is kept when nothing else shows it and its value exceeds the cost of re-reading it. Its value is the chance that
a later step needs it times the price of bringing it back. The chance comes from an additive model over a few small
codes (`weights` holds the fitted weights): idle time and age of the item, what was needed near the line, how recently
its names were mentioned, and the kind of line. Identifiers of removed lines are valued the same way and shown alone.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import exp, log

import msgspec

from longrein.context.clearing.features import EDIT_CALL, TEXT, WRITE_CALL, ItemRecord, parts_of
from longrein.context.clearing.needs import NeedsMemory
from longrein.context.clearing.text_index import TextIndex, bare_line, rows_of, texts_of

# --- Codes of items, lines and identifiers ---------------------------------------------------------------------------
# A `TextIndex` holds the codes of a line that never change; the others are looked up in the memory.
# Codes are small numbers, so that models are tables.


ITEM_CODES = {"cls": 13, "idle": 8, "state": 3, "activity": 8, "refs": 4, "size": 6}
LINE_CODES = {
    "near": 6,
    "around": 6,
    "mention": 7,
    "nearby": 7,
    "block": 7,
    "spread": 4,
    "origin": 4,
    "length": 5,
    "place": 3,
    "copies": 4,
    "indent": 4,
}
WORD_CODES = {
    "before": 2,
    "mention": 7,
    "spread": 4,
    "times": 5,
    "count": 4,
    "declared": 2,
    "length": 5,
}
"""Codes of a model with the number of values of each."""

_IDLE = (2, 3, 5, 9, 17, 33, 65)
_ACTIVITY = (2, 4, 8, 16, 32, 64)
_REFS = (1, 2, 4)
_SIZE = (60, 150, 400, 1000, 3000)
_MENTION = (2, 4, 8, 16, 40)
_SPREAD = (2, 3, 5)
_TIMES = (1, 2, 3, 6)
_NEVER = 6
SPARSE_ROWS_RATIO = 4
"""Codes are looked up row by row when fewer than one in this many rows is asked for."""


def item_codes(memory: NeedsMemory, record: ItemRecord) -> tuple[int, ...]:
    """Return the codes of an item in the order of `ITEM_CODES`."""
    now, born = memory.now, record.born
    active = max((memory.touched_at.get(path, -1000) for path in record.paths), default=-1000)
    return (
        record.cls,
        bisect_right(_IDLE, now - max(born, record.last)),
        2 if record.superseded else 1 if record.edited else 0,
        7 if active < 0 else bisect_right(_ACTIVITY, now - active),
        bisect_right(_REFS, record.refs),
        bisect_right(_SIZE, record.piece.tokens),
    )


def line_codes(
    memory: NeedsMemory, record: ItemRecord, index: TextIndex, rows: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (row, codes in the order of `LINE_CODES`)."""
    return combine_codes(index, changing_codes(memory, record, index, rows), rows)


def combine_codes(
    index: TextIndex, changing: tuple[bytes, ...], rows: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the same as `line_codes` from known `changing_codes`."""
    columns = (*changing, *index.static[1:])
    if len(rows) * SPARSE_ROWS_RATIO < len(index.keys):
        return zip(rows, zip(*(map(column.__getitem__, rows) for column in columns), strict=True), strict=True)
    codes = list(zip(*columns, strict=True))
    return zip(rows, map(codes.__getitem__, rows), strict=True)


def changing_codes(memory: NeedsMemory, record: ItemRecord, index: TextIndex, rows: Sequence[int]) -> tuple[bytes, ...]:
    """Return the first seven codes of all rows. The last two are filled for `rows` only."""
    return (*index.near(record.referred), *_mentions(memory, index), *_shared(memory, index, rows))


def shared_rows(memory: NeedsMemory, index: TextIndex, rows: Sequence[int]) -> Sequence[int]:
    """Return the rows whose line other items had, too."""
    spread, keys = memory.spread, index.keys
    return () if spread.keys().isdisjoint(keys) else [row for row in rows if keys[row] in spread]


def _shared(memory: NeedsMemory, index: TextIndex, rows: Sequence[int]) -> tuple[bytes, bytes]:
    """Return how many items ever had each line, and where the line comes from."""
    spread, dropped, keys = memory.spread, memory.dropped, index.keys
    spreads, origins = bytearray(len(keys)), bytearray(index.static[0])
    for row in shared_rows(memory, index, rows):
        spreads[row] = bisect_right(_SPREAD, spread[keys[row]])
    for row in [row for row in rows if keys[row] in dropped] if dropped else ():
        origins[row] = origins[row] or 1
    return bytes(spreads), bytes(origins)


def _mentions(memory: NeedsMemory, index: TextIndex) -> tuple[bytes, bytes, bytes]:
    """Return recency codes of the names in each row, in its neighbours, and in the declaration above it."""
    mark = (memory.now, len(memory.items))
    if index.mentions is None or index.mentions[0] != mark:
        index.mentions = mark, _mentions_now(memory, index)
    return index.mentions[1]


def _mentions_now(memory: NeedsMemory, index: TextIndex) -> tuple[bytes, bytes, bytes]:
    mentioned, now, count = memory.mentioned, memory.now, len(index.keys)
    named = [name for name in index.places if name in mentioned]
    if not named:
        never = bytes([_NEVER]) * count
        return never, never, never
    found = bytearray([_NEVER]) * (count + 4)  # two before the first row, two after the last
    for name in sorted(named, key=mentioned.__getitem__):  # the latest mention overwrites earlier ones
        code = bisect_right(_MENTION, now - mentioned[name])
        for row in index.places[name]:
            found[row + 2] = code
    nearby = bytes(map(min, found, found[1:], found[3:], found[4:]))
    return bytes(found[2:-2]), nearby, bytes(map(found[1:].__getitem__, index.heads))


def word_codes(
    memory: NeedsMemory, record: ItemRecord, index: TextIndex, names: Iterable[str]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (identifier, codes in the order of `WORD_CODES`)."""
    mentioned, now, referred, static = memory.mentioned, memory.now, record.referred, index.word_static
    times, spread = memory.times, memory.spread
    for name in names:
        at = mentioned.get(name, -1)
        mention = _NEVER if at < 0 else bisect_right(_MENTION, now - at)
        often, said = bisect_right(_SPREAD, spread.get(name, 1)), bisect_right(_TIMES, times.get(name, 0))
        yield name, (int(name in referred), mention, often, said, *static[name])


# --- Models ----------------------------------------------------------------------------------------------------------


REGRET_STEP, REGRET_MAX = 0.1, 2.0
"""Each regretted clearing makes losses of its class more expensive, up to a factor of two."""
SUMS_MAX = 20_000
"""Cached sums of weights, of item codes and of line codes."""
SHARES_MAX = 32
"""Prices whose thresholds are cached."""
WORDS_TOKENS_MAX = 600
"""Tokens of the identifiers that are shown alone."""


class SizeEstimate(msgspec.Struct, frozen=True):
    """Estimate of the size of a shown text."""

    per_token: float = 2.9  # Characters per token
    block: float = 31.0  # Tokens around an item

    def of(self, chars: float) -> float:
        """Return the tokens of an item with this many characters."""
        return chars / self.per_token + self.block


class AdditiveModel:
    """Additive model of log-odds. `terms` names the codes of each table, such as `cls*idle`."""

    def __init__(self, tables: Mapping[str, Sequence[float]], codes: Mapping[str, int]) -> None:
        self.bias = tables["bias"][0]
        self._bases: dict[tuple[int, ...], float] = {}
        self._bound: dict[tuple[int, ...], BoundModel] = {}
        item, inner = list(ITEM_CODES), list(codes)
        self._outer: list[tuple[tuple[tuple[int, int], ...], Sequence[float]]] = []
        self._inner: list[tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...], Sequence[float]]] = []
        for term, table in tables.items():
            if term == "bias":
                continue
            outside: list[tuple[int, int]] = []
            inside: list[tuple[int, int]] = []
            stride = 1
            for name in reversed(term.split("*")):
                own = name in codes
                (inside if own else outside).append(((inner if own else item).index(name), stride))
                stride *= codes[name] if own else ITEM_CODES[name]
            if len(table) != stride:
                raise ValueError(f"table {term} needs {stride} weights")
            if inside:
                self._inner.append((tuple(outside), tuple(inside), table))
            else:
                self._outer.append((tuple(outside), table))

        self._crossed = sorted({at for outside, _, _ in self._inner for at, _ in outside})

    def bind(self, item: tuple[int, ...]) -> "tuple[float, BoundModel]":
        """Return the item's log-odds and a mapping of line codes to the log-odds that they add."""
        base = self._bases.get(item)
        if base is None:
            if len(self._bases) > SUMS_MAX:
                self._bases.clear()
            base = self._bases[item] = self.bias + sum(table[_place(item, where)] for where, table in self._outer)
        crossed = tuple(item[at] for at in self._crossed)
        found = self._bound.get(crossed)
        if found is None:
            found = self._bound[crossed] = BoundModel(
                [(_place(item, outside), inside, table) for outside, inside, table in self._inner]
            )
        return base, found


def _place(codes: tuple[int, ...], strides: tuple[tuple[int, int], ...]) -> int:
    return sum(codes[at] * stride for at, stride in strides)


class BoundModel(dict[tuple[int, ...], float]):
    """Mapping from codes of a line to the log-odds that they add. Each combination is computed once."""

    def __init__(self, terms: Sequence[tuple[int, tuple[tuple[int, int], ...], Sequence[float]]]) -> None:
        super().__init__()
        self.terms = terms

    def __missing__(self, codes: tuple[int, ...]) -> float:
        if len(self) > SUMS_MAX:
            self.clear()
        odds = 0.0
        for start, inside, table in self.terms:
            place = start
            for at, stride in inside:
                place += codes[at] * stride
            odds += table[place]
        self[codes] = odds
        return odds


# --- Forms of items --------------------------------------------------------------------------------------------------


class LossPrices(msgspec.Struct, frozen=True):
    """Prices of losing and of keeping, in units of one uncached input token."""

    line: float = 3000.0
    """Cost of removing a line that is needed later."""
    word: float = 2500.0
    """Cost of removing an identifier that is needed later."""
    keep: float = 1.5
    """Cost of keeping one token for the rest of the session."""

    def times(self, factor: float) -> "LossPrices":
        """Return the prices with every loss multiplied by `factor`."""
        return LossPrices(self.line * factor, self.word * factor, self.keep)


class ShortForm(msgspec.Struct):
    """Lines and identifiers that an item would show."""

    rows: Sequence[int]
    words: list[str]
    chars: int
    """Characters of the body, with line ends and gaps."""


class Thresholds(dict[int, float]):
    """Mapping from characters to the log-odds above which keeping them pays. Zero characters always pay."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def __missing__(self, chars: int) -> float:
        chance = self.share * chars
        odds = log(chance / (1 - chance)) if 0 < chance < 1 else 99.0 if chance else -99.0
        self[chars] = odds
        return odds


class ValueModels:
    """Models for lines and identifiers."""

    def __init__(self, tables: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        self.lines = AdditiveModel(tables["line"], LINE_CODES)
        self.words = AdditiveModel(tables["word"], WORD_CODES)


@lru_cache(maxsize=SHARES_MAX)
def _thresholds(keep: float, loss: float) -> Thresholds:
    """Return the thresholds for a price of keeping one character and a cost of losing."""
    return Thresholds(keep / loss if loss > 0 else 1e9)


def loss_weight(cls: int) -> float:
    """Return the factor for losses of a class. Text that the model wrote is harder to get back."""
    return 3.0 if cls in (EDIT_CALL, WRITE_CALL) else 1.5 if cls == TEXT else 1.0


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
    keep = price.keep / measure.per_token
    weight = loss_weight(record.cls) * min(REGRET_MAX, 1 + REGRET_STEP * memory.regret.get(record.cls, 0.0))
    rows = _rows_to_keep(memory, record, values.lines, _thresholds(keep, price.line * weight), folded)
    rows = fill_gaps(rows, rows_of(record, index))
    words: list[str] = []
    if index.places:
        kept = {name: None for row in rows for name in index.names[row]}
        words = _words_to_keep(
            memory, record, values.words, _thresholds(keep, price.word * weight), kept, measure.per_token
        )
    return ShortForm(rows, words, body_chars(index, rows, words))


class LineReason(msgspec.Struct, frozen=True):
    """Reason why a line is kept or removed."""

    line: str
    chance: float
    """Chance that a later step needs the line, 0 to 1."""
    stays: bool
    why: str


def explain_lines(
    memory: NeedsMemory, record: ItemRecord, values: ValueModels, price: LossPrices, measure: SizeEstimate
) -> list[LineReason]:
    """Return chance, decision and reason for each line of an item that is shown now."""
    index, texts = memory.text_indexes.of(record), texts_of(record)
    stay = set(ideal_form(memory, record, values, price, measure).rows)
    base, odds = values.lines.bind(item_codes(memory, record))
    found = []
    for row, codes in line_codes(memory, record, index, rows_of(record, index)):
        key = index.keys[row]
        chance = 1 / (1 + exp(-base - odds[codes])) if key else 0.0
        found.append(
            LineReason(
                bare_line(texts[row]), round(chance, 4), row in stay, _explanation(memory, index.fixed[row], key, codes)
            )
        )
    return found


def _explanation(memory: NeedsMemory, fixed: int, key: str, codes: Sequence[int]) -> str:
    near, around, mention, nearby, block = codes[:5]
    cases = (
        (fixed > 0, "belongs to the call"),
        (not key, "too short or too long to be looked for"),
        (memory.visible.get(key, 0) > 1, "also shown elsewhere"),
        (near == 0, "was needed before"),
        (around == 0, "a name in it was needed"),
        (mention == 0, "a name in it was just mentioned"),
        (near < 3, "next to a line that was needed"),
        (nearby == 0, "next to a name just mentioned"),
        (block == 0, "under a declaration just mentioned"),
    )
    return next((text for holds, text in cases if holds), "its kind and age alone")


def _rows_to_keep(
    memory: NeedsMemory, record: ItemRecord, model: AdditiveModel, enough: Thresholds, folded: bool
) -> list[int]:
    index, visible, newest, n = memory.text_indexes.of(record), memory.visible, memory.newest, record.n
    keys, sizes, rows = index.keys, index.sizes, []
    asked = index.asked if record.rows is None else []
    if not asked:
        shown = rows_of(record, index)
        rows = [row for row in shown if index.fixed[row] > folded]
        first = {keys[row]: row for row in reversed(shown) if keys[row] and index.fixed[row] <= folded}
        asked = sorted(first.values())
    base, odds = model.bind(item_codes(memory, record))
    added = _line_odds(memory, record, index, asked, odds)
    worthy = [row for row, more in zip(asked, added, strict=True) if base + more > enough[sizes[row]]]
    elsewhere = asked if record.piece.kind == "call" else shared_rows(memory, index, asked)
    elsewhere = [row for row in elsewhere if newest.get(keys[row], n) != n and visible.get(keys[row], 0) < 2]
    if elsewhere:
        worthy = [row for row in worthy if newest.get(keys[row], n) == n]
        worthy += [row for row in elsewhere if _newer_odds(memory, keys[row], model) > enough[sizes[row]]]
    return sorted(rows + [row for row in worthy if visible.get(keys[row], 0) < 2])


def _line_odds(
    memory: NeedsMemory, record: ItemRecord, index: TextIndex, rows: Sequence[int], odds: BoundModel
) -> list[float]:
    """Return the log-odds that each row adds. Those of an unchanged whole item are cached."""
    if rows is not index.asked:
        return [odds[codes] for _, codes in line_codes(memory, record, index, rows)]
    changing = changing_codes(memory, record, index, rows)
    if index.added is None or index.added[0] is not odds or index.added[1] != changing:
        index.added = odds, changing, [odds[codes] for _, codes in combine_codes(index, changing, rows)]
    return index.added[2]


def _newer_odds(memory: NeedsMemory, key: str, model: AdditiveModel) -> float:
    """Return the log-odds of a line at its newest copy in another item."""
    holder = memory.items[memory.newest[key]]
    index = memory.text_indexes.of(holder)
    if key not in index.keys:
        return -99.0
    row = len(index.keys) - 1 - index.keys[::-1].index(key)
    base, odds = model.bind(item_codes(memory, holder))
    return base + max(odds[codes] for _, codes in line_codes(memory, holder, index, (row,)))


def fill_gaps(rows: list[int], alive: Collection[int]) -> list[int]:
    """Add the missing line of each gap of one line."""
    if len(rows) < 2 or rows[-1] - rows[0] < len(rows):
        return rows
    have, filled = alive if isinstance(alive, range) else set(alive), rows[:1]
    for row in rows[1:]:
        if row - filled[-1] == 2 and row - 1 in have:
            filled.append(row - 1)
        filled.append(row)
    return filled


def _words_to_keep(
    memory: NeedsMemory,
    record: ItemRecord,
    model: AdditiveModel,
    enough: Thresholds,
    kept: Mapping[str, None],
    per_token: float,
) -> list[str]:
    visible, newest, index = memory.visible, memory.newest, memory.text_indexes.of(record)
    own = index.places if record.rows is None else _remaining_names(record, index)
    names = [name for name in own if name not in kept and visible.get(name, 0) < 2]
    base, odds = model.bind(item_codes(memory, record))
    found: list[tuple[float, str]] = []
    for name, codes in word_codes(memory, record, index, names):
        chance = base + odds[codes] if newest.get(name, record.n) == record.n else _newer_word_odds(memory, name, model)
        surplus = chance - enough[len(name) + 1]
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


def _remaining_names(record: ItemRecord, index: TextIndex) -> dict[str, None]:
    found = dict.fromkeys(record.words)
    for row in rows_of(record, index):
        found.update(dict.fromkeys(index.names[row]))
    return found


def _newer_word_odds(memory: NeedsMemory, name: str, model: AdditiveModel) -> float:
    holder = memory.items[memory.newest[name]]
    index = memory.text_indexes.of(holder)
    if name not in index.word_static:
        return -99.0
    base, odds = model.bind(item_codes(memory, holder))
    return base + max(odds[codes] for _, codes in word_codes(memory, holder, index, (name,)))


def body_chars(index: TextIndex, rows: list[int], words: list[str]) -> int:
    """Return the characters of the body with these rows and words."""
    chars = sum(map(index.sizes.__getitem__, rows))
    gaps = sum(b - a > 1 for a, b in pairwise(rows)) if rows and rows[-1] - rows[0] >= len(rows) else 0
    return chars + (6 if index.numbered else 2) * gaps + sum(len(word) + 1 for word in words)


def body_text(record: ItemRecord, index: TextIndex, rows: Sequence[int], words: Sequence[str]) -> str:
    """Return the kept lines in order, `…` for gaps, then the identifiers that are shown alone."""
    lines: list[str] = []
    texts = texts_of(record) if rows else []
    before = -2
    for row in rows:
        runs_on = row - before == 1
        if before >= 0 and not runs_on:
            lines.append("…")
        lines.append(bare_line(texts[row]) if runs_on else texts[row].lstrip() if index.numbered else texts[row])
        before = row
    if words:
        lines.append(" ".join(words))
    return "\n".join(lines)
