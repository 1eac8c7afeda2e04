"""Hooks written with a library of others: `cchooks` checks the input of each event and writes
the answer.
"""

import sys
from pathlib import Path

import pytest

from longrein.testing.scripted_model import ScriptedModel as Script
from longrein.testing.scripted_model import call, says
from tests.agent.disk_harness import DiskHarness
from tests.agent.hook_tables import command, joined

pytestmark = pytest.mark.anyio
pytest.importorskip("cchooks", reason="the library is no dependency of longrein")

SCRIPT = """
from cchooks import create_context

context = create_context()  # refuses an input that lacks a field of its event
with open("seen.txt", "a") as file:
    print(type(context).__name__, file=file)
if context.hook_event_name == "PreToolUse" and "rm" in context.tool_input.get("command", ""):
    context.output.deny("no removing")
if context.hook_event_name == "PostToolUse":
    context.output.challenge("look at the lint errors")
if context.hook_event_name == "Stop" and not context.stop_hook_active:
    context.output.prevent("run the tests first")
if context.hook_event_name == "SessionStart":
    context.output.add_context("it is Monday")
"""
EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")


async def test_A4_4_hooks_of_cchooks_are_told_and_obeyed(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path)
    (harness.tree / "hook.py").write_text(SCRIPT)
    hooks = joined(*(command(event, f"{sys.executable} hook.py") for event in EVENTS))
    calls = (call("Bash", command="rm -rf x"), call("Bash", command="echo fine"))
    model = Script(says(*calls), says("done"), says("really done"))
    await harness.run(hooks, model, "go", mode="bypassPermissions")
    seen = (harness.tree / "seen.txt").read_text().split()
    assert {name.removesuffix("Context") for name in seen} == set(EVENTS)
    assert harness.notices == []
    assert [text.split("\n")[0] for text in harness.results] == [
        "denied: Denied: a hook refused this call: no removing",
        "ok: fine",
    ]
    told = str([item.part for item in model.requests[-1].items])
    assert all(
        text in told for text in ("it is Monday", "look at the lint errors", "run the tests first")
    )
