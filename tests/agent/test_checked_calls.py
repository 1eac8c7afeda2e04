"""A call that cannot succeed fails before the user is asked about it; what a call that was allowed
may have written is accepted by the sandbox.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longrein.agent import Answer
from longrein.permissions import Rules
from longrein.settings_schema import SandboxOptions
from longrein.tools import make_tool
from longrein.workspace.sandbox import SessionSandbox
from longrein_context.events import PermissionAsked, ToolCall
from tests.agent.disk_harness import DiskHarness, Script, call, question, results, says, turn
from tests.tables import cases

pytestmark = pytest.mark.anyio

TEXT = "one\ntwo\ntwo\n"
KNOWN = "a.txt"


def edit(path: str, old: str, new: str = "x", **more: object) -> ToolCall:
    return call("Edit", file_path=path, old_string=old, new_string=new, **more)


async def outcome_of(harness: DiskHarness, made: ToolCall) -> tuple[str, int]:
    """Read a file, then make a call that needs an answer: (its result, number of questions)."""
    (harness.tree / KNOWN).write_text(TEXT)
    (harness.tree / "unread.txt").write_text(TEXT)
    model = Script(says(call("Read", file_path=KNOWN)), says(made), says("so"))
    rules = Rules(base=str(harness.tree))
    await harness.play(model, "go", rules=rules, mode="default")
    return results(model.requests[-1])[-1], len([1 for one in harness.of(PermissionAsked)])


@cases(
    "made refusal",
    (edit(KNOWN, "three"), "[no-match] "),
    (edit(KNOWN, "two"), "[not-unique] "),
    (edit(KNOWN, "one", "one"), "[same] "),
    (edit("unread.txt", "one"), "[not-read] "),
    (edit("missing.txt", "one"), "[not-found] "),
    (edit(".", "one"), "[not-a-file] "),
)
async def test_an_edit_that_cannot_succeed_asks_nothing(
    harness: DiskHarness, made: ToolCall, refusal: str
) -> None:
    told, asked = await outcome_of(harness, made)
    assert told.startswith(f"Edit failed: {refusal}")
    assert asked == 0
    assert (harness.tree / KNOWN).read_text() == TEXT


@pytest.mark.parametrize("exists", [True, False])
async def test_a_refusal_does_not_tell_whether_a_file_outside_exists(
    harness: DiskHarness, tmp_path: Path, exists: bool
) -> None:
    if exists:
        (tmp_path / "b.txt").write_text(TEXT)
    told = await outcome_of(harness, edit(str(tmp_path / "b.txt"), "one"))
    assert told == (
        (
            f"Edit failed: [not-read] You have not read {tmp_path}/b.txt. Next: call Read with "
            f'file_path "{tmp_path}/b.txt".'
        ),
        0,
    )


SHOWN = "nothing was written. Go by this and call again:\n1\tone\n2\ttwo\n3\ttwo"
NOT_SHOWN = 'nothing was written. Next: call Read with file_path "unread.txt".'
WATCHED = {"PreToolUse": [{"matcher": "Read", "hooks": [{"type": "command", "command": "true"}]}]}


@cases(
    "made rules hooks told",
    (edit("unread.txt", "one"), Rules(), {}, SHOWN),
    (edit("unread.txt", "one"), Rules(ask=("Read(unread.txt)",)), {}, NOT_SHOWN),
    (edit("unread.txt", "one"), Rules(), WATCHED, NOT_SHOWN),
    (call("Write", file_path="unread.txt", content="x"), Rules(allow=("Edit",)), {}, SHOWN),
    (
        call("Write", file_path="unread.txt", content="x"),
        Rules(ask=("Read(unread.txt)",), allow=("Edit",)),
        {},
        NOT_SHOWN,
    ),
)
async def test_a_refusal_shows_what_may_be_read_without_a_question_and_it_counts_as_read(
    harness: DiskHarness, made: ToolCall, rules: Rules, hooks: dict[str, Any], told: str
) -> None:
    (harness.tree / "unread.txt").write_text(TEXT)
    model = Script(says(made), says(made), says("so"))
    rules = msgspec.structs.replace(rules, base=str(harness.tree))
    await harness.run(hooks, model, "go", answers={made.name: "allow"}, rules=rules, mode="default")
    first, second = results(model.requests[-1])
    assert first.endswith(told)
    assert ("failed" not in second) is (told == SHOWN)
    changed = (harness.tree / "unread.txt").read_text() != TEXT
    assert changed is (told == SHOWN)


async def test_names_outside_are_not_told(harness: DiskHarness, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("x")
    (harness.tree / "hidden.txt").write_text("x")
    (harness.tree / "open.txt").write_text("x")
    paths = [str(tmp_path / "secret.tx"), str(tmp_path / "no/secret.txt"), "hidden.tx", "op/n"]
    model = Script(*[says(call("Read", file_path=path)) for path in paths], says("so"))
    base = str(harness.tree)
    allowed = tuple(f"Read(/{path})" for path in paths[:2])
    rules = Rules(base=base, deny=("Read(hidden.txt)",), allow=allowed)
    await harness.play(model, "go", rules=rules, mode="default")
    outside, deeper, hidden, inside = results(model.requests[-1])
    end = 'Next: call Glob with pattern "**/*".'
    assert outside == f"Read failed: [not-found] No such file: {paths[0]}. {end}"
    assert deeper == f"Read failed: [not-found] No such file: {paths[1]}. {end}"
    open_only = 'Here: open.txt. Next: call Read with file_path "open.txt".'
    assert hidden == f"Read failed: [not-found] No such file: {base}/hidden.tx. {open_only}"
    assert inside == f"Read failed: [not-found] No such file: {base}/op/n. {open_only}"


async def test_second_of_two_edits_is_checked_after_the_first(harness: DiskHarness) -> None:
    (harness.tree / KNOWN).write_text(TEXT)
    edits = (edit(KNOWN, "one", "three"), edit(KNOWN, "three", "four"))
    model = Script(says(call("Read", file_path=KNOWN)), says(*edits), says("so"))
    async with harness.session(
        model, rules=Rules(base=str(harness.tree)), mode="default"
    ) as session:
        running = asyncio.create_task(turn(session, "go"))
        first = await question(session)
        session.tell(Answer(first.call, "allow"))
        second = await question(session, after=first)
        session.tell(Answer(second.call, "allow"))
        await running
    assert (harness.tree / KNOWN).read_text() == "four\ntwo\ntwo\n"


@pytest.mark.parametrize("text", ["a\u202eb\u2066c\u200b\n", "日本語 👩\u200d💻\n"])
async def test_invisible_characters_are_told_and_kept(harness: DiskHarness, text: str) -> None:
    (harness.tree / KNOWN).write_text(text)
    model = Script(says(call("Read", file_path=KNOWN)), says("so"), says("so"))
    await harness.play(model, "go", "and now", rules=Rules(base=str(harness.tree)))
    assert text.strip() in results(model.requests[-1])[0]
    told = "Read: 1 × U+202E, 1 × U+2066, 1 × U+200B" in str(model.requests[-1])
    assert told is ("\u202e" in text)


class NotingSandbox(SessionSandbox):
    """Note what is accepted."""

    def __init__(self, harness: DiskHarness) -> None:
        super().__init__(
            SandboxOptions(mode="off"),
            folder=str(harness.state),
            home=str(harness.tree),
            state_dir=str(harness.state),
            environ=os.environ,
            roots=[str(harness.tree)],
        )
        self.accepted: list[Sequence[str]] = []

    def accept(self, written: Sequence[str]) -> None:
        self.accepted.append([os.path.basename(path) for path in written])


async def mcp__a__run(outside_sandbox: str = "") -> str:
    """Run."""
    return "ran"


@cases(
    "made accepted",
    (call("Bash", command="true"), []),
    (call("Bash", command="true", outside_sandbox="why"), [[""]]),
    (call("Write", file_path="new", content=""), [["new"]]),
    (call("mcp__a__run"), []),
    (call("mcp__a__run", outside_sandbox="not a command of the session's"), []),
)
async def test_the_sandbox_accepts_what_an_allowed_call_may_have_written(
    harness: DiskHarness, made: ToolCall, accepted: list[list[str]]
) -> None:
    sandbox = NotingSandbox(harness)
    tools = [make_tool(mcp__a__run, access="command")]
    model = Script(says(made), says("so"))
    await harness.play(model, "go", sandbox=sandbox, more_tools=tools)
    assert sandbox.accepted == accepted
