"""Cost of one new entry: `step`, then `decide`, in sessions of a thousand to a hundred thousand
entries.

    python -m lab.context.speed [SIZE …]
    python -m lab.context.speed --sessions DIR      # a request of the five longest sessions

A long session at a 200k window is folded, and its own decisions are applied. At each size the next
thousand entries are timed one by one. The cost must stay under a millisecond and must not depend on
the length of the history.
"""

import gc
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from lab.context.counting import Counter
from lab.context.material import text
from lab.context.playing import budget_of
from lab.context.table import Row, print_table
from lab.policy import read, sessions_in
from lab.replay import replay_of
from lab.simulate import budget_of as price_budget
from longrein.tools import builtin_tools
from longrein_context import (
    Clear,
    Digest,
    State,
    Summarise,
    Swap,
    births,
    build_summary,
    decide,
    render,
    step,
)
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Asked,
    Entry,
    FileSeen,
    Opened,
    PrefixSet,
    Replied,
    Text,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSpoke,
    call_id,
)

SIZES = (1_000, 10_000, 100_000)
TIMED = 1_000
WINDOW = 200_000
LIMIT_MS = 1.0
SECOND_US = 1_000_000


@dataclass
class LongSession:
    """A session without a loop that goes on for ever."""

    window: int = WINDOW
    session: str = "0" * 8
    root: str = "/w"
    results: tuple[int, ...] = (60, 400, 1_500, 4_000)  # Characters that results have
    state: State = field(default_factory=State)
    took_ms: list[float] = field(
        default_factory=list
    )  # Milliseconds of `step` and `decide`, per entry
    kinds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(3)
        self.budget = budget_of(self.window)
        self.counter = Counter()
        self.at = 1_700_000_000 * SECOND_US
        self.pool = [
            text(kind, max(self.results), self.random)
            for kind in ("files", "code", "log", "prose")
            for _ in range(40)
        ]
        specs = tuple(tool.spec for tool in builtin_tools())
        self.add(Opened(SCHEMA_VERSION, self.session, "n0nce", (self.root,), self.root))
        self.add(
            PrefixSet("start", "mock", "small", "anthropic", "Be good. " * 200, specs, ("# here",))
        )

    def add(self, event: AnyEvent) -> int:
        """Add one entry and time it with the decision after it."""
        self.at += SECOND_US
        entry = Entry(self.state.seq + 1, self.at, event)
        begun = time.thread_time()
        self.state = step(self.state, entry)
        if not self.state.calls and self.state.asked is None:
            self.decision = decide(self.state, self.budget, self.at)
        self.took_ms.append((time.thread_time() - begun) * 1e3)
        self.kinds.append(type(event).__name__)
        return self.state.seq

    def step(self, n: int) -> None:
        """A step: what the policy wants, a request, an answer, its results."""
        if n % 12 == 0:
            self.add(
                UserSpoke((Text(f"go on with part {n}: {self.random.choice(self.pool)[:200]}"),))
            )
        self._obey()
        forms = births(self.state, self.budget)
        seq = self.add(
            Asked("turn", self.state.seq, self.state.prefix_seq, forms, self.state.view_tokens, 0.1)
        )
        used = Usage(0, self.state.gauge.raw, 0, 60)
        calls = tuple(
            self._call(seq, k)
            for k in range(0 if n % 12 == 11 else self.random.choice([1, 1, 2, 4]))
        )
        said = Text(self.random.choice(self.pool)[:300])
        self.add(Replied(seq, (said, *calls), "calls" if calls else "end", used))
        for call in calls:
            self.add(ToolStarted(call.id, call.name))
        for call in calls:
            path = str((call.arguments or {}).get("file_path", ""))
            self.add(FileSeen(path, f"{self.random.randrange(10**6):064d}"))
            result = self.random.choice(self.pool)[: self.random.choice(self.results)]
            self.add(ToolEnded(call.id, call.name, "ok", (Text(result),)))
        if not calls:
            self.add(TurnEnded("done"))

    def _call(self, seq: int, k: int) -> ToolCall:
        path = f"/w/src/part{self.random.randrange(400)}.py"
        return ToolCall(call_id(seq, k), "Read", {"file_path": path})

    def _obey(self) -> None:
        for _ in range(8):
            match decide(self.state, self.budget, self.at):
                case Clear(event):
                    self.add(event)
                case Digest(event):
                    self.add(event)
                case Summarise(first=first, last=last, reason=reason):
                    if self.state.summarising is not None or self.state.summary is not None:
                        return
                    ask = Asked(
                        "summary",
                        self.state.seq,
                        self.state.prefix_seq,
                        (),
                        0,
                        0.1,
                        "",
                        first,
                        last,
                        reason,
                    )
                    self.add(
                        Replied(self.add(ask), (Text("1. Request and intent\nGo on."),), "end")
                    )
                case Swap(first=first, last=last, reason=reason, prose=prose, asked=asked):
                    self.add(
                        build_summary(
                            self.state, self.budget, (first, last), reason, prose, (asked,)
                        )
                    )
                case _:
                    return


@dataclass
class EntryTimes:
    """Cost of a thousand entries at one size."""

    entries: int
    median_ms: float
    p99_ms: float
    worst_ms: float
    items: int
    slowest: str


def time_entries(
    sizes: tuple[int, ...] = SIZES, window: int = WINDOW, count: int = TIMED
) -> list[EntryTimes]:
    """Grow one session and time `count` entries at each of `sizes`."""
    long, found, n = LongSession(window), [], 0
    for size in sizes:
        n = _until(long, size - count, n)
        long.took_ms.clear()
        long.kinds.clear()
        gc.collect()
        gc.disable()  # a collection is charged to whoever allocates last
        n = _until(long, size, n)
        gc.enable()
        took = sorted(long.took_ms)
        slowest = max(zip(long.took_ms, long.kinds, strict=True))
        found.append(
            EntryTimes(
                long.state.seq,
                median(took),
                took[int(0.99 * len(took))],
                took[-1],
                len(long.state.items),
                slowest[1],
            )
        )
    return found


def _until(long: LongSession, size: int, n: int) -> int:
    while long.state.seq < size:
        long.step(n)
        n += 1
        if len(long.took_ms) > 5_000:
            long.took_ms.clear()
            long.kinds.clear()
    return n


def request_ms(long: LongSession, count: int = 50) -> float:
    """Median time to render the view of `long`: what a request costs before any wire has seen
    it.
    """
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        render(long.state, long.budget)
        took.append((time.perf_counter() - begun) * 1e3)
    return median(took)


def time_requests(folder: Path, count: int = 5) -> list[Row]:
    """Replay the sessions with the most requests and time each request: all its entries, and the
    decisions. The work of the replay itself counts, too.
    """
    sessions = sorted(map(read, sessions_in(folder)), key=lambda one: -one.requests)[:count]
    took = []
    for session in sessions:
        gc.collect()
        gc.disable()
        begun = time.thread_time()
        for _ in replay_of("default", session, price_budget("anthropic", WINDOW)).changes():
            took.append((time.thread_time() - begun) * 1e3)
            begun = time.thread_time()
        gc.enable()
    took.sort()
    what = f"step + decide per request, {len(sessions)} longest sessions, {len(took)} requests"
    p99 = took[int(0.99 * len(took))]
    return [
        Row(f"{what}, median", f"{median(took):.2f} ms", "≤ 2 ms", median(took) <= 2),
        Row(f"{what}, p99", f"{p99:.2f} ms", "≤ 10 ms", p99 <= 10, f"worst {took[-1]:.1f} ms"),
    ]


def rows_of(found: list[EntryTimes], limit_ms: float = LIMIT_MS) -> list[Row]:
    """Return the rows of the table."""
    few, many = found[0], found[-1]
    each = "; ".join(
        f"{t.entries}: {t.median_ms:.3f}, p99 {t.p99_ms:.2f}, worst {t.worst_ms:.1f} ({t.slowest}), {t.items} items"  # noqa: E501
        for t in found
    )
    ratio = many.median_ms / few.median_ms
    what, reach = f"step + decide per entry at {many.entries} entries", f"≤ {limit_ms:.0f} ms"
    return [
        Row(f"{what}, median", f"{many.median_ms:.3f} ms", reach, many.median_ms <= limit_ms, each),
        Row(f"{what}, p99", f"{many.p99_ms:.2f} ms", reach, many.p99_ms <= limit_ms),
        Row(f"step + decide: {many.entries} entries / {few.entries} entries", f"{ratio:.2f}",
        "≤ 1.5", ratio <= 1.5),
    ]  # fmt: skip


def measure() -> list[Row]:
    """Return the rows of the table."""
    return rows_of(time_entries())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sessions"]:
        sys.exit(print_table(time_requests(Path(sys.argv[2]))))
    numbers = tuple(int(argument) for argument in sys.argv[1:])
    sys.exit(print_table(rows_of(time_entries(numbers or SIZES))))
