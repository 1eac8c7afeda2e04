"""Work that is no command, such as a call of an MCP server, as a background task.

The task's process only waits for the text of the work and prints it. So the task has an output, an
end and a place in the log as any other, and ends with longrein.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from longrein.agent.background.session_tasks import SessionTasks
from longrein.agent.background.start import finish_despite_cancel, keep
from longrein.events import TaskStarted, Text
from longrein.tools import BackgroundedCommand, Outcome
from longrein.workspace import CommandExit, CommandSpec

CARRIER = ("sh", "-c", 'read -r code && cat && exit "$code"; exit 1')
"""Reads an exit code and a text."""
PIECE_BYTES = 32_768
FULL_S = 0.05
"""Pause before more is written to a process that has not read what it has."""


async def carry(
    tasks: SessionTasks, fact: TaskStarted, work: Coroutine[Any, Any, Outcome], after_s: float
) -> Outcome | BackgroundedCommand:
    """See `tools.TaskPort.carry`; `fact` is what is recorded if the work goes to the background."""
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
    started = await tasks.pool.supervision.start(
        CommandSpec(
            CARRIER,
            task.cwd,
            host.deps.workspace.environment(host.process_session),
            stdin=True,
        ),
        sink=None,
        output_bytes_max=host.deps.options.output_bytes_max,
    )
    if isinstance(started, CommandExit):
        return await doing
    tasks.pool.slots.force()  # it runs already, so it cannot wait for a slot
    fact = msgspec.structs.replace(task, task=tasks.next_id(), policy="stop", promoted=why)
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
