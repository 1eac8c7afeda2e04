"""Questions of permission and of the model appear while somebody types.

    python -m lab.campaigns.typed_questions --sentences 2000

Each run types one to three random English or Chinese sentences, with pauses of up to ten seconds by
the campaign's clock; in the first of them up to three questions appear. Prints the number of
questions that were answered by accident, and each case; there must be none.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from tests.terminal.typist import sentence_over_questions


async def run(sentences: int, first: int) -> int:
    """Run the cases and print the accidents; return their number."""
    accidents = 0
    for seed in range(first, first + sentences):
        text, answers = await sentence_over_questions(seed)
        accidents += len(answers)
        if answers:
            print(f"seed {seed}: {text!r} answered {[one.scope for one in answers]}")
    print(f"{sentences} runs, questions answered by accident: {accidents}")
    return accidents


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; return 1 when a question was answered by accident."""
    parser = argparse.ArgumentParser(description="type sentences over questions")
    parser.add_argument("--sentences", type=int, default=2_000, help="number of runs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run")
    wanted = parser.parse_args(arguments)
    return int(asyncio.run(run(wanted.sentences, wanted.seed)) > 0)


if __name__ == "__main__":
    sys.exit(main())
