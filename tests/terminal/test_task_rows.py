"""Lines of background tasks, subagents and waiting messages."""

from typing import Any

import pytest

from longrein.agent import (
    FromSubagent,
    PendingMessage,
    ReplyDelta,
    RetryPause,
    SessionUpdate,
    SubagentView,
    TaskOver,
    UserNotice,
)
from longrein.frontends.terminal import command_actions, live_area, task_rows
from longrein.frontends.terminal.event_lines import Line, cells, crop
from longrein.frontends.terminal.task_rows import BackgroundActivity, RunningTask
from longrein.frontends.terminal.view_model import ViewModel
from longrein.models import TextDelta
from longrein.steps import Projection, human_text
from longrein.tools import TaskView
from longrein_context.events import (
    AnyEvent,
    Entry,
    Goal,
    GoalChanged,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    Text,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSpoke,
)
from tests.terminal.scripted_session import PREFIX, apply, texts


class Activity(BackgroundActivity):
    """An activity that reads updates."""

    def __init__(self) -> None:
        super().__init__()
        self._projection = Projection()

    def hear(self, update: SessionUpdate) -> list[Line]:
        return [row for step in self._projection.read(update) for row in self.apply(step)]


EVIL = "\x1b[31m \u202e"
SHOWN = r"\x1b[31m \u202e"


# --- Acts -----------------------------------------------------------------------------------------

LOOK = ToolCall("c1.0", "Read", {"file_path": f"src/{EVIL}.py"})
RUN = ToolCall("c1.1", "Bash", {"command": "make\ntest"})


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (Replied(1, (Text("I look."), LOOK), "calls"), f"Read src/{SHOWN}.py"),
        (Replied(1, (LOOK, RUN), "calls"), "Bash make … (and 1 more)"),
        (Replied(1, (Text("\nIt is here.\nAnd there."),), "end"), "It is here. …"),
        (Replied(1, (), "end"), ""),
        (ToolEnded("c1.0", "Read", "failed", ()), "Read failed"),
        (ToolEnded("c1.0", "Read", "ok", ()), ""),
        (PermissionAsked("c1.1", "Bash", "make", "why"), "asks: Bash"),
    ],
)
def test_an_act_in_one_line(event: Any, told: str) -> None:
    steps = Projection().read(Entry(2, 0, event))
    assert "".join(map(human_text.activity_text, steps)) == told


# --- When they begin and end ----------------------------------------------------------------------

NPM = TaskStarted("b1", f"npm run {EVIL}\nmore")
QUEUED = TaskStarted("b1", "x", state="queued")
CHILD = SubagentStarted("one", "explore", description="find it")
USED = Usage(12_000, 0, 0, 345)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([NPM], [f"task b1 started  npm run {SHOWN} …"]),
        (
            [QUEUED, TaskStarted("b1", "x")],
            ["task b1 waits for its turn  x", "task b1 began: its turn has come  x"],
        ),
        (
            [TaskStarted("b2", "x", promoted="timeout")],
            ["task b2 passed its time and goes on in the background  x"],
        ),
        (
            [NPM, TaskEnded("b1", "done", 0, elapsed_ms=12_000, size_bytes=3_400, tail="ok\n")],
            [
                f"task b1 started  npm run {SHOWN} …",
                f"task b1 done  12 s, 3.4 kB  npm run {SHOWN} …",
            ],
        ),
        (
            [TaskEnded("b1", "failed", 1, tail=f"1\n2 {EVIL}\n")],
            ["task b1 failed  exit code 1", f"  2 {SHOWN}"],
        ),
        ([TaskEnded("b1", "killed", cause="SIGKILL")], ["task b1 killed  SIGKILL"]),
        ([TaskEnded("b1", "lost", cause="it is gone")], ["task b1 lost  it is gone"]),
        (
            [SubagentStarted("one", "plan", background=True, note="empty, not a fork")],
            ["a1 plan started    in the background", "  empty, not a fork"],
        ),
        ([SubagentStarted("one", "plan", again=7)], ["a7 plan is asked again"]),
        (
            [
                CHILD,
                SubagentEnded("one", "done", "r", USED, 0.02, 3, files=("a",), elapsed_ms=4_200),
            ],
            [
                "a1 explore started  find it",
                "a1 explore done  4.2 s, 3 steps, 12.3k tokens, $0.02, 1 file changed  find it",
            ],
        ),
        (
            [SubagentEnded("one", "failed", message=EVIL, worktree="branch wt/a7 is kept")],
            ["subagent failed", f"  {SHOWN}", "  branch wt/a7 is kept"],
        ),
        (
            [GoalChanged(Goal(3, f"tests {EVIL}", "completed", (1,)))],
            [f"goal [x] #3 tests {SHOWN}  (after #1)"],
        ),
    ],
)
def test_a_beginning_or_an_end_in_words(events: list[AnyEvent], expected: list[str]) -> None:
    view = ViewModel()
    view.draws_live_rows = False
    assert apply(view, *events, TurnEnded("done")) == expected


def test_a_subagent_with_a_live_row_is_told_at_its_end_and_several_are_one_line() -> None:
    calls = [ToolCall(f"c{n}", "Agent", {"description": f"part {n}"}) for n in range(3)]
    starts = [
        SubagentStarted(f"s{n}", "explore", f"c{n}", description=f"part {n}") for n in range(3)
    ]
    ended = [SubagentEnded(f"s{n}", "done", "r", USED, 0.02, 3) for n in range(3)]
    results = [ToolEnded(f"c{n}", "Agent", "ok", (Text("r"),), 900) for n in range(3)]
    view = ViewModel()
    assert apply(view, Replied(1, tuple(calls), "calls"), *starts) == []
    assert apply(view, ended[0], results[0], ended[2], results[2]) == []
    assert [view.groups.has(f"s{n}") for n in range(3)] == [True, False, True]
    [row] = apply(view, ended[1], results[1])
    assert row.startswith("3 subagents done  9 steps, 37.0k tokens, $0.06")
    assert [row.count(f"part {n}") for n in range(3)] == [1, 1, 1]


def test_reads_and_searches_are_one_line_until_another_call_starts() -> None:
    look, run = ToolCall("c1", "Read", {"file_path": "a.py"}), ToolCall("c2", "Bash", {})
    find = ToolCall("c3", "Grep", {"pattern": "x", "path": "src"})
    view = ViewModel()
    read = (ToolStarted("c1", "Read"), ToolEnded("c1", "Read", "ok", (Text("1\ta\n2\tb"),)))
    found = (ToolStarted("c3", "Grep"), ToolEnded("c3", "Grep", "ok", (Text("a.py"),)))
    assert apply(view, PREFIX, Replied(2, (look, find, run), "calls"), *read, *found) == []
    now = live_area.DrawContext(0.0, 0, 80, 24)
    told = "● 1 read, 1 search ok r4-r6  a.py (2 lines), x in src (1 file)"
    assert texts(live_area.live_rows(view, (), now))[1] == told
    assert apply(view, ToolStarted("c2", "Bash")) == [told]


@pytest.mark.parametrize(
    ("command", "is_read"),
    [
        *((read, True) for read in ("cat a.py", "ls", "ls -la src", "wc -l a")),
        *((read, True) for read in ("head -5 a | head -1", "sed -n 1,5p a", "cd src && ls")),
        *((other, False) for other in ("echo hi", "make it", "rm a", "sed -i s/a/b/ a", "cd src")),
        *((other, False) for other in ("cat a > b", "cat a; rm b", "cat $(make)", "python3 a.py")),
    ],
)
def test_a_read_by_the_shell_joins_the_group_of_reads(command: str, is_read: bool) -> None:
    look = ToolCall("c1", "Read", {"file_path": "a.py"})
    shell = ToolCall("c2", "Bash", {"command": command})
    view = ViewModel()
    read = (ToolStarted("c1", "Read"), ToolEnded("c1", "Read", "ok", (Text("1\ta"),)))
    ran = (ToolStarted("c2", "Bash"), ToolEnded("c2", "Bash", "ok", (Text("one\ntwo"),)))
    shown = apply(view, PREFIX, Replied(2, (look, shell), "calls"), *read, *ran)
    shown += texts(view.close_groups())
    group = f"● 2 reads ok r4-r6  a.py (1 line), {command}"
    assert (group in shown) == is_read
    assert is_read or "  two" in shown, "what another command printed is shown"


def test_a_running_call_stands_directly_below_the_last_one() -> None:
    view = ViewModel()
    calls = (ToolCall("c1", "Bash", {"command": "one"}), ToolCall("c2", "Bash", {"command": "two"}))
    now = live_area.DrawContext(0.0, 0, 80, 24)
    apply(view, Replied(1, calls, "calls"), ToolStarted("c1", "Bash"))
    assert texts(live_area.live_rows(view, (), now))[0] == ""
    apply(view, ToolEnded("c1", "Bash", "ok", (Text("a"),)), ToolStarted("c2", "Bash"))
    assert texts(live_area.live_rows(view, (), now))[0] == "○ Bash running  two"


# --- Live -----------------------------------------------------------------------------------------


def agent_view(n: int, state: str = "running", **now: Any) -> SubagentView:
    return SubagentView(f"a{n}", f"s{n}", "explore", f"job {n}", state, **now)


def test_a_subagent_is_one_line_with_its_state_before_what_it_does() -> None:
    busy = agent_view(
        7, elapsed_s=75.2, steps=3, tokens=12_345, cost_usd=0.5, last="Read a.py", depth=2
    )
    full = "  ○ a7 explore running 1 m  job 7 · Read a.py · 3 steps, 12.3k tokens, $0.50"
    assert texts([task_rows.agent_line(busy)]) == [full]
    assert texts([crop(task_rows.agent_line(busy), 30)]) == [full[:29] + "…"]


def test_many_subagents_collapse_and_those_that_ask_stay() -> None:
    views = [agent_view(n) for n in range(1, 12)] + [
        agent_view(12, "asking"),
        agent_view(13, "queued"),
        agent_view(14, "done"),
    ]
    assert texts(task_rows.live_agents(views, 4)) == [
        "○ a1 explore running  job 1",
        "○ a2 explore running  job 2",
        "○ a12 explore asks you  job 12",
        "… 10 more subagents: 9 running, 1 queued; /agents lists them",
    ]
    assert len(task_rows.live_agents(views, 1)) == 1
    assert len(task_rows.live_agents(views, 20)) == 13
    assert task_rows.live_agents([agent_view(14, "done")], 4) == []


def test_all_tasks_are_one_line() -> None:
    tasks = {
        "b1": RunningTask(NPM, 0),
        "b2": RunningTask(TaskStarted("b2", "y" * 60), 170_000_000),
        "b3": RunningTask(TaskStarted("b3", "z", state="queued"), 0),
    }
    assert texts(task_rows.live_tasks(tasks, 185_000_000, 160)) == [
        f"3 tasks  b1 npm run {SHOWN} … 3 m · b2 {'y' * 36}… 15 s · b3 z queued"
    ]
    assert texts(task_rows.live_tasks(tasks, 185_000_000, 60))[0].endswith(
        "b2 yyyyyyy… 15 s · b3 z queued"
    )
    assert task_rows.live_tasks({}, 0, 80) == []
    assert task_rows.counts(2, 1) == "2 tasks, 1 agent"


@pytest.mark.parametrize("of_child", [False, True])
def test_a_command_that_goes_on_in_the_background_began_when_it_began(of_child: bool) -> None:
    view = ViewModel()
    entries = [
        Entry(1, 1_000_000, ToolStarted("c1.0", "Bash")),
        Entry(2, 121_000_000, TaskStarted("b1", "make", "c1.0", promoted="timeout")),
        Entry(3, 121_000_000, TaskStarted("b2", "make", "c1.1")),
    ]
    for entry in entries:
        view.apply(FromSubagent("one", "a3", "explore", entry) if of_child else entry, 0.0)
    assert [running.at for running in view.activity.tasks.values()] == [1_000_000, 121_000_000]


def test_what_was_cut_does_not_run_while_nothing_goes_on() -> None:
    view = ViewModel()
    call = ToolCall("c1.0", "Agent", {"description": "look"})
    apply(
        view, UserSpoke((Text("go"),)), Replied(1, (call,), "calls"), ToolStarted("c1.0", "Agent")
    )
    now = live_area.DrawContext(1.0, 0, 80, 24)
    assert any("Agent running" in row for row in texts(live_area.live_rows(view, (), now)))
    view.go_live(busy=False, now_s=0.0)
    assert not any(texts(live_area.live_rows(view, (), now)))


@pytest.mark.parametrize(
    ("views", "ages_s", "every_s"),
    [([], [], 0), ([agent_view(1)], [], 1), ([], [600, 3], 1), ([], [600, 61], 15)],
)
def test_an_idle_screen_is_seldom_drawn(
    views: list[SubagentView], ages_s: list[float], every_s: float
) -> None:
    view = ViewModel()
    for n, age_s in enumerate(ages_s):
        view.apply(Entry(n + 1, int(1e9 - age_s * 1e6), TaskStarted(f"b{n}", "x")), 0.0)
    assert live_area.tick_s(view, views, int(1e9)) == every_s


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("rows", [5, 24, 60])
def test_live_rows_fit_any_terminal(width: int, rows: int) -> None:
    view = ViewModel()
    apply(view, *(TaskStarted(f"b{n}", "日本" * 30) for n in range(40)))
    views = [agent_view(n, last="字" * 90) for n in range(30)]
    drawn = live_area.live_rows(view, views, live_area.DrawContext(1.0, 10, width, rows))
    assert all(sum(cells(text) for _, text in row) <= width for row in drawn)
    assert len(drawn) <= max(rows // 4, 1) + 3


# --- Lists ----------------------------------------------------------------------------------------


def test_the_list_of_tasks() -> None:
    views = [
        TaskView("b1", "running", "npm run dev", 65.0, 3_400, waits_for_input="go on? (y/n)"),
        TaskView("b2", "timed_out", EVIL, 10.0, cause="limit of 10 s", handle="r40"),
    ]
    assert texts(task_rows.task_list(views)) == [
        "  b1    running  1 m 05 s, 3.4 kB, asks: go on? (y/n)  npm run dev",
        f"  b2    timed out  limit of 10 s, 10 s, r40  {SHOWN}",
    ]
    assert "no background tasks" in texts(task_rows.task_list([]))[0]
    assert "no subagents" in texts(task_rows.agent_list([]))[0]


def test_the_page_of_a_subagent() -> None:
    page = task_rows.agent_page(
        agent_view(7, "done", model="mock/small"), f"do\n{EVIL}", "It is\nthere.", ["Read a.py"]
    )
    assert texts(page) == [
        "  ● a7 explore done  job 7",
        "  model mock/small",
        *("  task", "    do", f"    {SHOWN}"),
        *("  last acts", "    Read a.py"),
        *("  report", "    It is", "    there."),
    ]


def test_waiting_messages_say_when_they_go_and_to_whom() -> None:
    waiting = [
        PendingMessage(4, "queued", "later"),
        PendingMessage(5, "steer", "now"),
        PendingMessage(6, "steer", f"you {EVIL}", "one"),
    ]
    assert texts(live_area.waiting_rows(waiting, {"one": "a7"}, 60)) == [
        "after this turn: later",
        "with the next request: now",
        f"to a7, with its next request: you {SHOWN}",
        "↑ takes the last one back; /queue lists all",
    ]
    assert texts(task_rows.queue_list([(1, waiting[0]), (3, waiting[2])], {"one": "a7"}))[:2] == [
        "  1 after this turn: later",
        f"  3 to a7, with its next request: you {SHOWN}",
    ]


def test_how_long_a_task_runs_is_told_by_the_clock_that_nobody_sets() -> None:
    view = ViewModel()
    view.apply(Entry(1, 0, TaskStarted("b1", "old")), 1.0)
    view.live = True
    view.apply(Entry(2, 3_600_000_000, ToolStarted("c1.0", "Bash")), 10.0)
    view.apply(Entry(3, 7_200_000_000, TaskStarted("b2", "new", "c1.0", promoted="user")), 25.0)
    for wall_us in (60_000_000, 90_000_000):
        rows = texts(live_area.live_rows(view, [], live_area.DrawContext(40.0, wall_us, 80, 24)))
        [row] = [row for row in rows if "tasks" in row]
        assert row == f"2 tasks  b1 old {human_text.live_elapsed(wall_us / 1e6)} · b2 new 30 s"


def test_the_end_of_a_task_is_shown_once_when_it_is_heard() -> None:
    view, ended = (
        ViewModel(),
        TaskEnded("b1", "killed", cause="stopped by the user", elapsed_ms=12_000, tail="up"),
    )
    rows = apply(view, TaskStarted("b1", "server"), TaskOver(ended))
    assert rows[1:] == ["task b1 killed  stopped by the user, 12 s  server", "  up"]
    assert not view.activity.tasks, "nor does the footer count it"
    assert apply(view, ended) == []
    apply(
        view,
        TaskStarted("b2", "make"),
        FromSubagent("child", "a3", "explore", TaskOver(TaskEnded("b2", "done"))),
    )
    assert not view.activity.tasks
    assert apply(view, TaskOver(TaskEnded("b9", "done"))) == [], (
        "of one that was not heard of its entry tells"
    )
    assert apply(view, TaskEnded("b9", "done")) == ["task b9 done"]


def test_the_question_at_the_end_names_what_runs() -> None:
    running = [RunningTask(TaskStarted(f"b{n}", f"cmd {n} {'x' * 60}"), 0) for n in range(5)]
    assert (
        command_actions.exit_question(running[:1])
        == f"1 task still runs (b0 cmd 0 {'x' * 33}…): what becomes of it?"
    )
    assert command_actions.exit_question(running).endswith("…, …): what becomes of them?")
    labels = [[choice.label for choice in command_actions.exit_choices(count)] for count in (1, 2)]
    assert labels == [
        ["stop it and leave", "leave it running", "stay"],
        ["stop them and leave", "leave them running", "stay"],
    ]


# --- The fold -------------------------------------------------------------------------------------


def of(heard: Any, child: str = "one", label: str = "a3") -> FromSubagent:
    return FromSubagent(
        child, label, "explore", heard if not isinstance(heard, tuple) else Entry(*heard)
    )


def test_a_childs_question_comes_with_its_arguments_and_goes_with_its_answer() -> None:
    activity = Activity()
    activity.hear(Entry(3, 0, CHILD))
    edit = ToolCall("c4.0", "Edit", {"file_path": "a", "old_string": "b", "new_string": "c"})
    assert activity.hear(of((5, 0, Replied(4, (edit,), "calls")))) == []
    assert activity.hear(of(ReplyDelta(4, [TextDelta("never painted")]))) == []
    activity.hear(of((6, 0, PermissionAsked("c4.0", "Edit", "…", "why"))))
    [question] = activity.questions.values()
    assert (question.title, question.session, question.arguments) == (
        "a3 explore asks: Edit",
        "one",
        edit.arguments,
    )
    rows = activity.hear(
        of((7, 0, PermissionAnswered("c4.0", "allow", "user", "session", "Edit(a)")))
    )
    assert texts(rows) == ["a3 explore: allowed for this session  Edit(a)"]
    assert not activity.questions
    activity.hear(of(RetryPause(4, "overload", 529, 1, 10, 4.0, f"Overloaded {EVIL}")))
    retry = f"retrying, attempt 2 of 10: Overloaded {SHOWN}"
    assert list(activity.acts["one"]) == ["Edit a", "asks: Edit", retry]


@pytest.mark.parametrize("who", ["one", "two"])
def test_nobody_is_asked_for_a_subagent_that_is_over_nor_for_one_below_it(who: str) -> None:
    activity = Activity()
    activity.hear(Entry(3, 0, CHILD))
    activity.hear(of((9, 0, SubagentStarted("two", "plan"))))
    label = activity.subagents[who].label
    assert label == {"one": "a3", "two": "a3.a9"}[who]
    activity.hear(of((6, 0, PermissionAsked("c4.0", "Edit", "…", "why")), who, label))
    activity.hear(Entry(4, 0, SubagentStarted("three", "explore")))
    activity.hear(of((6, 0, PermissionAsked("c4.0", "Edit", "…", "why")), "three", "a4"))
    assert len(activity.questions) == 2
    activity.hear(Entry(5, 0, SubagentEnded("one", "interrupted")))
    assert list(activity.questions) == [("three", "c4.0")]


def test_what_a_subagent_is_told_is_shown_when_it_is_delivered() -> None:
    activity = Activity()
    assert activity.hear(of((2, 0, UserSpoke((Text("the task"),))))) == []
    rows = activity.hear(of((8, 0, UserSpoke((Text("hurry"),), "steer"))))
    assert texts(rows) == ["› hurry  (delivered to a3 explore)"]
    assert texts(activity.hear(of(UserNotice(f"x {EVIL}")))) == [f"! a3: x {SHOWN}"]


def test_a_subagents_tasks_are_among_those_that_run() -> None:
    activity = Activity()
    activity.hear(of((8, 5, TaskStarted("a3.b1", "x"))))
    assert activity.tasks["a3.b1"].at == 5
    activity.hear(of((9, 6, TaskEnded("a3.b1", "done"))))
    assert not activity.tasks
