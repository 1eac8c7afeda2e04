"""`CronCreate`, `CronList` and `CronDelete`: the model schedules prompts for itself. Offered if
the settings say so.
"""

from longrein.tools.registry import make_tool
from longrein.tools.tool_port import Outcome, SchedulePort, ToolContext
from longrein_context.events import ToolError


async def CronCreate(
    context: ToolContext, cron: str, prompt: str, recurring: bool = True
) -> Outcome:
    """Let a prompt come back to you at set times: instead of waiting, or when the user asks for it.
    It comes while the session is open and idle, and ends after 7 days.

    cron: Five fields in local time (0 9 * * 1-5), an interval (30m, 2h, 1d), or once: "in 30m",
        "at 14:30".
    prompt: What to do then, with all that you must know.
    recurring: false for once.
    """
    once = "once " if " " in cron else "in "
    if recurring or cron.startswith(("in ", "at ")):
        once = ""
    told, event = _port(context).created(once + cron, prompt)
    return Outcome.of(told, event)


async def CronList(context: ToolContext) -> Outcome:
    """List what is scheduled in this session."""
    return Outcome.of("\n".join(_port(context).lines()) or "Nothing is scheduled.")


async def CronDelete(context: ToolContext, id: str) -> Outcome:  # noqa: A002 - the name of other agents
    """Remove a schedule.

    id: Such as s1.
    """
    return Outcome.of(f"{id} is removed.", _port(context).removed(id))


def _port(context: ToolContext) -> SchedulePort:
    if context.schedules is None:
        raise ToolError(
            "[no-schedules] A subagent schedules nothing; say in your report what is to be done "
            "when."
        )
    return context.schedules


SCHEDULE_TOOLS = (
    make_tool(CronCreate, access="command", unlisted=True, key_argument="prompt"),
    make_tool(CronList, access="none", unlisted=True, quiet=True),
    make_tool(CronDelete, access="none", unlisted=True, key_argument="id"),
)
