"""Which turn answers which request, and what of the script was never asked for."""

from collections.abc import Awaitable, Callable, Sequence

from longrein.testing.loopback.received import Received
from longrein.testing.loopback.script import Fault, Turn, check_turn

Answer = Turn | Callable[[Received], Turn | Awaitable[Turn]]
"""A turn, or what makes one of the request that it answers."""


HARMLESS = ("drip", "duplicate_ids", "missing_ids")
"""Faults that leave the answer whole: the turn does not come again."""


class Player:
    """One script being played."""

    def __init__(self, turns: Sequence[Answer], summaries: Sequence[Turn], order: str) -> None:
        for turn in (*turns, *summaries):
            if isinstance(turn, Turn):
                check_turn(turn)
        self._turns = list(turns)
        self._summaries = list(summaries)
        self._used = [False] * len(self._turns)
        self._suffered: dict[tuple[bool, int], int] = {}
        self._summaries_used = [False] * len(self._summaries)
        self._by_position = order == "position"

    def choose(self, request: Received) -> tuple[int, bool, Answer] | None:
        """(index, whether it is a summary, turn) that answers `request`; None beyond the script."""
        for n in self._fitting(self._summaries, request):
            if not self._summaries_used[n] or n == len(self._summaries) - 1:
                return n, True, self._summaries[n]
        if self._by_position:
            at = request.asking.replies if request.asking else 0
            return (at, False, self._turns[at]) if at < len(self._turns) else None
        for n in self._fitting(self._turns, request):
            if not self._used[n]:
                return n, False, self._turns[n]
        return None

    def _fitting(self, turns: Sequence[Answer], request: Received) -> list[int]:
        return [n for n, turn in enumerate(turns) if not isinstance(turn, Turn) or fits(turn, request)]

    def suffer(self, index: int, summary: bool, turn: Turn) -> Fault | None:
        """The fault that this request gets; marks the turn as used when it is not to come again."""
        key = (summary, index)
        fault = turn.fault
        if fault is not None and (fault.times == 0 or self._suffered.get(key, 0) < fault.times):
            self._suffered[key] = self._suffered.get(key, 0) + 1
            if (turn.bare and self._suffered[key] == fault.times) or fault.kind in HARMLESS:
                self._use(index, summary)
            return fault
        self._use(index, summary)
        return None

    def whole(self, index: int, summary: bool) -> None:
        """The turn was played to its end, whatever its fault."""
        self._use(index, summary)

    def _use(self, index: int, summary: bool) -> None:
        if summary:
            self._summaries_used[index] = True
        else:
            self._used[index] = True

    def unused(self) -> list[str]:
        """What was never asked for, one line each."""
        lines = [f"turn {n}: {_name(t)}" for n, t in enumerate(self._turns) if not self._used[n]]
        left = [n for n, used in enumerate(self._summaries_used) if not used]
        return lines + [f"summary {n}: {_name(self._summaries[n])}" for n in left]


def fits(turn: Turn, request: Received) -> bool:
    """Whether `turn` may answer `request`."""
    if turn.when and turn.when not in request.opening:
        return False
    if callable(turn.match):
        return turn.match(request)
    return not turn.match or turn.match in request.said


def _name(turn: Answer) -> str:
    if not isinstance(turn, Turn):
        return getattr(turn, "__name__", "a function")
    calls = ", ".join(call.name for call in turn.calls)
    told = turn.text[:40] or calls or (turn.fault.kind if turn.fault else "") or "an empty answer"
    return f"{told!r}" + (f" (waits for {turn.match!r})" if isinstance(turn.match, str) and turn.match else "")
