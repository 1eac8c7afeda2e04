"""Law 10: whatever entry was the last on disk, the resumed session ends as the uninterrupted
one, but for one mark.
"""

import shutil
from pathlib import Path

import pytest

from longrein.agent import Continue, Rewind, SetMode
from longrein.models import Reply
from longrein.permissions import Rules
from longrein_context import Request, fold
from longrein_context.events import Entry, FileChanged, ToolCall, ToolResult, ToolStarted, text_of
from tests.agent.disk_harness import DiskHarness, Script, call, says, turn
from tests.store.fixtures import store
from tests.tables import cases

pytestmark = pytest.mark.anyio

PLAY = [
    says("let me see", call("Read", file_path="a.txt"), call("Bash", command="echo one >> acts")),
    says(call("Edit", file_path="a.txt", old_string="old", new_string="new")),
    says(call("Bash", command="echo two >> acts"), call("Bash", command="echo three >> acts")),
    says("all is done"),
]


def by_position(request: Request) -> Reply:
    """The step that follows as many replies as the request shows."""
    return PLAY[len({item.seqs[0] for item in request.items if item.mine})]


def model() -> Script:
    return Script(*[by_position] * 12)


def house_in(folder: Path) -> DiskHarness:
    """A fresh harness at the same place: sessions remember absolute folders."""
    shutil.rmtree(folder / "tree", ignore_errors=True)
    shutil.rmtree(folder / "state", ignore_errors=True)
    harness = DiskHarness(folder)
    (harness.tree / "a.txt").write_text("old words\n")
    return harness


def conversation(entries: list[Entry]) -> list[str]:
    """What the model would see, without seqs and times."""
    shown = []
    for item in fold(entries).items:
        part = item.part
        if isinstance(part, ToolResult):
            shown.append(f"{part.name}: {part.status}")
        elif isinstance(part, ToolCall):
            shown.append(f"{part.name}({part.arguments})")
        else:
            shown.append(text_of((part,)))
    return shown


async def entries_of_a_whole_run(folder: Path) -> list[Entry]:
    harness = house_in(folder)
    await harness.play(model(), "do it")
    return harness.entries()


async def resumed(folder: Path, entries: list[Entry], upto: int) -> DiskHarness:
    """A harness whose disk holds the first `upto` entries, gone on with to the end of the turn."""
    harness = house_in(folder)
    kept = [e for e in entries if e.seq <= upto]
    ended = {e.event.call for e in kept if type(e.event).__name__ == "ToolEnded"}
    # in one transaction with its end, but here cut from it
    if any(isinstance(e.event, FileChanged) for e in kept):
        (harness.tree / "a.txt").write_text("new words\n")
    act_again(
        harness,
        [e.event.call for e in kept if isinstance(e.event, ToolStarted) and e.event.call in ended],
        entries,
    )
    await store(harness.state, kept)
    async with harness.session(model(), create=False) as session:
        await turn(
            session, Continue() if session.state.turn_open or session.state.calls else "do it"
        )
    return harness


def act_again(harness: DiskHarness, calls: list[str], entries: list[Entry]) -> None:
    """The world as it was at that moment: what the ended calls had done to the files."""
    made = {
        p.id: p for e in entries for p in getattr(e.event, "parts", ()) if isinstance(p, ToolCall)
    }
    for one in calls:
        arguments = made[one].arguments or {}
        if made[one].name == "Edit":
            (harness.tree / "a.txt").write_text("new words\n")
        elif made[one].name == "Bash":
            with open(harness.tree / "acts", "a", encoding="utf-8") as file:
                file.write(arguments["command"].split()[1] + "\n")


async def test_law_10_R029_R030_cut_after_every_entry_and_gone_on_with(tmp_path: Path) -> None:
    entries = await entries_of_a_whole_run(tmp_path)
    whole = conversation(entries)
    first = next(e.seq for e in entries if type(e.event).__name__ == "ModeSet")
    for upto in range(first, len(entries)):
        harness = await resumed(tmp_path, entries, upto)
        shown = conversation(harness.entries())
        marked = [line for line in shown if line.endswith(": interrupted")]
        assert len(marked) <= 2, f"cut after entry {upto}"
        # then the model has not seen the file, and Edit rightly says so
        if "Read: interrupted" in marked:
            marked += ["Edit: failed"]
        plain = [line.split(":")[0] + ": ok" if line in marked else line for line in shown]
        assert plain == whole, f"cut after entry {upto}"
        acts = (
            (harness.tree / "acts").read_text().split() if (harness.tree / "acts").exists() else []
        )
        assert len(acts) == len(set(acts)), f"law 8: an act was repeated after a cut at {upto}"


async def test_law_10_resuming_twice_changes_nothing(tmp_path: Path) -> None:
    entries = await entries_of_a_whole_run(tmp_path)
    harness = await resumed(tmp_path, entries, len(entries) // 2)
    before = harness.entries()
    async with harness.session(model(), create=False):
        pass
    assert harness.entries() == before


@cases(
    "modes then",
    (("bypassPermissions",), "default"),
    (("plan", "bypassPermissions"), "plan"),
    (("bypassPermissions", "plan"), "plan"),
    (("acceptEdits", "bypassPermissions"), "acceptEdits"),
    (("auto",), "default"),
    (("dontAsk",), "dontAsk"),
)
async def test_a_mode_that_was_asked_for_just_before_a_kill_allows_nothing_afterwards(
    tmp_path: Path, modes: tuple[str, ...], then: str
) -> None:
    """The last words lie in the inbox; those that run no command unasked are obeyed at the open."""
    harness = DiskHarness(tmp_path)
    async with harness.session(Script(), rules=Rules()) as session:
        for mode in modes:
            await session.tell(SetMode(mode))
        await session.commit(flush=True)
    async with harness.session(Script(says("done")), create=False, rules=Rules()) as session:
        await turn(session, "go on")
    assert session.state.mode == then
    async with harness.session(Script(), create=False, rules=Rules()) as session:
        assert not session.inbox.waiting


async def test_going_back_to_where_everything_was_allowed_allows_nothing(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path)
    async with harness.session(
        Script(says("one"), says("two"), says("three")), rules=Rules()
    ) as session:
        for mode in ("bypassPermissions", "default"):
            await turn(session, SetMode(mode), "go on")
        await turn(session, Rewind(harness.ends()[0]))
        assert session.mode == session.state.mode == "default"
    assert fold(harness.entries()).mode == "default"
