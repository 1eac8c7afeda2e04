"""A4.3: varieties of notifications, ends of sessions and compactions."""

import asyncio
import json
from typing import Any

import pytest

from longrein.agent import UserMessage, builtin_kinds
from longrein.agent.between_moves import move_context
from longrein.agent.compaction import compact
from longrein.permissions import Rules
from longrein.testing.scripted_model import ScriptedModel as Script
from longrein.testing.scripted_model import call, says
from longrein.tools import agent_tool
from longrein_context import Digest
from longrein_context.decisions import summary_span
from longrein_context.events import Summarized, Text
from longrein_context.summary.summary_text import build_digest
from tests.agent.disk_harness import DiskHarness, turn
from tests.agent.hook_tables import command, joined
from tests.tables import cases, record
from tests.timeouts import HANG_S

pytestmark = pytest.mark.anyio
APPEND = "cat >> told.jsonl; echo >> told.jsonl"


def told(harness: DiskHarness) -> list[dict[str, Any]]:
    path = harness.tree / "told.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def wait_for(harness: DiskHarness, count: int = 1) -> list[dict[str, Any]]:
    async with asyncio.timeout(HANG_S):
        while len(told(harness)) < count:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
    return told(harness)


async def test_A4_3_notification_of_an_idle_prompt(harness: DiskHarness) -> None:
    table = harness.load(command("Notification", APPEND, "idle_prompt"))
    async with harness.session(Script(says("done")), hooks=table) as session:
        await turn(session, "go")
        (one,) = await wait_for(harness)
    assert (one["notification_type"], one["message"]) == (
        "idle_prompt",
        "longrein is waiting for your input",
    )


@pytest.mark.parametrize("background", [False, True])
async def test_A4_3_notifications_of_a_subagent(harness: DiskHarness, background: bool) -> None:
    kinds = builtin_kinds()
    task = call(
        "Agent", description="x", prompt="x", subagent_type="general", run_in_background=background
    )
    asking = says(call("Bash", command="touch x"))
    end = says("done") if not background else says(call("Bash", command="true"))
    table = harness.load(command("Notification", APPEND))
    more = record(rules=Rules(allow=("Bash(true)",)), kinds=kinds, more_tools=(agent_tool(kinds),))

    def step(request: Any) -> Any:
        """Answer whoever asks: the subagent first asks for a command, the session ends its turn."""
        text = str(request.items)
        if (
            "You are" in str(request.prefix.system)
            and "touch x" not in text
            and "prompt='x'" not in text
        ):
            return asking
        return end

    model = Script(says(task), *[step] * 6)
    async with harness.session(model, hooks=table, **more) as session:
        session.tell(UserMessage((Text("go"),)))
        running = asyncio.ensure_future(session.run(once=True))
        first = (await wait_for(harness))[0]
        running.cancel()
        await asyncio.wait([running])
    assert first["notification_type"] == (
        "agent_needs_input" if background else "permission_prompt"
    )


@pytest.mark.parametrize("reason", ["clear", "resume", "prompt_input_exit", "other"])
async def test_A4_3_the_end_of_a_session_says_why(harness: DiskHarness, reason: str) -> None:
    table = harness.load(
        joined(
            command("SessionEnd", APPEND, reason), command("SessionEnd", "touch wrong", "logout")
        )
    )
    async with harness.session(Script(says("done")), hooks=table) as session:
        await turn(session, "go")
        await session.close(reason)
    assert [one["reason"] for one in told(harness)] == [reason]
    assert not (harness.tree / "wrong").exists()


# --- Digests: compactions without a model ---------------------------------------------------------


@cases(
    "reason trigger refused made",
    ("watermark", "auto", False, True),
    ("watermark", "auto", True, True),
    ("request", "manual", False, True),
    ("request", "manual", True, False),
)
async def test_A4_3_compactions_without_a_model_are_told_too(
    harness: DiskHarness, reason: str, trigger: str, refused: bool, made: bool
) -> None:
    """A hook may refuse what the user has asked for; where the window is full, code makes it
    smaller all the same.
    """
    table = harness.load(
        joined(
            command("PreCompact", APPEND + "; exit 2" * refused, trigger),
            command("PostCompact", APPEND, trigger),
            command("SessionStart", APPEND, "compact"),
        )
    )
    model = Script(says(call("Bash", command="seq 1 2000")), says("done"))
    async with harness.session(model, hooks=table, mode="bypassPermissions") as session:
        await turn(session, "count")
        assert move_context(session).digest_hooks
        first, last = summary_span(session.state)
        await compact(
            session, Digest(build_digest(session.state, model.budget, first, last, reason))
        )
    names = [one["hook_event_name"] for one in told(harness)]
    assert names == ["PreCompact", "PostCompact", "SessionStart"][: 3 if made else 1]
    assert {one["trigger"] for one in told(harness)[:2]} == {trigger}
    assert len(harness.of(Summarized)) == made
