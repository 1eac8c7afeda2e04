"""What the founding documents tell of background work: one block of results before the next request, each once.

    <background-results>
    [bg:b1] 2 passed
    </background-results>

Their fake assistant turn ("Noted background results.") is left out: a request that ends with it is refused by most
servers. An output cannot close the block: the tag in it is broken up.
"""

from longrein.context.reminding.catalogue import ENDED, KINDS, Notice
from longrein.context.reminding.reminders import untold
from longrein.context.state import State
from longrein.events import Reminded

TAG = "background-results"
RESULT_CHARS_MAX = 500
"""Of one result."""


def seed_due(state: State) -> tuple[Reminded, ...]:
    """The blocks to append before the next request: ends of tasks and reports of subagents; empty without news."""
    waiting: dict[str, list[Notice]] = {}
    for one in untold(state):
        if KINDS[one.kind].rank == ENDED:
            waiting.setdefault(one.kind, []).append(one)
    return tuple(
        Reminded(kind, f"<{TAG}>\n" + "\n".join(map(_line, notices)) + f"\n</{TAG}>", f"r{notices[-1].seq}")
        for kind, notices in waiting.items()
    )


def _line(one: Notice) -> str:
    result = (one.body.strip() or one.line)[:RESULT_CHARS_MAX]
    return f"[bg:{one.key}] {result.replace(TAG, 'background results')}"
