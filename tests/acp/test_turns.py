"""A19 and A18.14: turns, permission questions, cancellation and history, with the client of the
SDK on real pipes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from longrein_context.events import PermissionAnswered, UserSpoke
from tests.acp.harness import Agent, RequestError, acp, agent, file, raw_agent
from tests.e2e.harness import CliHarness, background, bash, call, calls, fails, of, says
from tests.tables import cases, row, split_words

Work = Callable[[Agent, str], Awaitable[Any]]


def talk(cli: CliHarness, work: Work, **more: Any) -> Any:
    """Open a session and do `work(agent, session)`; return its result."""

    async def open_and_work() -> Any:
        async with agent(cli, **more) as longrein:
            return await work(longrein, (await longrein.new()).session_id)

    return asyncio.run(open_and_work())


READ = calls(call("Read", file_path="app.py"))
EDIT = call("Edit", file_path="app.py", old_string="two", new_string="2")


def test_a19_a_turn_with_thinking_plan_question_and_usage(cli: CliHarness) -> None:
    path = file(cli, "app.py", "one\ntwo\n")
    todo = call("TodoWrite", todos=[{"content": "do it", "status": "in_progress"}])
    cli.plays(
        calls(call("Read", file_path="app.py"), todo, thinking="First I look."),
        calls(EDIT),
        says("Done."),
    )

    async def work(longrein: Agent, session: str) -> None:
        editor = longrein.editor
        assert session == cli.session
        assert (
            await longrein.prompt(
                session, "change it", acp.resource_link_block("app", f"file://{path}")
            )
            == "end_turn"
        )
        assert editor.kinds()[0] == "available_commands_update"
        assert editor.text("agent_thought_chunk") == "First I look."
        assert editor.text() == "Done."
        assert editor.of("plan")[0]["entries"] == [
            {"content": "do it", "priority": "medium", "status": "in_progress"}
        ]
        read, edit = editor.call("Read"), editor.call("Edit")
        assert (read["kind"], read["status"], read["locations"]) == row(
            "read", "completed", [{"path": str(path)}]
        )
        assert editor.statuses("Edit") == ["pending", "in_progress", "completed"]
        assert edit["content"] == [
            {"type": "diff", "path": str(path), "oldText": "two", "newText": "2"}
        ]
        assert edit["locations"] == [{"path": str(path), "line": 2}]
        assert edit["rawInput"]["new_string"] == "2"
        assert edit["rawOutput"]["status"] == "ok"
        [question] = editor.questions
        assert [one.kind for one in question.options] == split_words(
            "allow_once allow_always allow_always allow_always reject_once"
        )
        assert question.tool_call.tool_call_id == edit["toolCallId"]
        assert question.tool_call.content[1].new_text == "2"
        usage = editor.of("usage_update")[-1]
        assert 0 < usage["used"] < usage["size"]
        assert editor.of("session_info_update")[0]["title"] == "change it"
        messages = {update["messageId"] for update in editor.of("agent_message_chunk")}
        assert len(messages) == 1

    talk(cli, work)
    assert path.read_text() == "one\n2\n"
    assert "[linked by the user: " + str(path) in str(of(cli, UserSpoke)[0].parts)


@cases(
    "option left answer",
    ("once", "one\n2\n", ("allow", "once")),
    ("session", "one\n2\n", ("allow", "session")),
    ("always", "one\n2\n", ("allow", "always")),
    ("all_edits", "one\n2\n", ("allow", "once")),
    ("no", "one\ntwo\n", ("deny", "once")),
    ("made up", "one\ntwo\n", ("deny", "once")),
    (None, "one\ntwo\n", ("deny", "once")),
)
def test_each_answer(cli: CliHarness, option: str, left: str, answer: tuple[str, str]) -> None:
    path = file(cli, "app.py", "one\ntwo\n")
    cli.plays(calls(call("Read", file_path="app.py")), calls(EDIT), says("Done."))

    async def work(longrein: Agent, session: str) -> None:
        longrein.editor.choose = lambda question: option
        assert await longrein.prompt(session, "go") == "end_turn"

    talk(cli, work)
    assert path.read_text() == left
    assert [(one.verdict, one.scope) for one in of(cli, PermissionAnswered)] == [answer]
    assert ("app.py" in cli.config.read_text()) == (option == "always")


def test_no_and_stop_ends_the_turn(cli: CliHarness) -> None:
    cli.without_sandbox()
    cli.plays(calls(bash("eval $X")), says("never"))

    async def work(longrein: Agent, session: str) -> None:
        longrein.editor.choose = lambda question: "stop"
        assert await longrein.prompt(session, "go") == "cancelled"
        [question] = longrein.editor.questions
        assert [one.option_id for one in question.options] == ["once", "no", "stop"]

    talk(cli, work)
    assert cli.said() == []


def test_a18_14_cancel_while_a_question_waits(cli: CliHarness) -> None:
    file(cli, "app.py", "one\ntwo\n")
    cli.plays(calls(call("Read", file_path="app.py")), calls(EDIT), says("Again."))

    async def work(longrein: Agent, session: str) -> None:
        cancelled = asyncio.Event()

        async def choose() -> None:
            await cancelled.wait()

        longrein.editor.choose = lambda question: choose()
        prompt = asyncio.create_task(longrein.prompt(session, "go"))
        await longrein.editor.wait_for(lambda: longrein.editor.questions)
        await longrein.connection.cancel(session_id=session)
        cancelled.set()  # the editor answers `cancelled`
        assert await prompt == "cancelled"
        assert await longrein.prompt(session, "go on") == "end_turn"

    talk(cli, work)
    assert cli.left().count("TurnEnded") == 2


def test_a18_14_a_later_version_is_answered_with_version_1(cli: CliHarness) -> None:
    async def work() -> None:
        async with raw_agent(cli) as raw:
            for version in (99, 1, 0):
                assert (await raw.ask("initialize", protocolVersion=version))[
                    "protocolVersion"
                ] == 1

    asyncio.run(work())


def test_a18_14_load_replays_before_it_returns(cli: CliHarness) -> None:
    file(cli, "app.py", "one\ntwo\n")
    cli.plays(
        calls(call("Read", file_path="app.py"), thinking="Hm."),
        says("It has two lines."),
        says("More."),
    )

    async def first(longrein: Agent, session: str) -> str:
        await longrein.prompt(
            session, "how many lines?", acp.image_block("iVBORw0KGgo=", "image/png")
        )
        return session

    session = talk(cli, first)
    where = {"sessionId": session, "cwd": str(cli.project), "mcpServers": []}

    async def again() -> None:
        async with raw_agent(cli) as raw:
            await raw.ask("initialize", protocolVersion=1)
            await raw.answer(raw.send("session/load", **where))
            replayed = [line["params"]["update"] for line in raw.lines if "method" in line]
            kinds = [update["sessionUpdate"] for update in replayed]
            assert kinds == split_words("""
                session_info_update user_message_chunk user_message_chunk agent_thought_chunk
                tool_call tool_call_update tool_call_update agent_message_chunk
            """)
            assert replayed[1]["content"]["text"] == "how many lines?"
            assert replayed[2]["content"]["data"] == "iVBORw0KGgo="
            assert replayed[7]["content"]["text"] == "It has two lines."
            sent = len(raw.lines)
            await raw.ask("session/close", sessionId=session)
            await raw.ask("session/resume", **where)
            updates = [
                line["params"]["update"]["sessionUpdate"]
                for line in raw.lines[sent:]
                if "method" in line
            ]
            assert set(updates) <= {"available_commands_update"}
            answer = await raw.ask(
                "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "and?"}]
            )
            assert answer == {"stopReason": "end_turn"}

    asyncio.run(again())


def test_a18_14_stdout_holds_only_json_when_library_prints(cli: CliHarness, tmp_path: Path) -> None:
    noisy = tmp_path / "noisy"
    noisy.mkdir()
    (noisy / "sitecustomize.py").write_text(
        "import os, sys, threading, time\n"
        "def talk():\n"
        "    while 'longrein.extensions.acp.agent_methods' not in sys.modules: time.sleep(0.01)\n"
        "    while True:\n"
        "        print('a library says something', flush=True); os.write(1, b'and more\\n'); "
        "time.sleep(0.002)\n"
        "if sys.argv[1:2] == ['acp']: threading.Thread(target=talk, daemon=True).start()\n"
    )
    cli.env["PYTHONPATH"] = str(noisy)
    cli.plays(calls(bash("echo hello")), says("Done."))
    err = []

    async def work() -> None:
        async with raw_agent(cli) as raw:
            session = await raw.open(cli)
            prompt = raw.send(
                "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}]
            )
            while (message := await raw.read()).get("id") != prompt or "method" in message:
                if message.get("method") == "session/request_permission":
                    raw.write(
                        {
                            "jsonrpc": "2.0",
                            "id": message["id"],
                            "result": {"outcome": {"outcome": "cancelled"}},
                        }
                    )
            err.append(await raw.process.stderr.readline())

    asyncio.run(work())
    assert b"a library says something" in err[0]


@cases("reply stop", (says("I will not.", stop="refusal"), "refusal"), (says("Fine."), "end_turn"))
def test_stop_reasons(cli: CliHarness, reply: Any, stop: str) -> None:
    cli.plays(reply)

    async def work(longrein: Agent, session: str) -> None:
        assert await longrein.prompt(session, "go") == stop

    talk(cli, work)


def test_a_limit_of_turns_is_a_stop_reason_with_a_line(cli: CliHarness) -> None:
    cli.settings("[limits]\nmax_turns = 1\n")
    cli.plays(calls(call("Read", file_path="x")), says("never"))

    async def work(longrein: Agent, session: str) -> None:
        assert await longrein.prompt(session, "go") == "max_turn_requests"
        assert "[longrein: " in longrein.editor.text()

    talk(cli, work)


@pytest.mark.parametrize(("status", "code"), [(401, -32000), (400, -32603)])
def test_provider_that_fails_is_error_of_prompt(cli: CliHarness, status: int, code: int) -> None:
    cli.plays(fails(status, "no such luck", 50), says("x"))

    async def work(longrein: Agent, session: str) -> None:
        with pytest.raises(RequestError) as raised:
            await longrein.prompt(session, "go")
        assert (raised.value.code, "no such luck" in str(raised.value)) == (code, True)

    talk(cli, work)


def test_subagents_are_visible_and_ask(cli: CliHarness) -> None:
    file(cli, "app.py", "one\ntwo\n")
    cli.plays(
        calls(call("Agent", description="change it", prompt="You change it.")),
        says("All done."),
        branches=[
            {
                "when": "You change it.",
                "turns": [calls(call("Read", file_path="app.py")), calls(EDIT), says("Yes.")],
            }
        ],
    )

    async def work(longrein: Agent, session: str) -> None:
        assert await longrein.prompt(session, "go") == "end_turn"
        editor = longrein.editor
        [question] = editor.questions
        label = question.tool_call.tool_call_id.partition(".")[0]
        assert question.tool_call.title == f"{label} general: Edit app.py"
        assert editor.call(f"Subagent {label} general: change it")["status"] == "completed"
        assert editor.call(f"{label} general: Edit")["status"] == "completed"
        assert editor.text() == "All done."

    talk(cli, work)
    assert (cli.project / "app.py").read_text() == "one\n2\n"


def test_a_background_task_is_a_long_call_and_its_end_a_turn(cli: CliHarness) -> None:
    cli.plays(
        calls(background("until [ -e go ]; do sleep 0.02; done; echo late")),
        says("Started."),
        says("It ended."),
    )

    async def work(longrein: Agent, session: str) -> None:
        editor = longrein.editor
        assert await longrein.prompt(session, "go") == "end_turn"
        assert editor.statuses("Background task b1") == ["in_progress"]
        await longrein.prompt(session, "/tasks")
        assert "- b1 running: until" in editor.text()
        (cli.project / "go").touch()
        await editor.wait_for(lambda: "It ended." in editor.text())
        task = editor.call("Background task b1")
        assert (task["status"], task["content"][0]["content"]["text"]) == (
            "completed",
            "```\nlate\n```",
        )

    talk(cli, work)


def test_output_of_a_running_command_is_shown(cli: CliHarness) -> None:
    cli.plays(calls(bash("echo first; until [ -e go ]; do sleep 0.02; done")), says("Done."))

    async def work(longrein: Agent, session: str) -> None:
        editor = longrein.editor
        prompt = asyncio.create_task(longrein.prompt(session, "go"))
        await editor.wait_for(
            lambda: editor.of("tool_call") and "first" in str(editor.call("Bash").get("content"))
        )
        assert editor.call("Bash")["status"] == "in_progress"
        (cli.project / "go").touch()
        assert await prompt == "end_turn"

    talk(cli, work)


def test_modes_models_and_options(cli: CliHarness) -> None:
    cli.settings('[models."play/two"]\nwindow = 100000\n')
    cli.plays(says("Hi."))

    async def work(longrein: Agent, session: str) -> None:
        editor, connection = longrein.editor, longrein.connection
        await connection.set_session_mode(session_id=session, mode_id="plan")
        await editor.wait_for(lambda: editor.of("current_mode_update"))
        changed = await connection.set_config_option(
            session_id=session, config_id="model", value="play/two"
        )
        values = {one.id: one.current_value for one in changed.config_options}
        assert values == {"mode": "plan", "model": "play/two"}
        await editor.wait_for(lambda: len(editor.of("config_option_update")) >= 2)
        for option, value in (("mode", "wild"), ("model", "play/none"), ("colour", "red")):
            with pytest.raises(RequestError) as raised:
                await connection.set_config_option(
                    session_id=session, config_id=option, value=value
                )
            assert raised.value.code == -32602

        assert await longrein.prompt(session, "go") == "end_turn"

    talk(cli, work)
    assert "ModeSet" in cli.left()


def test_commands_run_without_the_model(cli: CliHarness) -> None:
    cli.plays()

    async def work(longrein: Agent, session: str) -> None:
        [listed] = await longrein.editor.wait_for(
            lambda: longrein.editor.of("available_commands_update")
        )
        names = [one["name"] for one in listed["availableCommands"]]
        assert names == ["compact", "context", "pin", "unpin", "tasks", "stop", "background"]
        for name in names:
            assert await longrein.prompt(session, f"/{name}") == "end_turn"
        assert await longrein.prompt(session, "/pin use tabs") == "end_turn"
        await longrein.editor.wait_for(lambda: "Pinned: use tabs" in longrein.editor.text())

    talk(cli, work)
    assert "Asked" not in cli.left()


@pytest.mark.parametrize(("option", "mode"), [("once", "default"), ("no", "plan")])
def test_a_plan_is_shown_and_answered(cli: CliHarness, option: str, mode: str) -> None:
    cli.plays(calls(call("ExitPlanMode", plan="# The plan\n\n1. Change it.")), says("Well."))

    async def work(longrein: Agent, session: str) -> None:
        editor = longrein.editor
        editor.choose = lambda question: option
        await longrein.connection.set_session_mode(session_id=session, mode_id="plan")
        assert await longrein.prompt(session, "plan it") == "end_turn"
        [question] = editor.questions
        assert "# The plan" in str(question.tool_call.content)
        assert question.tool_call.kind == "switch_mode"
        assert editor.of("current_mode_update")[-1]["currentModeId"] == mode

    talk(cli, work)


def test_further_folders_are_roots(cli: CliHarness, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (more / "b.txt").write_text("b\n")
    cli.plays(calls(call("Read", file_path=str(more / "b.txt"))), says("Read."))

    async def work() -> None:
        async with agent(cli) as longrein:
            session = (await longrein.new(additional_directories=[str(more)])).session_id
            assert await longrein.prompt(session, "go") == "end_turn"
            assert longrein.editor.questions == []

    asyncio.run(work())
    assert cli.results() == [("ok", "1\tb")]
