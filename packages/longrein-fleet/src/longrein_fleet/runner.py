"""Run a fleet: start what fits, record what ends, until nothing is left or the fleet pauses."""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from uuid import NAMESPACE_URL, uuid5

import msgspec

from longrein.agent.shared_rate_limit import Rates, SharedRates
from longrein.app.run_context import CLOCK, RunContext, read_run_context
from longrein.atomic_file import replace_file
from longrein.options import Options
from longrein.store.session_store import store_of
from longrein.workspace import temporary_spawner
from longrein_context.events import UsageError
from longrein_fleet.attempt_folder import revision_of
from longrein_fleet.executor import Attempt, Executor
from longrein_fleet.fleet_log import FleetLog, open_fleet_log, read_fleet
from longrein_fleet.fleet_state import (
    LOCAL,
    OUTAGES_MAX,
    UNLIMITED,
    AttemptEnded,
    Cause,
    Engine,
    FleetOpened,
    FleetPaused,
    FleetResumed,
    FleetState,
    TaskResult,
    TaskStarted,
    TaskState,
    next_choice,
    result_of,
)
from longrein_fleet.fleet_tasks import Problem, Task, read_tasks
from longrein_fleet.harbor_tasks import read_harbor_tasks
from longrein_fleet.local_executor import (
    RATES,
    LocalExecutor,
    with_store,
)
from longrein_fleet.task_images import find_image

OUTAGE_S, OUTAGE_S_MAX = 2.0, 60.0
"""Wait after the first outage of a task, doubled with each further one, and the longest."""

PAUSES: Mapping[Cause, str] = {
    "quota": "the provider has no quota left ({}): wait until it has some again",
    "key": "the provider refuses the key ({}): correct it, as by `longrein login`",
}
"""Cause of an end that pauses the fleet -> why, and what to do."""


class TaskFileError(UsageError):
    """Tasks that cannot be run; `problems` has a line for each."""

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        super().__init__(
            f"{name}: nothing was started, {len(problems)} problem(s): "
            + "; ".join(map(str, problems))
        )
        self.problems = problems


async def load_tasks(
    run_context: RunContext, tasks: str | Sequence[Task], cap_usd: float | None
) -> tuple[Task, ...]:
    """Read tasks, the file of this path, or the Harbor tasks of this folder, with folders made
    absolute and revisions made commits. `cap_usd` is the money limit of the fleet.

    Raises `UsageError`, `TaskFileError`.
    """
    has_cap = cap_usd is not None
    if not isinstance(tasks, str):
        data = msgspec.json.Encoder().encode_lines(tasks)
        return await _checked(run_context, data, run_context.cwd, "tasks", has_cap=has_cap)
    if os.path.isdir(tasks):
        async with temporary_spawner(run_context.environ) as spawner:
            read, problems = await read_harbor_tasks(run_context, spawner, tasks, cap_usd)
        if problems:
            raise TaskFileError(tasks, problems)
        data = msgspec.json.Encoder().encode_lines(read)
        return await _checked(run_context, data, run_context.cwd, tasks, has_cap=has_cap)
    try:
        with open(tasks, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(f"{tasks} cannot be read: {error.strerror}") from None
    folder = os.path.dirname(os.path.abspath(tasks))
    return await _checked(run_context, data, folder, tasks, has_cap=has_cap)


async def _checked(
    run_context: RunContext, data: bytes, folder: str, name: str, *, has_cap: bool
) -> tuple[Task, ...]:
    read, problems = read_tasks(data, has_cap=has_cap)
    found = list[Task]()
    revisions = dict[tuple[str, str], tuple[str, str]]()
    async with temporary_spawner(run_context.environ) as spawner:
        for line, task in read.items():
            if "\0" in task.folder + task.base + task.image + task.tests or not task.folder:
                continue
            where = os.path.realpath(os.path.join(folder, task.folder))
            asked = (where, task.base)
            if asked not in revisions:
                revisions[asked] = await revision_of(spawner, run_context.environ, *asked)
            commit, problem = revisions[asked]
            if not commit and os.path.realpath(run_context.state_dir).startswith(f"{where}/"):
                problem = f"{where} holds longrein's state folder, so it cannot be copied there"
            if problem:
                problems.append(Problem(line, problem))
            tests = os.path.realpath(os.path.join(folder, task.tests)) if task.tests else ""
            if tests and not os.path.isfile(os.path.join(tests, "test.sh")):
                problems.append(Problem(line, f"there is no {tests}/test.sh"))
            image, problem = find_image(run_context.environ, folder, task.image)
            if problem:
                problems.append(Problem(line, problem))
            made = {"folder": where, "base": commit, "image": image, "tests": tests}
            found.append(msgspec.structs.replace(task, **made))
    if problems:
        raise TaskFileError(name, sorted(problems, key=lambda problem: problem.line))
    return tuple(found)


class Fleet:
    """A fleet that this process runs."""

    def __init__(self, log: FleetLog, executor: Executor) -> None:
        self.log, self._executor = log, executor

    @property
    def state(self) -> FleetState:
        """State after the last event."""
        return self.log.state

    async def run(self) -> AsyncGenerator[TaskState, None]:
        """Run what can run; yield each task at its end."""
        for task in self.state.running:
            if not self.state.paused:
                self._start(task, task.number)
        async with aclosing(self._executor.events()) as ends:
            while True:
                for task in self._start_all():
                    yield task
                if not self.state.running_count:
                    return
                end = await anext(ends)
                self._record(end)
                task = self.state.tasks[end.id]
                if task.status == "ended":
                    yield task

    def _start_all(self) -> list[TaskState]:
        """Start what fits; return the tasks that can never fit, which have ended."""
        ended = []
        while choice := next_choice(self.state):
            task = choice.task
            if choice.fits:
                self._start(task, task.number + (not task.session))
                continue
            budget = self.state.budget
            message = (
                f"it may spend ${task.may_spend_usd:.4f}, and ${budget.spent_usd:.4f} of "
                f"${budget.cap_usd or 0:.4f} are spent: raise --max-budget-usd with "
                f"`longrein fleet retry {self.state.opened.name}`"
            )
            self.log.append(
                AttemptEnded(
                    task.task.id, "budget", message, task.session, cost_usd=task.session_usd
                )
            )
            ended.append(self.state.tasks[task.task.id])
        return ended

    def _start(self, task: TaskState, number: int) -> None:
        opened = self.state.opened
        name = f"longrein/fleet/{opened.name}/{opened.at}/{task.task.id}/{number}"
        session = task.session or str(uuid5(NAMESPACE_URL, name))
        self.log.append(TaskStarted(task.task.id, number, session, task.may_spend_usd))
        delay_s = min(OUTAGE_S * 2 ** (task.outages - 1), OUTAGE_S_MAX) if task.outages else 0.0
        self._executor.submit(Attempt(task.task, number, session, delay_s))

    def _record(self, end: AttemptEnded) -> None:
        self.log.append(end)
        outages = self.state.tasks[end.id].outages
        if self.state.paused:
            return
        if end.cause in PAUSES:
            self.log.append(FleetPaused(PAUSES[end.cause].format(end.message)))
        elif outages >= OUTAGES_MAX:
            who = "the machines" if end.cause == "node" else "the provider"
            self.log.append(FleetPaused(f"{who} failed {outages} times in a row ({end.message})"))


async def run_fleet(run_context: RunContext, log: FleetLog) -> AsyncGenerator[TaskState, None]:
    """Run the fleet of an open log to its end and close the log; yield each task at its end."""
    try:
        rates = msgspec.json.encode(SharedRates(log.state.opened.rates))
        replace_file(os.path.join(log.folder, RATES), [rates], durable=False)
        executor = await _open_executor(run_context, log)
        try:
            async with aclosing(Fleet(log, executor).run()) as ends:
                async for task in ends:
                    yield task
        finally:
            await executor.close()
    finally:
        log.close()


async def _open_executor(run_context: RunContext, log: FleetLog) -> Executor:
    if log.state.engine.name == "ray":
        from longrein_fleet.ray_executor import open_ray

        opened = log.state.opened
        rates = f"fleet {opened.name} {opened.at}"
        return await open_ray(
            run_context, log.folder, log.state.engine, rates, concurrency=opened.concurrency
        )
    executor = LocalExecutor(run_context, log.folder)
    await executor.wait_for_earlier()
    return executor


def _store_name(state_dir: str) -> str:
    store = store_of(state_dir)
    return store.name if store else ""


async def open_fleet(
    run_context: RunContext,
    name: str,
    tasks: str | Sequence[Task],
    *,
    concurrency: int = 2,
    attempts: int = 1,
    max_budget_usd: float | None = None,
    engine: Engine = LOCAL,
    rates: Rates = UNLIMITED,
) -> FleetLog:
    """Open the log of a new fleet. Raises `UsageError`, also if there is one of that name."""
    log = await open_fleet_log(run_context.state_dir, name, CLOCK.wall_us)
    try:
        if not log.is_new:
            raise UsageError(
                f"there is a fleet {name!r} already: `longrein fleet resume {name}` goes on with "
                "it, --name starts another one"
            )
        loaded = await load_tasks(run_context, tasks, max_budget_usd)
        at = CLOCK.wall_us()
        store = _store_name(run_context.state_dir)
        limits = (concurrency, attempts, max_budget_usd)
        log.append(FleetOpened(name, at, loaded, *limits, store, engine, rates))
    except BaseException:
        log.close()
        raise
    return log


async def resume_fleet(
    run_context: RunContext, name: str, max_budget_usd: float | None, engine: Engine | None = None
) -> FleetLog:
    """Open the log of a stored fleet to go on with it. Raises `UsageError`."""
    state = read_fleet(run_context.state_dir, name)
    if state.opened.store != _store_name(run_context.state_dir):
        where = state.opened.store or "files, not in a store"
        raise UsageError(f"the sessions of the fleet {name} are in {where}: see --store")
    tasks = state.tasks.values()
    unlimited = [one.task.id for one in tasks if one.task.limits.usd is None]
    if max_budget_usd is not None and unlimited:
        raise UsageError(
            f"the task {unlimited[0]} of the fleet {name} has no limits.usd to reserve: leave out "
            "--max-budget-usd, or run the tasks under another name"
        )
    log = await open_fleet_log(run_context.state_dir, name, CLOCK.wall_us)
    log.append(FleetResumed(max_budget_usd, engine))
    return log


async def run(  # noqa: PLR0913 - each is a choice of `fleet run`
    tasks: str | Sequence[Task],
    *,
    name: str = "fleet",
    concurrency: int = 2,
    attempts: int = 1,
    max_budget_usd: float | None = None,
    engine: Engine = LOCAL,
    rates: Rates = UNLIMITED,
    state_dir: str = "",
    store: str = "",
) -> AsyncGenerator[TaskResult, None]:
    """Run tasks, or the file of that path, and yield the result of each at its end.

    Leaving the loop ends what runs; `longrein fleet resume NAME` goes on with it. Raises
    `UsageError`.
    """
    run_context = with_store(read_run_context(Options(state_dir=state_dir)), store)
    log = await open_fleet(
        run_context,
        name,
        tasks,
        concurrency=concurrency,
        attempts=attempts,
        max_budget_usd=max_budget_usd,
        engine=engine,
        rates=rates,
    )
    async with aclosing(run_fleet(run_context, log)) as ends:
        async for task in ends:
            yield result_of(task, patch_text(log.folder, task))


def patch_text(folder: str, task: TaskState) -> str:
    """Return the patch of a task's last attempt."""
    if task.end is None or not task.end.patch:
        return ""
    try:
        with open(os.path.join(folder, task.end.patch), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
