"""The inspector's figures, compared with the folded log (issue 13: context over time, cache,
time, an item's life).
"""

import itertools

import msgspec
import pytest

from lab.inspector_session import SampleLogs, SampleSession
from longrein.extensions.inspector.inspection import SessionInspector, changes, inspect_session
from longrein.extensions.inspector.item_lifecycles import text_of_item
from longrein.extensions.inspector.page_data import MODULES, Inspection, Update
from longrein.extensions.inspector.shorten import BODY_BYTES_MAX, fit
from longrein_context import State, advance
from longrein_context.events import (
    Asked,
    Cleared,
    Entry,
    FileChanged,
    FileSeen,
    PrefixSet,
    Replied,
    Restored,
    Rewound,
    SubagentEnded,
    Summarized,
    ToolEnded,
)
from tests.agent.disk_harness import events_of
from tests.tables import record

ENTRIES = 620


def read(sample: SampleSession, upto: int = 0) -> SessionInspector:
    inspector = SessionInspector(SampleLogs(sample, upto=upto), lambda _: sample.budget)
    inspector.read()
    return inspector


@pytest.fixture(scope="module")
def sample() -> SampleSession:
    """A session at a small window, with every kind of break."""
    return SampleSession(window=40_000).grow(ENTRIES)


@pytest.fixture(scope="module")
def found(sample: SampleSession) -> Inspection:
    return inspect_session(read(sample))


def states(sample: SampleSession) -> list[tuple[Entry, State]]:
    """Each third request for a turn, with a state of its own that was folded up to it."""
    folded = []
    turns = [
        at
        for at, entry in enumerate(sample.entries)
        if isinstance(entry.event, Asked) and entry.event.purpose == "turn"
    ]
    for at in turns[::3]:
        entry = sample.entries[at]
        state = State()
        for one in sample.entries[: at + 1]:
            state = advance(state, one, sample.log)
        folded.append((entry, state))
    return folded


# --- Requests -------------------------------------------------------------------------------------


def test_requests_have_counts_and_modules_that_add_up(
    sample: SampleSession, found: Inspection
) -> None:
    replies = {e.event.asked: e for e in sample.entries if isinstance(e.event, Replied)}
    asked = [entry.seq for entry in sample.entries if isinstance(entry.event, Asked)]
    assert [request.seq for request in found.requests] == asked
    assert [request.n for request in found.requests] == list(range(1, len(asked) + 1))
    for request in found.requests:
        if request.seq not in replies:
            assert (request.status, request.message) == ("overload", "Overloaded, please try again")
            continue
        event = replies[request.seq].event
        assert isinstance(event, Replied)
        counted = (
            event.usage.input_tokens,
            event.usage.cache_read_tokens,
            event.usage.cache_write_tokens,
        )
        assert (request.input, request.cache_read, request.cache_write) == counted
        assert sum(request.tokens.all()) == sum(counted)
        assert request.duration_us == replies[request.seq].at - request.at_us
    spent = sum(reply.cost_usd for reply in events_of(replies.values(), Replied))
    assert found.requests[-1].total_usd == pytest.approx(spent)
    assert all(
        any(getattr(r.tokens, name) for r in found.requests)
        for name in MODULES
        if name != "reminders"
    )


def test_every_break_has_its_cause_and_price(sample: SampleSession, found: Inspection) -> None:
    kinds = (Cleared, Summarized, Restored, Rewound, PrefixSet)
    breaking = {e.seq: e.event for e in sample.entries[2:] if isinstance(e.event, kinds)}
    marks = {
        r.break_.seq: r.break_ for r in found.requests if r.break_ is not None and r.break_.seq
    }
    names = record(
        cleared=Cleared, summarised=Summarized, restored=Restored, rewound=Rewound, prefix=PrefixSet
    )
    assert {type(breaking[seq]) for seq in marks} == set(kinds)
    assert all(isinstance(breaking[seq], names[mark.cause]) for seq, mark in marks.items())
    price = sample.budget.price
    assert price is not None
    for request in found.requests:
        if request.break_ is not None:
            assert request.break_.price_usd == pytest.approx(
                request.missed * (price.write_usd - price.read_usd) / 1e6
            )
        assert 0 <= request.missed <= request.input + request.cache_write
    assert "expired" in [r.break_.cause for r in found.requests if r.break_ is not None]


def test_without_a_cache_nothing_counts_as_missed(sample: SampleSession) -> None:
    plain = SampleSession(window=40_000)
    for entry in sample.entries[len(plain.entries) :]:
        event = entry.event
        if isinstance(event, Replied):
            usage = msgspec.structs.replace(
                event.usage,
                input_tokens=event.usage.context_tokens,
                cache_read_tokens=0,
                cache_write_tokens=0,
            )
            event = msgspec.structs.replace(event, usage=usage)
        plain.entries.append(Entry(entry.seq, entry.at, event))
    made = read(plain).inspection()
    assert not any(request.missed for request in made.requests)
    assert all(
        r.break_.seq and not r.break_.price_usd for r in made.requests if r.break_ is not None
    )


# --- Items ----------------------------------------------------------------------------------------


def test_stages_of_items_tell_what_requests_showed(
    sample: SampleSession, found: Inspection
) -> None:
    numbers = {request.seq: request.n for request in found.requests}
    items = {item.handle: item for item in found.items}
    checked = 0
    for entry, state in states(sample):
        n, shown = numbers[entry.seq], {item.handle: item for item in state.items if item.handle}
        for handle, life in items.items():
            stages = [
                stage for stage in life.stages if stage.request <= n and stage.form != "recalled"
            ]
            if handle not in shown:
                assert not stages or stages[-1].form in ("folded", "summarised", "gone"), (
                    n,
                    handle,
                )
                continue
            item = shown[handle]
            assert (
                stages[-1].form == {"summary": "full"}.get(item.form, item.form)
                or stages[-1].form == "restored"
            )
            assert item.form in ("full", "summary") or stages[-1].text == text_of_item(item)
            checked += 1
        assert shown.keys() <= items.keys()
    assert checked > 400
    forms = {stage.form for item in found.items for stage in item.stages}
    assert forms >= {"full", "trimmed", "folded", "summarised", "recalled", "restored", "gone"}
    assert all(
        stage.why
        for item in found.items
        for stage in item.stages
        if stage.form not in ("full", "gone")
    )


def test_the_whole_text_of_an_item_stands_in_the_transcript(found: Inspection) -> None:
    rows = {row.handle: row for row in found.transcript if not row.agent and row.handle}
    assert {item.handle for item in found.items} <= rows.keys()
    assert all(rows[item.handle].seq == item.seq for item in found.items)
    explained = [item for item in found.items if item.lines]
    assert explained
    assert all(item.shown and 0 <= line.chance <= 1 for item in explained for line in item.lines)


# --- Time, subagents, files -----------------------------------------------------------------------


def test_lanes_show_requests_calls_and_tasks(sample: SampleSession, found: Inspection) -> None:
    main = next(lane for lane in found.lanes if lane.id == "main")
    ends = [e for e in sample.entries if isinstance(e.event, ToolEnded)]
    tools = [span for span in main.spans if span.kind == "tool"]
    assert [span.seq for span in sorted(tools, key=lambda span: span.seq)] == [
        entry.seq for entry in ends
    ]
    assert all(
        span.start_us <= span.end_us <= found.session.ended_us
        for lane in found.lanes
        for span in lane.spans
    )
    models = [span for span in main.spans if span.kind == "model"]
    assert len(models) == len(found.requests)
    assert all(a.end_us <= b.start_us for a, b in itertools.pairwise(models))
    assert {span.label for span in main.spans if span.kind == "wait"} >= {
        "waits for the user",
        "permission for Edit",
    }
    kinds = [lane.kind for lane in found.lanes]
    assert kinds.count("subagent") == len(sample.children) > 1
    assert all(lane.parent == "main" for lane in found.lanes if lane.kind == "task")


def test_subagents_have_their_budgets_and_rows(sample: SampleSession, found: Inspection) -> None:
    ends = {e.event.child: e.event for e in sample.entries if isinstance(e.event, SubagentEnded)}
    assert len(found.subagents) == len(ends)
    for child in found.subagents:
        end = ends[child.session]
        assert (child.state, child.spent.usd, child.spent.requests) == (
            "done",
            end.cost_usd,
            end.steps,
        )
        assert child.spent.tokens == end.usage.context_tokens + end.usage.output_tokens
        assert (child.limit.usd, child.limit.tokens, child.limit.requests) == (0.5, 200_000, 20)
        assert any(row.agent == child.id and row.kind == "result" for row in found.transcript)
        assert any(lane.id == child.id and lane.status == "done" for lane in found.lanes)


def test_files_have_their_readings_and_changes(sample: SampleSession, found: Inspection) -> None:
    logs = [sample.entries, *sample.children.values()]
    events = [entry.event for log in logs for entry in log]
    reads = sum(isinstance(event, FileSeen) for event in events)
    assert sum(file.reads for file in found.files) == reads
    assert sum(file.changes for file in found.files) == sum(
        isinstance(event, FileChanged) for event in events
    )
    assert all(len(file.touches) == file.reads + file.changes for file in found.files)


# --- Size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_max", [900_000, 700_000, 500_000])
def test_texts_are_shortened_until_the_page_fits(sample: SampleSession, bytes_max: int) -> None:
    whole = read(sample).inspection()
    made = fit(whole, bytes_max)
    data = msgspec.json.encode(made)
    cut = [(a, b) for a, b in zip(whole.transcript, made.transcript, strict=True) if b.left_out]
    assert cut or len(msgspec.json.encode(whole)) <= bytes_max
    assert len(data) <= bytes_max * 1.05
    stages = sum(stage.left_out for item in made.items for stage in item.stages)
    assert made.left_out.bytes == sum(row.left_out for row in made.transcript) + stages
    assert all(after.bytes == len(before.text.encode()) for before, after in cut if not before.diff)
    assert (
        made.left_out.above_bytes == 0
        or max(len(b.text) for _, b in cut) <= made.left_out.above_bytes + 10
    )


def test_of_a_long_session_the_oldest_rows_are_left_out(
    sample: SampleSession, found: Inspection
) -> None:
    inspector = SessionInspector(SampleLogs(sample), lambda _: sample.budget, rows_max=100)
    inspector.read()
    made = inspector.inspection()
    assert fit(made).transcript == found.transcript[-100:]
    assert made.left_out.rows == len(found.transcript) - 100
    assert [item.handle for item in made.items if item.shown] == [
        i.handle for i in found.items if i.shown
    ]
    assert len(made.items) < len(found.items)
    assert made.requests == found.requests


# --- Reading on -----------------------------------------------------------------------------------


def applied(before: Inspection, update: Update) -> Inspection:
    """Do with an update what the page does."""

    def merged(name: str, key: str) -> list[msgspec.Struct]:
        values = {getattr(value, key): value for value in getattr(before, name)}
        values |= {getattr(value, key): value for value in getattr(update, name)}
        return list(values.values())

    keys = {"requests": "n", "lanes": "id", "items": "handle", "subagents": "id", "files": "path"}
    lists = {name: merged(name, key) for name, key in keys.items()}
    transcript = [*before.transcript, *update.transcript]
    return msgspec.structs.replace(before, session=update.session, transcript=transcript, **lists)


def comparable(inspection: Inspection) -> object:
    """The parts that updates keep up to date, in an order of their own.

    What items cost and which of them the next compaction takes is not among them: close decisions
    depend on what the engine has in its caches.
    """
    items = [(item.handle, item.stages, item.shown) for item in inspection.items]
    rows = sorted(inspection.transcript, key=lambda row: (row.agent, row.seq, row.handle))
    files = sorted(inspection.files, key=lambda file: file.path)
    lanes = sorted(inspection.lanes, key=lambda lane: lane.id)
    return (
        inspection.session,
        inspection.requests,
        lanes,
        items,
        rows,
        inspection.subagents,
        files,
    )


@pytest.mark.parametrize("steps", [1, 7, 20])
def test_reading_on_gives_what_reading_anew_gives(sample: SampleSession, steps: int) -> None:
    logs = SampleLogs(sample, upto=40)
    inspector = SessionInspector(logs, lambda _: sample.budget)
    inspector.read()
    page = fit(inspector.inspection())
    while logs.upto < len(sample.entries):
        logs.upto = min(len(sample.entries), logs.upto + 600 // steps)
        inspector.read()
        update, _ = changes(page, inspector.inspection(), BODY_BYTES_MAX)
        page = applied(page, update)
    anew = fit(read(sample).inspection())
    assert comparable(inspector.inspection()) == comparable(read(sample).inspection())
    assert comparable(page) == comparable(anew)


def test_any_beginning_of_a_log_can_be_shown(sample: SampleSession) -> None:
    for upto in (*range(1, 60, 4), *range(60, ENTRIES, 97)):
        made = inspect_session(read(sample, upto=upto))
        assert msgspec.json.decode(msgspec.json.encode(made), type=Inspection) == made
        assert made.session.entries == upto
