"""The project's graph of goals, as tools see it; `store` implements it, `app` hands it in."""

from collections.abc import Sequence
from typing import Protocol

from longrein.events import Goal


class GoalPort(Protocol):
    """Goals of one project, shared by every session in it. Short transactions; raises `ToolError` with what to do."""

    @property
    def owner(self) -> str:
        """In whose name claims are made: a session, `session/a398` for a subagent, `user`."""
        ...

    def by(self, owner: str) -> "GoalPort":
        """The same goals as another agent sees and changes them."""
        ...

    def unseen(self, goals: Sequence[Goal]) -> Sequence[Goal]:
        """Those of `goals` that this agent did not know as they are; it does now."""
        ...

    def beat(self) -> None:
        """A sign of life: this agent's claims hold on. To be called at each step; never waits."""
        ...

    async def leave(self) -> None:
        """This agent is closed: its claims end, so that others may go on. Never fails."""
        ...

    async def goals(self, *, every: bool = False) -> Sequence[Goal]:
        """Open goals in the order of their ids; with `every` also completed and deleted ones."""
        ...

    async def add(self, title: str, body: str, blocked_by: Sequence[int]) -> Goal:
        """A new goal. Ids rise and are never used twice."""
        ...

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
        """The goal as it is now, and goals that this has unblocked. `claim` takes it for this agent, or lets go.

        Refused: a claim of what is blocked or held by another; a cycle; words over words that were not seen.
        """
        ...
