"""Attempts as processes of this machine.

They run below the supervisor of the fleet, which ends them with all their processes when the fleet
ends, also after `kill -9`.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import BinaryIO

import msgspec

from longrein.app.execution import sandbox_in
from longrein.app.run_context import CLOCK, RunContext, use_store_at
from longrein.atomic_file import replace_file
from longrein.store import Reader, is_open
from longrein.store.session_folder import CHECKPOINTS, session_folder
from longrein.workspace import (
    CommandExit,
    CommandSpec,
    Confinement,
    SupervisedSpawner,
    SupervisionOptions,
)
from longrein.workspace.command_environment import children_environment
from longrein.workspace.supervisor_client import connect
from longrein.workspace.tree_records import CheckpointError
from longrein_context.events import CheckpointTaken, LongreinError, SessionUnknown
from longrein_fleet.attempt_folder import (
    PATCH,
    TESTS,
    AttemptFolder,
    FolderCommand,
)
from longrein_fleet.executor import Attempt, Executor
from longrein_fleet.fleet_log import wait_until
from longrein_fleet.fleet_state import UNCOUNTED, AttemptEnded, Cause
from longrein_fleet.fleet_tasks import Task
from longrein_fleet.harbor_check import SOLVED, prepare_tests, read_reward, remove_tests
from longrein_fleet.session_outcome import SessionOutcome, session_outcome

COMMAND_S = 1800.0
"""Time limit of `setup`, and of `check` without `limits.check_seconds`."""
AGENT_S_MAX = 7 * 24 * 3600.0
"""Longest run of an agent without `limits.seconds`."""
OUTPUT_BYTES_MAX = 1 << 30
GRACE_S = 5.0
"""Time from TERM to KILL; longrein saves its session meanwhile."""
CLOSED_S = 20.0
"""Longest wait for the process of a killed fleet to leave its session."""
OUTPUT, SETUP_LOG, CHECK_LOG = "output.jsonl", "setup.log", "check.log"
PROMPT = "prompt"
RATES = "rates.json"
"""File by which the attempts share the limits and the waits of the provider."""
TAIL_BYTES = 4_000
STORE = "LONGREIN_STORE"
BLOCKED, LIMIT, TRY_AGAIN = 3, 4, 75
"""Exit codes of `longrein -p`."""
ENDS: Mapping[str, Cause] = {"done": "done", "limit": "limit", "budget": "limit"}
"""Reason of the end of a turn that is not gone on with -> its cause."""
PAUSING: Mapping[str, Cause] = {"billing": "quota", "auth": "key"}
"""Kind of a failed request that every task would meet -> the cause."""
GO_ON = "Go on with the task: the last run was cut."
TASK_HOURS = "0.01"
"""How long background tasks of an attempt go on once its process has ended."""


def with_store(run_context: RunContext, address: str) -> RunContext:
    """Keep the sessions of a fleet in the store at `address`, if one is given."""
    if not address:
        return run_context
    use_store_at(run_context.state_dir, address)
    return msgspec.structs.replace(run_context, environ={**run_context.environ, STORE: address})


class FileSink:
    """A `Sink` that appends to a file and keeps the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.tail = b""

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        self.tail = (self.tail + data)[-TAIL_BYTES:]


class LocalExecutor(Executor):
    """An `Executor` of processes on this machine."""

    def __init__(
        self,
        run_context: RunContext,
        folder: str,
        spool: str = "",
        sources: bytes = b"",
        rates: str = "",
    ) -> None:
        """`folder`: that of the fleet. `spool`: that of the supervisor of its processes.
        `sources`: of the attempt, as `AttemptFolder.pack` writes them; empty where the folders of
        its task are here. `rates`: name of the fleet's rates in the store, or their file; '' for
        that in `folder`.
        """
        super().__init__()
        self._rates = rates or os.path.join(folder, RATES)
        self._sources = sources
        self._place, self._folder = run_context, folder
        self._spool = spool or os.path.join(folder, "supervisor")
        self.spawner = make_spawner(run_context, self._spool)

    async def wait_for_earlier(self) -> None:
        """Wait until the processes of an earlier, killed executor have ended."""
        await wait_until(self._is_free, CLOSED_S)

    def _is_free(self) -> bool:
        found = connect(self._spool)
        if found is not None:
            found.close()
        return found is None

    async def close(self) -> None:
        """See `Executor.close`."""
        await super().close()
        await self.spawner.drain()

    async def run_attempt(self, attempt: Attempt) -> AttemptEnded:
        """See `Executor.run_attempt`."""
        try:
            return await self._attempt(attempt)
        except LongreinError as error:  # of the store
            return AttemptEnded(attempt.task.id, "node", str(error), attempt.session)
        except OSError as error:
            problem = f"{error.strerror}: {error.filename}"
        except Exception as error:
            problem = f"a fault of longrein: {error!r}"
        return AttemptEnded(attempt.task.id, "setup failed", problem)

    async def _attempt(self, attempt: Attempt) -> AttemptEnded:
        task = attempt.task
        path = os.path.join(self._folder, attempt.path)
        sandbox = sandbox_in(self._place, path, [path])
        folder = AttemptFolder(path, self.spawner, self._place.environ, sandbox, task.image)
        is_new = not folder.is_ready
        if is_new:
            problem = await self._copy(folder, task)
            problem = problem or await folder.unpack()
            problem = problem or await self._set_up(folder, task.setup)
            if self._sources and not problem:  # on another machine the setup may make other files
                self._bring_tree(attempt.session, folder, is_new=True, first=True)
            problem = problem or await folder.finish(task.base)
            if problem:
                return AttemptEnded(task.id, "setup failed", problem, attempt.session)
        outcome, cause, message = await self._agent(attempt, folder, is_new=is_new)
        end = AttemptEnded(
            task.id,
            cause,
            message,
            attempt.session,
            outcome.cost_usd,
            outcome.input_tokens,
            outcome.output_tokens,
            outcome.seconds,
            outcome.cached_tokens,
        )
        if cause in UNCOUNTED:
            return end
        end = await self._judge(attempt, folder, end)
        await folder.remove_image()
        return end

    async def _copy(self, folder: AttemptFolder, task: Task) -> str:
        if self._sources:
            return await folder.unpack_work(self._sources)
        return await folder.copy(task.folder, task.base)

    async def _judge(
        self, attempt: Attempt, folder: AttemptFolder, end: AttemptEnded
    ) -> AttemptEnded:
        """Write the patch and run the check of an attempt whose agent has ended."""
        has_changes, problem = await folder.write_patch()
        patch = f"{attempt.path}/{PATCH}" if has_changes else ""
        message = "; ".join(filter(None, (end.message, problem)))
        end = msgspec.structs.replace(
            end, patch=patch, message=message, is_incomplete=bool(problem)
        )
        if attempt.task.tests and end.cause in ("done", "limit"):
            return await self._test(attempt.task, folder, end)
        if end.cause == "done" and attempt.task.check:
            return await self._check(attempt.task, folder, end)
        return end

    async def _check(self, task: Task, folder: AttemptFolder, end: AttemptEnded) -> AttemptEnded:
        """Run the check of a task, confined, because it runs what the agent has written."""
        confinement = folder.confine(folder.work)
        limit_s = task.limits.check_seconds or COMMAND_S
        result = await self._command(folder, task.check, CHECK_LOG, confinement, limit_s)
        end = msgspec.structs.replace(end, check_code=result.exit.code)
        if not result.problem:
            return end
        return msgspec.structs.replace(end, cause="check failed", message=result.problem)

    async def _test(self, task: Task, folder: AttemptFolder, end: AttemptEnded) -> AttemptEnded:
        """Run the tests of a task, which decide by their reward, also after a limit."""
        tests, given = os.path.join(folder.path, "harbor"), task.tests
        if self._sources:
            given = os.path.join(folder.path, TESTS)
            if problem := await folder.unpack_tests(self._sources):
                return msgspec.structs.replace(end, cause="check failed", message=problem)
        try:
            command = prepare_tests(given, tests)
        except OSError as error:
            message = f"the tests in {task.tests} cannot be copied: {error}"
            return msgspec.structs.replace(end, cause="check failed", message=message)
        confinement = folder.confine(folder.work, tests)
        limit_s = task.limits.check_seconds or COMMAND_S
        result = await self._command(folder, command, CHECK_LOG, confinement, limit_s)
        remove_tests(tests)
        reward, problem = read_reward(tests)
        end = msgspec.structs.replace(end, check_code=result.exit.code, reward=reward)
        if reward is not None and reward >= SOLVED:
            return msgspec.structs.replace(end, cause="done")
        if end.cause == "limit":
            return end
        message = problem or f"the reward is {reward:g}; {result.problem}".rstrip("; ")
        return msgspec.structs.replace(end, cause="check failed", message=message)

    # --- Commands of the task ---------------------------------------------------------------------

    async def _set_up(self, folder: AttemptFolder, command: str) -> str:
        if not command:
            return ""
        problem = (await self._command(folder, command, SETUP_LOG, folder.confine_setup())).problem
        return f"setup: {problem}" if problem else ""

    async def _command(
        self,
        folder: AttemptFolder,
        command: str,
        log: str,
        confinement: Confinement | None = None,
        limit_s: float = COMMAND_S,
    ) -> FolderCommand:
        keep = self._place.settings.env.keep
        environ = children_environment(self._place.environ, keep)
        spec = CommandSpec(command, folder.work, environ, confinement)
        return await self._run_into(os.path.join(folder.path, log), spec, limit_s)

    async def _run_into(self, path: str, spec: CommandSpec, timeout_s: float) -> FolderCommand:
        """Run a command whose output is appended to a file."""
        with open(path, "ab") as file:
            sink = FileSink(file)
            ended = await self.spawner.run(
                spec, sink=sink, timeout_s=timeout_s, output_bytes_max=OUTPUT_BYTES_MAX
            )
        return FolderCommand(ended, sink.tail.decode("utf-8", "replace"))

    # --- The agent --------------------------------------------------------------------------------

    async def _agent(
        self, attempt: Attempt, folder: AttemptFolder, *, is_new: bool
    ) -> tuple[SessionOutcome, Cause, str]:
        """Start the agent or let it go on; nothing is run if its session is done already. `is_new`:
        the folder has just been made.
        """
        state_dir = self._place.state_dir
        await wait_until(lambda: not is_open(state_dir, attempt.session), CLOSED_S)
        if self._sources:
            self._bring_tree(attempt.session, folder, is_new=is_new)
        outcome = session_outcome(state_dir, attempt.session)
        if outcome.reason in ENDS:  # the fleet or the node was killed before this was noted
            return outcome, ENDS[outcome.reason], outcome.message
        words, prompt = ["--session-id", attempt.session], attempt.task.prompt
        if outcome.exists:
            words = ["--resume", attempt.session]
        if outcome.is_asked:
            prompt = GO_ON if outcome.reason else ""
        result = await self._longrein(attempt, folder, words, prompt)
        outcome = session_outcome(state_dir, attempt.session)
        cause, message = judge(result, outcome)
        return outcome, cause, message

    def _bring_tree(
        self, session: str, folder: AttemptFolder, *, is_new: bool, first: bool = False
    ) -> None:
        """Check out what a session has left, or found at first, where the folder `is_new` or the
        session was on another machine since it was here.

        Nothing else runs here meanwhile. Raises `LongreinError` where that is not possible,
        OSError.
        """
        from longrein.agent.checkpoints import place_of
        from longrein.agent.stored_trees import check_out_stored
        from longrein.workspace.root_copies import CheckpointStore

        store = CheckpointStore(os.path.join(folder.path, "trees"), self._place.environ)
        with suppress(SessionUnknown), closing(Reader(self._place.state_dir, session)) as reader:
            found = sorted(reader.of_kind("CheckpointTaken"), key=lambda entry: entry.seq)
            events = [one.event for one in found if isinstance(one.event, CheckpointTaken)]
            places = [event.place for event in events if event.place]
            kept = os.path.join(session_folder(self._place.state_dir, session), CHECKPOINTS)
            if not is_new and places[-1:] == [place_of(kept, folder.work)]:
                return
            try:
                left = check_out_stored(events, folder.work, store, reader.blob, first=first)
            except CheckpointError as error:
                left = [str(error)]
            if left:
                raise LongreinError(f"the files are not as on the other machine: {left[0]}")

    async def _longrein(
        self, attempt: Attempt, folder: AttemptFolder, words: list[str], prompt: str
    ) -> FolderCommand:
        task, limits = attempt.task, attempt.task.limits
        flags = ["-p", "--output-format", "stream-json", "--permission-mode", attempt.mode]
        flags += ["--state-dir", self._place.state_dir]
        flags += ["--model", task.model] if task.model else []
        flags += ["--max-turns", str(limits.turns)] if limits.turns else []
        flags += ["--max-budget-usd", f"{limits.usd:.9f}"] if limits.usd else []
        flags += attempt.flags
        environ = {
            **self._place.environ,
            "LONGREIN_TASKS_KEEP_HOURS": TASK_HOURS,
            "LONGREIN_RATES": self._rates,
        }
        environ |= {"LONGREIN_SANDBOX_IMAGE": folder.image} if folder.image else {}
        command: str | list[str] = [sys.executable, "-P", "-m", "longrein", *flags, *words]
        if prompt and attempt.is_typed:
            command = [*command, "--", prompt]
        elif prompt:
            path = os.path.join(folder.path, PROMPT)
            replace_file(path, [prompt.encode()], durable=False)
            command = f"exec {shlex.join(command)} < {shlex.quote(path)}"
        spec = CommandSpec(command, folder.work, environ)
        timeout_s = limits.seconds or AGENT_S_MAX
        return await self._run_into(os.path.join(folder.path, OUTPUT), spec, timeout_s)


def judge(result: FolderCommand, outcome: SessionOutcome) -> tuple[Cause, str]:
    """Return the cause of an agent's end, and what to say of it."""
    ended: CommandExit = result.exit
    said = [line for line in result.output.splitlines() if line.startswith("longrein: ")]
    message = said[-1].removeprefix("longrein: ") if said else outcome.message
    if ended.cause == "timeout":
        return "limit", f"limits.seconds: stopped after {ended.elapsed_s:.0f} s"
    if ended.code == 0:
        return "done", ""
    if outcome.failure in PAUSING:
        return PAUSING[outcome.failure], message
    if ended.code == TRY_AGAIN or ended.cause == "lost":
        return "outage", message
    if ended.code == LIMIT:
        return "limit", message
    return "agent failed", message or result.problem


def make_spawner(run_context: RunContext, folder: str) -> SupervisedSpawner:
    """Return the spawner of a fleet; its supervisor ends what runs if this process dies."""
    return SupervisedSpawner(
        folder,
        SupervisionOptions(grace_s=GRACE_S),
        wall_us=CLOCK.wall_us,
        notice=lambda _line: None,
        environ=run_context.environ,
    )
