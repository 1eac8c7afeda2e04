"""Behaviour of a process that is short of memory: it shrinks, and the session continues.

The same work three times, each in a process of its own: without a limit, with `limits.memory_mb`
between the initial size and the final one, and under a hard `RLIMIT_DATA`, which kills a process
that does not shrink. The window is so large that nothing else causes a compaction. The real wire
encodes the requests, so that its cache can be dropped.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from lab.context.material import text
from lab.context.playing import BenchmarkModel, budget_of, reply
from lab.context.soak import rss_mib
from lab.context.table import Row, print_table
from longrein.agent import OpenSession, UserMessage, UserNotice
from longrein.agent.memory_pressure import MemoryPressure
from longrein.app import Additions, App
from longrein.app.run_context import read_run_context
from longrein.models import Delta, ModelOptions, Reply, open_model
from longrein.options import Options
from longrein.testing.clock import VirtualClock
from longrein_context import Request
from longrein_context.events import Cleared, Entry, Summarized, Text, ToolCall, TurnEnded, Usage

WINDOW = 8_000_000
TURNS = 160
FILE_CHARS = 150_000  # A result of this size is shown whole; a hundred and sixty of them are 24 MB


@dataclass
class LargeFileModel(BenchmarkModel):
    """Model that reads large files in turn and encodes each request as a real one would."""

    tree: Path
    turns: int
    rss: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = ModelOptions("test", "hoarder", "anthropic", "http://127.0.0.1:9")
        self.encoder = open_model(options, lambda _: b"", VirtualClock())
        self.budget = budget_of(WINDOW)

    def forget(self) -> None:
        """As the real model does."""
        self.encoder.forget()

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `models.Model.stream`."""
        size = len(self.encoder.body(request))
        self.rss.append(rss_mib())
        await asyncio.sleep(0)
        path = str(self.tree / f"part{len(self.rss)}.txt")
        more = len(self.rss) < self.turns and request.purpose == "turn"
        made = (
            reply("And on.", ToolCall("", "Read", {"file_path": path})) if more else reply("done")
        )
        yield [Reply(made.parts, made.stop, Usage(0, size // 3, 0, 20))]


@dataclass
class ProcessResult:
    """Figures that one process reports of itself."""

    turns: int
    peak_mib: float
    end_mib: float
    start_mib: float
    notices: list[str]
    reasons: list[str]
    ended: str


async def work(folder: Path, turns: int) -> ProcessResult:
    """The work, in this process."""
    tree = folder / "tree"
    tree.mkdir()
    random = Random(1)
    for n in range(turns):
        body = text("code", FILE_CHARS, random).replace("\n\n", "\n")
        (tree / f"part{n}.txt").write_text(body, encoding="utf-8")
    hoarder = LargeFileModel(tree, turns)
    options = Options(state_dir=str(folder / "state"), permission_mode="bypassPermissions")
    session = (
        await App(read_run_context(options, folder=str(tree)), print).open(
            fresh=True, additions=Additions(hoarder)
        )
    ).session
    heard: list[object] = []
    reader = asyncio.ensure_future(_hear(session, heard))
    session.tell(UserMessage((Text("read everything"),)))
    await session.run(once=True)
    session.part(MemoryPressure).look()
    end = rss_mib()
    await session.close()
    await reader
    reasons = [
        getattr(event, "reason", "") for event in heard if isinstance(event, Cleared | Summarized)
    ]
    notices = [news.text for news in heard if isinstance(news, UserNotice)]
    ended = [event.reason for event in heard if isinstance(event, TurnEnded)]
    return ProcessResult(
        len(hoarder.rss),
        max(hoarder.rss),
        end,
        hoarder.rss[0],
        notices,
        reasons,
        ended[-1] if ended else "",
    )


async def _hear(session: OpenSession, heard: list[object]) -> None:
    async for news in session.follow(0, streaming=False):
        if isinstance(news, UserNotice):
            heard.append(news)
        elif isinstance(news, Entry) and isinstance(news.event, Cleared | Summarized | TurnEnded):
            heard.append(news.event)


def in_process(turns: int, *, memory_mb: int = 0, data_mb: int = 0) -> ProcessResult:
    """The work in a new process: with a setting, or under a hard limit of its data."""
    with tempfile.TemporaryDirectory() as home:
        if memory_mb:
            settings = Path(home) / ".config" / "longrein"
            settings.mkdir(parents=True)
            (settings / "config.toml").write_text(
                f"[limits]\nmemory_mb = {memory_mb}\n", encoding="utf-8"
            )
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": home,
            "PYTHONPATH": _path(),
            "LANG": "C.UTF-8",
        }
        command = [
            sys.executable,
            "-m",
            "lab.context.memory",
            "--work",
            str(turns),
            str(data_mb),
        ]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
    if done.returncode:
        return ProcessResult(0, 0.0, 0.0, 0.0, [], [], f"the process ended with {done.returncode}")
    return ProcessResult(**json.loads(done.stdout.splitlines()[-1]))


def _path() -> str:
    return os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH", ""))))


def measure(turns: int = TURNS) -> list[Row]:
    """Return the rows of the table."""
    free = in_process(turns)
    limit = round(free.start_mib + 0.45 * (free.peak_mib - free.start_mib))
    low = in_process(turns, memory_mb=limit)
    hard = in_process(turns, data_mb=round(limit * 1.35))
    told_of = f"{low.ended}, {len(low.notices)} line"
    fine = low.ended == "done" and low.turns >= turns and len(low.notices) == 1
    share = low.peak_mib / free.peak_mib
    note = f"free: {free.start_mib:.0f} to {free.peak_mib:.0f} MiB; limit {limit}"
    what = "emergency, memory_mb set: "
    return [
        Row(
            what + "peak RSS / the same without a limit",
            f"{share:.2f}",
            "< 0.75",
            share < 0.75,
            note,
        ),
        Row(
            what + "the session goes on, the user is told",
            told_of,
            "done, 1 line",
            fine,
            "; ".join(low.notices),
        ),
        Row(
            what + "compactions for memory",
            str(low.reasons.count("memory")),
            "≥ 1",
            "memory" in low.reasons,
        ),
        Row(
            "emergency, RLIMIT_DATA: the session goes on",
            hard.ended,
            "done",
            hard.ended == "done",
            f"{hard.notices}",
        ),
    ]


def main(arguments: Sequence[str]) -> int:
    """Run the program."""
    if "--work" not in arguments:
        return print_table(measure(*map(int, arguments)))
    turns, data_mb = int(arguments[-2]), int(arguments[-1])
    if data_mb:
        resource.setrlimit(resource.RLIMIT_DATA, (data_mb * 2**20, data_mb * 2**20))
    with tempfile.TemporaryDirectory() as folder:
        ran = asyncio.run(work(Path(folder), turns))
    print(json.dumps(vars(ran)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
