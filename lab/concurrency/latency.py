"""Cost of running commands through a supervisor. Run: `python -m lab.concurrency.latency`.

Everything runs in a temporary folder. Each figure is a median of many or the best of a few; other
work on the machine spoils them.
"""

import asyncio
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from longrein.workspace import (
    BackgroundOptions,
    CommandExit,
    CommandSpec,
    SupervisedSpawner,
    SupervisionOptions,
    spooled_tasks,
)

RUNS = 300
IDLE_TASKS = 100
IDLE_S = 5.0
BIG_BYTES = 30_000_000
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


class Sink:
    """Sink that counts the printed bytes."""

    def __init__(self) -> None:
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """See `workspace.Sink`."""
        self.size_bytes += len(data)


def supervised(folder: str) -> SupervisedSpawner:
    """Return a spawner with a spool of its own."""
    return SupervisedSpawner(
        os.path.join(folder, "tasks"),
        SupervisionOptions(nonce="00000000", secrets=("not-a-real-secret",)),
        wall_us=lambda: time.time_ns() // 1000,
        notice=print,
        environ=ENVIRONMENT,
    )


async def run(spawner: SupervisedSpawner, command: str) -> tuple[CommandExit, int]:
    """Run one command; return its end and the number of printed bytes."""
    sink = Sink()
    ended = await spawner.run(
        CommandSpec(command, "/", ENVIRONMENT), sink=sink, timeout_s=60, output_bytes_max=1 << 30
    )
    return ended, sink.size_bytes


async def elapsed_s(act: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds that an act takes."""
    before = time.perf_counter()
    await act()
    return time.perf_counter() - before


async def run_child() -> None:
    """Run `true` as a child of this process."""
    child = await asyncio.create_subprocess_exec("bash", "-c", "true", env=ENVIRONMENT)
    await child.wait()


async def added_latency(through: SupervisedSpawner) -> tuple[float, float]:
    """Return the median seconds of `true` as a child and through the spawner, in turns."""
    alone, beside = list[float](), list[float]()
    for _ in range(RUNS):
        alone.append(await elapsed_s(run_child))
        beside.append(await elapsed_s(lambda: run(through, "true")))
    return statistics.median(alone), statistics.median(beside)


async def start_time() -> float:
    """Return the seconds until a new supervisor answers: the best of five."""
    times = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            spawner = supervised(folder)
            before = time.perf_counter()
            spawner.warm()
            await spawner.answered()
            times.append(time.perf_counter() - before)
            await spawner.drain()
    return min(times)


async def parallel_sleeps_s(spawner: SupervisedSpawner, count: int) -> float:
    """Return the seconds of `count` one-second commands at once: the best of three."""
    return min(
        [
            await elapsed_s(
                lambda: asyncio.gather(*[run(spawner, "sleep 1; echo x") for _ in range(count)])
            )
            for _ in "123"
        ]
    )


async def idle_cpu(folder: str) -> float:
    """Return the share of a core that the supervisor of 100 running tasks takes."""
    spawner = supervised(folder)
    for number in range(IDLE_TASKS):
        started = await spawner.start(
            CommandSpec("sleep 600", "/", ENVIRONMENT), sink=None, output_bytes_max=1 << 20
        )
        assert not isinstance(started, CommandExit)
        await started.keep(BackgroundOptions(f"b{number}", "sleep"))
    pid = int(
        Path(f"/proc/{spooled_tasks(folder)[0].pid}/stat").read_text().rpartition(")")[2].split()[1]
    )
    before, own = cpu_of(pid), own_cpu()
    await asyncio.sleep(IDLE_S)
    share = (cpu_of(pid) - before + own_cpu() - own) / IDLE_S
    for number in range(IDLE_TASKS):
        await spawner.stop(f"b{number}", "the end")
    while any(task.state == "running" for task in spooled_tasks(folder)):  # noqa: ASYNC110 - other processes end
        await asyncio.sleep(0.05)
    await spawner.drain()
    return share


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def own_cpu() -> float:
    """Return the CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def big_output(spawner: SupervisedSpawner) -> tuple[float, float]:
    """Return (CPU seconds of this process, wall seconds) for 30 MB of output: the best of five."""
    command = f"head -c {BIG_BYTES} /dev/zero | tr '\\0' 'x'"
    found = []
    for _ in range(5):
        before, own = time.perf_counter(), own_cpu()
        _, printed = await run(spawner, command)
        found.append((own_cpu() - own, time.perf_counter() - before))
        assert printed == BIG_BYTES
    return min(found)


def print_row(what: str, is_: str, reach: str = "") -> None:
    """Print one line of the table."""
    print(f"| {what} | {is_} | {reach} |", flush=True)


async def main() -> None:
    """Print the table."""
    print("| measure | is | reach |\n|---|---|---|")
    print_row("a supervisor's start", f"{await start_time() * 1000:.1f} ms", "≤ 30 ms")
    with tempfile.TemporaryDirectory() as folder:
        through = supervised(folder)
        await run(through, "true")
        alone, beside = await added_latency(through)
        print_row("`true`, median, a child of this process", f"{alone * 1000:.2f} ms")
        print_row("`true`, median, through the supervisor", f"{beside * 1000:.2f} ms")
        print_row("added latency", f"{(beside - alone) * 1000:+.2f} ms", "≤ 1 ms")
        print_row(
            "8 one-second commands", f"{await parallel_sleeps_s(through, 8):.3f} s", "≤ 1.04 s"
        )
        print_row(
            "32 one-second commands", f"{await parallel_sleeps_s(through, 32):.3f} s", "≤ 1.10 s"
        )
        held = [(await run(through, "sleep 3 & echo done"))[0].elapsed_s for _ in range(5)]
        print_row("return while a daemon holds the pipe", f"{max(held):.3f} s", "≤ 0.3 s")
        cpu, wall = await big_output(through)
        print_row("30 MB of output", f"{cpu * 1000:.0f} ms CPU, {wall * 1000:.0f} ms")
        await through.drain()
    with tempfile.TemporaryDirectory() as folder:
        print_row(
            f"{IDLE_TASKS} running tasks, CPU of a core",
            f"{await idle_cpu(folder) * 100:.2f} %",
            "< 1 %",
        )


if __name__ == "__main__":
    asyncio.run(main())
