"""Copying the sessions of a damaged database: of each the longest good beginning, and never half of a joint write.

A subagent and the entry of its parent that started it were written together, so a subagent is kept only with that
entry and only when its own first turn has begun; of one that was asked again, no turn is kept that its parent does not
know of. What is left out lies in the database that was set aside.
"""

import contextlib
import sqlite3
from collections.abc import Iterator

import msgspec

from longrein.events import AnyEvent, ChildStarted, Opened, Reminded, SessionError, TurnEnded, UserSpoke, decode_event
from longrein.store.copying import Unsound, insert_entry, sound_rows
from longrein.store.database import ROOT, Row, entry_key, entry_seq, key_number
from longrein.store.faults import is_damage
from longrein.store.reading import stored_body


class Kept:
    """What was copied."""

    def __init__(self) -> None:
        self.entries = 0
        """Of the root."""
        self.cut = 0
        """Subagents of which not all was kept."""
        self.dropped = 0
        """Subagents that were left out."""


class _Below:
    """What the copied logs say of each other."""

    def __init__(self) -> None:
        self.turns: dict[str, int] = {}
        """Session -> how often it was started or asked again."""
        self.reach: dict[str, tuple[int, bool]] = {}
        """Session -> (its last entry that was copied, whether that was all)."""


def last_number(connection: sqlite3.Connection) -> int:
    """The highest number of a session in the database, whatever of it is there."""
    found = ROOT
    for query in ("SELECT max(number) FROM sessions", "SELECT max(number) FROM inbox"):
        found = max(found, connection.execute(query).fetchone()[0] or 0)
    return max(found, key_number(connection.execute("SELECT max(key) FROM entries").fetchone()[0] or 0))


def copy_sessions(folder: str, source: sqlite3.Connection, target: sqlite3.Connection) -> Kept:
    """Copy every session and its inbox. Raises sqlite3.DatabaseError when not even the first table can be asked."""
    kept, below = Kept(), _Below()
    rows = sound_rows(source, folder)
    root, whole = "", True
    try:
        for row in rows:
            insert_entry(target, row)
            kept.entries += 1
            root = root or _opened(folder, row)[0]
            _note(below, folder, row)
    except Unsound:
        whole = False
    _listed(source, target, ROOT, root)
    below.reach[root] = (kept.entries, whole)
    for number in _numbers(source):
        size, whole = _copy_child(folder, source, target, number, below)
        kept.dropped += not size
        kept.cut += bool(size) and not whole
    return kept


def _numbers(source: sqlite3.Connection) -> Iterator[int]:
    """Numbers of the subagents, rising: a parent's is lower than its child's."""
    number = ROOT
    with contextlib.suppress(sqlite3.DatabaseError):
        while row := source.execute(
            "SELECT key FROM entries WHERE key >= ? ORDER BY key LIMIT 1", (entry_key(number + 1, 0),)
        ).fetchone():
            number = key_number(row[0])
            yield number


def _copy_child(
    folder: str, source: sqlite3.Connection, target: sqlite3.Connection, number: int, below: _Below
) -> tuple[int, bool]:
    """How many entries of subagent `number` were copied, and whether these are all."""
    rows, whole = _good(folder, source, number)
    session, parent = _opened(folder, rows[0]) if rows else ("", "")
    reach, parent_whole = below.reach.get(parent, (-1, False))
    if not session or reach < entry_seq(rows[0][0]) - 1:
        return 0, False
    turns = len(rows) if parent_whole else below.turns.get(session, 0)
    known = _known(folder, rows, turns, whole=whole)
    if not known:
        return 0, False
    for row in rows[:known]:
        insert_entry(target, row)
        _note(below, folder, row)
    _listed(source, target, number, session)
    below.reach[session] = (entry_seq(rows[known - 1][0]), whole and known == len(rows))
    return known, below.reach[session][1]


def _good(folder: str, source: sqlite3.Connection, number: int) -> tuple[list[Row], bool]:
    """The longest good beginning of session `number`, and whether that is all of it."""
    rows: list[Row] = []
    try:
        first = source.execute(
            "SELECT key FROM entries WHERE key > ? ORDER BY key LIMIT 1", (entry_key(number, 0),)
        ).fetchone()
        for row in sound_rows(source, folder, number, entry_seq(first[0])):
            rows.append(row)
    except Unsound:
        return rows, False
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return rows, False
    return rows, True


def _event(folder: str, row: Row) -> AnyEvent | None:
    """None for one that cannot be read: it is copied as it is."""
    try:
        return decode_event(stored_body(folder, row), row[2])
    except (SessionError, msgspec.DecodeError):
        return None


def _opened(folder: str, row: Row) -> tuple[str, str]:
    """(session, its parent) when the entry opens one."""
    event = _event(folder, row)
    if not isinstance(event, Opened):
        return "", ""
    return event.session, event.parent.session if event.parent else ""


def _known(folder: str, rows: list[Row], turns: int, *, whole: bool) -> int:
    """How many of `rows` there are up to the end of turn `turns`; 0 for a log that was cut before its first turn."""
    begun, idle = 0, True
    for at, row in enumerate(rows):
        match _event(folder, row):
            case UserSpoke() if idle:
                if begun == turns:
                    return at if begun else 0
                begun, idle = begun + 1, False
            case Reminded(kind="wake"):
                idle = False
            case TurnEnded():
                idle = True
            case _:
                pass
    return len(rows) if begun or (whole and turns) else 0


def _note(below: _Below, folder: str, row: Row) -> None:
    """Remember whom an entry starts."""
    if isinstance(row[4], str) or b'"type":"ChildStarted"' in row[4][:64]:
        event = _event(folder, row)
        if isinstance(event, ChildStarted):
            below.turns[event.child] = below.turns.get(event.child, 0) + 1


def _listed(source: sqlite3.Connection, target: sqlite3.Connection, number: int, session: str) -> None:
    """Copy a session's row and its inbox as far as they can be read; at least its id."""
    add = "INSERT OR REPLACE INTO sessions(number, session, created, cwd, title) VALUES(?, ?, ?, ?, ?)"
    if session:
        target.execute(add, (number, session, 0, "", ""))
    with contextlib.suppress(sqlite3.DatabaseError):
        query = "SELECT number, session, created, cwd, title FROM sessions WHERE number = ?"
        for row in source.execute(query, (number,)):
            target.execute(add, row)
    with contextlib.suppress(sqlite3.DatabaseError):
        for row in source.execute("SELECT * FROM inbox"):
            if (row[2] if len(row) > 2 else ROOT) == number:
                target.execute("INSERT OR REPLACE INTO inbox(id, body, number) VALUES(?, ?, ?)", (*row[:2], number))
