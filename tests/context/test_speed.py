"""Slice of `python -m benchmarks.context.speed`: the work for an entry is independent of the
history.
"""

from statistics import quantiles

from benchmarks.context.speed import LongSession

from longrein.context import State
from longrein.events import AnyEvent
from tests.work_counters import functions_called


class Counted(LongSession):
    """A session that counts the functions called for each entry."""

    counts: list[int] | None = None

    def add(self, event: AnyEvent) -> int:
        if self.counts is None:
            return super().add(event)
        with functions_called(self.counts):
            return super().add(event)


def test_an_entry_calls_no_more_functions_later() -> None:
    long, found, n = Counted(16_000), [], 0
    for size in (200, 600):
        while long.state.seq < size:
            long.step(n)
            n += 1
        long.counts = []
        while (
            len(long.counts) < 300
        ):  # enough that a quartile does not fall between two kinds of entries
            long.step(n)
            n += 1
        found.append(quantiles(long.counts))
        long.counts = None
    for early, late in zip(*found, strict=True):
        assert late < 1.5 * early, found


def sizes(state: State) -> dict[str, int]:
    return {
        n: len(v)
        for n in State.__struct_fields__
        if isinstance(v := getattr(state, n), list | dict | tuple)
    }


def test_what_the_state_holds_is_bounded_by_the_view_and_not_by_the_log() -> None:
    long, n = LongSession(12_000), 0
    while long.state.seq < 300:
        long.step(n)
        n += 1
    before = sizes(long.state)
    while long.state.seq < 900:
        long.step(n)
        n += 1
    grown = {
        name: (before[name], size)
        for name, size in sizes(long.state).items()
        if size > 2 * before[name] + 100
    }
    grown.pop("asked_seqs", None)  # one number a request
    grown.pop("files", None)  # one line a file of the project
    assert not grown, grown
