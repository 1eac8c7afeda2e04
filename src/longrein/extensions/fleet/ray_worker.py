"""Work of a Ray task: one attempt, run by a `LocalExecutor` on the node.

The settings and the keys are those of the node. Its processes end when the worker dies, since
their supervisor does not outlive it.
"""

import asyncio
import os
import signal
from contextlib import aclosing

import msgspec

from longrein import __version__
from longrein.app.run_context import read_run_context
from longrein.events import LongreinError, UsageError
from longrein.extensions.fleet.executor import Attempt
from longrein.extensions.fleet.fleet_state import TaskEnded
from longrein.extensions.fleet.local_executor import LocalExecutor, with_store
from longrein.options import Options


class Work(msgspec.Struct, frozen=True):
    """Order to a worker. The folders are on a file system that all nodes share."""

    attempt: Attempt
    state_dir: str
    folder: str
    """Folder of the fleet."""
    store: str
    """Address of the store of sessions; '' for that of the node's settings."""
    version: str = __version__
    """Version of longrein that runs the fleet."""


def run_work(data: bytes) -> bytes:
    """Run an attempt; return its `TaskEnded` as JSON.

    It may have been begun by a worker that died: then it goes on in its session.
    """
    work = msgspec.json.decode(data, type=Work)
    try:
        return msgspec.json.encode(asyncio.run(_run(work)))
    except LongreinError as error:
        message = f"{os.uname().nodename}: {error}"
        return msgspec.json.encode(TaskEnded(work.attempt.task.id, "node", message))


async def _run(work: Work) -> TaskEnded:
    if work.version != __version__:
        raise UsageError(
            f"the node has longrein {__version__}, and the fleet is run by {work.version}: install "
            "the same version on all nodes"
        )
    current = asyncio.current_task()
    assert current is not None
    # how Ray cancels
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, current.cancel)
    place = read_run_context(Options(state_dir=work.state_dir), folder=work.state_dir)
    place = with_store(place, work.store)
    name = work.attempt.path.replace("/", "-")
    executor = LocalExecutor(place, work.folder, os.path.join(work.folder, "supervisors", name))
    await executor.wait_for_earlier()
    try:
        executor.submit(work.attempt)
        async with aclosing(executor.events()) as ends:
            return await anext(ends)
    finally:
        await executor.close()
