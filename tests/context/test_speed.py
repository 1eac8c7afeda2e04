"""Work for an entry is independent of the history, and work over a log grows with the log.

The first is a slice of `python -m lab.context.speed`.
"""

from collections.abc import Callable
from statistics import quantiles
from typing import Any, get_args

import pytest

from lab.context.speed import LongSession
from longrein.agent import Judgement, Limits, MoveContext, next_move
from longrein_context import (
    Budget,
    Price,
    State,
    advance,
    decide,
    decode_state,
    due_reminders,
    encode_state,
    fold,
    render,
    window_of,
)
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Asked,
    AskFailed,
    CheckpointTaken,
    Cleared,
    CwdSet,
    Entry,
    FileChanged,
    FileSeen,
    Form,
    Goal,
    GoalChanged,
    Grant,
    HookAnswered,
    Interrupted,
    ModeSet,
    Opened,
    PermissionAnswered,
    PermissionAsked,
    PinsSet,
    PrefixSet,
    Recalled,
    Reminded,
    Replied,
    Restored,
    Rewound,
    Schedule,
    SchedulesSet,
    SubagentEnded,
    SubagentStarted,
    Summarized,
    TaskEnded,
    TaskStarted,
    Text,
    TitleSet,
    Todo,
    TodoSet,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UserSpoke,
)
from longrein_context.message_list import Engine
from tests.context.log_builder import LogBuilder
from tests.work_counters import functions_called, operations_run


class Counted(LongSession):
    """A session that counts the functions called for each entry."""

    counts: list[int] | None = None

    def add(self, event: AnyEvent) -> int:
        if self.counts is None:
            return super().add(event)
        with functions_called(self.counts):
            return super().add(event)


def test_an_entry_calls_no_more_functions_later() -> None:
    long, found, n = Counted(16_000), [], 0
    for size in (200, 600):
        while long.state.seq < size:
            long.step(n)
            n += 1
        long.counts = []
        # enough that a quartile does not fall between two kinds of entries
        while len(long.counts) < 300:
            long.step(n)
            n += 1
        found.append(quantiles(long.counts))
        long.counts = None
    for early, late in zip(*found, strict=True):
        assert late < 1.5 * early, found


def sizes(state: State) -> dict[str, int]:
    return {
        n: len(v)
        for n in State.__struct_fields__
        if isinstance(v := getattr(state, n), list | dict | tuple)
    }


def test_what_the_state_holds_is_bounded_by_the_view_and_not_by_the_log() -> None:
    long, n = LongSession(12_000), 0
    while long.state.seq < 300:
        long.step(n)
        n += 1
    before = sizes(long.state)
    while long.state.seq < 900:
        long.step(n)
        n += 1
    grown = {
        name: (before[name], size)
        for name, size in sizes(long.state).items()
        if size > 2 * before[name] + 100
    }
    grown.pop("asked_seqs", None)  # one number a request
    grown.pop("files", None)  # one line a file of the project
    assert not grown, grown


# --- Ten times the entries cost at most twelve times the work -------------------------------------

FEW, MANY = 10, 100
REFOLDED = {"Restored": 20, "Rewound": 20}
"""FEW where a rewind folds again, whose fixed part is larger."""
MORE_MAX = 12  # Limit of the work for `MANY`, as a multiple of that for `FEW`
BUDGET = Budget(1_000_000, 8_000, Price(3, 15, 0.3, 3.75))


def call(log: LogBuilder, n: int, *before: AnyEvent, **more: Any) -> None:
    """Write a step with one call; `before`: entries between its start and its end."""
    asked = log.write(Asked("turn", log.seq, 2))
    name = f"c{asked}.0"
    log.write(Replied(asked, (ToolCall(name, "Bash", {"command": f"make part{n}"}),), "calls"))
    log.write(*before, ToolStarted(name, "Bash"))
    log.write(ToolEnded(name, "Bash", "ok", (Text(f"part {n} is made"),)))


def permission(log: LogBuilder, n: int) -> None:
    name = f"c{log.seq + 1}.0"
    call(
        log,
        n,
        PermissionAsked(name, "Bash", "make", "why"),
        PermissionAnswered(name, "allow", "user"),
    )


def failure(log: LogBuilder, n: int) -> None:
    log.write(AskFailed(log.write(Asked("turn", log.seq, 2)), "server", "down"))


def subagent(log: LogBuilder, n: int) -> None:
    log.write(SubagentStarted(f"kid{n}", "explore", grant=Grant(0.1, 1_000), background=True))
    log.write(SubagentEnded(f"kid{n}", "done", "It is so."))


def rewind(log: LogBuilder, n: int) -> None:
    to = log.seq
    log.user(f"try way {n}")
    log.write(Rewound(to))


def deeper_rewind(log: LogBuilder, n: int) -> None:
    """Go back to before the last rewind, from a longer and longer log."""
    log.user(f"try way {n}")
    log.write(Rewound(8))


def restore(log: LogBuilder, n: int) -> None:
    log.write(Restored(log.write(Cleared((Form("r3", "trimmed", f"short {n}"),), "rent"))))


def summary(log: LogBuilder, n: int) -> None:
    """Summarise all so far, the summary before included."""
    log.user(f"part {n}")
    log.write(Summarized(3, log.seq, f"summary up to part {n}", "request"))


KINDS: dict[type, Callable[[LogBuilder, int], Any]] = {
    Opened: lambda log, n: log.write(Opened(SCHEMA_VERSION, log.state.session, "n", ("/w",), "/w")),
    PrefixSet: lambda log, n: log.write(PrefixSet("tools", "mock", "small", "x", f"system {n}")),
    UserSpoke: lambda log, n: log.user(f"message {n}"),
    Reminded: lambda log, n: log.write(Reminded("cron_fired", f"text {n}", f"s{n}")),
    Asked: lambda log, n: log.write(Asked("turn", log.seq, 2)),
    Replied: lambda log, n: log.says(f"answer {n}"),
    AskFailed: failure,
    PermissionAsked: permission,
    PermissionAnswered: permission,
    HookAnswered: lambda log, n: log.write(HookAnswered("h", "PreToolUse", "none", context=f"{n}")),
    ToolStarted: call,
    ToolEnded: call,
    FileSeen: lambda log, n: log.read(f"/w/{n}.py", f"content {n}"),
    FileChanged: lambda log, n: log.write(FileChanged(f"/w/{n}.py", "b" * 64, "user", diff="+x")),
    TodoSet: lambda log, n: log.write(TodoSet((Todo(f"part {n}"),))),
    ModeSet: lambda log, n: log.write(ModeSet(["plan", "default"][n % 2])),
    CwdSet: lambda log, n: log.write(CwdSet(f"/w/{n}")),
    TitleSet: lambda log, n: log.write(TitleSet(f"title {n}")),
    PinsSet: lambda log, n: log.write(PinsSet((f"pin {n}",))),
    SchedulesSet: lambda log, n: log.write(SchedulesSet((Schedule(f"s{n}", "5m", "look"),))),
    Cleared: lambda log, n: log.write(Cleared((Form("r3", "trimmed", f"short {n}"),), "rent")),
    Summarized: summary,
    Restored: restore,
    Recalled: lambda log, n: log.write(Recalled("", f"r{n}")),
    TaskStarted: lambda log, n: log.write(TaskStarted(f"b{n}", "make")),
    TaskEnded: lambda log, n: log.write(
        TaskStarted(f"b{n}", "make"), TaskEnded(f"b{n}", "done", 0)
    ),
    GoalChanged: lambda log, n: log.write(GoalChanged(Goal(n, f"goal {n}"))),
    SubagentStarted: subagent,
    SubagentEnded: subagent,
    CheckpointTaken: lambda log, n: log.write(CheckpointTaken("before", "c")),
    Rewound: rewind,
    Interrupted: lambda log, n: log.write(Interrupted(f"stopped {n}")),
    TurnEnded: lambda log, n: log.write(TurnEnded("done")),
}


def works(write: Callable[[LogBuilder, int], Any], repeats: int) -> dict[str, int]:
    """Return the work of each step over a log with `repeats` times what `write` writes."""
    log = LogBuilder()
    for n in range(5):
        log.user(f"begin {n}")
    writing = log.entries
    for n in range(repeats):
        write(log, n)
    counts: dict[str, int] = {}

    def count(name: str, work: Callable[[], Any]) -> Any:
        found: list[int] = []
        with operations_run(found):
            result = work()
        counts[name] = found[0]
        return result

    state = count("fold", lambda: fold(writing))
    count("snapshot", lambda: decode_state(encode_state(state)))
    count("decide", lambda: decide(state, BUDGET, state.at + 1))
    count("reminders", lambda: due_reminders(state, window_of(state, BUDGET), state.at + 1))
    judged = {name: Judgement("run") for name in state.calls}
    outlook = MoveContext(window_of(state, BUDGET), Limits())
    count("move", lambda: next_move(state, judged, outlook))
    count("render", lambda: render(state, BUDGET))
    back = Entry(log.seq + 1, state.at + 1, Rewound(log.seq // 2))
    count("rewind", lambda: advance(state, back, log.log))
    return counts


def test_every_kind_of_event_has_its_row() -> None:
    assert set(KINDS) == set(get_args(AnyEvent))


def check(grown: dict[str, tuple[int, int]]) -> None:
    """Fail for each work that grows faster than the number of entries."""
    found = {name: one for name, one in grown.items() if one[1] > MORE_MAX * one[0]}
    assert not found, found


WRITERS = {kind.__name__: write for kind, write in KINDS.items()} | {"deeper": deeper_rewind}


@pytest.mark.parametrize("kind", WRITERS)
def test_work_grows_with_the_log(kind: str) -> None:
    count = REFOLDED.get(kind, FEW)
    few, many = works(WRITERS[kind], count), works(WRITERS[kind], 10 * count)
    check({name: (few[name], many[name]) for name in few})


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def turns(n: int) -> list[dict[str, str]]:
    """Messages of `n` turns."""
    return [
        message
        for at in range(n)
        for message in (user(f"part {at}"), {"role": "assistant", "content": f"done {at}"})
    ]


def replaced(_: int, n: int) -> list[dict[str, str]]:
    """The same list with another last message each time, such as a clock."""
    return [*turns(5), user(f"it is {n} o'clock")]


def replaced_in_the_middle(_: int, n: int) -> list[dict[str, str]]:
    chat = turns(5)
    chat[n % 10] = {**chat[n % 10], "content": f"another text {n}"}
    return [*chat, user("go on")]


def grown(repeats: int, n: int) -> list[dict[str, str]]:
    """A list to which a turn is added, before a last message that changes each time."""
    return [*turns(repeats + n), user(f"it is {n} o'clock")]


@pytest.mark.parametrize("chat", [replaced, replaced_in_the_middle])
def test_work_of_the_engine_grows_with_the_changes_of_its_list(
    chat: Callable[[int, int], list[dict[str, str]]],
) -> None:
    counts: list[int] = []
    for repeats in (FEW, MANY):
        engine = Engine(1_000_000, 8_000)
        with operations_run(counts):
            for n in range(repeats):
                engine.prepare(chat(repeats, n))
    check({"prepare": (counts[0], counts[1])})


@pytest.mark.parametrize("chat", [replaced, grown, lambda size, _: [*turns(size), user("go on")]])
def test_work_of_one_request_of_the_engine_grows_with_its_list(
    chat: Callable[[int, int], list[dict[str, str]]],
) -> None:
    counts: list[int] = []
    for size in (FEW, MANY):
        engine = Engine(1_000_000, 8_000)
        for n in range(8):
            engine.prepare(chat(size, n))
        with operations_run(counts):
            engine.prepare(chat(size, 8))
    check({"prepare": (counts[0], counts[1])})
