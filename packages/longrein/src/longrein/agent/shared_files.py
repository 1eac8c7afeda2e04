"""Files shared by the agents of a tree: read and write locks by path, and the authors of contents.

The locks are fair and order the agents of this process only; against other processes a write checks
what it replaces.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import sha256
from typing import TypeVar

import msgspec

from longrein.agent.git_metadata import current_branch, find_git_folder
from longrein.tools import Blobs
from longrein.workspace import FileStamp, Workspace
from longrein_context import KnownFile, State
from longrein_context.events import FileChanged, Reminded
from longrein_context.events.escape import quote_line


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


class FileWriter(msgspec.Struct, frozen=True):
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
        self._wrote: dict[str, dict[str, FileWriter]] = {}
        self._running: dict[str, FileWriter] = {}
        self._untraced: set[str] = set()
        """Running calls of tools whose writes nobody sees."""
        self._was_untraced = False

    def note(self, path: str, digest: str, writer: FileWriter) -> None:
        """Record that `writer` gave `path` (real) this content."""
        contents = self._wrote.pop(path, {})
        contents.pop(digest, None)
        contents[digest] = writer
        self._wrote[path] = contents
        if len(contents) > CONTENTS_MAX:
            del contents[next(iter(contents))]
        if len(self._wrote) > PATHS_MAX:
            del self._wrote[next(iter(self._wrote))]

    def of(self, path: str, digest: str) -> FileWriter | None:
        """Return the writer of this content; None when it is no agent of this tree, as far as
        known.
        """
        return self._wrote.get(path, {}).get(digest)

    def begin(self, call: str, writer: FileWriter, *, traced: bool) -> None:
        """Register a running command that may change files. `traced`: what it writes is known
        afterwards.
        """
        self._running[f"{writer.label} {call}"] = writer
        if not traced:
            self._untraced.add(f"{writer.label} {call}")
            self._was_untraced = True

    def end(self, call: str, label: str) -> None:
        """Remove a command that has ended."""
        self._running.pop(f"{label} {call}", None)
        self._untraced.discard(f"{label} {call}")

    def take_untraced(self) -> bool:
        """Return True if a call without a trace has run since the last question."""
        found, self._was_untraced = self._was_untraced, bool(self._untraced)
        return found

    def running(self, label: str) -> tuple[FileWriter, ...]:
        """Return the running commands of agents other than `label`."""
        return tuple(writer for writer in self._running.values() if writer.label != label)


def first_words(command: str) -> str:
    """Shorten a command line to name it."""
    return quote_line(command, WORDS_CHARS_MAX) if command.strip() else ""


# --- File watcher ---------------------------------------------------------------------------------
#
# Watch the files that the model knows, and the git branch.
#
# Before each request their stamps (size, times, inode) are compared, and their bytes only when the
# stamps differ. A file has changed when its content has: a touch, or a rewrite with the same
# bytes, is no change. The stamps only save reading; what was noticed is in the log. The branch is
# read from `.git/HEAD`, without running git.

T = TypeVar("T")
QUICK_BYTES = 1024 * 1024
"""Content up to this size is read, hashed and compared in the event loop."""
WATCHED_MAX = 200
"""Watched files, the most recently used ones."""
CHANGES_MAX = 4
"""Changes by others after which a file is ignored until the model reads it again; bounds the
log.
"""
LIVE = ("/proc/", "/sys/", "/dev/")
"""Folders whose contents the system generates."""
BUSY = "it keeps changing, so that you will not be told again before you Read it"


class FileWatcher:
    """File stamps of one open session."""

    def __init__(
        self,
        workspace: Workspace,
        blobs: Blobs,
        redact: Callable[[str], str],
        keep_bytes_max: int,
        since_us: int = 0,
    ) -> None:
        self._workspace = workspace
        self._blobs = blobs
        self._redact = redact
        self._keep_bytes_max = keep_bytes_max
        """Largest content to store."""
        self.since_us = since_us
        """Time of the last entry before the session was reopened; 0 for a new one and after the
        first look.
        """
        self.looked: tuple[int, ...] = ()
        """Point in the log at which it looked last; it never looks twice at the same point."""
        self._stamps: dict[str, FileStamp] = {}
        self.branch = BranchWatcher(workspace)

    async def changes(
        self, state: State, whose: Callable[[str, str], tuple[str, str]]
    ) -> list[FileChanged]:
        """Return an event for each watched file that differs from what was last found.

        `whose(path, hash)` returns `by` and `who` of the event.
        """
        facts: list[FileChanged] = []
        for path, known in watched(state).items():
            expected = known.on_disk
            then = self._stamps.get(path)
            if then is None or then.size_bytes <= QUICK_BYTES:  # 200 times before each request
                found = self._workspace.stamp(path, then)
            else:
                found = await self._workspace.run_in_thread(
                    partial(self._workspace.stamp, path, then)
                )
            self._stamps[path] = found
            if found.hash == expected or (not found.hash and found.inode):
                continue  # unreadable: the next Read reports it
            fact = await self._fact(path, known, expected, found)
            by, who = whose(path, found.hash)
            facts.append(msgspec.structs.replace(fact, by=by, who=who))
        return facts

    async def _fact(
        self, path: str, known: KnownFile, expected: str, found: FileStamp
    ) -> FileChanged:
        from longrein.tools.diff import change_of

        if not found.hash:
            return FileChanged(path, "", "", "", expected)
        if found.size_bytes > self._keep_bytes_max:
            return FileChanged(
                path, found.hash, "", "", expected, note=f"now {found.size_bytes} bytes"
            )
        try:
            data = await self._quickly(found.size_bytes, lambda: self._workspace.read(path))
        except OSError:
            return FileChanged(
                path, found.hash, "", "", expected, note="it cannot be read just now"
            )
        digest = await self._quickly(len(data), lambda: sha256(data).hexdigest())
        blob = self._blobs.put_blob(data)
        if digest == known.hash:
            return FileChanged(path, digest, "", blob, expected, note="it is again as you know it")
        old = self._content(known.blob) if known.hash and known.seq else b""
        new = data if blob == digest else self._blobs.read_blob(blob)
        diff, note = await self._quickly(len(data), lambda: change_of(old, new))
        if known.changes + 1 >= CHANGES_MAX:
            note = f"{note}; {BUSY}" if note else BUSY
        return FileChanged(path, digest, "", blob, expected, self._redact(diff), note)

    async def _quickly(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Run `work()`, in a thread when the content is large."""
        return work() if size_bytes <= QUICK_BYTES else await self._workspace.run_in_thread(work)

    def _content(self, blob: str) -> bytes | None:
        """Return the known content of a file, as far as it was stored."""
        try:
            return self._blobs.read_blob(blob) if blob else None
        except KeyError:
            return None


def watched(state: State) -> Mapping[str, KnownFile]:
    """Return the known files to watch: the most recent, and the instruction files of the static
    context.
    """
    files: Iterable[tuple[str, KnownFile]] = state.files.items()
    if len(state.files) > WATCHED_MAX:
        files = sorted(files, key=lambda pair: pair[1].seq, reverse=True)[
            :WATCHED_MAX
        ]  # faster than `nlargest`
    found = {
        path: seen
        for path, seen in files
        if seen.changes < CHANGES_MAX and not path.startswith(LIVE)
    }
    for source in state.prefix.sources if state.prefix else ():
        if source.path not in state.files:
            found[source.path] = KnownFile(source.hash, True, "", False, 0)
    return found


# --- Git branch -----------------------------------------------------------------------------------


class BranchWatcher:
    """Branch of the repository around the session's first folder. What was noticed is in the
    log.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._git_folder: str | None = None
        """'' for none; None until the first look."""
        self._first = ""
        """Branch at the first look, for a log that names none."""

    def change(self, state: State) -> tuple[Reminded, ...]:
        """Return the event of another branch than the last known one; () for none.

        While calls are open the change counts as theirs: it is recorded, and not told.
        """
        if self._git_folder is None:
            self._git_folder = (
                find_git_folder(self._workspace, state.roots[0]) if state.roots else ""
            )
        now = current_branch(self._workspace, self._git_folder) if self._git_folder else ""
        self._first = self._first or state.branch or now
        known = state.branch or self._first
        return (Reminded("branch_changed", "", now),) if now and now != known else ()
