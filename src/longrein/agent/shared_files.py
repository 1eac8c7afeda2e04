"""Files shared by the agents of a tree: read and write locks by path, and the authors of contents.

The locks are fair and order the agents of this process only; against other processes a write checks
what it replaces.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

import msgspec

from longrein.events.escape import quote_line


class _PathLock:
    """Read-write lock of one path, in order of arrival."""

    def __init__(self) -> None:
        self.readers = 0
        self.written = False
        self.waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    def free_for(self, *, writes: bool) -> bool:
        """Return True if one more may hold it now."""
        return not self.written and not (writes and self.readers)

    def take(self, *, writes: bool) -> None:
        """Take the lock."""
        self.written = writes
        self.readers += not writes

    def give(self, *, writes: bool) -> None:
        """Release the lock; the next waiter takes it, with the readers right behind a reader."""
        self.written = self.written and not writes
        self.readers -= not writes
        self.pass_on()

    def pass_on(self) -> None:
        """Let waiters take the lock, in their order."""
        while self.waiting and self.free_for(writes=self.waiting[0][0]):
            writes, turn = self.waiting.popleft()
            if not turn.done():
                self.take(writes=writes)
                turn.set_result(None)


class PathLocks:
    """Locks of a tree of agents. Belongs to one event loop."""

    def __init__(self) -> None:
        self._paths: dict[str, _PathLock] = {}

    async def take(self, paths: Iterable[tuple[str, bool]]) -> "HeldPaths":
        """Wait for the locks of all (real path, writes); a cancelled wait holds none."""
        wanted: dict[str, bool] = {}
        for path, writes in sorted(paths):  # fixed order, so that no deadlock can occur
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
        """Release the lock of a path."""
        lock = self._paths[path]
        lock.give(writes=writes)
        if lock.free_for(writes=True) and not lock.waiting:
            del self._paths[path]


class HeldPaths:
    """Locks that a call holds."""

    def __init__(self, locks: PathLocks) -> None:
        self.held: list[tuple[str, bool]] = []
        self._locks = locks

    def release(self) -> None:
        """Release them. Idempotent."""
        held, self.held = self.held, []
        for path, writes in held:
            self._locks.give(path, writes=writes)


# --- Authors of file contents ---------------------------------------------------------------------
#
# Names the author of a change, so that the model does not take an agent's own work for a
# stranger's. Known in this process only; an unknown author counts as somebody else.


PATHS_MAX = 4_000
CONTENTS_MAX = 16
"""Remembered contents of one path, the latest."""
WORDS_CHARS_MAX = 48
"""Characters of a command line in its name."""


class Writer(msgspec.Struct, frozen=True):
    """An agent, or a command of an agent."""

    label: str
    """Label of the subagent; '' for the session of the user."""
    command: str = ""
    """First words of the command; '' when the agent wrote it itself."""

    def seen_by(self, label: str) -> tuple[str, str]:
        """Return (`by`, `who`) of a `FileChanged` in the log of agent `label`."""
        if self.label == label:
            return ("command", self.command) if self.command else ("agent", "")
        name = self.label or "main"
        return "subagent", f"{name} ({self.command})" if self.command else name

    def words(self, label: str) -> str:
        """Describe the writer for agent `label`."""
        if self.label == label:
            return f"your command ({self.command})" if self.command else "an edit of yours"
        agent = f"subagent {self.label}" if self.label else "the main agent"
        return f"a command of {agent} ({self.command})" if self.command else agent


class FileWriters:
    """Authors of contents in a tree of agents, and their commands that run now."""

    def __init__(self) -> None:
        self._wrote: dict[str, dict[str, Writer]] = {}
        self._running: dict[str, Writer] = {}

    def note(self, path: str, digest: str, writer: Writer) -> None:
        """Record that `writer` gave `path` (real) this content."""
        contents = self._wrote.pop(path, {})
        contents.pop(digest, None)
        contents[digest] = writer
        self._wrote[path] = contents
        if len(contents) > CONTENTS_MAX:
            del contents[next(iter(contents))]
        if len(self._wrote) > PATHS_MAX:
            del self._wrote[next(iter(self._wrote))]

    def of(self, path: str, digest: str) -> Writer | None:
        """Return the writer of this content; None when it is no agent of this tree, as far as
        known.
        """
        return self._wrote.get(path, {}).get(digest)

    def begin(self, call: str, writer: Writer) -> None:
        """Register a running command that may change files."""
        self._running[f"{writer.label} {call}"] = writer

    def end(self, call: str, label: str) -> None:
        """Remove a command that has ended."""
        self._running.pop(f"{label} {call}", None)

    def running(self, label: str) -> tuple[Writer, ...]:
        """Return the running commands of agents other than `label`."""
        return tuple(writer for writer in self._running.values() if writer.label != label)


def first_words(command: str) -> str:
    """Shorten a command line to name it."""
    return quote_line(command, WORDS_CHARS_MAX) if command.strip() else ""
