"""Tasks across kills and resumes: each end is logged once and reported to the model once.

    python -m tests.load.notices --seeds 40 [--supervisor]

One seed is a session of eight steps that start ten to twenty tasks of known exit codes, some in the foreground, so
that they move to the background. Longrein, with `--supervisor` also the supervisor, is killed at random instants, and
the session continues with `-c` until it ends.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from longrein.events import AnyEvent, Reminded, TaskEnded, TaskStarted
from tests.e2e.harness import CliHarness, Turn, bash, calls, says

KILLS_MAX = 6
BYPASS = "--dangerously-skip-permissions"


def script(rng: random.Random) -> list[Turn]:
    """Return turns that start tasks; the exit code is the last word of each command."""
    turns: list[Turn] = []
    for step in range(8):
        made = []
        for n in range(rng.randint(1, 3)):
            command = f"echo T{step}.{n}; sleep {rng.random() * 1.5:.2f}; exit {rng.choice([0, 0, 3, 5])}"
            foreground = rng.random() < 0.3
            made.append(bash(command, timeout=300) if foreground else bash(command, run_in_background=True))
        turns.append(calls(*made))
    return [*turns, says("done"), *[says("ok")] * 60]


def supervisors(stage: CliHarness) -> list[int]:
    """Return the pids of the supervisors of this session."""
    return [int(line.split()[0]) for line in stage.survivors() if "longrein.workspace.supervisor" in line]


def run_session(stage: CliHarness, rng: random.Random, *, supervisor: bool) -> int:
    """Run one session to its end; return the number of kills."""
    stage.plays(*script(rng))
    kills = 0
    while True:
        going = stage.start("-p", "go", BYPASS, *["-c"] * bool(stage.sessions))
        try:
            going.process.wait(rng.random() * 1.6 + 0.25 if kills < KILLS_MAX else None)
            return kills
        except subprocess.TimeoutExpired:
            kills += 1
        both = supervisor and rng.random() < 0.4
        for pid in supervisors(stage) if both else ():
            os.kill(pid, signal.SIGKILL)
        going.process.kill()
        going.process.communicate()


def find_faults(events: list[AnyEvent]) -> list[str]:
    """Return faults in how the ends of tasks were logged and reported."""
    started = {event.task: event for event in events if isinstance(event, TaskStarted)}
    ends = [event for event in events if isinstance(event, TaskEnded)]
    told: Counter[str] = Counter()
    for event in events:
        if isinstance(event, Reminded) and event.kind in ("bg_done", "bg_lost") and event.text:
            told.update(re.findall(r"^\* (b\d+)", event.text, re.MULTILINE))
    found = [f"{task} has {n} ends" for task, n in Counter(end.task for end in ends).items() if n != 1]
    found += [f"{task} has no end" for task in started if task not in {end.task for end in ends}]
    found += [f"{task} was told {n} times" for task, n in told.items() if n != 1]
    found += [f"{task} was never told" for task in started if task not in told]
    for end in ends:
        code = int(started[end.task].command.rpartition(" ")[2])
        if end.state in ("done", "failed") and (end.code != code or not end.tail.startswith("T")):
            found.append(f"{end.task} ended {end.state} {end.code} {end.tail!r}, not {code}")
        if end.state not in ("done", "failed") and (end.code is not None or not end.cause):
            found.append(f"{end.task}: {end}")
    return found


def run_seed(folder: Path, seed: int, *, supervisor: bool) -> tuple[int, Counter[str], list[str]]:
    """Return (kills, states of the tasks, faults)."""
    stage = CliHarness(folder)
    try:
        kills = run_session(stage, random.Random(seed), supervisor=supervisor)
        stage.run("-p", "end", "-c", BYPASS, "--background", "drain")
        stage.run("-p", "what has ended?", "-c", BYPASS)
        events = [entry.event for entry in stage.entries()]
        left = stage.wait_survivors()
        states = Counter(event.state for event in events if isinstance(event, TaskEnded))
        return kills, states, find_faults(events) + [f"still alive: {line}" for line in left]
    finally:
        stage.clean_up()


def main() -> int:
    """Run the seeds and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--supervisor", action="store_true")
    given = parser.parse_args()
    every: Counter[str] = Counter()
    wrong = 0
    for seed in range(given.first, given.first + given.seeds):
        with tempfile.TemporaryDirectory() as folder:
            kills, states, found = run_seed(Path(folder), seed, supervisor=given.supervisor)
        every += states
        wrong += bool(found)
        print(f"seed {seed}: {kills} kills, {dict(states)}", *found, sep="\n  ", flush=True)
    print(f"{sum(every.values())} tasks: {dict(every)}; {wrong} of {given.seeds} seeds with a fault")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
