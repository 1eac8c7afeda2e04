"""A8: every method, notification and update of the protocol's schema is answered or sent, in the
form of the schema.

The models of the `acp` package are generated from the published JSON schema and give it back; each
message of a long conversation is checked against it.
"""

import asyncio
from functools import cache
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from tests.acp.harness import Agent, acp, agent, file, raw_agent, schema
from tests.e2e.harness import CliHarness, background, bash, call, calls, says

from acp.meta import AGENT_METHODS, CLIENT_METHODS  # isort: skip
from tests.tables import split_words

BOTH = schema.ClientCapabilities(
    fs=schema.FileSystemCapabilities(readTextFile=True, writeTextFile=True),
    terminal=True,
    elicitation={"form": {}},
)
UNTIL_GO = "until [ -e go ]; do sleep 0.05; done; echo later"
RESULTS: dict[str, Any] = {
    "initialize": schema.InitializeResponse,
    "authenticate": schema.AuthenticateResponse,
    "logout": schema.LogoutResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/fork": schema.ForkSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/close": schema.CloseSessionResponse,
    "session/delete": schema.DeleteSessionResponse,
    "session/prompt": schema.PromptResponse,
    "session/set_mode": schema.SetSessionModeResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
}
"""Requests that are answered."""
TAKEN = {"session/cancel"}
"""Notifications that are taken."""
REQUESTS: dict[str, Any] = {
    "session/request_permission": schema.RequestPermissionRequest,
    "fs/read_text_file": schema.ReadTextFileRequest,
    "fs/write_text_file": schema.WriteTextFileRequest,
    "terminal/create": schema.CreateTerminalRequest,
    "terminal/output": schema.TerminalOutputRequest,
    "terminal/wait_for_exit": schema.WaitForTerminalExitRequest,
    "terminal/kill": schema.KillTerminalRequest,
    "terminal/release": schema.ReleaseTerminalRequest,
    "elicitation/create": schema.CreateFormSessionElicitationRequest,
    "session/update": schema.SessionNotification,
}
"""Requests and notifications that are sent."""
QUESTIONS = [
    {
        "question": "Which colour?",
        "header": "Colour",
        "options": [{"label": "green", "description": "like grass"}],
    },
    {"question": "Which sizes?", "multiSelect": True, "options": [{"label": "S"}, {"label": "M"}]},
]
UNSTABLE = {
    *split_words("""
        providers/list providers/set providers/disable mcp/message mcp/connect mcp/disconnect
    """),
    *("nes/start", "nes/suggest", "nes/accept", "nes/reject", "nes/close"),
    *(f"document/did{what}" for what in ("Open", "Change", "Close", "Save", "Focus")),
    "elicitation/complete",
}
"""Methods that are not part of version 1 yet: the package marks their capabilities as unstable."""
UNSTABLE_UPDATES = {"plan_update", "plan_removed"}
"""Updates for editors with the capability `plan`, which is unstable as well."""


def updates_of_the_schema() -> set[str]:
    """Names of all session updates in the schema."""
    union = schema.SessionNotification.model_fields["update"].annotation
    return {get_args(one.model_fields["session_update"].annotation)[0] for one in get_args(union)}


@cache
def validator(model: Any) -> Any:
    """Validator of the JSON schema of a model."""
    found = model.model_json_schema(by_alias=True)
    kind = jsonschema.validators.validator_for(found)
    kind.check_schema(found)
    return kind(found)


def check(model: Any, data: Any) -> None:
    """Check JSON against the JSON schema of a model, which must know every field."""
    validator(model).validate(data)
    assert (
        model.model_validate(data).model_dump(mode="json", by_alias=True, exclude_unset=True)
        == data
    )


def test_a8_every_method_of_the_schema_is_accounted_for() -> None:
    assert (
        set(AGENT_METHODS.values()) | set(CLIENT_METHODS.values())
        == RESULTS.keys() | TAKEN | REQUESTS.keys() | UNSTABLE
    )


async def everything(longrein: Agent, project: Path) -> None:
    """Use every method, and make the agent send everything that it can."""
    editor, connection = longrein.editor, longrein.connection
    editor.fills = {"q1": "green", "q2": ["S"]}
    session = (await longrein.new()).session_id
    await longrein.prompt(session, "work on it", acp.image_block("iVBORw0KGgo=", "image/png"))
    (project / "go").touch()
    await editor.wait_for(lambda: "The task has ended." in editor.text())
    await editor.wait_for(lambda: "completed" in editor.statuses("Background task b1"))
    await connection.set_session_mode(session_id=session, mode_id="acceptEdits")
    await connection.set_config_option(session_id=session, config_id="mode", value="default")
    await longrein.prompt(session, "/tasks")
    slow = asyncio.create_task(longrein.prompt(session, "now wait"))
    await editor.wait_for(lambda: len(editor.terminals) == 2)
    await connection.cancel(session_id=session)
    assert await slow == "cancelled"
    where = {"session_id": session, "cwd": str(project), "mcp_servers": []}
    for method in (connection.load_session, connection.resume_session, connection.fork_session):
        await connection.close_session(session_id=session)
        await method(**where)
    await connection.list_sessions(cwd=str(project))
    await connection.authenticate(method_id="environment")


@pytest.fixture
def messages(cli: CliHarness) -> list[tuple[str, dict[str, Any]]]:
    """All messages of a conversation that uses everything."""
    file(cli, "app.py", "one\ntwo\n")
    cli.plays(
        calls(
            call("Read", file_path="app.py"),
            call("AskUserQuestion", questions=QUESTIONS),
            call("TodoWrite", todos=[{"content": "do it", "status": "in_progress"}]),
            call("Agent", description="look", prompt="look around", subagent_type="explore"),
            thinking="First I look.",
        ),
        calls(
            call("Edit", file_path="app.py", old_string="two", new_string="2"), background(UNTIL_GO)
        ),
        calls(bash("echo hello")),
        says("Done."),
        says("The task has ended."),
        calls(bash("sleep 100")),
        branches=[{"when": "look around", "turns": [says("I looked.")]}],
    )

    async def work() -> Any:
        async with agent(cli, capabilities=BOTH) as longrein:
            await everything(longrein, cli.project)
            return longrein.messages

    return asyncio.run(work())  # type: ignore[no-any-return]


def test_a8_every_message_has_the_form_of_the_schema(
    messages: list[tuple[str, dict[str, Any]]],
) -> None:
    asked = {
        m["id"]: m["method"]
        for way, m in messages
        if way == "outgoing" and "method" in m and "id" in m
    }
    answered, sent, kinds = set(), set(), set()
    for way, message in messages:
        if way != "incoming":
            continue
        assert "error" not in message, message
        if "method" in message:
            sent.add(message["method"])
            check(REQUESTS[message["method"]], message["params"])
            if message["method"] == "session/update":
                kinds.add(message["params"]["update"]["sessionUpdate"])
        else:
            answered.add(asked[message["id"]])
            check(RESULTS[asked[message["id"]]], message["result"])
    assert answered == RESULTS.keys() - {"session/delete", "logout"}
    assert sent == REQUESTS.keys()
    assert kinds == updates_of_the_schema() - UNSTABLE_UPDATES


def test_a8_methods_that_the_client_of_the_sdk_does_not_have(cli: CliHarness) -> None:
    cli.plays(says("Hello."))

    async def work() -> None:
        async with raw_agent(cli) as raw:
            await raw.ask("initialize", protocolVersion=1)
            asked = {"cwd": str(cli.project), "mcpServers": []}
            session = (await raw.ask("session/new", **asked))["sessionId"]
            await raw.ask(
                "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hi"}]
            )
            for method, where in (("session/delete", {"sessionId": session}), ("logout", {})):
                check(RESULTS[method], await raw.ask(method, **where))

    asyncio.run(work())


def test_a8_other_methods_are_unknown(cli: CliHarness) -> None:
    async def work() -> None:
        async with raw_agent(cli) as raw:
            for method in (*sorted(UNSTABLE), "session/unheard", "_private/thing", ""):
                assert (await raw.ask(method))["code"] == -32601, method
                # a notification: no answer
                raw.write({"jsonrpc": "2.0", "method": method, "params": {}})
            assert (await raw.ask("initialize", protocolVersion=1))["protocolVersion"] == 1
            assert all("id" in line for line in raw.lines)

    asyncio.run(work())
