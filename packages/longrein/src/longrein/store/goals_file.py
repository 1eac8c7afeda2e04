"""The goals of a project, in a file of their own that sessions and processes share.

Each call of `Goals` locks the file, changes it and replaces it whole, in
a thread, so nothing is held between calls and nothing blocks the event loop.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec

from longrein.atomic_file import replace_file
from longrein.store import goal_graph
from longrein.store.daemon_threads import run_in_thread
from longrein.store.database import read_only
from longrein.store.disk_errors import store_failure
from longrein.store.goal_graph import LAYOUT, StoredGoals
from longrein.store.session_folder import make_folder
from longrein.store.store_port import LEASE_US
from longrein_context.events import Goal, StoreFull, ToolError

RENEW_US = LEASE_US // 3
"""Interval of renewals of claims while the owner works, in microseconds."""


def project_key(root: str) -> str:
    """Return the name of the goals file of the project in `root`: readable and unique to the
    folder.
    """
    real = os.path.realpath(root)
    readable = "".join(
        sign if sign.isalnum() and sign.isascii() else "-" for sign in os.path.basename(real)
    )
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
    return f"{readable.strip('-')[:32] or 'root'}-{digest}"


def owner_of(session: str, label: str = "") -> str:
    """Return the owner name of a session, or of the subagent `label` in it."""
    return f"{session}/{label}" if label else session


class Goals:
    """Goals of one project, shared by all its sessions, as one agent sees them. Construction does
    not touch the disk. Methods raise `ToolError` that says what to do.
    """

    def __init__(
        self,
        state_dir: str,
        key: str,
        owner: str,
        wall_us: Callable[[], int],
        *,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        """Set up access for `owner`, who makes new claims: a session, `session/a398` for a
        subagent, or `user`.

        `key`: see `project_key`. `wall_us`: microseconds UTC, also in threads. `redact` removes
        secrets from texts.
        """
        self.path = os.path.join(state_dir, "goals", f"{key}.json")
        self.owner = owner
        self._wall_us = wall_us
        self._redact = redact
        self._seen: dict[int, int] = {}
        self._agents: dict[str, Goals] = {owner: self}
        self._renewed_us = 0
        self._renewal: Future[Any] | None = None
        """The last renewal of claims, which may still be running."""

    @property
    def begun(self) -> bool:
        """Return True if the project has ever had a goal."""
        return os.path.exists(self.path) or os.path.exists(_old_database(self.path))

    def by(self, owner: str) -> "Goals":
        """Return the same goals for another agent of this process; the same object for the same
        owner.
        """
        if owner not in self._agents:
            state_dir, name = (
                os.path.dirname(os.path.dirname(self.path)),
                os.path.basename(self.path),
            )
            key = name.removesuffix(".json")
            other = Goals(state_dir, key, owner, self._wall_us, redact=self._redact)
            other._agents = self._agents
            self._agents[owner] = other
        return self._agents[owner]

    async def goals(self, *, every: bool = False) -> Sequence[Goal]:
        """Return open goals ordered by id; with `every` also completed and deleted ones."""
        if not self.begun:
            return ()
        found: Sequence[Goal] = await self._run(goal_graph.list_goals, every)
        return found

    async def add(self, title: str, body: str, blocked_by: Sequence[int]) -> Goal:
        """Add a goal. Ids increase and are never reused."""
        goal: Goal = await self._run(
            goal_graph.add_goal, self._clean(title), self._clean(body), tuple(blocked_by)
        )
        self._seen[goal.id] = goal.revision
        return goal

    async def update(
        self,
        goal: int,
        *,
        status: str = "",
        title: str = "",
        body: str | None = None,
        blocked_by: Sequence[int] | None = None,
        claim: bool | None = None,
    ) -> tuple[Goal, Sequence[Goal]]:
        """Change a goal. Returns it, and the goals that the change unblocked. `claim` claims or
        releases it.

        Refuses to claim a goal that is blocked or claimed by another agent, to create a cycle, and
        to overwrite text that this agent has not seen.
        """
        change = goal_graph.Change(
            status or None,
            self._clean(title) if title else None,
            None if body is None else self._clean(body),
            None if blocked_by is None else tuple(blocked_by),
            claim,
        )
        now, freed = await self._run(goal_graph.update_goal, goal, change, self._seen)
        if change != goal_graph.Change():
            self._seen[goal] = now.revision
        return now, freed

    def unseen(self, goals: Sequence[Goal]) -> list[Goal]:
        """Return those of `goals` that are new or changed for this agent, and mark them as seen."""
        news = [goal for goal in goals if self._seen.get(goal.id) != goal.revision]
        self._seen.update((goal.id, goal.revision) for goal in news)
        return news

    def beat(self) -> None:
        """Renew this agent's claims. Writes at most once in five minutes, and never waits."""
        now_us = self._wall_us()
        if abs(now_us - self._renewed_us) >= RENEW_US and self.begun:
            self._renewed_us = now_us
            # the next real call reports an error
            self._renewal = run_in_thread(
                lambda: self._run_locked(goal_graph.renew_claims), "goals"
            )

    async def leave(self) -> None:
        """Release this agent's claims; unfinished goals stay in progress. A claim that cannot be
        released expires.
        """
        if not self._renewed_us or not self.begun:
            return
        with contextlib.suppress(ToolError):
            if self._renewal is not None:
                await asyncio.wrap_future(self._renewal)
            await self._run(goal_graph.release_claims)

    def _clean(self, text: str) -> str:
        return self._redact(text.encode("utf-8", "replace").decode().replace("\0", ""))

    async def _run(self, operation: Callable[..., Any], *arguments: object) -> Any:
        self._renewed_us = self._wall_us()
        return await asyncio.wrap_future(
            run_in_thread(lambda: self._run_locked(operation, *arguments), "goals")
        )

    def _run_locked(self, operation: Callable[..., Any], *arguments: object) -> Any:
        """Run `operation` on the goal graph and store it, all or nothing. Called in a thread."""
        now_us = self._wall_us()

        def act(stored: StoredGoals) -> Any:
            return operation(goal_graph.GoalGraph(stored, self.owner, now_us), *arguments)

        return change_file(self.path, act)


# --- The file -------------------------------------------------------------------------------------


T = TypeVar("T")
BUSY_S = 10.0
"""Time that a change waits for other processes."""
PAUSE_S = 0.01


def change_file(path: str, act: Callable[[StoredGoals], T]) -> T:
    """Run `act` on the content of the file at `path`, which is created if missing, and store what
    it changes. Other processes wait meanwhile.

    Raises `ToolError` with a text for the caller when the file cannot be used.
    """
    try:
        make_folder(os.path.dirname(path))
        with _file_lock(path):
            data = _read(path)
            stored = _decoded(data, path) if data else _goals_before(_old_database(path))
            found = act(stored)
            new = msgspec.json.format(msgspec.json.encode(stored)) + b"\n"
            if new != data:
                replace_file(path, (new,), durable=True)
            return found
    except OSError as error:
        if isinstance(store_failure(error, os.path.dirname(path)), StoreFull):
            raise ToolError(
                f"[disk-full] There is no room for the goals in {path}; nothing was changed. Go "
                "on without goals."
            ) from None
        why = error.strerror or error
        raise ToolError(
            f"[goals] {path} cannot be used ({why}); nothing was changed. Go on without goals."
        ) from None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _decoded(data: bytes, path: str) -> StoredGoals:
    try:
        stored = msgspec.json.decode(data, type=StoredGoals)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, error) from None
    if stored.layout > LAYOUT:
        raise ToolError(
            f"[newer] {path} was written by a newer longrein; upgrade this one to use the goals."
        )
    return stored


def _damaged(path: str, error: Exception) -> ToolError:
    return ToolError(
        f"[damaged] The file of the goals, {path}, is damaged ({error}); nothing was changed. "
        "Ask the user to mend or remove it."
    )


OLD_GOALS = """
SELECT json_object(
    'last', (SELECT coalesce(max(seq), 0) FROM sqlite_sequence),
    'changed_by', json_group_object(id, changed_by),
    'goals', json_group_object(id, json_object(
        'id', id, 'title', title, 'status', status, 'body', body, 'owner', owner,
        'lease_until', lease_until, 'revision', revision, 'blocked_by',
        (SELECT json_group_array(blocker) FROM blocks WHERE goal = goals.id))))
FROM goals
"""
"""`StoredGoals` as JSON, from the database that earlier versions of longrein kept the goals in."""


def _old_database(path: str) -> str:
    return path.removesuffix(".json") + ".sqlite"


def _goals_before(path: str) -> StoredGoals:
    """Return the goals in the database of an earlier longrein, which stays as it is."""
    if not os.path.exists(path):
        return StoredGoals()
    try:
        with contextlib.closing(read_only(path)) as connection:
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                return StoredGoals()  # the first goal was never written
            return _decoded(connection.execute(OLD_GOALS).fetchone()[0].encode(), path)
    except sqlite3.Error as error:
        raise _damaged(path, error) from None


@contextlib.contextmanager
def _file_lock(path: str) -> Iterator[None]:
    """Keep other processes and threads from using the file inside the block."""
    descriptor = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int) -> None:
    for _ in range(round(BUSY_S / PAUSE_S)):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        threading.Event().wait(PAUSE_S)
    raise ToolError("[busy] Other processes keep the goals busy; nothing was changed. Try again.")
