"""Received requests, and the choice of the turn that answers each."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from longrein.testing.loopback.script import Fault, Turn, check_turn
from longrein.testing.loopback.validation import ParsedRequest

# --- Received requests -----------------------------------------------------------------------------------------------


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
        """Tools, system and content in cache order, without cache marks, to compare prefixes (law 2)."""
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

    On Chat Completions a message is one block, so a message that grows by the user's next text counts as changed.
    """
    count = 0
    for one, other in zip(first.blocks, second.blocks, strict=False):
        if one != other:
            break
        count += 1
    return count


# --- The player ------------------------------------------------------------------------------------------------------


Answer = Turn | Callable[[Received], Turn | Awaitable[Turn]]
"""A turn, or a function from the request to a turn."""

HARMLESS = ("drip", "duplicate_ids", "missing_ids")
"""Faults that every client survives: the turn is not repeated."""


class _Unconfirmed(msgspec.Struct):
    """An answer with a fault; the next request shows whether the client accepted it."""

    index: int
    summary: bool
    replies: int
    """Number of replies in the request."""
    whole: bool = False
    """True if the answer was written completely."""


class ScriptPlayer:
    """Plays one script."""

    def __init__(self, turns: Sequence[Answer], summaries: Sequence[Turn], order: str) -> None:
        for turn in (*turns, *summaries):
            if isinstance(turn, Turn):
                check_turn(turn)
        self._turns = list(turns)
        self._summaries = list(summaries)
        self._used = {False: [False] * len(self._turns), True: [False] * len(self._summaries)}
        self._fault_counts: dict[tuple[bool, int], int] = {}
        self._unconfirmed: dict[bytes, _Unconfirmed] = {}
        self._by_position = order == "position"

    def choose(self, request: Received) -> tuple[int, bool, Answer] | None:
        """(index, whether it is a summary, turn) that answers `request`; None beyond the script."""
        self._confirm(request)
        last = len(self._summaries) - 1
        for n, summary in enumerate(self._summaries):
            if (n == last or not self._used[True][n]) and turn_fits(summary, request):
                return n, True, summary
        if self._by_position:
            at = request.parsed.replies if request.parsed else 0
            return (at, False, self._turns[at]) if at < len(self._turns) else None
        for n, turn in enumerate(self._turns):
            if not self._used[False][n] and (not isinstance(turn, Turn) or turn_fits(turn, request)):
                return n, False, turn
        return None

    def _confirm(self, request: Received) -> None:
        """Mark the unconfirmed answer as used if the request holds one more reply."""
        parsed = request.parsed
        unconfirmed = self._unconfirmed.pop(parsed.first, None) if parsed is not None else None
        if parsed is not None and unconfirmed is not None and parsed.replies > unconfirmed.replies:
            self.use(unconfirmed.index, unconfirmed.summary)

    def next_fault(self, request: Received, turn: Turn) -> Fault | None:
        """Return the fault for this request's turn, and mark the turn as used if it will not be repeated."""
        key, fault = (request.summary, request.turn), turn.fault
        if fault is None or (fault.times and self._fault_counts.get(key, 0) >= fault.times):
            self.use(request.turn, request.summary)
            return None
        self._fault_counts[key] = self._fault_counts.get(key, 0) + 1
        if (turn.bare and self._fault_counts[key] == fault.times) or fault.kind in HARMLESS:
            self.use(request.turn, request.summary)
        elif request.parsed is not None:
            self._unconfirmed[request.parsed.first] = _Unconfirmed(
                request.turn, request.summary, request.parsed.replies
            )
        return fault

    def whole(self, request: Received) -> None:
        """Note that the answer was written completely in spite of its fault."""
        unconfirmed = self._unconfirmed.get(request.parsed.first) if request.parsed is not None else None
        if unconfirmed is not None:
            unconfirmed.whole = True

    def use(self, index: int, summary: bool) -> None:
        """Mark a turn as used."""
        self._used[summary][index] = True

    def unused(self) -> list[str]:
        """List unused turns, one line each. A completely written answer counts as used."""
        taken = [
            (unconfirmed.summary, unconfirmed.index) for unconfirmed in self._unconfirmed.values() if unconfirmed.whole
        ]
        lines = []
        for summary, word, turns in ((False, "turn", self._turns), (True, "summary", self._summaries)):
            for n, turn in enumerate(turns):
                if not self._used[summary][n] and (summary, n) not in taken:
                    lines.append(f"{word} {n}: {_describe_turn(turn)}")
        return lines


def turn_fits(turn: Turn, request: Received) -> bool:
    """Return whether `turn` may answer `request`."""
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
    return f"{told!r}" + (f" (waits for {turn.match!r})" if isinstance(turn.match, str) and turn.match else "")
