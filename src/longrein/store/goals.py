"""The project's goals: a small graph that outlives conversations, in a database of its own that many processes share.

`Goals` implements what tools and frontends ask of it (`tools.GoalPort`). Each call is one short transaction in a thread
of its own, with a connection of its own: nothing is held between calls, nothing runs on the event loop.
"""

import asyncio
import hashlib
import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from longrein.events import Goal, ToolError
from longrein.store.folder import on_network
from longrein.store.port import LEASE_US
from longrein.store.threads import in_thread

BEAT_US = LEASE_US // 3
"""How often one is given at least, while its owner works."""


def project_key(root: str) -> str:
    """Name of the goals' database of the project in folder `root`: readable, and another for each folder."""
    real = os.path.realpath(root)
    readable = "".join(sign if sign.isalnum() and sign.isascii() else "-" for sign in os.path.basename(real))
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
    return f"{readable.strip('-')[:32] or 'root'}-{digest}"


def owner_of(session: str, label: str = "") -> str:
    """Who claims: a session, or a subagent in it by its label."""
    return f"{session}/{label}" if label else session


class Goals:
    """Goals of one project, as one agent sees and changes them. Made without touching the disk."""

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
        """`key`: see `project_key`. `wall_us` is called in threads too. `redact` replaces secrets in what is written.
        `network`: what kind of file system the state folder is on; None finds out."""
        self.path = os.path.join(state_dir, "goals", f"{key}.sqlite")
        """The database, there or not."""
        self.owner = owner
        """In whose name claims are made."""
        self._wall_us = wall_us
        self._redact = redact
        self._network = network
        self._seen: dict[int, int] = {}
        self._agents: dict[str, Goals] = {owner: self}
        self._beaten_us = 0
        self._beat: Future[Any] | None = None
        """The last sign of life, which may still be on its way."""

    @property
    def begun(self) -> bool:
        """Whether the project has ever had a goal."""
        return os.path.exists(self.path)

    def by(self, owner: str) -> "Goals":
        """The same goals as another agent of this process sees and changes them; the same object each time."""
        if owner not in self._agents:
            state_dir, name = os.path.dirname(os.path.dirname(self.path)), os.path.basename(self.path)
            key = name.removesuffix(".sqlite")
            other = Goals(state_dir, key, owner, self._wall_us, redact=self._redact, network=self._network)
            other._agents = self._agents
            self._agents[owner] = other
        return self._agents[owner]

    async def goals(self, *, every: bool = False) -> Sequence[Goal]:
        """See `tools.GoalPort.goals`."""
        if not self.begun:
            return ()
        found: Sequence[Goal] = await self._do("listed", every)
        return found

    async def add(self, title: str, body: str, blocked_by: Sequence[int]) -> Goal:
        """See `tools.GoalPort.add`."""
        goal: Goal = await self._do("added", self._clean(title), self._clean(body), tuple(blocked_by))
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
        """See `tools.GoalPort.update`."""
        texts = (self._clean(title) if title else None, None if body is None else self._clean(body))
        waits = None if blocked_by is None else tuple(blocked_by)
        now, freed = await self._do("updated", goal, (status or None, *texts, waits, claim), self._seen)
        if (status, title, body, blocked_by, claim) != ("", "", None, None, None):
            self._seen[goal] = now.revision
        return now, freed

    def unseen(self, goals: Sequence[Goal]) -> list[Goal]:
        """Those of `goals` that this agent did not know as they are; it does now."""
        news = [goal for goal in goals if self._seen.get(goal.id) != goal.revision]
        self._seen.update((goal.id, goal.revision) for goal in news)
        return news

    def beat(self) -> None:
        """A sign of life: the caller's claims hold on. Costs something once in five minutes, and never waits."""
        now_us = self._wall_us()
        if abs(now_us - self._beaten_us) >= BEAT_US and self.begun:
            self._beaten_us = now_us
            self._beat = in_thread(lambda: self._work("beaten"), "goals")  # what goes wrong the next real call tells

    async def leave(self) -> None:
        """The caller's work is over: what it had claimed and not completed is free, and stays in progress. Never
        fails: a claim that could not be given back runs out."""
        if not self._beaten_us or not self.begun:
            return
        try:
            if self._beat is not None:
                await asyncio.wrap_future(self._beat)
            await self._do("left")
        except ToolError:
            pass

    def _clean(self, text: str) -> str:
        return self._redact(text.encode("utf-8", "replace").decode().replace("\0", ""))

    async def _do(self, name: str, *values: object) -> Any:
        self._beaten_us = self._wall_us()
        return await asyncio.wrap_future(in_thread(lambda: self._work(name, *values), "goals"))

    def _work(self, name: str, *values: object) -> Any:
        """In a thread: the whole of one call. `store.goal_graph` is imported at first use: few sessions have goals."""
        graph = importlib.import_module("longrein.store.goal_graph")
        file = importlib.import_module("longrein.store.goal_file")
        if self._network is None:
            self._network = on_network(os.path.dirname(os.path.dirname(self.path)))
        now_us = self._wall_us()

        def act(connection: Any) -> Any:
            return getattr(graph, name)(graph.Graph(connection, self.owner, now_us), *values)

        return file.transaction(self.path, act, network=self._network)
