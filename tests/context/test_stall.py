"""Slice of `lab.context.stall`: no turn waits for a summary."""

from lab.context.stall import measure


def test_a_summariser_of_a_minute_is_never_felt() -> None:
    slow, never = measure(real=False)
    assert slow.met, slow
    assert never.met, never
