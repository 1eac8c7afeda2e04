"""Slice of `python -m lab.context.fuzz`: every conversation gives a request that fits."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lab.context.counting import DIALECTS
from lab.context.fuzz import WINDOWS, FuzzResult, fuzz
from lab.context.playing import SUMMARISERS


def check(found: FuzzResult) -> None:
    """Fine; but a tokenizer that is dear with something may teach it by one refusal, before it
    was ever counted.
    """
    assert found.overflows <= 1, found.line()
    assert replace(found, overflows=0).fine, found.line()


@pytest.mark.parametrize("window", WINDOWS)
def test_a_request_always_fits_in_a_window_of(window: int) -> None:
    check(fuzz(window, window=window, summariser="any", steps=14))


@pytest.mark.parametrize("seed", [10, 52, 58])
def test_no_text_of_others_ends_a_session(seed: int) -> None:
    """In the first, results were lines of 5,000 digits: no decision could be made any more. A
    tokenizer may teach by refusals what each odd text costs.
    """
    found = fuzz(seed, kinds=("odd",), steps=14)
    assert replace(found, overflows=0).fine, found.line()


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # a seed is as small as a story gets
)
@given(
    seed=st.integers(0, 10_000),
    window=st.sampled_from(WINDOWS[1:4]),
    summariser=st.sampled_from(SUMMARISERS),
    dialect=st.sampled_from(DIALECTS),
)
def test_whatever_summariser_does(seed: int, window: int, summariser: str, dialect: object) -> None:
    found = fuzz(seed, window=window, summariser=summariser, steps=8, dialects=(dialect,))
    check(found)


@pytest.mark.parametrize("seed", [3_116, 8_000, 11])
def test_law_10_a_session_resumed_from_its_snapshot_decides_the_same(seed: int) -> None:
    assert fuzz(seed, window=32_000, summariser="good", steps=8).alike
