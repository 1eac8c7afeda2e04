"""The codes that stand for an item, a line and an identifier when it is asked how likely they are to be needed.

A `Sheet` holds the lines of an item with all that never changes about them; the rest (idle time, what was needed near
by, how lately a name was on the mind) is looked up in the memory. Every code is a small number, so models are tables.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from longrein.context.features import identifiers, line_key, line_kind
from longrein.context.worth import CLEARED, Held, Worth

LABEL = re.compile(r"r\d+\S* \w.*, \d+ lines$")
"""A line of a ledger that names a folded call."""
LONG_CHARS = 120
"""A longer value of a call's argument may be shortened."""

ITEM_CODES = {"cls": 13, "idle": 8, "state": 3, "age": 6, "activity": 8, "refs": 4, "size": 6}
LINE_CODES = {"near": 6, "around": 6, "mention": 7, "kind": 5, "length": 5, "place": 3, "origin": 4}
WORD_CODES = {"before": 2, "mention": 7, "count": 4, "declared": 2, "path": 3, "length": 5}
"""Codes that a model may use, with the number of values of each."""

_IDLE = (2, 3, 5, 9, 17, 33, 65)
_AGE = (4, 10, 25, 60, 120)
_ACTIVITY = (2, 4, 8, 16, 32, 64)
_REFS = (1, 2, 4)
_SIZE = (60, 150, 400, 1000, 3000)
_DISTANCE = (1, 3, 6, 16)
_MENTION = (2, 4, 8, 16, 40)
_LENGTH = (30, 45, 70, 110)
_WORD_LENGTH = (9, 13, 20, 35)
_COUNT = (2, 3, 6)
_NEVER = 6


class Sheet:
    """The lines of one item, with what never changes about them."""

    __slots__ = ("_near", "fixed", "keys", "names", "row_of", "static", "texts", "word_static")

    def __init__(self, held: Held) -> None:
        self.texts, self.fixed, origins = _rows(held)
        self.keys = [line_key(text) for text in self.texts]
        self.names = [identifiers(text) for text in self.texts]
        self.row_of = {key: row for row, key in enumerate(self.keys) if key}
        count = max(1, len(self.texts) - 1)
        self.static: list[tuple[int, int, int, int]] = []
        declared: dict[str, bool] = {}
        times: dict[str, int] = {}
        for row, text in enumerate(self.texts):
            kind = line_kind(text) if len(text) >= 4 else 0
            share = row / count
            place = 0 if share < 0.1 else 2 if share > 0.9 else 1
            self.static.append((kind, bisect_right(_LENGTH, len(text)), place, origins.get(self.keys[row], 0)))
            for name in self.names[row]:
                times[name] = times.get(name, 0) + 1
                declared[name] = declared.get(name, False) or kind == 1
        self.word_static = {
            name: (
                bisect_right(_COUNT, times[name]),
                int(declared[name]),
                1 if "/" in name else 2 if "." in name else 0,
                bisect_right(_WORD_LENGTH, len(name)),
            )
            for name in times
        }
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
        bisect_right(_AGE, now - born),
        7 if active < 0 else bisect_right(_ACTIVITY, now - active),
        bisect_right(_REFS, held.refs),
        bisect_right(_SIZE, held.piece.tokens),
    )


def mention_code(mentioned: Mapping[str, int], names: Sequence[str], now: int) -> int:
    """How long ago one of these identifiers was named by the model or the user."""
    latest = -1
    for name in names:
        at = mentioned.get(name, -1)
        latest = max(at, latest)
    return _NEVER if latest < 0 else bisect_right(_MENTION, now - latest)


def line_codes(worth: Worth, held: Held, sheet: Sheet, rows: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(row, its codes in the order of `LINE_CODES`)."""
    near, around = sheet.near(held)
    mentioned, now, dropped = worth.mentioned, worth.now, worth.dropped
    names, static, keys = sheet.names, sheet.static, sheet.keys
    for row in rows:
        kind, length, place, origin = static[row]
        if not origin and keys[row] in dropped:
            origin = 1
        yield row, (near[row], around[row], mention_code(mentioned, names[row], now), kind, length, place, origin)


def word_codes(worth: Worth, held: Held, sheet: Sheet, names: Iterable[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(identifier, its codes in the order of `WORD_CODES`)."""
    mentioned, now, referred, static = worth.mentioned, worth.now, held.referred, sheet.word_static
    for name in names:
        at = mentioned.get(name, -1)
        mention = _NEVER if at < 0 else bisect_right(_MENTION, now - at)
        yield name, (int(name in referred), mention, *static[name])
