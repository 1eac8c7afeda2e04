"""Copying the sessions of a damaged database: of each the longest good beginning, and never half of a joint write.

A subagent and the entry of its parent that started it were written together, so a subagent is kept only with that
entry and only when its own first turn has begun; of one that was asked again, no turn is kept that its parent does not
know of. What is left out lies in the database that was set aside.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping

import msgspec

from longrein.events import AnyEvent, ChildStarted, Opened, Reminded, SessionError, TurnEnded, UserSpoke, decode_event
from longrein.store.copying import Unsound, insert_entry, sound_rows
from longrein.store.database import ROOT, Row, entry_key, entry_seq, key_number
from longrein.store.faults import is_damage
from longrein.store.folder import DATABASE, set_aside
from longrein.store.page_scan import PageScan
from longrein.store.reading import stored_body
from longrein.store.strand import WORDLESS, title_of


class Kept:
    """What was copied."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        """Number of a session -> its last entry."""
        self.cut: set[int] = set()
        """Numbers of those of which not all was kept."""
        self.dropped = 0
        """Subagents that were left out."""
        self.later = 0
        """Entries of the root behind the first that is missing, as far as they could be read."""

    @property
    def entries(self) -> int:
        """Of the root."""
        return self.ends.get(ROOT, 0)

    def note(self, number: int, last: int, *, whole: bool) -> None:
        """Session `number` was copied up to entry `last`."""
        self.ends[number] = last
        if not whole:
            self.cut.add(number)


class _Below:
    """What the copied logs say of each other."""

    def __init__(self) -> None:
        self.turns: dict[str, int] = {}
        """Session -> how often it was started or asked again."""
        self.reach: dict[str, tuple[int, bool]] = {}
        """Session -> (its last entry that was copied, whether that was all)."""


def start_of(folder: str) -> str:
    """The folder in which a session was started whose database cannot be opened; '' when that cannot be read."""
    paths = [os.path.join(folder, DATABASE), *reversed(set_aside(folder))]
    for path in paths:
        with contextlib.closing(PageScan(path)) as pages:
            for row in pages.entries():
                if row[0] == entry_key(ROOT, 1) and isinstance(event := _event(folder, row), Opened):
                    return event.cwd
    return ""


def last_number(connection: sqlite3.Connection) -> int:
    """The highest number of a session in the database, whatever of it is there."""
    found = ROOT
    for query in ("SELECT max(number) FROM sessions", "SELECT max(number) FROM inbox"):
        found = max(found, connection.execute(query).fetchone()[0] or 0)
    return max(found, key_number(connection.execute("SELECT max(key) FROM entries").fetchone()[0] or 0))


def copy_sessions(
    folder: str, source: sqlite3.Connection, target: sqlite3.Connection, known: Mapping[int, int]
) -> Kept:
    """Copy every session and its inbox. `known`: number of a session -> the last entry that it had at least; one that
    is not there may have lost some. Raises sqlite3.Error."""
    kept, below = Kept(), _Below()
    rows = sound_rows(source, folder)
    about, whole, last = ("", 0, "", ""), True, 0
    try:
        for row in rows:
            insert_entry(target, row)
            last = entry_seq(row[0])
            about = _about(folder, row, about)
            _note(below, folder, row)
    except Unsound:
        whole = False
    if not last:
        return kept
    kept.note(ROOT, last, whole=whole and 0 < known.get(ROOT, 0) <= last)
    _listed(source, target, ROOT, about)
    below.reach[about[0]] = (last, ROOT not in kept.cut)
    for number in _numbers(source):
        _copy_child(folder, source, target, number, below, kept, known.get(number, 0))
        kept.dropped += number not in kept.ends
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
    folder: str,
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    number: int,
    below: _Below,
    kept: Kept,
    known: int,
) -> None:
    """Copy subagent `number`, which had at least `known` entries (0: nobody knows), as far as it can be kept."""
    rows, whole = _good(folder, source, number)
    session, parent = _opened(folder, rows[0]) if rows else ("", "")
    reach, parent_whole = below.reach.get(parent, (-1, False))
    if not session or reach < entry_seq(rows[0][0]) - 1:
        return
    turns = len(rows) if parent_whole else below.turns.get(session, 0)
    whole = whole and 0 < known <= entry_seq(rows[-1][0])
    size = _known(folder, rows, turns, whole=whole)
    if not size:
        return
    about = ("", 0, "", "")
    for row in rows[:size]:
        insert_entry(target, row)
        about = _about(folder, row, about)
        _note(below, folder, row)
    _listed(source, target, number, about)
    kept.note(number, entry_seq(rows[size - 1][0]), whole=whole and size == len(rows))
    below.reach[session] = (kept.ends[number], number not in kept.cut)


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


def _about(folder: str, row: Row, about: tuple[str, int, str, str]) -> tuple[str, int, str, str]:
    """(session, created, cwd, title) as far as the entries up to `row` say it; `about` is what those before it said."""
    session, created, cwd, title = about
    if session and title not in ("", WORDLESS):
        return about
    match _event(folder, row):
        case Opened() as event:
            return event.session, row[1], event.cwd, title
        case UserSpoke() as event:
            return session, created, cwd, title_of(event)
    return about


def _listed(
    source: sqlite3.Connection, target: sqlite3.Connection, number: int, about: tuple[str, int, str, str]
) -> None:
    """Write a session's row and copy its inbox as far as that was found."""
    add = "INSERT OR REPLACE INTO sessions(number, session, created, cwd, title) VALUES(?, ?, ?, ?, ?)"
    target.execute(add, (number, *about))
    query = "SELECT id, body, number FROM inbox WHERE number = ?"
    target.executemany(
        "INSERT OR REPLACE INTO inbox(id, body, number) VALUES(?, ?, ?)", source.execute(query, (number,))
    )
