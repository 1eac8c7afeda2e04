"""A slice of `python -m benchmarks.context.speed`: the work for an entry does not depend on how many came before."""

from benchmarks.context.speed import Long, timed

from longrein.context import State


def test_the_median_entry_costs_little_and_no_more_later() -> None:
    early, late = timed((250, 700), window=16_000, count=150)
    assert late.median_ms < 1.0
    assert late.median_ms < 3 * early.median_ms + 0.1


def sizes(state: State) -> dict[str, int]:
    return {n: len(v) for n in State.__struct_fields__ if isinstance(v := getattr(state, n), list | dict | tuple)}


def test_what_the_state_holds_is_bounded_by_the_view_and_not_by_the_log() -> None:
    long, n = Long(8_000), 0
    while long.state.seq < 500:
        long.step(n)
        n += 1
    before = sizes(long.state)
    while long.state.seq < 1_500:
        long.step(n)
        n += 1
    grown = {name: (before[name], size) for name, size in sizes(long.state).items() if size > 2 * before[name] + 100}
    grown.pop("asked_seqs", None)  # one number a request
    grown.pop("files", None)  # one line a file of the project
    assert not grown, grown
