"""A campaign says which seed failed, how to play it again, and what it did in one line."""

import asyncio
import os
import signal
import time
from collections import Counter

import pytest

from lab.campaigns.campaign import arguments, run_campaign


def even(seed: int) -> Counter[str]:
    assert seed % 2 == 0, f"{seed} is odd"
    return Counter(halves=seed // 2)


def test_a_failed_seed_is_named_with_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seeds", "3", "--seed", "4", "--parallel", "1"]
    assert run_campaign("simulate", even, arguments("", 10, 60).parse_args(words)) == 1
    lines = capsys.readouterr().out.splitlines()
    found = lines[:2]
    assert found == ["seed 5: AssertionError: 5 is odd", "  again: make simulate SEEDS=1 SEED=5"]
    assert lines[2].startswith("simulate: 3 seeds, 1 failed, 5 halves, ")


def waits(seed: int) -> Counter[str]:
    """Hang as seeds 1 to 3: in a task, in a wait for a process, and again while cleaning up."""
    if seed == 1:
        asyncio.run(asyncio.sleep(3600))
    elif seed == 2:
        pid = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "3600")
        try:
            os.waitpid(pid, 0)
        finally:
            os.kill(pid, signal.SIGKILL)
    elif seed == 3:
        try:
            time.sleep(3600)
        finally:
            time.sleep(3600)
    return Counter()


def test_a_seed_that_hangs_has_failed_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--seeds", "5", "--parallel", "2"]
    assert run_campaign("rewind", waits, arguments("", 10, 60).parse_args(words), 1.0) == 1
    out = capsys.readouterr().out
    for seed in (1, 2, 3):
        assert f"seed {seed}: AssertionError: it did not end within 1 s\n" in out
    assert "rewind: 5 seeds, 3 failed" in out


def test_no_seed_begins_after_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seeds", "30", "--seconds", "0", "--parallel", "1"]
    assert run_campaign("simulate", even, arguments("", 10, 60).parse_args(words)) == 0
    assert capsys.readouterr().out.startswith("simulate: 1 seeds, 0 failed, ")
