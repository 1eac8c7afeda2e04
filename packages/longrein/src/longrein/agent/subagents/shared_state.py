"""State shared by all agents of a tree: slots, models, the shown question, active subagents."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from longrein.agent.concurrency_limits import FairSemaphore
from longrein.agent.messages import FromSubagent
from longrein.agent.open_session import OpenSession
from longrein.agent.session import Session
from longrein.agent.session_part import Subagents
from longrein.agent.subagent_host import SubagentHost
from longrein.agent.wakes import WakeSchedule
from longrein.models import Model
from longrein.workspace import FinishedWorktree
from longrein_context import State
from longrein_context.events import Entry, PermissionAsked, SubagentStarted

if TYPE_CHECKING:
    from longrein.agent.subagents.spawn import LiveParentPolicy

# --- Permission questions -------------------------------------------------------------------------
#
# Questions of the whole tree are shown one at a time: the next after the last was answered.


class SubagentQuestions:
    """Queue of permission questions of subagents."""

    def __init__(self, tree: "SubagentTree") -> None:
        self._root = tree.root
        self._waiting: deque[FromSubagent] = deque()
        self._shown: FromSubagent | None = None

    @property
    def shown(self) -> tuple[FromSubagent, ...]:
        """The question that waits for the user, for new subscribers."""
        return () if self._shown is None else (self._shown,)

    def ask(self, question: FromSubagent) -> None:
        """Queue a question, and show it when its turn has come."""
        self._waiting.append(question)
        self.look()

    def settled(self, child: str, call: str = "") -> None:
        """Remove the question of `call` of `child`, or all questions of `child`."""
        kept = [one for one in self._waiting if not _is(one, child, call)]
        self._waiting = deque(kept)
        if self._shown is not None and _is(self._shown, child, call):
            self._shown = None
        self.look()

    def look(self) -> None:
        """Show the next question, unless one is shown or the root itself asks."""
        if self._shown is not None or not self._waiting or self._root.state.asking:
            return
        self._shown = self._waiting.popleft()
        self._root.subscribers.publish(self._shown)


def _is(question: FromSubagent, child: str, call: str) -> bool:
    asked = question.heard.event if isinstance(question.heard, Entry) else None
    return question.child == child and (
        not call or (isinstance(asked, PermissionAsked) and asked.call == call)
    )


# --- Tree of agents -------------------------------------------------------------------------------


UNLIMITED = 1_000_000
"""Slots when no limit is set."""


class StartedSubagent:
    """A subagent that works or waits for a slot, here or elsewhere."""

    def __init__(self, seq: int, started: SubagentStarted) -> None:
        self.seq = seq
        """Seq of its first `SubagentStarted`; its label is `a<seq>`."""
        self.started = started
        self.task: asyncio.Task[None] | None = None
        self.finished: FinishedWorktree | None = None
        """Outcome of its worktree."""
        self.problem = ""
        """Reason why it cannot work at all."""
        self.cause = ""
        """Reason why the progress watch ended it."""
        self.begun = False
        """True once it has held a slot."""
        self.halt = asyncio.Event()
        """Set when it was told to end."""

    @property
    def done(self) -> bool:
        """True when it no longer works."""
        return self.task is not None and self.task.done()

    @property
    def stopped(self) -> bool:
        """True when it was told to end."""
        return self.halt.is_set()

    def stop(self) -> None:
        """End it now, with what it has."""
        self.halt.set()


class ActiveSubagent(StartedSubagent):
    """A subagent of this process."""

    def __init__(
        self,
        seq: int,
        started: SubagentStarted,
        session: OpenSession,
        first: int,
        policy: "LiveParentPolicy",
    ) -> None:
        super().__init__(seq, started)
        self.first = first
        """First entry of its log that it does not share with its parent's."""
        self.session = session
        self.policy = policy

    def stop(self) -> None:
        """See `StartedSubagent.stop`."""
        if self.stopped or self.done:
            return
        super().stop()
        self.session.ignores_inbox = True
        self.session.part(WakeSchedule).wanted = False
        self.session.interrupt()
        subagents = self.session.find(Subagents)
        if subagents is not None:
            subagents.stop()


class SubagentTree:
    """Shared state of a root session and its subagents."""

    def __init__(self, root: Session, open_host: Callable[[str], SubagentHost]) -> None:
        """`open_host` opens the host of a location. Raises `LongreinError`."""
        self.root = root
        self._open_host = open_host
        self.slots = FairSemaphore(root.deps.limits.agents_max or UNLIMITED)
        self.questions = SubagentQuestions(self)
        self.working: dict[str, ActiveSubagent] = {}
        """Active subagents of this process by session."""
        self.elsewhere: dict[str, StartedSubagent] = {}
        """Those that others run."""
        self._models: dict[str, Model] = {}
        self._hosts: dict[str, SubagentHost] = {}

    @property
    def states(self) -> Mapping[str, State]:
        """States of the active subagents."""
        return {session: one.session.state for session, one in self.working.items()}

    def model(self, name: str, own: Model) -> Model:
        """Return the model of that name ('' for `own`, the parent's), opened once for all. Raises
        `LongreinError`.
        """
        if name in ("", own.name):
            return own
        if name == self.root.deps.model.name:
            return self.root.deps.model
        if name not in self._models:
            self._models[name] = self.root.deps.open_model(name)
        return self._models[name]

    def host(self, location: str) -> SubagentHost:
        """Return the host of that name, opened once for all. Raises `LongreinError`."""
        if location not in self._hosts:
            self._hosts[location] = self._open_host(location)
        return self._hosts[location]

    async def close(self) -> None:
        """Close the hosts and the models."""
        hosts, self._hosts = self._hosts, {}
        for host in hosts.values():
            await host.close()
        models, self._models = self._models, {}
        for model in models.values():
            await model.aclose()
