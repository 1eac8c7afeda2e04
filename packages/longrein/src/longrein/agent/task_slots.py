"""Background tasks of a tree of agents: their slots, and the news from the supervisor."""

from typing import TYPE_CHECKING

from longrein.agent.concurrency_limits import FairSemaphore
from longrein.workspace import Supervision

if TYPE_CHECKING:
    from longrein.agent.background.session_tasks import SessionTasks


class TaskPool:
    """Task slots of a tree of agents, and the tasks of each agent. Belongs to one event loop."""

    def __init__(self, supervision: Supervision, running_max: int = 32) -> None:
        self.supervision = supervision
        self.slots = FairSemaphore(running_max)
        """Tasks that run in parallel; more wait. Promoted commands run already and may exceed
        the limit.
        """
        self.members: dict[str, SessionTasks] = {}
        """Tasks by agent label, '' for the session of the user."""
        supervision.on_news(self._news)

    def _news(self, task: str) -> None:
        """Tell the agent of `task` that it is over; all agents, for '', that the supervisor is
        gone.
        """
        for label in (agent_of(task),) if task else tuple(self.members):
            if label in self.members:
                self.members[label].over(task)


def agent_of(task: str) -> str:
    """Return the label of a task's agent: `a398` of `a398.b3`, '' of `b3`."""
    return task.rpartition(".")[0]
