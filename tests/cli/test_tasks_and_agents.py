"""`longrein tasks` and `longrein agents` on real spools, supervisors and databases, beside
active writers.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longrein import entry_points
from longrein.cli import main
from longrein.store import SessionLog, open_log
from longrein.workspace import (
    SPOOL,
    BackgroundOptions,
    CommandSpec,
    SupervisedSpawner,
    SupervisionOptions,
)
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
    ToolCall,
    Usage,
)
from tests.store.fixtures import ID, child_opened, done, opened, said, wall_us
from tests.tables import cases, record

OTHER = "70000000-0000-4000-8000-000000000003"
CHILD = "c0000000-0000-4000-8000-000000000001"
BELOW = "c0000000-0000-4000-8000-000000000002"
EVIL = "\x1b[31m\u202e"
SHOWN = r"\x1b[31m\u202e"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*argv: str) -> tuple[int, str, str]:
        return main(
            [*argv, "--state-dir", str(tmp_path / "state")], lambda: entry_points
        ), *capfd.readouterr()

    return run


class Open:
    """A session that this process has open, with a supervisor of its own, in a loop of its own."""

    def __init__(self, state: Path, session: str = ID) -> None:
        self.loop = asyncio.new_event_loop()
        self.log: SessionLog = self.do(open_log(str(state), session, create=True, wall_us=wall_us))
        self.spool = os.path.join(self.log.folder, SPOOL)
        self.spawner = SupervisedSpawner(
            self.spool,
            SupervisionOptions("n0nce"),
            wall_us=wall_us,
            notice=self.notes,
            environ=os.environ,
        )
        self.add(self.log, opened(session), said(f"look for {EVIL}"))

    def notes(self, text: str) -> None:
        raise AssertionError(text)

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def add(self, log: SessionLog, *events: AnyEvent, first: int = 0) -> None:
        first = first or getattr(self, "seq", 1)
        new = [Entry(n, time.time_ns() // 1000, event) for n, event in enumerate(events, first)]
        self.do(done(log.append(new, flush=True)))
        if log is self.log:
            self.seq = first + len(events)

    def keep(self, task: str, command: str) -> None:
        async def keep() -> None:
            started = await self.spawner.start(
                CommandSpec(command, "/", {"PATH": os.environ["PATH"]}),
                sink=None,
                output_bytes_max=1 << 20,
            )
            await started.keep(BackgroundOptions(task, command))  # type: ignore[union-attr]

        self.do(keep())
        self.add(self.log, TaskStarted(task, command, cwd="/"))

    def close(self) -> None:
        self.do(self.spawner.drain())
        self.do(self.log.close())
        self.loop.close()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Open]:
    session = Open(tmp_path / "state")
    yield session
    session.close()


def printed(run: Run, name: str, text: str) -> str:
    """The page of a task once `text` is in it."""
    for _ in range(2_000):
        _, out, _ = run("tasks", name)
        if text in out:
            return out
        time.sleep(0.02)  # a real process is waited for
    raise AssertionError(out)


# --- odd files ------------------------------------------------------------------------------------

RECORD = {
    "command": "make all", "cwd": "/", "pid": 1, "start": 5, "mark": "/1.2.3/", "owner": "/1.2",
    "policy": "keep",
    "started_at": 5, "began_s": 1.0
}  # fmt: skip
END = record(state="done", code=0, cause="", elapsed_s=1.0, size_bytes=0, elided_bytes=0, lost="")
ODD = (None, [], {}, -1, 10**40, True)
GOOD_ROW = "70000000/b2  lost (its supervisor ended"


def spool(tmp_path: Path, session: str) -> Path:
    folder = tmp_path / "state" / "sessions" / session / SPOOL
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """The spool of a session with a task that is listed."""
    folder = spool(tmp_path, OTHER)
    (folder / "b2.json").write_text(json.dumps(RECORD))
    return folder


@cases("text", "", "{", "[" * 100_000, "[]", "5", "{}", '{"command": "\\udcff"}', "\0" * 100)
@pytest.mark.parametrize("name", ["b1.json", "b2.end", "v3.json"])
def test_a_file_that_is_no_record_hides_no_task(run: Run, good: Path, name: str, text: str) -> None:
    (good / name).write_text(text)
    shown = (
        GOOD_ROW
        if name != "b2.end"
        else "70000000/b2  lost (its end was written and cannot be read)"
    )
    code, out, err = run("tasks")
    assert (code, shown in out, "Traceback" in err) == (0, True, False)
    assert err.startswith(
        f"longrein: {good}/b1.json cannot be read, so its task is not listed"
    ) is (name == "b1.json")


@pytest.mark.parametrize("file", ["b1.json", "b1.end"])
def test_a_record_with_any_odd_field_hides_no_task(run: Run, good: Path, file: str) -> None:
    (good / "b1.json").write_text(json.dumps(RECORD))
    whole = RECORD if file == "b1.json" else END
    for field in whole:
        for odd in ODD:
            (good / file).write_text(json.dumps({**whole, field: odd}))
            code, out, err = run("tasks")
            assert (code, GOOD_ROW in out, "Traceback" in err) == (0, True, False), (field, odd)


# --- nothing --------------------------------------------------------------------------------------


@cases(
    "argv out",
    (["tasks"], "no background tasks\n"),
    (["tasks", "--json"], "[]\n"),
    (["agents"], "no subagents work now\n"),
    (["agents", "--json"], "[]\n"),
)
def test_nothing_is_answered_cleanly(run: Run, argv: list[str], out: str) -> None:
    assert run(*argv) == (0, out, "")


BAD = {
    "tasks b9": "there is no task 'b9' that runs; `longrein tasks` lists them",
    "tasks stop": "which one? longrein tasks stop SESSION/TASK; `longrein tasks` lists them",
    "tasks stop a1.b9": "there is no task 'a1.b9' that runs",
    "tasks wait b1": "what is to be done with 'b1'? longrein tasks [SESSION |",
    "tasks nonsense": "'nonsense' is not a session id; `longrein sessions` lists them",
    "tasks 0192/b1": "no session begins with 0192",
    "agents nonsense": "'nonsense' is not a session id",
    "tasks --tail 0": "--tail: '0' is not a whole number above 0",
    "agents a b": "longrein agents does not know what to do with 'b'",
    "tasks stop b1 b2": "longrein tasks does not know what to do with 'b2'",
}


@pytest.mark.parametrize("argv", list(BAD))
def test_what_is_wrong_is_one_line(run: Run, argv: str) -> None:
    code, out, err = run(*argv.split())
    assert code != 0
    assert out == ""
    assert BAD[argv] in err
    assert err.count("\n") == 1


# --- tasks ----------------------------------------------------------------------------------------


def test_a_running_task_is_listed_shown_and_stopped_from_outside(here: Open, run: Run) -> None:
    here.keep("b1", f"for n in 1 2 3 4 5; do echo line $n '{EVIL}'; done; sleep 60")
    code, out, err = run("tasks")
    assert (code, err) == (0, "")
    head, row = out.splitlines()
    assert head.split() == ["task", "state", "time", "output", "looked", "after", "by", "command"]
    assert row.startswith(f"{ID[:8]}/b1  running ")
    assert f"longrein         for n in 1 2 3 4 5; do echo line $n '{SHOWN}'; done; sleep 60" in row
    page = printed(run, "b1", "line 5")
    assert page.splitlines()[0].startswith("command          for n in")
    assert f"line 1 {SHOWN}" in page
    code, out, _ = run("tasks", f"{ID[:6]}/b1", "--tail", "2")
    assert out.splitlines()[-3:] == ["", f"line 4 {SHOWN}", f"line 5 {SHOWN}"]
    [told] = json.loads(run("tasks", "--json")[1])
    assert (told["task"], told["session"], told["open"], told["supervised"]) == (
        "b1",
        ID,
        True,
        True,
    )
    assert run("tasks", "stop", "b1") == (
        0,
        "",
        "longrein: b1 is over: killed (stopped by the user)\n",
    )
    assert "killed (stopped by the user)" in run("tasks")[1]
    assert "b1 was over already: killed" in run("tasks", "stop", "b1")[2]


def test_a_task_that_outlives_longrein_can_be_stopped(run: Run, tmp_path: Path) -> None:
    session = Open(tmp_path / "state")
    session.keep("b1", "sleep 60")
    session.close()
    assert "its supervisor" in run("tasks")[1]
    assert run("tasks", "stop", "b1")[0] == 0
    row = run("tasks")[1].splitlines()[1]
    assert "killed (stopped by the user)" in row
    assert "supervisor" not in row


def test_what_waits_for_its_turn_is_listed_while_the_session_is_open(here: Open, run: Run) -> None:
    here.keep("b1", "sleep 60")
    here.add(here.log, TaskStarted("b2", "make", state="queued"))
    assert [row.split()[:2] for row in run("tasks")[1].splitlines()[1:]] == [
        [f"{ID[:8]}/b1", "running"],
        [f"{ID[:8]}/b2", "queued"],
    ]


def test_the_same_id_in_two_sessions_is_asked_about(here: Open, run: Run, tmp_path: Path) -> None:
    other = Open(tmp_path / "state", OTHER)
    try:
        for session in (here, other):
            session.keep("b1", "sleep 60")
        code, _, err = run("tasks", "stop", "b1")
        assert code == 2
        assert f"2 sessions have a task b1: {ID[:8]}/b1, {OTHER[:8]}/b1" in err
        assert run("tasks", "stop", f"{OTHER[:4]}/b1")[0] == 0
        assert [row.split()[1] for row in run("tasks")[1].splitlines()[1:]] == ["running", "killed"]
    finally:
        other.close()


def test_a_sessions_tasks_are_those_of_its_log_too(here: Open, run: Run) -> None:
    blob = here.log.put_blob("\n".join(f"line {n}" for n in range(50)).encode())
    here.add(
        here.log, TaskStarted("b1", "make", cwd="/w"), TaskStarted("b2", "wait", state="queued")
    )
    here.add(here.log, TaskEnded("b1", "failed", 2, output=blob, elapsed_ms=12_000, size_bytes=390))
    child = here.log.child(CHILD)
    here.do(
        done(
            here.log.append(
                [Entry(here.seq, 5, SubagentStarted(CHILD, "explore", "c1.0"))],
                flush=True,
                beside=[(child, [Entry(1, 5, child_opened(CHILD))], ())],
            )
        )
    )
    here.seq += 1
    here.add(child, TaskStarted(f"a{here.seq - 1}.b1", "below"), first=2)
    rows = run("tasks", ID[:8])[1].splitlines()[1:]
    assert [" ".join(row.split()) for row in rows] == [
        f"{ID[:8]}/b1 failed (exit code 2) 12 s 390 B make",
        f"{ID[:8]}/b2 queued 0 B wait",
        f"{ID[:8]}/a6.b1 running 0 B nobody below",
    ]
    assert run("tasks", f"{ID[:8]}/b1", "--tail", "2")[1].splitlines()[-2:] == [
        "line 48",
        "line 49",
    ]
    assert run("tasks")[1] == "no background tasks\n"


# --- subagents ------------------------------------------------------------------------------------

READ = Replied(
    3,
    (ToolCall("c3.0", "Read", {"file_path": f"a{EVIL}.py"}),),
    "calls",
    Usage(900, 100, 0, 40),
    (),
    0.02,
)


def start(here: Open, parent: SessionLog, seq: int, child: str, **how: Any) -> SessionLog:
    log = here.log.child(child)
    entry = Entry(
        seq, time.time_ns() // 1000 - 5_000_000, SubagentStarted(child, "explore", "c2.0", **how)
    )
    first = [Entry(1, entry.at, child_opened(child)), Entry(2, entry.at, said("find it"))]
    here.do(done(parent.append([entry], flush=True, beside=[(log, first, ())])))
    here.seq = seq + 1 if parent is here.log else here.seq
    return log


def test_the_tree_of_subagents_is_read_while_it_grows(here: Open, run: Run) -> None:
    child = start(here, here.log, 3, CHILD, description=f"find {EVIL}", model="mock/small")
    assert "  a3 explore  queued  5." in run("agents")[1]
    here.add(child, Asked("turn", 2, 1), READ, first=3)
    start(here, child, 5, BELOW, description="look deeper")
    here.add(child, PermissionAsked("c3.0", "Bash", "make", "why"), first=6)
    code, out, err = run("agents")
    assert (code, err) == (0, "")
    head, first, second = out.splitlines()
    assert head == f"{ID[:8]}  /work  (open) look for {SHOWN}"
    assert first.startswith("  a3 explore  asks the user  5.")
    assert first.endswith(f" s, 1 step, 1.0k tokens, $0.02  find {SHOWN} · asks: Bash")
    assert second.startswith("    a3.a5 explore  queued  5.")
    [told] = json.loads(run("agents", ID[:8], "--json")[1])
    assert [(view["label"], view["state"], view["depth"]) for view in told["agents"]] == [
        ("a3", "asking", 1),
        ("a3.a5", "queued", 2),
    ]
    here.add(child, PermissionAnswered("c3.0", "allow", "user"), first=7)
    assert run("agents")[1].splitlines()[1].endswith(f"find {SHOWN} · Read a{SHOWN}.py")


def test_those_that_are_over_and_those_that_were_cut(here: Open, run: Run, tmp_path: Path) -> None:
    start(here, here.log, 3, CHILD, description="find it")
    here.add(
        here.log,
        SubagentEnded(
            CHILD, "done", "In src.\nYes.", Usage(9_000, 0, 0, 300), 0.5, 4, elapsed_ms=65_000
        ),
    )
    start(here, here.log, 5, BELOW, description="write it")
    assert [row.split()[0] for row in run("agents")[1].splitlines()[1:]] == ["a5"]
    here.do(here.log.close())
    assert run("agents") == (0, "no subagents work now\n", "")
    rows = run("agents", ID[:8])[1].splitlines()[1:]
    assert rows[0] == "  a3 explore  done  1 m 05 s, 4 steps, 9.3k tokens, $0.50  find it · In src."
    assert rows[1] == "  a5 explore  cut off; goes on with `longrein -r`  write it"


def test_entry_counts_by_its_place_also_when_the_clock_was_set_back(here: Open, run: Run) -> None:
    child = start(here, here.log, 3, CHILD, description="find it")
    past_us = time.time_ns() // 1000 - 3 * 3_600_000_000
    here.do(
        done(
            child.append(
                [Entry(3, past_us, Asked("turn", 2, 1)), Entry(4, past_us, READ)], flush=True
            )
        )
    )
    assert re.search(
        r"a3 explore  running  \d\.\d s, 1 step, 1\.0k tokens, \$0\.02  find it", run("agents")[1]
    )


def test_one_that_is_asked_again_is_counted_anew(here: Open, run: Run) -> None:
    child = start(here, here.log, 3, CHILD, description="find it")
    here.add(child, Asked("turn", 2, 1), READ, first=3)
    here.add(here.log, SubagentEnded(CHILD, "done", steps=1))
    here.add(here.log, SubagentStarted(CHILD, "explore", "c9.0", description="and now?", again=3))
    here.add(child, said("and now?"), Asked("turn", 2, 1), first=5)
    said_now = run("agents")[1].splitlines()[-1]  # with the time since then, if it is seen
    assert re.fullmatch(r"  a3 explore  running  (\d.* s, )?1 step  and now\?", said_now)
