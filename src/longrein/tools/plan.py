"""`ExitPlanMode` tool: the model presents its plan; the user ends plan mode or lets the model go on planning."""

from longrein.events import ModeSet
from longrein.tools.port import Outcome
from longrein.tools.registry import make_tool


async def ExitPlanMode(plan: str) -> Outcome:  # noqa: ARG001 - the user has read it in the question
    """In plan mode: show your plan (Markdown). The user's yes ends it."""
    return Outcome.of("The user agreed: plan mode is over. Do what the plan says.", ModeSet("default"))


EXIT_PLAN_MODE = make_tool(ExitPlanMode, access="none")
