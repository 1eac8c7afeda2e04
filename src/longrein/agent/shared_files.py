"""One lock a path for all agents of a tree: who reads a file shares it, who writes to it has it alone.

Fair: whoever came first goes first, so neither readers nor writers starve. The locks order the agents of this process;
against everybody else a write looks at what it replaces.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec


class _PathLock:
    """Who holds one path, and who waits for it."""

    def __init__(self) -> None:
        self.readers = 0
        self.written = False
        self.waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    def free_for(self, *, writes: bool) -> bool:
        """Whether one more may hold it now."""
        return not self.written and not (writes and self.readers)

    def take(self, *, writes: bool) -> None:
        """One more holds it."""
        self.written = writes
        self.readers += not writes

    def give(self, *, writes: bool) -> None:
        """One holds it no more; who waits first goes on, and readers right behind a reader with it."""
        self.written = self.written and not writes
        self.readers -= not writes
        self.pass_on()

    def pass_on(self) -> None:
        """Let those go on who may, in their order."""
        while self.waiting and self.free_for(writes=self.waiting[0][0]):
            writes, turn = self.waiting.popleft()
            if not turn.done():
                self.take(writes=writes)
                turn.set_result(None)


class PathLocks:
    """The locks of a tree of agents. Belongs to one event loop."""

    def __init__(self) -> None:
        self._paths: dict[str, _PathLock] = {}

    async def take(self, paths: Iterable[tuple[str, bool]]) -> "HeldPaths":
        """Hold these (real path, writes) at once; waits its turn. Cancelled, it holds nothing."""
        wanted: dict[str, bool] = {}
        for path, writes in sorted(paths):  # always in this order, so that no two can wait for each other
            wanted[path] = wanted.get(path, False) or writes
        taken = HeldPaths(self)
        try:
            for path, writes in wanted.items():
                await self._take(path, writes=writes)
                taken.held.append((path, writes))
        except asyncio.CancelledError:
            taken.release()
            raise
        return taken

    async def _take(self, path: str, *, writes: bool) -> None:
        lock = self._paths.setdefault(path, _PathLock())
        if not lock.waiting and lock.free_for(writes=writes):
            lock.take(writes=writes)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lock.waiting.append((writes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(path, writes=writes)
            elif (writes, turn) in lock.waiting:
                lock.waiting.remove((writes, turn))
                lock.pass_on()
            raise

    def give(self, path: str, *, writes: bool) -> None:
        """Hold a path no more."""
        lock = self._paths[path]
        lock.give(writes=writes)
        if lock.free_for(writes=True) and not lock.waiting:
            del self._paths[path]


class HeldPaths:
    """Paths that are held."""

    def __init__(self, locks: PathLocks) -> None:
        self.held: list[tuple[str, bool]] = []
        self._locks = locks

    def release(self) -> None:
        """Hold them no more. Idempotent."""
        held, self.held = self.held, []
        for path, writes in held:
            self._locks.give(path, writes=writes)


# ---------------------------------------------------------------------------------------------------------------------
#
# Who of a tree of agents wrote what: names the writer of a change, so that nobody's own work is told as a stranger's.
#
# It is known in this process only; what it does not know, or no longer, is somebody else's.


PATHS_MAX = 4_000
CONTENTS_MAX = 16
"""Contents of one path that are remembered, the latest."""
WORDS_CHARS_MAX = 48
"""Of a command's line, to name it."""


class Writer(msgspec.Struct, frozen=True):
    """An agent, or a command of one."""

    label: str
    """Of the subagent; '' for the session of the user."""
    command: str = ""
    """First words of the command that did it; '' when the agent did it by itself."""

    def seen_by(self, label: str) -> tuple[str, str]:
        """(`by`, `who`) of a `FileChanged` in the log of agent `label`."""
        if self.label == label:
            return ("command", self.command) if self.command else ("agent", "")
        name = self.label or "main"
        return "subagent", f"{name} ({self.command})" if self.command else name

    def words(self, label: str) -> str:
        """How agent `label` is told of it."""
        if self.label == label:
            return f"your command ({self.command})" if self.command else "an edit of yours"
        agent = f"subagent {self.label}" if self.label else "the main agent"
        return f"a command of {agent} ({self.command})" if self.command else agent


class FileWriters:
    """What the agents of a tree wrote, and which commands of theirs run now."""

    def __init__(self) -> None:
        self._wrote: dict[str, dict[str, Writer]] = {}
        self._running: dict[str, Writer] = {}

    def note(self, path: str, digest: str, writer: Writer) -> None:
        """`path` (real) got this content from `writer`."""
        contents = self._wrote.pop(path, {})
        contents.pop(digest, None)
        contents[digest] = writer
        self._wrote[path] = contents
        if len(contents) > CONTENTS_MAX:
            del contents[next(iter(contents))]
        if len(self._wrote) > PATHS_MAX:
            del self._wrote[next(iter(self._wrote))]

    def of(self, path: str, digest: str) -> Writer | None:
        """Who wrote this content there; None when it was no agent of this tree, as far as is known."""
        return self._wrote.get(path, {}).get(digest)

    def begin(self, call: str, writer: Writer) -> None:
        """A command begins to run that may change files."""
        self._running[f"{writer.label} {call}"] = writer

    def end(self, call: str, label: str) -> None:
        """It has ended."""
        self._running.pop(f"{label} {call}", None)

    def running(self, label: str) -> tuple[Writer, ...]:
        """Commands of other agents than `label` that run now."""
        return tuple(writer for writer in self._running.values() if writer.label != label)


def first_words(command: str) -> str:
    """A command's line, short enough to name it."""
    line = " ".join(command.split())
    return line if len(line) <= WORDS_CHARS_MAX else line[: WORDS_CHARS_MAX - 1] + "…"
