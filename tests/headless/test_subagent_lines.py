"""Subagents and tasks in the output of a headless run: attribution, costs, denials."""

from typing import Any

import pytest

from longrein.agent import Answer, FromSubagent, ReplyDelta, UserNotice
from longrein.frontends.headless import OutputOptions
from longrein.models import CallDelta, TextDelta
from longrein_context.events import (
    Asked,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    ToolEnded,
    Usage,
)

from .harness import DONE, SECOND_US, Step, answered, asked, call, ended, play, usage

pytestmark = pytest.mark.anyio

CHILD = "c0000000-0000-4000-8000-000000000001"
BELOW = "c0000000-0000-4000-8000-000000000002"
AGENT = call(1, 0, "Agent", description="look")


def of(seq: int, event: Any, child: str = CHILD, label: str = "a3") -> FromSubagent:
    heard = (
        event if isinstance(event, ReplyDelta | UserNotice) else Entry(seq, seq * SECOND_US, event)
    )
    return FromSubagent(child, label, "explore", heard)


def looked(*more: Step) -> list[Step]:
    """One subagent makes one call; what it reports goes into the answer."""
    return [
        asked(),
        answered(1, AGENT),
        SubagentStarted(CHILD, "explore", AGENT.id, description="look around", model="mock/tiny"),
        of(1, Asked("turn", 0, 1)),
        of(2, answered(1, "I look.", call(1, 0, "Read", file_path="a.py"))),
        of(3, ToolEnded("c1.0", "Read", "ok", ())),
        *more,
        SubagentEnded(CHILD, "done", "It is here.", Usage(10, 0, 0, 5), 0.25, 1, elapsed_ms=4_000),
        ended(AGENT.id, "Agent", "It is here."),
        asked(),
        answered(6, "Here."),
        DONE,
    ]


async def test_a_subagents_lines_name_the_call_that_started_it() -> None:
    ran = await play([looked()])
    assert ran.kinds == (
        "init assistant task_started assistant task_progress user task_notification user "
        "assistant result"
    )
    lines = ran.lines
    parents = [
        line.get("parent_tool_use_id") for line in lines if line["type"] in ("assistant", "user")
    ]
    assert parents == [None, "c1.0", "c1.0", None, None]
    [used] = [block for block in lines[3]["message"]["content"] if block["type"] == "tool_use"]
    assert used["id"] == "a3.c1.0"
    assert lines[5]["message"]["content"][0]["tool_use_id"] == "a3.c1.0"
    assert len({line["uuid"] for line in lines}) == len(lines)
    assert len({line["session_id"] for line in lines}) == 1


async def test_a_subagent_is_a_task_with_progress_and_an_end() -> None:
    started, progress, note = [line for line in (await play([looked()])).lines if "task_id" in line]
    shown = ("task_id", "tool_use_id", "description", "task_type", "is_backgrounded", "spawn_depth")
    assert [started[name] for name in shown] == [
        "a3",
        "c1.0",
        "look around",
        "local_agent",
        False,
        1,
    ]
    assert progress["usage"] == {"total_tokens": 65, "tool_uses": 1, "duration_ms": 1_000}
    assert progress["last_tool_name"] == "Read"
    assert (note["status"], note["summary"], note["tool_use_id"]) == (
        "completed",
        "It is here.",
        "c1.0",
    )


async def test_the_result_counts_what_subagents_used() -> None:
    ran = await play([looked()], "json")
    [result] = ran.lines
    assert result["usage"] == usage(30, 15, 90, 60)
    assert result["total_cost_usd"] == 0.75
    costs = {model: used["costUSD"] for model, used in result["modelUsage"].items()}
    assert costs == {"mock/small": 0.5, "mock/tiny": 0.25}
    assert result["num_turns"] == 2


async def test_what_a_subagent_asks_is_denied_and_told_with_its_name() -> None:
    asks = [
        of(4, PermissionAsked("c1.0", "Bash", "make", "no rule", "Bash(make)")),
        of(5, PermissionAnswered("c1.0", "deny", "headless")),
        of(6, ToolEnded("c1.0", "Bash", "denied", ())),
    ]
    step = looked(*asks)
    del step[5]
    ran = await play([step])
    assert [
        (word.call, word.verdict, word.session)
        for word in ran.session.said
        if isinstance(word, Answer)
    ] == [("c1.0", "deny", CHILD)]
    [denied] = [line for line in ran.lines if line.get("subtype") == "permission_denied"]
    assert denied["tool_use_id"] == "a3.c1.0"
    assert ran.lines[-1]["permission_denials"] == [
        {
            "tool_name": "Read",
            "tool_use_id": "a3.c1.0",
            "tool_input": {"file_path": "a.py"},
            "agent": "a3",
        }
    ]


async def test_a_subagent_of_a_subagent_belongs_to_the_call_that_started_it() -> None:
    deeper = [
        of(7, SubagentStarted(BELOW, "plan", "c1.0", description="deeper")),
        of(1, Asked("turn", 0, 1), BELOW, "a3.a7"),
        of(2, answered(1, "deep"), BELOW, "a3.a7"),
    ]
    lines = (await play([looked(*deeper)])).lines
    parents = [line["parent_tool_use_id"] for line in lines if line["type"] == "assistant"]
    assert parents == [None, "c1.0", "a3.c1.0", None]
    assert [line["spawn_depth"] for line in lines if line.get("subtype") == "task_started"] == [
        1,
        2,
    ]


async def test_one_that_was_started_before_the_run_is_known_by_its_label() -> None:
    step = looked()
    del step[2]
    lines = (await play([step])).lines
    assert [line["parent_tool_use_id"] for line in lines if line["type"] == "assistant"] == [
        None,
        None,
        None,
    ]


async def test_replies_grow_beside_each_other() -> None:
    early = [
        of(3, Asked("turn", 0, 1)),
        of(0, ReplyDelta(3, [TextDelta("I lo")])),
        ReplyDelta(1, [TextDelta("main")]),
        of(0, ReplyDelta(3, [TextDelta("ok."), CallDelta(0, "Read", '{"a":1}')])),
        of(4, answered(3, "I look.", call(3, 0, "Read", a=1))),
    ]
    scenes: list[Step] = [
        SubagentStarted(CHILD, "explore", AGENT.id),
        asked(),
        *early,
        answered(2, "main"),
        DONE,
    ]
    lines = (await play([scenes], OutputOptions("stream-json", partial=True))).lines
    events = [line for line in lines if line["type"] == "stream_event"]
    told = [line["event"]["type"] for line in events if line["parent_tool_use_id"] == "c1.0"]
    assert told[:3] == ["message_start", "content_block_start", "content_block_delta"]
    assert told[-1] == "message_stop"
    starts = [
        line["event"]["content_block"]
        for line in events
        if line["event"]["type"] == "content_block_start"
    ]
    assert [block["id"] for block in starts if block["type"] == "tool_use"] == ["a1.c3.0"]


async def test_tasks_are_lines_of_their_own() -> None:
    turn: list[Step] = [
        asked(),
        TaskStarted("b1", "npm run dev", "c1.0", state="queued"),
        TaskStarted("b1", "npm run dev", "c1.0"),
        of(8, TaskStarted("a3.b1", "make", "c7.0")),
        TaskEnded("b1", "timed_out", cause="limit of 10 s"),
        answered(1, "So it is."),
        DONE,
    ]
    lines = [line for line in (await play([turn])).lines if "task_id" in line]
    assert [(line["subtype"], line["task_id"], line.get("tool_use_id")) for line in lines] == [
        ("task_started", "b1", "c1.0"),
        ("task_started", "a3.b1", "a3.c7.0"),
        ("task_notification", "b1", None),
    ]
    assert (lines[2]["status"], lines[2]["summary"]) == ("failed", "timed_out, limit of 10 s")


async def test_progress_on_stderr_names_the_subagent() -> None:
    ran = await play([looked(of(0, UserNotice("odd")))], OutputOptions("text", verbose=True))
    assert ran.out == b"Here.\n"
    for line in (
        "subagent a3 explore started: look around",
        "a3 explore: calls Read a.py",
        "a3 explore: Read ok after 0.0 s",
        "a3 explore: odd",
        "subagent done after 4.0 s, 1 step",
    ):
        assert line in ran.err


async def test_what_a_subagent_compacts_is_nobodys_business() -> None:
    quiet = [
        of(4, Asked("summary", 3, 1, reason="watermark")),
        of(5, Replied(4, (), "end", Usage(1, 1, 1, 1))),
    ]
    assert not [
        line for line in (await play([looked(*quiet)])).lines if line.get("subtype") == "status"
    ]
