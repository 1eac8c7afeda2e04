"""Slice of `python -m benchmarks.context.needles`: recalled content is byte-identical."""

from pathlib import Path

import pytest
from benchmarks.context.needles import KINDS, plant_and_recall

pytestmark = pytest.mark.anyio


async def test_A12_D10_needles_of_every_kind_come_back_after_compactions_a_restart_and_a_fork(tmp_path: Path) -> None:
    """By handle, words, file and time, without a tool being run again."""
    told = await plant_and_recall(tmp_path, 72, 2, hay=False)
    assert told.summaries >= 1
    assert told.digests >= 1
    lost = [f"{needle.kind} {needle.handle} by {needle.by}" for needle in told.needles if not needle.found]
    assert not lost
    assert {needle.by for needle in told.needles} == {"handle", "query", "path", "time"}
    assert KINDS.keys() <= {needle.kind for needle in told.needles}
    assert told.in_fork == 7
