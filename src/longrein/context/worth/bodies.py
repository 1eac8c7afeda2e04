"""What of an item is worth showing: a line stays when nothing else shows it and its value exceeds its rent.

The value of a line is the chance that a later step needs it, times the price of bringing it back. The chance comes
from an additive model over a few small codes (`tables` holds the fitted weights): how old and idle the item is,
what was needed of it and how near to this line, how lately its names were on the mind, what kind of line it is.
Identifiers of the lines that go are weighed in the same way and stand alone when they stay.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp, log

import msgspec

from longrein.context.worth.codes import (
    ITEM_CODES,
    LINE_CODES,
    WORD_CODES,
    Sheet,
    item_codes,
    line_codes,
    sheet_of,
    word_codes,
)
from longrein.context.worth.features import parts_of
from longrein.context.worth.memory import EDIT_CALL, TEXT, WRITE_CALL, Held, Worth

REGRET_STEP, REGRET_MAX = 0.1, 2.0
"""Each clearing of a class that was regretted makes losses of that class dearer, up to twice."""
BOUND_MAX = 4000
"""Kinds of items for which a model's sums are kept."""
WORDS_TOKENS_MAX = 600
"""Identifiers that stand alone take at most this."""


class Measure(msgspec.Struct, frozen=True):
    """How the size of a shown text is guessed: characters per token, and tokens around a block."""

    result: float = 2.81
    call: float = 3.15
    text: float = 2.5
    block: float = 31.0
    """Around a result or a call."""
    plain: float = 4.0
    """Around a text."""

    def of(self, kind: str, chars: float) -> float:
        """Tokens of a block of `kind` with so many characters."""
        if kind == "result":
            return chars / self.result + self.block
        if kind == "call":
            return chars / self.call + self.block
        return chars / self.text + self.plain

    def per_token(self, kind: str) -> float:
        """Characters in a token of `kind`."""
        return self.result if kind == "result" else self.call if kind == "call" else self.text


class Model:
    """An additive model: `terms` names the codes of each table, such as `cls*idle`."""

    def __init__(self, tables: Mapping[str, Sequence[float]], codes: Mapping[str, int]) -> None:
        self.bias = tables["bias"][0]
        self._bound: dict[tuple[int, ...], Bound] = {}
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

    def bind(self, item: tuple[int, ...]) -> "Bound":
        """The model for the lines of an item with these codes."""
        found = self._bound.get(item)
        if found is None:
            if len(self._bound) > BOUND_MAX:
                self._bound.clear()
            found = self._bound[item] = self._made(item)
        return found

    def _made(self, item: tuple[int, ...]) -> "Bound":
        base = self.bias + sum(table[sum(item[at] * stride for at, stride in where)] for where, table in self._outer)
        return Bound(
            base,
            [(sum(item[at] * stride for at, stride in where), inside, table) for where, inside, table in self._inner],
        )


class Bound(dict[tuple[int, ...], float]):
    """Codes of a line -> log-odds that it is needed. Each combination is computed once."""

    def __init__(self, base: float, terms: Sequence[tuple[int, tuple[tuple[int, int], ...], Sequence[float]]]) -> None:
        super().__init__()
        self.base, self.terms = base, terms

    def __missing__(self, codes: tuple[int, ...]) -> float:
        odds = self.base
        for start, inside, table in self.terms:
            place = start
            for at, stride in inside:
                place += codes[at] * stride
            odds += table[place]
        self[codes] = odds
        return odds


# --- what stays ----------------------------------------------------------------------------------------------------


class Price(msgspec.Struct, frozen=True):
    """What decides between keeping and clearing, all in units of one uncached input token."""

    line: float = 3000.0
    """Loss when a needed line is gone."""
    word: float = 2500.0
    """Loss when a needed identifier is gone."""
    rent: float = 0.1
    """Cost of one token in one request: the price of a cached one."""
    horizon: float = 15.0
    """Requests that are expected to follow."""

    def times(self, factor: float) -> "Price":
        """The same with every loss multiplied."""
        return Price(self.line * factor, self.word * factor, self.rent, self.horizon)


class Shape(msgspec.Struct):
    """What would be shown of an item."""

    rows: list[int]
    words: list[str]
    chars: int
    """Of the body, with line ends and gaps."""


class Thresholds(dict[int, float]):
    """Characters -> log-odds above which they are worth their rent."""

    def __init__(self, rent: float, loss: float) -> None:
        super().__init__()
        self.share = rent / loss if loss > 0 else 1e9

    def __missing__(self, chars: int) -> float:
        chance = self.share * chars
        odds = log(chance / (1 - chance)) if chance < 1 else 99.0
        self[chars] = odds
        return odds


class Values:
    """Both models, and how much more dearly some classes are held."""

    def __init__(self, tables: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        self.lines = Model(tables["line"], LINE_CODES)
        self.words = Model(tables["word"], WORD_CODES)


def dearer(cls: int) -> float:
    """How much more a loss weighs in some classes: what the model itself wrote is harder to get back."""
    return 3.0 if cls in (EDIT_CALL, WRITE_CALL) else 1.5 if cls == TEXT else 1.0


def ideal(worth: Worth, held: Held, values: Values, price: Price, measure: Measure, *, folded: bool = False) -> Shape:
    """What is worth showing of an item now. Only ever less than what it shows."""
    sheet = sheet_of(held)
    per_token = measure.per_token("result" if folded else held.piece.kind)
    rent = price.rent * price.horizon / per_token
    weight = dearer(held.cls) * min(REGRET_MAX, 1 + REGRET_STEP * worth.regret.get(held.cls, 0.0))
    rows = _rows_worth(worth, held, values.lines, Thresholds(rent, price.line * weight), folded)
    rows = fill_gaps(rows, held.rows)
    kept: dict[str, None] = {}
    for row in rows:
        kept.update(dict.fromkeys(sheet.names[row]))
    words = _words_worth(worth, held, values.words, Thresholds(rent, price.word * weight), kept, per_token)
    return Shape(rows, words, body_chars(sheet, rows, words))


class Reason(msgspec.Struct, frozen=True):
    """Why a line is shown, or would no longer be."""

    line: str
    chance: float
    """That a later step needs it, 0 to 1."""
    stays: bool
    why: str


def why(worth: Worth, held: Held, values: Values, price: Price, measure: Measure) -> list[Reason]:
    """What the policy thinks of each line of an item that is shown now."""
    sheet = sheet_of(held)
    stay = set(ideal(worth, held, values, price, measure).rows)
    odds = values.lines.bind(item_codes(worth, held))
    found = []
    for row, codes in line_codes(worth, held, sheet, held.rows):
        key = sheet.keys[row]
        chance = 1 / (1 + exp(-odds[codes])) if key else 0.0
        found.append(
            Reason(sheet.bare[row], round(chance, 4), row in stay, _because(worth, sheet.fixed[row], key, codes))
        )
    return found


def _because(worth: Worth, fixed: int, key: str, codes: Sequence[int]) -> str:
    near, around, mention, nearby, block = codes[:5]
    cases = (
        (fixed > 0, "belongs to the call"),
        (not key, "too short or too long to be looked for"),
        (worth.visible.get(key, 0) > 1, "also shown elsewhere"),
        (near == 0, "was needed before"),
        (around == 0, "a name in it was needed"),
        (mention == 0, "a name in it was just mentioned"),
        (near < 3, "next to a line that was needed"),
        (nearby == 0, "next to a name just mentioned"),
        (block == 0, "under a declaration just mentioned"),
    )
    return next((text for holds, text in cases if holds), "its kind and age alone")


def _rows_worth(worth: Worth, held: Held, model: Model, enough: Thresholds, folded: bool) -> list[int]:
    sheet, newest = sheet_of(held), worth.newest
    visible, keys, texts, fixed = worth.visible, sheet.keys, sheet.bare, sheet.fixed
    seen: set[str] = set()
    rows, asked = [], []
    for row in held.rows:
        key = keys[row]
        if fixed[row] > folded:
            rows.append(row)
        elif key and key not in seen and visible.get(key, 0) < 2:
            seen.add(key)
            asked.append(row)
    own = [row for row in asked if newest.get(keys[row], held.n) == held.n]
    odds = model.bind(item_codes(worth, held))
    rows += [row for row, codes in line_codes(worth, held, sheet, own) if odds[codes] > enough[len(texts[row]) + 1]]
    if len(own) < len(asked):
        others = (row for row in asked if newest.get(keys[row], held.n) != held.n)
        rows += [row for row in others if _newer_odds(worth, keys[row], model) > enough[len(texts[row]) + 1]]
    return sorted(rows)


def _newer_odds(worth: Worth, key: str, model: Model) -> float:
    """The log-odds of a line whose newest copy stood elsewhere: it is worth what it was worth there."""
    holder = worth.items[worth.newest[key]]
    sheet = sheet_of(holder)
    row = sheet.row_of.get(key)
    if row is None:
        return -99.0
    return max(model.bind(item_codes(worth, holder))[codes] for _, codes in line_codes(worth, holder, sheet, (row,)))


def fill_gaps(rows: list[int], alive: list[int]) -> list[int]:
    """A gap of one line is shown as the line it is."""
    if len(rows) < 2:
        return rows
    have, filled = set(alive), rows[:1]
    for row in rows[1:]:
        if row - filled[-1] == 2 and row - 1 in have:
            filled.append(row - 1)
        filled.append(row)
    return filled


def _words_worth(
    worth: Worth,
    held: Held,
    model: Model,
    enough: Thresholds,
    kept: Mapping[str, None],
    per_token: float,
) -> list[str]:
    visible, newest, sheet = worth.visible, worth.newest, sheet_of(held)
    names = [name for name in held.names if name not in kept and visible.get(name, 0) < 2]
    odds = model.bind(item_codes(worth, held))
    found: list[tuple[float, str]] = []
    for name, codes in word_codes(worth, held, sheet, names):
        chance = odds[codes] if newest.get(name, held.n) == held.n else _newer_word_odds(worth, name, model)
        surplus = chance - enough[len(name) + 1]
        if surplus > 0:
            found.append((-surplus, name))
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
    return [name for name in chosen if not _inside(name, chosen)]


def _newer_word_odds(worth: Worth, name: str, model: Model) -> float:
    holder = worth.items[worth.newest[name]]
    sheet = sheet_of(holder)
    if name not in sheet.word_static:
        return -99.0
    return max(model.bind(item_codes(worth, holder))[codes] for _, codes in word_codes(worth, holder, sheet, (name,)))


def _inside(name: str, chosen: list[str]) -> bool:
    return any(other != name and name in parts_of(other) for other in chosen if len(other) > len(name))


def body_chars(sheet: Sheet, rows: list[int], words: list[str]) -> int:
    """Characters of the body that these rows and words make."""
    chars = sum(len(sheet.bare[row]) + 1 for row in rows)
    gaps = sum(1 for a, b in pairwise(rows) if b - a > 1)
    return chars + (6 if sheet.numbered else 2) * gaps + sum(len(word) + 1 for word in words)


def body(sheet: Sheet, rows: list[int], words: list[str]) -> str:
    """Kept lines in order, `…` where something between them is gone, then the identifiers that stand alone."""
    lines: list[str] = []
    before = -2
    for row in rows:
        runs_on = row - before == 1
        if before >= 0 and not runs_on:
            lines.append("…")
        lines.append(sheet.bare[row] if runs_on else sheet.texts[row].lstrip() if sheet.numbered else sheet.texts[row])
        before = row
    if words:
        lines.append(" ".join(words))
    return "\n".join(lines)
