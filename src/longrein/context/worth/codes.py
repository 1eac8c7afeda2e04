"""The codes that stand for an item, a line and an identifier when it is asked how likely they are to be needed.

A `Sheet` holds the lines of an item with all that never changes about them; the rest (idle time, what was needed near
by, how lately a name was on the mind) is looked up in the memory. Every code is a small number, so models are tables.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from longrein.context.worth.held import Held
from longrein.context.worth.memory import Worth
from longrein.context.worth.sheets import Sheet

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
_MENTION = (2, 4, 8, 16, 40)
_SPREAD = (2, 3, 5)
_TIMES = (1, 2, 3, 6)
_NEVER = 6
FEW_ROWS = 4
"""Where fewer than this part of the lines is asked for, the codes of the others are not put together."""


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
    return all_codes(sheet, changing_codes(worth, held, sheet, rows), rows)


def all_codes(sheet: Sheet, changing: tuple[bytes, ...], rows: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The same, where the `changing_codes` of the rows are known."""
    columns = (*changing, *sheet.static[1:])
    if len(rows) * FEW_ROWS < len(sheet.keys):
        return zip(rows, zip(*(map(column.__getitem__, rows) for column in columns), strict=True), strict=True)
    codes = list(zip(*columns, strict=True))
    return zip(rows, map(codes.__getitem__, rows), strict=True)


def changing_codes(worth: Worth, held: Held, sheet: Sheet, rows: Sequence[int]) -> tuple[bytes, ...]:
    """The first seven codes of all rows; the last two of these are looked up for `rows` only."""
    return (*sheet.near(held.referred), *_mentions(worth, sheet), *_shared(worth, sheet, rows))


def shared_rows(worth: Worth, sheet: Sheet, rows: Sequence[int]) -> Sequence[int]:
    """Those of the rows that other items had, too."""
    spread, keys = worth.spread, sheet.keys
    return () if spread.keys().isdisjoint(keys) else [row for row in rows if keys[row] in spread]


def _shared(worth: Worth, sheet: Sheet, rows: Sequence[int]) -> tuple[bytes, bytes]:
    """For each of the rows how many items ever had the line, and where it comes from."""
    spread, dropped, keys = worth.spread, worth.dropped, sheet.keys
    spreads, origins = bytearray(len(keys)), bytearray(sheet.static[0])
    for row in shared_rows(worth, sheet, rows):
        spreads[row] = bisect_right(_SPREAD, spread[keys[row]])
    for row in [row for row in rows if keys[row] in dropped] if dropped else ():
        origins[row] = origins[row] or 1
    return bytes(spreads), bytes(origins)


def _mentions(worth: Worth, sheet: Sheet) -> tuple[bytes, bytes, bytes]:
    """For each row how lately a name in it was named, one in its neighbours, and one in the declaration above."""
    mark = (worth.now, len(worth.items))
    if sheet.mentions is None or sheet.mentions[0] != mark:
        sheet.mentions = mark, _mentions_now(worth, sheet)
    return sheet.mentions[1]


def _mentions_now(worth: Worth, sheet: Sheet) -> tuple[bytes, bytes, bytes]:
    mentioned, now, count = worth.mentioned, worth.now, len(sheet.keys)
    named = [name for name in sheet.places if name in mentioned]
    if not named:
        never = bytes([_NEVER]) * count
        return never, never, never
    found = bytearray([_NEVER]) * (count + 4)  # two before the first row, two after the last
    for name in sorted(named, key=mentioned.__getitem__):  # what was named last is told last, and stands
        code = bisect_right(_MENTION, now - mentioned[name])
        for row in sheet.places[name]:
            found[row + 2] = code
    nearby = bytes(map(min, found, found[1:], found[3:], found[4:]))
    return bytes(found[2:-2]), nearby, bytes(map(found[1:].__getitem__, sheet.heads))


def word_codes(worth: Worth, held: Held, sheet: Sheet, names: Iterable[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(identifier, its codes in the order of `WORD_CODES`)."""
    mentioned, now, referred, static = worth.mentioned, worth.now, held.referred, sheet.word_static
    times, spread = worth.times, worth.spread
    for name in names:
        at = mentioned.get(name, -1)
        mention = _NEVER if at < 0 else bisect_right(_MENTION, now - at)
        often, said = bisect_right(_SPREAD, spread.get(name, 1)), bisect_right(_TIMES, times.get(name, 0))
        yield name, (int(name in referred), mention, often, said, *static[name])
