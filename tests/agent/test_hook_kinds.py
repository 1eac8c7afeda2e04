"""Hooks of other kinds and in hard cases: addresses, functions of programs, crashes, changed
scripts, compactions.
"""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, get_args, get_type_hints

import psutil
import pytest

from longrein.agent import Compact, Continue, UserMessage
from longrein.agent.hooks import HookOutput, HookPlace, HookTable
from longrein.permissions import Hook, Rules
from longrein.permissions.hook_protocol import EVENTS, HookAnswer, merge_answers, read_answer
from longrein.store import HookFiles
from longrein.testing.scripted_model import ScriptedModel as Script
from longrein.testing.scripted_model import call, says
from longrein_context.events import HookAnswered, PermissionAsked, Summarized, Text, ToolStarted
from tests.agent.disk_harness import NO_RULES, TOUCH, DiskHarness, turn
from tests.agent.hook_tables import command, joined
from tests.tables import record
from tests.timeouts import HANG_S, until

from .disk_harness import said

pytestmark = pytest.mark.anyio
PRE = "PreToolUse"


# --- Addresses ------------------------------------------------------------------------------------


@asynccontextmanager
async def server(answer: bytes, asked: list[bytes], status: str = "200 OK") -> AsyncIterator[str]:
    """A server that gives one answer to every request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        asked.append(head + await reader.readexactly(size))
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer
        )
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/hook"


def http(url: str, **more: Any) -> dict[str, Any]:
    return {PRE: [{"hooks": [{"type": "http", "url": url, **more}]}]}


DENY = json.dumps(
    {
        "hookSpecificOutput": record(
            hookEventName=PRE, permissionDecision="deny", permissionDecisionReason="by post"
        )
    }
).encode()


@pytest.mark.parametrize(
    ("answer", "status", "runs", "said_to_user"),
    [
        (DENY, "200 OK", False, ""),
        (DENY, "500 No", True, "status 500"),
        (b"{nonsense", "200 OK", True, "no JSON"),
        (b"fine", "204 Empty", True, ""),
        (b"", "302 Found", True, "status 302"),
        (b"x" * 2_000_000, "200 OK", True, "more than 1,000,000 bytes"),
    ],
)
async def test_http_hooks(
    harness: DiskHarness, answer: bytes, status: str, runs: bool, said_to_user: str
) -> None:
    asked: list[bytes] = []
    async with server(answer, asked, status) as url:
        headers = {"Authorization": "Bearer $KEY", "Other": "$OTHER"}
        await harness.play_call(http(url, headers=headers, allowedEnvVars=["KEY"]))
    assert (harness.tree / "ran.txt").exists() == runs
    assert said_to_user in "".join(harness.notices)
    assert b"authorization: bearer k1" in asked[0].lower()
    assert b"no" not in asked[0].lower().partition(b"other: ")[2].partition(b"\r\n")[0]
    assert json.loads(asked[0].partition(b"\r\n\r\n")[2])["tool_name"] == "Bash"


async def test_a_rule_that_denies_an_address_denies_it_to_hooks(harness: DiskHarness) -> None:
    asked: list[bytes] = []
    async with server(DENY, asked) as url:
        await harness.play_call(http(url), rules=Rules(deny=("WebFetch(domain:127.0.0.1)",)))
    assert asked == []
    assert "forbids it" in harness.notices[0]


async def test_an_address_that_nobody_serves_blocks_nothing(harness: DiskHarness) -> None:
    await harness.play_call(http("http://127.0.0.1:9/x"))
    assert (harness.tree / "ran.txt").exists()
    assert "cannot be reached" in harness.notices[0]


# --- Functions of a program -----------------------------------------------------------------------


class Callback:
    """A handler of a program that drives longrein."""

    def __init__(
        self, answer: Callable[[dict[str, Any]], Any], event: str = PRE, timeout_s: float = HANG_S
    ) -> None:
        self.hook = Hook(event, "callback 1", "the program", kind="callback", timeout_s=timeout_s)
        self.answer, self.told = answer, list[dict[str, Any]]()

    async def run(self, data: bytes, place: HookPlace) -> HookOutput:
        self.told.append(json.loads(data))
        found = self.answer(self.told[-1])
        return HookOutput(stdout=json.dumps(await found if asyncio.iscoroutine(found) else found))


async def test_a_function_of_a_program_is_one_more_kind_of_handler(harness: DiskHarness) -> None:
    handler = Callback(lambda _: json.loads(DENY))
    table = HookTable()
    table.add(handler)
    await harness.play_call(table)
    assert handler.told[0]["tool_input"] == {"command": "touch ran.txt"}
    assert "by post" in harness.results[0]


@pytest.mark.parametrize(
    ("answer", "timeout_s"),
    [(lambda _: 1 / 0, HANG_S), (lambda _: asyncio.sleep(600), 0.2), (lambda _: [1], HANG_S)],
)
async def test_a_function_that_fails_blocks_nothing(
    harness: DiskHarness, monkeypatch: pytest.MonkeyPatch, answer: Any, timeout_s: float
) -> None:
    monkeypatch.setattr("longrein.agent.hooks.KILL_S", 0.0)
    table = HookTable()
    table.add(Callback(answer, timeout_s=timeout_s))
    await harness.play_call(table)
    assert (harness.tree / "ran.txt").exists()


async def test_what_a_function_allows_is_not_asked(harness: DiskHarness) -> None:
    table = HookTable()
    table.add(
        Callback(
            lambda _: {"hookSpecificOutput": {"hookEventName": PRE, "permissionDecision": "allow"}}
        )
    )
    await harness.play_call(table, answers=None)
    assert harness.of(PermissionAsked) == []
    assert (harness.tree / "ran.txt").exists()


# --- Shapes of the other side ---------------------------------------------------------------------


def test_a4_2_what_hooks_are_told_has_the_fields_of_the_sdk(harness: DiskHarness) -> None:
    types = pytest.importorskip("claude_agent_sdk.types", reason="needs the extra of the SDK")
    shapes = {
        get_args(get_type_hints(one)["hook_event_name"])[0]: one
        for one in get_args(types.HookInput)
    }
    assert set(shapes) <= set(EVENTS)
    told: dict[str, dict[str, Any]] = {}

    def note(one: dict[str, Any]) -> dict[str, Any]:
        told[one["hook_event_name"]] = one
        return {}

    table = HookTable([Callback(note, event) for event in EVENTS])
    calls = (TOUCH, call("Read", file_path="missing"), call("Bash", command="chmod 1 x"))
    asyncio.run(harness.play_call(table, made=calls))
    assert {"PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "Stop"} <= set(
        told
    )
    for event, one in told.items():
        if event in shapes:
            needed = set(shapes[event].__required_keys__)
            assert needed <= set(one), event
            assert set(one) <= needed | set(shapes[event].__optional_keys__), event


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize(
    "text",
    ["{}", '{"continue": true}', '{"hookSpecificOutput": 7}', '{"decision": 7}', '{"reason": []}', "{", "", "[]", "\0",  # noqa: E501
     '{"hookSpecificOutput": {"hookEventName": "Else"}}', '{"systemMessage": {}}', '{"x": 1}', "{" * 100_000],  # noqa: E501
)  # fmt: skip
def test_no_output_of_a_hook_is_an_error_or_an_allowance(event: str, text: str) -> None:
    for code in (0, 1, 2, 49, 255, -1):
        answer = merge_answers([read_answer(event, code, text, text)])
        assert answer.decision != "allow"
        assert code != 2 or answer.decision in ("deny", "block", "stop", "none")


@pytest.mark.parametrize(
    ("told", "merged"),
    [
        ([{"updated_output": "a"}], ("none", None, "a")),
        ([{"updated_output": "a"}, {"updated_output": "b"}, {}], ("none", None, "b")),
        ([{"decision": "allow", "updated_input": {"n": 1}}, {}], ("allow", {"n": 1}, None)),
        ([{"updated_input": {"n": 1}}, {"updated_input": {"n": 2}}], ("none", {"n": 2}, None)),
        ([{"updated_input": {"n": 1}}, {"decision": "ask"}], ("ask", {"n": 1}, None)),
        ([{"updated_input": {"n": 1}}, {"decision": "deny"}], ("deny", None, None)),
        ([{"decision": "stop"}, {"decision": "deny", "updated_input": {}}], ("stop", None, None)),
    ],
)
def test_the_strictest_answer_decides(
    told: list[dict[str, Any]], merged: tuple[str, Any, Any]
) -> None:
    answer = merge_answers([HookAnswer(**one) for one in told])
    assert (answer.decision, answer.updated_input, answer.updated_output) == merged


# --- Hard cases -----------------------------------------------------------------------------------


async def test_a_crash_in_a_hook_runs_it_again(harness: DiskHarness) -> None:
    """What the log says of hooks allows nothing: after a restart they are asked again."""
    table = harness.load(
        command(
            PRE, "echo x >> asked.txt; touch begun; test -e go || sleep 60; echo no >&2; exit 2"
        )
    )
    model = Script(says(TOUCH), says("done"))
    async with harness.session(model, hooks=table, rules=NO_RULES) as session:
        session.tell(UserMessage((Text("go"),)))
        running = asyncio.ensure_future(session.run(once=True))
        await until((harness.tree / "begun").exists)
        running.cancel()
        await asyncio.wait([running])
    (harness.tree / "go").touch()
    await harness.run(table, model, Continue(), create=False)
    assert (harness.tree / "asked.txt").read_text() == "x\nx\n"
    assert not (harness.tree / "ran.txt").exists()
    assert harness.results == ["denied: Denied: a hook refused this call: no"]


async def test_answers_of_an_earlier_run_allow_nothing(harness: DiskHarness) -> None:
    """A call that hooks have passed and that waits for the user is looked at again after a
    restart.
    """
    allowing = harness.load(command(PRE, "exit 0"))
    model = Script(says(TOUCH), says("done"))
    async with harness.session(model, hooks=allowing, rules=NO_RULES) as session:
        session.tell(UserMessage((Text("go"),)))
        running = asyncio.ensure_future(session.run(once=True))
        while not session.state.asking:  # noqa: ASYNC110 - there is nothing to wait for
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
    refusing = harness.load(command(PRE, "echo no >&2; exit 2"))
    await harness.run(refusing, model, Continue(), create=False, answers={"Bash": "allow"})
    assert harness.of(ToolStarted) == []


async def test_a_script_that_was_changed_meanwhile_is_not_run(harness: DiskHarness) -> None:
    script = harness.tree / "guard.sh"
    script.write_text("exit 0")
    table = harness.load(command(PRE, "bash guard.sh"))
    script.write_text("touch evil.txt")
    await harness.play_call(table, answers={"Bash": "deny"})
    assert not (harness.tree / "evil.txt").exists()
    assert "guard.sh has changed" in harness.approver.asked[0].reason


async def test_hooks_in_the_background_tell_later(harness: DiskHarness) -> None:
    context = json.dumps(
        {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "built"}}
    )
    hooks = command("PostToolUse", f"echo '{context}'; touch over.txt", **{"async": True})
    slow = call("Bash", command="until [ -e go ]; do sleep 0.02; done")
    model = Script(says(TOUCH), says(slow), says("done"))
    running = asyncio.ensure_future(harness.run(hooks, model, "go", mode="bypassPermissions"))
    await until(lambda: (harness.tree / "over.txt").exists() and harness.answered)
    (harness.tree / "go").touch()
    await running
    assert any("| built" in text for text in said(model.requests[-1]))
    assert harness.answered[0] == ("PostToolUse", "none")


async def test_secrets_in_the_answer_of_a_hook_are_not_stored(harness: DiskHarness) -> None:
    secret = "sk-ant-" + "a1B2" * 10
    table = harness.load(command(PRE, f"echo the key {secret} is bad >&2; exit 2"))
    await harness.play_call(table, redact=lambda text: text.replace(secret, "[secret]"))
    assert secret not in str(harness.entries())
    assert harness.of(HookAnswered)[0].text == "the key [secret] is bad"


async def test_compactions(harness: DiskHarness) -> None:
    hooks = joined(
        command(
            "PreCompact", "cat > pre.json; test -e allow || { echo not now >&2; exit 2; }", "manual"
        ),
        command("PostCompact", "cat > post.json"),
        command("SessionStart", "echo start of a compacted session", "compact"),
    )
    long = call("Bash", command="seq 1 20000")
    model = Script(
        *[says(long) for _ in range(4)],
        says("done"),
        says("a summary of the numbers"),
        says("more"),
    )
    table = harness.load(hooks)
    async with harness.session(model, hooks=table, mode="bypassPermissions") as session:
        await turn(session, "count")
        await turn(session, Compact("numbers"))
        told = json.loads((harness.tree / "pre.json").read_text())
        assert (told["trigger"], told["custom_instructions"]) == ("manual", "numbers")
        assert session.state.compact_wanted is None
        assert harness.of(Summarized) == []
        assert ("PreCompact", "block") in harness.answered
        (harness.tree / "allow").touch()
        await turn(session, Compact("numbers"))
        await turn(session, "and now?")
    assert len(harness.of(Summarized)) == 1
    assert json.loads((harness.tree / "post.json").read_text())["trigger"] == "manual"
    assert any("| start of a compacted session" in text for text in said(model.requests[-1]))


@pytest.mark.parametrize("event", ["UserPromptSubmit", PRE, "PostToolUse", "Stop", "SessionStart"])
async def test_an_interrupt_ends_a_hook(harness: DiskHarness, event: str) -> None:
    mark = f"8765.{os.getpid()}"
    table = harness.load(command(event, f"touch began; sleep {mark}"))
    model = Script(says(TOUCH), says("done"))
    async with harness.session(model, hooks=table, mode="bypassPermissions") as session:
        session.tell(UserMessage((Text("go"),)))
        running = asyncio.ensure_future(session.run(once=True))
        await until((harness.tree / "began").exists)
        session.interrupt()
        await asyncio.wait_for(running, HANG_S)
        assert not session.state.turn_open
    left = [
        one
        for one in psutil.process_iter(["cmdline"])
        if mark in " ".join(one.info["cmdline"] or ())
    ]
    assert left == []


async def test_a12_the_transcript_holds_the_conversation_so_far(harness: DiskHarness) -> None:
    hooks = joined(
        command(PRE, "jq -r .transcript_path > path.txt; cp $(cat path.txt) before.jsonl"),
        command("Stop", "cp $(jq -r .transcript_path) end.jsonl"),
    )
    if not shutil.which("jq"):
        pytest.skip("the hook needs jq")
    (harness.state / "copy").mkdir(parents=True)
    await harness.play_call(hooks, hook_files=HookFiles(str(harness.state / "copy")))
    lines = [json.loads(line) for line in (harness.tree / "end.jsonl").read_text().splitlines()]
    assert [line["type"] for line in lines] == ["user", "assistant", "user", "assistant"]
    assert lines[0]["message"] == {"role": "user", "content": "go"}
    assert lines[1]["message"]["content"][0]["input"] == {"command": "touch ran.txt"}
    assert (
        lines[2]["message"]["content"][0]["tool_use_id"] == lines[1]["message"]["content"][0]["id"]
    )
    assert [line["parentUuid"] for line in lines[1:]] == [line["uuid"] for line in lines[:-1]]
    before = (harness.tree / "before.jsonl").read_text()
    assert (harness.tree / "end.jsonl").read_text().startswith(before)
    assert os.stat(harness.state / "copy/transcript.jsonl").st_mode & 0o777 == 0o600
