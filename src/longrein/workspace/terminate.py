"""End process trees from longrein: TERM, a grace period, KILL, until no process is left.

Processes that ignore TERM, fork away or hide are found too. All trees share one look at the process
table per round.
"""

import asyncio
import time
from contextlib import suppress

from longrein.workspace.supervisor.process_tree import GRACE_S, Terminations, Tree


class TreeTerminator:
    """The process trees that are being ended. One task handles them all."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._trees = Terminations(time.monotonic)
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def end(self, mark: str, root: int) -> asyncio.Future[None]:
        """Begin to end a tree; the future is done when no process is left.

        The process group gets TERM now, the rest within a round. `root` is the pid of the session's
        leader, 0 when only the mark counts.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not ended.done():
                ended.set_result(None)

        self._trees.end(Tree(mark, root, time.monotonic() + self._grace_s), done)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._walk())
        self._news.set()
        return ended

    def hurry(self) -> None:
        """Look again now, because a process has just exited."""
        self._trees.hurry()
        self._news.set()

    async def wait_all(self) -> None:
        """Wait until every tree has ended."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _walk(self) -> None:
        try:
            while (wait_s := self._trees.wait_s()) is not None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), wait_s)
                self._news.clear()
                self._trees.walk()
        except asyncio.CancelledError:  # the loop is closing
            self._trees.kill_now()
            raise
