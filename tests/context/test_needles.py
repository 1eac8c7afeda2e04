"""Slice of `python -m lab.context.needles`: recalled content is byte-identical."""

from pathlib import Path
from typing import get_args

import pytest

from lab.context.needles import KINDS, plant_and_recall
from longrein_context.events import AnyEvent
from tests.tables import split_words

pytestmark = pytest.mark.anyio

WITHOUT_NEEDLE = set(
    split_words("""
    SubagentStarted CwdSet ModeSet Rewound SchedulesSet Summarized ToolStarted TurnEnded
""")
)
"""Searchable events without a text of their own that only a recall could bring back."""


async def test_A12_D10_needles_of_every_kind_come_back(tmp_path: Path) -> None:
    """By handle, words, file and time, without a tool being run again."""
    told = await plant_and_recall(tmp_path, 72, 2, hay=False)
    assert told.summaries >= 1
    assert told.digests >= 1
    lost = [
        f"{needle.kind} {needle.handle} by {needle.by}"
        for needle in told.needles
        if not needle.found
    ]
    assert not lost
    assert {needle.by for needle in told.needles} == {"handle", "query", "path", "time"}
    planted = {needle.kind for needle in told.needles}
    assert KINDS.keys() <= planted
    holders = {
        KINDS[kind].__name__ if kind in KINDS else kind.partition(".")[0] for kind in planted
    }
    searchable = {kind.__name__ for kind in get_args(AnyEvent) if kind.visibility.searchable}
    assert searchable - holders == WITHOUT_NEEDLE, "plant a needle in lab/context/needles.py"
    assert told.in_fork == 7
