"""`Compact`: the model asks for room. The loop sees the ended call and decides; nothing is lost (see `Recall`)."""

from longrein.tools.port import Hands, Outcome
from longrein.tools.registry import make_tool


async def Compact(hands: Hands, focus: str = "") -> Outcome:  # noqa: ARG001 - the loop reads focus from the call
    """Make room in the conversation: old results are shortened, the past is summarised. Happens by itself when it
    must; call it when a phase of work is over and its details no longer matter. Recall brings anything back.

    focus: What the summary should keep in detail.
    """
    return Outcome.of("Compaction will happen before the next request.")


COMPACT = make_tool(Compact, access="none")
