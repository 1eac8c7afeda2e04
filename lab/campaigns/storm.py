"""Many subagents and tasks at once: 32 subagents and 200 background tasks with provider faults, and
a runaway tree.

    python -m lab.campaigns.storm

Runs the installed command with real processes, a real database and the loopback provider, which
fails at random. The logs are checked afterwards:

- Each end of a task and each report reaches the model once, and at most a second after the last
  one.
- The money spent is within the cap and one call.
- A recursion bomb stays within its caps, and the user gets an answer.
- Reporting the 10,000th end costs the same as reporting the first.

Prints a table of results and targets; the exit code is 1 when a target is missed.
"""

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import msgspec

from longrein.store import Reader
from longrein.testing.loopback import Call, Fault, Received, Turn
from longrein_context import Budget, Price, State, due_reminders, step
from longrein_context.events import (
    Asked,
    AskFailed,
    Entry,
    Opened,
    PrefixSet,
    Reminded,
    Replied,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    Text,
    UserSpoke,
)
from tests.e2e.harness import CliHarness, Provider, RunResult
from tests.work_counters import functions_called

PRICES = """
[models."served/small"]
window = 200000
max_output = 4000
price_input = 3.0
price_output = 15.0
price_cache_read = 0.3
price_cache_write = 3.75
"""
CALLS_AT_ONCE = 20
"""Background tasks that one reply starts."""
ENDED = re.compile(
    r"^\* ((?:a\d+\.)*b\d+)\b.*?: (?:done|failed|timed out|killed|lost)\b", re.MULTILINE
)
REPORTED = re.compile(r"^\* (a\d+)(?: \(.*\))?: (?:done|failed|limit|interrupted)\b", re.MULTILINE)
MORE = re.compile(r"^\* and \d+ more that do not fit here: (.*)$", re.MULTILINE)
"""Matches the line that only names ends, where many came at once."""
FAULTS = (
    Fault(kind="status", status=429, headers={"retry-after": "0"}),
    Fault(kind="status", status=529),
    Fault(kind="status", status=503),
    Fault(kind="cut", at=300, how="reset"),
    Fault(kind="cut", at=500, how="close"),
    Fault(kind="no_end"),
)


def expand_names(line: str) -> list[str]:
    """Return the names in such a line: `b3, b16-b19` gives five."""
    found = re.findall(r"((?:a\d+\.)*)([ab])(\d+)(?:-(?:a\d+\.)*[ab](\d+))?", line)
    return [
        f"{owner}{kind}{n}"
        for owner, kind, low, high in found
        for n in range(int(low), int(high or low) + 1)
    ]


class Row(msgspec.Struct):
    """One line of the table."""

    measure: str
    found: str
    reach: str
    fine: bool
    timed: bool = False
    """Whether the clock decides: checked by the campaign, not by the suite."""

    def __str__(self) -> str:
        return (
            f"{'ok  ' if self.fine else 'FAIL'} {self.measure:58} {self.found:>26}   {self.reach}"
        )


class FaultyProvider(Provider):
    """A loopback provider in a thread that answers with `answer` and fails at random."""

    def __init__(self, answer: Callable[[Received], Turn], *, faults: float, seed: int) -> None:
        super().__init__(script=self._turn)
        self._answer, self._share = answer, faults
        self._random = Random(seed)
        self.failed = 0

    def _turn(self, request: Received) -> Turn:
        turn = self._answer(request)
        if turn.fault is None and self._random.random() < self._share:
            self.failed += 1
            return msgspec.structs.replace(turn, fault=self._random.choice(FAULTS))
        return turn


def replies_in(request: Received) -> int:
    """Return how often the model has answered already in this conversation."""
    return request.parsed.replies if request.parsed is not None else 0


def several(count: int, name: str, task: str, **more: object) -> Turn:
    """Return a reply that starts `count` subagents."""
    parts = [
        {"description": f"{name.lower()} {n}", "prompt": f"{name} {n}: {task}."}
        for n in range(count)
    ]
    return Turn(calls=(Call("Agent", {"description": "all", "tasks": parts, **more}),))


class RunLogs:
    """The logs that a run left on disk."""

    def __init__(self, stage: CliHarness) -> None:
        reader = Reader(str(stage.state), stage.session)
        try:
            self.root = list(reader.entries())
            self.all: dict[str, list[Entry]] = {"": self.root}
            waiting = [("", self.root)]
            while waiting:
                _, entries = waiting.pop()
                for entry in entries:
                    event = entry.event
                    if isinstance(event, SubagentStarted) and event.child not in self.all:
                        log = list(reader.session_reader(reader.number_of(event.child)).entries())
                        opened = next(
                            e
                            for e in log
                            if isinstance(e.event, Opened) and e.event.session == event.child
                        )
                        self.all[event.child] = [e for e in log if e.seq >= opened.seq]
                        waiting.append((event.child, self.all[event.child]))
        finally:
            reader.close()

    def of(self, kind: type) -> list[Entry]:
        """Return entries of all sessions with such an event."""
        return [
            entry for log in self.all.values() for entry in log if isinstance(entry.event, kind)
        ]

    @property
    def spent_usd(self) -> float:
        """Money spent by the logs alone: replies, and the assumed cost of failed requests."""
        replied = sum(e.event.cost_usd for e in self.of(Replied) if isinstance(e.event, Replied))
        return replied + sum(
            e.event.assumed_usd for e in self.of(AskFailed) if isinstance(e.event, AskFailed)
        )

    @property
    def dearest_usd(self) -> float:
        """Highest reserved cost of one request."""
        return max(
            (e.event.reserved_usd for e in self.of(Asked) if isinstance(e.event, Asked)),
            default=0.0,
        )

    def told(self, pattern: re.Pattern[str]) -> Counter[str]:
        """Count how often each name was reported to the root's model."""
        told: Counter[str] = Counter()
        for text in (e.event.text for e in self.root if isinstance(e.event, Reminded)):
            told.update(pattern.findall(text))
            kind = "b" if pattern is ENDED else "a"
            told.update(
                name
                for line in MORE.findall(text)
                for name in expand_names(line)
                if kind in name.rpartition(".")[2]
            )
        return told

    @property
    def wait_s(self) -> float:
        """Time from the last end to the request that reports it."""
        ends = [e for e in self.root if isinstance(e.event, TaskEnded | SubagentEnded)]
        if not ends:
            return 0.0
        asked = [
            e
            for e in self.root
            if isinstance(e.event, Asked) and e.event.purpose == "turn" and e.seq > ends[-1].seq
        ]
        return (asked[0].at - ends[-1].at) / 1e6 if asked else float("inf")


def run(
    stage: CliHarness,
    weather: FaultyProvider,
    words: str,
    settings: str = "",
    *flags: str,
    limit_s: float = 300.0,
) -> RunResult:
    """Run one headless prompt against this provider."""
    stage.settings(weather.settings("anthropic", settings + PRICES), "served/small")
    return stage.run("-p", words, "--permission-mode", "bypassPermissions", *flags, limit_s=limit_s)


def spent(logs: RunLogs, cap: float) -> Row:
    """The money spent is within the cap and one call."""
    fine = logs.spent_usd <= cap + logs.dearest_usd
    return Row(
        "  spent of the cap", f"${logs.spent_usd:.3f} of ${cap:.2f}", "≤ cap + one call", fine
    )


def answered(what: str, ran: RunResult, text: str) -> Row:
    """The run ended well, with this answer."""
    found = f"{ran.code}, {ran.text.strip()[:20]!r}"
    return Row(f"{what}: exit code, answer", found, "0", ran.told()[:2] == (0, text))


# --- 32 subagents, 200 tasks ----------------------------------------------------------------------


def storm_model(
    agents: int, tasks: int, random: Random, most_s: float
) -> Callable[[Received], Turn]:
    """A main agent that starts everything and then only takes note; subagents that run one
    command each.
    """
    rounds = -(-tasks // CALLS_AT_ONCE)

    def bash(n: int) -> Call:
        command = (
            f"sleep {random.uniform(0.1, most_s):.2f}; echo task {n}; exit "
            f"{random.choice((0, 0, 0, 1))}"
        )
        return Call("Bash", {"command": command, "run_in_background": True})

    def main(replies: int) -> Turn:
        if replies == 0:
            return several(agents, "PART", "run it", run_in_background=True)
        if replies <= rounds:
            first = (replies - 1) * CALLS_AT_ONCE
            return Turn(
                calls=tuple(bash(n) for n in range(first, min(first + CALLS_AT_ONCE, tasks)))
            )
        return Turn(text=f"noted {replies}")

    def answer(request: Received) -> Turn:
        replies = replies_in(request)
        if "PART" in request.opening:
            if replies == 0:
                command = f"sleep {random.uniform(0.1, most_s):.2f}; echo part"
                return Turn(text="I run it.", calls=(Call("Bash", {"command": command}),))
            return Turn(text="the report of this part")
        return main(replies)

    return answer


def storm(
    folder: Path, agents: int = 32, tasks: int = 200, *, seed: int = 1, most_s: float = 6.0
) -> list[Row]:
    """Run subagents, tasks and faults at once."""
    stage, cap, random = CliHarness(folder), 12.0, Random(seed)
    with FaultyProvider(
        storm_model(agents, tasks, random, most_s), faults=0.12, seed=seed
    ) as weather:
        ran = run(stage, weather, "STORM", "", "--max-budget-usd", str(cap))
        refused, failed = weather.refused, weather.failed
    logs = RunLogs(stage)
    begun = len(
        [e for e in logs.root if isinstance(e.event, TaskStarted) and e.event.state == "running"]
    )
    ended, reports = logs.told(ENDED), logs.told(REPORTED)
    twice = [name for name, times in (ended + reports).items() if times > 1]
    children = [e.event for e in logs.of(SubagentEnded) if isinstance(e.event, SubagentEnded)]
    what = f"{agents} subagents + {tasks} tasks, faults on"
    return [
        Row(f"{what}: exit code", str(ran.code), "0", ran.code == 0),
        Row("  faults met", str(failed), "> 0", failed > 0),
        Row("  requests that broke a rule of the wire", str(len(refused)), "0", not refused),
        Row(
            "  tasks run, ended, told",
            f"{begun}, {len(logs.of(TaskEnded))}, {len(ended)}",
            f"{tasks} each",
            begun
            == len(ended)
            == tasks
            == len([e for e in logs.root if isinstance(e.event, TaskEnded)]),
        ),
        Row(
            "  subagents ended, told",
            f"{len(children)}, {len(reports)}",
            f"{agents} each",
            len(children) == len(reports) == agents,
        ),
        Row("  told twice", str(len(twice)), "0", not twice),
        spent(logs, cap),
        Row(
            "  from the last end to the request that tells it",
            f"{logs.wait_s:.2f} s",
            "≤ 1 s",
            logs.wait_s <= 1.0,
            True,
        ),
        Row("  whole run", f"{ran.seconds:.1f} s", "", True),
        Row("  processes left", str(len(stage.wait_survivors())), "0", not stage.survivors()),
    ]


# --- A runaway tree -------------------------------------------------------------------------------


def bomb(folder: Path) -> list[Row]:
    """Every agent starts four more."""
    stage, depth, spawns = CliHarness(folder), 3, 24

    def answer(request: Received) -> Turn:
        replies = replies_in(request)
        if replies < 2:
            return several(4, "BOMB", "go on")
        return Turn(text="that is all")

    settings = f"[limits]\nagents_depth = {depth}\nagents_spawns = {spawns}\n"
    with FaultyProvider(answer, faults=0.0, seed=2) as weather:
        ran = run(stage, weather, "BOMB", settings, "--max-budget-usd", "5")
    logs = RunLogs(stage)
    started = len(logs.of(SubagentStarted))
    labels = [e.event.label for e in logs.of(Opened) if isinstance(e.event, Opened)]
    deepest = max(label.count("a") for label in labels)
    return [
        answered("recursion bomb", ran, "that is all\n"),
        Row("  subagents started", str(started), f"≤ {spawns}", 0 < started <= spawns),
        Row("  deepest level", str(deepest), f"≤ {depth}", deepest <= depth),
        spent(logs, 5),
    ]


# --- Ten thousand notices -------------------------------------------------------------------------


def _one_notice(state: State, budget: Budget, task: str, told: Counter[str]) -> State:
    """A task starts, ends and is reported."""
    for event in (TaskStarted(task, "make"), TaskEnded(task, "done", 0, elapsed_ms=5)):
        state = step(state, Entry(state.seq + 1, state.at + 1, event))
    for reminded in due_reminders(state, budget, state.at):
        state = step(state, Entry(state.seq + 1, state.at + 1, reminded))
        told.update(ENDED.findall(reminded.text))
    seq = state.seq + 1
    asked = Asked("turn", seq - 1, 2)
    state = step(state, Entry(seq, state.at + 1, asked))
    return step(state, Entry(seq + 1, state.at + 1, Replied(seq, (Text("ok"),), "end")))


def notices(count: int = 10_000, batch: int = 100) -> list[Row]:
    """Measure the engine alone: the cost of reporting the first and the last hundred tasks."""
    budget = Budget(4_000_000, 8_000, Price(3, 15, 0.3, 3.75))
    state = State()
    first = Opened(1, "s", "n0nce", ("/w",), "/w")
    prefix = PrefixSet("start", "test", "big", "scripted", "Be good.")
    for begun in (first, prefix, UserSpoke((Text("go"),))):
        state = step(state, Entry(state.seq + 1, state.at + 1, begun))
    called: list[int] = []
    told: Counter[str] = Counter()
    for begin in range(0, count, batch):
        with functions_called(called):
            for n in range(begin, begin + batch):
                state = _one_notice(state, budget, f"b{n + 1}", told)
    early, late = (
        min(called[5:10]) // batch,
        min(called[-5:]) // batch,
    )  # the first hundreds are still being shown
    return [
        Row(
            f"{count} notices: told once",
            f"{sum(n == 1 for n in told.values())}",
            f"{count}",
            len(told) == count and max(told.values()) == 1,
        ),
        Row(
            "  functions called for one, early and late",
            f"{early}, {late}",
            "≤ 1.5 x",
            late <= 1.5 * early,
        ),
    ]


PARTS: dict[str, Callable[[Path], list[Row]]] = {
    "storm": storm,
    "bomb": bomb,
    "notices": lambda _folder: notices(),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run all parts, or the named ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", choices=[[], *PARTS], help="which; all when none is named"
    )
    told = parser.parse_args(argv)
    failed = 0
    for name in told.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix=f"storm-{name}-") as folder:
            for row in PARTS[name](Path(folder)):
                failed += not row.fine
                print(row, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
