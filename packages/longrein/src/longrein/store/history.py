"""Reads the history of one session in a thread, which has a connection of its own."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from longrein.store.daemon_threads import run_in_thread
from longrein_context.events import SessionUnknown

if TYPE_CHECKING:
    from longrein.store.session_history import SessionHistory

T = TypeVar("T")


class HistoryReader:
    """Runs functions on the history of one session, in a thread."""

    def __init__(self, state_dir: str, session: str, child: str = "") -> None:
        """`child`: id of the subagent of `session` whose history is read."""
        self._state_dir = state_dir
        self._session = session
        self._child = child

    async def reading(self, work: "Callable[[SessionHistory], T]") -> T:
        """Run `work` with the history in a thread; return its result or raise its error.

        On cancellation the thread runs on to its end.
        """
        return await asyncio.wrap_future(run_in_thread(lambda: self._read(work), "recall"))

    def child(self, session: str) -> "HistoryReader":
        """Return a reader of the history of subagent `session`."""
        return HistoryReader(self._state_dir, self._session, session)

    def _read(self, work: "Callable[[SessionHistory], T]") -> T:
        from longrein.store.session_history import SessionHistory

        root = SessionHistory(self._state_dir, self._session)
        try:
            history = root.child(self._child) if self._child else root
            if history is None:
                raise SessionUnknown(
                    f"there is no subagent {self._child} in session {self._session}"
                )
            return work(history)
        finally:
            root.close()
