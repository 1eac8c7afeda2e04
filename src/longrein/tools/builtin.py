"""The built-in tools in their fixed order: the order of their schemas in every request."""

from longrein.events import Reminded
from longrein.tools.background_tasks import TASK_TOOLS
from longrein.tools.bash import BASH
from longrein.tools.edit import EDIT
from longrein.tools.port import Outcome, Tool, ToolContext
from longrein.tools.read import READ
from longrein.tools.recall import RECALL
from longrein.tools.registry import make_tool
from longrein.tools.search import GLOB, GREP
from longrein.tools.todo import TODO_WRITE
from longrein.tools.write import WRITE

# ---------------------------------------------------------------------------------------------------------------------
#
# `Compact`: the model asks for room. The wish is a fact; what is done about it is decided before the next request.


async def Compact(hands: ToolContext, focus: str = "") -> Outcome:  # noqa: ARG001 - every built-in tool is given hands
    """Make room: old results are shortened, the past is summarised. Happens by itself when it must; call it when a
    phase of work is over and its details no longer matter.

    focus: What to keep in detail.
    """
    return Outcome.of(
        "The conversation is compacted before the next request.", Reminded("compact", "", "Compact", focus)
    )


COMPACT = make_tool(Compact, access="none")


# --- builtin ---------------------------------------------------------------------------------------------------------


BUILTIN: tuple[Tool, ...] = (READ, WRITE, EDIT, BASH, GREP, GLOB, TODO_WRITE, RECALL, COMPACT, *TASK_TOOLS)


def builtin_tools() -> tuple[Tool, ...]:
    """All built-in tools, always in the same order."""
    return BUILTIN
