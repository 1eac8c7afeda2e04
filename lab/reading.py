"""Commands that read a long session: CPU, time and peak memory of each, as a user runs it.

`python -m lab.reading --entries 100000` writes a session of that many entries (295 MB), and
a transcript of Claude Code that an import makes 41,000 entries of. Then it starts each command.
With `--keep FOLDER` both are made once and lie there; `--only WORD` measures the rows with that
word.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lab.context.material import text
from lab.context.table import Row, print_table
from lab.resume import LONGREIN, SESSION, serve, write

IMPORTED = "00000000-0000-4000-8000-0000000e5001"
IMPORT_ENTRIES = 41_000
CALLS = 4
"""Calls of each reply of the transcript."""
RESULT_CHARS = (400, 1_500, 4_000)
RARE = "part 6000:"
"""Words that one message of the session holds, in the middle."""
ABSENT = "zwieback-orbit"


@dataclass(frozen=True)
class Used:
    """Resources of one command."""

    wall_s: float
    cpu_s: float
    rss_mb: float
    out: str = ""


@dataclass(frozen=True)
class Reach:
    """Goals of a command: wall seconds and megabytes at its peak; 0 for none."""

    wall_s: float = 0.0
    rss_mb: float = 0.0

    def __str__(self) -> str:
        goals = [f"≤ {self.wall_s:g} s"] * bool(self.wall_s)
        goals += [f"≤ {self.rss_mb:g} MB"] * bool(self.rss_mb)
        return ", ".join(goals) or "–"

    def row(self, measure: str, used: Used) -> Row:
        """Return the row of the table."""
        met = used.wall_s <= (self.wall_s or used.wall_s)
        met = met and used.rss_mb <= (self.rss_mb or used.rss_mb)
        got = f"{used.wall_s:.2f} s, {used.rss_mb:.0f} MB"
        return Row(measure, got, str(self), met, f"CPU {used.cpu_s:.2f} s")


class Place:
    """The folder of the sessions, and the commands that run in it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.state_dir = folder / "state"
        self.tree.mkdir(parents=True, exist_ok=True)
        settings = folder / ".config" / "longrein"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "config.toml").write_text(
            f'model = "mock/small"\n[providers.mock]\nwire = "anthropic"\nbase_url = "{url}"\n'
            '[models."mock/small"]\nwindow = 200000\nmax_output = 8192\n'
        )

    def run(self, *words: str, cwd: Path | None = None, codes: Sequence[int] = (0,)) -> Used:
        """Run one command to its end."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LONGREIN_STATE_DIR": str(self.state_dir),
        }
        begun = time.monotonic()
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(
                [str(LONGREIN), *words],
                cwd=cwd or self.tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
            )
            _, status, usage = os.wait4(process.pid, 0)
            wall_s = time.monotonic() - begun
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode not in codes:
                raise SystemExit(f"longrein {words[0]} ended with {process.returncode}")
            out.seek(0)
            said = out.read(100_000).decode("utf-8", "replace")
        cpu_s = usage.ru_utime + usage.ru_stime
        return Used(wall_s, cpu_s, usage.ru_maxrss / 1024, said)


def write_transcript(path: Path, entries: int) -> None:
    """Write a transcript of Claude Code: an agent that reads files for long."""
    random = Random(7)
    pool = [text(kind, max(RESULT_CHARS), random) for kind in ("files", "code", "log") * 40]
    made, number, last = 0, 0, None
    with path.open("w") as file:

        def add(kind: str, content: object, **more: object) -> None:
            nonlocal number, last
            number += 1
            uuid = f"00000000-0000-4000-8000-{number:012x}"
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_700_000_000 + number))
            line = {"type": kind, "uuid": uuid, "parentUuid": last, "timestamp": stamp}
            message = {"role": kind, "content": content, **more}
            names = {"sessionId": IMPORTED, "cwd": "/work/shop", "message": message}
            file.write(json.dumps({**line, **names}) + "\n")
            last = uuid

        while made < entries:
            if not made or random.random() < 0.1:
                add("user", f"go on with part {number}: {random.choice(pool)[:200]}")
                made += 2
            calls = [f"toolu_{number}_{n}" for n in range(CALLS)]
            used = [
                {
                    "type": "tool_use",
                    "id": call,
                    "name": "Read",
                    "input": {"file_path": f"/w/{call}"},
                }
                for call in calls
            ]
            said = {"type": "text", "text": random.choice(pool)[:300]}
            add("assistant", [said, *used], id=f"msg_{number}", model="claude-sonnet-4-5")
            for call in calls:
                result = random.choice(pool)[: random.choice(RESULT_CHARS)]
                add("user", [{"type": "tool_result", "tool_use_id": call, "content": result}])
            made += 2 + 2 * CALLS


def folders(place: Place, entries: int) -> tuple[Path, Path]:
    """Make what is not there yet; return the folder of the session, and the transcript."""
    session = place.state_dir / "sessions" / SESSION
    if not session.exists():
        asyncio.run(write(place.state_dir, place.tree, entries))
    transcript = place.folder / "transcript.jsonl"
    if not transcript.exists():
        write_transcript(transcript, round(entries * IMPORT_ENTRIES / 100_000))
    return session, transcript


def measure(place: Place, entries: int, only: str) -> list[Row]:
    """Return the rows of the table."""
    session, transcript = folders(place, entries)
    rows: list[Row] = []

    def add(measure: str, reach: Reach, *words: str, cwd: Path | None = None, code: int = 0) -> str:
        if only and only not in measure:
            return ""
        used = place.run(*words, cwd=cwd, codes=(code,))
        rows.append(reach.row(measure, used))
        return used.out

    snapshot = session / "state.snapshot"
    snapshot.unlink(missing_ok=True)
    add("context, without a snapshot", Reach(), "context", SESSION)
    if not snapshot.exists() and (not only or only in "context, from the snapshot"):
        place.run("-p", "Go on.", "-r", SESSION)
    add("context, from the snapshot", Reach(1, 120), "context", SESSION)
    search = ("search", "--session", SESSION)
    (session / "search.sqlite").unlink(missing_ok=True)
    found = add("first search, rare words", Reach(1), *search, f'"{RARE}"')
    assert not found or found.count("part 6000") == 1, found
    add("second search, rare words", Reach(1), *search, f'"{RARE}"')
    (session / "search.sqlite").unlink(missing_ok=True)
    add("first search, a word that is nowhere", Reach(1), *search, ABSENT, code=1)
    add("search, a word that is everywhere", Reach(1), *search, "file")
    page = place.folder / "page.html"
    for name, form, reach in (("HTML", "html", Reach(6, 150)), ("Markdown", "markdown", Reach()),
                              ("ATIF", "atif", Reach())):  # fmt: skip
        page.unlink(missing_ok=True)
        add(f"export to {name}", reach, "export", SESSION, "--format", form, "-o", str(page))
    page.unlink(missing_ok=True)
    add("inspect", Reach(6, 200), "inspect", SESSION, "--no-open", "--out", str(page))
    page.unlink(missing_ok=True)
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    if only in "import":
        shutil.rmtree(place.state_dir / "sessions" / IMPORTED, ignore_errors=True)
    name = f"import of {round(entries * IMPORT_ENTRIES / 100_000):,} entries"
    add(name, Reach(), "import", str(transcript), cwd=elsewhere)
    first_turn = ("-p", "Go on.", "-r", IMPORTED)
    add("first turn after the import", Reach(1), *first_turn, cwd=elsewhere)
    add("second turn after the import", Reach(1), *first_turn, cwd=elsewhere)
    return rows


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m lab.reading", description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="folder that the sessions are made in, or lie in")
    parser.add_argument("--only", default="", help="measure the rows whose names hold this")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = given.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        server, url = serve(folder)
        try:
            return print_table(measure(Place(folder, url), given.entries, given.only))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    sys.exit(main())
