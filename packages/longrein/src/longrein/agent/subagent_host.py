"""Hosts of subagents that work outside the process of their session.

An extension brings a host (the door `longrein.subagent_hosts`). A subagent there has a session of
its own in the store, with a writer of its own, and changes a copy of the parent's last commit.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from longrein.permissions import Rules
from longrein.workspace import Worktree
from longrein_context.events import Entry, Opened, UsageError


class SubagentOrder(msgspec.Struct, frozen=True):
    """Order to run a subagent, with all that it is allowed as of its start."""

    opened: Opened
    """First entry of its session, with its grant."""
    prompt: str
    """Its first message."""
    system: str
    """Its system text."""
    model: str
    """`provider/model`; '' for that of the parent."""
    mode: str
    """Permission mode. Nobody answers questions: what would be asked is refused."""
    rules: Rules
    tools: tuple[str, ...]
    """Tools that it may use, all of its parent."""
    refused: tuple[str, ...]
    """Further tools of its parent, which it may not use."""
    tree: Worktree
    """Worktree on this machine that gets its changes."""


class SubagentOutcome(msgspec.Struct, frozen=True):
    """Outcome of an order, beside the log of its session."""

    patch: str = ""
    """File with its changes, as `git diff --binary` writes them; '' for none."""
    status: Literal["", "limit", "failed"] = ""
    """Status where its log does not tell it."""
    message: str = ""
    """Why, for `status`."""
    kept: str = ""
    """Folder with changes that are not in the patch; '' for none."""


class SubagentHost(Protocol):
    """Runs subagents of one session and of its subagents."""

    async def run(self, order: SubagentOrder, halt: asyncio.Event) -> SubagentOutcome:
        """Run a subagent to its end, or until `halt` is set; one that was begun goes on from its
        log.

        Cancelled, it ends what runs: the subagent goes on with the next call. Raises
        `LongreinError`.
        """
        ...

    async def entries(self, session: str) -> Sequence[Entry]:
        """Return the log of a subagent. Raises `LongreinError`."""
        ...

    async def forget(self, session: str) -> None:
        """Remove what was kept of a subagent whose outcome has been taken over."""
        ...

    async def close(self) -> None:
        """End what runs."""
        ...


def no_host(location: str) -> SubagentHost:
    """Open no host. Raises `UsageError`."""
    raise UsageError(f"no extension runs subagents at {location!r}")
