"""Time of a resume, with and without the snapshot; of a rewind, of undoing a compaction, of a fork
and of the fork's first resume.

`python -m lab.resume --entries 100000` writes a session of that many entries, then starts
`longrein -p … -c` against a provider on this machine. The other acts run in a process each. With
`--keep FOLDER` the session is made once and lies there.
"""

import argparse
import asyncio
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from lab.context.speed import SECOND_US, LongSession
from lab.context.table import Row, print_table
from longrein.agent.open_session import StoredStates, resumed_state
from longrein.agent.rewind_log import step_end
from longrein.store import Snapshot, delete_session, fork_log, open_log
from longrein_context import advance, encode_state, state_at, step
from longrein_context.events import AnyEvent, Entry, Opened, Restored, Rewound

SESSION = "00000000-0000-4000-8000-0000000e5000"
RESULTS = (400, 4_000, 12_000, 24_000)
"""Characters of results: 100,000 entries make about 250 MB."""
REACH_S = 0.5
BATCH = 1_000
"""Entries that are written at once, and after which the agent keeps a snapshot."""
FORK = "00000000-0000-4000-8000-0000000e5001"
RECENT = 200
"""Distance of a recent target from the end, in entries."""
ACTS = ("rewind-recent", "rewind-1000", "rewind-worst", "rewind-oldest", "uncompact", "fork")
REACHES_S = {"rewind-recent": 0.5, "uncompact": 0.5, "fork": 0.3, "first-resume": 0.5}
LONGREIN = Path(sys.executable).parent / "longrein"


@dataclass
class StoredLongSession(LongSession):
    """A long session whose entries are kept until they are written."""

    batch: list[Entry] = field(default_factory=list)

    def add(self, event: AnyEvent) -> int:
        """Add one entry without timing."""
        self.at += SECOND_US
        entry = Entry(self.state.seq + 1, self.at, event)
        self.state = step(self.state, entry)
        self.batch.append(entry)
        return entry.seq


async def write(state_dir: Path, tree: Path, entries: int) -> None:
    """Write the session: an agent that reads files for long."""
    log = await open_log(
        str(state_dir), SESSION, create=True, wall_us=lambda: time.time_ns() // 1000
    )
    long, n = StoredLongSession(session=SESSION, root=str(tree), results=RESULTS), 0
    while long.state.seq < entries or long.state.turn_open:
        long.step(n)
        n += 1
        if len(long.batch) > BATCH or long.state.seq >= entries:
            await asyncio.wrap_future(log.append(long.batch, flush=True))
            long.batch.clear()
            writing = log.keep_snapshot(Snapshot(long.state.seq, encode_state(long.state)))
            if writing is not None:
                await asyncio.wrap_future(writing)
    await asyncio.wrap_future(log.append(long.batch, flush=True))
    await log.close()


def serve(folder: Path) -> tuple["subprocess.Popen[bytes]", str]:
    """A provider that answers everything by one word."""
    script = folder / "script.json"
    script.write_text(json.dumps({"turns": [{"text": "Yes."}] * 50}))
    command = [
        sys.executable,
        "-m",
        "longrein.testing.loopback",
        "--script",
        str(script),
        "--lenient",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert server.stdout is not None
    return server, f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"


@dataclass
class ResumeTimes:
    """Times and memory of one start."""

    first_s: float
    """From the start of the process to its first request."""
    exit_s: float
    """From the answer to the end of the process."""
    cpu_s: float
    """CPU seconds of the whole run, which vary less on a busy machine."""
    rss_mb: float
    """Peak of its memory."""


def resume(home: Path, state_dir: Path, tree: Path) -> ResumeTimes:
    """Start longrein once on the newest session of `tree`."""
    server, url = serve(home)
    try:
        settings = home / ".config" / "longrein"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "config.toml").write_text(
            f'model = "mock/small"\n[providers.mock]\nwire = "anthropic"\nbase_url = "{url}"\n'
            '[models."mock/small"]\nwindow = 200000\nmax_output = 8192\n'
        )
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LONGREIN_STATE_DIR": str(state_dir),
        }
        begun = time.monotonic()
        process = subprocess.Popen(
            [str(LONGREIN), "-p", "Go on.", "-c"],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=-3,
        )
        _, status, usage = os.wait4(process.pid, 0)
        ended = time.monotonic()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"longrein ended with {process.returncode}")
        with urllib.request.urlopen(f"{url}/_loopback/report") as answer:
            received, answered, _ = json.loads(answer.read())["times"][0]
        return ResumeTimes(
            received - begun,
            ended - answered,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss / 1024,
        )
    finally:
        server.terminate()
        server.wait()


def wall_us() -> int:
    """Return the time in microseconds."""
    return time.time_ns() // 1000


async def act(name: str, state_dir: str) -> None:
    """Do one act with the session, and print its seconds, CPU seconds and the peak memory in MB."""
    if name == "fork":
        await _fork(state_dir)
        return
    session = FORK if name == "first-resume" else SESSION
    begun = time.perf_counter(), time.process_time()
    log = await open_log(state_dir, session, create=False, wall_us=wall_us)
    state = resumed_state(log)
    stored = StoredStates(log.session, log.history, log.snapshot_before)
    last, at = state.seq, state.at
    if name != "first-resume":
        begun = time.perf_counter(), time.process_time()
    if name == "uncompact":
        undone = state.compactions[-1]
        state_at(stored, last, without=undone)
        advance(state, Entry(last + 1, at, Restored(undone)), stored)
    elif name != "first-resume":
        known = [0, *sorted(_snapshots(Path(log.folder)))]
        worst = max(itertools.pairwise(known), key=lambda gap: gap[1] - gap[0])[1] - 1
        targets = {"recent": last - RECENT, "1000": last - 1000, "worst": worst, "oldest": 60}
        to = step_end(log.history, targets[name.split("-")[1]])
        advance(state, Entry(last + 1, at, Rewound(to)), stored)
    _print_cost(begun)
    await log.close()


async def _fork(state_dir: str) -> None:
    """Fork the session at its end."""
    log = await open_log(state_dir, SESSION, create=False, wall_us=wall_us)
    first, last = log.entries[0], len(log.entries)
    await log.close()
    assert isinstance(first.event, Opened)
    opened = Opened(
        first.event.version, FORK, first.event.nonce, first.event.roots, first.event.cwd
    )
    begun = time.perf_counter(), time.process_time()
    await fork_log(state_dir, SESSION, last, Entry(1, first.at, opened))
    _print_cost(begun)


def _snapshots(folder: Path) -> list[int]:
    return [int(path.stem[6:]) for path in folder.glob("state-*.snapshot")]


def _print_cost(begun: tuple[float, float]) -> None:
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(time.perf_counter() - begun[0], time.process_time() - begun[1], peak_mb)


def rows_of_acts(state_dir: Path) -> list[Row]:
    """Measure each act in a process of its own."""
    found = []
    for name in (*ACTS, "first-resume"):
        command = [sys.executable, "-m", "lab.resume", "--act", name, str(state_dir)]
        told = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        seconds, cpu_s, peak_mb = map(float, told.split())
        reach = REACHES_S.get(name)
        note = f"{cpu_s:.2f} s of CPU, peak memory {peak_mb:.0f} MB"
        is_met = reach is None or seconds <= reach
        found.append(Row(name, f"{seconds:.2f} s", f"≤ {reach} s" if reach else "–", is_met, note))
    asyncio.run(delete_session(str(state_dir), FORK, wall_us=wall_us))
    return found


def measure(entries: int, folder: Path, rounds: int) -> list[Row]:
    """Return the rows of the table."""
    tree, state_dir = folder / "tree", folder / "state"
    tree.mkdir(parents=True, exist_ok=True)
    session = state_dir / "sessions" / SESSION
    if not session.exists():
        asyncio.run(write(state_dir, tree, entries))
    size_mb = sum(file.stat().st_size for file in session.iterdir() if file.is_file()) / 1e6
    without = []
    for _ in range(max(1, rounds // 3)):
        aside = folder / "snapshots"
        aside.mkdir()
        for kept in session.glob("*.snapshot"):
            kept.rename(aside / kept.name)
        without.append(resume(folder, state_dir, tree))
        for kept in aside.iterdir():
            kept.replace(session / kept.name)
        shutil.rmtree(aside)
    runs = [resume(folder, state_dir, tree) for _ in range(rounds)]
    snapshots_mb = sum(file.stat().st_size for file in session.glob("*.snapshot")) / 1e6
    best, slow = min(runs, key=lambda run: run.first_s), min(without, key=lambda run: run.first_s)
    note = f"{size_mb:.0f} MB of log, {snapshots_mb:.1f} MB of snapshot"
    return [
        Row(f"{entries} entries, with snapshot: first request", f"{best.first_s:.2f} s",
        f"≤ {REACH_S} s",
            best.first_s <= REACH_S,
            f"{note}; rounds: {', '.join(f'{run.first_s:.2f}' for run in runs)}"),
        Row("the same without it", f"{slow.first_s:.2f} s", "–", True),
        Row("CPU with snapshot, start to end", f"{best.cpu_s:.2f} s", "–", True,
        f"without {slow.cpu_s:.2f} s"),
        Row("peak memory with snapshot", f"{best.rss_mb:.0f} MB", "–", True,
        f"without {slow.rss_mb:.0f} MB"),
        Row("from the answer to the end", f"{best.exit_s:.2f} s", "–", True,
        f"without {slow.exit_s:.2f} s"),
        *rows_of_acts(state_dir),
    ]  # fmt: skip


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m lab.resume", description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder that the session is made in, or lies in")
    parser.add_argument("--act", nargs=2, metavar=("ACT", "STATE_DIR"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.act:
        asyncio.run(act(*given.act))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return print_table(measure(given.entries, given.keep or Path(folder), given.rounds))


if __name__ == "__main__":
    sys.exit(main())
