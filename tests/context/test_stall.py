"""Nobody waits for a summary: the slice of `benchmarks.context.stall` that fits the suite."""

from benchmarks.context.stall import measure


def test_a_summariser_of_a_minute_is_never_felt() -> None:
    slow, never = measure(real=False)
    assert slow.met, slow
    assert never.met, never
