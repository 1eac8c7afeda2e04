"""Every event and every live update becomes steps, and the steps of one thing belong together."""

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from longrein.agent import FromSubagent, Output, ReplyDelta, RetryPause, TaskOver, UserNotice
from longrein.models import TextDelta
from longrein.steps import (
    CallStep,
    Projection,
    QuestionStep,
    RequestStep,
    Step,
    StreamStep,
    SubagentStep,
    TaskStep,
    TextStep,
    ThinkingStep,
    steps_of,
)
from longrein_context import fold
from longrein_context.events import (
    AnyEvent,
    Asked,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    ToolStarted,
    decode_entry,
)
from tests.context.random_session import RandomSession

GOLDEN = Path(__file__).parent.parent / "store" / "golden_v1.jsonl"
STEPS = {
    "Opened": {"SettingStep"},
    "PrefixSet": {"BreakStep"},
    "UserSpoke": {"PromptStep"},
    "Reminded": {"NoticeStep"},
    "Asked": {"RequestStep"},
    "Replied": {"TextStep", "ThinkingStep", "CallStep", "RequestStep"},
    "AskFailed": {"RequestStep"},
    "PermissionAsked": {"QuestionStep"},
    "PermissionAnswered": {"QuestionStep"},
    "HookAnswered": {"NoticeStep"},
    "ToolStarted": {"CallStep"},
    "ToolEnded": {"CallStep"},
    "FileSeen": {"FileStep"},
    "FileChanged": {"FileStep"},
    "TodoSet": {"SettingStep"},
    "ModeSet": {"SettingStep"},
    "CwdSet": {"SettingStep"},
    "TitleSet": {"SettingStep"},
    "PinsSet": {"SettingStep"},
    "SchedulesSet": {"SettingStep"},
    "Cleared": {"CompactionStep"},
    "Summarized": {"CompactionStep"},
    "Restored": {"CompactionStep"},
    "Recalled": {"NoticeStep"},
    "TaskStarted": {"TaskStep"},
    "TaskEnded": {"TaskStep"},
    "GoalChanged": {"SettingStep"},
    "SubagentStarted": {"SubagentStep"},
    "SubagentEnded": {"SubagentStep"},
    "CheckpointTaken": {"NoticeStep"},
    "Rewound": {"BreakStep"},
    "Interrupted": {"NoticeStep"},
    "TurnEnded": {"TurnEndStep"},
}
"""Event -> the steps that it makes."""


def golden() -> list[Entry]:
    return [decode_entry(line) for line in GOLDEN.read_bytes().splitlines()]


def log(*events: AnyEvent) -> list[Entry]:
    return [Entry(seq, seq * 1_000, event) for seq, event in enumerate(events, 1)]


def test_every_event_makes_the_steps_of_the_table() -> None:
    assert set(STEPS) == {kind.__name__ for kind in get_args(AnyEvent)}, "a row for each event"
    found: dict[str, set[str]] = {}
    for entry in golden():
        steps = Projection().read(entry)
        assert steps, entry
        found.setdefault(type(entry.event).__name__, set()).update(
            type(step).__name__ for step in steps
        )
    assert found == STEPS


def test_every_step_is_made_by_an_event_or_a_live_update() -> None:
    made = {name for names in STEPS.values() for name in names} | {"StreamStep"}
    assert made == {kind.__name__ for kind in get_args(Step)}


def test_live_updates_make_steps_without_a_seq() -> None:
    call = ToolCall("c1.0", "Bash", {"command": "make"})
    projection = Projection()
    entries = log(Asked("turn", 0, 0), Replied(1, (call,), "calls"), TaskStarted("b1", "make"))
    for entry in entries:
        projection.read(entry)
    updates = (
        ReplyDelta(1, [TextDelta("hi")], "summary"),
        Output("c1.0", b"x"),
        Output("user.1", b"y"),
        RetryPause(1, "rate", 429, 1, 3, 2.0, "busy"),
        UserNotice("news"),
        TaskOver(TaskEnded("b1", "done")),
    )
    found = [step for update in updates for step in projection.read(update)]
    assert all(step.seq == 0 and step.handle == "" for step in found)
    stream, output, other, pause, notice, over = found
    assert isinstance(stream, StreamStep)
    assert stream.purpose == "summary"
    assert isinstance(output, CallStep)
    assert (output.call, output.made_seq, output.output) == (call, 2, b"x")
    assert isinstance(other, CallStep)
    assert (other.id, other.made_seq) == ("user.1", 0)
    assert [getattr(step, "text", "") for step in (pause, notice)] == ["busy", "news"]
    assert isinstance(over, TaskStep)
    assert over.started == entries[2].event
    assert projection.read(Entry(4, 4, TaskEnded("b1", "done")))[0].seq == 4


def test_parts_of_a_reply_have_handles_and_its_money_stands_at_the_request() -> None:
    call = ToolCall("c1.0", "CallTool", {"name": "Read", "args": {"file_path": "a"}})
    reply = Replied(1, (Thinking("hm"), Text("look"), call), "calls", cost_usd=0.5)
    asked, thinking, text, made, end = steps_of(log(Asked("summary", 0, 0), reply))
    assert isinstance(thinking, ThinkingStep)
    assert isinstance(text, TextStep)
    assert isinstance(made, CallStep)
    assert [step.handle for step in (thinking, text, made)] == ["r2.1", "r2.2", "r2.3"]
    assert made.call == ToolCall("c1.0", "Read", {"file_path": "a"})
    assert isinstance(end, RequestStep)
    assert (end.asked_at, end.reply, end.usd) == (1_000, reply, 0.5)
    assert {step.purpose for step in (asked, thinking, text, made, end)} == {"summary"}


def test_a_call_question_task_and_subagent_are_told_with_their_beginnings() -> None:
    call = ToolCall("c1.0", "Bash", {"command": "make"})
    question = PermissionAsked("c1.0", "Bash", "make", "a rule")
    started = ToolStarted("c1.0", "Bash")
    task, child = TaskStarted("b1", "make"), SubagentStarted("s1", "explore")
    steps = list(
        steps_of(
            log(
                *(Asked("turn", 0, 0), Replied(1, (call,), "calls"), question),
                *(PermissionAnswered("c1.0", "allow", "user"), started),
                ToolEnded("c1.0", "Bash", "ok", ()),
                *(task, TaskEnded("b1", "done"), child, SubagentEnded("s1", "done", cost_usd=0.2)),
            )
        )
    )
    answer, end = steps[4], steps[6]
    assert isinstance(answer, QuestionStep)
    assert answer.asked == question
    assert isinstance(end, CallStep)
    assert (end.call, end.made_seq, end.started, end.handle) == (call, 2, started, "r6")
    assert [step.started for step in steps if isinstance(step, TaskStep)] == [task, task]
    subagents = [step for step in steps if isinstance(step, SubagentStep)]
    assert [(one.label, one.started, one.usd) for one in subagents] == [
        ("a9", child, 0.0),
        ("a9", child, 0.2),
    ]


def test_steps_of_a_subagent_name_it_and_keep_its_calls_apart() -> None:
    projection = Projection()
    mine = ToolCall("c1.0", "Read", {})
    projection.read(Entry(2, 2, Replied(1, (mine,), "calls")))

    def heard(event: AnyEvent) -> list[Step]:
        return projection.read(FromSubagent("s1", "a3", "explore", Entry(9, 9, event)))

    (end,) = heard(ToolEnded("c1.0", "Bash", "ok", ()))
    assert isinstance(end, CallStep)
    assert (end.agent.label, end.agent.kind, end.made_seq) == ("a3", "explore", 0)
    (below,) = heard(SubagentStarted("s2", "explore"))
    assert isinstance(below, SubagentStep)
    assert below.label == "a3.a9"
    (own,) = projection.read(Entry(3, 3, ToolEnded("c1.0", "Read", "ok", ())))
    assert isinstance(own, CallStep)
    assert own.made == mine


def test_a_reader_that_begins_late_takes_open_work_from_the_state() -> None:
    entries = RandomSession(1).run(60).entries
    for cut, entry in enumerate(entries, 1):
        if not isinstance(entry.event, Replied) or entry.event.stop != "calls":
            continue
        calls = [part for part in entry.event.parts if isinstance(part, ToolCall)]
        if calls:
            late = Projection()
            late.prime(fold(entries[:cut]))
            (end,) = late.read(Entry(cut + 1, 1, ToolEnded(calls[0].id, "Read", "ok", ())))
            assert isinstance(end, CallStep)
            assert end.made == calls[0]


@pytest.mark.parametrize("seed", range(8))
def test_calls_end_once_and_the_steps_of_a_prefix_are_a_prefix_of_the_steps(seed: int) -> None:
    walk = RandomSession(seed).run(60)
    steps = list(steps_of(walk.entries))
    phases = Counter((step.phase, step.id) for step in steps if isinstance(step, CallStep))
    assert set(phases.values()) == {1}
    ended = {call for phase, call in phases if phase == "ended"}
    assert ended <= {call for phase, call in phases if phase == "made"}
    starts = {step.request for step in steps if isinstance(step, RequestStep) and step.asked}
    ends = [
        step.request
        for step in steps
        if isinstance(step, RequestStep) and (step.reply or step.failure)
    ]
    assert len(ends) == len(set(ends))
    assert set(ends) <= starts
    for cut in range(0, len(walk.entries), 7):
        part = list(steps_of(walk.entries[:cut]))
        assert part == steps[: len(part)]
    assert {step.seq for step in steps} == {entry.seq for entry in walk.entries}
