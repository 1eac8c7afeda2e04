"""Kill longrein, its supervisor or both at random instants while commands run, a thousand times.

    python -m tests.load.kills --scenarios 1000 --parallel 8

Each scenario runs the installed command in a folder of its own with a scripted model. Five tasks start in the
background (plain, double fork, setsid, immune to TERM, holding the pipe), a sixth command runs in the foreground, and
SIGKILL falls at a random instant. Checks:

- After 5 s no process of the scenario lives that `longrein tasks` does not list (both killed: after the next start).
- Longrein alone killed: after the resume each kept task has its true exit code and its whole output.
- Otherwise a task is `lost` or `killed`, or has its true end: never a success that nobody saw.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from longrein.events import TaskEnded, TaskStarted
from longrein.store import Reader, list_sessions

COMMAND = Path(sys.executable).with_name("longrein")
KINDS = {
    "plain": ("echo first-{n}; sleep {s}; echo last-{n}; exit 3", 3),
    "double fork": ("echo first-{n}; ( (sleep 300; true) & ) ; sleep {s}; echo last-{n}; exit 4", 4),
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
        self.scenario = scenario
        self.tag = f"kills-{os.getpid()}-{scenario.number}"
        self.project, self.state = folder / "project", folder / "state"
        self.project.mkdir()
        home = folder / "home" / ".config" / "longrein"
        home.mkdir(parents=True)
        script = folder / "script.json"
        script.write_text(json.dumps({"turns": self.turns()}))
        (home / "config.toml").write_text(
            f'model = "played/kills"\n[providers.played]\nwire = "scripted"\nbase_url = {json.dumps(str(script))}\n'
        )
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        self.environment = {
            **kept,
            "HOME": str(folder / "home"),
            "LONGREIN_STATE_DIR": str(self.state),
            "LONGREIN_TEST_TAG": self.tag,
        }

    def turns(self) -> list[dict[str, Any]]:
        rng = random.Random(self.scenario.number)
        background = [
            _bash(command.format(n=n, s=f"{rng.uniform(0.1, 3):.2f}"), run_in_background=True)
            for n, (command, _) in enumerate(KINDS.values())
        ]
        front = KINDS[self.scenario.kind][0].format(n=9, s="8")
        return [
            {"calls": background},
            {"text": "I wait.", "calls": [_bash(front)]},
            *({"text": "Done."} for _ in range(20)),
        ]

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            COMMAND,
            *("-p", *words, "--permission-mode", "bypassPermissions", "--background", "drain"),
            cwd=self.project,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    # --- Processes ---------------------------------------------------------------------------------------------------

    def alive(self) -> dict[int, str]:
        """Return live processes with the tag, without longrein and its supervisors: pid -> command line."""
        found, mark = {}, f"LONGREIN_TEST_TAG={self.tag}".encode()
        for name in os.listdir("/proc"):
            if not name.isdecimal():
                continue
            try:
                environment = Path("/proc", name, "environ").read_bytes().split(b"\0")
                line = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                state = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark in environment and state != "Z" and str(COMMAND) not in line and "supervisor" not in line:
                found[int(name)] = line
        return found

    async def unlisted(self) -> dict[int, str]:
        """Return live processes that no running task of `longrein tasks` accounts for."""
        alive = self.alive()
        if not alive:
            return {}
        process = await asyncio.create_subprocess_exec(
            COMMAND, "tasks", "--json", env=self.environment, cwd=self.project, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        listed = {task["pid"] for task in json.loads(out or b"[]") if task["state"] == "running" and task.get("pid")}
        return {pid: line for pid, line in alive.items() if not _is_below(pid, listed)}

    def supervisors(self) -> list[int]:
        """Return the pids of this scenario's supervisors."""
        found = []
        for record in self.state.glob("sessions/*/tasks/v*.json"):
            try:
                found.append(int(json.loads(record.read_text())["pid"]))
            except (OSError, ValueError, KeyError):
                continue
        return found

    def session(self) -> str:
        return next((folder.name for folder in self.state.glob("sessions/*")), "")


def _bash(command: str, **more: Any) -> dict[str, Any]:
    return {"name": "Bash", "arguments": {"command": command, **more}}


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


# --- One scenario ----------------------------------------------------------------------------------------------------


async def run_scenario(scenario: Scenario) -> Scenario:
    """Run one scenario: start, kill, check, resume, check."""
    with tempfile.TemporaryDirectory(prefix="longrein-kills-", ignore_cleanup_errors=True) as folder:
        run = KillRun(Path(folder), scenario)
        try:
            await asyncio.wait_for(_run_scenario(run, scenario), WALL_S)
        except TimeoutError:
            scenario.faults.append(f"it was not over after {WALL_S:g} s")
        finally:
            for pid in [*run.alive(), *run.supervisors()]:
                _kill(pid)
    return scenario


async def _run_scenario(run: KillRun, scenario: Scenario) -> None:
    harness = await run.start("go")
    await _until(lambda: bool(run.supervisors()) or harness.returncode is not None)
    await asyncio.sleep(scenario.at_s)
    before = run.supervisors()
    if scenario.victim in ("harness", "both"):
        _kill(harness.pid)
    if scenario.victim in ("supervisor", "both"):
        for pid in before:
            _kill(pid)
    if scenario.victim == "supervisor":
        _, err = await harness.communicate()
        if harness.returncode not in (0, 3):
            scenario.faults.append(f"longrein ended with {harness.returncode}: {err.decode()[-200:]}")
    else:
        await harness.communicate()
    if scenario.victim != "both":
        await _check_no_process_left(run, scenario)
    if scenario.victim != "supervisor" and list_sessions(str(run.state)):  # else the kill came before the first entry
        resumed = await run.start("-c")
        _, err = await resumed.communicate()
        if resumed.returncode not in (0, 3):
            scenario.faults.append(f"the resumed longrein ended with {resumed.returncode}: {err.decode()[-300:]}")
        await _check_no_process_left(run, scenario)
    _check_ends(run, scenario)


async def _until(true: Any) -> None:
    until = time.monotonic() + 15
    while not true() and time.monotonic() < until:  # noqa: ASYNC110 - another process makes it true
        await asyncio.sleep(0.01)


async def _check_no_process_left(run: KillRun, scenario: Scenario) -> None:
    until = time.monotonic() + LEFT_S
    while left := await run.unlisted():
        if time.monotonic() > until:
            scenario.faults.append(f"left after {LEFT_S:g} s and not listed: {left}")
            return
        await asyncio.sleep(0.25)


def _check_ends(run: KillRun, scenario: Scenario) -> None:
    """Check that each task in the log has one true end."""
    if not list_sessions(str(run.state)):
        return
    reader = Reader(str(run.state), run.session())
    started: dict[str, TaskStarted] = {}
    ended: dict[str, TaskEnded] = {}
    for entry in reader.entries():
        if isinstance(entry.event, TaskStarted):
            started[entry.event.task] = entry.event
        elif isinstance(entry.event, TaskEnded):
            if entry.event.task in ended:
                scenario.faults.append(f"{entry.event.task} ended twice")
            ended[entry.event.task] = entry.event
    for task, start in started.items():
        end = ended.get(task)
        if end is None:
            scenario.faults.append(f"{task} has no end")
            continue
        scenario.ended[end.state] += 1
        code = next(code for text, code in KINDS.values() if start.command.endswith(f"exit {code}"))
        n = start.command.partition("first-")[2][:1]
        printed = reader.blob(end.output).decode() if end.output else ""
        whole = printed == f"first-{n}\nlast-{n}\n"
        if end.state == "failed" and end.code == code and whole:
            scenario.adopted += 1
        elif end.state not in ("lost", "killed") or end.code is not None:
            scenario.faults.append(f"{task} is {end.state} {end.code} {end.cause!r}: {printed!r}")
        elif scenario.victim == "harness" and "before it was kept" not in end.cause:
            scenario.faults.append(f"{task} was kept and is {end.state}: {end.cause!r}, {printed!r}")
    reader.close()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


# --- Campaign --------------------------------------------------------------------------------------------------------


async def campaign(scenarios: int, parallel: int, seed: int = 0, *, told: bool = False) -> list[Scenario]:
    """Run scenarios, `parallel` at a time; return them with their faults."""
    rng = random.Random(seed)
    kinds = list(KINDS)
    planned = [
        Scenario(
            seed * 1_000_000 + n, VICTIMS[n % 3], kinds[n // 3 % 5], rng.choice([0.05, 0.2, 0.6, 2]) * rng.random()
        )
        for n in range(scenarios)
    ]
    gate = asyncio.Semaphore(parallel)

    async def one(scenario: Scenario) -> Scenario:
        async with gate:
            await run_scenario(scenario)
        if told and scenario.faults:
            print(f"#{scenario.number} {scenario.victim}, {scenario.kind}, {scenario.at_s:.3f} s: {scenario.faults}")
        return scenario

    return list(await asyncio.gather(*map(one, planned)))


def main() -> int:
    """Run the campaign and print a summary; return 1 when there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenarios", type=int, default=150)
    parser.add_argument("--parallel", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    begun = time.monotonic()
    played = asyncio.run(campaign(given.scenarios, given.parallel, given.seed, told=True))
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
