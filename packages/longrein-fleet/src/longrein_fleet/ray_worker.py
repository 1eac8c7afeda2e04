"""Work of a Ray task: one attempt, run by a `LocalExecutor` on the node.

The settings and the keys are those of the node. Its processes end when the worker dies, since
their supervisor does not outlive it.

Where the sessions are in a shared store, the sources come with the task, and everything is below
the state folder of the node: the next node makes the folder anew, and the session brings its tree.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import aclosing, suppress

import msgspec

from longrein import __version__
from longrein.app.run_context import read_run_context
from longrein.folder_trees import remove_tree
from longrein.options import Options
from longrein_context.events import LongreinError, UsageError
from longrein_fleet.attempt_folder import PATCH
from longrein_fleet.executor import Attempt
from longrein_fleet.fleet_log import fleet_folder
from longrein_fleet.fleet_state import UNCOUNTED, AttemptEnded
from longrein_fleet.local_executor import (
    CHECK_LOG,
    OUTPUT,
    SETUP_LOG,
    LocalExecutor,
    with_store,
)

FILE_BYTES_MAX = 1 << 20
"""Most of the end of each output that goes back to the fleet."""

NODES = "nodes"
"""Folder of attempts on nodes that see no folder of the fleet, by session."""


class Work(msgspec.Struct, frozen=True):
    """Order to a worker."""

    attempt: Attempt
    state_dir: str
    """State folder, on a file system that all nodes share; '' for that of the node."""
    fleet: str
    """Name of the fleet."""
    store: str
    """Address of the store of sessions; '' for that of the node's settings."""
    rates: str = ""
    """Name of the fleet's rates in the store; '' for the file in its folder."""
    address: str = ""
    """Address of the Ray, for subagents of the task."""
    version: str = __version__
    """Version of longrein that runs the fleet."""


class Done(msgspec.Struct, frozen=True):
    """Answer of a worker."""

    end: AttemptEnded
    files: dict[str, bytes] = {}
    """Files of the attempt's folder that the fleet keeps, where it does not see that folder."""


def run_work(data: bytes, sources: bytes = b"") -> bytes:
    """Run an attempt; return a `Done` as JSON. `sources`: see `LocalExecutor`.

    It may have been begun by a worker that died: then it goes on in its session.
    """
    work = msgspec.json.decode(data, type=Work)
    try:
        return msgspec.json.encode(asyncio.run(_run(work, sources)))
    except LongreinError as error:
        message = f"{os.uname().nodename}: {error}"
        return msgspec.json.encode(Done(AttemptEnded(work.attempt.task.id, "node", message)))


async def _run(work: Work, sources: bytes) -> Done:
    if work.version != __version__:
        raise UsageError(
            f"the node has longrein {__version__}, and the fleet is run by {work.version}: install "
            "the same version on all nodes"
        )
    current = asyncio.current_task()
    assert current is not None
    # how Ray cancels
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, current.cancel)
    run_context = read_run_context(Options(state_dir=work.state_dir), folder=work.state_dir or "/")
    run_context = with_store(run_context, work.store)
    environ = {**run_context.environ, "RAY_ADDRESS": work.address}
    run_context = msgspec.structs.replace(run_context, environ=environ)
    folder = fleet_folder(run_context.state_dir, work.fleet)
    if sources:  # another fleet may have that name
        folder = os.path.join(folder, NODES, work.attempt.session)
    name = work.attempt.path.replace("/", "-")
    spool = os.path.join(folder, "supervisors", name)
    executor = LocalExecutor(run_context, folder, spool, sources, work.rates)
    await executor.wait_for_earlier()
    try:
        executor.submit(work.attempt)
        async with aclosing(executor.events()) as ends:
            end = await anext(ends)
    finally:
        await executor.close()
    if not sources:
        return Done(end)
    done = Done(end, dict(_kept_files(os.path.join(folder, work.attempt.path))))
    if end.cause not in UNCOUNTED:
        remove_tree(folder, ignore_errors=True)
    return done


def _kept_files(folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the patch of an attempt, and the ends of what its commands printed."""
    for name in (PATCH, OUTPUT, SETUP_LOG, CHECK_LOG):
        with suppress(FileNotFoundError), open(os.path.join(folder, name), "rb") as file:
            if name != PATCH:
                file.seek(max(0, os.fstat(file.fileno()).st_size - FILE_BYTES_MAX))
            yield name, file.read()
