"""longrein beside the floor: `make bench` prints the table of lab/performance.md and keeps it in
`lab/out`.

Both run as installed commands with the same Python, against the same loopback server in its own
process, interleaved. longrein runs as a user gets it: sandbox, checkpoints, log and permissions
(allow rules, so that each call is judged). After the table stand variants: a floor on another
client, longrein without sandbox, without checkpoints and without both, and other agents where
`make clients` has installed them. CPU is user + system of the harness and its children; overhead of
a turn is the time from the end of a response to the arrival of the next request, as the server saw
it. Machines are noisy: read the ratios.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.beside import AGENTS, COMMAND, Agent
from tests.standards.peers import environment as environment_of_agent

HERE = Path(__file__).parent
LONGREIN = Path(sys.executable).parent / "longrein"
PROMPT = "go"
HARNESSES = ("floor", "longrein")
VARIANTS: dict[str, dict[str, str]] = {
    "longrein without sandbox": {"LONGREIN_SANDBOX_MODE": "off"},
    "longrein without checkpoints": {"LONGREIN_CHECKPOINT_MB": "0"},
    "longrein without both": {
        "LONGREIN_SANDBOX_MODE": "off",
        "LONGREIN_CHECKPOINT_MB": "0",
    },
}
"""Variant of longrein -> its settings."""
PEERS = {agent.name: agent for agent in AGENTS if agent.name.startswith(("Codex", "pi"))}
READS = 300
"""Files that are read, one a turn. No call is made twice: who repeats one is told that nothing
moves.
"""


@dataclass
class RunResult:
    """Figures of a run of one harness."""

    cpu_s: float
    wall_s: float
    rss_kib: int
    exited_s: float
    stats: list[dict[str, Any]]
    first_cpu_s: float = 0.0

    @property
    def overheads_s(self) -> list[float]:
        pairs = zip(self.stats, self.stats[1:], strict=False)
        return [after["received_s"] - before["finished_s"] for before, after in pairs]


class Bench:
    """A folder, a server per script, and the two harnesses."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder = folder
        self.rounds = rounds
        self.rows: list[tuple[str, str, str, str, str]] = []
        self.figures: dict[str, Any] = {}
        self.tree = folder / "tree"
        self.tree.mkdir()
        for file in range(READS):
            text = "".join(
                f"line {n:03d} of file {file:03d}, forty-odd bytes\n" for n in range(200)
            )
            (self.tree / f"file{file:03d}.txt").write_text(text)

    # --- running ----------------------------------------------------------------------------------

    def serve(self, script: dict[str, Any]) -> tuple["subprocess.Popen[bytes]", str]:
        path = self.folder / "script.json"
        path.write_text(json.dumps({"turns": expand_turns(script["turns"])}))
        command = [
            sys.executable,
            "-m",
            "longrein.testing.loopback",
            "--script",
            str(path),
            "--lenient",
        ]
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, env=clean_environment()
        )
        assert server.stdout is not None
        return server, f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"

    def command(self, harness: str, url: str) -> tuple[list[str], dict[str, str]]:
        environment = clean_environment()
        if harness in PEERS:
            return self._command_of_peer(harness, url)
        if harness.startswith("floor"):
            client = harness.partition(" on ")[2] or "httpx"
            return [sys.executable, str(HERE / "floor.py"), url, PROMPT, client], environment
        home = Path(tempfile.mkdtemp(dir=self.folder))
        settings = home / ".config" / "longrein"
        settings.mkdir(parents=True)
        (settings / "config.toml").write_text(
            f'model = "mock/small"\n[providers.mock]\nwire = "anthropic"\nbase_url = "{url}"\n'
            '[models."mock/small"]\nwindow = 10000000\nmax_output = 8192\n'
            "price_input = 3\nprice_output = 15\n"  # where nothing is charged nothing is cleared
        )
        environment |= {"HOME": str(home), "LONGREIN_STATE_DIR": str(home / "state")}
        environment |= VARIANTS.get(harness, {})
        return [str(LONGREIN), "-p", PROMPT, "--allowedTools", "Bash,Read"], environment

    def _command_of_peer(self, harness: str, url: str) -> tuple[list[str], dict[str, str]]:
        agent, home = PEERS[harness], Path(tempfile.mkdtemp(dir=self.folder))
        agent.set_up(home, url)
        environment = environment_of_agent(home) | {"NO_PROXY": "127.0.0.1"}
        return [str(agent.program), *agent.first, PROMPT], environment

    def run(
        self, harness: str, script: dict[str, Any], *, first_cpu: bool = False, bypass: bool = False
    ) -> RunResult:
        """`bypass`: no rule allows a compound command, so longrein is told to ask for nothing."""
        server, url = self.serve(script)
        try:
            command, environment = self.command(harness, url)
            if bypass and harness.startswith("longrein"):
                command += ["--permission-mode", "bypassPermissions"]
            begun = time.monotonic()
            process = subprocess.Popen(
                command,
                cwd=self.tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL if harness in PEERS else None,
            )
            first = cpu_at_first_request(process.pid, url) if first_cpu else 0.0
            _, status, usage = os.wait4(process.pid, 0)
            exited = time.monotonic()
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                raise SystemExit(f"{harness} ended with {process.returncode}")
            cpu = usage.ru_utime + usage.ru_stime
            return RunResult(cpu, exited - begun, usage.ru_maxrss, exited, stats_of(url), first)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()

    def both(
        self,
        script: dict[str, Any],
        rounds: int = 0,
        *,
        harnesses: Sequence[str] = HARNESSES,
        **more: Any,
    ) -> dict[str, list[RunResult]]:
        runs: dict[str, list[RunResult]] = {harness: [] for harness in harnesses}
        for _ in range(rounds or self.rounds):
            for harness in harnesses:
                runs[harness].append(self.run(harness, script, **more))
        return runs

    # --- telling ----------------------------------------------------------------------------------

    def row(
        self, what: str, floor: float | None, ours: float, unit: str, reach: str, met: bool
    ) -> None:
        ratio = f"{ours / floor:.2f} ×" if floor else ""
        shown = f"{floor:.3g} {unit}" if floor is not None else "–"
        verdict = reach if reach == "–" else f"{reach} {'met' if met else 'MISSED'}"
        self.rows.append((what, shown, f"{ours:.3g} {unit}", ratio, verdict))
        self.figures[what] = {
            "floor": floor,
            "longrein": ours,
            "unit": unit,
            "reach": reach,
            "met": met,
        }
        print(
            f"{what:<58} {shown:>12} {ours:>9.3g} {unit:<7} {ratio:>7}  {verdict}",
            flush=True,
        )

    def table(self) -> str:
        head = "| what | floor | longrein | ratio | reach |\n|---|---|---|---|---|\n"
        return head + "".join("| " + " | ".join(row) + " |\n" for row in self.rows)


def clean_environment() -> dict[str, str]:
    kept = ("PATH", "LANG", "TMPDIR")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": os.environ.get("HOME", "/")
    }


def expand_turns(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Expand the `repeat` entries."""
    return [
        {k: v for k, v in turn.items() if k != "repeat"}
        for turn in turns
        for _ in range(turn.get("repeat", 1))
    ]


def stats_of(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/_loopback/report") as answer:
        times = json.loads(answer.read())["times"]
    return [
        {"received_s": at, "finished_s": finished, "body_bytes": size}
        for at, finished, size in times
    ]


def cpu_at_first_request(pid: int, url: str) -> float:
    """Return the CPU seconds of all threads of `pid` at the server's first request."""
    while not stats_of(url):
        time.sleep(0.01)
    return (
        sum(
            int((task / "schedstat").read_text().split()[0])
            for task in Path(f"/proc/{pid}/task").iterdir()
        )
        / 1e9
    )


def median(values: list[float]) -> float:
    return statistics.median(values)


def median_of(runs: list[RunResult], figure: Callable[[RunResult], float]) -> float:
    return median([figure(run) for run in runs])


def bash(command: str, times: int = 1) -> dict[str, Any]:
    return {"calls": [{"name": "Bash", "arguments": {"command": command}}] * times}


def say(**more: Any) -> dict[str, Any]:
    return {"text": "done", **more}


def flush_s(folder: Path) -> float:
    """Median of one `fdatasync` of a small append in `folder`, a few milliseconds apart as in a
    session: a disk that rested takes longer than one that is hammered.
    """
    times = []
    with open(folder / "flush", "ab", buffering=0) as file:
        for _ in range(100):
            time.sleep(0.003)
            file.write(b"x" * 4096)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return median(times)


# --- the measures ---------------------------------------------------------------------------------


def first_request_s(run: RunResult) -> float:
    """Seconds from the start of a harness to its first request."""
    return run.wall_s - (run.exited_s - run.stats[0]["received_s"])


def answers(bench: Bench) -> None:
    """CPU of answers that need no session, beside a Python that does nothing."""

    def cpu_ms(command: list[str]) -> float:
        times = []
        for _ in range(max(9, bench.rounds)):
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
            times.append(1000 * (usage.ru_utime + usage.ru_stime))
        return median(times)

    floor = cpu_ms([sys.executable, "-c", "pass"])
    for words in ("--version", "--help", "--mistyped"):
        ours = cpu_ms([str(LONGREIN), words])
        bench.row(f"longrein {words}, CPU", floor, ours, "ms", "≤ 3 ×", ours <= 3 * floor)


def cold_start(bench: Bench) -> None:
    runs = bench.both({"turns": [say(delay_s=0.4)]}, max(7, bench.rounds), first_cpu=True)
    floor, ours = (1000 * median_of(runs[h], lambda r: r.first_cpu_s) for h in HARNESSES)
    bench.row("cold start to first request, CPU", floor, ours, "ms", "≤ 1.1 ×", ours <= 1.1 * floor)
    floor, ours = (1000 * median_of(runs[h], first_request_s) for h in HARNESSES)
    bench.row(
        "cold start to first request, wall", floor, ours, "ms", "≤ 1.1 ×", ours <= 1.1 * floor
    )
    shutdown = 1000 * median_of(runs["longrein"], lambda r: r.exited_s - r.stats[-1]["finished_s"])
    floor = 1000 * median_of(runs["floor"], lambda r: r.exited_s - r.stats[-1]["finished_s"])
    bench.row("last response to exit", floor, shutdown, "ms", "≤ 30 ms", shutdown <= 30)
    body = runs["longrein"][0].stats[0]["body_bytes"] / 1000
    bench.row(
        "first request, body",
        runs["floor"][0].stats[0]["body_bytes"] / 1000,
        body,
        "kB",
        "≤ 14 kB",
        body <= 14,
    )


SHELL_TURNS = [*(bash(f"true {n}") for n in range(20)), say()]


def shell_turn_s(share: float) -> Callable[[RunResult], float]:
    """Return a figure of a run of `SHELL_TURNS`: the overhead that this share of its turns does not
    exceed.
    """
    return lambda run: sorted(run.overheads_s)[round(share * (len(run.overheads_s) - 1))]


def variants(bench: Bench) -> None:
    """Start and shell turn of other floors, of longrein without what its user has by default."""
    harnesses = ("floor on httpx2", *VARIANTS)
    starts = bench.both({"turns": [say(delay_s=0.4)]}, harnesses=harnesses, first_cpu=True)
    turns = bench.both({"turns": SHELL_TURNS}, harnesses=harnesses)
    for harness in harnesses:
        for what, figure, runs in (
            ("start, CPU", lambda run: run.first_cpu_s, starts),
            ("start, wall", first_request_s, starts),
            ("shell turn, median", shell_turn_s(0.5), turns),
            ("shell turn, p95", shell_turn_s(0.95), turns),
        ):
            got = 1000 * median_of(runs[harness], figure)
            bench.row(f"{harness}: {what}", None, got, "ms", "–", True)


def shell_turns(bench: Bench) -> None:
    """Two rows each: with a model that answers at once, as no model does, and with one that takes a
    tenth of a second.
    """
    bench.row("flush (p50 of fdatasync)", None, 1000 * flush_s(bench.folder), "ms", "–", True)
    for model, delay_s in (("", 0.0), (" after 0.1 s of the model", 0.1)):
        runs = bench.both({"turns": [{**turn, "delay_s": delay_s} for turn in SHELL_TURNS]})
        for what, share, limit in (("median", 0.5, 4.5), ("p95", 0.95, 10.0)):
            floor, ours = (1000 * median_of(runs[h], shell_turn_s(share)) for h in HARNESSES)
            bench.row(
                f"trivial shell turn{model}, overhead, {what}",
                floor,
                ours,
                "ms",
                f"≤ {limit:g} ms",
                ours <= limit,
            )


def many_reads(bench: Bench) -> None:
    reads = [
        {"calls": [{"name": "Read", "arguments": {"file_path": f"file{n:03d}.txt"}}]}
        for n in range(READS)
    ]
    runs = bench.both({"turns": [*reads, say()]}, max(2, bench.rounds // 2))
    floor, ours = (1000 * median_of(runs[h], lambda r: r.cpu_s / 300) for h in HARNESSES)
    bench.row("300 reads: CPU per turn", floor, ours, "ms", "≤ 0.75 ×", ours <= 0.75 * floor)

    def growth(run: RunResult) -> float:
        return 1000 * (median(run.overheads_s[-20:]) - median(run.overheads_s[:20]))

    floor, ours = (median_of(runs[h], growth) for h in HARNESSES)
    bench.row("300 reads: growth of overhead", floor, ours, "ms", "≤ +5 ms", ours <= 5)
    floor, ours = (median_of(runs[h], lambda r: r.rss_kib / 1024) for h in HARNESSES)
    bench.row("300 reads: peak RSS", floor, ours, "MiB", "≤ 58 MiB", ours <= 58)
    size = runs["longrein"][0].stats[-1]["body_bytes"] / 1e6
    bench.row(
        "300 reads: last request",
        runs["floor"][0].stats[-1]["body_bytes"] / 1e6,
        size,
        "MB",
        "–",
        True,
    )


BIG_OUTPUTS = {
    "a pipe of small writes": "yes 'a line of words' | head -c 30000000",
    "a pipe of blocks": "head -c 30000000 /dev/zero | tr '\\0' 'x'",
    "many lines": "seq 1 3800000",
    "a program that prints": "python3 -c \"for n in range(600000): print('fifty or so characters "
    "of a line', n)\"",
    "a file": "cat big.txt",
}
"""Output -> command that prints it; the last one is examined in detail."""


def big_output(bench: Bench) -> None:
    (bench.tree / "big.txt").write_bytes((b"x" * 79 + b"\n") * 375_000)
    small = bench.both({"turns": [bash("true"), say()]}, 3)
    for what, command in BIG_OUTPUTS.items():
        runs = bench.both({"turns": [bash(command), say()]}, 3, bypass=True)
        floor, ours = (1000 * median_of(runs[h], lambda r: r.overheads_s[0]) for h in HARNESSES)
        bench.row(
            f"30 MB of output, {what}: time", floor, ours, "ms", "≤ 1.2 ×", ours <= 1.2 * floor
        )
    floor, ours = (median_of(runs[h], lambda r: r.rss_kib / 1024) for h in HARNESSES)
    before = median_of(small["longrein"], lambda r: r.rss_kib / 1024)
    bench.row(
        "30 MB of output: RSS above a small run",
        None,
        ours - before,
        "MiB",
        "≤ +6 MiB",
        ours - before <= 6,
    )
    sent = [(r.stats[1]["body_bytes"] - r.stats[0]["body_bytes"]) / 1000 for r in runs["longrein"]]
    bench.row(
        "30 MB of output: sent to the model",
        None,
        median(sent),
        "kB",
        "≤ 12 kB",
        median(sent) <= 12,
    )


def parallel(bench: Bench) -> None:
    compound = ("sleep 1; echo x", f"cd {bench.tree} && sleep 1 2>&1 | tail -1 || echo failed")
    for times, command, limit in (
        (8, compound[0], 1.03),
        (32, compound[0], 1.10),
        (8, compound[1], 1.10),
    ):
        runs = bench.both({"turns": [bash(command, times), say()]}, 3)
        floor, ours = (median_of(runs[h], lambda r: r.overheads_s[0]) for h in HARNESSES)
        what = f"{times} one-second calls in one reply: {command.replace(str(bench.tree), '…')}"
        bench.row(what, floor, ours, "s", f"≤ {limit:.2f} s", ours <= limit)


def subagents(bench: Bench) -> None:
    """Eight subagents in one call, each with one answer that takes a second. The floor has none."""
    tasks = [{"description": f"part {n}", "prompt": f"Look at part {n}."} for n in range(8)]
    call = {"description": "eight parts", "prompt": "Look.", "tasks": tasks}
    turns = [{"calls": [{"name": "Agent", "arguments": call}]}, *[say(delay_s=1.0)] * 8, say()]
    runs = bench.both({"turns": turns}, 3, harnesses=("longrein",))["longrein"]
    ours = median_of(runs, lambda r: r.stats[-1]["received_s"] - r.stats[0]["finished_s"])
    bench.row("8 subagents, a second each", None, ours, "s", "≤ 1.10 s", ours <= 1.10)


def peers(bench: Bench) -> None:
    """Start and shell turn of other agents, where `make clients` has installed them."""
    for name, agent in PEERS.items():
        if not agent.program.exists():
            continue

        def call(command: str, agent: Agent = agent, times: int = 1) -> dict[str, Any]:
            arguments = {
                key: command if value == COMMAND else value
                for key, value in agent.call.arguments.items()
            }
            return {"calls": [{"name": agent.call.name, "arguments": arguments}] * times}

        scripts = (
            [say(delay_s=0.4)],
            [*(call(f"true {n}") for n in range(20)), say()],
            [call("sleep 1; echo x", times=8), say()],
        )
        starts, turns, sleeps = (
            bench.both({"turns": script}, 3, harnesses=(name,))[name] for script in scripts
        )
        for what, figure, runs, unit in (
            ("start, wall", first_request_s, starts, "ms"),
            ("shell turn, median", shell_turn_s(0.5), turns, "ms"),
            ("shell turn, p95", shell_turn_s(0.95), turns, "ms"),
            ("8 one-second calls in one reply", lambda run: run.overheads_s[0], sleeps, "s"),
        ):
            got = median_of(runs, figure) * (1000 if unit == "ms" else 1)
            bench.row(f"{name}: {what}", None, got, unit, "–", True)


def deltas(bench: Bench) -> None:
    count = 20_000
    text = "word " * count
    rounds = max(7, bench.rounds)
    none = bench.both({"turns": [say()]}, rounds)

    def least(runs: list[RunResult]) -> float:  # a start varies by more than all these deltas cost
        return min(run.cpu_s for run in runs)

    for name, batch, limit in (("one per read", 1, 15), ("batched", 0, 4)):
        runs = bench.both({"turns": [{"text": text, "deltas": count, "batch": batch}]}, rounds)
        floor, ours = (1e6 * (least(runs[h]) - least(none[h])) / count for h in HARNESSES)
        bench.row(
            f"a streamed delta, {name}: CPU", floor, ours, "µs", f"≤ {limit} µs", ours <= limit
        )


MEASURES = {
    "answers": answers,
    "cold": cold_start,
    "shell": shell_turns,
    "reads": many_reads,
    "output": big_output,
    "parallel": parallel,
    "subagents": subagents,
    "deltas": deltas,
    "variants": variants,
    "peers": peers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help=f"measures: {', '.join(MEASURES)}; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="longrein-bench-"))
    try:
        bench = Bench(folder, given.rounds)
        for harness in HARNESSES:  # compiles every module once
            bench.run(harness, {"turns": [bash("true"), say()]})
        for name in given.only or MEASURES:
            MEASURES[name](bench)
        out = HERE / "out"
        out.mkdir(exist_ok=True)
        (out / "bench.json").write_text(
            json.dumps(bench.figures, indent=1, ensure_ascii=False) + "\n"
        )
        (out / "bench.md").write_text(bench.table())
        print(f"\nwritten to {out / 'bench.json'} and bench.md")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
