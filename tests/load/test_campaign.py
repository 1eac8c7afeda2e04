"""A campaign says which seed failed, how to play it again, and what it did in one line."""

from collections import Counter

import pytest

from tests.load.campaign import arguments, run_campaign


def even(seed: int) -> Counter[str]:
    assert seed % 2 == 0, f"{seed} is odd"
    return Counter(halves=seed // 2)


def test_a_failed_seed_is_named_with_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seeds", "3", "--seed", "4", "--parallel", "1"]
    assert run_campaign("simulate", even, arguments("", 10, 60).parse_args(words)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "seed 5: AssertionError: 5 is odd",
        "  again: make simulate SEEDS=1 SEED=5",
    ]
    assert lines[2].startswith("simulate: 3 seeds, 1 failed, 5 halves, ")


def test_no_seed_begins_after_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seeds", "30", "--seconds", "0", "--parallel", "1"]
    assert run_campaign("simulate", even, arguments("", 10, 60).parse_args(words)) == 0
    assert capsys.readouterr().out.startswith("simulate: 1 seeds, 0 failed, ")
