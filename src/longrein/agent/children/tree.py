"""What all agents below one root share: places to work, models, the one question that is shown, who works now."""

import asyncio
from collections.abc import Mapping

from longrein.agent.children.gate import Gate
from longrein.agent.children.questions import Questions
from longrein.agent.opening import OpenSession
from longrein.agent.session import Session
from longrein.context import State
from longrein.events import ChildStarted
from longrein.models import Model
from longrein.workspace import Finished, Worktree

UNLIMITED = 1_000_000
"""Agents at once where no limit is set."""


class Working:
    """One subagent that works, or waits for its turn."""

    def __init__(self, seq: int, started: ChildStarted, session: OpenSession, first: int) -> None:
        self.seq = seq
        """Of its first `ChildStarted`: it is called `a<seq>`."""
        self.first = first
        """First entry of its log that it does not share with its parent's."""
        self.started, self.session = started, session
        self.walk: asyncio.Task[None] | None = None
        self.worktree: Worktree | None = None
        self.finished: Finished | None = None
        """What became of its worktree."""
        self.problem = ""
        """Why it cannot work at all."""
        self.cause = ""
        """Why the watchdog ended it."""
        self.begun = False
        """Whether it had a place to work already."""
        self.halt = asyncio.Event()
        """Set when it was told to end."""

    @property
    def done(self) -> bool:
        """Whether it works no more."""
        return self.walk is not None and self.walk.done()

    @property
    def stopped(self) -> bool:
        """Whether it was told to end."""
        return self.halt.is_set()

    def stop(self) -> None:
        """Let it end now, with what it has."""
        if self.stopped or self.done:
            return
        self.halt.set()
        self.session.deaf, self.session.wakes.wanted = True, False
        self.session.interrupt()
        if self.session.company is not None:
            self.session.company.stop()


class Tree:
    """One for each root."""

    def __init__(self, root: Session) -> None:
        self.root = root
        self.gate = Gate(root.crew.limits.agents_max or UNLIMITED)
        self.questions = Questions(root)
        self.working: dict[str, Working] = {}
        """By session."""
        self._models: dict[str, Model] = {}

    @property
    def states(self) -> Mapping[str, State]:
        """Of those that work."""
        return {session: one.session.state for session, one in self.working.items()}

    def model(self, name: str, parent: Session) -> Model:
        """The model of that name ('' for the parent's), opened once for all. Raises `LongreinError`."""
        own = parent.crew.model
        if name in ("", own.name):
            return own
        if name == self.root.crew.model.name:
            return self.root.crew.model
        if name not in self._models:
            self._models[name] = self.root.crew.open_model(name)
        return self._models[name]

    async def close(self) -> None:
        """Let go of the models."""
        models, self._models = self._models, {}
        for model in models.values():
            await model.aclose()
