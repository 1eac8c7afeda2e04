"""End process trees from longrein: TERM, a grace period, KILL, until no process is left.

Processes that ignore TERM, fork away or hide are found too. All trees share one look at the process table per round.
"""

import asyncio

from longrein.workspace.supervisor.process_tree import (
    FIRST_ROUND_S,
    GIVE_UP_S,
    GRACE_S,
    LAST_ROUND_S,
    Process,
    Tree,
    environment_of,
    processes,
    terminate_group,
)


class TreeTerminator:
    """The process trees that are being ended. One task handles them all."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._trees: dict[Tree, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._table: dict[int, Process] | None = None

    def end(self, mark: str, root: int) -> asyncio.Future[None]:
        """Begin to end a tree; the future is done when no process is left.

        The process group gets TERM now, the rest within a round. `root` is the pid of the session's leader, 0 when only
        the mark counts. The leader's children are noted first: after its death an unmarked child could not be told from
        a stranger.
        """
        loop = asyncio.get_running_loop()
        tree = Tree(mark, root, loop.time() + self._grace_s)
        if root:
            tree.members(self._table_now(loop), {})
            terminate_group(root)
        self._trees[tree] = ended = loop.create_future()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._walk(loop))
        self._news.set()
        return ended

    def _table_now(self, loop: asyncio.AbstractEventLoop) -> dict[int, Process]:
        """Return the process table; trees that are ended together share it."""
        if self._table is None:
            self._table = processes()
            loop.call_soon(self._forget_table)
        return self._table

    def _forget_table(self) -> None:
        self._table = None

    def hurry(self) -> None:
        """Look again now, because a process has just exited."""
        self._news.set()

    async def wait_all(self) -> None:
        """Wait until every tree has ended."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _walk(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await self._rounds(loop)
        except asyncio.CancelledError:  # the loop is closing: KILL at once
            for tree in self._trees:
                tree.kill_at = 0.0
                tree.give_up_at = loop.time() + GIVE_UP_S
            self._round(loop.time())
            raise

    async def _rounds(self, loop: asyncio.AbstractEventLoop) -> None:
        pause_s = FIRST_ROUND_S
        while self._trees:
            self._news.clear()
            self._round(loop.time())
            pause_s = min(pause_s * 1.6, LAST_ROUND_S)
            due_s = min((one.due_s(loop.time()) for one in self._trees), default=0.0)
            try:
                await asyncio.wait_for(self._news.wait(), min(pause_s, due_s))
                pause_s = FIRST_ROUND_S
            except TimeoutError:
                continue

    def _round(self, now: float) -> None:
        table = processes()
        environments = {pid: environment_of(pid) for pid in table}
        for tree in list(self._trees):
            members = tree.members(table, environments)
            if members and now < tree.give_up_at:
                tree.signal_members(members, now)
                continue
            ended = self._trees.pop(tree)
            if not ended.done():
                ended.set_result(None)
