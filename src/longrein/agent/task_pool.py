"""Background task slots of a tree of agents, and their news from the supervisor.

Slots are given round-robin to the waiting agents, so that an agent with a hundred tasks does not starve one with a
single task.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from longrein.workspace import Supervision

if TYPE_CHECKING:
    from longrein.agent.background.tasks import SessionTasks


class TaskPool:
    """Task slots of a tree of agents. Belongs to one event loop."""

    def __init__(self, supervision: Supervision, running_max: int = 32) -> None:
        self.supervision = supervision
        self.running_max = max(1, running_max)
        """Tasks that run in parallel; more wait."""
        self.running = 0
        """Slots in use; may exceed `running_max` through promoted commands, which run already."""
        self.session = ""
        """Session of the user, which owns all these commands."""
        self.members: dict[str, SessionTasks] = {}
        """Members by agent label, '' for the session of the user."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiters by label; the first label is served next."""
        supervision.on_news(self._news)

    def join(self, label: str, member: "SessionTasks", session: str) -> None:
        """Register `member` for tasks whose ids begin with `label`."""
        self.members[label] = member
        if not label:
            self.session = session

    def part(self, label: str) -> None:
        """Unregister a member."""
        self.members.pop(label, None)

    def _news(self, task: str) -> None:
        if not task:
            for member in list(self.members.values()):
                member.over("")
            return
        known = self.members.get(agent_of(task))
        if known is not None:
            known.over(task)

    # --- places ----------------------------------------------------------------------------------------------

    def take(self, *, anyway: bool = False) -> bool:
        """Take a slot; False when none is free or others wait. With `anyway` always take one."""
        if not anyway and (self.running >= self.running_max or self._waiting):
            return False
        self.running += 1
        return True

    async def wait(self, label: str) -> None:
        """Wait for a slot of this agent, and take it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(label, deque()).append(turn)
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.free()
            raise

    def free(self) -> None:
        """Give a slot back; the next waiter gets it."""
        self.running -= 1
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self.running < self.running_max:
            label = next(iter(self._waiting))
            turns = self._waiting.pop(label)
            while turns and turns[0].done():  # cancelled waiter
                turns.popleft()
            if not turns:
                continue
            self.running += 1
            turns.popleft().set_result(None)
            if turns:
                self._waiting[label] = turns  # at the end of the round


def agent_of(task: str) -> str:
    """Return the label of a task's agent: `a398` of `a398.b3`, '' of `b3`."""
    return task.rpartition(".")[0]
