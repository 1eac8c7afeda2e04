"""What all agents below one root share: places to work, models, the one question that is shown, who works now."""

import asyncio
from collections import deque
from collections.abc import Mapping

from longrein.agent.messages import OfChild
from longrein.agent.open_session import OpenSession
from longrein.agent.session import Session
from longrein.context import State
from longrein.events import ChildStarted, Entry, PermissionAsked
from longrein.models import Model
from longrein.workspace import FinishedWorktree, Worktree

# ---------------------------------------------------------------------------------------------------------------------
#
# A door for so many at once: who must wait is let in in turn, one of each owner at a time, so that none is starved.


class Gate:
    """At most `most` inside. Who comes back from waiting for others goes first: what hangs on it can then end."""

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self.inside = 0
        """How many are; above `most` only after `force`."""
        self._back: deque[asyncio.Future[None]] = deque()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        """How many want in."""
        return len(self._back) + sum(map(len, self._waiting.values()))

    async def enter(self, owner: str, *, back: bool = False) -> None:
        """Wait for a place. `back`: one that was inside before. Cancelled, nothing is held."""
        if self.inside < self.most and not self.waiting:
            self.inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._back if back else self._waiting.setdefault(owner, deque())).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()
            raise

    async def enter_or(self, halt: asyncio.Event, owner: str) -> bool:
        """Wait for a place, or until `halt` is set: False, and nothing is held then."""
        if halt.is_set():
            return False
        entering, halting = asyncio.ensure_future(self.enter(owner)), asyncio.ensure_future(halt.wait())
        try:
            await asyncio.wait((entering, halting), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if entering.done():
                self.leave()
            raise
        finally:
            halting.cancel()
            entered = entering.done()
            entering.cancel()
        return entered

    def force(self) -> None:
        """Go in without waiting: for one that has only to write down how it was cut."""
        self.inside += 1

    def leave(self) -> None:
        """Make room for the next."""
        self.inside -= 1
        while self.inside < self.most and (place := self._next()) is not None:
            self.inside += 1
            place.set_result(None)

    def _next(self) -> "asyncio.Future[None] | None":
        while self._back:
            place = self._back.popleft()
            if not place.done():
                return place
        while self._waiting:
            owner, queue = next(iter(self._waiting.items()))
            del self._waiting[owner]
            place = queue.popleft()
            if queue:  # its others come after everybody else's
                self._waiting[owner] = queue
            if not place.done():
                return place
        return None


# ---------------------------------------------------------------------------------------------------------------------
#
# Approvals of a whole tree, shown one at a time: the next question is heard when the last one was answered.


class Questions:
    """What subagents ask. A question is held back until its turn; nothing else of a subagent is."""

    def __init__(self, root: Session) -> None:
        self._root = root
        self._waiting: deque[OfChild] = deque()
        self._shown: OfChild | None = None

    @property
    def shown(self) -> tuple[OfChild, ...]:
        """The question that waits for the user, for those who begin to listen now."""
        return () if self._shown is None else (self._shown,)

    def ask(self, question: OfChild) -> None:
        """Let it be heard when its turn has come."""
        self._waiting.append(question)
        self.look()

    def settled(self, child: str, call: str = "") -> None:
        """`call` of `child` waits no more (without `call`: nothing of it does)."""
        kept = [one for one in self._waiting if not _is(one, child, call)]
        self._waiting = deque(kept)
        if self._shown is not None and _is(self._shown, child, call):
            self._shown = None
        self.look()

    def look(self) -> None:
        """Show the next one, unless one is shown or the root itself asks."""
        if self._shown is not None or not self._waiting or self._root.state.asking:
            return
        self._shown = self._waiting.popleft()
        self._root.readers.publish(self._shown)


def _is(question: OfChild, child: str, call: str) -> bool:
    asked = question.heard.event if isinstance(question.heard, Entry) else None
    return question.child == child and (not call or (isinstance(asked, PermissionAsked) and asked.call == call))


# --- tree ------------------------------------------------------------------------------------------------------------


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
        self.finished: FinishedWorktree | None = None
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
