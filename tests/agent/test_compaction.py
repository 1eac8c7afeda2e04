"""Compaction as the agent carries it out: beside the work, swapped in at a step boundary,
undone, given up.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from longrein.agent import Compact, Continue, Pin, Uncompact, Unpin, UserMessage
from longrein.agent.model_request import SummaryRequest
from longrein.models import Delta
from longrein_context import Budget, Price, Request, fold
from longrein_context.events import (
    Asked,
    AskFailed,
    Cleared,
    Entry,
    Restored,
    Summarized,
    Text,
    ToolCall,
    TurnEnded,
    encode_entry,
)
from tests.agent.disk_harness import DiskHarness, Script, call, said, says, turn
from tests.store.fixtures import store
from tests.tables import cases

pytestmark = pytest.mark.anyio

WINDOW = Budget(12_000, 1_000, Price(3, 15, 0.3, 3.75), clears=())
"""Nothing may be cleared, so that summaries are what is left."""
PROSE = "1. Request and intent\nread the notes\n5. Problems solved\nnone\n9. Next step\ngo on"


class Talker:
    """Answers at once with much text and a call, `steps` times; summaries take until `gate` is
    set.
    """

    provider, model, wire, name = "test", "script", "scripted", "test/script"
    budget = WINDOW

    def __init__(self, steps: int, summary: str | ToolCall = PROSE, words: int = 900) -> None:
        self.left, self.summary, self.words = steps, summary, words
        self.gate = asyncio.Event()
        self.requests: list[Request] = []
        self.summarising = asyncio.Event()
        self.went_on = asyncio.Event()

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        self.requests.append(request)
        if self.summarising.is_set():
            self.went_on.set()
        if request.purpose == "summary":
            self.summarising.set()
            await self.gate.wait()
            yield [says(self.summary)]
            return
        self.left -= 1
        talk = f"step {self.left}: " + " ".join(
            f"thought{self.left}x{n}" for n in range(self.words)
        )
        yield [
            says(talk, call("Bash", command=f"echo on {self.left}"))
            if self.left > 0
            else says("done")
        ]

    async def aclose(self) -> None:
        return


def purposes(entries: list[Entry]) -> list[str]:
    return [e.event.purpose for e in entries if isinstance(e.event, Asked)]


def of(entries: list[Entry], kind: type) -> list[Entry]:
    return [e for e in entries if isinstance(e.event, kind)]


async def test_E11_summary_is_prepared_beside_the_work_and_swapped_in(harness: DiskHarness) -> None:
    model = Talker(14, words=400)

    async def let_it_come() -> None:
        await model.went_on.wait()  # the work goes on while the summary is written
        model.gate.set()

    waiter = asyncio.ensure_future(let_it_come())
    await harness.play(model, "think hard")
    await waiter
    entries = harness.entries()
    swapped = [e for e in of(entries, Summarized) if e.event.prose]
    assert swapped, [type(e.event).__name__ for e in entries]
    asked = next(e for e in entries if isinstance(e.event, Asked) and e.event.purpose == "summary")
    assert asked.event.reason == "ahead"
    between = [e.event for e in entries if asked.seq < e.seq < swapped[0].seq]
    assert [e for e in between if isinstance(e, Asked) and e.purpose == "turn"], (
        "the work went on meanwhile"
    )
    assert swapped[0].event.first == asked.event.first


async def test_law_2_a_summariser_gets_the_last_request_and_one_block(harness: DiskHarness) -> None:
    model = Talker(14, words=400)
    model.gate.set()
    await harness.play(model, "think hard")
    asked = [n for n, r in enumerate(model.requests) if r.purpose == "summary"]
    assert asked
    for at in asked:
        # the work may be one request further
        before = [r for r in model.requests[:at] if r.purpose == "turn"][-2:]
        assert model.requests[at].items[:-1] in [r.items for r in before]
        assert model.requests[at].prefix == before[-1].prefix


async def test_nobody_waits_when_window_fills_before_summary_comes(harness: DiskHarness) -> None:
    model = Talker(20, words=900)
    await harness.play(model, "think hard")  # the gate never opens
    entries = harness.entries()
    assert [e for e in of(entries, Summarized) if not e.event.prose], "the digest took over"
    assert [e.event.kind for e in of(entries, AskFailed)] == ["cancelled"] * purposes(
        entries
    ).count("summary")
    assert [e.event.reason for e in of(entries, TurnEnded)] == ["done"]


@cases(
    "summary problem", (call("Bash", command="touch evil"), "called a tool"), ("", "it is empty")
)
async def test_A16_a_summariser_that_calls_tools_or_says_nothing_has_failed_and_the_work_goes_on(
    harness: DiskHarness, summary: str | ToolCall, problem: str
) -> None:
    model = Talker(16, summary=summary, words=400)
    model.gate.set()
    await harness.play(model, "think hard")
    entries = harness.entries()
    failed = [e.event.message for e in of(entries, AskFailed)]
    assert failed
    assert all(problem in message for message in failed)
    assert not (harness.tree / "evil").exists()
    assert (
        len(failed)
        <= 2 * len([e for e in entries if isinstance(e.event, Summarized | Cleared)]) + 2
    )
    assert not any(e.event.prose for e in of(entries, Summarized)), "the digest took over"
    assert [e.event.reason for e in of(entries, TurnEnded)] == ["done"]


async def test_A27_cancel_leaves_history_untouched(harness: DiskHarness) -> None:
    model = Talker(3, words=20)
    async with harness.session(model) as session:
        await turn(session, "hello")
        before = said_by(session.state.items)
        session.tell(Compact(""))
        walk = asyncio.ensure_future(session.run(once=True))
        await model.summarising.wait()
        session.interrupt()
        await walk
        assert said_by(session.state.items)[: len(before)] == before
        assert not of(harness.entries(), Summarized)


def said_by(items: Sequence[object]) -> list[str]:
    return [repr(getattr(item, "part", item)) for item in items]


async def test_A10_model_that_asks_for_room_at_each_step_gets_it_once(harness: DiskHarness) -> None:
    steps = [says(call("Compact"), call("Bash", command=f"echo {n}")) for n in range(6)]
    model = Script(steps[0], says(PROSE), *steps[1:], says("done"))
    await harness.play(model, "go on and on")
    assert purposes(harness.entries()).count("summary") == 1
    assert not model.steps


async def test_uncompact_brings_back_the_very_items(harness: DiskHarness) -> None:
    model = Talker(4, words=30)
    model.gate.set()
    async with harness.session(model) as session:
        await turn(session, "hello")
        before = said_by(session.state.items)
        await turn(session, Compact(""))
        assert said_by(session.state.items) != before
        await turn(session, Uncompact())
        assert said_by(session.state.items) == before
        heard: list[str] = []
        session.notice = heard.append  # type: ignore[method-assign]
        for message in (Uncompact(), Uncompact(3)):
            await turn(session, message)
    assert len(of(harness.entries(), Restored)) == 1, "the second time there is nothing to undo"
    nothing = "there is no compaction to undo"
    assert heard == [nothing, f"{nothing} at r3; those that can be undone: none"]


async def test_a_pin_is_told_at_once_and_outlives_a_compaction(harness: DiskHarness) -> None:
    pin = "never push to main — 決して"
    model = Talker(14, words=400)
    model.gate.set()
    async with harness.session(model) as session:
        session.tell(Pin(pin))
        await turn(session, "hello")
        assert f"- {pin}" in "\n".join(said(model.requests[0]))
        assert of(harness.entries(), Summarized)
        assert f"- {pin}" in "\n".join(said(model.requests[-1]))
        session.tell(Unpin(1))
        session.tell(UserMessage((Text("again"),)))
        model.left = 1
        await session.run(once=True)
        assert session.state.pins == ()


async def test_a_crash_in_a_summary_closes_its_request(
    harness: DiskHarness, tmp_path: Path
) -> None:
    model = Talker(12, words=400)
    async with harness.session(model) as session:
        walk = asyncio.ensure_future(turn(session, "think"))
        await model.summarising.wait()
        await session.commit(flush=True)
        walk.cancel()
        (tmp_path / "copy").mkdir()
        copy = DiskHarness(tmp_path / "copy")
        shutil.copytree(harness.state, copy.state)  # as a kill would leave it
    model.left = 2
    async with copy.session(model, create=False) as session:
        session.tell(UserMessage((Text("go on"),)))
        session.paused = False
        await session.run(once=True)
        assert session.state.summarising is None or session.part(SummaryRequest).running
    lost = [e.event for e in of(copy.entries(), AskFailed) if e.event.kind == "lost"]
    assert lost


async def test_the_second_try_at_a_summary_is_the_sessions_own_model(harness: DiskHarness) -> None:
    model = Talker(4, words=30)
    model.gate.set()
    other = Talker(1, summary="")
    other.name, other.model = "test/cheap", "cheap"
    other.gate.set()
    async with harness.session(model, compact_model="test/cheap") as session:
        session.deps.open_model = lambda _name: other
        await turn(session, "hello")
        await turn(session, Compact(""))
    assert [r.purpose for r in other.requests] == ["summary"]
    assert other.requests[0].prefix.model == "cheap"
    assert [e.event.message for e in of(harness.entries(), AskFailed)] == [
        "no summary: it is empty"
    ]
    assert [e for e in of(harness.entries(), Summarized) if e.event.prose]


async def test_E13_E22_a_compaction_shows_files_as_on_disk_for_edits(harness: DiskHarness) -> None:
    (harness.tree / "a.py").write_text("first = 1\n")
    model = Script(
        says(
            call("Read", file_path="a.py"),
            call(
                "TodoWrite",
                todos=[
                    {"content": "mend a.py", "status": "in_progress", "activeForm": "Mending a.py"}
                ],
            ),
        ),
        says("I see"),
        says(PROSE),
        says(call("Edit", file_path="a.py", old_string="second = 2", new_string="second = 3")),
        says("done"),
    )
    async with harness.session(model) as session:
        await turn(session, "look at a.py, never touch b.py")
        (harness.tree / "a.py").write_text("first = 1\nsecond = 2\n")
        await turn(session, Compact(""))
        await turn(session, "go on")
    after = model.requests[3]
    shown = "\n".join(said(after))
    assert after.prefix == model.requests[0].prefix, "system text and tools are the same bytes"
    now = f"### {harness.tree}/a.py (changed since you saw it)\n1\tfirst = 1\n2\tsecond = 2\n"
    assert now in shown, "the file as it is now"
    assert "mend a.py" in shown
    assert "look at a.py, never touch b.py" in shown
    assert (harness.tree / "a.py").read_text() == "first = 1\nsecond = 3\n"


async def test_a_summariser_with_a_small_window_gets_the_view_in_parts(
    harness: DiskHarness,
) -> None:
    model = Talker(6, words=600)
    model.gate.set()
    other = Talker(1)
    other.name, other.model, other.budget = "test/cheap", "cheap", Budget(4_000, 500)
    other.gate.set()
    async with harness.session(model, compact_model="test/cheap") as session:
        session.deps.open_model = lambda _name: other
        await turn(session, "hello")
        await turn(session, Compact("the tests"))
    assert len(other.requests) >= 3, "parts, and one that joins them"
    assert all(sum(item.tokens for item in request.items) < 4_000 for request in other.requests)
    assert not other.requests[0].prefix.tools
    assert "the tests" in said(other.requests[-1])[-1]
    assert [e for e in of(harness.entries(), Summarized) if e.event.prose]


def view(entries: list[Entry]) -> list[str]:
    return said_by(fold(entries).items)


async def test_R098_killed_at_each_write_of_a_compaction_one_whole_view_stands(
    tmp_path: Path,
) -> None:
    """And whatever it shows, every entry is there to be fetched, and the next request goes on
    from that very view.
    """
    (tmp_path / "whole").mkdir()
    harness = DiskHarness(tmp_path / "whole")
    model = Talker(14, words=400)
    model.gate.set()
    await harness.play(model, "go on and on")
    entries = harness.entries()
    swap = next(e.seq for e in entries if isinstance(e.event, Summarized) and e.event.prose)
    old, new = view(entries[: swap - 1]), view(entries[:swap])
    made, gone = set(new) - set(old), set(old) - set(new)
    assert made
    assert gone
    asked = max(
        e.seq
        for e in entries
        if isinstance(e.event, Asked) and e.event.purpose == "summary" and e.seq < swap
    )
    for last in range(asked - 1, swap + 3):
        folder = tmp_path / f"cut{last}"
        folder.mkdir()
        cut = DiskHarness(folder)
        await store(cut.state, entries[:last])
        shown = view(cut.entries())
        assert shown[: len(new)] == new if last >= swap else not made & set(shown), (
            f"cut after {last}"
        )
        assert bool(gone & set(shown)) == (last < swap), (
            f"cut after {last}: {[row[:60] for row in shown]}"
        )
        again = Talker(1)
        again.gate.set()
        async with cut.session(again, create=False) as session:
            await turn(session, Continue())
        assert [encode_entry(e) for e in cut.entries()[:last]] == [
            encode_entry(e) for e in entries[:last]
        ]
        first = next(request for request in again.requests if request.purpose == "turn")
        anew = any(isinstance(e.event, Summarized) for e in cut.entries()[last:])
        settled = [row for row in shown if "not_run" not in row]  # a call that was cut off runs now
        assert anew or settled == [row for row in said_by(first.items) if row in settled]
        assert last < swap or not anew, "what was swapped in is not made again"
