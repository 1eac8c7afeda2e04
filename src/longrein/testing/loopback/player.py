"""Which turn answers which request, and what of the script was never asked for."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from longrein.testing.loopback.received import Received
from longrein.testing.loopback.script import Fault, Turn, check_turn

Answer = Turn | Callable[[Received], Turn | Awaitable[Turn]]
"""A turn, or what makes one of the request that it answers."""

HARMLESS = ("drip", "duplicate_ids", "missing_ids")
"""Faults that every client survives: the turn does not come again."""


class _Doubt(msgspec.Struct):
    """An answer with a fault: only the next request tells whether the client took it."""

    index: int
    summary: bool
    replies: int
    """Answers that the request held."""
    whole: bool = False
    """Whether all of it was written."""


class Player:
    """One script being played."""

    def __init__(self, turns: Sequence[Answer], summaries: Sequence[Turn], order: str) -> None:
        for turn in (*turns, *summaries):
            if isinstance(turn, Turn):
                check_turn(turn)
        self._turns = list(turns)
        self._summaries = list(summaries)
        self._used = {False: [False] * len(self._turns), True: [False] * len(self._summaries)}
        self._suffered: dict[tuple[bool, int], int] = {}
        self._doubts: dict[bytes, _Doubt] = {}
        self._by_position = order == "position"

    def choose(self, request: Received) -> tuple[int, bool, Answer] | None:
        """(index, whether it is a summary, turn) that answers `request`; None beyond the script."""
        self._settle(request)
        last = len(self._summaries) - 1
        for n, summary in enumerate(self._summaries):
            if (n == last or not self._used[True][n]) and fits(summary, request):
                return n, True, summary
        if self._by_position:
            at = request.asking.replies if request.asking else 0
            return (at, False, self._turns[at]) if at < len(self._turns) else None
        for n, turn in enumerate(self._turns):
            if not self._used[False][n] and (not isinstance(turn, Turn) or fits(turn, request)):
                return n, False, turn
        return None

    def _settle(self, request: Received) -> None:
        """A request that holds one more reply shows that the doubtful answer before it was taken."""
        asking = request.asking
        doubt = self._doubts.pop(asking.first, None) if asking is not None else None
        if asking is not None and doubt is not None and asking.replies > doubt.replies:
            self.use(doubt.index, doubt.summary)

    def suffer(self, request: Received, turn: Turn) -> Fault | None:
        """The fault that this request gets with the turn that it names; marks the turn as used where that is sure."""
        key, fault = (request.summary, request.turn), turn.fault
        if fault is None or (fault.times and self._suffered.get(key, 0) >= fault.times):
            self.use(request.turn, request.summary)
            return None
        self._suffered[key] = self._suffered.get(key, 0) + 1
        if (turn.bare and self._suffered[key] == fault.times) or fault.kind in HARMLESS:
            self.use(request.turn, request.summary)
        elif request.asking is not None:
            self._doubts[request.asking.first] = _Doubt(request.turn, request.summary, request.asking.replies)
        return fault

    def whole(self, request: Received) -> None:
        """The answer was written to its end in spite of its fault."""
        doubt = self._doubts.get(request.asking.first) if request.asking is not None else None
        if doubt is not None:
            doubt.whole = True

    def use(self, index: int, summary: bool) -> None:
        """The turn is used up."""
        self._used[summary][index] = True

    def unused(self) -> list[str]:
        """What was never asked for, one line each. What was written whole counts as taken."""
        taken = [(doubt.summary, doubt.index) for doubt in self._doubts.values() if doubt.whole]
        lines = []
        for summary, word, turns in ((False, "turn", self._turns), (True, "summary", self._summaries)):
            for n, turn in enumerate(turns):
                if not self._used[summary][n] and (summary, n) not in taken:
                    lines.append(f"{word} {n}: {_name(turn)}")
        return lines


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
