"""`ExitPlanMode` tool: the model presents its plan; the user ends plan mode or lets the model go on planning."""

from longrein.events import ModeSet
from longrein.tools.port import Outcome
from longrein.tools.registry import make_tool


async def ExitPlanMode(plan: str) -> Outcome:  # noqa: ARG001 - the user has read it in the question
    """Only in plan mode, once the plan stands: show it to the user and ask to start. Yes ends plan mode.

    plan: The steps, the files they change and how you will check them, as Markdown.
    """
    return Outcome.of("The user agreed: plan mode is over. Do what the plan says.", ModeSet("default"))


EXIT_PLAN_MODE = make_tool(ExitPlanMode, access="none", quiet=True)
