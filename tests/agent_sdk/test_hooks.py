"""Hooks that are functions of the program, over the control request `hook_callback`."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from longrein.agent.hooks import HookOutput, HookPlace
from longrein.frontends.headless.control_lines import ControlChannel
from longrein.frontends.headless.hook_callbacks import CallbackHandler
from longrein.permissions import Hook
from tests.tables import row

from .harness import NEEDS_CLI, answers, ask, call, say, sdk_setup

sdk = pytest.importorskip("claude_agent_sdk", reason="the SDK drives longrein")
pytestmark = NEEDS_CLI

WRITE = call("Write", file_path="a.txt", content="a\n")


class Recorder:
    """A hook that gives `output` and keeps what it was told."""

    def __init__(self, output: Any) -> None:
        self.output, self.told = output, list[tuple[dict[str, Any], str | None]]()

    async def __call__(self, event: dict[str, Any], tool_use_id: str | None, _context: Any) -> Any:
        self.told.append((event, tool_use_id))
        if isinstance(self.output, Exception):
            raise self.output
        return self.output


def specific(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


async def test_A4_a_callback_denies_a_call_and_the_run_is_a_success(tmp_path: Path) -> None:
    hook = Recorder(
        specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="not on Sundays")
    )
    async with sdk_setup(tmp_path, [WRITE, say("I may not.")]) as setup:
        hooks = {"PreToolUse": [sdk.HookMatcher(matcher="Write|Edit", hooks=[hook])]}
        result = (await ask(setup, "write", hooks=hooks, permission_mode="acceptEdits"))[-1]
        assert "not on Sundays" in setup.sent()
        assert not list(setup.tree.iterdir())
    assert (result.subtype, result.result) == ("success", "I may not.")
    ((event, tool_use_id),) = hook.told
    assert (event["hook_event_name"], event["tool_name"], event["cwd"]) == row(
        "PreToolUse", "Write", str(setup.tree)
    )
    assert (event["tool_input"], tool_use_id) == (
        {"file_path": "a.txt", "content": "a\n"},
        event["tool_use_id"],
    )


async def test_A4_callbacks_add_context_change_input_and_see_results(tmp_path: Path) -> None:
    prompt = Recorder(specific("UserPromptSubmit", additionalContext="The colour is hot pink."))
    before = Recorder(specific("PreToolUse", updatedInput={"file_path": "b.txt", "content": "b\n"}))
    after = Recorder({})
    async with sdk_setup(tmp_path, [WRITE, say("ok")]) as setup:
        hooks = {
            "UserPromptSubmit": [sdk.HookMatcher(hooks=[prompt])],
            "PreToolUse": [sdk.HookMatcher(matcher="Write", hooks=[before])],
            "PostToolUse": [sdk.HookMatcher(hooks=[after])],
        }
        await ask(setup, "write", hooks=hooks, permission_mode="acceptEdits")
        assert "The colour is hot pink." in setup.sent(0)
        assert [path.name for path in setup.tree.iterdir()] == ["b.txt"]
    assert prompt.told[0][0]["prompt"] == "write"
    assert after.told[0][0]["tool_name"] == "Write"


@pytest.mark.parametrize(("on_failure", "ran"), [(None, True), ("block", False)])
async def test_A4_a_failing_callback_blocks_if_it_is_to(
    on_failure: Any, ran: bool, tmp_path: Path
) -> None:
    hook = Recorder(ValueError("the hook is broken"))
    async with sdk_setup(tmp_path, [WRITE, say("ok")]) as setup:
        matcher = sdk.HookMatcher(matcher="Write", hooks=[hook], on_failure=on_failure)
        options = setup.options(hooks={"PreToolUse": [matcher]}, permission_mode="acceptEdits")
        async with sdk.ClaudeSDKClient(options) as client:
            await answers(client, "write")
        assert bool(list(setup.tree.iterdir())) == ran
        assert ("the hook failed: the hook is broken" in setup.sent()) != ran


@pytest.mark.parametrize("blocks", [False, True])
async def test_A4_a_callback_without_an_answer_ends_at_its_own_limit(blocks: bool) -> None:
    """It is no process, which would get some seconds more to end."""
    sent: list[dict[str, Any]] = []
    hook = Hook("PreToolUse", "hook_0", "", "", kind="callback")
    handler = CallbackHandler(hook, ControlChannel(sent.append), blocks_on_failure=blocks)
    place = HookPlace(None, {}, 0.01)  # type: ignore[arg-type]
    output = await asyncio.wait_for(handler.run(b"{}", place), 5)
    why = "no answer within 0.01 s"
    failed = HookOutput(code=2, stderr=f"the hook failed: {why}")
    assert output == (failed if blocks else HookOutput(problem=why))
    assert [line["type"] for line in sent] == ["control_request", "control_cancel_request"]


SETTINGS = (
    '{"permissions": {"allow": ["Write"], "deny": ["Bash"]}, "model": "claude-opus-4-1", "theme": '
    '"dark", '
    '"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "echo told by the '
    'shell"}]}]}}'
)


@pytest.mark.parametrize("in_file", [False, True])
async def test_A9_settings_of_the_command_line(in_file: bool, tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [WRITE, say("ok")]) as setup:
        (setup.tree / "given.json").write_text(SETTINGS)
        async with sdk.ClaudeSDKClient(
            setup.options(settings="given.json" if in_file else SETTINGS)
        ) as client:
            messages = await answers(client, "write")
        assert messages[-1].subtype == "success"
        assert (setup.tree / "a.txt").exists()
        assert '"model":"claude-opus-4-1"' in setup.sent()
        assert "told by the shell" in setup.sent()
        told = [
            message.data["content"]
            for message in messages
            if getattr(message, "subtype", "") == "informational"
        ]
        assert told == ["--settings: theme has no effect"]
