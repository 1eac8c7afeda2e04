"""The subagents of a session, as the loop knows of them; `children` stands behind, imported when it is needed."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from longrein.agent.port import AgentView, OfChild, Pending, Word
from longrein.agent.ports import Limits
from longrein.tools import AgentPort

WIDTH = {"plan": 0, "default": 1, "acceptEdits": 2, "bypassPermissions": 3}
"""How much a permission mode lets happen unasked."""


def narrower(mode: str, other: str) -> str:
    """The one of two modes that lets less happen. What is unknown counts as `default`."""
    return other if WIDTH.get(other, 1) < WIDTH.get(mode, 1) else mode


def below(label: str, name: str) -> str:
    """How `name` of the agent `label` ('' for the session of the user) is called in the whole tree: `a398.b3`."""
    return f"{label}.{name}" if label else name


class Company(AgentPort, Protocol):
    """The subagents of one session."""

    @property
    def running(self) -> bool:
        """Whether one works in the background."""
        ...

    @property
    def pending(self) -> Sequence[Pending]:
        """Words that wait in the inbox of a subagent somewhere below."""
        ...

    @property
    def questions(self) -> Sequence[OfChild]:
        """The approval that a subagent somewhere below waits for, for those who begin to listen now."""
        ...

    def within(self, limits: Limits) -> Limits:
        """What the next request may use of `limits`, with what is left to the whole tree."""
        ...

    def collect(self) -> None:
        """Append what has become of those in the background."""
        ...

    async def settled(self) -> None:
        """Until one of those in the background is over; at once when there is none."""
        ...

    def stop(self) -> None:
        """Let all end now, with what they have."""
        ...

    def resume(self) -> None:
        """Let go on what worked when the session was left and whose call does not wait for it."""
        ...

    def tell(self, word: Word, child: str) -> Awaitable[None] | None:
        """Put a word into the inbox of `child`, somewhere below; None when it does not work."""
        ...

    def unqueue(self, number: int) -> str:
        """Take a message that waits somewhere below (the newest when 0) back; '' when it is not there."""
        ...

    def views(self) -> Sequence[AgentView]:
        """All below, each followed by its own."""
        ...

    async def close(self) -> None:
        """End them; they go on when the session is opened again."""
        ...
