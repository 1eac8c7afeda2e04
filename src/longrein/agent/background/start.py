"""Commands begin: in the foreground, in the background, and from the one to the other.

A command that goes on in the background is the same process as before; what changes is a record. It holds one of the
tree's places, or waits for one; who waits has not run, so it may be started again after a crash.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from longrein.agent.background import tasks as ending
from longrein.agent.background.tasks import Tasks
from longrein.events import LongreinError, TaskEnded, TaskStarted
from longrein.tools import BackgroundedCommand
from longrein.workspace import Ended, Keeping, Printout, Spooled, Started

# ---------------------------------------------------------------------------------------------------------------------
#
# One way of waiting: for what must not stay half done, such as a task that is in the log and not yet kept.


T = TypeVar("T")
UNCUT_S = 5.0
"""How long a cancellation waits for what must not stay half done."""


async def uncut(work: Coroutine[Any, Any, T]) -> T:
    """Do `work` to its end, also when the wait is cancelled: what came of it takes the cancellation's place.

    Only a stuck disk makes a cancellation wait long; after `UNCUT_S` it is obeyed.
    """
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait((doing,), timeout=UNCUT_S)
        if not doing.done():
            doing.cancel()
        if doing.cancelled() or not doing.done():
            raise
        return doing.result()


# --- running ---------------------------------------------------------------------------------------------------------


# --- in the foreground -------------------------------------------------------------------------------------------


async def foreground(
    tasks: Tasks, command: str, call: str, sink: Printout, timeout_s: float, *, promote: bool
) -> Ended | BackgroundedCommand:
    """Run it; with `promote` it becomes a task when its time has passed (as options want it) or the user says so."""
    started = await _start(tasks, command, tasks.host.state.cwd, sink)
    if isinstance(started, Ended):
        return started
    wish: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if promote and not tasks.host.state.profile.startswith("seed"):
        tasks.front[call] = wish
    over = asyncio.ensure_future(started.ended())
    try:
        why = await _first(tasks, over, wish, timeout_s)
        if why == "timeout" and not (call in tasks.front and tasks.host.crew.task_options.promote):
            started.end("timeout")
            why = ""
        if not why:
            return await over
    except asyncio.CancelledError:
        started.end("interrupt")
        raise
    finally:
        tasks.front.pop(call, None)
        over.cancel()
    return await uncut(_promoted(tasks, started, command, call, why))


async def _first(tasks: Tasks, over: "asyncio.Future[Ended]", wish: "asyncio.Future[None]", timeout_s: float) -> str:
    """What comes first: '' when it has ended, else `user` or `timeout`."""
    timer = asyncio.ensure_future(tasks.host.crew.clock.sleep(timeout_s))
    try:
        await asyncio.wait((over, wish, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return "" if over.done() else "user" if wish.done() else "timeout"


async def _promoted(tasks: Tasks, started: Started, command: str, call: str, why: str) -> BackgroundedCommand:
    tasks.pool.take(anyway=True)  # it runs already, so it cannot wait for a place
    options = tasks.host.crew.task_options
    fact = TaskStarted(
        tasks.next_id(),
        command,
        call,
        options.timeout_s,
        policy="stop",
        cwd=tasks.host.state.cwd,
        promoted=why,
        memory_bytes=options.memory_bytes,
        cpu_s=options.cpu_s,
    )
    found = await _keep(tasks, started, fact)
    tail = ending.tail_of(tasks.pool.supervision, found, options.tail_bytes) if found is not None else ""
    return BackgroundedCommand(tasks.view(fact.task), why, tail)


# --- in the background -------------------------------------------------------------------------------------------


async def in_background(tasks: Tasks, command: str, call: str, limit_s: float) -> Ended | BackgroundedCommand:
    """Start it as a task, or let it wait for a place; `Ended` when it could not be started."""
    return await uncut(_begun(tasks, command, call, limit_s))


async def _begun(tasks: Tasks, command: str, call: str, limit_s: float) -> Ended | BackgroundedCommand:
    options, state = tasks.host.crew.task_options, tasks.host.state
    fact = TaskStarted(
        "",
        command,
        call,
        limit_s or options.timeout_s,
        cwd=state.cwd,
        memory_bytes=options.memory_bytes,
        cpu_s=options.cpu_s,
    )
    if not tasks.pool.take():
        queued = msgspec.structs.replace(fact, task=tasks.next_id(), state="queued")
        tasks.host.append(queued)
        await tasks.host.commit(flush=True)
        queue(tasks, queued)
        return BackgroundedCommand(tasks.view(queued.task), "asked")
    started = await _start_seated(tasks, command, state.cwd)
    if isinstance(started, Ended):
        return started
    fact = msgspec.structs.replace(fact, task=tasks.next_id())
    await _keep(tasks, started, fact)
    return BackgroundedCommand(tasks.view(fact.task), "asked")


def queue(tasks: Tasks, queued: TaskStarted) -> None:
    """Start it as soon as its turn has come, beside whatever goes on."""
    waiting = asyncio.ensure_future(_when_seated(tasks, queued))
    tasks.starting[queued.task] = waiting
    waiting.add_done_callback(lambda _: tasks.starting.pop(queued.task, None))


async def _when_seated(tasks: Tasks, queued: TaskStarted) -> None:
    await tasks.pool.wait(tasks.label)
    if tasks.host.closed or tasks.ended(queued.task):
        tasks.pool.free()
        return
    try:
        await uncut(_seated(tasks, queued))
    except LongreinError:
        return  # the log cannot be written: the walk meets the same and says so


async def _seated(tasks: Tasks, queued: TaskStarted) -> None:
    started = await _start_seated(tasks, queued.command, queued.cwd)
    if isinstance(started, Ended):
        tasks.end(TaskEnded(queued.task, "failed", started.code, f"could not be started: {started.message}"))
        return
    if tasks.ended(queued.task):  # it was stopped while it was started
        started.end("interrupt")
        tasks.pool.free()
        return
    await _keep(tasks, started, msgspec.structs.replace(queued, state="running"))


# --- both --------------------------------------------------------------------------------------------------------


async def _start_seated(tasks: Tasks, command: str, cwd: str) -> Started | Ended:
    """Start what a place was taken for; the place is free again when that fails."""
    started: Started | Ended | None = None
    try:
        started = await _start(tasks, command, cwd, None, stdin=True)
        return started
    finally:
        if started is None or isinstance(started, Ended):
            tasks.pool.free()


async def _start(
    tasks: Tasks, command: str, cwd: str, sink: Printout | None, *, stdin: bool = False
) -> Started | Ended:
    host = tasks.host
    return await tasks.pool.supervision.start(
        command,
        cwd=cwd,
        env=host.crew.workspace.environment(host.process_session),
        sink=sink,
        output_bytes_max=host.crew.options.output_bytes_max,
        stdin=stdin,
    )


async def _keep(tasks: Tasks, started: Started, fact: TaskStarted) -> Spooled | None:
    """First the log, then the supervisor. A place was taken for it. None when the supervisor is gone: it is lost."""
    keeping = Keeping(
        fact.task,
        fact.command,
        fact.policy,
        fact.limit_s,
        tasks.host.crew.task_options.quota_bytes,
        fact.memory_bytes,
        fact.cpu_s,
    )
    tasks.seat(fact.task)
    tasks.host.append(fact)
    try:
        await tasks.host.commit(flush=True)
        return await started.keep(keeping)
    except BaseException as error:  # what the log does not have, or nobody keeps, must not go on
        started.end("lost")
        gone = isinstance(error, OSError)
        why = f"the supervisor of commands is gone ({error})" if gone else "longrein was cut before it was kept"
        tasks.end(TaskEnded(fact.task, "lost", cause=f"{why}; it was ended"))
        if not gone:
            raise
        return None
