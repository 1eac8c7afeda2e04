"""Start of commands: in the foreground, in the background, and promotion from one to the other.

A promoted command stays the same process; only its record changes. A background task holds a slot
of the task pool or waits for one. A waiting task has not run, so it may be started again after a
crash.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from longrein.agent.background.session_tasks import SessionTasks, tail_text
from longrein.agent.confinement import confine
from longrein.agent.current_rules import confines, current_rules
from longrein.agent.hooks import SessionHooks
from longrein.agent.permission_check import command_places
from longrein.agent.session_part import Checkpoints
from longrein.tools import BackgroundedCommand, Outcome
from longrein.workspace import (
    BackgroundOptions,
    CommandExit,
    CommandSpec,
    ReplayableSink,
    SpooledTask,
    StartedCommand,
)
from longrein_context.events import LongreinError, TaskEnded, TaskStarted, Text

# --- Critical sections ----------------------------------------------------------------------------


T = TypeVar("T")
CANCEL_WAIT_S = 5.0
"""Wait of a cancellation for a critical section."""


async def finish_despite_cancel(work: Coroutine[Any, Any, T]) -> T:
    """Shield a critical section from cancellation: finish `work` and return its result.

    For work that must not stay half done, such as a task that is in the log and not yet kept. The
    result replaces the cancellation, which is obeyed only after `CANCEL_WAIT_S`.
    """
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait((doing,), timeout=CANCEL_WAIT_S)
        if not doing.done():
            doing.cancel()
        if doing.cancelled() or not doing.done():
            raise
        return doing.result()


# --- Foreground -----------------------------------------------------------------------------------


LOOK_EVERY_S = 2.5
"""Pause between two looks at whether a command waits for a terminal."""


async def run_in_foreground(
    tasks: SessionTasks, fact: TaskStarted, sink: ReplayableSink, timeout_s: float
) -> CommandExit | BackgroundedCommand:
    """Run a command; `fact` is what is recorded if it goes to the background.

    It becomes a background task when its time has passed (if the options allow) or when the user
    sends it there.
    """
    try:
        spec, call = command_spec(tasks, fact), fact.call
    except OSError as error:
        return _unconfined(error)
    started = await _start(tasks, spec, sink)
    if isinstance(started, CommandExit):
        return started
    wish: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if not tasks.host.state.profile.startswith("seed"):
        tasks.front[call] = wish
    over = asyncio.ensure_future(started.ended())
    timer = asyncio.ensure_future(tasks.host.deps.clock.sleep(timeout_s))
    stuck = asyncio.ensure_future(_wait_stuck(tasks, started))
    try:
        await asyncio.wait((over, wish, timer, stuck), return_when=asyncio.FIRST_COMPLETED)
        may_go_on = call in tasks.front and tasks.host.deps.task_options.promote
        goes_on = wish.done() or (may_go_on and not stuck.done())
        if not over.done() and not goes_on:
            started.end("terminal" if stuck.done() else "timeout")
        if over.done() or not goes_on:
            ended = await over
            tasks.pool.supervision.prepare(spec)
            if ended.cause == "terminal":
                ended = msgspec.structs.replace(ended, message=stuck.result())
            return ended
    except asyncio.CancelledError:
        started.end("interrupt")
        raise
    finally:
        tasks.front.pop(call, None)
        for waiting in (timer, stuck, over):
            waiting.cancel()
    why = "user" if wish.done() else "timeout"
    return await finish_despite_cancel(_promoted(tasks, started, fact, why))


async def _wait_stuck(tasks: SessionTasks, started: StartedCommand) -> str:
    """Wait until a program of the command waits for keys and nothing of the command has run since
    the last look; return its name.
    """
    before = b""
    while True:
        await tasks.host.deps.clock.sleep(LOOK_EVERY_S)
        program, now = started.waits_for_keys()
        if program and now == before:
            return program
        before = now


def _promotion(tasks: SessionTasks, task: TaskStarted, why: str) -> TaskStarted:
    """Take a slot for work that goes to the background; return what is recorded of it."""
    tasks.pool.slots.force()  # it runs already, so it cannot wait for a slot
    return msgspec.structs.replace(task, task=tasks.next_id(), policy="stop", promoted=why)


async def _promoted(
    tasks: SessionTasks, started: StartedCommand, task: TaskStarted, why: str
) -> BackgroundedCommand:
    fact = _promotion(tasks, task, why)
    found = await keep(tasks, started, fact)
    tail_bytes = tasks.host.deps.task_options.tail_bytes
    tail = tail_text(tasks.pool.supervision, found, tail_bytes) if found is not None else ""
    return BackgroundedCommand(tasks.view(fact.task), why, tail)


# --- Background -----------------------------------------------------------------------------------


async def run_in_background(
    tasks: SessionTasks, fact: TaskStarted
) -> CommandExit | BackgroundedCommand:
    """Start a command as a task, or queue it; `CommandExit` when it could not be started."""
    if not tasks.pool.slots.try_enter():
        queued = msgspec.structs.replace(fact, task=tasks.next_id(), state="queued")
        tasks.host.append(queued)
        await tasks.host.commit(flush=True)
        queue_task(tasks, queued)
        return BackgroundedCommand(tasks.view(queued.task), "asked")
    started = await _start_seated(tasks, fact)
    if isinstance(started, CommandExit):
        return started
    fact = msgspec.structs.replace(fact, task=tasks.next_id())
    await keep(tasks, started, fact)
    return BackgroundedCommand(tasks.view(fact.task), "asked")


MOVED = (
    "a path that it names leads elsewhere since it was allowed, so it was not started: run it again"
)


def queue_task(tasks: SessionTasks, queued: TaskStarted) -> None:
    """Start a queued task as soon as it gets a slot, if what was judged is still there."""
    judged = _places(tasks, queued)
    waiting = asyncio.ensure_future(_when_seated(tasks, queued, judged))
    tasks.starting[queued.task] = waiting
    waiting.add_done_callback(lambda _: tasks.starting.pop(queued.task, None))


def _places(tasks: SessionTasks, queued: TaskStarted) -> tuple[str, ...]:
    """Return the places on which the verdict on a queued command depends, as they are now."""
    bash = tasks.host.deps.tools.get("Bash")
    return command_places(current_rules(tasks.host), bash, queued.command, queued.cwd)


async def _when_seated(tasks: SessionTasks, queued: TaskStarted, judged: tuple[str, ...]) -> None:
    await tasks.pool.slots.enter(tasks.label)
    if tasks.host.closed or tasks.ended(queued.task):
        tasks.pool.slots.leave()
        return
    if _places(tasks, queued) != judged:
        tasks.pool.slots.leave()
        tasks.end(TaskEnded(queued.task, "failed", cause=MOVED))
        return
    try:
        await finish_despite_cancel(_seated(tasks, queued))
    except LongreinError:
        return  # the log cannot be written: the main loop reports the same error


async def _seated(tasks: SessionTasks, queued: TaskStarted) -> None:
    started = await _start_seated(tasks, queued)
    if isinstance(started, CommandExit):
        tasks.end(
            TaskEnded(
                queued.task, "failed", started.code, f"could not be started: {started.message}"
            )
        )
        return
    if tasks.ended(queued.task):  # stopped while it was starting
        started.end("interrupt")
        tasks.pool.slots.leave()
        return
    await keep(tasks, started, msgspec.structs.replace(queued, state="running"))


# --- Both -----------------------------------------------------------------------------------------


def task_started(
    tasks: SessionTasks, command: str, call: str, limit_s: float = 0.0, *, outside: bool = False
) -> TaskStarted:
    """Build the `TaskStarted` of a command; it gets its id when it is appended."""
    options = tasks.host.deps.task_options
    return TaskStarted(
        "",
        command,
        call,
        limit_s or options.timeout_s,
        cwd=tasks.host.state.cwd,
        memory_bytes=options.memory_bytes,
        cpu_s=options.cpu_s,
        outside_sandbox=outside,
    )


async def _start_seated(tasks: SessionTasks, fact: TaskStarted) -> StartedCommand | CommandExit:
    """Start a command for which a slot was taken; free the slot if that fails."""
    started: StartedCommand | CommandExit | None = None
    try:
        try:
            spec = command_spec(tasks, fact, stdin=True)
        except OSError as error:
            return _unconfined(error)
        started = await _start(tasks, spec, None)
        return started
    finally:
        if started is None or isinstance(started, CommandExit):
            tasks.pool.slots.leave()


def command_spec(tasks: SessionTasks, fact: TaskStarted, *, stdin: bool = False) -> CommandSpec:
    """Return how to start a command. Raises OSError where the sandbox cannot be set up."""
    host = tasks.host
    confinement = None if fact.outside_sandbox else confine(host, fact.cwd)
    variables = (
        {}
        if fact.outside_sandbox and confines(host.deps.sandbox)
        else host.part(SessionHooks).all_variables
    )
    return CommandSpec(
        fact.command,
        fact.cwd,
        {
            **host.deps.workspace.environment(host.process_session, host.call_id(fact.call)),
            **variables,
        },
        confinement,
        traced=Checkpoints in host.deps.parts,
        stdin=stdin,
    )


def _unconfined(error: OSError) -> CommandExit:
    why = f"the sandbox could not be set up: {error.strerror or error}"
    return CommandExit(126, "", "not_started", why)


async def _start(
    tasks: SessionTasks, spec: CommandSpec, sink: ReplayableSink | None
) -> StartedCommand | CommandExit:
    return await tasks.pool.supervision.start(
        spec, sink=sink, output_bytes_max=tasks.host.deps.options.output_bytes_max
    )


async def keep(
    tasks: SessionTasks, started: StartedCommand, fact: TaskStarted
) -> SpooledTask | None:
    """Write the task to the log, then hand it to the supervisor.

    A slot was taken for it. Returns None when the supervisor is gone and the task lost.
    """
    keeping = BackgroundOptions(
        fact.task,
        fact.command,
        fact.policy,
        fact.limit_s,
        tasks.host.deps.task_options.quota_bytes,
        fact.memory_bytes,
        fact.cpu_s,
    )
    tasks.seat(fact.task)
    tasks.host.append(fact)
    try:
        await tasks.host.commit(flush=True)
        return await started.keep(keeping)
    except BaseException as error:  # a task that is not logged or not kept must not continue
        started.end("lost")
        gone = isinstance(error, OSError)
        why = (
            f"the supervisor of commands is gone ({error})"
            if gone
            else "longrein was cut before it was kept"
        )
        tasks.end(TaskEnded(fact.task, "lost", cause=f"{why}; it was ended"))
        if not gone:
            raise
        return None


# --- Work that is no command ----------------------------------------------------------------------

CARRIER = ("sh", "-c", 'read -r code && cat && exit "$code"; exit 1')
"""Reads an exit code and a text."""
PIECE_BYTES = 32_768
FULL_S = 0.05
"""Pause before more is written to a process that has not read what it has."""


async def carry(
    tasks: SessionTasks, fact: TaskStarted, work: Coroutine[Any, Any, Outcome], after_s: float
) -> Outcome | BackgroundedCommand:
    """See `tools.TaskPort.carry`; `fact` is what is recorded if the work goes to the background.

    The task's process only waits for the text of the work and prints it. So the task has an output,
    an end and a place in the log as any other, and ends with longrein.
    """
    host, doing = tasks.host, asyncio.ensure_future(work)
    wish: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waits: list[asyncio.Future[Any]] = [doing]
    if not tasks.label and not host.state.profile.startswith("seed"):
        tasks.front[fact.call] = wish
        waits.append(wish)
        if host.deps.task_options.promote and after_s > 0:
            waits.append(asyncio.ensure_future(host.deps.clock.sleep(after_s)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
    except asyncio.CancelledError:
        doing.cancel()
        await asyncio.wait([doing])
        raise
    finally:
        tasks.front.pop(fact.call, None)
        for one in waits[2:]:
            one.cancel()
    return await finish_despite_cancel(
        _go_on(tasks, fact, doing, "user" if wish.done() else "timeout")
    )


async def _go_on(
    tasks: SessionTasks, task: TaskStarted, doing: "asyncio.Task[Outcome]", why: str
) -> Outcome | BackgroundedCommand:
    """Make a task of work that runs; where none can be made, wait for the work."""
    host = tasks.host
    environment = host.deps.workspace.environment(host.process_session)
    spec = CommandSpec(CARRIER, task.cwd, environment, stdin=True)
    started = await _start(tasks, spec, None)
    if isinstance(started, CommandExit):
        return await doing
    fact = _promotion(tasks, task, why)
    handing = asyncio.ensure_future(_hand_over(tasks, fact.task, doing))
    tasks.carried[fact.task] = handing
    handing.add_done_callback(lambda _: tasks.carried.pop(fact.task, None))
    try:
        await keep(tasks, started, fact)
    except BaseException:
        handing.cancel()
        raise
    return BackgroundedCommand(tasks.view(fact.task), why)


async def _hand_over(tasks: SessionTasks, task: str, doing: "asyncio.Task[Outcome]") -> None:
    """Give the text of the work to the task's process; cancel the work where the task is ended
    first.
    """
    over = asyncio.ensure_future(_wait_over(tasks, task))
    try:
        await asyncio.wait((doing, over), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            await _give(tasks, task, _text(doing))
    finally:
        over.cancel()
        doing.cancel()


async def _wait_over(tasks: SessionTasks, task: str) -> None:
    while not tasks.ended(task):
        await tasks.wait_over(task, 3600.0)


async def _give(tasks: SessionTasks, task: str, text: bytes) -> None:
    supervision = tasks.pool.supervision
    for start in range(0, len(text), PIECE_BYTES):
        is_last = start + PIECE_BYTES >= len(text)
        while True:
            try:
                await supervision.give(task, text[start : start + PIECE_BYTES], eof=is_last)
                break
            except BrokenPipeError:
                return
            except OSError:
                if tasks.ended(task):
                    return
                await tasks.host.deps.clock.sleep(FULL_S)


def _text(doing: "asyncio.Task[Outcome]") -> bytes:
    """Return the exit code of the task and its output, for `CARRIER`."""
    if doing.cancelled() or (error := doing.exception()) is not None:
        return f"1\nit failed inside: {'cancelled' if doing.cancelled() else error}\n".encode()
    outcome = doing.result()
    lost = "[an image or a file, which a task in the background cannot bring]"
    texts = [part.text if isinstance(part, Text) else lost for part in outcome.parts]
    code = "0" if outcome.status == "ok" else "1"
    return "\n".join((code, *texts, "")).encode("utf-8", "replace")
