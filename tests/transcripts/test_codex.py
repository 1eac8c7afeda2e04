"""Rollouts of Codex become sessions that can be resumed."""

import json
from typing import Any

import pytest

from longrein.testing import results, said
from longrein_context.events import Replied, ToolCall
from tests.transcripts.fixtures import CODEX_ID, PNG, Line, built, codex, item, message, resumed
from tests.transcripts.test_claude_code import texts

pytestmark = pytest.mark.anyio


def shell(call: str, name: str, **arguments: Any) -> Line:
    return item("function_call", name=name, arguments=json.dumps(arguments), call_id=call)


def output(call: str, told: Any, kind: str = "function_call_output") -> Line:
    return item(kind, call_id=call, output=told)


START = [
    codex(
        "session_meta",
        id=CODEX_ID,
        cwd="/home/me/shop",
        cli_version="0.65.0",
        originator="codex_cli_rs",
    ),
    message("developer", "<permissions instructions>be careful</permissions instructions>"),
    message("user", "# AGENTS.md instructions for /home/me/shop\n\n<INSTRUCTIONS>x</INSTRUCTIONS>"),
    message("user", "<environment_context>\n<cwd>/home/me/shop</cwd>\n</environment_context>"),
    codex("turn_context", model="gpt-5-codex", cwd="/home/me/shop", approval_policy="never"),
]


def conversation() -> list[Line]:
    return [
        *START,
        message("user", "why does the build fail?", 1),
        codex("event_msg", type="user_message", message="why does the build fail?"),
        item(
            "reasoning",
            summary=[{"type": "summary_text", "text": "**Look**"}],
            content=None,
            encrypted_content="x",
        ),
        message("assistant", "I look.", 2),
        shell("call_1", "shell", command=["bash", "-lc", "make all"], workdir="/home/me/shop"),
        shell("call_2", "exec_command", cmd="cat a.py"),
        codex("event_msg", type="token_count", info=None),
        output(
            "call_1", '{"output":"no rule\\n","metadata":{"exit_code":2,"duration_seconds":0.1}}'
        ),
        output("call_2", "Exit code: 0\nWall time: 0.1 seconds\nOutput:\nprint()"),
        message("assistant", "A rule is missing.", 9),
        codex("event_msg", type="agent_message", message="A rule is missing."),
    ]


async def test_a_rollout_is_taken_whole_and_resumed() -> None:
    entries, found, _ = built(conversation())
    assert texts(entries) == [
        "user why does the build fail?",
        "model **Look**\nI look.",
        "Bash failed no rule\n",
        "Bash ok Exit code: 0\nWall time: 0.1 seconds\nOutput:\nprint()",
        "model A rule is missing.",
    ]
    assert (dict(found.taken), dict(found.left_out)) == (
        {"message": 1, "reply": 2, "call": 2},
        {"harness note": 3},
    )
    replied = next(entry.event for entry in entries if isinstance(entry.event, Replied))
    assert replied.model == "gpt-5-codex"
    calls = [part for part in replied.parts if isinstance(part, ToolCall)]
    assert [call.arguments for call in calls] == [{"command": "make all"}, {"command": "cat a.py"}]
    request = (await resumed(entries)).requests[0]
    assert results(request)[0] == "Bash failed: no rule\n"


CALLS: list[tuple[Line, str, Any]] = [
    (shell("c", "shell", command=["ls", "a b"]), "Bash", {"command": "ls 'a b'"}),
    (shell("c", "shell_command", command="ls"), "Bash", {"command": "ls"}),
    (
        item("local_shell_call", call_id="c", action={"type": "exec", "command": ["ls"]}),
        "Bash",
        {"command": "ls"},
    ),
    (
        item("custom_tool_call", call_id="c", name="apply_patch", input="*** Begin"),
        "apply_patch",
        {"input": "*** Begin"},
    ),
    (
        shell("c", "update_plan", plan=[{"step": "mend", "status": "in_progress"}, 7]),
        "TodoWrite",
        {"todos": [{"content": "mend", "status": "in_progress"}]},
    ),
    (shell("c", "mcp__git__log", n=1), "mcp__git__log", {"n": 1}),
    (item("function_call", call_id="c", name="shell", arguments="{broken"), "shell", None),
    (item("function_call", call_id="c", name="shell", arguments="[1]"), "shell", None),
    (item("function_call", call_id="c", name="view_image", arguments=""), "view_image", {}),
]


@pytest.mark.parametrize(("line", "name", "arguments"), CALLS)
async def test_calls_get_the_names_of_longreins_own_tools(
    line: Line, name: str, arguments: Any
) -> None:
    entries, _, _ = built([*START, message("user", "go"), line, output("c", "fine")])
    (call,) = (
        part for entry in entries if isinstance(entry.event, Replied) for part in entry.event.parts
    )
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == (name, arguments)
    assert f"{name} ok fine" in texts(entries)
    await resumed(entries)


OUTPUTS: list[tuple[Any, str]] = [
    ("plain", "ok plain"),
    ("", "ok (no output)"),
    (None, "ok (no output)"),
    ({"content": "no", "success": False}, "failed no"),
    (
        [
            {"type": "input_text", "text": "a"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
        ],
        "ok a",
    ),
    (
        [{"type": "input_image", "image_url": "https://x.example/a.png"}],
        "ok [an image that is not in the transcript]",
    ),
    ("Process exited with code 3\nOutput:\nx", "failed Process exited with code 3\nOutput:\nx"),
    ("{not json", "ok {not json"),
]


@pytest.mark.parametrize(("told", "expected"), OUTPUTS)
async def test_results_of_every_form(told: Any, expected: str) -> None:
    for kind in ("function_call_output", "custom_tool_call_output"):
        lines = [
            *START,
            message("user", "go"),
            shell("c", "shell", command="x"),
            output("c", told, kind),
        ]
        entries, _, _ = built(lines)
        assert texts(entries)[-1] == f"Bash {expected}"
        await resumed(entries)


async def test_a_compaction_an_interrupt_and_a_rewind() -> None:
    lines = [
        *conversation(),
        codex("compacted", message="The build lacked a rule."),
        message("user", "second"),
        shell("c9", "shell", command="sleep 9"),
        codex("event_msg", type="turn_aborted", reason="interrupted"),
        message("user", "<turn_aborted>\nby the user</turn_aborted>"),
        message("user", "third"),
        message("assistant", "wrong"),
        codex("event_msg", type="thread_rolled_back", num_turns=1),
        message("user", "fourth"),
        message("assistant", "right"),
    ]
    entries, found, _ = built(lines)
    assert found.taken["summary"] == 1
    request = (await resumed(entries)).requests[0]
    words = [word for word in said(request) if not word.startswith("#")]
    assert "The build lacked a rule." in words[0]
    assert [
        word
        for word in words[1:]
        if word in ("second", "third", "wrong", "fourth", "right", "go on")
    ] == [*("second", "fourth", "right", "go on")]


async def test_rollouts_without_envelopes_are_read_too() -> None:
    lines = [
        {"id": CODEX_ID, "timestamp": "2025-08-01T10:00:00Z", "instructions": None},
        {"record_type": "state"},
    ]
    lines += [one["payload"] for one in conversation() if one["type"] == "response_item"]
    entries, _, _ = built(lines)
    assert texts(entries)[0] == "user why does the build fail?"
    assert len(texts(entries)) == 5
    await resumed(entries)


BAD: list[Line] = [
    codex("response_item"),
    codex("response_item", type="message", role="user", content="text"),
    codex("response_item", type="message", role="assistant", content=[1, {}]),
    codex("response_item", type="web_search_call", action={"query": "x"}),
    codex("response_item", type="reasoning", summary=[], encrypted_content="x"),
    codex("response_item", type="function_call"),
    codex("event_msg", type="thread_rolled_back", num_turns=10**9),
    codex("event_msg", type="thread_rolled_back", num_turns=-1),
    codex("compacted", message=None, replacement_history=[1, {"content": [{"text": "sum"}]}]),
    {"type": "response_item", "payload": 5},
    {"type": ["message"], "payload": {"type": {}}},
    {"type": {"message": 1}, "id": "x"},
    output("nobody", "x"),
]


@pytest.mark.parametrize("line", BAD)
async def test_strange_lines_do_no_harm(line: Line) -> None:
    for lines in (
        [line, *conversation()],
        [*conversation(), line],
        [*START, message("user", "hi"), line],
    ):
        entries, _, _ = built(lines)
        await resumed(entries)
