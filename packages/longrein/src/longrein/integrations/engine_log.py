"""The stored log of an engine. Writing never makes the caller's loop wait.

The store is opened and closed in a thread with an event loop of its own, because the caller may or
may not have one. In between, entries are queued for the store's writer thread.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from longrein.store import SessionLog, open_log
from longrein_context.events import Entry, LongreinError, SessionUnknown

T = TypeVar("T")


class SessionEngineLog:
    """The open session log of an engine."""

    def __init__(self, state_dir: str, session: str, now_us: Callable[[], int]) -> None:
        """Open or create the log. Raises `SessionBusy`, `StoreDamaged`, `StoreFull`,
        `SessionReadOnly`.
        """
        self.session = session
        """Id of the session."""
        self.entries: Sequence[Entry] = ()
        """Entries that the log had when it was opened."""
        self._failed: BaseException | None = None
        self._log: SessionLog | None = _run_in_thread(self._open(state_dir, now_us))

    async def _open(self, state_dir: str, now_us: Callable[[], int]) -> SessionLog:
        try:
            log = await open_log(state_dir, self.session, create=False, wall_us=now_us)
        except SessionUnknown:
            log = await open_log(state_dir, self.session, create=True, wall_us=now_us)
        self.entries = list(log.entries)
        log.reader.close()  # a connection belongs to its thread, which ends now
        return log

    def keep(self, entry: Entry) -> None:
        """Queue one entry. Raises the error of an earlier entry that could not be written, such
        as `StoreFull`.
        """
        if self._failed is not None:
            raise self._failed
        if self._log is None:
            raise LongreinError(
                "this engine was closed; open it again with the same session to go on"
            )
        self._log.append([entry], flush=False).add_done_callback(self._written)

    def _written(self, future: "Future[None]") -> None:
        # in the writer thread
        self._failed = self._failed or future.exception()

    def close(self) -> None:
        """Flush and release the session. Idempotent."""
        log, self._log = self._log, None
        if log is not None:
            _run_in_thread(log.close())


def _run_in_thread(work: "Coroutine[Any, Any, T]") -> T:
    """Run a coroutine in a new thread with its own event loop, and return its result."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(asyncio.run(work))
        except BaseException as error:  # passed to the caller
            done.set_exception(error)

    thread = threading.Thread(target=run, name="longrein-store")
    thread.start()
    thread.join()
    return done.result()
