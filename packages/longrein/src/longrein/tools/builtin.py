"""Built-in tools, in the fixed order of their schemas in every request."""

from longrein.tools.apply_patch import APPLY_PATCH
from longrein.tools.ask_user import ASK_USER
from longrein.tools.background_tasks import TASK_TOOLS
from longrein.tools.bash import BASH
from longrein.tools.edit import EDIT
from longrein.tools.planning import EXIT_PLAN_MODE, TODO_WRITE, goal_tools
from longrein.tools.read import READ
from longrein.tools.recall import RECALL
from longrein.tools.registry import make_tool
from longrein.tools.search import GLOB, GREP
from longrein.tools.skill import SKILL
from longrein.tools.subagent import AGENT
from longrein.tools.tool_port import Outcome, Tool, ToolContext
from longrein.tools.tool_search import CALL_TOOL_ENTRY, tool_search
from longrein.tools.web_fetch import WEB_FETCH
from longrein.tools.write import WRITE
from longrein_context.events import Reminded

# --- `Compact`: a request for compaction, decided before the next request -------------------------


async def Compact(context: ToolContext, focus: str = "") -> Outcome:  # noqa: ARG001 - the same parameter as in other built-in tools
    """Make room: shorten old results, summarise the past. Happens by itself when it must; call it
    when a phase of work is over and its details no longer matter.

    focus: What to keep in detail.
    """
    return Outcome.of(
        "The conversation is compacted before the next request.",
        Reminded("compact", "", "Compact", focus),
    )


COMPACT = make_tool(Compact, access="none", listing="unlisted", quiet=True, key_argument="focus")


# --- List of built-in tools -----------------------------------------------------------------------


BUILTIN: tuple[Tool, ...] = (
    READ,
    WRITE,
    EDIT,
    APPLY_PATCH,
    BASH,
    GREP,
    GLOB,
    TODO_WRITE,
    WEB_FETCH,
    RECALL,
    COMPACT,
    EXIT_PLAN_MODE,
    ASK_USER,
    *TASK_TOOLS,
)


def builtin_tools() -> tuple[Tool, ...]:
    """Return all built-in tools, always in the same order."""
    return BUILTIN


def own_tools() -> tuple[Tool, ...]:
    """Return every tool of longrein, also those that only some sessions have."""
    return (
        *BUILTIN,
        AGENT,
        *goal_tools(),
        SKILL,
        tool_search(()),
        CALL_TOOL_ENTRY,
    )
