"""What an earlier longrein left, or what is left after the supervisor died: the log says what there was, the spool what
became of it.
"""

from longrein.agent.tasks import ending
from longrein.agent.tasks.running import queue
from longrein.agent.tasks.tasks import Tasks, is_put_away
from longrein.context import TaskNow
from longrein.events import Opened, TaskEnded
from longrein.workspace import Spooled


async def adopt(tasks: Tasks) -> None:
    """What runs is watched, ends are written down with the next ones, queued tasks wait again, the rest was lost."""
    found = {one.task: one for one in await tasks.pool.supervision.adopt()}
    tasks.adopted = True
    for task, now in tasks.host.state.tasks.items():
        _take_up(tasks, task, now, found.get(task))


def _take_up(tasks: Tasks, task: str, now: TaskNow, there: Spooled | None) -> None:
    if now.ended is not None:
        tasks.settling += [task] * (there is not None and there.state != "running" and is_put_away(now.ended))
    elif there is not None and there.state != "running":
        tasks.found_over[task] = None
        tasks.unseat(task)
    elif there is not None:
        if task not in tasks.seated:
            tasks.pool.take(anyway=True)
            tasks.seat(task)
    elif now.started.state != "queued" or _copied(tasks, now):
        if not tasks.ended(task):
            tasks.end(TaskEnded(task, "lost", cause=_copied(tasks, now) or ending.UNKNOWN))
    elif task not in tasks.starting:
        queue(tasks, now.started)


def _copied(tasks: Tasks, now: TaskNow) -> str:
    """Why a task of the first entries of a copied session is none of ours; '' for our own."""
    entries = tasks.host.log.entries
    first = entries[0].event if entries else None
    if isinstance(first, Opened) and first.parent is not None and not first.parent.call and now.seq <= first.parent.seq:
        return f"it belongs to session {first.parent.session}, of which this is a copy"
    return ""
