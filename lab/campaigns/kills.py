"""Kill longrein, its supervisor or both at random instants while commands run, a thousand times.

    python -m lab.campaigns.kills --scenarios 1000 --parallel 8

Each scenario runs the installed command in a folder of its own with a scripted model. Five tasks
start in the background (plain, double fork, setsid, immune to TERM, holding the pipe), a sixth
command runs in the foreground, and SIGKILL falls at a random instant. Checks:

- After 5 s no process of the scenario lives that `longrein tasks` does not list (both killed: after
  the next start).
- Longrein alone killed: after the resume each kept task has its true exit code and its whole
  output.
- Otherwise a task is `lost` or `killed`, or has its true end: never a success that nobody saw.
- The model is told of each end once.
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from longrein.store import Reader, list_sessions
from longrein_context.events import Reminded, TaskEnded, TaskStarted
from tests.e2e.harness import COMMAND, CliHarness, RunningCommand, bash, calls, says
from tests.timeouts import wait_until

KINDS = {
    "plain": ("echo first-{n}; sleep {s}; echo last-{n}; exit 3", 3),
    "double fork": (
        "echo first-{n}; ( (sleep 300; true) & ) ; sleep {s}; echo last-{n}; exit 4",
        4,
    ),
    "setsid": ("echo first-{n}; setsid sleep 300 & sleep {s}; echo last-{n}; exit 5", 5),
    "TERM-immune": ("trap '' TERM; echo first-{n}; sleep {s}; echo last-{n}; exit 6", 6),
    "pipe holder": ("echo first-{n}; sleep 300 & sleep {s}; echo last-{n}; exit 7", 7),
}
VICTIMS = ("harness", "supervisor", "both")
LEFT_S = 5.0
"""After this no unlisted process may be left."""
WALL_S = 120.0


class Scenario(msgspec.Struct):
    """One kill and its outcome."""

    number: int
    victim: str
    kind: str
    """Kind of the foreground command."""
    at_s: float
    """Time of the kill after the start of the first supervisor."""
    faults: list[str] = []
    adopted: int = 0
    """Tasks that were kept and have their true end."""
    ended: Counter[str] = msgspec.field(default_factory=Counter)


class KillRun:
    """Folder, settings and script of one scenario."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.cli = CliHarness(folder)
        rng = random.Random(scenario.number)
        commands = [
            command.format(n=n, s=f"{rng.uniform(0.1, 3):.2f}")
            for n, (command, _) in enumerate(KINDS.values())
        ]
        front = KINDS[scenario.kind][0].format(n=9, s="8")
        self.cli.plays(
            calls(*[bash(command, run_in_background=True) for command in commands]),
            calls(bash(front), text="I wait."),
            *[says("Done.")] * 20,
        )

    def start(self, *words: str) -> RunningCommand:
        return self.cli.start(
            "-p", *words, "--permission-mode", "bypassPermissions", "--background", "drain"
        )

    def alive(self) -> dict[int, str]:
        """Return live processes of the scenario, without longrein and its supervisors: pid ->
        command line.
        """
        found = dict(line.split(" ", 1) for line in self.cli.survivors())
        return {
            int(pid): line
            for pid, line in found.items()
            if COMMAND[0] not in line and "supervisor" not in line
        }

    def unlisted(self) -> dict[int, str]:
        """Return live processes that no running task of `longrein tasks` accounts for."""
        alive = self.alive()
        if not alive:
            return {}
        tasks = json.loads(self.cli.run("tasks", "--json").out or b"[]")
        listed = {task["pid"] for task in tasks if task["state"] == "running" and task.get("pid")}
        return {pid: line for pid, line in alive.items() if not _is_below(pid, listed)}

    def supervisors(self) -> list[int]:
        """Return the pids of this scenario's supervisors."""
        found = []
        for record in self.cli.state.glob("sessions/*/tasks/v*.json"):
            try:
                found.append(int(json.loads(record.read_text())["pid"]))
            except (OSError, ValueError, KeyError):
                continue
        return found


def _is_below(pid: int, roots: set[int]) -> bool:
    """Whether `pid` is in the session of one of `roots` or a descendant."""
    for _ in range(50):
        try:
            fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return True  # it has ended meanwhile
        parent, session = int(fields[1]), int(fields[3])
        if pid in roots or session in roots:
            return True
        if parent <= 1:
            return _has_mark_of(pid, roots)
        pid = parent
    return False


def _has_mark_of(pid: int, roots: set[int]) -> bool:
    """Whether `pid` carries the mark of a listed task's leader, as a daemon of that task does."""
    mark = _mark(pid)
    return bool(mark) and any(_mark(root) == mark for root in roots)


def _mark(pid: int) -> bytes:
    try:
        environment = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return b""
    return next((line for line in environment if line.startswith(b"LONGREIN_COMMAND=")), b"")


# --- One scenario ---------------------------------------------------------------------------------


def run_scenario(scenario: Scenario) -> Scenario:
    """Run one scenario: start, kill, check, resume, check."""
    with tempfile.TemporaryDirectory(
        prefix="longrein-kills-", ignore_cleanup_errors=True
    ) as folder:
        run = KillRun(Path(folder), scenario)
        try:
            _run_scenario(run, scenario)
        except AssertionError as error:
            scenario.faults.append(str(error))
        finally:
            run.cli.clean_up()
    return scenario


def _run_scenario(run: KillRun, scenario: Scenario) -> None:
    going = run.start("go")
    wait_until(lambda: bool(run.supervisors()) or going.process.poll() is not None)
    time.sleep(scenario.at_s)
    victims = [going.pid] if scenario.victim in ("harness", "both") else []
    victims += run.supervisors() if scenario.victim in ("supervisor", "both") else []
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    ran = going.end(limit_s=WALL_S)
    if scenario.victim == "supervisor" and ran.code not in (0, 3):
        scenario.faults.append(f"longrein ended with {ran.code}: {ran.err[-200:]}")
    if scenario.victim != "both":
        _check_no_process_left(run, scenario)
    begun = list_sessions(str(run.cli.state))  # empty when the kill came before the first entry
    if scenario.victim != "supervisor" and begun:
        resumed = run.start("-c").end(limit_s=WALL_S)
        if resumed.code not in (0, 3):
            scenario.faults.append(
                f"the resumed longrein ended with {resumed.code}: {resumed.err[-300:]}"
            )
        _check_no_process_left(run, scenario)
    if begun:
        run.cli.run("-p", "what has ended?", "-c", "--permission-mode", "bypassPermissions")
        _check_ends(run, scenario)


def _check_no_process_left(run: KillRun, scenario: Scenario) -> None:
    until = time.monotonic() + LEFT_S
    while left := run.unlisted():
        if time.monotonic() > until:
            scenario.faults.append(f"left after {LEFT_S:g} s and not listed: {left}")
            return
        time.sleep(0.25)


def _check_ends(run: KillRun, scenario: Scenario) -> None:
    """Check that each task in the log has one true end, which the model was told once."""
    events = [entry.event for entry in run.cli.entries()]
    notices = [
        event.text
        for event in events
        if isinstance(event, Reminded) and event.kind in ("bg_done", "bg_lost")
    ]
    told = Counter(re.findall(r"^\* (b\d+)", "\n".join(notices), re.MULTILINE))
    started = [event for event in events if isinstance(event, TaskStarted)]
    ends = [event for event in events if isinstance(event, TaskEnded)]
    ended = {end.task: end for end in ends}
    scenario.faults += [
        f"{task} ended {n} times" for task, n in Counter(end.task for end in ends).items() if n > 1
    ]
    with contextlib.closing(Reader(str(run.cli.state), run.cli.session)) as reader:
        for start in {start.task: start for start in started}.values():
            end = ended.get(start.task)
            if end is None:
                scenario.faults.append(f"{start.task} has no end")
                continue
            scenario.ended[end.state] += 1
            if told[start.task] != 1:
                scenario.faults.append(f"{start.task} was told {told[start.task]} times")
            code = next(
                code for text, code in KINDS.values() if start.command.endswith(f"exit {code}")
            )
            n = start.command.partition("first-")[2][:1]
            printed = reader.blob(end.output).decode() if end.output else ""
            if end.state == "failed" and end.code == code and printed == f"first-{n}\nlast-{n}\n":
                scenario.adopted += 1
            elif end.state not in ("lost", "killed") or end.code is not None:
                scenario.faults.append(
                    f"{end.task} is {end.state} {end.code} {end.cause!r}: {printed!r}"
                )
            elif scenario.victim == "harness" and "before it was kept" not in end.cause:
                scenario.faults.append(
                    f"{end.task} was kept and is {end.state}: {end.cause!r}, {printed!r}"
                )


# --- Campaign -------------------------------------------------------------------------------------


def campaign(scenarios: int, parallel: int, seed: int = 0) -> list[Scenario]:
    """Run scenarios, `parallel` at a time; print and return those with faults among them."""
    rng = random.Random(seed)
    kinds = list(KINDS)
    planned = [
        Scenario(
            seed * 1_000_000 + n,
            VICTIMS[n % 3],
            kinds[n // 3 % 5],
            rng.choice([0.05, 0.2, 0.6, 2]) * rng.random(),
        )
        for n in range(scenarios)
    ]
    played = []
    with ThreadPoolExecutor(parallel) as threads:
        for scenario in threads.map(run_scenario, planned):
            played.append(scenario)
            if scenario.faults:
                print(
                    f"#{scenario.number} {scenario.victim}, {scenario.kind}, {scenario.at_s:.3f} "
                    f"s: {scenario.faults}"
                )
    return played


def main() -> int:
    """Run the campaign and print a summary; return 1 when there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenarios", type=int, default=150)
    parser.add_argument("--parallel", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begun = time.monotonic()
    played = campaign(given.scenarios, given.parallel, given.seed)
    for victim in VICTIMS:
        those = [one for one in played if one.victim == victim]
        states = sum((one.ended for one in those), Counter())
        adopted, faults = sum(one.adopted for one in those), sum(bool(one.faults) for one in those)
        told = f"{len(those):>5} killed, {faults} with a fault, {adopted} tasks with true ends"
        print(f"{victim:<11} {told}  {dict(states)}")
    faults = sum(bool(one.faults) for one in played)
    print(f"{len(played)} scenarios in {time.monotonic() - begun:.0f} s, {faults} with a fault")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
