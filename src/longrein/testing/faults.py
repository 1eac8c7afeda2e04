"""`FaultPlan`: what goes wrong between longrein and its provider, drawn from a seed.

Swarm style: each seed chooses a few kinds of faults, one plan knows only cuts and another only silence and garbage, so
rare pairs meet more often than if everything could always happen. The same seed makes the same plan.
"""

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from longrein.testing.loopback.overflows import OVERFLOWS
from longrein.testing.loopback.script import Fault, Turn

STREAM_BYTES = 2_000
"""Cuts and silences come within so many bytes of a stream."""
REPEATS_MAX = 3
"""Times in a row that one turn suffers its fault."""
STATUSES = (408, 429, 500, 502, 503, 504, 529)
"""Errors that the same request may survive later."""


def _status(random: Random) -> Fault:
    status = random.choice(STATUSES)
    told = {"retry-after": random.choice(("0", "1", "2s"))} if random.random() < 0.4 else {}
    return Fault(kind="status", status=status, headers=told)


def _cut(random: Random) -> Fault:
    return Fault(kind="cut", at=random.randrange(STREAM_BYTES), how=random.choice(("reset", "close", "end")))


def _stall(random: Random) -> Fault:
    return Fault(kind="stall", at=random.randrange(STREAM_BYTES))


def _garbage(random: Random) -> Fault:
    line = random.choice(
        ("data: {not json\n\n", "<html>502</html>\n\n", "data: \xff\xfe\n\n", "event: x\n\n", ": hm\n\n")
    )
    return Fault(kind="garbage", at=random.randrange(6), body=line)


def _error(random: Random) -> Fault:
    return Fault(kind="error", at=random.randrange(6), status=random.choice((429, 500, 529)))


def _drip(random: Random) -> Fault:
    return Fault(kind="drip", bytes=random.choice((1, 2, 7, 100)))


def _overflow(random: Random) -> Fault:
    return Fault(kind="overflow", name=random.choice(tuple(OVERFLOWS)))


MAKERS: dict[str, Callable[[Random], Fault]] = {
    "status": _status,
    "cut": _cut,
    "stall": _stall,
    "garbage": _garbage,
    "error": _error,
    "drip": _drip,
    "overflow": _overflow,
    "no_end": lambda _: Fault(kind="no_end"),
    "empty": lambda _: Fault(kind="empty"),
    "bad_json": lambda _: Fault(kind="bad_json"),
    "duplicate_ids": lambda _: Fault(kind="duplicate_ids"),
    "missing_ids": lambda _: Fault(kind="missing_ids"),
}
"""Kind -> a fault of it."""
CALM = ("status", "cut", "stall", "garbage", "error", "drip", "no_end", "empty", "duplicate_ids", "missing_ids")
"""Kinds after which the same conversation goes on as if nothing had been: no reply is changed, nothing is compacted."""


class FaultPlan:
    """Faults drawn from `seed` among `kinds`, for a share `rate` of the turns."""

    def __init__(self, seed: int, *, kinds: Sequence[str] = tuple(MAKERS), rate: float = 0.5) -> None:
        self.seed = seed
        self._random = Random(seed)
        count = self._random.randint(1, max(1, len(kinds) // 2))
        self.enabled: tuple[str, ...] = tuple(sorted(self._random.sample(list(kinds), count)))
        """Kinds that this seed chose."""
        self.drawn: list[Fault] = []
        """Every fault so far, in order: what to print beside the seed when a test fails."""
        self._rate = rate

    def draw(self) -> Fault | None:
        """What goes wrong with the next turn; None for nothing."""
        if self._random.random() >= self._rate:
            return None
        made = MAKERS[self._random.choice(self.enabled)](self._random)
        fault = msgspec.structs.replace(made, times=self._random.randint(1, REPEATS_MAX))
        self.drawn.append(fault)
        return fault

    def over(self, turns: Sequence[Turn]) -> list[Turn]:
        """`turns` with faults: each is played whole in the end. A turn that has a fault of its own keeps it."""
        return [turn if turn.fault else msgspec.structs.replace(turn, fault=self.draw()) for turn in turns]
