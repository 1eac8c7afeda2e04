"""`Compact`: the model asks for room. The wish is a fact; what is done about it is decided before the next request."""

from longrein.events import Reminded
from longrein.tools.port import Hands, Outcome
from longrein.tools.registry import make_tool


async def Compact(hands: Hands, focus: str = "") -> Outcome:  # noqa: ARG001 - every built-in tool is given hands
    """Make room: old results are shortened, the past is summarised. Happens by itself when it must; call it when a
    phase of work is over and its details no longer matter.

    focus: What to keep in detail.
    """
    return Outcome.of(
        "The conversation is compacted before the next request.", Reminded("compact", "", "Compact", focus)
    )


COMPACT = make_tool(Compact, access="none")
