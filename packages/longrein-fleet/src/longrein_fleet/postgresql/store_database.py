"""Write one session to the store: its lease, and one transaction for many writes.

A lease has a token, which rises when another process takes the session over. Each transaction
checks it under the lock of the session's row, so a writer that has lost its lease writes nothing,
whatever it believes. `roots.writes` counts the transactions: after a lost connection it tells
whether the one without an answer is there.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from uuid import UUID

import psycopg

from longrein.store.blobs import BlobBatch, Blobs, blob_file
from longrein.store.database import (
    ROOT,
    LogHash,
    Row,
    Write,
    entry_key,
    entry_seq,
    key_number,
    row_checksum,
)
from longrein.store.log_database import LogDatabase
from longrein.store.session_folder import LOCK
from longrein.store.snapshot import SNAPSHOT
from longrein_context.events import (
    Parent,
    SessionBusy,
    SessionError,
    SessionTakenOver,
    SessionUnknown,
)
from longrein_fleet.postgresql.connection import (
    Connection,
    StoreLink,
    failure_of,
    is_lost,
)
from longrein_fleet.postgresql.schema import LEASE_LOST, prepare_schema

LEASE_S = 15.0
"""Time for which a lease holds without a commit or a renewal."""
RENEWALS = 3
"""Renewals in that time when nobody writes."""
PART_BYTES = 1024 * 1024
"""Size of the parts in which large blobs and snapshots are stored."""
LOCK_S = 30
"""Longest wait for a transaction of an earlier writer."""

TAKE = """
UPDATE roots SET token = token + 1, owner = %(owner)s, place = %(place)s,
    expires = clock_timestamp() + %(lease)s * interval '1 second'
WHERE root = %(root)s AND NOT deleted
    AND (expires < clock_timestamp() OR place = nullif(%(place)s, ''))
RETURNING token, writes
"""
CREATE = """
INSERT INTO roots(root, token, writes, owner, place, expires)
VALUES (%(root)s, 0, 0, '', '', '-infinity') ON CONFLICT DO NOTHING
"""
END_EARLIER = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND pid <> "
    "pg_backend_pid()"
)
PROGRESS = "SELECT token, writes FROM roots WHERE root = %s FOR UPDATE"
HOLD = "SELECT hold_lease(%s, %s, %s, %s, %s, %s, %s, %s)"
RENEW = (
    "UPDATE roots SET expires = clock_timestamp() + %s * interval '1 second' WHERE root = %s AND "
    "token = %s RETURNING EXISTS (SELECT FROM letters WHERE letters.root = roots.root)"
)
RELEASE = "UPDATE roots SET expires = '-infinity', place = '' WHERE root = %s AND token = %s"
INSERT_ENTRIES = "INSERT INTO entries VALUES(%s, %s, %s, %s, %s, %b)"
INSERT_BLOBS = "INSERT INTO blobs VALUES(%s, %b, %s, %b) ON CONFLICT DO NOTHING"
INSERT_MESSAGES = "INSERT INTO inbox VALUES(%s, %s, %b, %s)"
DELETE_MESSAGES = "DELETE FROM inbox WHERE root = %s AND id = %s"
DELETE_LETTERS = "DELETE FROM letters WHERE root = %s AND id = %s"
KEEP_ORIGINAL = "SELECT 1 FROM roots WHERE root = %s AND NOT deleted FOR SHARE"
REFER = "UPDATE roots SET original = %s, entries = %s WHERE root = %s"
MESSAGES_MAX = 256
"""Most messages that are taken in at once."""
REPLACE_SESSION = (
    "INSERT INTO sessions VALUES(%s, %s, %s, %s, %s, %s) ON CONFLICT (root, number) DO UPDATE SET "
    "session = excluded.session, created = excluded.created, cwd = excluded.cwd, "
    "title = excluded.title"
)

T = TypeVar("T")
Statement = tuple[str, Sequence[Sequence[object]]]
"""A statement, and its values: it is run once for each."""


class _Taken(Exception):
    """The session has another token than this writer's."""


class StoreDatabase(LogDatabase):
    """The rows of a session whose lease this process has. For the writer thread."""

    def __init__(self, address: str, folder: str, blobs: Blobs, *, create: bool) -> None:
        """Take the lease; `create`: also of a session that is not there yet. Raises `SessionBusy`,
        `SessionUnknown`, `SessionError`.
        """
        self.folder = folder
        self.session = os.path.basename(folder)
        self.blobs = blobs
        self.root_hash = LogHash()
        self.has_letters = True
        """True if other processes have left messages."""
        self.idle_s = LEASE_S / RENEWALS
        self._root = UUID(self.session)
        self._token = 0
        self._writes = 0
        """Number of the last transaction."""
        self._failure: SessionError | None = None
        """Error of every further write."""
        self.link = StoreLink(address)
        self.link.prepare = self._prepare  # type: ignore[method-assign]
        try:
            self._do(lambda connection: self._take(connection, create=create))
        except BaseException:
            self.link.close()
            raise

    # --- Lease ------------------------------------------------------------------------------------

    def _prepare(self, connection: Connection) -> None:
        """Prepare a new connection: end the lost one, which may still hold locks, and read how far
        the session is. Raises `_Taken`.
        """
        prepare_schema(connection)
        connection.execute(f"SET lock_timeout = '{LOCK_S}s'")
        if self._token:
            self._name(connection, self._token)
            row = connection.execute(PROGRESS, (self._root,)).fetchone()
            if row is None or row[0] != self._token:
                raise _Taken
            self._writes = row[1]

    def _name(self, connection: Connection, token: int) -> None:
        """Name the connection after the lease, and end others of the same name."""
        name = f"longrein {self.session} {token}"
        connection.execute("SELECT set_config('application_name', %s, false)", (name,))
        connection.execute(END_EARLIER, (name,))

    def _take(self, connection: Connection, *, create: bool) -> None:
        values = {
            "root": self._root,
            "owner": f"process {os.getpid()} on {os.uname().nodename}",
            "place": lock_place(self.folder),
            "lease": LEASE_S,
        }
        if create:
            connection.execute(CREATE, values)
        before = connection.execute(
            "SELECT token, owner, place = nullif(%(place)s, '') OR "
            "expires < clock_timestamp() FROM roots "
            "WHERE root = %(root)s AND NOT deleted",
            values,
        ).fetchone()
        if before is None:
            raise SessionUnknown(
                f"there is no session {self.session}; `longrein sessions` lists them"
            )
        if before[2]:  # its last transaction may be half sent, and hold the lock of the row
            connection.execute(END_EARLIER, (f"longrein {self.session} {before[0]}",))
        taken = connection.execute(TAKE, values).fetchone()
        if taken is None:
            raise SessionBusy(
                f"session {self.session} is open in {before[1]}; close that one, or go on in a "
                "copy with --fork-session"
            )
        self._token, self._writes = taken
        self._name(connection, self._token)

    def checkpoint(self, *, idle: bool) -> None:
        """Renew the lease. Without a connection the next write tries again."""
        if not idle or self._failure is not None:
            return
        values = (LEASE_S, self._root, self._token)
        with contextlib.suppress(psycopg.Error, SessionError):
            rows = self._run(lambda link: link.execute(RENEW, values).fetchall(), limit_s=0.0)
            if not rows:
                raise self._taken_over()
            self.has_letters = rows[0][0]

    def close(self) -> None:
        """Release the lease and close the connection."""
        if self._failure is None:
            values = (self._root, self._token)
            with contextlib.suppress(psycopg.Error, SessionError):  # it expires
                self._run(lambda link: link.execute(RELEASE, values), limit_s=0.0)
        self.link.close()

    def _run(self, work: Callable[[Connection], T], limit_s: float | None = None) -> T:
        """Do `work` with a connection while this process has the lease. Raises psycopg.Error,
        `SessionTakenOver`.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self.link.run(work, limit_s)
        except _Taken:
            raise self._taken_over() from None
        except psycopg.Error as error:
            if error.sqlstate == LEASE_LOST:
                raise self._taken_over() from None
            raise

    def _taken_over(self) -> SessionError:
        """Write nothing more; return the error that every later write gets."""
        with contextlib.closing(StoreLink(self.link.address)) as link:
            try:
                rows = link.fetch("SELECT owner FROM roots WHERE root = %s", (self._root,))
            except SessionError:
                rows = []
        who = rows[0][0] if rows else "another process"
        self._failure = SessionTakenOver(
            f"session {self.session} goes on in {who}, which has taken it over while this process "
            "was silent; nothing more is written here"
        )
        return self._failure

    # --- Writing ----------------------------------------------------------------------------------

    def last_key(self, number: int) -> int:
        query = "SELECT max(key) FROM entries WHERE root = %s AND key > %s AND key < %s"
        values = (self._root, entry_key(number, 0), entry_key(number + 1, 0))
        rows = self._do(lambda link: link.execute(query, values).fetchall())
        return rows[0][0] or 0

    def commit(self, writes: Sequence[Write]) -> None:
        """Commit all of `writes` and every pending blob in one transaction, or nothing.

        One round trip. Raises OSError, `SessionError`. When the connection is lost for so long
        that nothing is known of the transaction, later writes get the same error.
        """
        rows = [_stored_row(row) for write in writes for row in write.rows]
        batch = self.blobs.prepare_commit()
        number = self._writes + 1
        hold = (self._root, self._token, number, LEASE_S, *_listing(rows, writes))
        statements = self._statements(rows, batch, writes)
        self._do(lambda link: self._commit(link, hold, statements), is_write=True)
        self.blobs.mark_committed(batch)
        for row in rows:
            if key_number(row[0]) == ROOT:
                self.root_hash.add(row)

    def _commit(
        self, link: Connection, hold: Sequence[object], statements: Sequence[Statement]
    ) -> None:
        number = hold[2]
        if self._writes == number:
            return  # its answer was lost with the connection
        try:
            with link.pipeline():
                link.execute("BEGIN")
                held = link.execute(HOLD, hold)
                for query, values in statements:
                    link.cursor().executemany(query, values)
                link.execute("COMMIT")
            found = held.fetchone()
            self.has_letters = found is not None and found[0]
        except psycopg.Error as error:
            if error.sqlstate != LEASE_LOST:
                raise
            link.rollback()
            if link.execute(PROGRESS, (self._root,)).fetchone() != (self._token, number):
                raise
            # the lost connection has written it since then
        self._writes += 1

    def _do(self, work: Callable[[Connection], T], *, is_write: bool = False) -> T:
        """Do `work` as `_run` does. Raises `SessionError` alone."""
        try:
            return self._run(work)
        except psycopg.Error as error:
            failure = failure_of(error, self.link.address)
            if is_write and is_lost(error):
                self._failure = failure
            raise failure from None

    def _statements(
        self, rows: Sequence[Row], batch: BlobBatch, writes: Sequence[Write]
    ) -> list[Statement]:
        """Return what a transaction runs once it has the lease."""
        root = self._root
        found: list[Statement] = [
            (INSERT_BLOBS, [(root, bytes.fromhex(b), 0, body) for b, body in batch.bodies.items()]),
            (INSERT_ENTRIES, [(root, *row) for row in rows]),
        ]
        for blob in batch.files:
            path = blob_file(self.folder, blob)
            parts = enumerate(_parts_of(path))
            found.append(
                (INSERT_BLOBS, [(root, bytes.fromhex(blob), n, body) for n, body in parts])
            )
        for write in writes:
            found += [
                (REPLACE_SESSION, [(root, *map(_storable, about)) for about in write.about]),
                (INSERT_MESSAGES, [(root, *message) for message in write.put]),
                (DELETE_LETTERS, [(root, int(name)) for name in write.names]),
                (DELETE_MESSAGES, [(root, message) for message in write.take]),
            ]
        return [(query, values) for query, values in found if values]

    def keep_snapshot(self, seq: int) -> None:
        """Copy the snapshot of entry `seq` from the session's folder to the store. Raises OSError,
        `SessionError`.
        """
        parts = enumerate(_parts_of(os.path.join(self.folder, SNAPSHOT)))
        values = [(self._root, number, seq, body) for number, body in parts]

        def keep(link: Connection) -> None:
            with link.transaction():
                link.execute("DELETE FROM snapshots WHERE root = %s", (self._root,))
                link.cursor().executemany("INSERT INTO snapshots VALUES(%s, %s, %s, %b)", values)

        self._do(keep)

    def refer_to(self, original: Parent) -> None:
        """Let this fork begin with entries of `original`, whose deletion keeps them from now on.
        Raises `SessionUnknown`, `SessionError`.
        """

        def refer(link: Connection) -> bool:
            with link.transaction():
                found = link.execute(KEEP_ORIGINAL, (original.session,)).fetchall()
                link.execute(REFER, (original.session, original.seq, self._root))
            return bool(found)

        if not self._do(refer):
            raise SessionUnknown(f"there is no session {original.session} any more")

    def letters(self) -> list[tuple[int, bytes]]:
        """Return (id, body) of the messages that other processes have left, oldest first. Raises
        `SessionError`.
        """
        query = "SELECT id, body FROM letters WHERE root = %s ORDER BY id LIMIT %s"
        values = (self._root, MESSAGES_MAX)
        return self._do(lambda link: link.execute(query, values, binary=True).fetchall())


def _stored_row(row: Row) -> Row:
    key, at, version, _, body = row
    return key, at, version, row_checksum(key, at, version, body), body


def _listing(
    rows: Sequence[Row], writes: Sequence[Write]
) -> tuple[int | None, int | None, bool | None, int]:
    """Return what lists of sessions show: time and seq of the last entry of the root, and whether
    it is a one-shot run, None where they stay; and the last message id.
    """
    own = [row for row in rows if key_number(row[0]) == ROOT]
    kinds = [write.one_shot for write in writes if write.one_shot is not None]
    numbers = [message for write in writes for message, _, _ in write.put]
    at, seq = (own[-1][1], entry_seq(own[-1][0])) if own else (None, None)
    return at, seq, kinds[-1] if kinds else None, max(numbers, default=0)


def _storable(value: object) -> object:
    """Return `value`, a text without what PostgreSQL cannot store."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", " ").encode("utf-8", "replace").decode()


def _parts_of(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while part := file.read(PART_BYTES):
            yield part


def lock_place(folder: str) -> str:
    """Return a name of the lock file of the session in `folder` that no other file has, also on
    other machines, or ''. Who has locked it is the only process with that name.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        status = os.stat(os.path.join(folder, LOCK))
    except OSError:
        return ""
    return f"{boot}:{status.st_dev}:{status.st_ino}"
