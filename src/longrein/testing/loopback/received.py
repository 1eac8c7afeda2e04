"""A request as it came, byte for byte, and what became of it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.testing.loopback.judging import Asking


class Received(msgspec.Struct):
    """One request."""

    number: int
    """From 1, in order of arrival."""
    at_s: float
    """When, on the provider's monotonic clock."""
    method: str
    path: str
    """With its query."""
    headers: dict[str, str]
    """Names in small letters."""
    body: bytes
    """As sent; empty when the provider was told not to keep it."""
    wire: str = ""
    """Empty for a path that no wire has."""
    asking: Asking | None = None
    """Taken apart; None when it was refused before that."""
    status: int = 0
    """Of the answer; 0 while there is none."""
    refused: str = ""
    """The rule that it broke, in the provider's words."""
    turn: int = -1
    """Index of the turn that answered it; -1 for none."""
    summary: bool = False
    """Whether that is the index of a summary."""
    fault: str = ""
    """Kind of the fault that it met."""
    usage: dict[str, int] = {}
    """Tokens: `input`, `cache_read`, `cache_write`, `output`, `reasoning`."""
    size_bytes: int = 0
    """Length of the body, also when it was not kept."""
    finished_s: float = 0.0
    """When the answer had been written, on the same clock; 0 while it was not."""
    done: asyncio.Event | None = None
    """Set when the answer has been written to its end or cut."""
    gone: bool = False
    """Whether the client went away before the end."""

    @property
    def json(self) -> Any:
        """The body parsed."""
        return msgspec.json.decode(self.body)

    @property
    def blocks(self) -> Sequence[bytes]:
        """Tools, system and content in cache order, each as sent but without cache marks (law 2)."""
        return [raw for _, raw in self.asking.blocks] if self.asking else []

    @property
    def model(self) -> str:
        """The model asked for."""
        return self.asking.model if self.asking else ""

    @property
    def said(self) -> str:
        """What was said since the model's last reply: results, the user's words, reminders."""
        return self.asking.said() if self.asking else ""

    @property
    def opening(self) -> str:
        """The first thing the user said."""
        return self.asking.opening() if self.asking else ""


def common_blocks(first: Received, second: Received) -> int:
    """How many blocks the two requests have in common from the start.

    On Chat Completions a message is a block, so one that the user's next words are joined to counts as changed.
    """
    count = 0
    for one, other in zip(first.blocks, second.blocks, strict=False):
        if one != other:
            break
        count += 1
    return count
