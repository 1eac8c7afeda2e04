"""Slice of `python -m lab.context.pins`: pins stay byte-identical, also in a subagent."""

from lab.context.pins import measure


def test_law_5_pins_are_byte_identical_after_compactions_also_in_a_child() -> None:
    for row in measure(times=4, window=8_000):
        assert row.met, row
