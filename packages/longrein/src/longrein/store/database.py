"""The SQLite database of one root session: tables, opening, and one transaction for many writes.

Commits use `synchronous=NORMAL`, which never flushes the WAL; `sync` flushes it afterwards. The
order is that of `FULL`, but one flush covers many commits. A new database is made without a flush.
`make_durable` checkpoints it once, so that the main file is complete on disk before any write
counts: SQLite drops the WAL of an empty main file.
"""

import contextlib
import os
import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from hashlib import blake2b
from typing import Any
from urllib.parse import quote
from zlib import crc32

import msgspec

from longrein.atomic_file import flush, flush_path
from longrein.store.blobs import INLINE_BYTES_MAX, BlobBatch, Blobs
from longrein.store.session_folder import (
    DATABASE,
    HighWaterMark,
    new_file,
    read_mark,
    unlink,
    write_mark,
)
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Entry,
    HookAnswered,
    Opened,
    SessionReadOnly,
    TitleSet,
    TurnEnded,
    UserSpoke,
    encode_event,
    text_of,
)
from longrein_context.events.escape import one_line, shortened

LAYOUT = 4
LAYOUTS_MAX = 1000
"""A higher `user_version` is damage, not a newer longrein."""

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
"""  # noqa: E501
# entries.key is `entry_key(session number, seq)`: one integer key, so that an append touches only
# the last page. entries.body is the event as a blob or, above 64 kB, the hash of its file as text.
# inbox.number is the session that receives the message; ids rise over all sessions. collected holds
# the names of inbox files that were taken in; files holds the hashes of committed blob files.

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: ("ALTER TABLE inbox ADD COLUMN number INTEGER NOT NULL DEFAULT 1",),
    2: (),  # new rows have a checksum of the whole row; older rows keep theirs
    3: (),  # a fork refers to entries of its original, which an older longrein would miss
}
"""Layout -> statements that lift it to the next layout."""

WAL_IDLE_BYTES = 4 * 1024 * 1024
"""A larger WAL is checkpointed while longrein is idle."""
WAL_MAX_BYTES = 64 * 1024 * 1024
"""A larger WAL is checkpointed even while longrein is busy."""
BUSY_S = 10.0
"""Time that a write waits for a reader of a rollback-journal database, or for a process that
recovers the WAL.
"""

Row = tuple[int, int, int, int, bytes | str]
"""(key, at, version, checksum, body)."""
ROW_COLUMNS = "key, at, version, crc, body"
SELECT_ROWS = f"SELECT {ROW_COLUMNS} FROM entries"
INSERT_ENTRY = "INSERT INTO entries VALUES(?, ?, ?, ?, ?)"
REPLACE_SESSION = (
    "INSERT OR REPLACE INTO sessions(number, session, created, cwd, title) VALUES(?, ?, ?, ?, ?)"
)

ROOT = 1
"""Number of the root session in its own database."""
_SEQ_BITS = 40
GAP = -2
HASH_QUERY = (
    "SELECT count(*), max(key), sum(version), group_concat(at + crc), "
    "group_concat(CASE typeof(body) WHEN 'text' THEN body END) FROM entries WHERE "
    "key > ? AND key <= ?"
)
"""What `LogHash.take` needs of the rows between two keys."""
SEQ_MAX = (1 << _SEQ_BITS) - 1


def entry_key(number: int, seq: int) -> int:
    """Return the key of entry `seq` of session `number`."""
    return number << _SEQ_BITS | seq


def entry_seq(key: int) -> int:
    """Return the seq in a key."""
    return key & SEQ_MAX


def key_number(key: int) -> int:
    """Return the session number in a key."""
    return key >> _SEQ_BITS


class LogHash:
    """Running hash of the root's rows: their seqs, versions, the sum of time and checksum of each,
    and the names of bodies in files.
    """

    def __init__(self) -> None:
        self.seq = 0
        """Last entry covered; `GAP` once a row was missing."""
        self._sums, self._files = blake2b(digest_size=16), blake2b(digest_size=16)
        self._versions = 0

    def add(self, row: Row) -> None:
        """Add the next row as stored."""
        key, at, version, crc, body = row
        self.seq = self.seq + 1 if key == entry_key(ROOT, self.seq + 1) else GAP
        self._versions += version
        self._sums.update(f"{at + crc},".encode())
        if isinstance(body, str):
            self._files.update(f"{body},".encode())

    def take(self, found: Sequence[Any]) -> None:
        """Add the next rows at once: the answer to `HASH_QUERY`."""
        size, last, versions, sums, files = found
        self.seq = self.seq + size if last == entry_key(ROOT, self.seq + size) else GAP
        self._versions += versions or 0
        self._sums.update(f"{sums},".encode())
        if files is not None:
            self._files.update(f"{files},".encode())

    def digest(self) -> bytes:
        """Return the hash of the rows so far."""
        return b"%d %b%b" % (self._versions, self._sums.digest(), self._files.digest())


_pack = struct.Struct("<qqq").pack


def row_checksum(key: int, at: int, version: int, body: bytes | str) -> int:
    """Return the CRC-32 of a whole row of `entries`."""
    data = body.encode() if isinstance(body, str) else body
    return crc32(data, crc32(_pack(key, at, version)))


def is_sound_row(row: Sequence[Any]) -> bool:
    """Return True if a row of `entries` matches its checksum.

    In layouts 1 and 2 the checksum covers the body alone, and is 0 for a body in a file.
    """
    key, at, version, checksum, body = row
    try:
        if type(body) is bytes:
            return bool(
                crc32(body, crc32(_pack(key, at, version))) == checksum or crc32(body) == checksum
            )
        return type(body) is str and checksum in (row_checksum(key, at, version, body), 0)
    except struct.error:  # a damaged number that does not fit
        return False


def last_key(connection: sqlite3.Connection, number: int) -> int:
    """Return the key of the last entry of session `number`; 0 when there is none. Raises
    sqlite3.Error.
    """
    query = "SELECT key FROM entries WHERE key > ? AND key < ? ORDER BY key DESC LIMIT 1"
    row = connection.execute(query, (entry_key(number, 0), entry_key(number + 1, 0))).fetchone()
    return int(row[0]) if row else 0


def new_database(path: str) -> sqlite3.Connection:
    """Create an empty database at `path`, in an open transaction, without flushes. Replaces an
    unfinished copy.
    """
    unlink(path)
    os.close(new_file(path))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.executescript(TABLES)
    connection.execute("BEGIN")
    return connection


def copy_tables(
    source: sqlite3.Connection, target: sqlite3.Connection, tables: Sequence[str]
) -> None:
    """Copy `tables` as far as they can be read; the source may have an older layout. Raises
    errors of the target.
    """

    def until_damage(rows: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        with contextlib.suppress(sqlite3.DatabaseError):
            yield from rows

    for table in tables:
        try:
            rows = source.execute(f"SELECT * FROM {table}")
        except sqlite3.DatabaseError:
            continue
        names = ", ".join(column[0] for column in rows.description)
        marks = ", ".join("?" * len(rows.description))
        target.executemany(
            f"INSERT OR REPLACE INTO {table}({names}) VALUES({marks})", until_damage(rows)
        )


class DatabaseMoved(Exception):
    """A file of the open database was removed, moved or replaced; `str(error)` is its path."""


class Write(msgspec.Struct):
    """Everything that one call writes, all or nothing."""

    flush: bool
    """True if the write must be on disk to count as done."""
    rows: list[Row] = []
    """Entries; those of one session with rising keys without a gap."""
    put: Sequence[tuple[int, bytes, int]] = ()
    """Inbox messages to add: (id, body, session number)."""
    take: Sequence[int] = ()
    """Ids of inbox messages to delete."""
    names: Sequence[str] = ()
    """Inbox files that the messages in `put` were read from."""
    about: list[tuple[int, str, int, str, str]] = []
    """Rows of `sessions` that changed: (number, session, created in microseconds UTC, cwd,
    title).
    """
    one_shot: bool | None = None
    """Whether the root session is a one-shot run; None when the entries do not say."""
    withdraws: bool = False
    """True if a message of `take` became no entry, so that no copy of it may stay on the disk."""


def is_main_file_lost(path: str) -> bool:
    """Return True if the main file is empty or missing beside a WAL with content, which SQLite
    would delete at once.
    """
    return file_size(path) == 0 and file_size(path + "-wal") > 0


def file_size(path: str) -> int:
    """Return the size of a file in bytes; 0 when it is missing."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def read_only(path: str) -> sqlite3.Connection:
    """Open a read-only connection, for readers without the lock. Raises sqlite3.Error."""
    if is_main_file_lost(path):
        raise sqlite3.DatabaseError("database disk image is malformed: the main file is empty")
    address = "file:" + quote(os.fsencode(path))
    connection = sqlite3.connect(
        address + "?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_S,
    )
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.OperationalError:
        connection.close()
        # in a read-only folder SQLite cannot create its shared memory; nobody writes there
        address += "?immutable=1"
        connection = sqlite3.connect(
            address, uri=True, isolation_level=None, check_same_thread=False
        )
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction, rolled back on error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class Database:
    """The open database of a session that this process has locked. For the writer thread."""

    idle_s: float | None = None

    def __init__(self, folder: str, blobs: Blobs, notes: list[str], *, network: bool) -> None:
        """Open or create the database; add lines for the user to `notes`.

        Raises sqlite3.Error, OSError, `SessionReadOnly`.
        """
        self.folder = folder
        self.path = os.path.join(folder, DATABASE)
        self.unflushed = False
        self.root_hash = LogHash()
        """Hash of the root's committed rows; the opener of an existing log sets it."""
        self.mark = read_mark(folder) or HighWaterMark()
        """High-water mark: brought up to date by each commit, written after each flush."""
        self.is_moved = False
        """True once its files were found missing or replaced."""
        self._identities: list[tuple[str, tuple[int, int]]] = []
        self.blobs = blobs
        self._wal = -1
        self._grown_bytes = 0
        self._is_new = file_size(self.path) <= 4096  # a single page was never checkpointed
        self._is_durable = False
        if not os.path.exists(self.path):
            os.close(new_file(self.path))
        self.connection = sqlite3.connect(
            self.path,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_S,
            cached_statements=64,
        )
        try:
            self._prepare(notes, network)
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self, notes: list[str], network: bool) -> None:
        execute = self.connection.execute
        execute(f"PRAGMA synchronous={'OFF' if self._is_new else 'NORMAL'}")
        execute("PRAGMA secure_delete=ON")
        mode = execute(f"PRAGMA journal_mode={'DELETE' if network else 'WAL'}").fetchone()[0]
        layout = execute("PRAGMA user_version").fetchone()[0]
        if not 0 <= layout < LAYOUTS_MAX:
            raise sqlite3.DatabaseError("malformed header")
        if layout > LAYOUT:
            raise SessionReadOnly(
                f"this session was written by a newer longrein (layout {layout}, this one knows "
                f"{LAYOUT}); upgrade it"
            )
        if layout == 0:
            self.connection.executescript(TABLES)
        elif layout < LAYOUT:
            self._migrate(layout)
        if mode == "wal":
            execute("PRAGMA wal_autocheckpoint=0")
            execute(f"PRAGMA journal_size_limit={WAL_MAX_BYTES}")
            execute("PRAGMA synchronous=NORMAL")
            self._wal = os.open(self.path + "-wal", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._grown_bytes = os.fstat(self._wal).st_size
            self._identities = [
                (path, _file_identity(path)) for path in (self.path, self.path + "-wal")
            ]
        else:
            execute("PRAGMA synchronous=FULL")
            notes.append(
                f"{self.folder} is on a network file system: the log is written in a slower, safe "
                "mode"
            )

    def _migrate(self, layout: int) -> None:
        """Migrate the tables of an older longrein to the present layout, in one transaction."""
        steps = [statement for step in range(layout, LAYOUT) for statement in MIGRATIONS[step]]
        with transaction(self.connection):
            for statement in (*steps, f"PRAGMA user_version={LAYOUT}"):
                self.connection.execute(statement)

    def last_key(self, number: int) -> int:
        """Return the key of the last entry of session `number`; 0 when there is none. Raises
        sqlite3.Error.
        """
        return last_key(self.connection, number)

    def commit(self, writes: Sequence[Write]) -> None:
        """Commit all of `writes` and every pending blob in one transaction, or nothing.

        `sync` brings it to disk. Raises sqlite3.Error, OSError.
        """
        rows = [self._stored_row(row) for write in writes for row in write.rows]
        batch = self.blobs.prepare_commit()
        with transaction(self.connection):
            self._insert(batch, rows, writes)
        self.blobs.mark_committed(batch)
        for row in rows:
            if key_number(row[0]) == ROOT:
                self.root_hash.add(row)
        self.unflushed = True
        self._update_mark(writes)
        self._grown_bytes += (
            sum(len(row[4]) for row in rows) + sum(map(len, batch.bodies.values())) + 8192
        )

    def _insert(self, batch: BlobBatch, rows: Sequence[Row], writes: Sequence[Write]) -> None:
        many = self.connection.executemany
        bodies = [(bytes.fromhex(name), body) for name, body in batch.bodies.items()]
        many("INSERT OR IGNORE INTO blobs(hash, body) VALUES(?, ?)", bodies)
        many(
            "INSERT OR IGNORE INTO files(hash) VALUES(?)",
            [(bytes.fromhex(name),) for name in batch.files],
        )
        many(INSERT_ENTRY, rows)
        for write in writes:
            many(REPLACE_SESSION, write.about)
            many("INSERT INTO inbox(id, body, number) VALUES(?, ?, ?)", write.put)
            many("INSERT INTO collected(name) VALUES(?)", [(name,) for name in write.names])
            many("DELETE FROM inbox WHERE id = ?", [(message,) for message in write.take])

    def _stored_row(self, row: Row) -> Row:
        """Return `row` with its checksum; a body too large for the database is moved to a blob
        file.
        """
        key, at, version, _, body = row
        if len(body) > INLINE_BYTES_MAX and not isinstance(body, str):
            body = self.blobs.put(body)
        return key, at, version, row_checksum(key, at, version, body), body

    def _update_mark(self, writes: Sequence[Write]) -> None:
        """Record the committed writes in the high-water mark. A session that is written again is
        no longer cut.
        """
        mark = self.mark
        for write in writes:
            for key, at, *_ in write.rows:
                number = key_number(key)
                mark.entries[number] = entry_seq(key)
                mark.cut.discard(number)
                if number == ROOT:
                    mark.updated = at
            for number, _, created, cwd, title in write.about:
                if number == ROOT:
                    mark.created = created
                    mark.cwd = cwd
                    mark.title = title
            mark.one_shot = mark.one_shot if write.one_shot is None else write.one_shot
            for message, _, _ in write.put:
                mark.message = max(mark.message, message)

    def record_losses(self, ends: Mapping[int, int]) -> None:
        """Record in the mark that sessions (number -> last seq) have lost their later entries."""
        for number, seq in ends.items():
            self.mark.entries[number] = seq
            if seq:
                self.mark.cut.add(number)
        write_mark(self.folder, self.mark, durable=True)

    def check_files(self) -> None:
        """Raise `DatabaseMoved` when the database is no longer at its path, where writes would
        be lost.
        """
        for path, identity in self._identities:
            try:
                self.is_moved = _file_identity(path) != identity
            except (FileNotFoundError, NotADirectoryError):
                self.is_moved = True
            if self.is_moved:
                raise DatabaseMoved(path)

    def sync(self) -> None:
        """Bring every commit to disk; `make_durable` must have been called.

        Raises OSError; then no later write may count as on disk.
        """
        if self._wal >= 0 and self.unflushed:
            flush(self._wal)
        if self.unflushed:
            write_mark(self.folder, self.mark)
        self.unflushed = False

    def make_durable(self) -> None:
        """Bring the main file of a new session to disk, and the names of the files, before the
        first flush. SQLite makes the WAL anew at each open, and never flushes its name.

        Raises sqlite3.Error, OSError; may be called again.
        """
        if self._is_durable:
            return
        if self._is_new:
            self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        sessions = os.path.dirname(self.folder)
        for path in (self.folder, sessions, os.path.dirname(sessions)):
            flush_path(path)
        self._is_durable = True

    @property
    def has_idle_work(self) -> bool:
        """Return True if a flush or a checkpoint is due when nobody writes."""
        return self.unflushed or self._grown_bytes >= WAL_IDLE_BYTES

    def checkpoint(self, *, idle: bool) -> None:
        """Checkpoint the WAL into the main file when it has grown large. On failure the WAL
        stays.
        """
        if self._wal < 0 or self._grown_bytes < (WAL_IDLE_BYTES if idle else WAL_MAX_BYTES):
            return
        self._grown_bytes = 0
        with contextlib.suppress(sqlite3.OperationalError):
            self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def empty_wal(self) -> None:
        """Checkpoint all of the WAL and cut it, so that nothing deleted stays in it. A reader in
        the middle of a look prevents it until the next time.
        """
        if self._wal < 0:
            return
        self.connection.execute("PRAGMA busy_timeout=0")
        try:
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._grown_bytes = os.fstat(self._wal).st_size
        except sqlite3.OperationalError:
            pass  # as a checkpoint that is due: a later one, or that at the end, does it
        finally:
            self.connection.execute(f"PRAGMA busy_timeout={BUSY_S * 1000:.0f}")

    def close(self) -> None:
        """Close. SQLite checkpoints the WAL into the main file if nobody else reads it."""
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1
        if self.mark.updated and not self.unflushed and not self.is_moved:
            self.mark.size_bytes = file_size(self.path)
            write_mark(self.folder, self.mark)  # keeps the mark about as new as the database file
        self.connection.close()


def _file_identity(path: str) -> tuple[int, int]:
    """Return (device, inode) of a file. Raises OSError."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


# --- Rows of a session ----------------------------------------------------------------------------

TITLE_CHARS_MAX = 80
NO_WORDS_TITLE = "(no words)"
"""Title of a session whose first message has no text."""

About = tuple[int, str, str]
"""(created in microseconds UTC, cwd, title) of a session."""


class SessionRows:
    """Fills writes with one session's rows. For the event loop's thread."""

    def __init__(self, session: str, number: int, *, listed: bool) -> None:
        """`listed`: whether the database already holds the session's row of `sessions`."""
        self.session = session
        self.number = number
        self.about: About = (0, "", "")
        self.is_listed = listed

    def add(self, write: Write, entries: Sequence[Entry], take: Sequence[int]) -> None:
        """Add `entries` to `write`, and the ids of the inbox messages `take` to delete."""
        for entry in entries:
            body = encode_event(entry.event)
            write.rows.append(
                (entry_key(self.number, entry.seq), entry.at, SCHEMA_VERSION, 0, body)
            )
            if self.number == ROOT and isinstance(entry.event, Opened | TitleSet):
                write.one_shot = isinstance(entry.event, Opened) and entry.event.one_shot
            about = updated_about(self.about, entry.at, entry.event)
            if about is not self.about:
                self.about, self.is_listed = about, False
        write.take = (*write.take, *take)
        if take and all(isinstance(one.event, HookAnswered | TurnEnded) for one in entries):
            write.withdraws = True
        self.add_listing(write)

    def add_listing(self, write: Write) -> None:
        """Add the session's row of `sessions` to `write`, unless the database holds it."""
        if not self.is_listed:
            write.about.append((self.number, self.session, *self.about))

    def watch_commit(self, written: "Future[None]") -> None:
        """Mark the session's row as stored once `written` succeeds; after a failure the next
        write has it.
        """
        about = self.about

        def on_commit(done: "Future[None]") -> None:  # called in the writer thread
            if done.exception() is None and about == self.about:
                self.is_listed = True

        if not self.is_listed:
            written.add_done_callback(on_commit)


def updated_about(about: About, at: int, event: AnyEvent) -> About:
    """Take time, cwd and title from the first entries: from `event` of time `at`, if `about` has no
    title yet.

    A title that the user gives replaces the one of the first words.
    """
    created, cwd, title = about
    if isinstance(event, TitleSet):
        return created, cwd, _one_line(event.title)
    if title in ("", NO_WORDS_TITLE):
        match event:
            case Opened():
                return at, event.cwd, title
            case UserSpoke():
                return created, cwd, _title(event)
            case _:
                pass
    return about


def _title(event: UserSpoke) -> str:
    """Return the first words of the user's message on one line; a fixed title for a message
    without text.
    """
    return _one_line(text_of(event.typed)) or NO_WORDS_TITLE


def _one_line(text: str) -> str:
    return shortened(one_line(text[: 4 * TITLE_CHARS_MAX]), TITLE_CHARS_MAX)
