"""Programs that longrein talks with over their standard input and output, with a supervisor and
without.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from longrein.workspace import (
    CommandExit,
    CommandSpec,
    StreamProcess,
    SupervisedSpawner,
    SupervisionOptions,
)
from longrein.workspace.stream_process import TAIL_BYTES

pytestmark = pytest.mark.anyio


@pytest.fixture
async def spawner(tmp_path: Path) -> AsyncIterator[SupervisedSpawner]:
    made = SupervisedSpawner(
        str(tmp_path / "tasks"),
        SupervisionOptions("n"),
        wall_us=lambda: time.time_ns() // 1000,
        notice=lambda _: None,
        environ=dict(os.environ),
    )
    yield made
    await made.drain()


async def started(spawner: SupervisedSpawner, line: str) -> StreamProcess:
    found = await spawner.start_streams(CommandSpec(["bash", "-c", line], "/", dict(os.environ)))
    assert isinstance(found, StreamProcess)
    return found


async def test_input_and_output_are_streams_and_errors_are_apart(
    spawner: SupervisedSpawner,
) -> None:
    process = await started(spawner, "echo wrong >&2; read x; echo got $x; exit 3")
    process.writer.write(b"yes\n")
    assert await process.reader.read() == b"got yes\n"
    assert (await process.ended()).code == 3
    assert process.errors.text == "wrong\n"
    await process.close()


async def test_a_program_that_cannot_start_has_a_reason(spawner: SupervisedSpawner) -> None:
    found = await spawner.start_streams(CommandSpec(["not-installed"], "/", dict(os.environ)))
    assert isinstance(found, CommandExit)
    told = (found.cause, found.message)
    assert told == ("not_started", "not-installed: no such file or directory")


async def test_close_ends_a_program_that_ignores_its_input_with_its_children(
    spawner: SupervisedSpawner,
) -> None:
    process = await started(spawner, "sleep 1000 & echo $!; wait")
    child = int(await process.reader.readline())
    await process.close()
    assert process.exit is not None
    assert process.exit.cause == "interrupt"
    while os.path.exists(f"/proc/{child}"):  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.01)


async def test_only_the_end_of_the_errors_is_kept(spawner: SupervisedSpawner) -> None:
    process = await started(
        spawner, "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo end >&2; echo done"
    )
    assert await process.reader.read() == b"done\n"
    await process.ended()
    assert len(process.errors.text) == TAIL_BYTES
    assert process.errors.text.endswith("xend\n")
    await process.close()


async def test_a_line_without_end_stops_at_the_limit(spawner: SupervisedSpawner) -> None:
    process = await started(spawner, "exec yes | tr -d '\\n'")
    with pytest.raises(asyncio.LimitOverrunError):
        await process.reader.readuntil(b"\n")
    await process.close()
