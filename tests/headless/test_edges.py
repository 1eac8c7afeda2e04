"""Closed and stalled pipes, and signals at any moment."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from longrein.context import OpenCall
from longrein.events import PermissionAsked, StoreFull, Text, ToolCall
from longrein.frontends.headless import BufferedOutput, Style, run_headless
from longrein.tools import TaskView

from .harness import DONE, FACTS, HANG, Raise, ScriptedSession, Step, answered, asked, call, ended, play

pytestmark = pytest.mark.anyio


async def run(session: ScriptedSession, fd: int, output: str = "stream-json") -> tuple[int, list[str]]:
    err: list[str] = []
    style = Style(output)  # type: ignore[arg-type]
    code = await run_headless(
        session, prompt=(Text("x"),), facts=FACTS, style=style, out=BufferedOutput(fd), err=err.append
    )
    assert session.closed
    return code, err


@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
async def test_R093_a_reader_that_left_ends_the_run_quietly(output: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    session = ScriptedSession(
        [[asked(), answered(1, "a", call(1, 0, "Read")), ended("c1.0", "Read", "x"), asked(), DONE]]
    )
    assert await run(session, writing, output) == (1, [])
    os.close(writing)


async def test_R093_a_reader_that_leaves_in_the_middle_interrupts_the_turn() -> None:
    reading, writing = os.pipe()
    session = ScriptedSession([[asked(), answered(1, "a" * 100, call(1, 0, "Read")), HANG]])
    running = asyncio.create_task(run(session, writing))
    await asyncio.to_thread(os.read, reading, 1)
    os.close(reading)
    session._append(ended("c1.0", "Read", "x"))  # the next line finds nobody
    assert await running == (1, [])
    os.close(writing)


async def test_a_full_disk_behind_stdout_is_said() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        code, err = await run(ScriptedSession([[asked(), answered(1, "a"), DONE]]), fd, "text")
    finally:
        os.close(fd)
    assert (code, err) == (1, ["stdout cannot be written: No space left on device"])


async def test_a_plain_file_takes_everything(tmp_path: Path) -> None:
    path = tmp_path / "out"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    assert await run(ScriptedSession([[asked(), answered(1, "ü" * 300_000), DONE]]), fd, "text") == (0, [])
    os.close(fd)
    assert path.read_bytes() == "ü".encode() * 300_000 + b"\n"


async def test_a_slow_reader_gets_every_byte_and_does_not_stop_the_loop() -> None:
    reading, writing = os.pipe()
    session = ScriptedSession([[asked(), answered(1, "x" * 1_000_000), DONE]])
    running = asyncio.create_task(run(session, writing))
    await session.over.wait()  # the loop walks on although nobody reads
    got = b""
    while len(got) < 2_000_000:
        got += await asyncio.to_thread(os.read, reading, 65_536)
    assert await running == (0, [])
    os.close(writing)
    os.close(reading)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_A18_12_a_signal_interrupts_the_turn_and_the_result_says_so(number: signal.Signals, code: int) -> None:
    session = ScriptedSession([[asked(), HANG]])
    asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), number)
    ran = await play([], session=session)
    assert ran.code == code
    assert ran.kinds == ["system/init", "user", "result"]
    assert ran.lines[-1]["errors"] == ["interrupted: the session is saved, `longrein -c` goes on with it"]
    assert ran.err == ran.lines[-1]["errors"]


async def test_a_signal_before_the_turn_begins_stops_it_at_its_first_request() -> None:
    class Deaf(ScriptedSession):
        """Too early to be interrupted: the first `interrupt` finds nothing that runs."""

        def interrupt(self) -> None:
            if self.state.seq:
                super().interrupt()

    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
    ran = await play([], "text", session=Deaf([[asked(), HANG]]))
    assert ran.code == 130


async def test_a_signal_while_stdin_is_open_and_idle_ends_the_run() -> None:
    asyncio.get_running_loop().call_later(0.02, os.kill, os.getpid(), signal.SIGTERM)
    session = ScriptedSession([[asked(), answered(1, "a"), DONE]])
    reading, writing = os.pipe()

    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    code = await run_headless(
        session,
        prompt=(Text("x"),),
        facts=FACTS,
        style=Style("stream-json"),
        out=BufferedOutput(writing),
        err=lambda _: None,
        lines=never(),
    )
    assert code == 143
    os.close(reading)
    os.close(writing)


async def test_a_signal_is_obeyed_while_the_reader_of_stdout_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longrein.frontends.headless.run.FAREWELL_S", 0.01)
    reading, writing = os.pipe()
    session = ScriptedSession([[asked(), answered(1, "x" * 1_000_000, call(1, 0, "Read")), HANG]])
    asyncio.get_running_loop().call_later(0.02, os.kill, os.getpid(), signal.SIGTERM)
    code, _ = await run(session, writing)
    assert code == 143
    os.close(reading)
    os.close(writing)


async def test_a_second_signal_drops_a_turn_that_will_not_end() -> None:
    class Stubborn(ScriptedSession):
        def interrupt(self) -> None:
            pass

    loop = asyncio.get_running_loop()
    loop.call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
    loop.call_later(0.03, os.kill, os.getpid(), signal.SIGINT)
    ran = await play([], session=Stubborn([[asked(), HANG]]))
    assert ran.code == 130
    assert ran.kinds == ["system/init", "result"]


async def test_a_question_that_was_open_at_a_crash_is_denied_too() -> None:
    asking = PermissionAsked("c2.0", "Bash", "make", "no rule allows it")
    turn: list[Step] = [ended("c2.0", "Bash", "Denied", "denied"), asked(), answered(43, "so"), DONE]
    session = ScriptedSession([turn], seq=41, open_turn=True)
    session.state.calls["c2.0"] = OpenCall(ToolCall("c2.0", "Bash", {"command": "make"}), 0, asked=asking)
    ran = await play([], "json", prompt="", session=session)
    assert [type(word).__name__ for word in ran.session.said] == ["Answer", "Continue"]
    assert ran.lines[0]["permission_denials"][0]["tool_input"] == {"command": "make"}


async def test_an_error_at_close_is_not_lost() -> None:
    class Full(ScriptedSession):
        async def close(self) -> None:
            await super().close()
            raise StoreFull("no room on the disk: free some, then go on with `longrein -c`")

    ran = await play([], "text", session=Full([[asked(), answered(1, "a"), DONE]]))
    assert (ran.code, ran.out) == (1, b"")
    assert ran.err == ["no room on the disk: free some, then go on with `longrein -c`"]


async def test_a_bug_in_the_loop_flies() -> None:
    class Bug(Raise):
        def __init__(self) -> None:
            self.error = ZeroDivisionError()  # type: ignore[assignment]

    with pytest.raises(ZeroDivisionError):
        await play([[asked(), Bug()]])


async def test_a_session_that_cannot_write_what_goes_on_is_closed_all_the_same_and_says_so_once() -> None:
    class Full(ScriptedSession):
        async def leave(self, policy: str) -> Sequence[TaskView]:
            raise StoreFull(f"no room on the disk to {policy} anything")

    ran = await play([], session=Full([[asked(), answered(1, "a"), DONE]]))
    assert (ran.code, ran.err) == (1, ["no room on the disk to keep anything"])
    assert ran.session.closed
