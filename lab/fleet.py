"""Measures of fleets: kills of Ray nodes, overhead of Ray, money, quota, cost a session, a store
that stops, writers that are paused, and a simulation of large fleets in virtual time:
`python -m lab.fleet`.
"""

import argparse
import asyncio
import os
import random
import re
import resource
import signal
import statistics
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, heapreplace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import psutil

from lab.support.postgresql import Server, running_server
from longrein.app.run_context import use_store_at
from longrein_fleet import fleet_state
from longrein_fleet.fleet_tasks import Task, TaskLimits
from tests.e2e.harness import CliHarness, RunningCommand, bash, calls, fails, says
from tests.fleet.harness import FleetHarness
from tests.fleet.ray_cluster import RayCluster
from tests.timeouts import wait_until

NODES, NODE_CPUS, KILLED_TASKS = 2, 4, 8
STEPS = 6
"""Steps of a task whose node is killed."""
OVERHEAD_MS = 15.0
FLAT = 0.15
"""Largest share by which the cost of a session may change with their number."""
PAID_TWICE = 1.02
LONG_STEPS = 20
LIMIT_USD = 1.0
"""Limit of a task under a cap, which it reserves."""


class Row(msgspec.Struct, frozen=True):
    """A measure with its limit."""

    what: str
    got: str
    reach: str
    met: bool


@contextmanager
def fleet_in_folder() -> Iterator[FleetHarness]:
    """A home with a scripted model."""
    with TemporaryDirectory(prefix="fleet") as folder:
        cli = CliHarness(Path(folder))
        cli.forks = False
        try:
            yield FleetHarness(cli)
        finally:
            cli.wait_survivors()
            cli.clean_up()


# --- Kills of nodes -------------------------------------------------------------------------------


def kills(given: argparse.Namespace) -> list[Row]:
    """Kill a node while eight tasks run, again and again."""
    found = Counter[str]()
    with fleet_in_folder() as fleet:
        steps = [calls(bash(f"echo {n} >> acts.log; sleep 0.3")) for n in range(STEPS)]
        fleet.plays(step=[*steps, says("Done.")])
        ids = [f"t{number}" for number in range(KILLED_TASKS)]
        tasks = fleet.tasks(*({"id": one, "prompt": "step"} for one in ids))
        cluster = RayCluster(fleet.cli.env, NODES, NODE_CPUS)
        try:
            for seed in range(given.seed, given.seed + given.kills):
                found += kill_once(fleet, cluster, tasks, seed)
        finally:
            cluster.close()
    bad = found["unfinished"] + found["lost"] + found["twice"] + found["gaps"]
    told = ", ".join(f"{found[word]} {word}" for word in KILL_WORDS)
    what = f"node killed while {KILLED_TASKS} tasks run, {given.kills} times from seed {given.seed}"
    return [Row(what, told, "0 unfinished, lost, twice, gaps", bad == 0)]


KILL_WORDS = ("done", "unfinished", "interrupted", "lost", "twice", "gaps")


def kill_once(fleet: FleetHarness, cluster: RayCluster, tasks: str, seed: int) -> "Counter[str]":
    """Kill one node at a random moment of a fleet; count what became of its tasks."""
    name = f"k{seed}"
    where = ("--engine", "ray", "--address", cluster.address, "--concurrency", str(KILLED_TASKS))
    running = fleet.cli.start("fleet", "run", tasks, "--name", name, *where)
    folder = fleet.cli.state / "fleets" / name / "tasks"
    while len(list(folder.glob("*/1/work/acts.log"))) < KILLED_TASKS:
        if running.process.poll() is not None:
            raise AssertionError(running.end().err)
        time.sleep(0.02)
    time.sleep(random.Random(seed).uniform(0, STEPS * 0.4))
    cluster.kill_node()
    running.end()
    found = Counter[str]()
    for task, result in fleet.results(name).items():
        found["done" if result["cause"] == "done" else "unfinished"] += 1
        try:
            statuses = [status for status, _ in fleet.cli.results(result["session"])]
        except AssertionError:  # a hole in the numbers of the entries
            found["gaps"] += 1
            continue
        acts = Counter((folder / task / "1/work/acts.log").read_text().split())
        cut = statuses.count("interrupted")
        found["interrupted"] += cut
        found["twice"] += sum(count - 1 for count in acts.values())
        found["lost"] += max(0, STEPS - len(acts) - cut)
    print(f"  seed {seed}: {dict(found)}", flush=True)
    return found


# --- Overhead -------------------------------------------------------------------------------------


def echo(data: bytes) -> bytes:
    """An attempt without work."""
    return data


def overhead(given: argparse.Namespace) -> list[Row]:
    """Time of an empty Ray task, and of a whole short attempt by both engines."""
    rows = [empty_tasks()]
    took = dict[str, float]()
    with fleet_in_folder() as fleet:
        for engine in ("local", "ray"):
            for count in (1, 1 + given.attempts):
                tasks = fleet.tasks(*({"id": f"t{number}"} for number in range(count)))
                name = f"{engine}{count}"
                words = ("--engine", engine, "--concurrency", "1", "--name", name)
                done = fleet.fleet("run", tasks, *words)
                took[name] = done.seconds
    each = {
        engine: (took[f"{engine}{1 + given.attempts}"] - took[f"{engine}1"]) / given.attempts * 1e3
        for engine in ("local", "ray")
    }
    got = f"local {each['local']:.0f} ms, ray {each['ray']:.0f} ms"
    return [*rows, Row(f"whole attempt of one reply, {given.attempts} in turn", got, "-", True)]


def empty_tasks() -> Row:
    """Time of empty Ray tasks in turn, by the options of the executor."""
    from longrein.app.run_context import read_run_context
    from longrein.options import Options
    from longrein_fleet.fleet_state import Engine
    from longrein_fleet.ray_executor import open_ray

    async def measure() -> list[float]:
        import ray

        run_context = read_run_context(Options())
        executor = await open_ray(run_context, "/tmp", Engine("ray"), "rates")
        try:
            work = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(echo)
            times = list[float]()
            for _ in range(220):
                before = time.perf_counter()
                await work.remote(b"x" * 500)
                times.append((time.perf_counter() - before) * 1e3)
            return times[20:]
        finally:
            await executor.close()

    times = sorted(asyncio.run(measure()))
    median = statistics.median(times)
    got = f"median {median:.1f} ms, p95 {times[len(times) * 95 // 100]:.1f} ms"
    return Row("overhead of Ray a task (empty, 200 in turn)", got, "15 ms", median <= OVERHEAD_MS)


# --- Money and quota ------------------------------------------------------------------------------


def budget(given: argparse.Namespace) -> list[Row]:
    """Run tasks under a cap that allows half of them."""
    with fleet_in_folder() as fleet:
        fleet.fleet("run", fleet.tasks({"id": "one"}), "--name", "price")
        usd = fleet.results("price")["one"]["cost_usd"]
        cap = LIMIT_USD + (given.tasks / 2 - 0.5) * usd  # one more would not fit
        limited = [{"id": f"t{n}", "limits": {"usd": LIMIT_USD}} for n in range(given.tasks)]
        words = ("--max-budget-usd", f"{cap:.6f}", "--concurrency", str(given.concurrency))
        fleet.fleet("run", fleet.tasks(*limited), *words)
        state = fleet.state()
        causes = Counter(one["cause"] for one in fleet.results().values())
    spent = state.budget.spent_usd
    got = f"${spent:.4f} of ${cap:.4f}; {dict(causes)}"
    met = spent <= cap + 1e-9 and causes["done"] == given.tasks // 2
    return [Row(f"{given.tasks} tasks, cap for half", got, "spent ≤ cap", met)]


def quota(given: argparse.Namespace) -> list[Row]:
    """Meet a quota error in the middle of 50 tasks, resume, and compare with a run without it."""
    count, steps = 50, [calls(bash("echo act >> acts.log"))] * 3
    with fleet_in_folder() as fleet:
        tasks = [
            {"id": f"t{n}", "prompt": "middle" if n == count // 2 else "step"} for n in range(count)
        ]
        path = fleet.tasks(*tasks)
        branch = [*steps, says("Done.")]
        fleet.plays(step=branch, middle=branch)
        words = ("--concurrency", str(given.concurrency))
        fleet.fleet("run", path, "--name", "whole", *words)
        fleet.plays(step=branch, middle=[*steps[:2], fails(402, "insufficient_quota", times=99)])
        paused = fleet.fleet("run", path, "--name", "cut", *words)
        fleet.plays(step=branch, middle=branch)
        fleet.fleet("resume", "cut")
        whole, cut = (
            sum(one["input_tokens"] for one in fleet.results(name).values())
            for name in ("whole", "cut")
        )
        folder = fleet.cli.state / "fleets/cut/tasks"
        acts = [len(path.read_text().split()) for path in folder.glob("*/1/work/acts.log")]
        done = Counter(one["cause"] for one in fleet.results("cut").values())["done"]
    share = cut / whole
    met = share <= PAID_TWICE and paused.code == 75 and acts == [3] * count and done == count
    got = f"{share:.4f} of the input tokens, {done} done, {sum(acts)} acts of {3 * count}"
    return [Row(f"quota error in the middle of {count} tasks, resumed", got, "≤ 1.02", met)]


# --- Cost of a session ----------------------------------------------------------------------------


def sessions(given: argparse.Namespace) -> list[Row]:
    """CPU and bytes of sessions of 20 steps, for few and for many of them."""
    costs = dict[int, tuple[float, float, float]]()
    for count in (10, given.sessions):
        with fleet_in_folder() as fleet:
            steps = [calls(bash("echo act >> acts.log"))] * LONG_STEPS
            fleet.plays(step=[*steps, says("Done.")])
            path = fleet.tasks(*({"id": f"t{n}", "prompt": "step"} for n in range(count)))
            before = cpu_s()
            done = fleet.fleet("run", path, "--concurrency", str(given.concurrency))
            used = cpu_s() - before
            folder = fleet.cli.state / "sessions"
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            costs[count] = (used / count, size / count, done.seconds / count)
    (few, few_size, _), (many, size, wall) = costs[10], costs[given.sessions]
    ratio = many / few
    got = (
        f"CPU {few:.2f} s → {many:.2f} s ({ratio - 1:+.0%}), {few_size / 1e3:.0f} → "
        f"{size / 1e3:.0f} kB, {LONG_STEPS / wall:.1f} steps/s"
    )
    what = f"a session of {LONG_STEPS} steps, from 10 to {given.sessions} of them"
    rows = [Row(what, got, "flat ± 15 %", abs(ratio - 1) <= FLAT), fold_cost()]
    simulate(many / (LONG_STEPS + 1), size / (LONG_STEPS + 1), given.seed)
    return rows


def in_store(given: argparse.Namespace) -> list[Row]:
    """The same with the sessions in one PostgreSQL, with the time of a commit there."""
    costs = dict[int, float]()
    for count in (10, given.sessions):
        with fleet_in_folder() as fleet, running_server() as server:
            address = f"{server.new_schema()}%20-clog_min_duration_statement%3D0"
            steps = [calls(bash("echo act >> acts.log"))] * LONG_STEPS
            fleet.plays(step=[*steps, says("Done.")])
            path = fleet.tasks(*({"id": f"t{n}", "prompt": "step"} for n in range(count)))
            before, served = cpu_s(), server_cpu_s(server)
            words = ("--concurrency", str(given.concurrency), "--store", address)
            done = fleet.fleet("run", path, *words)
            served = server_cpu_s(server) - served
            costs[count] = (cpu_s() - before + served) / count
            size = store_bytes(server)
            commits = commits_ms(server)
    steps_in_all = count * (LONG_STEPS + 1)
    got = (
        f"CPU {costs[10]:.2f} s → {costs[count]:.2f} s ({costs[count] / costs[10] - 1:+.0%}), "
        f"PostgreSQL {served / steps_in_all * 1e3:.1f} ms and {size / steps_in_all / 1e3:.1f} kB a "
        f"step, {len(commits) / steps_in_all:.1f} commits a step, p99 "
        f"{commits[len(commits) * 99 // 100]:.1f} ms, {steps_in_all / done.seconds:.1f} steps/s"
    )
    what = f"the same in one PostgreSQL, from 10 to {count}"
    return [Row(what, got, "flat ± 15 %", abs(costs[count] / costs[10] - 1) <= FLAT)]


def server_cpu_s(server: Server) -> float:
    """CPU of a server and of its processes that have ended."""
    return sum(psutil.Process(server.pid).cpu_times()[:4])


def store_bytes(server: Server) -> int:
    """Size of its tables and indexes."""
    query = (
        "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r' AND "
        "relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname LIKE 'test_%')"
    )
    return int(server.run(query.replace("%", "%%"))[0][0])


def commits_ms(server: Server) -> list[float]:
    """Times of its commits, sorted."""
    said = (server.folder / "output").read_text(errors="replace")
    return sorted(map(float, re.findall(r"duration: ([0-9.]+) ms .*: COMMIT", said)))


def cpu_s() -> float:
    """CPU of the processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fold_cost() -> Row:
    """CPU of the fold and the choice for each event, for 100 and for 10,000 tasks."""
    few, many = (min(fold_us(count) for _ in range(3)) for count in (100, 10_000))
    return Row("state of a fleet, CPU an event", f"{few:.1f} → {many:.1f} µs", "-", many < 10 * few)


def fold_us(count: int) -> float:
    """Play a fleet of `count` tasks without an executor."""
    tasks = tuple(Task(f"t{n}", "go", "/", limits=TaskLimits(usd=1.0)) for n in range(count))
    state = fleet_state.FleetState(fleet_state.FleetOpened("f", 1, tasks, 50, 1, 1e9))
    running, events, begun = list[str](), 0, time.process_time()
    while True:
        while choice := fleet_state.next_choice(state):
            running.append(choice.task.task.id)
            fleet_state.fold(state, fleet_state.TaskStarted(running[-1], 1, running[-1], 1.0))
        if not running:
            return (time.process_time() - begun) / events * 1e6
        name = running.pop(0)
        fleet_state.fold(state, fleet_state.AttemptEnded(name, "done", "", name, 0.5))
        events += 2


# --- A store that stops, and writers that are paused ----------------------------------------------

STORE_TASKS, STORE_STEPS, STEP_S, DOWN_S, BACK_S = 50, 8, 1.0, 3.0, 5.0
"""Tasks and steps, the length of a step, and the times of a store that stops."""
WRITERS = 20


def restart(_given: argparse.Namespace) -> list[Row]:
    """Crash PostgreSQL while tasks run, start it again, and time their next commits."""
    found = Counter[str]()
    with fleet_in_folder() as fleet, running_server() as server:
        address = server.new_schema()
        use_store_at(str(fleet.cli.state), address)
        roots = f"{address.rpartition('%3D')[2]}.roots"
        steps = [calls(bash(f"echo {n} >> acts.log; sleep {STEP_S}")) for n in range(STORE_STEPS)]
        fleet.plays(step=[*steps, says("Done.")])
        path = fleet.tasks(*({"id": f"t{n}", "prompt": "step"} for n in range(STORE_TASKS)))
        words = ("--concurrency", str(STORE_TASKS), "--store", address)
        running = fleet.cli.start("fleet", "run", path, *words)
        folder = fleet.cli.state / "fleets/tasks/tasks"
        wait_until(lambda: len(list(folder.glob("*/1/work/acts.log"))) == STORE_TASKS)
        before = dict(server.run(f"SELECT root, writes FROM {roots}"))
        server.stop()
        time.sleep(DOWN_S)
        server.start()
        back_s, first_s = time.monotonic(), dict[object, float]()
        while len(first_s) < STORE_TASKS and running.process.poll() is None:
            for root, writes in server.run(f"SELECT root, writes FROM {roots}"):
                if writes > before.get(root, 0):
                    first_s.setdefault(root, time.monotonic() - back_s)
            time.sleep(0.05)
        running.end(limit_s=600)
        for task, result in fleet.results(store=address).items():
            found["done" if result["cause"] == "done" else "unfinished"] += 1
            statuses = [status for status, _ in fleet.cli.results(result["session"])]
            acts = (folder / task / "1/work/acts.log").read_text().split()
            found["lost"] += statuses.count("ok") != STORE_STEPS
            found["twice"] += len(acts) - len(set(acts))
    times = sorted(first_s.values())
    got = (
        f"{dict(found)}; next commit after {statistics.median(times):.1f} s, at last "
        f"{times[-1]:.1f} s (a step takes {STEP_S:g} s)"
    )
    met = found["done"] == STORE_TASKS and not found["lost"] + found["twice"]
    what = f"PostgreSQL killed for {DOWN_S:g} s during {STORE_TASKS} tasks"
    return [Row(what, got, f"0 lost, ≤ {BACK_S:g} s", met and times[-1] <= BACK_S)]


def paused(_given: argparse.Namespace) -> list[Row]:
    """Stop writers (SIGSTOP), go on in their sessions elsewhere, and let them continue."""
    found = Counter[str]()
    with fleet_in_folder() as fleet, running_server() as server:
        address = server.new_schema()
        fleet.cli.env["LONGREIN_STORE"] = address
        use_store_at(str(fleet.cli.state), address)
        go = f"echo wait >> acts.log; until [ -e {fleet.cli.project}/go ]; do sleep 0.1; done"
        fleet.plays(step=[calls(bash(go)), says("Done.")])
        writers = dict[str, RunningCommand]()
        for _ in range(WRITERS):
            session = str(uuid.uuid4())
            words = ("-p", "--permission-mode", "bypassPermissions", "--session-id", session)
            writers[session] = fleet.cli.start(*words, "step", cwd=fleet.plain)
        wait_until(lambda: acts_in(fleet.plain) == WRITERS)
        for writer in writers.values():
            writer.send(signal.SIGSTOP)
        fleet.cli.go()
        elsewhere = ("-p", "--state-dir", str(fleet.cli.folder / "elsewhere"), "--resume")
        for session, writer in writers.items():
            while (done := fleet.cli.run(*elsewhere, session, cwd=fleet.plain)).code == 1:
                time.sleep(1)  # the lease holds
            before = fleet.cli.entries(session)
            writer.send(signal.SIGCONT)
            ended = writer.end()
            refused = "which has taken it over" in ended.err and ended.err.count("\n") == 1
            same = fleet.cli.entries(session) == before
            found["refused" if refused and same and done.code == 0 else "written"] += 1
    what = f"{WRITERS} paused writers come back after their leases passed on"
    return [Row(what, f"{found['refused']} refused", "all", found["refused"] == WRITERS)]


def acts_in(folder: Path) -> int:
    """Lines of the acts that commands have noted in a folder."""
    path = folder / "acts.log"
    return len(path.read_text().split()) if path.exists() else 0


# --- Large fleets in virtual time -----------------------------------------------------------------

CORES, MACHINE_USD = 16, 0.70
"""A machine, and its price an hour."""
REPLY_S, TOOL_S = 8.0, 4.0
"""Mean time of a reply and of a tool call."""
TOOL_CPU_S = 1.0
"""CPU of what a tool call runs, beside longrein's own."""
MACHINE_LIFE_S = 30 * 24 * 3600.0
"""Mean time between failures of a machine."""
MEAN_STEPS = 40
STEP_USD = 0.02
"""Money of a step at a provider, most of its input cached."""
COMMITS = 2
"""Commits a step."""
HOURS = 8.0
"""Time in which the fleet is to be done."""


def simulate(cpu: float, size: float, seed: int) -> None:
    """Print what large fleets need: machines by CPU, then their work in virtual time."""
    step_s = REPLY_S + TOOL_S
    slots = int(CORES * 0.7 / ((cpu + TOOL_CPU_S) / step_s))
    print(
        f"\nSimulated from {cpu * 1e3:.0f} ms of CPU and {size / 1e3:.1f} kB a step, seed {seed}; "
        f"assumed: {MEAN_STEPS} steps of {step_s:.0f} s, machines of {CORES} cores at "
        f"${MACHINE_USD}/h that hold {slots} sessions and fail every {MACHINE_LIFE_S / 86400:.0f} "
        f"days, ${STEP_USD} a step\n"
    )
    print("| sessions | machines | hours | cut steps | store | commits/s | machines $ | model $ |")
    print("|---|---|---|---|---|---|---|---|")
    for count in (10_000, 100_000, 1_000_000):
        chance = random.Random(seed)
        machines = max(1, round(count * MEAN_STEPS * step_s / (HOURS * 3600 * slots)))
        free = [0.0] * (machines * slots)
        heapify(free)
        cut = steps_all = 0
        for _ in range(count):
            steps = 1 + int(chance.expovariate(1 / MEAN_STEPS))
            length_s = steps * step_s * chance.uniform(0.7, 1.3)
            while chance.random() < length_s / MACHINE_LIFE_S:  # goes on elsewhere
                length_s += chance.uniform(0, step_s) + 30.0
                cut += 1
            steps_all += steps
            heapreplace(free, free[0] + length_s)
        hours = max(free) / 3600
        money = (machines * hours * MACHINE_USD, steps_all * STEP_USD)
        rate = steps_all * COMMITS / (hours * 3600)
        print(
            f"| {count:,} | {machines} | {hours:.1f} | {cut:,} | {steps_all * size / 1e9:.0f} GB | "
            f"{rate:,.0f} | {money[0]:,.0f} | {money[1]:,.0f} |"
        )


# --- Command line ---------------------------------------------------------------------------------

MEASURES: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "kills": kills,
    "overhead": overhead,
    "budget": budget,
    "quota": quota,
    "sessions": sessions,
    "store": in_store,
    "restart": restart,
    "paused": paused,
}
NEED_RAY = ("kills", "overhead")


def main() -> int:
    """Print a table; 1 when a measure was missed."""
    parser = argparse.ArgumentParser(description="Measures of fleets.")
    parser.add_argument("--only", choices=MEASURES, action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--attempts", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--concurrency", type=int, default=os.cpu_count() or 2)
    given = parser.parse_args()
    rows = list[Row]()
    for name in given.only or MEASURES:
        try:
            rows += MEASURES[name](given)
        except ImportError as error:
            print(f"{name}: left out: {error}")
    print("\n| measure | got | reach | |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.got} | {row.reach} | {'met' if row.met else 'MISSED'} |")
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
