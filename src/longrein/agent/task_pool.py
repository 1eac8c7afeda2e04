"""One for a session and all subagents below it: the supervisor, places for tasks that run at once, news to whom they
concern.

Places go round among the agents that wait, so that one with a hundred tasks does not starve another with one.
"""

import asyncio
from collections import deque
from typing import Protocol

from longrein.workspace import Supervision


class Member(Protocol):
    """One agent's tasks."""

    def over(self, task: str) -> None:
        """This task has ended; "" when the supervisor is gone."""
        ...


class TaskPool:
    """Tasks of a tree of agents. Belongs to one event loop."""

    def __init__(self, supervision: Supervision, running_max: int = 32) -> None:
        self.supervision = supervision
        self.running_max = max(1, running_max)
        """Tasks that run at once; more wait."""
        self.running = 0
        """Places taken; promoted commands may take more than there are, since they run already."""
        self.session = ""
        """Session of the user, whose commands all of these are."""
        self.members: dict[str, Member] = {}
        """By the label of their agent, `""` for the session of the user."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By label; the first is served next."""
        supervision.on_news(self._news)

    def join(self, label: str, member: Member, session: str) -> None:
        """`member` hears of tasks whose ids begin with `label`."""
        self.members[label] = member
        if not label:
            self.session = session

    def part(self, label: str) -> None:
        """It hears of them no more."""
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
        """A place now: False when there is none or others wait for one; with `anyway` always one."""
        if not anyway and (self.running >= self.running_max or self._waiting):
            return False
        self.running += 1
        return True

    async def wait(self, label: str) -> None:
        """Until it is this agent's turn; the place is then taken."""
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
        """Give a place back; the next in turn gets it."""
        self.running -= 1
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self.running < self.running_max:
            label = next(iter(self._waiting))
            turns = self._waiting.pop(label)
            while turns and turns[0].done():  # it was given up
                turns.popleft()
            if not turns:
                continue
            self.running += 1
            turns.popleft().set_result(None)
            if turns:
                self._waiting[label] = turns  # behind the others


def agent_of(task: str) -> str:
    """Label of the agent whose task it is: `a398` of `a398.b3`, `""` of `b3`."""
    return task.rpartition(".")[0]
