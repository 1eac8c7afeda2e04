"""The store of sessions in a PostgreSQL database: `session_store.SessionStore`."""

from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import UUID

import psycopg

from longrein.store.blobs import Blobs
from longrein.store.repair import LogSummary
from longrein.store.session_folder import is_held, session_folder
from longrein.store.session_store import SessionStore
from longrein.store.store_port import SessionInfo
from longrein_context.events import Opened, SessionBusy, SessionError, SessionUnknown
from longrein_fleet.postgresql.connection import (
    Connection,
    Rows,
    StoreLink,
    failure_of,
    shown_address,
)
from longrein_fleet.postgresql.store_connection import StoreConnection
from longrein_fleet.postgresql.store_database import StoreDatabase, lock_place
from longrein_fleet.postgresql.store_log import StoreLog, create_fork, open_database

INFO_QUERY = """
SELECT r.root::text, s.created, r.updated, s.cwd, s.title, r.entries,
    r.expires > clock_timestamp(), r.one_shot
FROM roots r JOIN sessions s ON s.root = r.root AND s.number = 1
WHERE r.entries > 0 AND NOT r.deleted
"""
OF_SESSION = ("sessions", "entries", "inbox", "letters", "blobs", "snapshots")
REMOVE_DELETED = (
    "WITH gone AS (DELETE FROM roots r WHERE deleted AND NOT EXISTS (SELECT FROM roots f WHERE "
    "f.original = r.root) RETURNING root), "
    + ", ".join(
        f"of_{name} AS (DELETE FROM {name} USING gone WHERE {name}.root = gone.root)"
        for name in OF_SESSION
    )
    + " SELECT count(*) FROM gone"
)
"""Query that removes the deleted sessions that no fork refers to, and counts them."""
SHARED_S = 0.1
"""Time for which a lost connection is tried again for a shared value."""
SHARED_QUERY = "SELECT body FROM shared WHERE name = %s"
REMOVE_SHARED = "DELETE FROM shared WHERE name = %s RETURNING 1"
REPLACE_SHARED = """
INSERT INTO shared VALUES(%(name)s, %(new)s) ON CONFLICT (name) DO UPDATE SET body = %(new)s
WHERE shared.body = %(old)s RETURNING 1
"""
"""Query that replaces a value, unless it is no longer the old one: no lock outlives a process."""


class PostgresqlStore(SessionStore):
    """The sessions in the database at `address`, which may hold a password."""

    log_class = StoreLog

    def __init__(self, address: str) -> None:
        self.name = shown_address(address)
        self._address = address
        self._shared = StoreLink(address)

    def has_session(self, session: str) -> bool:
        return bool(self._fetch("SELECT 1 FROM roots WHERE root = %s AND NOT deleted", session))

    def is_open(self, session: str, folder: str) -> bool:
        if is_held(folder):
            return True
        query = (
            "SELECT 1 FROM roots WHERE root = %s AND expires > clock_timestamp() AND place IS "
            "DISTINCT FROM nullif(%s, '')"
        )
        return bool(self._fetch(query, session, lock_place(folder)))

    def infos(self, state_dir: str, session: str = "") -> Iterator[SessionInfo]:
        query = INFO_QUERY + ("AND r.root = %s" if session else "ORDER BY r.updated DESC")
        values = (session,) if session else ()
        for row in self._fetch(query, *values):
            root, created, updated, cwd, title, entries, is_held_now, one_shot = row
            folder = session_folder(state_dir, root)
            about = (created, updated, cwd, title, entries, is_held_now)
            yield SessionInfo(root, folder, *about, one_shot=one_shot)

    def ids_from(self, start: str) -> list[str]:
        digits = start.replace("-", "")
        bounds = (UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f")))
        query = (
            "SELECT root::text FROM roots WHERE root BETWEEN %s AND %s AND NOT deleted ORDER BY "
            "root LIMIT 5"
        )
        return [row[0] for row in self._fetch(query, *bounds)]

    def leave_message(self, session: str, body: bytes, most: int) -> None:
        query = (
            "INSERT INTO letters(root, body) SELECT %s, %b WHERE (SELECT count(*) FROM letters "
            "WHERE root = %s) < %s RETURNING id"
        )
        if not self._fetch(query, UUID(session), body, UUID(session), most):
            raise SessionError(
                f"{most} messages wait for session {session} already; open it to take them in"
            )

    def remove_session(self, session: str, folder: str, *, with_letters: bool = True) -> None:
        mark = (
            "UPDATE roots r SET deleted = true WHERE root = %s AND NOT deleted AND (place = "
            "nullif(%s, '') OR expires < clock_timestamp()) AND (%s OR NOT EXISTS (SELECT FROM "
            "letters l WHERE l.root = r.root)) RETURNING 1"
        )
        if not self._fetch(mark, session, lock_place(folder), with_letters):
            if self.has_session(session):
                raise SessionBusy(f"session {session} is open in another process; close that one")
            raise SessionUnknown(f"there is no session {session}; `longrein sessions` lists them")
        while self._fetch(REMOVE_DELETED)[0][0]:  # then its own original may be needed no longer
            pass

    def create_fork(self, folder: str, opened: Opened, at: int, title: str) -> None:
        create_fork(self._address, folder, opened, at, title)

    def change_shared(self, name: str, change: Callable[[bytes], bytes]) -> None:
        def work(link: Connection) -> None:
            is_replaced = False
            while not is_replaced:
                rows = link.execute(SHARED_QUERY, (name,), binary=True).fetchall()
                old = rows[0][0] if rows else b""
                values = {"name": name, "old": old, "new": change(old)}
                is_replaced = bool(link.execute(REPLACE_SHARED, values).fetchall())

        try:
            self._shared.run(work, SHARED_S)
        except psycopg.Error as error:
            raise failure_of(error, self._address) from None

    def remove_shared(self, name: str) -> None:
        self._fetch(REMOVE_SHARED, name)

    def read_connection(self, folder: str) -> StoreConnection:
        return StoreConnection(folder, self._address)

    def open_database(
        self, folder: str, blobs: Blobs, *, create: bool
    ) -> tuple[StoreDatabase, LogSummary]:
        return open_database(self._address, folder, blobs, create=create)

    def _fetch(self, query: str, *values: object) -> Rows:
        with closing(StoreLink(self._address)) as link:
            return link.fetch(query, values)
