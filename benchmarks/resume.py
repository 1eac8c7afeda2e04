"""Time of a resume: from process start to first request, with and without the snapshot.

`python -m benchmarks.resume --entries 100000` writes a session of that many entries, then starts
`longrein -p … -c` against a provider on this machine. With `--keep FOLDER` the session is made once
and lies there.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.context.speed import SECOND_US, LongSession
from benchmarks.context.table import Row, print_table

from longrein.context import step
from longrein.events import AnyEvent, Entry
from longrein.store import open_log

SESSION = "00000000-0000-4000-8000-0000000e5000"
RESULTS = (400, 4_000, 12_000, 24_000)
"""Characters of results: 100,000 entries make about 250 MB."""
REACH_S = 0.5
BATCH = 2_000
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
        for stale in session.glob("*.snapshot"):
            stale.unlink()
        without.append(resume(folder, state_dir, tree))
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
    ]  # fmt: skip


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resume", description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="folder that the session is made in, or lies in")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return print_table(measure(given.entries, given.keep or Path(folder), given.rounds))


if __name__ == "__main__":
    sys.exit(main())
