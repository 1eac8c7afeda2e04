"""Control requests of a program: each that an SDK can send is answered or refused with a reason."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longrein.frontends.headless.control_requests import REFUSED, SENT_ONLY
from tests.tables import cases, record, row, split_words

from .harness import NEEDS_CLI, NODE_SDK, answers, ask_client, call, of, say, sdk_setup
from .test_mcp import HANDSHAKE
from .test_protocol import INITIALIZE, Host, started, user

sdk = pytest.importorskip("claude_agent_sdk", reason="the SDK drives longrein")
pytestmark = NEEDS_CLI

SERVERS = Path(__file__).resolve().parents[2] / ".venv" / "servers" / "bin"
OUTCOMES = {"success", "error", "mirror_error"}
"""Subtypes of messages that are no requests."""


async def ask(host: Host, subtype: str, **fields: Any) -> Any:
    """Make a request: the fields of the answer, or the text of the error."""
    host.write(
        record(type="control_request", request_id=subtype, request={"subtype": subtype, **fields})
    )
    response = (await host.until("control_response"))["response"]
    assert response["request_id"] == subtype
    return response["response"] if response["subtype"] == "success" else response["error"]


async def answered(host: Host) -> set[str]:
    """The requests that longrein says it has."""
    return set((await ask(host, "unheard_of")).partition("it has ")[2].split(", "))


def requests_in_python() -> set[str]:
    """Every `{"subtype": …}` in the source of the SDK in Python."""
    source = Path(sdk.__file__).with_name("_internal") / "query.py"
    tables = (
        node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Dict)
    )
    pairs = (pair for table in tables for pair in zip(table.keys, table.values, strict=True))
    return {
        str(value.value)
        for key, value in pairs
        if isinstance(key, ast.Constant)
        and key.value == "subtype"
        and isinstance(value, ast.Constant)
    } - OUTCOMES


def requests_in_typescript() -> Iterator[str]:
    """Every request in the types of the SDK in TypeScript, and every one that its code sends."""
    types = (NODE_SDK / "sdk.d.ts").read_text()
    for declared in re.finditer(r"declare type SDK\w+Request = \{(.*?)\n\};", types, re.DOTALL):
        yield from re.findall(r"^    subtype: '(\w+)'", declared[1], re.MULTILINE)
    yield from re.findall(r'request\(\{subtype:"(\w+)"', (NODE_SDK / "sdk.mjs").read_text())


async def test_A6_4_every_request_of_the_sdks_is_answered(tmp_path: Path) -> None:
    wanted = requests_in_python() | {"initialize"}
    assert len(wanted) > 9
    if NODE_SDK.is_dir():
        wanted |= set(requests_in_typescript())
        assert len(wanted) > 60
    async with sdk_setup(tmp_path, []) as setup:
        host = await started(setup)
        host.write(INITIALIZE)
        await host.until("control_response")
        has = await answered(host)
        assert not has & REFUSED.keys()
        assert wanted - has - REFUSED.keys() - set(SENT_ONLY) == set(), (
            "new requests: answer or refuse them"
        )
        for subtype in sorted(REFUSED):
            assert await ask(host, subtype) == f"longrein does not do {subtype}: {REFUSED[subtype]}"
        assert (await host.end())[0] == 0


COMMAND = "---\ndescription: Deploy it\nargument-hint: WHERE\n---\nDeploy to $ARGUMENTS.\n"
SKILL = "---\nname: review\ndescription: Review code\n---\nReview.\n"
AGENT = "---\nname: tester\ndescription: Runs tests\nmodel: haiku\n---\nTest.\n"


async def test_A6_4_initialize_tells_commands_skills_agents_models_and_account(
    tmp_path: Path,
) -> None:
    files = {
        "commands/deploy.md": COMMAND,
        "skills/review/SKILL.md": SKILL,
        "agents/tester.md": AGENT,
    }
    for name, text in files.items():
        path = tmp_path / ".claude" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    async with sdk_setup(tmp_path, [say("hello")]) as setup:
        host = await started(setup)
        host.write(INITIALIZE)
        told = (await host.until("control_response"))["response"]["response"]
        assert {"name": "deploy", "description": "Deploy it", "argumentHint": "WHERE"} in told[
            "commands"
        ]
        assert told["skills"] == ["review"]
        assert {"name": "tester", "description": "Runs tests", "model": "haiku"} in told["agents"]
        assert told["models"][0]["value"] == "anthropic/claude-sonnet-4-5"
        assert len(told["models"]) > 5, "those of the provider whose key is there"
        assert told["account"] == record(
            apiKeySource="ANTHROPIC_API_KEY", tokenSource="none", apiProvider="firstParty"
        )
        host.write(user("hi"))
        init = await host.until("system", "init")
        assert ("deploy" in init["slash_commands"], init["skills"]) == (True, ["review"])
        assert "tester" in init["agents"]
        (tmp_path / ".claude/commands/later.md").write_text("Do it later.")
        await host.until("result")
        assert "later" in [one["name"] for one in (await ask(host, "reload_skills"))["skills"]]
        await host.end()


FLAGS, TOKENS = "apply_flag_settings", "set_max_thinking_tokens"
BETWEEN_TURNS: list[tuple[str, dict[str, Any], str]] = [
    ("get_binary_version", {}, "version"),
    ("list_models", {}, "anthropic/claude-sonnet-4-5"),
    ("get_settings", {}, "'defaultMode': 'default'"),
    ("reload_plugins", {}, "'error_count': 0"),
    ("reload_output_styles", {}, "['default']"),
    ("background_tasks", {}, "{'backgrounded': False}"),
    (FLAGS, {"settings": {"permissions": {"defaultMode": "plan"}}}, "{}"),
    (FLAGS, {"settings": {"env": {}}}, "env cannot change in an open session"),
    (FLAGS, {"settings": {"permissions": {"x": 1}}}, "permissions.x cannot change"),
    (FLAGS, {"settings": {"permissions": 5}}, "permissions must be an object"),
    (FLAGS, {"settings": 1}, "{}"),
    (TOKENS, {"max_thinking_tokens": -1}, "-1 is not a whole number of tokens"),
    (TOKENS, {"max_thinking_tokens": "9"}, "'9' is not a whole number of tokens"),
    ("set_permission_mode", {"mode": ["plan"]}, "there is no mode"),
    ("set_model", {"model": "nobody/knows"}, "Unknown provider 'nobody'"),
    ("mcp_set_servers", {"servers": []}, "servers must be an object"),
    ("mcp_set_servers", {"servers": {}}, "{'added': [], 'removed': [], 'errors': {}}"),
    ("mcp_read_resource", {"serverName": "x", "uri": "a:b"}, "there is no MCP server 'x'"),
    ("rewind_files", {"user_message_id": "x"}, "no message of this session has the id 'x'"),
    ("initialize", {}, "initialize must be the first line"),
    ("", {}, "longrein has no control request ''"),
]


async def test_A6_4_requests_between_turns(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, []) as setup:
        host = await started(setup)
        host.write(INITIALIZE)
        await host.until("control_response")
        for subtype, fields, answer in BETWEEN_TURNS:
            assert answer in str(await ask(host, subtype, **fields)), subtype
        assert (await host.end())[0] == 0


async def test_A6_4_the_tokens_for_thinking_change_and_come_back(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("one"), say("two"), say("three")]) as setup:
        host = await started(setup)
        host.write(INITIALIZE, user("first"))
        await host.until("result")
        for tokens in (8_000, None):
            assert await ask(host, "set_max_thinking_tokens", max_thinking_tokens=tokens) == {}
            host.write(user("again"))
            await host.until("result")
        await host.end()
        assert ['"thinking":{"type":"enabled"' in setup.sent(n) for n in range(3)] == [
            False,
            True,
            False,
        ]


async def test_A6_4_servers_are_set_in_an_open_session(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp`")
    if not (SERVERS / "mcp-server-time").exists():
        pytest.skip("mcp-server-time is not installed: make library")
    clock = {"command": str(SERVERS / "mcp-server-time"), "args": ["--local-timezone", "UTC"]}
    now = call("mcp__clock__get_current_time", timezone="UTC")
    turns = [say("no tools yet"), now, say("it is late"), now, say("gone")]
    async with sdk_setup(tmp_path, turns) as setup:
        host = await started(setup, "--allowedTools", "mcp__clock")
        host.write(INITIALIZE, user("first"))
        await host.until("result")
        wanted = {"clock": clock, "none": {"command": str(tmp_path / "missing")}, "odd": 3}
        told = await ask(host, "mcp_set_servers", servers=wanted)
        assert (told["added"], told["removed"], sorted(told["errors"])) == row(
            ["clock"], [], ["none", "odd"]
        )
        status = {
            one["name"]: one["status"] for one in (await ask(host, "mcp_status"))["mcpServers"]
        }
        assert status == {"clock": "connected", "none": "failed", "odd": "failed"}
        host.write(user("what time is it?"))
        await host.until("result")
        assert "mcp__clock__get_current_time" not in setup.sent(0)
        assert '"timezone": \\"UTC\\"' in setup.sent(2) or "timezone" in setup.sent(2)
        assert (await ask(host, "mcp_set_servers", servers={}))["removed"] == split_words(
            "clock none odd"
        )
        host.write(user("and now?"))
        await host.until("result")
        assert "there is no such server" in setup.sent(4)
        await host.end()


SECRET = "tok-93fe21c0d4aa8b77"


async def serve_calculator(host: Host, until: str) -> dict[str, Any]:
    """Answer messages to a server of the program until a line of type `until`, which is
    returned.
    """
    while (line := json.loads(await host.process.stdout.readline()))["type"] != until:
        if line.get("request", {}).get("subtype") != "mcp_message":
            continue
        message = line["request"]["message"]
        results = HANDSHAKE | {"tools/call": {"content": [{"type": "text", "text": SECRET}]}}
        told: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id", 0)}
        if message["method"] in results or "id" not in message:
            told["result"] = results.get(message["method"], {})
        else:
            told["error"] = {"code": -32601, "message": "not here"}
        response = record(
            subtype="success", request_id=line["request_id"], response={"mcp_response": told}
        )
        host.write({"type": "control_response", "response": response})
    return dict(line)


async def test_A6_4_server_inside_program_is_set_and_its_secret_is_masked(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp`")
    web = {"url": "http://127.0.0.1:9/", "headers": {"X-Api-Key": SECRET}}
    wanted = {"calc": {"type": "sdk", "name": "calc"}, "web": web}
    async with sdk_setup(tmp_path, [say("hello"), call("mcp__calc__add", a=1), say("42")]) as setup:
        host = await started(setup, "--allowedTools", "mcp__calc")
        host.write(INITIALIZE, user("hi"))
        await host.until("result")
        request = {"subtype": "mcp_set_servers", "servers": wanted}
        host.write({"type": "control_request", "request_id": "set", "request": request})
        answer = (await serve_calculator(host, "control_response"))["response"]["response"]
        host.write(user(f"add, and do not say {SECRET}"))
        await serve_calculator(host, "result")
        await host.end()
        assert (answer["added"], list(answer["errors"])) == (["calc"], ["web"])
        assert all(SECRET not in setup.sent(n) for n in range(3))


async def test_A6_3_runs_of_hooks_are_reported_to_a_program_that_wants_them(tmp_path: Path) -> None:
    async def note(_event: Any, _call: Any, _context: Any) -> Any:
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "additionalContext": "It is Sunday.",
            }
        }

    hooks = {"PreToolUse": [sdk.HookMatcher(matcher="Bash", hooks=[note])]}
    for wanted in (True, False):
        home = tmp_path / str(wanted)
        home.mkdir()
        async with sdk_setup(home, [call("Bash", command="echo hello"), say("ok")]) as setup:
            given = setup.options(hooks=hooks, include_hook_events=wanted)
            async with sdk.ClaudeSDKClient(given) as client:
                messages = await answers(client, "go")
        told = [(one.subtype, one.hook_event_name) for one in of(messages, "HookEventMessage")]
        assert told == [("hook_started", "PreToolUse"), ("hook_response", "PreToolUse")] * wanted
        if wanted:
            ended = of(messages, "HookEventMessage")[1].data
            assert (ended["output"], ended["outcome"]) == ("It is Sunday.", "success")


async def test_A6_1_a_plugin_of_a_flag_brings_commands_and_skills(tmp_path: Path) -> None:
    plugin = tmp_path / "demo"
    for name, text in {
        ".claude-plugin/plugin.json": '{"name": "demo"}',
        "commands/greet.md": "---\ndescription: Greet\n---\nGreet $ARGUMENTS warmly.\n",
        "skills/review/SKILL.md": SKILL,
    }.items():
        (plugin / name).parent.mkdir(parents=True, exist_ok=True)
        (plugin / name).write_text(text)
    async with sdk_setup(tmp_path, [say("Hello, Ann.")]) as setup:
        given = setup.options(plugins=[{"type": "local", "path": str(plugin)}])
        async with sdk.ClaudeSDKClient(given) as client:
            info = await client.get_server_info()
            assert [one["name"] for one in info["commands"]] == ["demo:greet", "demo:review"]
            init = (await answers(client, "/demo:greet Ann"))[0]
        assert init.data["plugins"] == [{"name": "demo", "path": str(plugin)}]
        assert "Greet Ann warmly." in setup.sent()
        assert not setup.errors
        (plugin / ".claude-plugin/plugin.json").unlink()
        host = await started(setup, "--plugin-dir", str(plugin), "--plugin-dir", "missing")
        host.write(INITIALIZE)
        assert (
            "missing is not a folder" in (await host.until("control_response"))["response"]["error"]
        )
        await host.end()
        host = await started(setup, "--plugin-dir=../demo")
        host.write(INITIALIZE)
        told = (await host.until("control_response"))["response"]["response"]
        assert (told["commands"][0]["name"], told["plugins_applied"]) == ("demo:greet", True)
        await host.end()


QUESTIONS = [
    {"question": "Which colour?", "options": [{"label": "red"}, {"label": "green"}]},
    {"question": "Which sizes?", "multiSelect": True, "options": [{"label": "S"}, {"label": "M"}]},
]


async def test_A6_4_a_question_of_the_model_is_answered_by_the_program(tmp_path: Path) -> None:
    asked = []

    async def answer(name: str, arguments: dict[str, Any], _context: Any) -> Any:
        asked.append((name, arguments))
        given = {"Which colour?": "green", "Which sizes?": "S, M"}
        return sdk.PermissionResultAllow(updated_input=arguments | {"answers": given})

    async with sdk_setup(
        tmp_path, [call("AskUserQuestion", questions=QUESTIONS), say("ok")]
    ) as setup:
        messages = await ask_client(setup, "ask me", can_use_tool=answer)
        assert asked == [("AskUserQuestion", {"questions": QUESTIONS})]
        assert "Which colour?\\ngreen\\n\\nWhich sizes?\\nS, M" in setup.sent()
        assert messages[-1].result == "ok"
    async with sdk_setup(tmp_path, [say("ok")]) as setup:
        await ask_client(setup, "ask me")
        assert "AskUserQuestion" not in setup.sent(), "nobody is there to answer"


FAULT = Path(__file__).parent.parent / "mcp_servers" / "fault_server.py"


@cases(
    "answer told",
    ({"action": "accept", "content": {"name": "Ada"}}, "accept"),
    ({"action": "perhaps"}, "decline"),
    (None, "decline"),
)
async def test_A6_4_a_servers_question_goes_to_the_program(
    answer: Any, told: str, tmp_path: Path
) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp`")
    asking = {"mcpServers": {"s": {"command": sys.executable, "args": ["-S", str(FAULT), "asks"]}}}
    async with sdk_setup(tmp_path, [call("mcp__s__echo", text="hi"), say("ok")]) as setup:
        host = await started(setup, "--allowedTools", "mcp__s", "--mcp-config", json.dumps(asking))
        host.write(INITIALIZE, user("go"))
        asked = await host.until("control_request", "elicitation")
        assert (asked["request"]["mcp_server_name"], asked["request"]["message"]) == (
            "s",
            "Who are you?",
        )
        response = (
            {"subtype": "success", "response": answer}
            if answer
            else {"subtype": "error", "error": "no"}
        )
        host.write(
            {"type": "control_response", "response": response | {"request_id": asked["request_id"]}}
        )
        await host.until("result")
        assert told in setup.sent()
        await host.end()
