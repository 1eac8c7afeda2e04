"""A4.1: hooks that ask a model (`prompt`) or an agent that reads files (`agent`)."""

import asyncio
from typing import Any

import pytest

from longrein.agent import hooks
from longrein.models import Failure, Reply
from longrein.permissions import Rules
from longrein.testing.scripted_model import ScriptedModel as Script
from longrein.testing.scripted_model import call, says
from longrein_context import Budget, Price
from longrein_context.events import HookAnswered, Text, ToolResult, Usage, text_of
from tests.agent.disk_harness import TOUCH, DiskHarness
from tests.tables import cases

from .disk_harness import said

pytestmark = pytest.mark.anyio
PRE = "PreToolUse"


def asking(event: str, prompt: str, kind: str = "prompt", **more: Any) -> dict[str, Any]:
    return {event: [{"hooks": [{"type": kind, "prompt": prompt, **more}]}]}


@cases(
    "answer runs line",
    (says('{"ok": true}'), True, ""),
    (says('{"ok": false, "reason": "it touches"}'), False, ""),
    (says('Sure.\n```json\n{"ok": false, "reason": "it touches"}\n```'), False, ""),
    (says('{"ok": false}'), False, ""),
    (says('{"ok": "no"}'), True, "the model did not answer"),
    (says("No!"), True, "the model did not answer"),
    (says("[" * 5_000), True, "the model did not answer"),
    (Failure("overload", "busy"), True, "the model gave no answer: busy"),
)
async def test_the_answer_decides(harness: DiskHarness, answer: Any, runs: bool, line: str) -> None:
    model = await harness.play_call(asking(PRE, "Is this safe? $ARGUMENTS"), answer)
    assert (harness.tree / "ran.txt").exists() == runs
    assert [line in notice for notice in harness.notices] == [True] * bool(line)
    request = model.requests[1]
    (asked,) = said(request)
    assert asked.startswith('Is this safe? {"session_id"')
    assert '"tool_input":{"command":"touch ran.txt"}' in asked
    assert request.prefix.tools == ()
    assert len(model.requests[2].items) > len(model.requests[0].items), (
        "the conversation goes on without it"
    )
    assert "Is this safe" not in str(said(model.requests[2]))


async def test_a_turn_goes_on_until_the_model_is_content(harness: DiskHarness) -> None:
    answers = (
        says("ready"),
        says('{"ok": false, "reason": "no tests ran"}'),
        says("tests ran"),
        says('{"ok": true}'),
    )
    model = Script(*answers)
    await harness.run(asking("Stop", "Did the tests run?"), model, "go")
    model.check_done()
    assert any("no tests ran" in text for text in said(model.requests[2]))


async def test_what_it_costs_counts(harness: DiskHarness) -> None:
    budget = Budget(200_000, 8_000, Price(1.0, 10.0))
    reply = Reply((Text('{"ok": true}'),), "end", Usage(1_000_000, output_tokens=100_000))
    model = Script(says(TOUCH), reply, says("done"), budget=budget)
    session = await harness.run(asking(PRE, "Safe?"), model, "go", mode="bypassPermissions")
    (answered,) = harness.of(HookAnswered)
    assert (answered.cost_usd, answered.usage.input_tokens) == (2.0, 1_000_000)
    assert session.state.spent_usd > 2.0
    assert session.state.usage.input_tokens >= 1_000_000


async def test_it_may_have_a_model_of_its_own(harness: DiskHarness) -> None:
    small = Script(says('{"ok": true}'), name="test/small")
    opened = {"test/small": small}
    more = {"open_model": opened.__getitem__, "subagent_model": lambda asked: (f"test/{asked}", "")}
    deps = harness.deps
    harness.deps = lambda model, log, **given: _replaced(deps(model, log, **given), more)  # type: ignore[method-assign]
    await harness.play_call(asking(PRE, "Safe?", model="small"))
    small.check_done()
    assert small.closed


def _replaced(deps: Any, fields: dict[str, Any]) -> Any:
    for name, value in fields.items():
        setattr(deps, name, value)
    return deps


async def test_secrets_of_the_event_are_not_sent(harness: DiskHarness) -> None:
    secret = "sk-ant-" + "a1B2" * 10
    model = Script(says(call("Bash", command=f"echo {secret}")), says('{"ok": true}'), says("done"))
    await harness.run(
        asking(PRE, "Safe?"), model, "go", redact=lambda text: text.replace(secret, "[secret]")
    )
    assert secret not in str(said(model.requests[1]))


# --- Agents ---------------------------------------------------------------------------------------


async def test_an_agent_reads_files_before_it_decides(harness: DiskHarness) -> None:
    (harness.tree / "rules.txt").write_text("nothing may be touched\n")
    answers = (
        says(call("Read", file_path="rules.txt"), call("Grep", pattern="touched")),
        says('{"ok": false, "reason": "rules.txt forbids it"}'),
    )
    model = await harness.play_call(asking(PRE, "See rules.txt", "agent"), *answers)
    assert {spec.name for spec in model.requests[1].prefix.tools} == {"Read", "Grep", "Glob"}
    read, found = (
        text_of(one.part.parts)
        for one in model.requests[2].items
        if isinstance(one.part, ToolResult)
    )
    assert "nothing may be touched" in read
    assert "rules.txt" in found
    assert harness.results == ["denied: Denied: a hook refused this call: rules.txt forbids it"]
    assert harness.started == [], "what a hook reads is not in the conversation"


async def test_an_agent_reads_only_what_the_rules_allow(harness: DiskHarness) -> None:
    (harness.tree / "secret.txt").write_text("TOPSECRET\n")
    tries = says(
        call("Read", file_path="secret.txt"),
        call("Bash", command="touch evil.txt"),
        call("Read", file_path="/etc/passwd"),
        call("Read", file="x"),
        call("Grep", pattern="TOP"),
    )
    more = {"rules": Rules(deny=("Read(./secret.txt)",), base=str(harness.tree))}
    model = await harness.play_call(
        asking(PRE, "Look", "agent"), tries, says('{"ok": true}'), **more
    )
    told = [
        text_of(one.part.parts)
        for one in model.requests[2].items
        if isinstance(one.part, ToolResult)
    ]
    assert "TOPSECRET" not in str(told)
    assert "root:" not in str(told)
    assert "no such tool" in told[1]
    assert not (harness.tree / "evil.txt").exists()


async def test_an_agent_that_never_decides_is_ended(harness: DiskHarness) -> None:
    looking = [says(call("Glob", pattern="*")) for _ in range(50)]
    await harness.play_call(asking(PRE, "Look", "agent"), *looking)
    assert harness.notices == [f"{PRE} hook `Look`: the model did not decide within 50 requests"]
    assert (harness.tree / "ran.txt").exists()


async def test_a_late_model_blocks_nothing(
    harness: DiskHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "KILL_S", 0.0)

    async def hang() -> None:
        if "Look" in repr(model.requests[-1]):
            await asyncio.sleep(3_600)

    # a busy machine may reach the limit before the hook has asked: then a step is left
    model = Script(says(TOUCH), says("done"), says("done"), wait=hang)
    await harness.run(asking(PRE, "Look", timeout=0.01), model, "go", answers={"Bash": "allow"})
    assert harness.notices == [f"{PRE} hook `Look`: no answer within 0.01 s"]
    assert (harness.tree / "ran.txt").exists()
