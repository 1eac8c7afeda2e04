"""Two subagents contradict each other; a third reads both, checks and decides; no report is
lost.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longrein.agent import Continue, UserMessage
from longrein.agent.subagents.subagent_report import evidence, synthesis_job
from longrein.app import Additions, App
from longrein.app.run_context import read_run_context
from longrein.models import Failure, Reply
from longrein.options import Options
from longrein.testing.clock import run_virtual
from longrein.testing.harness import results, said
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein.tools import SubagentReport, SubagentTask
from longrein_context import Request
from longrein_context.events import (
    Entry,
    Replied,
    SubagentEnded,
    SubagentStarted,
    Text,
    ToolCall,
    ToolEnded,
)
from tests.agent.memory_harness import MemoryHarness, tasks
from tests.tables import split_words

GOAL = "How long may a request take?"


# --- what it is given -----------------------------------------------------------------------------


def test_E19_the_same_task_is_told_once_and_long_reports_keep_both_ends() -> None:
    one = SubagentTask("guess", "Guess. " * 1_000)
    long = "first\n" + "x" * 300_000 + "\nlast"
    prompt = synthesis_job(
        "g", [SubagentReport(f"a{n}", one, "done", long, handle=f"a{n}/r7") for n in (1, 2)], "n"
    ).prompt
    assert prompt.count("All were given the same task:\n| Guess. Guess.") == 1
    assert prompt.count("| first\n") == prompt.count("\n| last") == 2
    assert 'all of it: Recall("a2/r7")' in prompt
    assert len(prompt) < 210_000


# --- what a report rests on -----------------------------------------------------------------------


def log(*calls: tuple[str, dict[str, Any], str]) -> list[Entry]:
    """A log with these calls: (tool, arguments, status)."""
    entries: list[Entry] = []
    for n, (name, arguments, status) in enumerate(calls):
        part = ToolCall(f"c{n}.0", name, arguments)
        entries.append(Entry(3 * n + 1, 0, Replied(3 * n, (part,), "calls")))
        entries.append(Entry(3 * n + 2, 0, ToolEnded(part.id, name, status, (Text("x"),))))
    return entries


READ_A, READ_B = {"file_path": "/w/src/a.py"}, {"file_path": "/w/src/deep/b.py"}
EVIDENCE: list[tuple[str, list[tuple[str, dict[str, Any], str]], tuple[str, ...]]] = [
    ("It is in src/a.py:3.", [("Read", READ_A, "ok")], ("a5/r2 Read /w/src/a.py",)),
    ("It is in a.py.", [("Read", READ_A, "ok"), ("Read", READ_A, "ok")], ("a5/r5 Read /w/src/a.py",
    )),
    ("b.py, then a.py", [("Read", READ_A, "ok"), ("Read", READ_B, "ok")],
     ("a5/r5 Read /w/src/deep/b.py", "a5/r2 Read /w/src/a.py")),
    ("I ran `make  test`: 3 failed", [("Bash", {"command": "make  test"}, "failed")],
    ("a5/r2 Bash make test",)),
    ("No uses of `old_name`.", [("Grep", {"pattern": "old_name"}, "ok")], ("a5/r2 Grep old_name",)),
    ("by another name", [("CallTool", {"name": "mcp__x__y", "args": {"query": "another"}}, "ok")],
     ("a5/r2 mcp__x__y another",)),
    ("Nothing of it.", [("Read", READ_A, "ok")], ()),
    ("a.py", [("Read", READ_A, "denied"), ("Read", READ_A, "interrupted")], ()),
    ("x is 1", [("Grep", {"pattern": "x"}, "ok"), ("TodoWrite", {"todos": []}, "ok")], ()),
]  # fmt: skip


@pytest.mark.parametrize(("report", "calls", "wanted"), EVIDENCE, ids=lambda value: str(value)[:20])
def test_the_evidence_of_a_report_is_found_in_its_log(
    report: str, calls: list[tuple[str, dict[str, Any], str]], wanted: tuple[str, ...]
) -> None:
    assert evidence("a5", log(*calls), report) == wanted


def test_the_evidence_is_no_longer_than_it_helps() -> None:
    calls = [("Read", {"file_path": f"/w/file{n}.py"}, "ok") for n in range(50)]
    found = evidence("a5", log(*calls), " ".join(f"file{n}.py" for n in range(50)))
    assert len(found) == 12
    assert found[0] == "a5/r2 Read /w/file0.py"


# --- the whole walk -------------------------------------------------------------------------------

SAYS_3, SAYS_4 = "a.py:1 sets a = 3", "a.py:1 sets a = 4"
DECISION = "a5 says 3, the other says 4. I looked (a.py:1): a = 1. Both are wrong."


def contradicting(**others: Any) -> MemoryHarness:
    parts = {
        "main": [
            says(tasks("ALPHA", "BETA", subagent_type="explore", synthesis=GOAL)),
            says("It is 1."),
        ],
        "The goal": [says("I look.", call("Read", file_path="/w/a.py")), says(DECISION)],
        "ALPHA": [says(call("Read", file_path="/w/a.py")), says(SAYS_3)],
        "BETA": [says(SAYS_4)],
    }
    return MemoryHarness(**{**parts, **others})


def test_E19_two_contradict_and_the_synthesis_is_the_result() -> None:
    harness = contradicting()
    harness.play()
    asked = harness.model.by_part["The goal"][0]
    first = next(text for text in said(asked) if text.startswith("The goal"))
    labels = harness.labels()
    assert first.startswith(f"The goal: {GOAL}\n")
    for label, words in zip(labels, (SAYS_3, SAYS_4), strict=False):
        assert f"| {words}" in first
        assert f"{label} explore" in first
    assert f"Its evidence, for Recall: {labels[0]}/r" in first
    assert [tool.name for tool in asked.prefix.tools] == ["Read", "Recall"], (
        "of a memory's tools those that only look"
    )
    assert (
        "You are a subagent of longrein, a coding agent. Several subagents worked apart"
        in asked.prefix.system
    )
    told = harness.result()
    assert f"| {DECISION}" in told
    assert SAYS_3 not in told.replace(DECISION, "")
    assert told.count("its own report: Recall(") == 2
    ends = harness.of(SubagentEnded)
    assert [end.status for end in ends] == ["done"] * 3
    assert SAYS_3 in ends[0].report
    assert SAYS_4 in ends[1].report
    assert [start.index for start in harness.of(SubagentStarted)] == [0, 1, 2]


def test_E19_one_that_fails_is_part_of_what_is_put_together() -> None:
    def fail(_request: Request) -> Reply:
        raise RuntimeError("a bug")

    harness = contradicting(BETA=[says("half way", call("Read", file_path="/w/a.py")), fail])
    harness.play()
    first = next(
        text for text in said(harness.model.by_part["The goal"][0]) if text.startswith("The goal")
    )
    assert ": FAILED" in first
    assert "| half way" in first
    assert f"| {DECISION}" in harness.result()


def test_E19_where_there_is_nothing_to_put_together_that_is_said() -> None:
    harness = contradicting(BETA=[Failure("auth", "the key was refused", 401)], **{"The goal": []})
    harness.play()
    assert f"| {SAYS_3}" in harness.result()
    assert harness.result().endswith("There is no synthesis: fewer than two of them left a report.")


def test_E19_killed_while_the_synthesis_works_it_goes_on_and_nobody_works_twice() -> None:
    harness = contradicting()
    harness.model.latency_s = {"The goal": 30}

    async def killed() -> None:
        session = harness.open()
        session.tell(UserMessage((Text("go"),)))
        walk = asyncio.ensure_future(session.run(once=True))
        await harness.clock.sleep(3)
        harness.disk.kill()
        walk.cancel()

    run_virtual(killed(), clock=harness.clock)
    assert [end.status for end in harness.of(SubagentEnded)] == ["done", "done"]
    harness.first = (Continue(),)
    harness.play("")
    assert [start.kind for start in harness.of(SubagentStarted)] == split_words(
        "explore explore synthesis"
    )
    assert [end.status for end in harness.of(SubagentEnded)] == ["done"] * 3
    assert f"| {DECISION}" in harness.result()


# --- on disk: handles lead to the bytes -----------------------------------------------------------


class Cast(ScriptedModel):
    """Each conversation plays the part that its texts name, the first in this order."""

    def __init__(self, **parts: list[Reply | Callable[[Request], Reply]]) -> None:
        super().__init__()
        self.parts = parts
        self.by_part: dict[str, list[Request]] = {name: [] for name in parts}

    def _next(self, request: Request) -> Reply | Failure:
        words = [text for text in said(request) if not text.startswith(("#", "[longrein:"))]
        part = next(
            name
            for name in self.parts
            if any(text.startswith(name.replace("_", " ")) for text in words)
        )
        self.by_part[part].append(request)
        step = self.parts[part].pop(0)
        return step(request) if callable(step) else step


def handle_in(text: str, number: int) -> str:
    """The handle after the `number`th `Recall("`."""
    return text.split('Recall("')[number].partition('"')[0]


def test_E19_the_synthesis_and_the_parent_read_any_byte_of_the_others(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "a.py").write_text("a = 1\n")

    def look(request: Request) -> Reply:
        first = next(text for text in said(request) if text.startswith("The goal"))
        proof = first.partition("for Recall: ")[2].partition(" ")[0]
        return says(call("Recall", handle=proof))

    def raw(number: int) -> Callable[[Request], Reply]:
        def recall(request: Request) -> Reply:
            told = next(text for text in results(request) if text.startswith("Agent ok"))
            return says(call("Recall", handle=handle_in(told, number)))

        return recall

    model = Cast(
        The_goal=[look, says(DECISION)],
        ALPHA=[says(call("Read", file_path="a.py")), says(SAYS_3)],
        BETA=[says(SAYS_4)],
        go=[
            says(tasks("ALPHA", "BETA", subagent_type="explore", synthesis=GOAL)),
            raw(1),
            raw(2),
            says("It is 1."),
        ],
    )

    async def main() -> None:
        environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        run_context = read_run_context(
            Options(state_dir=str(tmp_path / "state")), environ, folder=str(repo)
        )
        built = await App(run_context, print).open(additions=Additions(model=model))
        built.session.tell(UserMessage((Text("go"),)))
        await built.session.run(once=True)
        await built.session.close()

    asyncio.run(main())
    assert not any(model.parts.values())
    seen = results(model.by_part["The_goal"][-1])[-1]
    assert "Recall ok" in seen
    assert "a = 1" in seen
    told = results(model.by_part["go"][-1])
    assert [SAYS_3 in told[-2], SAYS_4 in told[-1]] == [True, True]
