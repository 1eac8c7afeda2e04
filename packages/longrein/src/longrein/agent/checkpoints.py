"""Checkpoints of a session: the work tree is kept before and after each call that may change files.

The copies lie in the session's folder (`workspace.checkpoints`); `CheckpointTaken` in the log says
which belongs to which call. `agent.rewind_log` reads them.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import msgspec

from longrein.agent.change_detection import may_change
from longrein.agent.current_rules import CurrentRules
from longrein.agent.session_part import Checkpoints
from longrein.atomic_file import replace_file
from longrein.store.session_folder import make_folder
from longrein.tools import Tool
from longrein.workspace import run_in_background
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.tree_records import CheckpointError, TreeRecord
from longrein.workspace.users_repository import GIT_S
from longrein_context.events import CheckpointTaken

if TYPE_CHECKING:
    from longrein.agent.stored_trees import StoredNames

T = TypeVar("T")

TOLD_AFTER_S = 20.0
"""Seconds after which a look at the work tree that has not ended is told."""
UNCLAIMED_MAX = 2_000
"""Files that a checkpoint names; beyond them the whole roots count as changed by others."""
SHRINK_EVERY = 50
"""Checkpoints after which the space that they take is looked at."""


def place_of(folder: str, root: str) -> str:
    """Return an id of a work tree whose checkpoints are in `folder`, which no other machine has."""
    path = os.path.join(folder, "place")
    if not os.path.exists(path):
        make_folder(folder)
        replace_file(path, [uuid4().hex.encode()], durable=False)
    with open(path, encoding="ascii") as file:
        return f"{file.read()}-{sha256(os.fsencode(root)).hexdigest()[:16]}"


def needs_checkpoint(
    now: CurrentRules, tool: Tool, arguments: Mapping[str, Any], *, is_shared: bool
) -> bool:
    """Return True if a call may change files in a way that the log does not record: a command or
    a subagent. `is_shared`: in any way, because other machines take the tree from the store.
    """
    if is_shared and tool.access == "write":
        return True
    return tool.traits.kind == "agent" or may_change(now, tool, arguments)


class SessionCheckpoints(Checkpoints):
    """Takes and loads the checkpoints of one session. Belongs to one event loop."""

    def __init__(
        self,
        store: CheckpointStore,
        bytes_max: int,
        *,
        keeps_index: bool = True,
        place: str = "",
    ) -> None:
        """`bytes_max`: space that the checkpoints of the session may take. `keeps_index`: False
        for a session that will hardly go on: its next command reads the work tree anew.

        `place`: id of this work tree for a session in a shared store.
        """
        self._store, self._bytes_max, self._keeps_index = store, bytes_max, keeps_index
        self.place = place
        self._stored: StoredNames | None = None
        self._told: set[str] = set()
        self._taken = 0
        self._running: set[str] = set()
        """Calls that run, and those that ended after the last look that succeeded."""
        self._ended: set[str] = set()
        """Those that ended."""
        self._keeping = asyncio.Lock()
        """Held during a look and the questions about what it found."""
        self._warming: asyncio.Future[None] | None = None

    async def release(self) -> None:
        if not self._keeps_index and not self._taken:
            self._store.give_up()  # no call came, so nobody waits for the first look
        await self.run(self._close)

    def _close(self, store: CheckpointStore) -> None:
        if not self._keeps_index:
            store.forget_indexes()
        store.close()

    def warm(self) -> None:
        """Look at the work tree for the first time, while the model still writes its call."""
        if self._warming is None:
            self._warming = run_in_background(self._warm)

    def _warm(self) -> None:
        try:
            with self._store.lock:
                self._store.take(self.session.deps.workspace.roots)
        except (CheckpointError, OSError):
            return  # told when a call needs it

    async def keep(self, when: str, calls: Collection[str] = ()) -> dict[str, TreeRecord]:
        session = self.session
        async with self._keeping:
            touched: list[str] = []
            trusts_watch = when in ("before", "after")
            name, records, problem = await self._look(touched, trusts_watch=trusts_watch)
            unclaimed: Sequence[str] = ()
            traced = False
            if when != "before":
                self._ended |= set(calls)
            if not problem:  # else the next look tells what changed
                unclaimed, traced = await self._unclaimed(touched)
                self._running -= self._ended
                self._ended.clear()
            if when == "before":
                self._running |= set(calls)
            event = CheckpointTaken(when, name, tuple(calls), problem, tuple(unclaimed), traced)
            session.append(await self._store_trees(event) if self.place else event)
        if problem:
            self._tell(
                f"a rewind cannot undo what commands change ({problem}); it restores what Edit "
                "and Write did"
            )
        return records

    async def _store_trees(self, event: CheckpointTaken) -> CheckpointTaken:
        """Put what the shared store lacks of the work tree into the next commit."""
        from longrein.agent.stored_trees import StoredNames, pack_trees

        session = self.session
        if self._stored is None:
            entries = session.entries_of("CheckpointTaken")
            self._stored = StoredNames(entry.event for entry in entries)
        event = msgspec.structs.replace(event, place=self.place)
        names = self._stored.new(event.checkpoint) if event.checkpoint else []
        if names:
            root, last = session.deps.workspace.roots[0], self._stored.last
            work = partial(pack_trees, root, names, last)
            try:
                records, path = await self.run(work)
                pack = await session.log.adopt(path) if path else ""
                stored = session.log.put_blob(records)
                event = msgspec.structs.replace(event, records=stored, pack=pack)
            except (CheckpointError, OSError) as error:
                self._tell(f"other machines do not get the files of this session: {error}")
        self._stored.note(event)
        return event

    def _tell(self, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            self.session.notice(problem)

    async def _unclaimed(self, touched: Sequence[str]) -> tuple[Sequence[str], bool]:
        """Return those of the files that changed while calls ran that no agent and no call has
        written, and whether that is known. Files that are gone count as the calls'.
        """
        writers, workspace = self.session.deps.writers, self.session.deps.workspace
        others, is_complete = await workspace.spawner.unwritten(touched if self._running else ())
        is_untraced = writers.take_untraced()
        if not self._running or is_untraced or not is_complete:
            return (), False
        if len(others) > UNCLAIMED_MAX:
            return [f"{root}/" for root in workspace.roots], True
        contents = await workspace.run_in_thread(
            lambda: {path: workspace.hash(path) for path in others}
        )
        return sorted(path for path in others if not writers.of(path, contents[path])), True

    async def keep_after(self, call: str) -> None:
        try:
            await self.keep("after", [call])
        except asyncio.CancelledError:
            if not self.session.interrupting:
                raise

    async def copy_tree(self) -> tuple[str, dict[str, TreeRecord], str]:
        return await self._look(None)

    async def _look(
        self, touched: list[str] | None, *, trusts_watch: bool = False
    ) -> tuple[str, dict[str, TreeRecord], str]:
        """Keep the work tree; `touched` takes the files that changed since it was last given.

        `trusts_watch`: see `CheckpointStore.take`. What the kernel does not tell is no change of a
        call, which closes its files, but for one through a hard link outside the roots: nobody
        knows whose that is, and the next look that reads the tree finds it.
        """
        roots = self.session.deps.workspace.roots
        self._taken += 1
        shrink = self._taken % SHRINK_EVERY == 0

        def work(store: CheckpointStore) -> tuple[str, dict[str, TreeRecord]]:
            if shrink:
                store.shrink(self._bytes_max)
            taken = store.take(roots, trusts_watch=trusts_watch)
            if touched is not None:
                touched.extend(store.take_touched())
            return taken

        try:
            name, records = await self.run(work)
        except (CheckpointError, OSError) as error:
            return "", {}, str(error)
        return name, records, ""

    async def run(self, work: Callable[[CheckpointStore], T]) -> T:

        def locked() -> T:
            with self._store.lock:
                return work(self._store)

        done = run_in_background(locked)
        finished, _ = await asyncio.wait({done}, timeout=TOLD_AFTER_S)
        if not finished:
            self.session.notice(
                f"git has worked for {TOLD_AFTER_S:g} s on the copies of the work tree from which "
                f"a rewind restores it; each of its commands is given up after {GIT_S:g} s"
            )
        return await asyncio.shield(done)
