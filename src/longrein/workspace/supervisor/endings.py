"""Trees that are ending, walked by the supervisor's own loop: TERM, a grace, KILL, until nobody is left."""

from collections.abc import Callable, Iterable

from longrein.workspace.processes import Process, descendants, environment_of, processes
from longrein.workspace.tree import FIRST_ROUND_S, LAST_ROUND_S, Tree, term_group

RECENT_S = 0.005
ALL = float("inf")
"""In place of the number of a last command."""


class Rest(Tree):
    """All that a supervisor ever started, up to command number `last`, but what it is told to spare.

    Its own descendants are members also when they took the mark off: it is their sub-reaper. While trees are spared or
    later commands may have left something such a process might be theirs, so it is left until they have gone, too.
    """

    def __init__(self, owner: str, own: int, kill_at: float, spared: Callable[[], Iterable[Tree]], last: float) -> None:
        super().__init__(f"{owner}.", 0, kill_at)
        self._own, self._spared, self._last = own, spared, last
        self._looked_empty = False

    def members(self, table: dict[int, Process], environments: dict[int, bytes]) -> list[Process]:
        """See `Tree.members`."""
        trees = list(self._spared())
        spared = {one.pid for tree in trees for one in tree.members(table, environments)}
        first = {pid for pid, environment in environments.items() if self._is_marked(environment)}
        first |= {pid for pid, start in self.known.items() if pid in table and table[pid].start == start}
        if not trees and self._last == ALL:
            first |= descendants(table, {self._own})
        found = descendants(table, first - spared) - spared - {self._own}
        members = [table[pid] for pid in sorted(found) if pid in table]
        self.known.update((one.pid, one.start) for one in members)
        return members

    def is_gone(self, members: list[Process]) -> bool:
        """See `Tree.is_gone`: two looks must find nobody, as one misses who forks and exits while it is taken."""
        before, self._looked_empty = self._looked_empty, not members
        return before and not members

    def _is_marked(self, environment: bytes) -> bool:
        _, found, rest = environment.partition(self.mark)
        number = rest.partition(b"/")[0]
        return bool(found) and number.isdigit() and int(number) <= self._last


class Endings:
    """Every tree that is ending. They share one look at the process table a round."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._trees: dict[Tree, Callable[[], None]] = {}
        self._pause_s = FIRST_ROUND_S
        self._next = 0.0
        self._looked_at, self._table = -1.0, dict[int, Process]()

    def __bool__(self) -> bool:
        return bool(self._trees)

    def __contains__(self, tree: Tree) -> bool:
        return tree in self._trees

    def end(self, tree: Tree, done: Callable[[], None]) -> None:
        """Begin to end `tree`; `done` is called when nobody is left. Its leader's group gets TERM at once.

        The leader's children are noted before: once it is dead, who took the mark off could not be told from others.
        """
        if tree.root:
            tree.members(self._recent_table(), {})
            term_group(tree.root)
        self._trees[tree] = done
        self.hurry()

    def _recent_table(self) -> dict[int, Process]:
        """The process table; many trees told to end in one go share one look."""
        now = self._clock()
        if now - self._looked_at > RECENT_S:
            self._looked_at, self._table = now, processes()
        return self._table

    def gone(self, pid: int) -> None:
        """This process was reaped: if it is of a tree that is ending, look again now."""
        if any(pid in tree.known for tree in self._trees):
            self.hurry()

    def hurry(self) -> None:
        """Look again now: somebody has just exited."""
        self._pause_s, self._next = FIRST_ROUND_S, self._clock()

    def wait_s(self) -> float | None:
        """Seconds until the next look is due; None when nothing is ending."""
        return max(0.0, self._next - self._clock()) if self._trees else None

    def walk(self) -> None:
        """Look who is left, if that is due, and tell them to go."""
        now = self._clock()
        if not self._trees or now < self._next:
            return
        table = processes()
        environments = {pid: environment_of(pid) for pid in table}
        for tree, done in list(self._trees.items()):
            members = tree.members(table, environments)
            if not tree.is_gone(members) and now < tree.give_up_at:
                tree.tell(members, now)
                continue
            del self._trees[tree]
            done()
        due_s = min((tree.due_s(self._clock()) for tree in self._trees), default=0.0)
        self._next = self._clock() + max(0.0, min(self._pause_s, due_s))
        self._pause_s = min(self._pause_s * 1.6, LAST_ROUND_S)
