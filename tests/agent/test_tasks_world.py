"""What befalls tasks: they ask and stall, the supervisor dies, longrein leaves, the clock jumps,
the disk fills.
"""

from typing import Any

import pytest

from longrein.agent import OpenSession, StopTask
from longrein.agent.background.output_excerpts import (
    compile_pattern,
    last_lines,
    matching,
    pieces,
    since,
)
from longrein.agent.background.task_control import BackgroundControl
from longrein.testing.clock import run_virtual
from longrein.testing.harness import results
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein.testing.workspace import Ran
from longrein_context.events import Reminded, StoreFull, TaskEnded, TaskStarted, ToolError
from tests.agent.memory_harness import (
    CRASH,
    MemoryHarness,
    background,
    one_turn,
    take_steps,
    talk,
    words,
)
from tests.tables import cases


def told(harness: MemoryHarness, kind: str) -> list[str]:
    return [event.text for event in harness.of(Reminded) if event.kind == kind and event.text]


# --- asking ---------------------------------------------------------------------------------------


def test_B13_a_silent_task_that_asks_is_told_once_and_answered() -> None:
    harness = MemoryHarness({"init": Ran("name: ", asks=True, delay_s=1)})
    model = ScriptedModel(
        says(background("init")),
        says("it runs"),
        says(call("TaskInput", task_id="b1", text="longrein")),
        says("answered"),
        says("over"),
    )
    talk(harness, model, 200)
    model.check_done()
    (notice,) = told(harness, "bg_stalled")
    assert notice == (
        "[longrein:n0nce bg_stalled: background tasks print nothing any more; they may wait for "
        "input]\n* b1: silent for 45 s after 6 bytes of output; it waits for input: answer with "
        "TaskInput\n| name: "
    )
    assert results(model.requests[3])[1].startswith(
        "TaskInput ok: Written to b1. Look with TaskOutput(since=6)"
    )
    assert [end.state for end in harness.of(TaskEnded)] == ["done"]


@cases(
    "output asks",
    ("Overwrite? (y/n)", True),
    ("Continue? [Y/n] ", True),
    ("Password:", True),
    ("mysql> ", True),
    ("Press any key to continue...\n", True),
    ("compiling 31 of 90\n", False),
    ("listening on http://127.0.0.1:8000/\n", False),
    ("warning: something\n", False),
    ("x" * 400 + ":", False),
    ("", False),
)
def test_B13_what_looks_like_a_question(output: str, asks: bool) -> None:
    harness = MemoryHarness({"run": Ran(output, hang=True)})
    model = ScriptedModel(says(background("run")), says("it runs"), *[says("it asks")] * asks)
    talk(harness, model, 400)
    model.check_done()
    assert len(told(harness, "bg_stalled")) == asks, "and once, however long the silence lasts"


def test_B13_a_silence_that_was_told_is_not_told_again_after_a_restart() -> None:
    harness = MemoryHarness({"run": Ran("sure? ", hang=True)})
    model = ScriptedModel(
        says(background("run")), says("it runs"), says("it asks"), says("hello again")
    )
    take_steps(harness, model, "go", 60, "", CRASH, "still there?", 200, "")
    assert len(told(harness, "bg_stalled")) == 1


def test_a_clock_that_is_set_forward_is_no_silence() -> None:
    harness = MemoryHarness({"run": Ran("sure? ", hang=True)})
    model = ScriptedModel(says(background("run")), says("it runs"), says("it asks"))

    def jump(_session: OpenSession) -> None:
        harness.clock.start_us += 3_600_000_000

    talk(harness, model, 80, {30: jump})
    assert told(harness, "bg_stalled") == []


@pytest.mark.parametrize("hours", [5, -5])
def test_a_task_has_run_as_long_as_it_has_run_whatever_the_clock_says(hours: int) -> None:
    harness = MemoryHarness({"run": Ran("", hang=True)})
    model = ScriptedModel(says(background("run")), says("it runs"))

    def jump(_session: OpenSession) -> None:
        harness.clock.start_us += hours * 3_600_000_000

    def look(session: OpenSession) -> None:
        (view,) = session.tasks()
        assert (round(view.elapsed_s), view.silent_s <= view.elapsed_s) == (60, True)

    take_steps(harness, model, "go", 30, jump, 30, look, lambda session: session.leave("stop"))
    (end,) = harness.of(TaskEnded)
    assert round(end.elapsed_ms / 1000) == 60


@cases(
    "arguments refused",
    (
        {"task_id": "b1", "text": "y"},
        "[no-input] b1 was started in the foreground, so its input is closed;",
    ),
    ({"task_id": "b2", "text": "y"}, "[not-running] b2 is done; nothing was written."),
    ({"task_id": "b1", "text": "y" * 100_001}, "[too-long] At most 100000 characters"),
    ({"task_id": "b1", "text": "longrein:n0nce x"}, "holds a marker"),
    ({"task_id": "b9", "text": "y"}, "[unknown-task] There is no task 'b9'; there are b1, b2."),
)
def test_input_that_cannot_be_given(arguments: dict[str, str], refused: str) -> None:
    harness = MemoryHarness({"slow": Ran("", hang=True), "quick": Ran("x")})
    model = ScriptedModel(
        says(call("Bash", command="slow", timeout=1_000)),
        says(background("quick")),
        says(call("Bash", command="quick")),
        says(call("TaskInput", **arguments)),
        says("I see"),
    )
    one_turn(harness, model)
    assert refused in results(model.requests[4])[-1] or "marker" in refused
    assert results(model.requests[4])[-1].startswith("TaskInput failed:")


# --- dying and leaving ----------------------------------------------------------------------------


def test_when_the_supervisor_dies_its_tasks_are_lost_and_the_next_command_runs() -> None:
    harness = MemoryHarness(
        {"server": Ran("up\n", hang=True), "make": Ran("built", delay_s=5), "ls": Ran("a")}
    )
    model = ScriptedModel(
        says(background("server"), background("make")),
        says("they run"),
        says(call("Bash", command="ls")),
        says("I see"),
    )
    talk(harness, model, 60, {2: lambda _: harness.supervision.die()})
    model.check_done()
    assert [(e.task, e.state, e.code, e.cause) for e in harness.of(TaskEnded)] == [
        ("b1", "lost", None, "the supervisor of commands is gone"),
        ("b2", "lost", None, "the supervisor of commands is gone"),
    ]
    (notice,) = told(harness, "bg_lost")
    assert "* b1 (server): lost (the supervisor of commands is gone)" in notice
    assert results(model.requests[3])[-1] == "Bash ok: a"


def test_what_never_came_to_be_kept_is_lost_with_the_reason() -> None:
    harness = MemoryHarness({"server": Ran("", hang=True)})
    model = ScriptedModel(says(background("server")), says("it runs"), says("it is gone"))
    somebody_removes_the_folder = lambda _: harness.supervision.spool.clear()  # noqa: E731
    take_steps(harness, model, "go", somebody_removes_the_folder, CRASH, "and now?")
    (end,) = harness.of(TaskEnded)
    assert (end.state, end.code) == ("lost", None)
    assert end.cause == "longrein ended before it was kept, or the folder of its output is gone"


@cases(
    "policy ends goes_on",
    ("stop", {"b1": "killed", "b2": "killed", "b3": "killed"}, []),
    ("keep", {"b2": "killed"}, ["b1", "b3"]),
)
def test_B14_leaving_as_user_wants(policy: str, ends: dict[str, str], goes_on: list[str]) -> None:
    """b1 was started in the background, b2 was promoted, b3 waits for a place."""
    harness = MemoryHarness(
        {"server": Ran("", hang=True), "slow": Ran("", hang=True), "late": Ran("")}, tasks_max=2
    )
    model = ScriptedModel(
        says(background("server")),
        says(call("Bash", command="slow", timeout=1_000)),
        says(background("late")),
        says("go"),
    )

    async def leave(session: OpenSession) -> None:
        assert [view.id for view in await session.leave(policy)] == goes_on

    take_steps(harness, model, "go", leave)
    assert {end.task: end.state for end in harness.of(TaskEnded)} == ends


def test_the_user_stops_a_task_that_waits_and_it_never_runs() -> None:
    harness = MemoryHarness({"one": Ran("", delay_s=5), "two": Ran("")}, tasks_max=1)
    model = ScriptedModel(
        says(background("one"), background("two")), says("fine"), says("stopped"), says("over")
    )
    talk(harness, model, 20, {2: StopTask("b2")})
    assert [(e.task, e.state, e.cause) for e in harness.of(TaskEnded)] == [
        ("b2", "killed", "stopped by the user before it began"),
        ("b1", "done", ""),
    ]
    assert harness.supervision.started == ["one"]


def test_queued_tasks_run_after_a_restart_since_they_never_began() -> None:
    harness = MemoryHarness({"one": Ran("", delay_s=50), "two": Ran("two\n")}, tasks_max=1)
    model = ScriptedModel(
        says(background("one"), background("two")), says("fine"), says("hello"), says("over")
    )

    take_steps(harness, model, "go", CRASH, lambda session: session.stay("drain", 100), "back")
    assert harness.supervision.started == ["one", "two"]
    assert [(e.task, e.state) for e in harness.of(TaskEnded)] == [("b1", "done"), ("b2", "done")]
    assert [s.state for s in harness.of(TaskStarted)] == ["running", "queued", "running"]


def test_output_that_cannot_be_put_away_stays_where_it_is_and_the_end_says_where() -> None:
    harness = MemoryHarness({"make": Ran("built\n", delay_s=2)})
    harness.disk.spool = {}  # what the supervisor wrote cannot be read from here
    model = ScriptedModel(says(background("make")), says("it runs"), says("I see"))
    talk(harness, model, 20)
    (end,) = harness.of(TaskEnded)
    assert (end.state, end.code, end.output, end.tail) == ("done", 0, "", "built")
    assert (
        end.cause
        == "output could not be put away (No such file or directory) and lies in /spool/b1.out"
    )
    assert list(harness.supervision.spool) == ["b1"], "the only copy is not removed"


def test_a_queued_command_whose_folder_is_gone_has_failed() -> None:
    harness = MemoryHarness({"one": Ran("", delay_s=2), "two": Ran("", code=-1)}, tasks_max=1)
    model = ScriptedModel(says(background("one"), background("two")), says("fine"), says("over"))
    talk(harness, model, 20)
    assert [(e.task, e.state, e.cause) for e in harness.of(TaskEnded)] == [
        ("b1", "done", ""),
        ("b2", "failed", "could not be started: no such folder"),
    ]


# --- what is shown of an output -------------------------------------------------------------------


def reader(data: bytes, gap: tuple[int, int] = (0, 0)) -> Any:
    """Reads `data`, of which the bytes from gap[0] to gap[1] were not kept."""

    def read(start: int, size: int) -> tuple[int, bytes]:
        if start < gap[0]:
            return start, data[start : min(start + size, gap[0])]
        start = max(start, gap[1])
        return start, data[start : start + size]

    return read


TEN = b"".join(b"line %d\n" % n for n in range(10))


@cases(
    "data lines most text first",
    (TEN, 2, 1_000, "line 8\nline 9\n", 56),
    (TEN, 50, 1_000, TEN.decode(), 0),
    (TEN, 50, 20, "line 8\nline 9\n", 56),
    (b"no end", 1, 100, "no end", 0),
    (b"a\nno end", 1, 100, "no end", 2),
    (b"x" * 50, 3, 20, "x" * 20, 30),
    (b"", 3, 20, "", 0),
    (b"\n\n\n", 2, 20, "\n\n", 1),
)
def test_the_last_lines(data: bytes, lines: int, most: int, text: str, first: int) -> None:
    shown = last_lines(reader(data), len(data), lines, most)
    assert (shown.text, shown.first_byte, shown.next_byte) == (text, first, len(data))


def test_what_is_new() -> None:
    assert since(reader(TEN), 63, 100).text == "line 9\n"
    assert since(reader(TEN), 70, 100).note == "nothing new"
    shown = since(reader(TEN), 0, 20)
    assert (shown.text, shown.next_byte) == ("line 0\nline 1\n", 14)
    assert since(reader(TEN, (14, 56)), 20, 100).note == "bytes 20 to 56 were not kept"


def test_lines_that_match() -> None:
    async def find(
        data: bytes, pattern: str, most: int = 1_000, gap: tuple[int, int] = (0, 0)
    ) -> tuple[str, str]:
        shown = await matching(pieces(reader(data, gap), 0), pattern, most)
        return shown.text, shown.note

    assert run_virtual(find(TEN, r"[37]$")) == ("4: line 3\n8: line 7", "")
    assert run_virtual(find(TEN, "nowhere")) == ("", "no line matches")
    assert run_virtual(find(TEN, "line", 25)) == (
        "9: line 8\n10: line 9",
        "the newest 2 of 10 matching lines",
    )
    assert run_virtual(find(b"a\nwithout end", "end")) == ("2: without end", "")
    assert run_virtual(find(TEN, "line 9", gap=(14, 56))) == (
        "4: line 9",
        "line numbers leave out what was not kept",
    )
    big = b"x" * 300_000 + b"\n" + TEN
    assert run_virtual(find(big, "line 0")) == ("2: line 0", "")


@cases(
    "pattern refused",
    ("(a+)+$", "A repeated group"),
    ("(a|a)*b", "A repeated group"),
    ("a*a*a*a*a*b", "more than 4 repetitions"),
    ("a**", "A repeated group"),
    ("[", "is no regular expression"),
    ("x" * 501, "501 characters"),
    (r"\(x\)+ [)*]* \d+", ""),
    ("error.*timeout", ""),
)
def test_patterns_that_might_never_end_are_refused(pattern: str, refused: str) -> None:
    if not refused:
        assert compile_pattern(pattern)
        return
    with pytest.raises(ToolError, match="bad-pattern") as caught:
        compile_pattern(pattern)
    assert refused in str(caught.value)


def test_a_command_whose_start_cannot_be_written_down_does_not_go_on() -> None:
    harness = MemoryHarness({"server": Ran("", hang=True)})

    def fill(_request: Any) -> Any:
        harness.disk.full = True
        return says(background("server"))

    model = ScriptedModel(fill)

    async def work() -> None:
        session = harness.open(model)
        session.tell(words("go"))
        with pytest.raises(StoreFull):
            await session.run(once=True)
        assert not harness.supervision.running
        assert session.part(BackgroundControl).pool.slots.inside == 0

    harness.run(work)


def test_a_queued_task_is_started_once_when_the_supervisor_dies_before_its_turn() -> None:
    harness = MemoryHarness(
        {"one": Ran("", hang=True), "two": Ran("", hang=True), "three": Ran("", delay_s=5)},
        tasks_max=2,
    )
    three = [background(command) for command in ("one", "two", "three")]
    model = ScriptedModel(says(*three), says("fine"), says("lost"), says("over"))
    talk(harness, model, 60, {2: lambda _: harness.supervision.die()})
    assert harness.supervision.started == ["one", "two", "three"]
    assert [(e.task, e.state) for e in harness.of(TaskEnded)] == [
        ("b1", "lost"),
        ("b2", "lost"),
        ("b3", "done"),
    ]
