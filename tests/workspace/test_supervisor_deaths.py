"""Deaths of longrein, its supervisor, or both while commands run: each takes along only its own
processes.

Each kind of command runs in the foreground and as a background task. `env -i` removes the mark; the
supervisor still finds such a process, which becomes its child.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from longrein.workspace import CommandSpec, SpooledTask, end_orphans, is_supervised, spooled_tasks
from longrein.workspace.supervisor.channel import VERSION
from longrein.workspace.supervisor.process_tree import process
from tests.timeouts import HANG_S, wait_until
from tests.workspace.conftest import supervised, tagged

pytestmark = pytest.mark.anyio
_numbers = count(1)

KINDS = {
    "plain": "",
    "background": "sleep {s} &",
    "setsid": "setsid sleep {s} &",
    "double-fork": "(setsid sh -c 'sleep {s} & sleep {s}' &);",
    "immune": "trap '' TERM; sleep {s} &",
    "pipe-holder": "(sleep {s} >&2 &);",
}
UNMARKED = {
    "unmarked": "env -i setsid sleep {s} &",
    "unmarked-double-fork": "(env -i setsid sh -c 'sleep {s} & sleep {s}' &);",
}
FOREGROUND = "echo r; sleep {s}; sleep {s}"
TASK = "echo start; until [ -e go ]; do sleep 0.02; done; echo end; exit 7"
BURST = "sleep {s} & echo over"
"""Ends at once and leaves somebody who holds its pipe."""

HARNESS = """
import asyncio, json, os, sys, time
from longrein.workspace import BackgroundOptions, CommandSpec, SupervisedSpawner, SupervisionOptions

class Out:
    def __init__(self): self.printed = asyncio.Event()
    def write(self, data): self.printed.set()

async def main():
    folder, env, foreground, tasks = json.loads(sys.argv[1])
    spawner = SupervisedSpawner(folder + "/tasks", SupervisionOptions(nonce="n", alone_s=0.05, grace_s=0.15),
        wall_us=lambda: time.time_ns() // 1000, notice=print, environ=os.environ)
    heard = asyncio.Event()
    news = []
    spawner.on_news(lambda task: (news.append(task), heard.set()))
    async def start(command, sink=None):
        return await spawner.start(CommandSpec(command, folder, env), sink=sink, output_bytes_max=1000)
    outs = [Out() for _ in foreground]
    started = [await start(command, out) for command, out in zip(foreground, outs)]
    waiting = [asyncio.ensure_future(one.ended()) for one in started]
    for task, command in tasks.items():
        running = await (await start(command)).keep(BackgroundOptions(task, command))
        supervisor = int(open(f"/proc/{running.pid}/stat").read().rpartition(")")[2].split()[1])
    for out in outs:
        await out.printed.wait()
    await asyncio.wait(waiting[-1:])
    while not all(spawner.read(task, 0, 99)[1] for task in tasks):
        await asyncio.sleep(0.01)
    print(json.dumps({"supervisor": supervisor}), flush=True)
    while set(news) < {"", *tasks}:
        heard.clear()
        await heard.wait()
    ends = [await one for one in waiting]
    print(json.dumps({"tasks": {task: spawner.spooled(task).state for task in tasks}, "news": sorted(news),
        "foreground": sorted({end.cause for end in ends})}), flush=True)
    await spawner.drain()

asyncio.run(main())
"""  # noqa: E501


class CrashScenario:
    """A longrein in a process of its own, with commands of all kinds."""

    def __init__(self, folder: Path, tag: str, kinds: dict[str, str]) -> None:
        self.folder, self.tag = folder, tag
        self.session = f"session-of-{tag}"
        self.sleep = f"9{next(_numbers)}.{os.getpid()}0"
        self.environ = {"PATH": os.environ["PATH"], "LONGREIN_TEST_TAG": tag}
        foreground = [
            f"{prefix} {FOREGROUND}".format(s=f"{self.sleep}{3 if name in UNMARKED else 1}")
            for name, prefix in kinds.items()
        ]
        foreground.append(BURST.format(s=f"{self.sleep}1"))
        self.tasks = {
            name: f"{prefix} {TASK}".format(s=f"{self.sleep}2") for name, prefix in kinds.items()
        }
        env = {**self.environ, "LONGREIN_SESSION": self.session}
        arguments = json.dumps([str(folder), env, foreground, self.tasks])
        words = [sys.executable, "-c", HARNESS, arguments]
        self.harness = subprocess.Popen(words, env=self.environ, stdout=subprocess.PIPE)
        self.supervisor = self.hear()["supervisor"]

    def hear(self) -> dict[str, Any]:
        assert self.harness.stdout is not None
        line = self.harness.stdout.readline()
        assert line, "it ended without a word"
        return json.loads(line)  # type: ignore[no-any-return]

    def sleepers(self, which: str = "") -> list[int]:
        """Pids of this scenario's commands, marked or not.

        `which`: `1` for marked ones of the foreground, `2` for tasks, `3` for the rest.
        """
        found, mark = [], f"{self.sleep}{which}".encode()
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and mark in Path(f"/proc/{name}/cmdline").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
        return [pid for pid in found if pid != self.harness.pid]

    def states(self) -> dict[str, str]:
        return {task.task: task.state for task in spooled_tasks(str(self.folder))}

    def kill(self, *pids: int) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if self.harness.pid in pids:
            self.harness.wait()
        wait_until(lambda: not any(map(process, pids)))

    def end(self) -> None:
        if self.harness.poll() is None:
            self.harness.kill()
        self.harness.communicate()


Start = Callable[..., CrashScenario]


@pytest.fixture
def start_scenario(tmp_path: Path, tag: str) -> Iterator[Start]:
    scenarios: list[CrashScenario] = []

    def begin(*kinds: dict[str, str]) -> CrashScenario:
        scenarios.append(
            CrashScenario(
                tmp_path, tag, {name: prefix for some in kinds for name, prefix in some.items()}
            )
        )
        return scenarios[-1]

    yield begin
    for scenario in scenarios:
        scenario.end()
        for pid in scenario.sleepers():
            os.kill(pid, signal.SIGKILL)


async def adopt(scenario: CrashScenario, news: list[str]) -> tuple[Any, list[SpooledTask]]:
    spawner = supervised(scenario.folder, scenario.environ)
    spawner.on_news(news.append)
    return spawner, list(await spawner.adopt())


async def test_B14_R055_longrein_is_killed_its_tasks_go_on_and_are_adopted(
    start_scenario: Start,
) -> None:
    scenario = start_scenario(KINDS, UNMARKED)
    scenario.kill(scenario.harness.pid)
    wait_until(lambda: not scenario.sleepers("1"))
    assert set(scenario.states().values()) == {"running"}
    assert is_supervised(str(scenario.folder))
    news: list[str] = []
    spawner, found = await adopt(scenario, news)
    assert {one.task for one in found} == set(scenario.tasks)
    (scenario.folder / "go").touch()
    async with asyncio.timeout(HANG_S):
        while set(news) != set(scenario.tasks):  # noqa: ASYNC110  # what is waited for happens in another process
            await asyncio.sleep(0.01)
    for task in scenario.tasks:
        ended = spawner.spooled(task)
        assert (ended.state, ended.code, spawner.read(task, 0, 99)[1]) == (
            "failed",
            7,
            b"start\nend\n",
        ), task
    await spawner.drain()
    assert scenario.sleepers() == []
    assert tagged(scenario.tag) == []


def lines(scenario: CrashScenario) -> list[bytes]:
    found = []
    for pid in scenario.sleepers():
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            continue
    return found


async def test_B14_the_supervisor_is_killed_its_longrein_ends_all_and_tells_them_lost(
    start_scenario: Start,
) -> None:
    scenario = start_scenario(KINDS)
    scenario.kill(scenario.supervisor)
    said = await asyncio.get_running_loop().run_in_executor(None, scenario.hear)
    assert set(said["tasks"].values()) == {"lost"}
    assert said["foreground"] == ["exit", "lost"], "one had ended before"
    assert said["news"] == ["", *sorted(scenario.tasks)]
    assert scenario.sleepers() == []
    for task in spooled_tasks(str(scenario.folder)):
        found = (task.state, task.code, task.cause)
        assert found == ("lost", None, "its supervisor ended while it ran")
    scenario.harness.wait(HANG_S)
    assert tagged(scenario.tag) == []


async def test_B14_R055_both_are_killed_and_the_next_start_of_any_longrein_ends_what_is_left(
    start_scenario: Start,
) -> None:
    scenario = start_scenario(KINDS)
    scenario.kill(scenario.harness.pid, scenario.supervisor)
    assert scenario.sleepers()
    assert set(scenario.states().values()) == {"lost"}, (
        "told so before anybody has looked after them"
    )
    told = end_orphans(lambda session: session != scenario.session, lambda _: str(scenario.folder))
    assert len(told) >= 10
    assert scenario.sleepers() == []
    assert tagged(scenario.tag) == []
    for task in scenario.tasks:
        assert (scenario.folder / "tasks" / f"{task}.end").exists()
    news: list[str] = []
    spawner, found = await adopt(scenario, news)
    for one in found:
        why = "its supervisor ended without telling how it went"
        assert (one.state, one.code, one.cause) == ("lost", None, why)
    for task in scenario.tasks:
        spawner.settle(task)
    assert spooled_tasks(str(scenario.folder)) == []
    await spawner.drain()


async def test_B14_both_are_killed_and_the_session_itself_is_opened_again(
    start_scenario: Start,
) -> None:
    scenario = start_scenario(KINDS)
    scenario.kill(scenario.harness.pid, scenario.supervisor)
    news: list[str] = []
    spawner, found = await adopt(scenario, news)
    assert {one.state for one in found} == {"lost"}
    assert not any(b"until [ -e go" in line for line in lines(scenario)), (
        "each task's tree was ended by mark and start time"
    )
    end_orphans(lambda session: session != scenario.session)
    assert scenario.sleepers() == []
    await spawner.drain()


async def test_R055_a_live_supervisor_spares_its_tasks_from_every_sweep(
    start_scenario: Start,
) -> None:
    scenario = start_scenario({"plain": ""})
    scenario.kill(scenario.harness.pid)
    found = end_orphans(lambda session: session != scenario.session, lambda _: str(scenario.folder))
    assert found == []
    assert scenario.states() == {"plain": "running"}
    (scenario.folder / "go").touch()
    wait_until(lambda: scenario.states() == {"plain": "failed"})
    wait_until(lambda: not tagged(scenario.tag))
    (left,) = spooled_tasks(str(scenario.folder))
    assert (left.state, left.code) == ("failed", 7), "its end is there when nobody was"


async def test_a_stale_socket_and_record_of_a_dead_supervisor_are_replaced(
    start_scenario: Start,
) -> None:
    scenario = start_scenario({"plain": ""})
    scenario.kill(scenario.harness.pid, scenario.supervisor)
    assert (scenario.folder / "tasks" / f"v{VERSION}.sock").exists()
    assert not is_supervised(str(scenario.folder))
    spawner, found = await adopt(scenario, [])
    assert [one.state for one in found] == ["lost"]
    env = {**scenario.environ, "LONGREIN_SESSION": scenario.session}
    ended = await spawner.run(
        CommandSpec("exit 8", "/", env), sink=Silent(), timeout_s=HANG_S, output_bytes_max=9
    )
    assert ended.code == 8
    assert is_supervised(str(scenario.folder))
    await spawner.drain()
    end_orphans(lambda session: session != scenario.session)


class Silent:
    """Hears nothing."""

    def write(self, data: bytes) -> None: ...
