"""Ending whole trees: TERM, a grace, KILL, until nobody is left, also of those that ignored, forked away or hid.

A member of a command's tree is who carries its mark, who sits in its session, and who descends from either. Each
command carries a mark of its own in `LONGREIN_COMMAND`: `/<pid and start of longrein>.<number>/`; one started by a
longrein inside another's command carries both. All trees that are ending share one look at the process table a round.
"""

import asyncio
import os
import signal

from longrein.workspace.processes import (
    Process,
    descendants,
    environment_of,
    marked,
    process,
    processes,
    send,
    variable,
)

COMMAND_MARK = "LONGREIN_COMMAND"
GRACE_S = 2.0
"""Between TERM and KILL."""
GIVE_UP_S = 5.0
"""After KILL; who then still lives cannot be killed (it waits in the kernel) and is left to the next start's sweep."""
FIRST_ROUND_S = 0.004
LAST_ROUND_S = 0.1


def owner_mark() -> str:
    """`/<pid>.<start>`: names this process for as long as it lives; each command's mark begins with it."""
    own = process(os.getpid())
    return f"/{os.getpid()}.{own.start if own else 0}"


class Tree:
    """One command on its way out."""

    def __init__(self, mark: str, root: int, kill_at: float, ended: asyncio.Future[None]) -> None:
        self.mark = mark.encode()
        self.root = root
        self.kill_at = kill_at
        self.give_up_at = kill_at + GIVE_UP_S
        self.ended = ended
        self.known: dict[int, int] = {}
        """pid -> start of all that were ever found: a child stays a member when its parent has died."""
        self._told: set[tuple[int, int]] = set()
        """(pid, start) of those that got TERM."""
        self._group_told = root
        """The group that got TERM as a whole: once is enough, many programs take a second one as "at once"."""

    def members(self, table: dict[int, Process], environments: dict[int, bytes]) -> list[Process]:
        """Who is left, in the order of their numbers. They are known from now on."""
        first = {pid for pid, environment in environments.items() if self.mark in environment}
        first |= {one.pid for one in table.values() if self.root and self.root in (one.pid, one.session)}
        first |= {pid for pid, start in self.known.items() if pid in table and table[pid].start == start}
        found = descendants(table, first)
        members = [table[pid] for pid in sorted(found) if pid in table and pid != os.getpid()]
        self.known.update((one.pid, one.start) for one in members)
        return members

    def tell(self, members: list[Process], now: float) -> None:
        """TERM to those who have not had it yet; after the grace KILL to all."""
        for one in members:
            if now >= self.kill_at:
                send(one, signal.SIGKILL)
            elif (one.pid, one.start) not in self._told and one.group != self._group_told:
                send(one, signal.SIGTERM)
            self._told.add((one.pid, one.start))
        self._group_told = 0

    def due_s(self, now: float) -> float:
        """Seconds until KILL is due; once it was sent, the pause until a look at who is left."""
        return self.kill_at - now if now < self.kill_at else FIRST_ROUND_S


class Trees:
    """Every tree that is ending. One task walks them while there are any."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._trees: list[Tree] = []
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._table: dict[int, Process] | None = None

    def end(self, mark: str, root: int) -> asyncio.Future[None]:
        """Begin to end a tree: its process group gets TERM now, the rest within a round. Done when nobody is left.

        `root` is the pid of its session's leader, 0 when only the mark counts. Its children are noted before: once
        it is dead, who took the mark off could not be told from a stranger.
        """
        loop = asyncio.get_running_loop()
        tree = Tree(mark, root, loop.time() + self._grace_s, loop.create_future())
        if root:
            tree.members(self._table_now(loop), {})
            _term_group(root)
        self._trees.append(tree)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._walk(loop))
        self._news.set()
        return tree.ended

    def _table_now(self, loop: asyncio.AbstractEventLoop) -> dict[int, Process]:
        """The process table; many trees ended in one go share one look."""
        if self._table is None:
            self._table = processes()
            loop.call_soon(self._forget_table)
        return self._table

    def _forget_table(self) -> None:
        self._table = None

    def hurry(self) -> None:
        """Look again now: a root has just exited."""
        self._news.set()

    async def wait_all(self) -> None:
        """Wait until every tree has ended."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _walk(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await self._rounds(loop)
        except asyncio.CancelledError:  # the loop closes: no time for a grace
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
                tree.tell(members, now)
                continue
            self._trees.remove(tree)
            if not tree.ended.done():
                tree.ended.set_result(None)


def _term_group(root: int) -> None:
    try:
        os.killpg(root, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        return


def survivors(mark: str) -> bool:
    """Whether any process carries a mark that begins so."""
    return any(mark in variable(environment, COMMAND_MARK) for _, environment in marked(COMMAND_MARK))
