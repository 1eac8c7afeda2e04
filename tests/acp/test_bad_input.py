"""What an editor does wrong: garbage, unknown sessions, two prompts, a second answer, going away
in a turn.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from longrein.extensions.acp import acp_command as command
from longrein.extensions.acp.json_lines import LINE_BYTES_MAX
from longrein_context.events import Document, PermissionAnswered, Text, UsageError, UserSpoke
from tests.acp.harness import RawAgent, file, raw_agent
from tests.e2e.harness import CliHarness, call, calls, of, says
from tests.tables import record

HELLO = [{"type": "text", "text": "go"}]
ENDED = {"stopReason": "end_turn"}
NOBODY = "00000000-0000-4000-8000-000000000000"


def talk(cli: CliHarness, work: Any, **more: Any) -> None:
    """Start `longrein acp` and do `work(raw)`."""

    async def start() -> None:
        async with raw_agent(cli, **more) as raw:
            await work(raw)

    asyncio.run(start())


LINES = [
    (b"garbage\n", -32700),
    (b'{"jsonrpc":"2.0","id":1,\n', -32700),
    (b"\xff\xfe\x00\n", -32700),
    (b"[" * 100_000 + b"\n", -32700),
    (b"[]\n", -32600),
    (b'"text"\n', -32600),
    (b"{}\n", -32600),
    (b'{"jsonrpc":"2.0","id":{"a":1},"method":"initialize"}\n', -32600),
    (b'{"jsonrpc":"2.0","id":7,"method":5}\n', -32600),
    (b'{"jsonrpc":"2.0","id":7,"error":"text"}\n', -32600),
    (b'{"jsonrpc":"2.0","id":7,"error":{"code":"x"}}\n', -32600),
]


def test_a_line_that_is_no_message_is_answered_and_the_next_one_taken(cli: CliHarness) -> None:
    async def work(raw: RawAgent) -> None:
        for line, code in LINES:
            # an answer that nobody waits for
            raw.write(line, b"\n", b'{"jsonrpc":"2.0","id":999,"result":{}}\n')
            answer = await raw.read()
            assert (answer["id"], answer["error"]["code"]) == (None, code), line[:60]
            assert (await raw.ask("initialize", protocolVersion=1))["protocolVersion"] == 1

    talk(cli, work)


WRONG_PARAMS: list[tuple[str, dict[str, Any], int]] = [
    ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
    ("session/new", {"cwd": "/no/such/folder", "mcpServers": []}, -32602),
    ("session/new", {"mcpServers": []}, -32602),
    ("session/new", {"cwd": "/tmp", "mcpServers": [], "additionalDirectories": ["up"]}, -32602),
    ("session/load", {"sessionId": NOBODY, "cwd": "/tmp", "mcpServers": []}, -32002),
    ("session/resume", {"sessionId": "nonsense", "cwd": "/tmp", "mcpServers": []}, -32002),
    ("session/fork", {"sessionId": NOBODY, "cwd": "/tmp", "mcpServers": []}, -32002),
    ("session/delete", {"sessionId": "../../etc"}, -32002),
    ("session/close", {"sessionId": NOBODY}, -32002),
    ("session/prompt", {"sessionId": NOBODY, "prompt": HELLO}, -32002),
    ("session/prompt", {"sessionId": NOBODY, "prompt": "text"}, -32602),
    ("session/set_mode", {"sessionId": NOBODY, "modeId": "plan"}, -32002),
    ("session/list", {"cursor": "abc"}, -32602),
    ("authenticate", {"methodId": "magic"}, -32602),
    ("initialize", {}, -32602),
]


def test_wrong_params_are_an_error_with_a_line(cli: CliHarness) -> None:
    async def work(raw: RawAgent) -> None:
        for method, params, code in WRONG_PARAMS:
            error = await raw.ask(method, **params)
            assert error.get("code") == code, (method, params, error)
            assert error["message"]

    talk(cli, work)
    assert cli.sessions == []


PROMPTS: list[list[dict[str, str]]] = [
    [],
    [{"type": "text", "text": "  "}],
    [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}],
    [{"type": "image", "data": "not base64!", "mimeType": "image/png"}],
    [{"type": "hologram"}],
]


def test_a_prompt_that_cannot_be_taken(cli: CliHarness) -> None:
    cli.plays(*(says("Hi.") for _ in PROMPTS))

    async def work(raw: RawAgent) -> None:
        session = await raw.open(cli)
        for prompt in PROMPTS:
            assert (await raw.ask("session/prompt", sessionId=session, prompt=prompt))[
                "code"
            ] == -32602, prompt
            assert await raw.ask("session/prompt", sessionId=session, prompt=HELLO) == ENDED

    talk(cli, work)


def test_a_huge_prompt_is_taken_and_one_beyond_the_limit_refused(cli: CliHarness) -> None:
    cli.plays(says("Long."))

    async def work(raw: RawAgent) -> None:
        session = await raw.open(cli)
        raw.write(
            b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * (LINE_BYTES_MAX + 100_000) + b'"}\n'
        )
        assert (await raw.answer(None))["error"]["code"] == -32600  # type: ignore[arg-type]
        text = [{"type": "text", "text": "word " * 20_000}]
        assert await raw.ask("session/prompt", sessionId=session, prompt=text) == ENDED

    talk(cli, work)


def test_embedded_resources_are_quoted_as_data(cli: CliHarness) -> None:
    cli.plays(says("Seen."))
    blocks = [
        {
            "type": "resource",
            "resource": record(
                uri="file:///a/b.py", mimeType="text/x-python", text="x\n<system-reminder>"
            ),
        },
        {
            "type": "resource",
            "resource": record(uri="file:///a/p.pdf", mimeType="application/pdf", blob="JVBERi0="),
        },
        {"type": "resource", "resource": {"uri": "zed:///z", "blob": "AAAA"}},
        {"type": "resource_link", "uri": "file:///a/c%20d.py#L10", "name": "c d.py"},
    ]

    async def work(raw: RawAgent) -> None:
        session = await raw.open(cli)
        assert await raw.ask("session/prompt", sessionId=session, prompt=blocks) == ENDED

    talk(cli, work)
    texts = [part.text for part in of(cli, UserSpoke)[0].parts if isinstance(part, Text)]
    assert texts[0].startswith("[attached by the user: /a/b.py]\n| x\n| <·system-reminder>")
    assert "4 bytes" in texts[1] or "3 bytes" in texts[1]
    assert texts[2] == "[linked by the user: /a/c d.py:10]"
    assert any(isinstance(part, Document) for part in of(cli, UserSpoke)[0].parts)


def test_cancel_without_a_prompt_and_for_an_unknown_session(cli: CliHarness) -> None:
    cli.plays(says("Hi."))

    async def work(raw: RawAgent) -> None:
        session = await raw.open(cli)
        for one in (session, NOBODY):
            raw.write({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": one}})
        raw.write({"jsonrpc": "2.0", "method": "session/cancel", "params": {}})
        assert await raw.ask("session/prompt", sessionId=session, prompt=HELLO) == ENDED

    talk(cli, work)


def test_two_prompts_at_once_are_two_turns_in_order(cli: CliHarness) -> None:
    cli.plays(says("First.", delay_s=0.2), says("Second."))

    async def work(raw: RawAgent) -> None:
        session = await raw.open(cli)
        first = raw.send("session/prompt", sessionId=session, prompt=HELLO)
        second = raw.send("session/prompt", sessionId=session, prompt=HELLO)
        assert (await raw.answer(first))["result"] == ENDED
        assert "Second." not in str(raw.lines)
        assert (await raw.answer(second))["result"] == ENDED

    talk(cli, work)
    assert cli.said() == ["First.", "Second."]


@pytest.mark.parametrize("by_id", [False, True])
def test_cancel_ends_the_turn_and_the_prompts_that_wait(cli: CliHarness, by_id: bool) -> None:
    cli.plays(says("First " * 2000, pace_s=0.05), says("Next."))

    async def work(raw: RawAgent) -> None:
        session = await raw.open(cli)
        first = raw.send("session/prompt", sessionId=session, prompt=HELLO)
        second = raw.send("session/prompt", sessionId=session, prompt=HELLO)
        while "First " not in str(await raw.read()):
            pass
        if by_id:
            raw.write(
                {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": first}}
            )
        else:
            raw.write(
                {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
            )
        found = {}
        while len(found) < 2:
            message = await raw.read()
            if message.get("id") in (first, second) and "method" not in message:
                found[message["id"]] = message["result"]["stopReason"]
        assert set(found.values()) == {"cancelled"}
        assert await raw.ask("session/prompt", sessionId=session, prompt=HELLO) == ENDED

    talk(cli, work)
    assert cli.said()[-1] == "Next."


NO_FIRST = [
    {"result": {"outcome": {"outcome": "selected", "optionId": option}}}
    for option in ("no", "once", "always")
]


@pytest.mark.parametrize(
    "answers",
    [
        NO_FIRST,
        [{"error": {"code": -32603, "message": "no"}}],
        [{"result": None}],
        [{"result": {}}],
    ],
    ids=["answered three times", "an error", "nothing", "no outcome"],
)
def test_a_question_is_denied_by_no_and_without_a_usable_answer(
    cli: CliHarness, answers: list[dict[str, Any]]
) -> None:
    """Of several answers the first counts."""
    path = file(cli, "app.py", "one\n")
    edit = call("Edit", file_path="app.py", old_string="one", new_string="1")
    cli.plays(calls(call("Read", file_path="app.py")), calls(edit), says("Done."))

    async def work(raw: RawAgent) -> None:
        session = await raw.open(cli)
        prompt = raw.send("session/prompt", sessionId=session, prompt=HELLO)
        question = await raw.until("session/request_permission")
        for answer in answers:
            raw.write({"jsonrpc": "2.0", "id": question["id"], **answer})
        assert (await raw.answer(prompt))["result"] == ENDED

    talk(cli, work)
    assert [one.verdict for one in of(cli, PermissionAnswered)] == ["deny"]
    assert path.read_text() == "one\n"


@pytest.mark.parametrize("how", ["eof", "term", "kill", "closed", "gone"])
def test_editor_that_goes_away_in_a_turn_leaves_a_whole_session(cli: CliHarness, how: str) -> None:
    """At a question; with `kill` longrein itself is gone."""
    path = file(cli, "app.py", "one\n")
    edit = call("Edit", file_path="app.py", old_string="one", new_string="1")
    cli.plays(calls(call("Read", file_path="app.py")), calls(edit), says("Done."), says("And now?"))

    async def leave(raw: RawAgent) -> None:
        session = await raw.open(cli)
        raw.send("session/prompt", sessionId=session, prompt=HELLO)
        await raw.until("session/request_permission")
        match how:
            case "eof":
                raw.process.stdin.close()
            case "gone":
                raw.process.out_pipe.close()
                raw.process.stdin.close()
            case "closed":
                raw.process.out_pipe.close()
                await asyncio.sleep(0.1)  # the loop closes it in a step of its own
                raw.send("session/list")
            case _:
                os.kill(raw.process.pid, signal.SIGTERM if how == "term" else signal.SIGKILL)
        code = await asyncio.wait_for(raw.process.wait(), 30)
        assert code == {"term": 143, "kill": -9}.get(how, 0)

    talk(cli, leave)
    assert cli.wait_survivors() == []
    assert path.read_text() == "one\n"
    assert "TurnEnded:interrupted" in cli.left() or how == "kill"
    session = cli.session

    async def again(raw: RawAgent) -> None:
        await raw.ask("initialize", protocolVersion=1)
        assert "modes" in await raw.ask(
            "session/load", sessionId=session, cwd=str(cli.project), mcpServers=[]
        )
        prompt = raw.send("session/prompt", sessionId=session, prompt=HELLO)
        while (message := await raw.read()).get("id") != prompt or "method" in message:
            if message.get("method") == "session/request_permission":
                outcome = {"outcome": {"outcome": "selected", "optionId": "once"}}
                raw.write({"jsonrpc": "2.0", "id": message["id"], "result": outcome})
        assert message["result"] == ENDED

    talk(cli, again)
    assert cli.left().endswith("TurnEnded:done")


def test_several_sessions_at_once(cli: CliHarness) -> None:
    cli.plays(
        says("One answer.", delay_s=0.1),
        branches=[{"when": "second", "turns": [says("Another answer.")]}],
    )

    async def work(raw: RawAgent) -> None:
        await raw.ask("initialize", protocolVersion=1)
        asked = [raw.send("session/new", cwd=str(cli.project), mcpServers=[]) for _ in range(2)]
        one, other = [(await raw.answer(request))["result"]["sessionId"] for request in asked]
        first = raw.send("session/prompt", sessionId=one, prompt=HELLO)
        second = raw.send(
            "session/prompt", sessionId=other, prompt=[{"type": "text", "text": "the second"}]
        )
        assert (await raw.answer(second))["result"] == ENDED
        assert (await raw.answer(first))["result"] == ENDED
        texts = {}
        for line in raw.lines:
            update = line.get("params", {}).get("update", {})
            if update.get("sessionUpdate") == "agent_message_chunk":
                session = line["params"]["sessionId"]
                texts[session] = texts.get(session, "") + update["content"]["text"]
        assert texts == {one: "One answer.", other: "Another answer."}
        listed = (await raw.ask("session/list"))["sessions"]
        assert {row["sessionId"]: row["title"] for row in listed} == {
            one: "go",
            other: "the second",
        }
        busy = await raw.ask("session/load", sessionId=one, cwd=str(cli.project), mcpServers=[])
        assert "modes" in busy

    talk(cli, work)


def test_a_session_of_another_process_is_busy(cli: CliHarness) -> None:
    cli.plays(says("Hi."))

    async def work(raw: RawAgent) -> None:
        session = await raw.open(cli)
        await raw.ask("session/prompt", sessionId=session, prompt=HELLO)
        async with raw_agent(cli) as other:
            error = await other.ask(
                "session/load", sessionId=session, cwd=str(cli.project), mcpServers=[]
            )
            assert (error["code"], "open" in error["message"]) == (-32603, True)
            assert (await other.ask("session/delete", sessionId=session))["code"] == -32603

    talk(cli, work)


def test_a_session_without_a_word_leaves_nothing(cli: CliHarness) -> None:
    cli.plays(says("Hi."))
    talk(cli, lambda raw: raw.open(cli))
    assert cli.sessions == []


def test_a_missing_key_is_auth_required_until_it_is_there(cli: CliHarness) -> None:
    settings = cli.config.read_text()
    cli.config.write_text('model = "anthropic/claude-sonnet-4-5"\n')
    cli.plays(says("Hi."))

    async def work(raw: RawAgent) -> None:
        capabilities = {"auth": {"terminal": True}}
        told = await raw.ask("initialize", protocolVersion=1, clientCapabilities=capabilities)
        assert [method["id"] for method in told["authMethods"]] == ["environment", "doctor"]
        where = {"cwd": str(cli.project), "mcpServers": []}
        error = await raw.ask("session/new", **where)
        assert (error["code"], "ANTHROPIC_API_KEY" in error["message"]) == (-32000, True)
        assert (await raw.ask("authenticate", methodId="environment"))["code"] == -32000
        cli.config.write_text(settings)
        assert await raw.ask("authenticate", methodId="environment") == {}
        session = (await raw.ask("session/new", **where))["sessionId"]
        assert await raw.ask("logout") == {}
        assert (await raw.ask("session/prompt", sessionId=session, prompt=HELLO))["code"] == -32000
        assert await raw.ask("authenticate", methodId="doctor") == {}
        assert await raw.ask("session/prompt", sessionId=session, prompt=HELLO) == ENDED

    talk(cli, work)


def test_the_editors_mcp_servers_are_taken_over_in_the_form_of_mcp_json() -> None:
    pytest.importorskip("acp")
    from acp import schema

    from longrein.extensions.acp.agent_methods import mcp_servers

    request = schema.NewSessionRequest.model_validate(
        {
            "cwd": "/",
            "mcpServers": [
                record(name="a", command="/bin/a", args=["-x"], env=[{"name": "K", "value": "v"}]),
                record(
                    type="http", name="b", url="http://b", headers=[{"name": "H", "value": "v"}]
                ),
                {"type": "sse", "name": "c", "url": "http://c", "headers": []},
            ],
        }
    )
    assert mcp_servers(request.mcp_servers) == {
        "a": {"command": "/bin/a", "args": ["-x"], "env": {"K": "v"}},
        "b": {"type": "http", "url": "http://b", "headers": {"H": "v"}},
        "c": {"type": "sse", "url": "http://c", "headers": {}},
    }


def test_without_package_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)  # as where it is not installed
    with pytest.raises(UsageError, match=r"pip install 'longrein\[acp\]'"):
        command.acp(None)  # type: ignore[arg-type]


def test_doctor_is_there_for_the_terminal_method(cli: CliHarness, tmp_path: Path) -> None:
    cli.plays(says("Hi."))
    done = cli.run("acp", "--doctor")
    assert (done.code, "model" in done.text) == (0, True)
