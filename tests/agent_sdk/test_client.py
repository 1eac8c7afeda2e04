"""`ClaudeSDKClient` over an open session: permission questions, control requests, several turns."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from .harness import NEEDS_CLI, answers, ask_client, call, of, say, sdk_setup

sdk = pytest.importorskip("claude_agent_sdk", reason="the SDK drives longrein")
pytestmark = NEEDS_CLI

WRITE = call("Write", file_path="a.txt", content="a\n")


class Permissions:
    """A `can_use_tool` that gives `verdict` to every question."""

    def __init__(self, verdict: Any) -> None:
        self.verdict, self.asked = verdict, list[tuple[str, dict[str, Any], Any]]()

    async def __call__(self, name: str, arguments: dict[str, Any], context: Any) -> Any:
        self.asked.append((name, arguments, context))
        return self.verdict(arguments, context) if callable(self.verdict) else self.verdict


async def test_A6_4_a_call_is_allowed(tmp_path: Path) -> None:
    permissions = Permissions(sdk.PermissionResultAllow())
    async with sdk_setup(tmp_path, [WRITE, say("ok")]) as setup:
        messages = await ask_client(setup, "write", can_use_tool=permissions)
        assert messages[-1].subtype == "success"
        assert (setup.tree / "a.txt").read_text() == "a\n"
    ((name, arguments, context),) = permissions.asked
    use = next(
        b
        for m in of(messages, "AssistantMessage")
        for b in m.content
        if type(b).__name__ == "ToolUseBlock"
    )
    assert (name, arguments, context.tool_use_id) == (
        "Write",
        {"file_path": "a.txt", "content": "a\n"},
        use.id,
    )
    assert (context.decision_reason, context.title) != ("", "")


async def test_A6_4_a_denied_call_does_not_run_and_the_model_is_told_why(tmp_path: Path) -> None:
    permissions = Permissions(sdk.PermissionResultDeny(message="not on Sundays"))
    async with sdk_setup(tmp_path, [WRITE, say("I may not.")]) as setup:
        result = (await ask_client(setup, "write", can_use_tool=permissions))[-1]
        assert "not on Sundays" in setup.sent()
        assert not list(setup.tree.iterdir())
    assert (result.subtype, result.is_error) == ("success", False), (
        "the program was asked, so nothing was blocked"
    )
    assert [denial["tool_name"] for denial in result.permission_denials] == ["Write"]


async def test_A6_4_a_denial_can_interrupt(tmp_path: Path) -> None:
    permissions = Permissions(sdk.PermissionResultDeny(message="stop", interrupt=True))
    async with (
        sdk_setup(tmp_path, [WRITE, say("again")]) as setup,
        sdk.ClaudeSDKClient(setup.options(can_use_tool=permissions)) as client,
    ):
        assert (await answers(client, "write"))[-1].subtype == "error_during_execution"
        assert (await answers(client, "again"))[-1].result == "again"


async def test_A6_4_the_input_can_be_changed_and_deny_rules_still_hold(tmp_path: Path) -> None:
    def elsewhere(arguments: dict[str, Any], _context: Any) -> Any:
        return sdk.PermissionResultAllow(updated_input=arguments | {"file_path": "b.txt"})

    for denied, files, told in (([], ["b.txt"], "Created"), (["Edit(b.txt)"], [], "Denied")):
        home = tmp_path / str(len(denied))
        home.mkdir()
        async with sdk_setup(home, [WRITE, say("ok")]) as setup:
            options = setup.options(can_use_tool=Permissions(elsewhere), disallowed_tools=denied)
            async with sdk.ClaudeSDKClient(options) as client:
                await answers(client, "write")
            assert [path.name for path in setup.tree.iterdir()] == files
            assert told in setup.sent()
            assert '"file_path":"a.txt"' in setup.sent(), "the model's own call stays as it was"


async def test_A6_4_a_suggested_rule_is_granted_for_the_session(tmp_path: Path) -> None:
    def always(_arguments: dict[str, Any], context: Any) -> Any:
        return sdk.PermissionResultAllow(updated_permissions=context.suggestions)

    run = call("Bash", command="touch x")
    permissions = Permissions(always)
    async with sdk_setup(tmp_path, [run, run, say("ok")], '[sandbox]\nmode = "off"\n') as setup:
        await ask_client(setup, "run", can_use_tool=permissions)
        assert len(permissions.asked) == 1
        assert permissions.asked[0][2].suggestions[0].type == "addRules"


async def test_A6_4_what_cannot_be_granted_is_said_and_the_mode_can_be_set(tmp_path: Path) -> None:
    rule = sdk.types.PermissionRuleValue(tool_name="Bash", rule_content="rm:*")
    updates = [
        sdk.PermissionUpdate(
            type="addRules", rules=[rule], behavior="allow", destination="session"
        ),
        sdk.PermissionUpdate(type="setMode", mode="acceptEdits", destination="session"),
    ]
    permissions = Permissions(sdk.PermissionResultAllow(updated_permissions=updates))
    async with sdk_setup(
        tmp_path, [WRITE, call("Write", file_path="b.txt", content="b"), say("ok")]
    ) as setup:
        await ask_client(setup, "write", can_use_tool=permissions)
        assert len(permissions.asked) == 1, "acceptEdits asks no more"
        assert setup.errors == [
            (
                "longrein: updatedPermissions: addRules has no effect: only suggested rules can be "
                "added, and the mode set"
            )
        ]


async def test_A6_4_a_callback_that_fails_denies(tmp_path: Path) -> None:
    def fails(_arguments: dict[str, Any], _context: Any) -> Any:
        raise ValueError("the callback is broken")

    async with sdk_setup(tmp_path, [WRITE, say("ok")]) as setup:
        await ask_client(setup, "write", can_use_tool=Permissions(fails))
        assert "the callback is broken" in setup.sent()
        assert not list(setup.tree.iterdir())


async def test_A6_4_the_question_of_a_subagent_reaches_the_program(tmp_path: Path) -> None:
    permissions = Permissions(sdk.PermissionResultAllow())
    start = call("Agent", subagent_type="general", prompt="Write a.txt.", description="write")
    async with sdk_setup(tmp_path, [start, WRITE, say("written"), say("ok")]) as setup:
        await ask_client(setup, "write", can_use_tool=permissions)
        assert (setup.tree / "a.txt").exists()
    ((_, _, context),) = permissions.asked
    assert context.agent_id.startswith("a")
    assert context.tool_use_id.startswith(f"{context.agent_id}.")


async def test_A6_4_an_interrupt_ends_the_turn_and_takes_back_the_question(tmp_path: Path) -> None:
    waiting, cancelled = asyncio.Event(), asyncio.Event()

    async def never(_name: str, _arguments: dict[str, Any], _context: Any) -> Any:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with (
        sdk_setup(tmp_path, [WRITE, say("hello")]) as setup,
        sdk.ClaudeSDKClient(setup.options(can_use_tool=never)) as client,
    ):
        await client.query("write")
        await waiting.wait()
        await client.interrupt()
        results = [m async for m in client.receive_response()]
        assert results[-1].subtype == "error_during_execution"
        await cancelled.wait()
        assert (await answers(client, "hello"))[-1].result == "hello"


async def test_A6_5_A6_4_requests_between_turns(tmp_path: Path) -> None:
    async with (
        sdk_setup(tmp_path, [say("one"), say("two")]) as setup,
        sdk.ClaudeSDKClient(setup.options(permission_mode="default")) as client,
    ):
        info = await client.get_server_info()
        assert {agent["name"] for agent in info["agents"]} >= {"general", "explore"}
        assert (info["output_style"], info["commands"]) == ("default", [])
        init = (await answers(client, "first"))[0]
        assert (init.subtype, init.data["permissionMode"]) == ("init", "default")
        usage = await client.get_context_usage()
        assert sdk.types.ContextUsageResponse.__required_keys__ <= usage.keys(), "A6.5"
        assert all(
            sdk.types.ContextUsageCategory.__required_keys__ <= row.keys()
            for row in usage["categories"]
        )
        rest = ("Free space", "Autocompact buffer")
        counted = [row["tokens"] for row in usage["categories"] if row["name"] not in rest]
        assert (sum(counted), usage["model"]) == (
            usage["totalTokens"],
            "anthropic/claude-sonnet-4-5",
        )
        assert await client.get_mcp_status() == {"mcpServers": []}
        await client.set_permission_mode("plan")
        await client.set_model("claude-opus-4-1")
        second = await answers(client, "second")
        assert [
            m.data["permissionMode"] for m in of(second, "SystemMessage") if m.subtype == "status"
        ] == ["plan"]
        assert of(second, "AssistantMessage")[0].model == "claude-opus-4-1"
        with pytest.raises(Exception, match="no task 'b9' is known here"):
            await client.stop_task("b9")
        with pytest.raises(Exception, match="there is no MCP server 'x'"):
            await client.reconnect_mcp_server("x")


async def test_A6_4_files_go_back_to_a_message_and_the_conversation_stays(tmp_path: Path) -> None:
    turns = [
        call("Write", file_path="a.txt", content="one"),
        say("1"),
        call("Write", file_path="a.txt", content="two"),
    ]
    async with sdk_setup(tmp_path, [*turns, say("2"), say("3")]) as setup:
        options = setup.options(
            permission_mode="acceptEdits", extra_args={"replay-user-messages": None}
        )
        async with sdk.ClaudeSDKClient(options) as client:
            await answers(client, "write one")
            second = await answers(client, "write two")
            asked = next(m for m in of(second, "UserMessage") if m.content[0].text == "write two")
            await client.rewind_files(asked.uuid)
            assert (setup.tree / "a.txt").read_text() == "one", "it is answered after the act"
            await answers(client, "and now?")
        assert (setup.tree / "a.txt").read_text() == "one"
        assert "write two" in setup.sent()
        assert "a.txt" in setup.sent().partition('"and now?"')[0][-2000:], (
            "the model is told of the change"
        )


async def test_a_background_command_is_stopped(tmp_path: Path) -> None:
    start = call("Bash", command="sleep 600", run_in_background=True)
    options = {"allowed_tools": ["Bash(sleep *)"]}
    async with (
        sdk_setup(tmp_path, [start, say("started"), say("stopped")]) as setup,
        sdk.ClaudeSDKClient(setup.options(**options)) as client,
    ):
        messages = await answers(client, "start")
        task = next(m.task_id for m in of(messages, "TaskStartedMessage"))
        await client.stop_task(task)
        async for message in client.receive_messages():
            if type(message).__name__ == "TaskNotificationMessage":
                assert (message.task_id, message.status) == (task, "stopped")
                break
