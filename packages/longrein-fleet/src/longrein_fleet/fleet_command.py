"""`longrein fleet`: run, resume and look at fleets."""

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from statistics import fmean
from typing import Any

import msgspec

from longrein.agent.shared_rate_limit import Rates
from longrein.app.run_context import RunContext
from longrein.extension_points import absence_of
from longrein.frontends.secret_input import is_confirmed
from longrein.frontends.stdio import say, show
from longrein.steps.human_text import counted, elapsed, escape_line, money, size, tokens
from longrein_context.events import LongreinError, UsageError
from longrein_fleet.comparison import as_table, compare
from longrein_fleet.executor import Attempt
from longrein_fleet.fleet_deletion import delete_fleet, planned_deletion
from longrein_fleet.fleet_log import (
    FleetLog,
    fleet_folder,
    holder_of,
    read_fleet,
    wait_until,
)
from longrein_fleet.fleet_state import (
    LOCAL,
    Engine,
    FleetState,
    TaskRetried,
    TaskState,
    result_of,
)
from longrein_fleet.local_executor import OUTPUT, TAIL_BYTES, with_store
from longrein_fleet.parquet import write_parquet
from longrein_fleet.runner import (
    TaskFileError,
    open_fleet,
    patch_text,
    resume_fleet,
    run_fleet,
)

PAUSED = 75
"""Exit code of a fleet that the provider has paused."""
STOP_S = 30.0
"""Longest wait for the end of a fleet that is stopped."""
WATCH_S = 0.5
"""Pause between two drawings of a fleet that is watched."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
Action = Callable[[RunContext, list[str], dict[str, Any]], int]


def fleet(run_context: RunContext, words: Sequence[str], **flags: Any) -> int:
    """Run one action of `longrein fleet`; return the exit code. Raises `UsageError`."""
    action, *rest = words
    if action not in ACTIONS:
        raise UsageError(f"longrein fleet: there is no {action!r}; there are {', '.join(ACTIONS)}")
    names, given, run = ACTIONS[action]
    if len(rest) != len(names):
        raise UsageError(f"write longrein fleet {' '.join((action, *names))}")
    for flag in flags:
        if flag not in given:
            raise UsageError(
                f"longrein fleet {action} has no --{flag.replace('_', '-')}: leave it out"
            )
    for flag in ("concurrency", "attempts"):
        if flags.get(flag, 1) < 1:
            raise UsageError(f"--{flag} must be at least 1")
    return run(with_store(run_context, flags.pop("store", "")), rest, flags)


# --- Actions that run tasks -----------------------------------------------------------------------


def _run(run_context: RunContext, words: list[str], flags: dict[str, Any]) -> int:
    name = flags.pop("name", "") or _default_name(words[0])
    flags["engine"] = _engine(flags) or LOCAL
    flags["rates"] = Rates(**{flag: flags.pop(flag) for flag in RATE_FLAGS if flag in flags})
    try:
        return asyncio.run(
            _to_the_end(run_context, lambda: open_fleet(run_context, name, words[0], **flags))
        )
    except TaskFileError as error:
        for problem in error.problems:
            say(f"{words[0]}: {problem}")
        raise UsageError(
            f"nothing was started: correct the {len(error.problems)} problem(s) in {words[0]}"
        ) from None


def _engine(flags: dict[str, Any]) -> Engine | None:
    """Take the flags of the engine out of `flags`; None if there are none."""
    given = {flag: flags.pop(flag) for flag in ENGINE_FLAGS if flag in flags}
    if not given:
        return None
    name = given.pop("engine", "local")
    if name == "local" and given:
        raise UsageError(f"--{', --'.join(given)} needs --engine ray")
    labels = dict(word.split("=", 1) for word in map(_label, given.pop("label", ())))
    return Engine(name, **given, labels=labels)


def _label(word: str) -> str:
    if "=" not in word:
        raise UsageError(f"--label {word}: write it as KEY=VALUE")
    return word


def _default_name(path: str) -> str:
    stem = os.path.basename(path.rstrip("/")).partition(".")[0]
    return re.sub(r"[^A-Za-z0-9_-]", "-", stem).strip("-_") or "fleet"


def _resume(run_context: RunContext, words: list[str], flags: dict[str, Any]) -> int:
    engine, cap_usd = _engine(flags), flags.get("max_budget_usd")
    return asyncio.run(
        _to_the_end(run_context, lambda: resume_fleet(run_context, words[0], cap_usd, engine))
    )


def _retry(run_context: RunContext, words: list[str], flags: dict[str, Any]) -> int:
    engine = _engine(flags)

    async def opened() -> FleetLog:
        log = await resume_fleet(run_context, words[0], flags.get("max_budget_usd"), engine)
        for name, task in log.state.tasks.items():
            if task.status == "ended" and task.end and task.end.cause != "done":
                log.append(TaskRetried(name))
        return log

    return asyncio.run(_to_the_end(run_context, opened))


async def _to_the_end(run_context: RunContext, opened: Callable[[], Any]) -> int:
    """Run a fleet, with a line on stderr for each task that ends."""
    log: FleetLog = await opened()
    stopped = list[int]()
    running = asyncio.ensure_future(_show_ends(run_fleet(run_context, log)))

    def stop(number: int) -> None:
        stopped.append(number)
        running.cancel()

    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    with suppress(asyncio.CancelledError):
        await running
    state = log.state
    name = state.opened.name
    if stopped:
        say(f"stopped: everything is kept, `longrein fleet resume {name}` goes on")
        return 128 + stopped[0]
    if state.paused:
        say(f"paused: {state.paused}; then `longrein fleet resume {name}` goes on")
        return PAUSED
    say(f"{_counts(state)}; {_money(state)}; `longrein fleet results {name}` has the patches")
    return 0 if state.all_done else 1


async def _show_ends(ends: AsyncGenerator[TaskState, None]) -> None:
    async with aclosing(ends):
        async for task in ends:
            say(_line(task))


# --- Actions that look ----------------------------------------------------------------------------


def _status(run_context: RunContext, words: list[str], flags: dict[str, Any]) -> int:
    read_fleet(run_context.state_dir, words[0])
    if flags.get("watch") and os.isatty(1):
        return asyncio.run(_watch(run_context.state_dir, words[0]))
    state, lines, _ = _summary(run_context.state_dir, words[0])
    lines = [*map(_line, state.tasks.values()), *lines]
    show("".join(f"{line}\n" for line in lines))
    return 0


async def _watch(state_dir: str, name: str) -> int:
    """Draw the state of a fleet over the last drawing, until nobody runs it."""
    drawn = 0
    while True:
        _, lines, holder = _summary(state_dir, name)
        columns = os.get_terminal_size(1).columns or 80
        text = "".join(f"{line[: columns - 1]}\n" for line in lines)
        os.write(1, f"\x1b[{drawn}F\x1b[J".encode() if drawn else b"")
        show(text)
        drawn = len(lines)
        if not holder:
            return 0
        await asyncio.sleep(WATCH_S)


def _summary(state_dir: str, name: str) -> tuple[FleetState, list[str], int]:
    """Return the state, lines about it, and the process that runs the fleet, 0 for none."""
    holder = holder_of(fleet_folder(state_dir, name))  # before what it may still write
    state = read_fleet(state_dir, name)
    ends = [task.end for task in state.tasks.values() if task.end]
    read = sum(end.input_tokens for end in ends)
    cached = sum(end.cached_tokens for end in ends)
    written = sum(end.output_tokens for end in ends)
    how = f"run by process {holder}" if holder else "nobody runs it"
    lines = [f"{_counts(state)}; {_money(state)}; {how}"]
    if read:
        share = f"{cached / read:.0%} of them from the cache"
        lines.append(f"{tokens(read)} tokens read, {share}; {tokens(written)} written")
    if state.paused:
        lines.append(escape_line(f"paused: {state.paused}"))
    elif holder and (left_s := _seconds_left(state)):
        lines.append(f"about {elapsed(left_s)} left")
    return state, lines, holder


def _seconds_left(state: FleetState) -> float:
    """Estimate by the mean time of the tasks that have ended; 0 where none has."""
    tasks = state.tasks.values()
    times = [task.end.seconds for task in tasks if task.end and task.end.seconds]
    to_do = sum(task.status != "ended" for task in tasks)
    return to_do * fmean(times) / state.opened.concurrency if times else 0.0


def _results(run_context: RunContext, words: list[str], flags: dict[str, Any]) -> int:
    state = read_fleet(run_context.state_dir, words[0])
    folder = fleet_folder(run_context.state_dir, words[0])
    results = (result_of(task, patch_text(folder, task)) for task in state.tasks.values())
    if path := flags.get("parquet"):
        write_parquet(run_context, results, path)
    else:
        for result in results:
            show(msgspec.json.encode(result) + b"\n")
    return 0 if state.all_done else 1


def _compare(run_context: RunContext, words: list[str], flags: dict[str, Any]) -> int:
    first, second = (
        [result_of(task, "") for task in read_fleet(run_context.state_dir, name).tasks.values()]
        for name in words
    )
    told = compare((words[0], words[1]), first, second)
    if told is None:
        raise UsageError(
            f"no task of {words[0]} and {words[1]} has ended in both: run the same tasks in each"
        )
    show(msgspec.json.encode(told) + b"\n" if flags.get("json") else as_table(told))
    return 0


def _inspect(run_context: RunContext, words: list[str], flags: dict[str, Any]) -> int:
    if absent := absence_of("inspect"):
        raise UsageError(f"longrein fleet inspect: {absent}")
    from longrein_fleet.fleet_inspection import inspect_fleet

    return inspect_fleet(run_context, words[0], **flags)


def _logs(run_context: RunContext, words: list[str], _flags: dict[str, Any]) -> int:
    name, task = words
    state = read_fleet(run_context.state_dir, name).tasks.get(task)
    if state is None:
        raise UsageError(f"the fleet {name} has no task {task!r}: `longrein fleet status {name}`")
    if not state.number:
        show(f"{_line(state)}\n")
        return 0
    session = state.session or (state.end.session if state.end else "")
    path = Attempt(state.task, state.number, session).path
    folder = os.path.join(fleet_folder(run_context.state_dir, name), path)
    show(f"{_line(state)}\nfolder   {folder}\nsession  {session} (longrein inspect {session})\n")
    with suppress(OSError), open(os.path.join(folder, OUTPUT), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
        show(file.read())
    return 0


def _stop(run_context: RunContext, words: list[str], _flags: dict[str, Any]) -> int:
    read_fleet(run_context.state_dir, words[0])
    folder = fleet_folder(run_context.state_dir, words[0])
    holder = holder_of(folder)
    if not holder:
        say(f"nobody runs the fleet {words[0]}")
        return 0
    with suppress(ProcessLookupError):
        os.kill(holder, signal.SIGTERM)
    if not asyncio.run(wait_until(lambda: not holder_of(folder), STOP_S)):
        raise LongreinError(
            f"the fleet {words[0]} has not ended after {STOP_S:.0f} s: it is ending its work"
        )
    say(f"stopped: `longrein fleet resume {words[0]}` goes on")
    return 0


def _delete(run_context: RunContext, words: list[str], flags: dict[str, Any]) -> int:
    planned = planned_deletion(run_context, words[0])
    if holder := holder_of(planned.folder):
        raise UsageError(
            f"the fleet {words[0]} is run by process {holder}: `longrein fleet stop {words[0]}` "
            "first"
        )
    goes = f"{planned.folder}, {size(planned.size_bytes)}\n"
    if flags.get("keep_sessions"):
        planned = msgspec.structs.replace(planned, sessions=())
    else:
        count = counted(len(planned.sessions), "session")
        goes += f"{count} of its tasks, {size(planned.sessions_bytes)}\n"
    show(goes)
    if not (flags.get("yes") or is_confirmed("Delete it? [y/n] ")):
        say("nothing was deleted; --yes deletes it without a question")
        return 0
    problems = asyncio.run(delete_fleet(run_context, planned))
    for problem in problems:
        say(problem)
    if problems:
        return 1
    show(f"the fleet {words[0]} is gone\n")
    return 0


def _line(task: TaskState) -> str:
    end = task.end
    how = task.status if task.status != "ended" or end is None else end.cause
    message = f": {end.message}" if end and end.message and how != "running" else ""
    return f"{task.task.id}  {how}{message}  {money(task.cost_usd)}"


def _counts(state: FleetState) -> str:
    counts = Counter(
        task.end.cause if task.end and task.status == "ended" else task.status
        for task in state.tasks.values()
    )
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _money(state: FleetState) -> str:
    budget = state.budget
    cap = "" if budget.cap_usd is None else f" of {money(budget.cap_usd)}"
    return f"{money(budget.spent_usd)}{cap} spent"


ENGINE_FLAGS = ("engine", "address", "cpus", "gpus", "label")
GO_ON_FLAGS = ("max_budget_usd", "store", *ENGINE_FLAGS)
RATE_FLAGS = Rates.__struct_fields__
RUN_FLAGS = ("name", "concurrency", "attempts", *RATE_FLAGS, *GO_ON_FLAGS)
ACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...], Action]] = {
    "run": (("TASKS",), RUN_FLAGS, _run),
    "resume": (("NAME",), GO_ON_FLAGS, _resume),
    "retry": (("NAME",), GO_ON_FLAGS, _retry),
    "status": (("NAME",), ("watch",), _status),
    "results": (("NAME",), ("parquet", "store"), _results),
    "compare": (("A", "B"), ("json",), _compare),
    "inspect": (("NAME",), ("out", "no_open", "live"), _inspect),
    "logs": (("NAME", "ID"), (), _logs),
    "stop": (("NAME",), (), _stop),
    "delete": (("NAME",), ("keep_sessions", "yes", "store"), _delete),
}
"""Action -> its words, its flags, its function."""
