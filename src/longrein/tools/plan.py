"""`ExitPlanMode` tool: the model presents its plan; the user ends plan mode or lets the model go
on planning.
"""

from longrein.events import ModeSet
from longrein.tools.registry import make_tool
from longrein.tools.tool_port import Outcome, UserAnswer


async def ExitPlanMode(plan: str, mode: str = "default") -> Outcome:  # noqa: ARG001 - the question shows the plan
    """In plan mode: show your plan (Markdown). The user's yes ends it."""
    then = "acceptEdits" if mode == "acceptEdits" else "default"
    return Outcome.of("The user agreed: plan mode is over. Do what the plan says.", ModeSet(then))


EXIT_PLAN_MODE = make_tool(
    ExitPlanMode,
    access="none",
    unlisted=True,
    user=UserAnswer("the plan is ready; yes ends plan mode", ("mode",)),
)
