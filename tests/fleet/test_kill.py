"""A fleet that is cut, by `kill -9` and by signals, and goes on."""

import asyncio
import signal

import pytest

from longrein.app.run_context import CLOCK
from longrein.store import open_log
from longrein_context.events import Entry, Interrupted
from longrein_fleet.fleet_state import TaskStarted
from tests.e2e.harness import RunningCommand, bash, calls, says
from tests.fleet.harness import FleetHarness
from tests.timeouts import wait_until


def start_tasks_that_wait(fleet: FleetHarness) -> RunningCommand:
    """Start three tasks, one after the other, and wait until the second has done a step: it then
    waits for `fleet.cli.go`.
    """
    go = f"until [ -e {fleet.cli.project}/go ]; do sleep 0.05; done; echo second >> acts.log"
    steps = [calls(bash("echo first >> acts.log")), calls(bash(go)), says("Done.")]
    fleet.plays(slow=steps)
    path = fleet.tasks({"id": "fast"}, {"id": "slow", "prompt": "slow"}, {"id": "last"})
    running = fleet.cli.start("fleet", "run", path, "--concurrency", "1")
    wait_until(lambda: acts(fleet) == ["first"])
    return running


def acts(fleet: FleetHarness) -> list[str]:
    path = fleet.cli.state / "fleets/tasks/tasks/slow/1/work/acts.log"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("fleet", ["files", "postgresql"], indirect=True)
def test_a_killed_fleet_leaves_no_processes_and_goes_on_in_the_sessions_of_its_tasks(
    fleet: FleetHarness,
) -> None:
    running = start_tasks_that_wait(fleet)
    running.send(signal.SIGKILL)
    running.end()
    assert fleet.cli.wait_survivors() == []
    assert fleet.state().tasks["slow"].status == "running"
    with (fleet.cli.state / "fleets/tasks/events.jsonl").open("ab") as log:
        log.write(b'{"type":"TaskEnded","id":"sl')  # what a crash may leave of a line
    fleet.cli.go()
    done = fleet.fleet("resume", "tasks")
    assert done.code == 0, done.err
    assert fleet.causes() == dict.fromkeys(("fast", "slow", "last"), "done")
    assert acts(fleet)[0] == "first"
    assert acts(fleet).count("first") == 1, "no step was paid or run twice"
    assert len(fleet.cli.sessions) == 3
    started = [event.id for event in fleet.events() if isinstance(event, TaskStarted)]
    assert started == ["fast", "slow", "slow", "last"], "a task that ended is not run again"


def test_a_fleet_can_be_stopped_and_goes_on(fleet: FleetHarness) -> None:
    running = start_tasks_that_wait(fleet)
    assert "1 running" in fleet.fleet("status", "tasks").text
    busy = fleet.fleet("resume", "tasks")
    assert busy.code == 2
    assert "longrein fleet stop tasks" in busy.err
    assert fleet.fleet("stop", "tasks").code == 0
    ended = running.end()
    assert ended.code == 143
    assert ended.err.endswith("`longrein fleet resume tasks` goes on\n")
    assert fleet.cli.wait_survivors() == []
    fleet.cli.go()
    done = fleet.fleet("resume", "tasks")
    assert done.code == 0, done.err
    assert acts(fleet).count("first") == 1
    assert len(fleet.cli.sessions) == 3


def test_a_session_killed_between_its_interrupt_and_the_end_of_its_turn_goes_on(
    fleet: FleetHarness,
) -> None:
    running = start_tasks_that_wait(fleet)
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none sees the end of another one
        fleet.cli.signal_all(number)
    running.end()
    assert fleet.cli.wait_survivors() == []
    asyncio.run(interrupt(fleet, fleet.state().tasks["slow"].session))
    fleet.cli.go()
    done = fleet.fleet("resume", "tasks")
    assert done.code == 0, done.err
    assert acts(fleet).count("first") == 1


async def interrupt(fleet: FleetHarness, session: str) -> None:
    """Append what a process that is killed while it ends a turn leaves."""
    log = await open_log(str(fleet.cli.state), session, create=False, wall_us=CLOCK.wall_us)
    last = log.entries[-1]
    entry = Entry(last.seq + 1, last.at, Interrupted("[interrupted by the user]", ()))
    await asyncio.wrap_future(log.append([entry], flush=True))
    await log.close()


def test_a_setup_that_was_cut_has_ended_before_it_is_run_anew(fleet: FleetHarness) -> None:
    pids = fleet.folder / "pids"
    setup = (
        f"for pid in $(cat {pids}); do kill -0 $pid && exit 9; done; echo $$ >> {pids}; "
        f"until [ -e {fleet.cli.project}/go ]; do sleep 0.05; done"
    )
    pids.touch()
    running = fleet.cli.start("fleet", "run", fleet.tasks({"id": "one", "setup": setup}))
    wait_until(lambda: bool(pids.read_text()))
    running.send(signal.SIGKILL)
    running.end()
    again = fleet.cli.start("fleet", "resume", "tasks")
    wait_until(lambda: len(pids.read_text().split()) == 2 or again.process.poll() is not None)
    fleet.cli.go()
    ended = again.end()
    assert ended.code == 0, ended.err
    assert fleet.causes() == {"one": "done"}


def test_an_end_that_the_killed_fleet_could_not_note_is_read_from_the_session(
    fleet: FleetHarness,
) -> None:
    path = fleet.tasks({"id": "one"}, {"id": "two", "prompt": "write", "limits": {"turns": 1}})
    assert fleet.fleet("run", path).code == 1
    log = fleet.cli.state / "fleets/tasks/events.jsonl"
    before = fleet.results()
    kept = [line for line in log.read_bytes().splitlines(True) if b"TaskEnded" not in line]
    log.write_bytes(b"".join(kept))
    fleet.plays(hello=[], write=[])
    assert fleet.fleet("resume", "tasks").code == 1
    assert fleet.causes() == {"one": "done", "two": "limit"}
    for task, result in fleet.results().items():
        assert result["cost_usd"] == before[task]["cost_usd"], "nothing was paid twice"
