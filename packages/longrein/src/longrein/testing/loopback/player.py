"""Received requests, and the choice of the turn that answers each."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from longrein.testing.loopback.script import Fault, Turn, check_turn
from longrein.testing.loopback.validation import ParsedRequest

# --- Received requests ----------------------------------------------------------------------------


class Received(msgspec.Struct):
    """A request as received, and its outcome."""

    number: int
    """From 1, in order of arrival."""
    at_s: float
    """Time of arrival on the provider's clock."""
    path: str
    """Path with its query."""
    headers: dict[str, str]
    """Headers by lower-case name."""
    body: bytes
    """Body as sent; empty if the provider does not keep it."""
    wire: str = ""
    """Wire name; empty for an unknown path."""
    parsed: ParsedRequest | None = None
    """Parsed request; None if it was refused before parsing."""
    status: int = 0
    """HTTP status of the answer; 0 before."""
    refused: str = ""
    """Broken rule, in the provider's words."""
    turn: int = -1
    """Index of the turn that answered; -1 for none."""
    summary: bool = False
    """True if `turn` is the index of a summary."""
    fault: str = ""
    """Kind of the fault in the answer."""
    usage: dict[str, int] = {}
    """Tokens: `input`, `cache_read`, `cache_write`, `output`, `reasoning`."""
    size_bytes: int = 0
    """Length of the body, also if it is not kept."""
    finished_s: float = 0.0
    """Time at which the answer was written, on the same clock; 0 before."""
    done: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when the answer has ended or was cut."""
    gone: bool = False
    """True if the client disconnected before the end."""

    @property
    def json(self) -> Any:
        """Body as parsed JSON."""
        return msgspec.json.decode(self.body)

    @property
    def blocks(self) -> Sequence[bytes]:
        """Tools, system and content in cache order, without cache marks, to compare prefixes."""
        return [raw for _, raw in self.parsed.blocks] if self.parsed else []

    @property
    def model(self) -> str:
        """Requested model."""
        return self.parsed.model if self.parsed else ""

    @property
    def said(self) -> str:
        """Text since the model's last reply: results, the user's messages, reminders."""
        return self.parsed.said() if self.parsed else ""

    @property
    def opening(self) -> str:
        """Text of the user's first message."""
        return self.parsed.opening() if self.parsed else ""


def common_blocks(first: Received, second: Received) -> int:
    """Count the blocks that both requests have in common from the start.

    On Chat Completions a message is one block, so a message that grows by the user's next text
    counts as changed.
    """
    count = 0
    for one, other in zip(first.blocks, second.blocks, strict=False):
        if one != other:
            break
        count += 1
    return count


# --- The player -----------------------------------------------------------------------------------


Answer = Turn | Callable[[Received], Turn | Awaitable[Turn]]
"""A turn, or a function from the request to a turn."""

HARMLESS = ("drip", "duplicate_ids", "missing_ids")
"""Faults that every client survives: the turn is not repeated."""


class ScriptEntry(msgspec.Struct):
    """A turn or a summary of the script, and its use so far."""

    kind: str
    """`turn` or `summary`."""
    index: int
    answer: Answer
    used: bool = False
    faults: int = 0
    """Number of its answers with a fault."""
    written: bool = False
    """True if the last of them was written completely, and no request has followed."""


class ScriptPlayer:
    """Plays one script."""

    def __init__(self, turns: Sequence[Answer], summaries: Sequence[Turn], order: str) -> None:
        for turn in (*turns, *summaries):
            if isinstance(turn, Turn):
                check_turn(turn)
        self._turns = [ScriptEntry("turn", n, turn) for n, turn in enumerate(turns)]
        self._summaries = [ScriptEntry("summary", n, turn) for n, turn in enumerate(summaries)]
        self._unconfirmed: dict[bytes, tuple[ScriptEntry, int]] = {}
        """First message -> answer with a fault, and replies in its request: the next one shows
        if it was accepted.
        """
        self._by_position = order == "position"

    def choose(self, request: Received, parsed: ParsedRequest) -> ScriptEntry | None:
        """Return the entry that answers `request`; None beyond the script."""
        if parsed.first in self._unconfirmed:
            entry, replies = self._unconfirmed.pop(parsed.first)
            entry.used, entry.written = entry.used or parsed.replies > replies, False
        for entry in self._summaries:
            if (entry is self._summaries[-1] or not entry.used) and turn_fits(
                entry.answer, request
            ):
                return entry
        if self._by_position:
            return self._turns[parsed.replies] if parsed.replies < len(self._turns) else None
        return next(
            (entry for entry in self._turns if not entry.used and turn_fits(entry.answer, request)),
            None,
        )

    def next_fault(self, entry: ScriptEntry, turn: Turn, parsed: ParsedRequest) -> Fault | None:
        """Return the fault of this answer, and mark the entry as used if it will not be
        repeated.
        """
        fault = turn.fault
        if fault is None or (fault.times and entry.faults >= fault.times):
            entry.used = True
            return None
        entry.faults += 1
        if (turn.bare and entry.faults == fault.times) or fault.kind in HARMLESS:
            entry.used = True
        else:
            self._unconfirmed[parsed.first] = entry, parsed.replies
        return fault

    def written(self, parsed: ParsedRequest) -> None:
        """Note that the answer was written completely in spite of its fault."""
        if parsed.first in self._unconfirmed:
            self._unconfirmed[parsed.first][0].written = True

    def unused(self) -> list[str]:
        """List unused turns, one line each. A completely written answer counts as used until it
        is asked again.
        """
        left = [
            entry for entry in (*self._turns, *self._summaries) if not (entry.used or entry.written)
        ]
        return [f"{entry.kind} {entry.index}: {_describe_turn(entry.answer)}" for entry in left]


def turn_fits(turn: Answer, request: Received) -> bool:
    """Return whether `turn` may answer `request`; a function may answer all."""
    if not isinstance(turn, Turn):
        return True
    if turn.when and turn.when not in request.opening:
        return False
    if callable(turn.match):
        return turn.match(request)
    return not turn.match or turn.match in request.said


def _describe_turn(turn: Answer) -> str:
    if not isinstance(turn, Turn):
        return getattr(turn, "__name__", "a function")
    calls = ", ".join(call.name for call in turn.calls)
    told = turn.text[:40] or calls or (turn.fault.kind if turn.fault else "") or "an empty answer"
    return f"{told!r}" + (
        f" (waits for {turn.match!r})" if isinstance(turn.match, str) and turn.match else ""
    )
