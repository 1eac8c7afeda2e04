"""`longrein fleet inspect`: figures of the tasks, and the pages of their sessions."""

import shutil
import signal
import stat
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
import pytest

from longrein.extensions.inspector.page_data import FleetInspection, FleetTask
from longrein_fleet.fleet_inspection import fleet_inspection
from longrein_fleet.fleet_state import (
    AnyEvent,
    AttemptEnded,
    FleetOpened,
    TaskRetried,
    TaskStarted,
    state_of,
)
from longrein_fleet.fleet_tasks import Task
from tests.e2e.harness import bash, calls, says
from tests.e2e.test_inspect import shown
from tests.fleet.harness import FleetHarness
from tests.timeouts import HANG_S

HOSTILE = "</script><script>alert(1)</script>\u202e"
STARTED = TaskStarted("t", 1, "s1")
FAILED = AttemptEnded("t", "check failed", HOSTILE, "s1", 0.5, 100, 20, 3.5, 80, check_code=1)
DONE = AttemptEnded("t", "done", "", "s2", 0.25, 50, 10, 1.5, 40, reward=1.0)
NO_ANSWER = AttemptEnded("t", "agent failed", "x" * 9_000)


def figures(outcome: str, **more: Any) -> dict[str, Any]:
    return {"outcome": outcome, **more}


FAILED_ONCE = figures("failed", cause="check failed", message=HOSTILE, attempts=1, session="s1")
FAILED_FIGURES = {"usd": 0.5, "seconds": 3.5, "input": 100, "cache_read": 80, "output": 20}
DONE_SECOND = figures("done", cause="done", attempts=2, session="s2", reward=1.0)
DONE_FIGURES = {"usd": 0.75, "seconds": 1.5, "input": 50, "cache_read": 40, "output": 10}
CUT_MESSAGE = figures("failed", cause="agent failed", message="x" * 499 + "…", attempts=1)


@pytest.mark.parametrize(("events", "attempts", "expected"), [
    ([], 1, figures("waiting")),
    ([STARTED], 1, figures("running", attempts=1, session="s1")),
    ([STARTED, FAILED], 1, {**FAILED_ONCE, **FAILED_FIGURES}),
    ([STARTED, FAILED, TaskStarted("t", 2, "s2"), DONE], 2, {**DONE_SECOND, **DONE_FIGURES}),
    ([STARTED, FAILED, TaskRetried("t")], 1, figures("waiting", attempts=1, usd=0.5)),
    ([AttemptEnded("t", "budget")], 1, figures("failed", cause="budget")),
    ([STARTED, NO_ANSWER], 1, CUT_MESSAGE),
])  # fmt: skip
def test_the_page_has_the_figures_of_the_results(
    events: list[AnyEvent], attempts: int, expected: dict[str, Any]
) -> None:
    opened = FleetOpened("x", 7, (Task("t", "p", "/f"),), attempts=attempts, cap_usd=2.0)
    state = state_of([opened, *events])
    assert state is not None
    made = fleet_inspection(state)
    assert (made.fleet, made.started_us, made.cap_usd) == ("x", 7, 2.0)
    assert made.spent_usd == expected.get("usd", 0.0)
    assert made.tasks == [FleetTask("t", **expected)]


def inspected(page: str) -> dict[str, FleetTask]:
    """The tasks of a page."""
    return {task.id: task for task in msgspec.convert(shown(page), FleetInspection).tasks}


def test_the_page_of_a_fleet_is_written_into_its_folder(fleet: FleetHarness) -> None:
    fleet.plays(tool=[calls(bash("echo x")), says("Done.")])
    tasks = fleet.tasks(
        {"id": "one", "prompt": "tool"},
        {"id": "two", "check": "echo '<b>bad</b>' >&2; exit 3"},
        {"id": "three", "setup": "exit 4"},
        {"id": "gone"},
        {"id": "broken"},
    )
    fleet.fleet("run", tasks)
    results = fleet.results()
    shutil.rmtree(fleet.cli.session_folder(results["gone"]["session"]))
    (fleet.cli.session_folder(results["broken"]["session"]) / "log.sqlite").write_text("x" * 9_000)
    done = fleet.fleet("inspect", "tasks", "--no-open")
    path = fleet.cli.state / "fleets/tasks/inspect.html"
    assert (done.code, done.text) == (0, f"{path}\n"), done.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = inspected(path.read_text())
    assert {name: (task.outcome, task.cause, task.missing) for name, task in found.items()} == {
        "one": ("done", "done", ""),
        "two": ("failed", "check failed", ""),
        "three": ("failed", "setup failed", "not stored"),
        "gone": ("done", "done", "not stored"),
        "broken": ("done", "done", "damaged"),
    }
    for name, task in found.items():
        assert task.usd == results[name]["cost_usd"]
        assert task.input == results[name]["input_tokens"]
    out = fleet.folder / "page.html"
    done = fleet.fleet("inspect", "tasks", "--no-open", "--out", str(out))
    assert (done.code, inspected(out.read_text())) == (0, found)


@pytest.mark.parametrize(("words", "told"), [
    (["nowhere"], "there is no fleet 'nowhere'"),
    (["../x"], "is no name of a fleet"),
    (["tasks", "--live", "--out", "x"], "--live writes no file: leave out --out"),
    (["tasks", "--out", "tasks.jsonl"], "is there already; name another file with --out"),
    (["tasks", "--json"], "longrein fleet inspect has no --json"),
    ([], "write longrein fleet inspect NAME"),
])  # fmt: skip
def test_what_cannot_be_inspected_is_told_in_a_line(
    fleet: FleetHarness, words: list[str], told: str
) -> None:
    fleet.fleet("run", fleet.tasks({"id": "one"}))
    (fleet.cli.project / "tasks.jsonl").touch()
    done = fleet.fleet("inspect", *words)
    assert (done.code, done.text, done.err.count("\n")) == (2, "", 1)
    assert told in done.err


def test_a_served_fleet_has_the_page_of_each_of_its_sessions(fleet: FleetHarness) -> None:
    fleet.fleet("run", fleet.tasks({"id": "x"}), "--name", "other")
    other = fleet.results("other")["x"]["session"]
    fleet.fleet("run", fleet.tasks({"id": "one"}, {"id": "two", "setup": "exit 1"}))
    server = fleet.cli.start("fleet", "inspect", "tasks", "--live", "--no-open")
    try:
        url = server.line().decode().strip()
        found = inspected(get(url))
        assert found["two"].missing == "not stored"
        session = shown(get(url.replace("/?", f"/{found['one'].session}?")))
        assert session["session"]["id"] == found["one"].session
        assert not (fleet.cli.state / "fleets/tasks/inspect.html").exists()
        shutil.rmtree(fleet.cli.session_folder(found["one"].session))
        for path in (other, found["one"].session, found["two"].session, "events", "x/../y", "%2e"):
            assert code(url.replace("/?", f"/{path}?")) == 404, path
        assert code(url.partition("?")[0] + other) == 403
    finally:
        server.send(signal.SIGINT)
        assert server.end().code == 0


def get(url: str) -> str:
    text: str = urlopen(url, timeout=HANG_S).read().decode()
    return text


def code(url: str) -> int:
    """The status with which an address is refused."""
    with pytest.raises(HTTPError) as refused:
        urlopen(url, timeout=HANG_S)
    return int(refused.value.code)
