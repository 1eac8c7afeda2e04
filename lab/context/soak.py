"""Two thousand turns at a 32k window on a real disk: only the log may grow.

`python -m lab.context.soak [TURNS [STEPS]]`: number of requests in all, and per prompt. Real
SQLite, real files, some real commands; only the model is scripted. It runs in a process of its own
with an empty home. A reader follows the session as a frontend would. CPU is that of the harness
between the end of an answer and the next request. A turn is a request. The measure is taken twice:
with prompts of a dozen requests each, and with a user message before every other request.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from lab.context.counting import Counter
from lab.context.material import text
from lab.context.playing import BenchmarkModel, budget_of, reply
from lab.context.table import Row, print_table
from longrein.models import Delta, Reply
from longrein.sdk import Session
from longrein_context import Request
from longrein_context.events import ToolCall, ToolResult, TurnEnded, Usage, text_of

WINDOW = 32_000
TURNS = 2_000
FILES = 60  # Files of the tree that is worked on
STEPS = 12  # Requests of one prompt
CHATTY = 2  # Requests per prompt of a session whose user writes often
SECRET = "the answer of file one is 4f1d-77e0"
RSS_GROWTH_MIB_MAX = 10.0
CPU_RATIO_MAX = 1.2
PAGE = os.sysconf("SC_PAGE_SIZE")


def rss_mib() -> float:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE / 2**20


@dataclass
class Worker(BenchmarkModel):
    """A model that reads, runs, edits and answers, for ever; it remembers figures, not requests."""

    tree: Path
    steps: int = STEPS  # Requests of one prompt
    seed: int = 1
    views: list[int] = field(default_factory=list)  # Tokens of each request, by its own count
    cpu_ms: list[float] = field(default_factory=list)
    rss: list[float] = field(default_factory=list)
    requests: int = 0  # All, summaries too
    stopped: str = ""  # Why the session would not go on; '' when it did
    ended: float = 0.0
    recalled: str = ""  # Text that `Recall` returned at the end
    first: str = ""  # Handle of the first file's result

    def __post_init__(self) -> None:
        self.budget = budget_of(WINDOW)
        self.random = Random(self.seed)
        self.counter = Counter()
        self.asking = False

    @property
    def turns(self) -> int:
        """Requests of purpose turn so far."""
        return len(self.cpu_ms)

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `models.Model.stream`."""
        begun = time.process_time()
        tokens = self.counter.request(request)
        self._note(request, tokens, begun)
        made = (
            reply("1. Request and intent\nRead on.")
            if request.purpose == "summary"
            else self._turn(request)
        )
        made = Reply(made.parts, made.stop, Usage(0, tokens, 0, 40))
        if self.asking:
            return_text = [
                text_of((i.part,)) for i in request.items if isinstance(i.part, ToolResult)
            ]
            self.recalled = return_text[-1] if return_text else ""
        self.ended = time.process_time()
        yield [made]

    def _note(self, request: Request, tokens: int, now: float) -> None:
        self.requests += 1
        if request.purpose != "turn":
            return
        self.views.append(tokens)
        if not self.first:
            results = [item for item in request.items if isinstance(item.part, ToolResult)]
            self.first = results[0].handle if results else ""
        self.cpu_ms.append((now - self.ended) * 1e3 if self.ended else 0.0)
        if len(self.cpu_ms) % 50 == 0:
            gc.collect()
            self.rss.append(rss_mib())

    def _turn(self, request: Request) -> Reply:
        n = len(self.cpu_ms)
        if self.asking:
            asked = any(
                isinstance(item.part, ToolCall) and item.part.name == "Recall"
                for item in request.items[-4:]
            )
            return reply("done") if asked else reply(ToolCall("", "Recall", {"handle": self.first}))
        if n % self.steps == 0:
            return reply(f"Step {n} is done. {text('prose', 300, self.random)}")
        path = str(self.tree / f"file{1 + (n - 1) % FILES}.py")
        if n % 7 == 3:
            return reply(
                "Now run it.",
                ToolCall("", "Bash", {"command": f"echo run {n}; head -c 1500 {path}"}),
            )
        if n % 31 == 5:
            other = str(self.tree / f"note{n % 17}.md")
            return reply(
                ToolCall(
                    "", "Write", {"file_path": other, "content": text("prose", 900, self.random)}
                )
            )
        return reply(ToolCall("", "Read", {"file_path": path}))


def grow_tree(tree: Path) -> None:
    """Sixty files of some kilobytes; the first holds the secret."""
    random = Random(7)
    for n in range(1, FILES + 1):
        body = text("code", random.randrange(2_000, 9_000), random)
        lines = body.split("\n")
        if n == 1:
            lines.insert(len(lines) // 2, SECRET)
        (tree / f"file{n}.py").write_text("\n".join(lines), encoding="utf-8")


async def soak(folder: Path, turns: int, steps: int, seed: int = 1) -> Worker:
    """Work `turns` requests in `folder`, then ask for file 1."""
    tree, state = folder / "tree", folder / "state"
    tree.mkdir()
    grow_tree(tree)
    worker = Worker(tree, steps, seed)
    session = await Session.open(
        worker, folder=str(tree), state_dir=str(state), permission_mode="bypassPermissions"
    )
    last: list[TurnEnded] = []
    reader = asyncio.ensure_future(_read(session, last))
    while worker.turns < turns and not worker.stopped:
        before = worker.turns
        await session.send(f"Go on with part {worker.turns}: {text('prose', 200, worker.random)}")
        await session.wait()
        await asyncio.sleep(0)
        if worker.turns == before:
            worker.stopped = last[-1].message if last else "no turn ended"
    worker.asking = True
    await session.send("What is the answer of file one, exactly?")
    await session.wait()
    await session.close()
    await reader
    return worker


async def _read(session: Session, last: list[TurnEnded]) -> None:
    """Follow the session as a frontend does; keeps the end of the last turn."""
    async for entry in session.follow(forever=True):
        if isinstance(entry.event, TurnEnded):
            last[:] = [entry.event]


def rows_of(worker: Worker, turns: int) -> list[Row]:
    """The lines of the table."""
    usable = worker.budget.usable_tokens
    early, late = median(worker.cpu_ms[200:400] or worker.cpu_ms), median(worker.cpu_ms[-200:])
    start, end = worker.rss[3] if len(worker.rss) > 4 else worker.rss[0], worker.rss[-1]
    what = f"soak, a prompt for {worker.steps} turns: "
    found, whole, over = (
        SECRET in worker.recalled,
        worker.turns >= turns,
        max(worker.views) - usable,
    )
    asked = f"{worker.turns} turns, {worker.requests} requests"
    share = f"{max(worker.views) / usable:.3f}"
    return [
        Row(what + "turns", str(worker.turns), str(turns), whole, worker.stopped),
        Row(what + "largest view / usable, as the provider counts", share, "≤ 1", over <= 0, asked),
        Row(
            what + "RSS, turns 200 to the last",
            f"{end - start:+.1f} MiB",
            f"≤ +{RSS_GROWTH_MIB_MAX:.0f} MiB",
            end - start <= RSS_GROWTH_MIB_MAX and whole,
            f"{start:.0f} to {end:.0f} MiB",
        ),
        Row(
            what + "median CPU, last 200 turns / turns 200 to 400",
            f"{late / early:.2f}",
            f"≤ {CPU_RATIO_MAX}",
            late <= CPU_RATIO_MAX * early and whole,
            f"{early:.2f} and {late:.2f} ms",
        ),
        Row(
            what + "exact answer about file 1 by Recall",
            "found" if found else "not found",
            "found",
            found,
        ),
    ]


def measure(turns: int = TURNS, steps: Sequence[int] = (STEPS, CHATTY)) -> list[Row]:
    """Return the rows of the table. Each session runs in a process of its own."""
    return [row for each in steps for row in _measured(turns, each)]


def _measured(turns: int, steps: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": home,
            "PYTHONPATH": os.getcwd(),
            "LANG": "C.UTF-8",
        }
        command = [
            sys.executable,
            "-m",
            "lab.context.soak",
            str(turns),
            str(steps),
            "--json",
        ]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    return [Row(**fields) for fields in json.loads(done.stdout.splitlines()[-1])]


def main(arguments: Sequence[str]) -> int:
    """Run the program."""
    numbers = [int(argument) for argument in arguments if argument.isdigit()]
    turns = numbers[0] if numbers else TURNS
    if "--json" not in arguments:
        return print_table(measure(turns, numbers[1:] or (STEPS, CHATTY)))
    with tempfile.TemporaryDirectory() as folder:
        worker = asyncio.run(soak(Path(folder), turns, numbers[1]))
    print("RSS each 50 turns:", " ".join(f"{mib:.1f}" for mib in worker.rss), file=sys.stderr)
    print(json.dumps([asdict(row) for row in rows_of(worker, turns)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
