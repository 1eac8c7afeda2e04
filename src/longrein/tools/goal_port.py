"""The project's graph of goals, as tools see it; `store` implements it, `app` hands it in."""

from collections.abc import Sequence
from typing import Protocol

from longrein.events import Goal


class GoalPort(Protocol):
    """Goals of one project, shared by every session in it. Short transactions; raises `ToolError` with what to do."""

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
        """The goal as it is now, and goals that this has unblocked. `claim` takes it for this session, or lets go."""
        ...
