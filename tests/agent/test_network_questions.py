"""Questions about hosts: who is asked, what an answer covers, when a question ends. Real
commands in bubblewrap.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from longrein.agent import Answer, FromSubagent, OpenSession, UserMessage
from longrein.app import Additions, App
from longrein.app.run_context import read_run_context
from longrein.options import Options
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein_context.events import (
    Entry,
    PermissionAnswered,
    PermissionAsked,
    Text,
    ToolEnded,
    text_of,
)
from tests.agent.disk_harness import turn as run_turn
from tests.e2e.harness import needs_bubblewrap
from tests.timeouts import HANG_S, until

pytestmark = [pytest.mark.anyio, needs_bubblewrap]

NAME = socket.gethostname().lower()
"""A name that is not `localhost` and leads to this machine."""


def own_address() -> str:
    try:
        return socket.gethostbyname(NAME)
    except OSError:
        return ""


needs_name = pytest.mark.skipif(not own_address(), reason="the name of this machine has no address")


class World:
    """A server of this machine, a home with settings that name its address, and the entries of a
    session.
    """

    def __init__(self, base: Path, port: int) -> None:
        self.base, self.port, self.host = base, port, f"{NAME}:{port}"
        self.curl = f"curl -sS --max-time {HANG_S:g} http://{self.host}/"
        self.settings(f"{own_address()}:{port}")

    @property
    def config(self) -> Path:
        return self.base / ".config/longrein/config.toml"

    def settings(self, *entries: str) -> None:
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(f"[sandbox]\nnetwork = {list(entries)!r}\n".replace("'", '"'))

    @asynccontextmanager
    async def open(self, model: ScriptedModel, **more: Any) -> AsyncIterator[OpenSession]:
        folder = self.base / "project"
        folder.mkdir(exist_ok=True)
        options = Options(state_dir=str(self.base / "state"), **more)
        app = App(read_run_context(options, folder=str(folder)), print)
        session = (await app.open(fresh=True, additions=Additions(model))).session
        try:
            yield session
        finally:
            await session.close()

    async def ask(
        self,
        model: ScriptedModel,
        answer: "Callable[[PermissionAsked], Answer | None]",
        **more: Any,
    ) -> "Log":
        """Run one prompt of a session of its own."""
        async with self.open(model, **more) as session:
            return await turn(session, answer)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    server = await asyncio.start_server(serve, own_address() or "127.0.0.1", 0)
    yield World(tmp_path, server.sockets[0].getsockname()[1])
    server.close()


def yes(asked: PermissionAsked, scope: Any = "once") -> Answer:
    return Answer(asked.call, "allow", scope, asked.suggestion if scope != "once" else "")


def no(asked: PermissionAsked) -> Answer:
    return Answer(asked.call, "deny", message="not there")


class Log:
    """What a session told while it ran."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, PermissionAsked]] = []
        self.answered: list[PermissionAnswered] = []
        self.results: list[str] = []
        self.seen = 0
        """Seq of the last entry of the session itself."""

    @property
    def shown(self) -> list[str]:
        return [asked.shown for _, asked in self.asked]


@asynccontextmanager
async def answering(
    session: OpenSession, answer: Callable[[PermissionAsked], Answer | None]
) -> AsyncIterator[Log]:
    """Answer each question of a session and its subagents while the body runs."""
    log = Log()

    async def follow() -> None:
        async for told in session.follow():
            entry = told.heard if isinstance(told, FromSubagent) else told
            child = told.child if isinstance(told, FromSubagent) else ""
            if isinstance(told, Entry):
                log.seen = told.seq
            match entry.event if isinstance(entry, Entry) else None:
                case PermissionAsked() as asked:
                    log.asked.append((child, asked))
                    if given := answer(asked):
                        session.tell(Answer(**{**fields(given), "session": child}))
                case PermissionAnswered() as answered:
                    log.answered.append(answered)
                case ToolEnded() as ended:
                    log.results.append(text_of(ended.parts))

    task = asyncio.ensure_future(follow())
    await asyncio.sleep(0)
    try:
        yield log
        last = session.entries_from(1)[-1].seq
        await until(lambda: log.seen >= last)
    finally:
        task.cancel()


def fields(answer: Answer) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in answer.__struct_fields__}


async def turn(session: OpenSession, answer: Callable[[PermissionAsked], Answer | None]) -> Log:
    """Run one prompt to its end."""
    async with answering(session, answer) as log:
        await asyncio.wait_for(run_turn(session, "go"), HANG_S)
    return log


def bash(command: str, **more: Any) -> Any:
    return call("Bash", command=command, **more)


@needs_name
async def test_one_yes_holds_for_the_commands_that_run(world: World) -> None:
    model = ScriptedModel(
        says(bash(f"{world.curl}; {world.curl}")), says(bash(world.curl)), says("so")
    )
    log = await world.ask(model, yes)
    assert log.shown == [f"reach {NAME} on port {world.port}"] * 2
    assert log.asked[0][1].suggestion == f"Network({world.host})"
    assert log.results == ["hellohello", "hello"]
    assert [(one.verdict, one.scope, one.rule) for one in log.answered] == [
        ("allow", "once", "")
    ] * 2


@needs_name
async def test_yes_for_the_session_is_a_rule_of_this_run(world: World) -> None:
    model = ScriptedModel(says(bash(world.curl)), says(bash(world.curl)), says("so"))
    log = await world.ask(model, lambda asked: yes(asked, "session"))
    assert (len(log.asked), log.results) == (1, ["hello", "hello"])
    assert "Network" not in world.config.read_text()


@needs_name
async def test_always_is_a_rule_in_the_settings(world: World) -> None:
    for asks in (1, 0):
        model = ScriptedModel(says(bash(world.curl)), says("so"))
        async with world.open(model) as session:
            log = await turn(session, lambda asked: yes(asked, "always"))
        assert (len(log.asked), log.results) == (asks, ["hello"])
    assert f'allow = ["Network({world.host})"]' in world.config.read_text()


@needs_name
async def test_a_rule_that_was_not_proposed_is_not_granted(world: World) -> None:
    model = ScriptedModel(says(bash(world.curl)), says(bash(world.curl)), says("so"))
    log = await world.ask(model, lambda asked: Answer(asked.call, "allow", "always", "Network"))
    assert [(one.scope, one.rule) for one in log.answered] == [("once", "")] * 2


@needs_name
async def test_no_is_told_to_model_and_not_asked_again_by_the_same_command(world: World) -> None:
    model = ScriptedModel(says(bash(f"{world.curl} --fail; {world.curl} --fail")), says("so"))
    log = await world.ask(model, no)
    assert len(log.asked) == 1
    assert (
        f"[the sandbox refused hosts: {world.host} is not allowed: the user said no: not there]"
        in log.results[0]
    )


@needs_name
async def test_commands_side_by_side_share_one_question(world: World) -> None:
    model = ScriptedModel(says(*(bash(f"{world.curl}; sleep 0") for _ in range(32))), says("so"))
    log = await world.ask(model, lambda asked: yes(asked, "session"))
    assert (len(log.asked), log.results) == (1, ["hello"] * 32)


async def test_an_interrupt_withdraws_the_question(world: World) -> None:
    model = ScriptedModel(says(bash("curl -sS https://other.example/")), says("so"))
    async with world.open(model) as session:

        def interrupt(_: PermissionAsked) -> None:
            session.interrupt()

        async with answering(session, interrupt) as log:
            await run_turn(session, "go")
            await until(lambda: bool(log.answered))
    assert [(one.verdict, one.by) for one in log.answered] == [("deny", "interrupt")]


@needs_name
async def test_a_background_task_asks_while_the_session_is_idle(world: World) -> None:
    model = ScriptedModel(
        says(bash(f"sleep 0.5; {world.curl}", run_in_background=True)), says("so"), says("so")
    )
    async with world.open(model) as session, answering(session, yes) as log:
        running = asyncio.ensure_future(session.run(once=False))
        session.tell(UserMessage((Text("go"),)))
        await until(
            lambda: (
                not (not log.answered or any(task.state == "running" for task in session.tasks()))
            )
        )
        assert session.tasks()[0].size_bytes == 5
        running.cancel()


@needs_name
async def test_a_subagent_asks_as_itself(world: World) -> None:
    model = ScriptedModel(
        says(call("Agent", description="d", prompt="p", subagent_type="general")),
        says(bash(world.curl)),
        says("found"),
        says("so"),
    )
    log = await world.ask(model, yes)
    assert [bool(child) for child, _ in log.asked] == [True]
    assert "hello" in log.results


@pytest.mark.parametrize("mode", ["dontAsk", "plan"])
async def test_modes_that_ask_for_no_host(world: World, mode: str) -> None:
    model = ScriptedModel(says(bash("curl -sS https://other.example/")), says("so"))
    async with world.open(model, permission_mode=mode, allowed_tools=("Bash",)) as session:
        log = await turn(session, yes)
    assert log.asked == [] or log.asked[0][1].name != "Network"
    if mode == "dontAsk":
        assert (
            "other.example is not allowed, and the mode dontAsk asks for no host; add "
            '"other.example"' in (log.results[0])
        )


@needs_name
@pytest.mark.parametrize("mode", ["auto", "acceptEdits", "bypassPermissions"])
async def test_modes_that_ask_for_hosts(world: World, mode: str) -> None:
    model = ScriptedModel(says(bash(world.curl)), says("so"))
    log = await world.ask(model, yes, permission_mode=mode)
    assert (len(log.asked), log.results) == (1, ["hello"])


async def test_s099_an_empty_list_starts_nothing_and_asks_nobody(world: World) -> None:
    world.settings()
    model = ScriptedModel(
        says(bash("env | grep -ci _proxy; curl -sS https://other.example/")), says("so")
    )
    log = await world.ask(model, yes)
    assert log.asked == []
    assert log.results[0].startswith("0\n")
    assert "[the sandbox has no network" in log.results[0]
    assert not list(world.base.glob("state/**/proxy-*"))
