"""Closed and stalled pipes, and signals at any moment."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from longrein.frontends.headless import BufferedOutput, OutputOptions, run_headless
from longrein.tools import TaskView
from longrein_context import OpenCall
from longrein_context.events import PermissionAsked, StoreFull, Text, ToolCall

from .harness import (
    DONE,
    HANG,
    OpenedSession,
    Raise,
    ScriptedSession,
    Step,
    answered,
    asked,
    call,
    ended,
    play,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """(reading end, writing end) of a pipe."""
    ends = os.pipe()
    yield ends
    for fd in ends:
        with suppress(OSError):  # the test has closed it
            os.close(fd)


async def run(
    session: ScriptedSession,
    fd: int,
    output: str = "stream-json",
    lines: AsyncIterator[bytes] | None = None,
) -> tuple[int, list[str]]:
    err: list[str] = []
    options, out = OutputOptions(output), BufferedOutput(fd)  # type: ignore[arg-type]
    prompt = (Text("x"),)
    code = await run_headless(
        OpenedSession(session),
        prompt=prompt,
        options=options,
        out=out,
        err=err.append,
        lines=lines,
    )
    assert session.closed
    return code, err


def kill_later(number: int, after_s: float) -> None:
    asyncio.get_running_loop().call_later(after_s, os.kill, os.getpid(), number)


@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
async def test_R093_a_reader_that_left_ends_the_run_quietly(
    output: str, pipe: tuple[int, int]
) -> None:
    os.close(pipe[0])
    turn = [
        asked(),
        answered(1, "a", call(1, 0, "Read")),
        ended("c1.0", "Read", "x"),
        asked(),
        DONE,
    ]
    assert await run(ScriptedSession([turn]), pipe[1], output) == (1, [])


async def test_R093_a_reader_that_leaves_in_the_middle_interrupts_the_turn(
    pipe: tuple[int, int],
) -> None:
    session = ScriptedSession([[asked(), answered(1, "a" * 100, call(1, 0, "Read")), HANG]])
    running = asyncio.create_task(run(session, pipe[1]))
    await asyncio.to_thread(os.read, pipe[0], 1)
    os.close(pipe[0])
    session.append(ended("c1.0", "Read", "x"))  # the next line finds nobody
    assert await running == (1, [])


async def test_a_full_disk_behind_stdout_is_said() -> None:
    with open("/dev/full", "wb") as full:
        ran = await run(ScriptedSession([[asked(), answered(1, "a"), DONE]]), full.fileno(), "text")
    assert ran == (1, ["stdout cannot be written: No space left on device"])


async def test_a_plain_file_takes_everything(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as file:
        session = ScriptedSession([[asked(), answered(1, "ü" * 300_000), DONE]])
        assert await run(session, file.fileno(), "text") == (0, [])
    assert (tmp_path / "out").read_bytes() == "ü".encode() * 300_000 + b"\n"


async def test_a_slow_reader_gets_every_byte_and_does_not_stop_the_loop(
    pipe: tuple[int, int],
) -> None:
    session = ScriptedSession([[asked(), answered(1, "x" * 1_000_000), DONE]])
    running = asyncio.create_task(run(session, pipe[1]))
    await session.over.wait()  # the loop walks on although nobody reads
    got = b""
    while len(got) < 2_000_000:
        got += await asyncio.to_thread(os.read, pipe[0], 65_536)
    assert await running == (0, [])


async def test_A18_12_a_signal_interrupts_the_turn_and_the_result_says_so() -> None:
    kill_later(signal.SIGINT, 0.01)
    ran = await play([[asked(), HANG]])
    assert (ran.code, ran.kinds) == (130, "init user result")
    assert (
        ran.err
        == ran.lines[-1]["errors"]
        == ["interrupted: the session is saved, `longrein -p -c` goes on with it"]
    )


async def test_a_signal_before_the_turn_begins_stops_it_at_its_first_request() -> None:
    class Deaf(ScriptedSession):
        """Too early to be interrupted: the first `interrupt` finds nothing that runs."""

        def interrupt(self) -> None:
            if self.state.seq:
                super().interrupt()

    kill_later(signal.SIGINT, 0)
    assert (await play([], "text", session=Deaf([[asked(), HANG]]))).code == 130


async def test_a_signal_while_stdin_is_open_and_idle_ends_the_run(pipe: tuple[int, int]) -> None:
    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    kill_later(signal.SIGTERM, 0.02)
    session = ScriptedSession([[asked(), answered(1, "a"), DONE]])
    assert (await run(session, pipe[1], lines=never()))[0] == 143


async def test_a_signal_is_obeyed_while_the_reader_of_stdout_stalls(pipe: tuple[int, int]) -> None:
    kill_later(signal.SIGTERM, 0.02)
    session = ScriptedSession([[asked(), answered(1, "x" * 1_000_000, call(1, 0, "Read")), HANG]])
    assert (await run(session, pipe[1]))[0] == 143


async def test_a_second_signal_drops_a_turn_that_will_not_end() -> None:
    class Stubborn(ScriptedSession):
        def interrupt(self) -> None:
            pass

    kill_later(signal.SIGINT, 0.01)
    kill_later(signal.SIGINT, 0.03)
    ran = await play([], session=Stubborn([[asked(), HANG]]))
    assert (ran.code, ran.kinds) == (130, "init result")


async def test_a_question_that_was_open_at_a_crash_is_denied_too() -> None:
    asking = PermissionAsked("c2.0", "Bash", "make", "no rule allows it")
    turn: list[Step] = [
        ended("c2.0", "Bash", "Denied", "denied"),
        asked(),
        answered(43, "so"),
        DONE,
    ]
    session = ScriptedSession([turn], seq=41, open_turn=True)
    session.state.calls["c2.0"] = OpenCall(
        ToolCall("c2.0", "Bash", {"command": "make"}), 0, asked=asking
    )
    ran = await play([], "json", prompt="", session=session)
    assert [type(message).__name__ for message in ran.session.said] == ["Answer", "Continue"]
    assert ran.lines[0]["permission_denials"][0]["tool_input"] == {"command": "make"}


class FullAtClose(ScriptedSession):
    async def close(self, reason: str = "other") -> None:
        await super().close()
        raise StoreFull("no room on the disk")


class FullAtLeaving(ScriptedSession):
    async def leave(self, policy: str) -> Sequence[TaskView]:
        raise StoreFull("no room on the disk")


@pytest.mark.parametrize("full", [FullAtClose, FullAtLeaving])
async def test_a_full_disk_at_the_end_is_said_once_and_the_session_is_closed(
    full: Callable[..., ScriptedSession],
) -> None:
    ran = await play([], "text", session=full([[asked(), answered(1, "a"), DONE]]))
    assert (ran.code, ran.out, ran.err) == (1, b"", ["no room on the disk"])


async def test_a_bug_in_the_loop_flies() -> None:
    with pytest.raises(ZeroDivisionError):
        await play([[asked(), Raise(ZeroDivisionError())]])  # type: ignore[arg-type]
