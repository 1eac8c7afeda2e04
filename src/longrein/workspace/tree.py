"""One tree of processes on its way out. Standard library only: longrein and the supervisor of processes both end trees.

A member of a command's tree is who carries its mark, who sits in its session, and who descends from either. Each
command carries a mark of its own in `LONGREIN_COMMAND`: `/<pid and start of its owner>.<number>/`, the owner being the
process that started it: the supervisor, or longrein itself where there is none. One started by a longrein inside
another's command carries both.
"""

import os

from longrein.workspace.processes import Process, descendants, marked, process, send, variable
from longrein.workspace.words import SIGKILL, SIGTERM

COMMAND_MARK = "LONGREIN_COMMAND"
SPOOL_MARK = "LONGREIN_SPOOL"
"""Variable in a supervisor's own environment by which others find it: the spool that it looks after."""
GRACE_S = 2.0
"""Between TERM and KILL."""
GIVE_UP_S = 5.0
"""After KILL; who then still lives cannot be killed (it waits in the kernel) and is left to the next start's sweep."""
FIRST_ROUND_S = 0.004
LAST_ROUND_S = 0.1
"""Pauses between two looks at who is left."""


def owner_mark() -> str:
    """`/<pid>.<start>`: names this process for as long as it lives; each command's mark begins with it."""
    own = process(os.getpid())
    return f"/{os.getpid()}.{own.start if own else 0}"


class Tree:
    """One command on its way out."""

    def __init__(self, mark: str, root: int, kill_at: float) -> None:
        self.mark = mark.encode()
        self.root = root
        self.expect_death(kill_at)
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

    def is_gone(self, members: list[Process]) -> bool:
        """Whether nobody is left, after a look that found `members`."""
        return not members

    def expect_death(self, kill_at: float) -> None:
        """From now on it is told to go: TERM, and KILL at `kill_at`."""
        self.kill_at, self.give_up_at = kill_at, kill_at + GIVE_UP_S

    def tell(self, members: list[Process], now: float) -> None:
        """TERM to those who have not had it yet; after the grace KILL to all."""
        for one in members:
            if now >= self.kill_at:
                send(one, SIGKILL)
            elif (one.pid, one.start) not in self._told and one.group != self._group_told:
                send(one, SIGTERM)
            self._told.add((one.pid, one.start))
        self._group_told = 0

    def due_s(self, now: float) -> float:
        """Seconds until KILL is due; once it was sent, the pause until a look at who is left."""
        return self.kill_at - now if now < self.kill_at else FIRST_ROUND_S


def term_group(root: int) -> None:
    """TERM to a process group, if it is still there."""
    try:
        os.killpg(root, SIGTERM)
    except (ProcessLookupError, PermissionError):
        return


def survivors(mark: str) -> bool:
    """Whether any process carries a mark that begins so."""
    return any(mark in variable(environment, COMMAND_MARK) for _, environment in marked(COMMAND_MARK))
