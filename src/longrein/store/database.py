"""One SQLite database per root session: its tables, how it is opened, and one transaction for many writes.

Commits are made with `synchronous=NORMAL`, which never flushes the WAL, and `sync` flushes it afterwards: the same
order as `FULL`, but one flush can carry many commits. A new database is made without any flush; `make_durable` checkpoints
it once, so that the main file is whole on disk before anything counts (SQLite drops the WAL of an empty one).
"""

import os
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any
from urllib.parse import quote
from zlib import crc32

from longrein.events import SessionReadOnly
from longrein.store.blobs import INLINE_BYTES_MAX, BlobBatch, Blobs
from longrein.store.high_water_mark import HighWaterMark, MarkFile, read_mark
from longrein.store.session_folder import DATABASE, flush, flush_path, new_file

LAYOUT = 3
"""Version of the tables, in `user_version`."""
LAYOUTS_MAX = 1000
"""No longrein has as many: a higher number is damage."""

TABLES = f"""
BEGIN;
CREATE TABLE sessions(number INTEGER PRIMARY KEY, session TEXT NOT NULL, created INTEGER NOT NULL,
    cwd TEXT NOT NULL, title TEXT NOT NULL);
CREATE TABLE entries(key INTEGER PRIMARY KEY, at INTEGER NOT NULL, version INTEGER NOT NULL, crc INTEGER NOT NULL,
    body NOT NULL);
CREATE TABLE inbox(id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, number INTEGER NOT NULL DEFAULT 1);
CREATE TABLE collected(name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE blobs(hash BLOB PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE files(hash BLOB PRIMARY KEY) WITHOUT ROWID;
PRAGMA user_version={LAYOUT};
COMMIT;
"""
# entries.key is `entry_key(session number, seq)`: one integer key, so that an append touches only the last page.
# entries.body is the event as a blob or, above 64 kB, the text of the hash of the file that holds it.
# inbox.number is the session that the message is for; ids rise over all of them.
# collected remembers the files of the inbox folder that were taken in; files the blob files that a commit named.

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: ("ALTER TABLE inbox ADD COLUMN number INTEGER NOT NULL DEFAULT 1",),
    2: (),  # the checksum of an entry is of its whole row from here on; older rows keep theirs
}
"""Layout -> what makes it the next one."""

WAL_IDLE_BYTES = 4 * 1024 * 1024
"""The WAL is folded into the main file when longrein is idle and it is larger than this."""
WAL_MAX_BYTES = 64 * 1024 * 1024
"""And even when it is not idle."""
BUSY_S = 10.0
"""How long a write waits for a reader of a rollback-journal database, or for another process that recovers the WAL."""

Row = tuple[int, int, int, int, bytes | str]
"""(key, at, version, checksum, body)."""
About = tuple[int, str, int, str, str]
"""(number, session, created in microseconds UTC, cwd, title): a row of `sessions`."""

ROOT = 1
"""Number of the root session in its own database."""
_SEQ_BITS = 40
GAP = -2
_HASH_QUERY = (
    "SELECT count(*), max(key), sum(version), group_concat(at), "
    "group_concat(crc || CASE typeof(body) WHEN 'text' THEN body ELSE '' END) FROM entries WHERE key > ? AND key <= ?"
)
SEQ_MAX = (1 << _SEQ_BITS) - 1
"""No entry has a higher seq."""


def entry_key(number: int, seq: int) -> int:
    """Key of entry `seq` of session `number`."""
    return number << _SEQ_BITS | seq


def entry_seq(key: int) -> int:
    """The seq in a key."""
    return key & SEQ_MAX


def key_number(key: int) -> int:
    """The session's number in a key."""
    return key >> _SEQ_BITS


class LogHash:
    """Hash of the rows of the root's log so far: of their seqs, times, versions and checksums."""

    def __init__(self) -> None:
        self.seq = 0
        """The last entry it covers; `GAP` once a row was missing."""
        self._times, self._checks = blake2b(digest_size=16), blake2b(digest_size=16)
        self._versions = 0

    def add(self, row: Row) -> None:
        """Take in the next row as it is stored."""
        key, at, version, crc, body = row
        self.seq = self.seq + 1 if key == entry_key(ROOT, self.seq + 1) else GAP
        self._versions += version
        self._times.update(f"{at},".encode())
        self._checks.update(f"{crc}{body if isinstance(body, str) else ''},".encode())

    def take(self, connection: sqlite3.Connection, seq: int) -> None:
        """Take in the first `seq` rows at once; SQLite puts them together. Raises sqlite3.Error."""
        (found,) = connection.execute(_HASH_QUERY, (entry_key(ROOT, 0), entry_key(ROOT, seq)))
        size, last, self._versions, times, checks = found
        self.seq = size if last == entry_key(ROOT, size) else GAP
        self._times.update(f"{times},".encode())
        self._checks.update(f"{checks},".encode())

    def digest(self) -> bytes:
        """The hash of what it covers."""
        return b"%d %b%b" % (self._versions or 0, self._times.digest(), self._checks.digest())


_pack = struct.Struct("<qqq").pack


def row_checksum(key: int, at: int, version: int, body: bytes | str) -> int:
    """CRC-32 of a whole row of `entries`."""
    data = body.encode() if isinstance(body, str) else body
    return crc32(data, crc32(_pack(key, at, version)))


def is_sound_row(row: Sequence[Any]) -> bool:
    """Whether a row of `entries` is what was written. Rows of layouts 1 and 2 have a checksum of the body alone, and
    none where the body is a file."""
    key, at, version, checksum, body = row
    try:
        if type(body) is bytes:
            return bool(crc32(body, crc32(_pack(key, at, version))) == checksum or crc32(body) == checksum)
        return type(body) is str and checksum in (row_checksum(key, at, version, body), 0)
    except struct.error:  # a number that is none
        return False


def last_key(connection: sqlite3.Connection, number: int) -> int:
    """Key of the last entry of session `number`; 0 when there is none. Raises sqlite3.Error."""
    query = "SELECT key FROM entries WHERE key > ? AND key < ? ORDER BY key DESC LIMIT 1"
    row = connection.execute(query, (entry_key(number, 0), entry_key(number + 1, 0))).fetchone()
    return int(row[0]) if row else 0


class DatabaseMoved(Exception):
    """A file of an open database was removed, moved or replaced by another one; `str(error)` is its path."""


class Write:
    """What one call wants written: all of it or nothing."""

    __slots__ = ("about", "flush", "names", "put", "rows", "take")

    def __init__(self, *, flush: bool) -> None:
        self.flush = flush
        """On disk before it counts as done."""
        self.rows: list[Row] = []
        """Entries; those of one session with rising keys, without a gap."""
        self.put: Sequence[tuple[int, bytes, int]] = ()
        """Inbox messages: (id, body, number of the session)."""
        self.take: Sequence[int] = ()
        """Ids of inbox messages to delete."""
        self.names: Sequence[str] = ()
        """Files of the inbox folder that `put` comes from."""
        self.about: list[About] = []
        """Of those sessions where it changed."""


def is_main_file_lost(path: str) -> bool:
    """Whether the main file is empty or gone beside a WAL with content: SQLite would delete that WAL at the first
    look."""
    return _size(path) == 0 and _size(path + "-wal") > 0


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def read_only(path: str) -> sqlite3.Connection:
    """A connection that cannot write, for readers without the lock. Raises sqlite3.Error."""
    if is_main_file_lost(path):
        raise sqlite3.DatabaseError("database disk image is malformed: the main file is empty")
    address = "file:" + quote(os.fsencode(path))
    connection = sqlite3.connect(
        address + "?mode=ro", uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_S
    )
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.OperationalError:
        connection.close()
        # a folder we may not write to: SQLite cannot put its shared memory beside the file, so nobody is writing
        address += "?immutable=1"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    return connection


class Database:
    """The open database of a session whose lock we hold. Belongs to the writer thread."""

    def __init__(self, folder: str, blobs: Blobs, notes: list[str], *, network: bool) -> None:
        """Open or make it; lines for the user are added to `notes`. Raises sqlite3.Error, OSError,
        `SessionReadOnly`."""
        self.folder = folder
        self.path = os.path.join(folder, DATABASE)
        self.unflushed = False
        """Whether a commit is not on disk yet."""
        self.root_hash = LogHash()
        """Of all that is committed of the root's log; whoever opens a log that was there sets it."""
        self.mark = read_mark(folder) or HighWaterMark()
        """What was on disk at the last flush; brought up to date with each commit, and written after each flush."""
        self.is_moved = False
        """Whether its files were found gone or replaced."""
        self._mark_file = MarkFile(folder)
        self._identities: list[tuple[str, tuple[int, int]]] = []
        self._blobs = blobs
        self._wal = -1
        self._grown_bytes = 0
        self._is_durable = _size(self.path) > 4096  # one page: no checkpoint has ever flushed it
        if not os.path.exists(self.path):
            os.close(new_file(self.path))
        self._connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_S, cached_statements=64
        )
        try:
            self._prepare(notes, network)
        except BaseException:
            self._connection.close()
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """For reading in the writer thread."""
        return self._connection

    def _prepare(self, notes: list[str], network: bool) -> None:
        execute = self._connection.execute
        execute(f"PRAGMA synchronous={'NORMAL' if self._is_durable else 'OFF'}")
        mode = execute(f"PRAGMA journal_mode={'DELETE' if network else 'WAL'}").fetchone()[0]
        layout = execute("PRAGMA user_version").fetchone()[0]
        if not 0 <= layout < LAYOUTS_MAX:
            raise sqlite3.DatabaseError("malformed header")
        if layout > LAYOUT:
            raise SessionReadOnly(
                f"this session was written by a newer longrein (layout {layout}, this one knows {LAYOUT}); upgrade it"
            )
        if layout == 0:
            self._connection.executescript(TABLES)
        elif layout < LAYOUT:
            self._migrate(layout)
        if mode == "wal":
            execute("PRAGMA wal_autocheckpoint=0")
            execute(f"PRAGMA journal_size_limit={WAL_MAX_BYTES}")
            execute("PRAGMA synchronous=NORMAL")
            self._wal = os.open(self.path + "-wal", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._grown_bytes = os.fstat(self._wal).st_size
            self._identities = [(path, _file_identity(path)) for path in (self.path, self.path + "-wal")]
        else:
            execute("PRAGMA synchronous=FULL")
            notes.append(f"{self.folder} is on a network file system: the log is written in a slower, safe mode")

    def _migrate(self, layout: int) -> None:
        """Bring the tables of an older longrein to the present layout, in one transaction."""
        steps = [statement for step in range(layout, LAYOUT) for statement in MIGRATIONS[step]]
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in (*steps, f"PRAGMA user_version={LAYOUT}", "COMMIT"):
                self._connection.execute(statement)
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def commit(self, writes: Sequence[Write]) -> None:
        """All of `writes` and every pending blob in one transaction, or nothing. Raises sqlite3.Error, OSError.

        It is not on disk before `sync`.
        """
        rows = [self._stored_row(row) for write in writes for row in write.rows]
        batch = self._blobs.prepare_commit()
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            self._insert_blobs(batch)
            for row in rows:
                execute("INSERT INTO entries VALUES(?, ?, ?, ?, ?)", row)
            for write in writes:
                self._insert_rest(write)
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise
        self._blobs.mark_committed(batch)
        for row in rows:
            if key_number(row[0]) == ROOT:
                self.root_hash.add(row)
        self.unflushed = True
        self._update_mark(writes)
        self._grown_bytes += sum(len(row[4]) for row in rows) + sum(map(len, batch.bodies.values())) + 8192

    def _insert_blobs(self, batch: BlobBatch) -> None:
        many = self._connection.executemany
        if batch.bodies:
            rows = [(bytes.fromhex(name), body) for name, body in batch.bodies.items()]
            many("INSERT OR IGNORE INTO blobs(hash, body) VALUES(?, ?)", rows)
        if batch.files:
            many("INSERT OR IGNORE INTO files(hash) VALUES(?)", [(bytes.fromhex(name),) for name in batch.files])

    def _insert_rest(self, write: Write) -> None:
        many = self._connection.executemany
        if write.about:
            query = "INSERT OR REPLACE INTO sessions(number, session, created, cwd, title) VALUES(?, ?, ?, ?, ?)"
            many(query, write.about)
        if write.put:
            many("INSERT INTO inbox(id, body, number) VALUES(?, ?, ?)", write.put)
        if write.names:
            many("INSERT INTO collected(name) VALUES(?)", [(name,) for name in write.names])
        if write.take:
            many("DELETE FROM inbox WHERE id = ?", [(message,) for message in write.take])

    def _stored_row(self, row: Row) -> Row:
        """`row`, its body moved to a file when it is too large for the database."""
        key, at, version, _, body = row
        if len(body) > INLINE_BYTES_MAX and not isinstance(body, str):
            body = self._blobs.put(body)
        return key, at, version, row_checksum(key, at, version, body), body

    def _update_mark(self, writes: Sequence[Write]) -> None:
        """Have the mark say what was committed. A session that goes on is no longer one that was cut."""
        mark = self.mark
        for write in writes:
            for row in write.rows:
                number = key_number(row[0])
                mark.entries[number] = entry_seq(row[0])
                mark.cut.discard(number)
                if number == ROOT:
                    mark.updated = row[1]
            for number, _, created, cwd, title in write.about:
                if number == ROOT:
                    mark.created, mark.cwd, mark.title = created, cwd, title
            for message, _, _ in write.put:
                mark.message = max(mark.message, message)

    def record_losses(self, ends: Mapping[int, int]) -> None:
        """Have the mark say that these sessions (number -> last seq) have lost what came after."""
        for number, seq in ends.items():
            self.mark.entries[number] = seq
            if seq:
                self.mark.cut.add(number)
        self._mark_file.write(self.mark, durable=True)

    def check_files(self) -> None:
        """Raises `DatabaseMoved` when the database is not at its path any more: what is written now would be lost."""
        for path, identity in self._identities:
            try:
                self.is_moved = _file_identity(path) != identity
            except (FileNotFoundError, NotADirectoryError):
                self.is_moved = True
            if self.is_moved:
                raise DatabaseMoved(path)

    def sync(self) -> None:
        """Bring every commit to disk; after `make_durable`. Raises OSError; then nothing later may count as on disk."""
        if self._wal >= 0 and self.unflushed:
            flush(self._wal)
        if self.unflushed:
            self._mark_file.write(self.mark)
        self.unflushed = False

    def make_durable(self) -> None:
        """Before the first flush of a new session: bring its main file and every folder above to disk.

        Raises sqlite3.Error, OSError; it may be tried again.
        """
        if self._is_durable:
            return
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        sessions = os.path.dirname(self.folder)
        for path in (self.folder, sessions, os.path.dirname(sessions)):
            flush_path(path)
        self._is_durable = True

    @property
    def has_idle_work(self) -> bool:
        """Whether there is something to do when nobody writes: a flush, or a WAL to fold in."""
        return self.unflushed or self._grown_bytes >= WAL_IDLE_BYTES

    def checkpoint(self, *, idle: bool) -> None:
        """Fold the WAL into the main file when it has grown. A failure is no loss: the WAL stays."""
        if self._wal < 0 or self._grown_bytes < (WAL_IDLE_BYTES if idle else WAL_MAX_BYTES):
            return
        self._grown_bytes = 0
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.OperationalError:
            return

    def last_key(self, number: int) -> int:
        """See the function `last_key`."""
        return last_key(self._connection, number)

    def has_pending(self) -> bool:
        """Whether a blob waits for a commit."""
        return self._blobs.has_pending()

    def close(self) -> None:
        """Close; SQLite folds the WAL into the main file if nobody else reads it."""
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1
        if self.mark.updated and not self.unflushed and not self.is_moved:
            self.mark.size_bytes = _size(self.path)
            self._mark_file.write(self.mark)  # once more, so that it is not much older than the database will be
        self._mark_file.close()
        self._connection.close()


def _file_identity(path: str) -> tuple[int, int]:
    """(device, inode) of a file. Raises OSError."""
    status = os.stat(path)
    return status.st_dev, status.st_ino
