"""E13, E22: after a compaction the files that matter stand in the conversation as they are on
disk now.
"""

import os

import pytest

from longrein.agent.between_moves import move_context
from longrein.agent.compaction import FILES_MAX, ranked, rebuild, texts_cleared_since
from longrein_context import Budget, FileUse, State, build_summary, claim_lookup
from longrein_context.events import Cleared, FileChanged, FileSeen, Form, Todo, ToolEnded
from longrein_context.state.ledger import Ledger
from tests.agent.disk_harness import DiskHarness, Script, call, says, turn

pytestmark = pytest.mark.anyio


def used(**uses: FileUse) -> State:
    state = State()
    state.ledger = Ledger(files={f"/w/{name}.py": use for name, use in uses.items()})
    return state


def names(state: State, last: int = 1_000) -> list[str]:
    return [path[3:-3] for path, _ in ranked(state, last)]


def test_what_was_changed_lately_and_often_comes_first() -> None:
    state = used(
        old=FileUse("a", 10, reads=1),
        late=FileUse("a", 90, reads=1),
        edited=FileUse("a", 80, "agent", 80, 3, 1),
        other=FileUse("a", 80, "user", 80, 3, 1),
        after=FileUse("a", 500, reads=1),
    )
    assert names(state, 100) == ["edited", "late", "other", "old"]
    state.todos = (Todo("finish other.py"),)
    assert names(state, 100) == ["edited", "other", "late", "old"]


def test_a_file_that_was_read_six_times_comes_before_one_read_once_later() -> None:
    state = used(often=FileUse("a", 40, reads=6), once=FileUse("a", 90, reads=1))
    assert names(state, 100) == ["often", "once"]
    state.ledger.files["/w/old.py"] = FileUse("a", 2, reads=3)
    assert names(state, 100) == ["often", "once", "old"]


async def test_A_f20_what_changed_or_vanished_meanwhile_is_said(harness: DiskHarness) -> None:
    for name in ("same.py", "changed.py", "gone.py", "locked.py", "link.py"):
        (harness.tree / name).write_text(f"# {name}\n")
    reads = [
        call("Read", file_path=name)
        for name in ("same.py", "changed.py", "gone.py", "locked.py", "link.py")
    ]
    model = Script(says(*reads), says("read"))
    async with harness.session(model) as session:
        await turn(session, "look")
        (harness.tree / "changed.py").write_text("# by somebody else\n")
        (harness.tree / "gone.py").unlink()
        (harness.tree / "locked.py").unlink()
        (harness.tree / "locked.py").mkdir()
        (harness.tree / "link.py").unlink()
        os.symlink("/etc/hostname", harness.tree / "link.py")
        state = session.state
        rebuilt = rebuild(state, session.deps, session.blobs, state.seq)
        notes = {
            block.path.rpartition("/")[2]: (block.text, block.note) for block in rebuilt.blocks
        }
        assert notes == {
            "same.py": ("1\t# same.py", ""),
            "changed.py": ("1\t# by somebody else", "changed since you saw it"),
            "gone.py": ("", "it is gone from disk"),
            "locked.py": ("", "it is no plain file any more; not read again"),
            "link.py": ("", "it is no plain file any more; not read again"),
        }
        event = build_summary(
            state, move_context(session).budget, (3, state.seq), "request", "", (), rebuilt.blocks
        )
        facts = rebuilt.facts_of(event.files)
        told = sorted((type(fact).__name__, fact.path.rpartition("/")[2]) for fact in facts)  # type: ignore[union-attr]
        assert told == [
            ("FileChanged", "changed.py"),
            ("FileChanged", "gone.py"),
            ("FileSeen", "changed.py"),
            ("FileSeen", "same.py"),
        ]
        gone = next(
            fact
            for fact in facts
            if isinstance(fact, FileChanged) and fact.path.endswith("gone.py")
        )
        assert (gone.hash, gone.by) == ("", "user")
        assert gone.before
        session.append(event, *facts)
        assert session.state.files[
            f"{harness.tree}/changed.py"
        ].hash == session.deps.workspace.hash(f"{harness.tree}/changed.py")


async def test_a_large_file_is_shown_where_it_was_read_last(harness: DiskHarness) -> None:
    (harness.tree / "big.py").write_text("".join(f"line_{n} = {n}\n" for n in range(1, 5_001)))
    (harness.tree / "data.bin").write_bytes(b"\0" * 100)
    (harness.tree / "min.js").write_text("x" * 5_000)
    model = Script(
        says(
            call("Read", file_path="big.py", offset=3000, limit=20),
            call("Read", file_path="min.js"),
        ),
        says("read"),
    )
    async with harness.session(model) as session:
        await turn(session, "look")
        rebuilt = rebuild(session.state, session.deps, session.blobs, session.state.seq)
        (block,) = rebuilt.blocks
        assert block.text.startswith("3000\tline_3000 = 3000\n")
        assert block.note.startswith("lines 3000 to ")
        assert block.note.endswith(" of 5000")
        budget = move_context(session).budget
        assert session.state.gauge.scale(len(block.text) // 3) <= budget.usable_tokens * 0.05
        (seen,) = rebuilt.facts_of((block.path,))
        assert isinstance(seen, FileSeen)
        assert not seen.whole


async def test_many_files_stay_within_a_tenth_of_the_window(harness: DiskHarness) -> None:
    reads = []
    for n in range(30):
        (harness.tree / f"f{n}.py").write_text("value = 1\n" * 60)
        reads.append(call("Read", file_path=f"f{n}.py"))
    model = Script(says(*reads), says("read"), budget=Budget(30_000, 4_000))
    async with harness.session(model) as session:
        await turn(session, "look")
        blocks = rebuild(session.state, session.deps, session.blobs, session.state.seq).blocks
        budget = move_context(session).budget
        assert 1 <= len(blocks) <= FILES_MAX
        event = build_summary(
            session.state, budget, (3, session.state.seq), "request", "", (), blocks
        )
        assert len(event.files) == len(blocks)
        assert sum(len(block.text) for block in blocks) / 3 <= budget.usable_tokens * 0.10


async def test_what_was_cleared_meanwhile_still_proves_the_prose(harness: DiskHarness) -> None:
    (harness.tree / "a.py").write_text("def peculiar_name():\n" + "    pass  # and more\n" * 200)
    model = Script(says(call("Bash", command="cat a.py")), says("read"))
    async with harness.session(model) as session:
        await turn(session, "look")
        result = next(e.seq for e in harness.entries() if isinstance(e.event, ToolEnded))
        asked = session.state.seq
        span = (3, asked)
        assert texts_cleared_since(session.state, session.log.history, span, asked) == []
        session.append(
            Cleared(
                (Form(f"r{result}", "placeholder", "[longrein:n0nce cleared: x]"),), "watermark"
            )
        )
        prose = "1. Request and intent\nKeep `peculiar_name`."
        blind = build_summary(
            session.state, move_context(session).budget, span, "watermark", prose, ()
        )
        seen = claim_lookup(
            session.state,
            span,
            texts_cleared_since(session.state, session.log.history, span, asked),
        )
        fair = build_summary(
            session.state, move_context(session).budget, span, "watermark", prose, (), (), seen
        )
        assert (blind.struck, fair.struck) == (1, 0)
        assert "Keep `peculiar_name`." in fair.text
