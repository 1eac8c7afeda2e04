"""`CronCreate`, `CronList` and `CronDelete`: the model schedules prompts for itself."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from longrein.tools import Outcome, Tool, ToolContext, make_tool
from longrein_context.events import ToolError

if TYPE_CHECKING:
    from longrein.extensions.schedules.timer import ScheduleTimer

CREATE = "CronCreate"


def cron_tools(timer: "ScheduleTimer") -> Sequence[Tool]:
    """Return the tools that act on the schedules of a session."""

    def check(context: ToolContext) -> None:
        if context.commands.session != timer.session.id:
            raise ToolError(
                "[no-schedules] A subagent schedules nothing; say in your report what is to be "
                "done when."
            )

    async def CronCreate(
        context: ToolContext, cron: str, prompt: str, recurring: bool = True
    ) -> Outcome:
        """Let a prompt come back to you at set times: instead of waiting, or when the user asks for
        it. It comes while the session is open and idle, and ends after 7 days.

        cron: Five fields in local time (0 9 * * 1-5), an interval (30m, 2h, 1d), or once: "in 30m",
            "at 14:30".
        prompt: What to do then, with all that you must know.
        recurring: false for once.
        """
        check(context)
        once = "once " if " " in cron else "in "
        if recurring or cron.startswith(("in ", "at ")):
            once = ""
        told, event = timer.created(once + cron, prompt)
        return Outcome.of(told, event)

    async def CronList(context: ToolContext) -> Outcome:
        """List what is scheduled in this session."""
        check(context)
        return Outcome.of("\n".join(timer.lines()) or "Nothing is scheduled.")

    async def CronDelete(context: ToolContext, id: str) -> Outcome:  # noqa: A002 - of other agents
        """Remove a schedule.

        id: Such as s1.
        """
        check(context)
        return Outcome.of(f"{id} is removed.", timer.removed(id))

    return (
        make_tool(CronCreate, access="command", listing="unlisted", key_argument="prompt"),
        make_tool(CronList, access="none", listing="unlisted", quiet=True),
        make_tool(CronDelete, access="none", listing="unlisted", key_argument="id"),
    )
