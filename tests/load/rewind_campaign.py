"""Rewinds after random commands and edits of agent and user, with kills between: `make rewind`.

    python -m tests.load.rewind_campaign --seeds 300 --seed 0 --seconds 900

Each seed is a story of `tests.support.rewind_story`. Every fourth one also goes back and forward
between the ends of its turns, without a user.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.agent.test_rewind_commands import play_random
from tests.load.campaign import arguments, run_campaign
from tests.support.rewind_story import RewindStory

TURNS = 6
COMMANDS = 30


def play(seed: int) -> Counter[str]:
    """Play one story."""
    if seed % 4 == 0:
        with tempfile.TemporaryDirectory(prefix="longrein-rewind-") as folder:
            asyncio.run(play_random(Path(folder), seed, COMMANDS, git=seed % 8 == 0))
    with tempfile.TemporaryDirectory(prefix="longrein-rewind-") as folder:
        story = RewindStory(Path(folder), seed, TURNS)
        wrong = story.play()
        assert not wrong, wrong
        records = story.records()
    edits = sum(bool(one.paths) for one in records if one.kind in ("user", "during"))
    return Counter(kills=story.kills, edits=edits, turns=len(story.turns))


def main(words: Sequence[str]) -> int:
    """Run the campaign; return 1 when a story ended wrong."""
    about = "Rewind after random commands of the agent and edits of the user."
    return run_campaign("rewind", play, arguments(about, 300, 900).parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
