"""The codes that stand for an item, a line and an identifier when it is asked how likely they are to be needed.

A `Sheet` holds the lines of an item with all that never changes about them; the rest (idle time, what was needed near
by, how lately a name was on the mind) is looked up in the memory. Every code is a small number, so models are tables.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from longrein.context.worth.features import declares, identifiers, line_key
from longrein.context.worth.memory import CLEARED, Held, Worth

LABEL = re.compile(r"r\d+\S* \w.*, \d+ lines$")
"""A line of a ledger that names a folded call."""
LINES_KEPT = 4_096
"""Lines whose reading is kept; longer ones than `LINE_KEPT_CHARS_MAX` are not."""
LINE_KEPT_CHARS_MAX = 400
LONG_CHARS = 120
"""A longer value of a call's argument may be shortened."""

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
"""Codes that a model may use, with the number of values of each."""

_IDLE = (2, 3, 5, 9, 17, 33, 65)
_ACTIVITY = (2, 4, 8, 16, 32, 64)
_REFS = (1, 2, 4)
_SIZE = (60, 150, 400, 1000, 3000)
_DISTANCE = (1, 3, 6, 16)
_MENTION = (2, 4, 8, 16, 40)
_LENGTH = (30, 45, 70, 110)
_WORD_LENGTH = (9, 13, 20, 35)
_COUNT = (2, 3, 6)
_SPREAD = (2, 3, 5)
_TIMES = (1, 2, 3, 6)
_NUMBERED = re.compile(r"\s*\d+[→\t]")
_NEVER = 6


class Sheet:
    """The lines of one item, with what never changes about them."""

    __slots__ = (
        *("_near", "bare", "fixed", "heads", "keys", "names"),
        *("numbered", "row_of", "static", "texts", "word_static"),
    )

    def __init__(self, held: Held) -> None:
        self.texts, self.fixed, origins = _rows(held)
        read = [_known(text) if len(text) <= LINE_KEPT_CHARS_MAX else read_line(text) for text in self.texts]
        self.bare = [line[0] for line in read]
        """The lines without their numbers; a run of kept lines shows the first number only."""
        self.keys = [line[1] for line in read]
        self.names = [line[2] for line in read]
        declaring, indents = [line[3] for line in read], [line[4] for line in read]
        self.numbered = sum(map(len, self.bare)) < sum(map(len, self.texts)) and _most_numbered(self.bare, self.texts)
        self.row_of = {key: row for row, key in enumerate(self.keys) if key}
        self.heads = _heads(indents, self.names, declaring)
        """For each row the declaration that it stands under, or -1."""
        self.static = _static_lines(self, origins, indents)
        """For each row the last five codes of `LINE_CODES`."""
        self.word_static = _static_words(self.names, declaring)
        """For each identifier the last three codes of `WORD_CODES`."""
        self._near: tuple[int, list[int], list[int]] | None = None

    def near(self, held: Held) -> tuple[list[int], list[int]]:
        """For each row, coded: how far the nearest line is that was needed exactly, and that was needed in any way."""
        mark = len(held.referred)
        if self._near is None or self._near[0] != mark:
            referred = held.referred
            exact = [key in referred for key in self.keys] if referred else []
            anyhow = [
                hit or any(name in referred for name in names)
                for hit, names in zip(exact, self.names, strict=True)
            ] if referred else []  # fmt: skip
            self._near = mark, _distances(exact, len(self.keys)), _distances(anyhow, len(self.keys))
        return self._near[1], self._near[2]


def sheet_of(held: Held) -> Sheet:
    """The sheet of an item, made when first asked for."""
    if held.sheet is None:
        held.sheet = sheet = Sheet(held)
        held.rows, held.names = list(range(len(sheet.texts))), dict.fromkeys(sheet.word_static)
    assert isinstance(held.sheet, Sheet)
    return held.sheet


def _rows(held: Held) -> tuple[list[str], list[int], dict[str, int]]:
    """Lines; which stay with the item (1: a short argument, 2: a marker or label); where lines of an edit come from."""
    if held.piece.kind != "call":
        texts = held.piece.content.split("\n")
        if texts[0].startswith(CLEARED) and held.form != "full":
            held.header = texts.pop(0)
        return texts, [2 * (text.startswith(CLEARED) or bool(held.header and LABEL.match(text))) for text in texts], {}
    texts, fixed = [], []
    for value in long_and_short(held.arguments or {}):
        lines = value[1].split("\n")
        if held.form != "full" and value[2] and lines[0].startswith(CLEARED):
            del lines[0]
        texts += lines
        fixed += [0 if value[2] else 1] * len(lines)
    return texts, fixed, _origins(held.arguments or {})


def long_and_short(arguments: Mapping[str, object]) -> list[tuple[str, str, bool]]:
    """(key, text, whether it is long) of each argument that holds text."""
    found = []
    for key, value in arguments.items():
        if isinstance(value, str):
            found.append((key, value, len(value) > LONG_CHARS))
        elif isinstance(value, list | dict):
            text = msgspec.json.format(msgspec.json.encode(value), indent=0).decode() if value else ""
            found.append((key, text, False))
    return found


def _origins(arguments: Mapping[str, object]) -> dict[str, int]:
    old, new = arguments.get("old_string"), arguments.get("new_string")
    if not isinstance(old, str) or not isinstance(new, str):
        return {}
    before = {line_key(line) for line in old.split("\n")}
    after = {line_key(line) for line in new.split("\n")}
    return {key: (1 if key not in after else 2 if key not in before else 3) for key in before | after if key}


def _most_numbered(bare: list[str], texts: list[str]) -> bool:
    return sum(len(a) < len(b) for a, b in zip(bare, texts, strict=True)) * 2 > len(texts)


def _heads(indents: list[int], names: list[tuple[str, ...]], declaring: list[bool]) -> list[int]:
    head, heads = -1, []
    for row, indent in enumerate(indents):
        if declaring[row] and names[row] and indent < 2:
            head = row
        heads.append(head)
    return heads


_shared: dict[tuple[int, int, int, int, int], tuple[int, int, int, int, int]] = {}
"""Static codes of lines: a few hundred differ, however many lines there are."""


def _static_lines(sheet: Sheet, origins: Mapping[str, int], indents: list[int]) -> list[tuple[int, int, int, int, int]]:
    copies: dict[str, int] = {}
    for key in sheet.keys:
        copies[key] = copies.get(key, 0) + 1
    last = max(1, len(sheet.keys) - 1)
    found = []
    for row, key in enumerate(sheet.keys):
        place = 0 if row / last < 0.1 else 2 if row / last > 0.9 else 1
        length = bisect_right(_LENGTH, len(sheet.texts[row]))
        origin = origins.get(key, 0)
        codes = (origin, length, place, bisect_right(_COUNT, copies[key]), indents[row])
        found.append(_shared.setdefault(codes, codes))
    return found


def _static_words(names: list[tuple[str, ...]], declaring: list[bool]) -> dict[str, tuple[int, int, int]]:
    times: dict[str, int] = {}
    declared: dict[str, None] = {}
    for row, found in enumerate(names):
        for name in found:
            times[name] = times.get(name, 0) + 1
            if declaring[row]:
                declared[name] = None
    return {
        name: (bisect_right(_COUNT, count), int(name in declared), bisect_right(_WORD_LENGTH, len(name)))
        for name, count in times.items()
    }


def _distances(hits: list[bool], count: int) -> list[int]:
    """Coded distance of each row to the nearest hit: 0 is a hit, 4 far, 5 when there is none at all."""
    if True not in hits:
        return [5] * count
    last, found = -count * 2, []
    for row, hit in enumerate(hits):
        last = row if hit else last
        found.append(row - last)
    last = count * 3
    for row in range(count - 1, -1, -1):
        last = row if hits[row] else last
        found[row] = bisect_right(_DISTANCE, min(found[row], last - row))
    return found


# --- codes ---------------------------------------------------------------------------


def item_codes(worth: Worth, held: Held) -> tuple[int, ...]:
    """The codes of `ITEM_CODES`, in that order."""
    now, born = worth.now, held.born
    active = max((worth.touched_at.get(path, -1000) for path in held.paths), default=-1000)
    return (
        held.cls,
        bisect_right(_IDLE, now - max(born, held.last)),
        2 if held.superseded else 1 if held.edited else 0,
        7 if active < 0 else bisect_right(_ACTIVITY, now - active),
        bisect_right(_REFS, held.refs),
        bisect_right(_SIZE, held.piece.tokens),
    )


def line_codes(worth: Worth, held: Held, sheet: Sheet, rows: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(row, its codes in the order of `LINE_CODES`)."""
    near, around = sheet.near(held)
    dropped, spread = worth.dropped, worth.spread
    static, keys, heads = sheet.static, sheet.keys, sheet.heads
    mention = _mentions(worth, sheet, rows)
    for row in rows:
        origin, length, place, copies, indent = static[row]
        key = keys[row]
        if not origin and key in dropped:
            origin = 1
        # fmt: off
        yield row, (
            near[row], around[row], mention[row + 2],
            min(mention[row], mention[row + 1], mention[row + 3], mention[row + 4]), mention[heads[row] + 2],
            bisect_right(_SPREAD, spread[key]) if key in spread else 0, origin, length, place, copies, indent,
        )
        # fmt: on


def _mentions(worth: Worth, sheet: Sheet, rows: Sequence[int]) -> Sequence[int]:
    """For each row of the sheet, two before the first and two after the last, how lately a name in it was named.

    Where only a few rows are wanted the others are not looked at.
    """
    count, mentioned, now = len(sheet.keys), worth.mentioned, worth.now
    named = {name: bisect_right(_MENTION, now - mentioned[name]) for name in sheet.word_static if name in mentioned}
    found = [_NEVER] * (count + 4)
    if not named:
        return found
    wanted: Iterable[int] = range(count)
    if len(rows) * 6 < count:
        near = (at for row in rows for at in (row - 2, row - 1, row, row + 1, row + 2, sheet.heads[row]))
        wanted = dict.fromkeys(at for at in near if 0 <= at < count)
    for row in wanted:
        codes = [named[name] for name in sheet.names[row] if name in named]
        if codes:
            found[row + 2] = min(codes)
    return found


def read_line(text: str) -> tuple[str, str, tuple[str, ...], bool, int]:
    """(without its number, key, identifiers, whether it declares something, indentation) of one line."""
    bare = bare_line(text)
    return bare, line_key(text), identifiers(text), declares(text), indent_of(bare)


_known = lru_cache(maxsize=LINES_KEPT)(read_line)
"""What is read is mostly read again, whole or in part."""


def bare_line(text: str) -> str:
    """A numbered line of a file without its number, any other line as it is."""
    match = _NUMBERED.match(text)
    return text[match.end() :] if match else text


def indent_of(text: str) -> int:
    """How deep a line is indented, in steps up to three."""
    blank = text[: len(text) - len(text.lstrip())]
    return min(3, (len(blank) + 3 * blank.count("\t") + 2) // 4)


def word_codes(worth: Worth, held: Held, sheet: Sheet, names: Iterable[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(identifier, its codes in the order of `WORD_CODES`)."""
    mentioned, now, referred, static = worth.mentioned, worth.now, held.referred, sheet.word_static
    times, spread = worth.times, worth.spread
    for name in names:
        at = mentioned.get(name, -1)
        mention = _NEVER if at < 0 else bisect_right(_MENTION, now - at)
        often, said = bisect_right(_SPREAD, spread.get(name, 1)), bisect_right(_TIMES, times.get(name, 0))
        yield name, (int(name in referred), mention, often, said, *static[name])
