"""The writer thread: queued writes become one commit, and one flush covers all earlier commits."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from sqlite3 import Error as SqliteError
from typing import TYPE_CHECKING, Any, TypeVar

from longrein.store.database import Database, DatabaseMoved, Write, entry_key, key_number
from longrein.store.disk_errors import is_damage, mark_suspect, store_failure
from longrein_context.events import SessionError, StoreDamaged

if TYPE_CHECKING:
    from longrein.store.log_database import LogDatabase

FLUSH_AFTER_S = 0.02
"""Time after which a commit without `flush` is flushed."""

T = TypeVar("T")


Job = tuple[Write | Callable[[Any], Any] | None, "Future[Any]"]
"""A write, another piece of work with the database, or None for the end; and its future."""


class Writer:
    """The only thread that uses the database of a session. Jobs run in order."""

    def __init__(
        self, folder: str, open_database: "Callable[[], LogDatabase]", wall_us: Callable[[], int]
    ) -> None:
        """Start the thread, which opens the database at once. `wall_us` is called in the thread."""
        self.opened: Future[LogDatabase] = _future()
        """Resolves when the database is open; fails with the error that every later job gets."""
        self.closed: Future[None] = _future()
        """Resolves when the thread has closed the database."""
        self.commits = 0
        self._folder = folder
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._wall_us = wall_us
        self._unflushed_since_us = 0
        self._last_keys: dict[int, int] = {}  # by session number, for sessions that were written to
        self._start_seqs: dict[int, int] = {}
        self._last_failure: SessionError | None = None
        self._fatal: SessionError | None = None
        threading.Thread(
            target=self._run, args=(open_database,), name="longrein-log", daemon=True
        ).start()

    def start_session(self, number: int, seq: int) -> None:
        """Let new session `number` begin after entry `seq`. To be called before its first write."""
        self._start_seqs[number] = seq

    def write(self, write: Write) -> "Future[None]":
        """Queue a write. The future resolves when it is committed, and with `flush` when it is
        on disk.
        """
        return self._queue(write)

    def call(self, work: Callable[[Any], T]) -> "Future[T]":
        """Queue other work. Its OSError, SQLite error or `SessionError` fails the future."""
        return self._queue(work)

    def stop(self) -> "Future[None]":
        """Queue the end. The future resolves when all earlier jobs are on disk; then the thread
        closes the database.
        """
        return self._queue(None)

    def _queue(self, job: Write | Callable[[Any], Any] | None) -> "Future[Any]":
        future = _future()
        self._jobs.put((job, future))
        return future

    def _run(self, open_database: "Callable[[], LogDatabase]") -> None:
        try:
            database = open_database()
        except Exception as error:  # the opener waits for this thread and must get the error
            self._fail_all(store_failure(error, self._folder))
        else:
            self.opened.set_result(database)
            self._serve(database)
            database.close()
        self.closed.set_result(None)

    def _fail_all(self, error: SessionError) -> None:
        """Fail every job in the same way until the end, because the database could not be
        opened.
        """
        self.opened.set_exception(error)
        while True:
            work, future = self._jobs.get()
            if work is None:
                future.set_result(None)
                return
            future.set_exception(error)

    def _serve(self, database: "LogDatabase") -> None:
        ready: deque[Job] = deque()
        while True:
            if not ready:
                self._wait(database, ready)
            work, future = ready[0]
            if isinstance(work, Write):
                self._commit(database, ready)
                continue
            ready.popleft()
            if work is None:
                self._end(database, future)
                return
            self._do(database, work, future)

    def _wait(self, database: "LogDatabase", ready: deque[Job]) -> None:
        """Wait for at least one job and take all that are queued; flush and checkpoint
        meanwhile.
        """
        while not ready:
            try:
                pause_s = FLUSH_AFTER_S if database.has_idle_work else database.idle_s
                ready.append(self._jobs.get(timeout=pause_s))
            except Empty:
                if database.unflushed and not self._fatal:
                    self._sync(database)
                database.checkpoint(idle=True)
        while not self._jobs.empty():
            ready.append(self._jobs.get())

    def _commit(self, database: "LogDatabase", ready: deque[Job]) -> None:
        """Commit the writes at the head of `ready` in one transaction."""
        before, batch = dict(self._last_keys), []
        while ready and isinstance(write := ready[0][0], Write):
            future = ready.popleft()[1]
            error = self._fatal or self._order_error(database, write)
            if error:
                future.set_exception(error)
            else:
                batch.append((write, future))
        failure = self._attempt(database, [write for write, _ in batch]) if batch else None
        if failure:
            self._last_keys, self._last_failure = before, failure
        for _, future in batch:
            _resolve(future, failure)

    def _order_error(self, database: "LogDatabase", write: Write) -> SessionError | None:
        """Return the error of a write whose entries do not continue their logs, else None.

        After a failed write the writes queued behind it do not continue.
        """
        reached: dict[int, int] = {}
        try:
            for key, *_ in write.rows:
                number = key_number(key)
                if key != (reached.get(number) or self._last_key(database, number)) + 1:
                    why = f"an entry out of order was refused by the log in {self._folder}"
                    return self._last_failure or SessionError(why)
                reached[number] = key
        except (SqliteError, SessionError) as error:
            return store_failure(error, self._folder)
        self._last_keys.update(reached)
        return None

    def _last_key(self, database: "LogDatabase", number: int) -> int:
        """Return the key of the last entry of session `number`, or the key before its first one."""
        if number in self._last_keys:
            return self._last_keys[number]
        start = entry_key(number, self._start_seqs.get(number, 0))
        return max(start, database.last_key(number))

    def _attempt(self, database: "LogDatabase", writes: Sequence[Write]) -> SessionError | None:
        clean, flush = not database.unflushed, any(write.flush for write in writes)
        try:
            if flush:
                database.check_files()
                database.make_durable()
            database.commit(writes)
        except DatabaseMoved:
            self._fatal = _moved(database)
            return self._fatal
        except (OSError, SqliteError, SessionError) as error:
            if is_damage(error):
                mark_suspect(self._folder)
            return store_failure(error, self._folder)
        self.commits += 1
        if any(write.withdraws for write in writes):
            failure = self._sync(database)
            database.empty_wal()
            return failure
        if flush:
            return self._sync(database)
        now_us = self._wall_us()
        if clean:
            self._unflushed_since_us = now_us
        elif abs(now_us - self._unflushed_since_us) > FLUSH_AFTER_S * 1e6:
            self._sync(database)
        return None

    def _sync(self, database: "LogDatabase") -> SessionError | None:
        """Flush. After a failed flush the state of the disk is unknown, and the log refuses
        writes until it is reopened.
        """
        try:
            database.make_durable()
        except (OSError, SqliteError) as error:
            return store_failure(error, self._folder)
        try:
            database.sync()
        except OSError as error:
            self._fatal = store_failure(error, self._folder)
            return self._fatal
        database.checkpoint(idle=False)
        return None

    def _do(
        self, database: "LogDatabase", work: Callable[[Any], Any], future: "Future[Any]"
    ) -> None:
        try:
            future.set_result(work(database))
        except (OSError, SqliteError, SessionError) as error:
            future.set_exception(store_failure(error, self._folder))

    def _end(self, database: "LogDatabase", future: "Future[Any]") -> None:
        failure = self._fatal
        if failure is None:
            failure = (
                self._attempt(database, ())
                if database.blobs.pending
                else self._check_files(database)
            )
        _resolve(future, failure or self._sync(database))

    def _check_files(self, database: "LogDatabase") -> SessionError | None:
        """Check that the database files are still in place; else writes since the last check are
        lost.
        """
        try:
            database.check_files()
        except DatabaseMoved:
            return _moved(database)
        return None


def _moved(database: "LogDatabase") -> StoreDamaged:
    from longrein.store.salvage import restore_moved_database

    assert isinstance(database, Database)
    return StoreDamaged(restore_moved_database(database))


def _resolve(future: "Future[None]", failure: SessionError | None) -> None:
    if failure:
        future.set_exception(failure)
    else:
        future.set_result(None)


def _future() -> "Future[Any]":
    """Return a future that cannot be cancelled: a caller that stops waiting does not undo its
    write.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future
