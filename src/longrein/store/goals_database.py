"""The goals of a project, in a database of their own that sessions and processes share.

`Goals` implements `tools.GoalPort`. Each call is one short transaction in a thread with a
connection of its own, so nothing is held between calls and nothing blocks the event loop.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from longrein.atomic_file import move_into_place
from longrein.events import Goal, StoreFull, ToolError
from longrein.store import goal_graph
from longrein.store.database import copy_tables, read_only, transaction
from longrein.store.disk_errors import is_damage, store_failure
from longrein.store.session_folder import is_on_network, make_folder, new_file, unlink
from longrein.store.store_port import LEASE_US
from longrein.store.threads import run_in_thread

RENEW_US = LEASE_US // 3
"""Interval of renewals of claims while the owner works, in microseconds."""


def project_key(root: str) -> str:
    """Return the name of the goals database of the project in `root`: readable and unique to the
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
    """Goals of one project, for one agent. Construction does not touch the disk."""

    def __init__(
        self,
        state_dir: str,
        key: str,
        owner: str,
        wall_us: Callable[[], int],
        *,
        redact: Callable[[str], str] = lambda text: text,
        network: bool | None = None,
    ) -> None:
        """Set up access for `owner`.

        `key`: see `project_key`. `wall_us`: microseconds UTC, also in threads. `redact` removes
        secrets from texts.

        `network`: whether the state folder is on a network file system; None finds out.
        """
        self.path = os.path.join(state_dir, "goals", f"{key}.sqlite")
        self.owner = owner
        self._wall_us = wall_us
        self._redact = redact
        self._network = network
        self._seen: dict[int, int] = {}
        self._agents: dict[str, Goals] = {owner: self}
        self._renewed_us = 0
        self._renewal: Future[Any] | None = None
        """The last renewal of claims, which may still be running."""

    @property
    def begun(self) -> bool:
        """Return True if the project has ever had a goal."""
        return os.path.exists(self.path)

    def by(self, owner: str) -> "Goals":
        """Return the same goals for another agent of this process; the same object for the same
        owner.
        """
        if owner not in self._agents:
            state_dir, name = (
                os.path.dirname(os.path.dirname(self.path)),
                os.path.basename(self.path),
            )
            key = name.removesuffix(".sqlite")
            other = Goals(
                state_dir, key, owner, self._wall_us, redact=self._redact, network=self._network
            )
            other._agents = self._agents
            self._agents[owner] = other
        return self._agents[owner]

    async def goals(self, *, every: bool = False) -> Sequence[Goal]:
        if not self.begun:
            return ()
        found: Sequence[Goal] = await self._run(goal_graph.list_goals, every)
        return found

    async def add(self, title: str, body: str, blocked_by: Sequence[int]) -> Goal:
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
                lambda: self._run_in_transaction(goal_graph.renew_claims), "goals"
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
            run_in_thread(lambda: self._run_in_transaction(operation, *arguments), "goals")
        )

    def _run_in_transaction(self, operation: Callable[..., Any], *arguments: object) -> Any:
        """Run `operation` on the goal graph in one transaction. Called in a thread."""
        if self._network is None:
            self._network = is_on_network(os.path.dirname(os.path.dirname(self.path)))
        now_us = self._wall_us()

        def act(connection: Any) -> Any:
            return operation(goal_graph.GoalGraph(connection, self.owner, now_us), *arguments)

        return run_transaction(self.path, act, network=self._network)


# --- Database file --------------------------------------------------------------------------------
#
# A damaged database is never written to. It is set aside as `….damaged-<n>`, and what can be read
# goes into a new one.


T = TypeVar("T")
LAYOUT = 1
TABLES = f"""
CREATE TABLE goals(id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, status TEXT NOT NULL, body TEXT NOT NULL,
    owner TEXT NOT NULL, lease_until INTEGER NOT NULL, revision INTEGER NOT NULL, changed_by TEXT NOT NULL,
    changed_at INTEGER NOT NULL);
CREATE TABLE blocks(goal INTEGER NOT NULL, blocker INTEGER NOT NULL, PRIMARY KEY(goal, blocker)) WITHOUT ROWID;
PRAGMA user_version={LAYOUT};
"""  # noqa: E501
# goals.id is never reused; deleted goals and all edges stay, and whether a goal blocks is computed
BUSY_S = 10.0
"""Time that a transaction waits for other processes."""


def run_transaction(path: str, act: Callable[[sqlite3.Connection], T], *, network: bool) -> T:
    """Run `act` on the database at `path`, created if missing, in one transaction.

    Raises `ToolError` with a text for the caller when the file cannot be used.
    """
    try:
        make_folder(os.path.dirname(path))
        with contextlib.suppress(FileExistsError):
            os.close(new_file(path))
        with (
            contextlib.closing(_open(path, network=network)) as connection,
            transaction(connection),
        ):
            _create_tables(connection, path)
            return act(connection)
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise _repair(path, str(error)) from None
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise ToolError(
                "[busy] Other processes keep the goals busy; nothing was changed. Try again."
            ) from None
        raise _tool_error(error, path) from None
    except OSError as error:
        raise _tool_error(error, path) from None


def _tool_error(error: Exception, path: str) -> ToolError:
    if isinstance(store_failure(error, os.path.dirname(path)), StoreFull):
        return ToolError(
            f"[disk-full] There is no room for the goals in {path}; nothing was changed."
        )
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    return ToolError(f"[goals] {path} cannot be used ({why}); nothing was changed.")


def _open(path: str, *, network: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)
    try:
        wanted = "delete" if network else "wal"
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
            with _file_lock(path):  # processes that change it at once would fail without waiting
                connection.execute(f"PRAGMA journal_mode={wanted}")
        connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _create_tables(connection: sqlite3.Connection, path: str) -> None:
    layout = connection.execute("PRAGMA user_version").fetchone()[0]
    if layout > LAYOUT:
        raise ToolError(
            f"[newer] {path} was written by a newer longrein; upgrade this one to use the goals."
        )
    if layout == 0:
        for statement in TABLES.split(";\n")[:-1]:
            connection.execute(statement)


def _repair(path: str, why: str) -> ToolError:
    """Set the damaged file aside and build a new one from what can be read; return the error for
    the caller.
    """
    with _file_lock(path):
        if _is_sound(path):  # another process has repaired it meanwhile
            return ToolError("[goals] The goals were being mended; nothing was changed. Try again.")
        numbered = (f"{path}.damaged-{number}" for number in itertools.count(1))
        aside, building = next(name for name in numbered if not os.path.exists(name)), path + ".new"
        unlink(building)
        os.close(new_file(building))
        kept = _copy_readable(path, building)
        for end in ("-wal", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(path + end, aside + end)
        unlink(path + "-shm")
        try:
            os.link(path, aside)
        except OSError:  # a file system without links
            os.rename(path, aside)
        move_into_place(building, path)
    return ToolError(
        f"[damaged] The goals' database was damaged ({why}) and is set aside as {aside}; {kept} "
        "goals could be kept. "
        "Nothing was changed now: list them and try again."
    )


@contextlib.contextmanager
def _file_lock(path: str) -> Iterator[None]:
    """Keep other processes from creating or repairing the file inside the block."""
    descriptor = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_sound(path: str) -> bool:
    try:
        with contextlib.closing(
            sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)
        ) as connection:
            sound: bool = connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
            return sound
    except sqlite3.DatabaseError:
        return False


def _copy_readable(damaged: str, building: str) -> int:
    """Copy what can be read; return the number of goals. The id counter continues as far as it
    is known.
    """
    with contextlib.closing(sqlite3.connect(building, isolation_level=None)) as target:
        target.execute("BEGIN")
        _create_tables(target, building)
        with (
            contextlib.suppress(sqlite3.DatabaseError),
            contextlib.closing(read_only(damaged)) as source,
        ):
            copy_tables(source, target, ("goals", "blocks"))
            last = source.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()[0] or 0
            known = target.execute("SELECT coalesce(max(id), 0) FROM goals").fetchone()[0]
            target.execute("DELETE FROM sqlite_sequence")
            target.execute(
                "INSERT INTO sqlite_sequence(name, seq) VALUES('goals', ?)", (max(last, known),)
            )
        kept: int = target.execute("SELECT count(*) FROM goals").fetchone()[0]
        target.execute("COMMIT")
    return kept
