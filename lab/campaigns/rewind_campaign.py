"""Rewinds after random commands and edits of agent and user, with kills between: `make rewind`.

    python -m lab.campaigns.rewind_campaign --seeds 300 --seed 0 --seconds 900

Each seed is a story of `lab.support.rewind_story`. Every fourth one also goes back and forward
between the ends of its turns, without a user. Where there is a sandbox, each is also played in it:
then what the user changes while a command runs has to stay.
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lab.campaigns.campaign import arguments, run_campaign
from lab.support.rewind_story import RewindStory
from longrein.workspace.sandbox.rung import find_rung
from tests.agent.test_rewind_commands import run_random_commands
from tests.agent.test_rewind_meanwhile import run_beside_a_user

TURNS = 6
COMMANDS = 30
STORY_S = 300.0
"""Limit of a seed, which takes a few seconds; longer than that of a wait in it, which is named."""


def play(seed: int) -> Counter[str]:
    """Play one story."""
    if seed % 4 == 0:
        with tempfile.TemporaryDirectory(prefix="longrein-rewind-") as folder:
            asyncio.run(run_random_commands(Path(folder), seed, COMMANDS, git=seed % 8 == 0))
    confined = find_rung(os.environ, ()).confines
    if confined:
        with tempfile.TemporaryDirectory(prefix="longrein-rewind-") as folder:
            asyncio.run(run_beside_a_user(Path(folder), seed))
    with tempfile.TemporaryDirectory(prefix="longrein-rewind-") as folder:
        story = RewindStory(Path(folder), seed, TURNS)
        wrong = story.play()
        assert not wrong, wrong
        records = story.records()
    edits = sum(bool(one.paths) for one in records if one.kind in ("user", "during"))
    figures = {"kills": story.kills, "edits": edits, "turns": len(story.turns)}
    return Counter(figures, confined=int(confined))


def main(words: Sequence[str]) -> int:
    """Run the campaign; return 1 when a story ended wrong."""
    about = "Rewind after random commands of the agent and edits of the user."
    return run_campaign("rewind", play, arguments(about, 300, 900).parse_args(words), STORY_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
