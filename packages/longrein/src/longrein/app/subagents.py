"""Subagents of a session, and who runs those that work outside its process."""

from longrein.agent.subagent_host import SubagentHost, no_host
from longrein.agent.subagents.runner import SubagentRunner
from longrein.app.run_context import RunContext
from longrein.config import door_points
from longrein.extension_points import SUBAGENT_HOSTS_DOOR


def open_subagents(run_context: RunContext, session: str) -> SubagentRunner:
    """Open the subagents of `session`, that of the user or a subagent."""

    def open_host(location: str) -> SubagentHost:
        for point in door_points(SUBAGENT_HOSTS_DOOR, run_context.settings.plugins):
            if point.name == location:
                host: SubagentHost = point.load()(run_context, session)
                return host
        return no_host(location)

    return SubagentRunner(open_host)
