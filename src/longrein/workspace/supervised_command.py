"""Run commands through the supervisor, so that they can become background tasks and outlive
longrein.

Each session has one supervisor. It is started ahead of the first command and found again by its
socket after a crash. Where no supervisor can be started, commands are children of longrein and
cannot go to the background.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import msgspec

from longrein.events import redactor
from longrein.events.redact_stream import StreamRedactor
from longrein.workspace.child_process import (
    ChildCommand,
    NullSink,
    PlainSpawner,
    RunningCommand,
    open_pipes,
    open_stream_pipes,
    start_failure,
)
from longrein.workspace.command_environment import DEFAULT_PATH, nesting_depth
from longrein.workspace.spool_reader import EARLY_PREFIX, remove_task
from longrein.workspace.stream_process import (
    ERROR_OUTPUT_BYTES_MAX,
    StreamProcess,
    TailSink,
    connect_streams,
)
from longrein.workspace.supervisor.command_argv import close
from longrein.workspace.supervisor.process_privacy import hide_memory
from longrein.workspace.supervisor.process_tree import GIVE_UP_S, GRACE_S
from longrein.workspace.supervisor_client import (
    HELLO_S,
    UNRESPONSIVE,
    SupervisorConnection,
    connect,
    start_supervisor,
)
from longrein.workspace.task_adoption import END_S, BackgroundTasks
from longrein.workspace.workspace_port import (
    BackgroundOptions,
    CommandExit,
    CommandSpec,
    ReplayableSink,
    Sink,
    SpooledTask,
    StartedCommand,
    Streams,
)

if TYPE_CHECKING:
    from longrein.workspace.supervisor.spool_writer import SpoolWriter


# --- One command, until it has ended or is in the background --------------------------------------

LOST_EXIT = CommandExit(
    None, "", "lost", "the supervisor of processes ended, and what it had started was ended with it"
)
NO_ANSWER = "the supervisor of processes did not answer, so longrein ended it itself ({})"
_numbers = count(1)


async def spool_early_output(
    output: "SpoolWriter",
    printed: ReplayableSink | None,
    printed_bytes: int,
    keeping: BackgroundOptions,
) -> dict[str, object]:
    """Write a command's foreground output to the spool, redacted and within the quota. Raises
    OSError.

    `printed` has the output, None when nothing was read. Output that cannot be read again is
    counted as lost. Returns the state with which the supervisor goes on writing. The event loop
    gets its turn between pieces.
    """
    output.set_quota(keeping.quota_bytes)
    try:
        for piece in printed.pieces() if printed is not None else ():
            output.write(piece)
            printed_bytes -= len(piece)
            await asyncio.sleep(0)
    except OSError as error:
        output.count_lost(error, max(0, printed_bytes))
    try:
        output.rename(keeping.task)
    except OSError:
        remove_task(output.folder, output.task)
        raise
    return output.export_state()


class SupervisedCommand(RunningCommand):
    """A command whose parent is the supervisor.

    It is in the spawner's `commands` until it has ended or is in the background.
    """

    def __init__(
        self,
        spawner: "SupervisedSpawner",
        connection: SupervisorConnection,
        pipes: tuple[int, int],
        sink: Sink | None,
        output_bytes_max: int,
        cwd: str,
    ) -> None:
        super().__init__(pipes, sink, output_bytes_max)
        self.number = next(_numbers)
        """Number that identifies the command in messages to the supervisor."""
        self.started: asyncio.Future[OSError | ValueError | None] = self._loop.create_future()
        """None once the command runs, else why it does not."""
        self._printed = sink
        """Has the foreground output; None when it is still in the pipe."""
        self._spawner = spawner
        self._connection = connection
        self._cwd = cwd
        self._mark = ""
        spawner.commands[self.number] = self
        self._over: Mapping[str, Any] | None = None
        self._told_to_end = self._is_kept = self._done = False
        self._why_lost = LOST_EXIT.message

    # --- Messages from the supervisor -------------------------------------------------------------

    def on_started(self, pid: int, mark: str) -> None:
        """Handle `started`: the command runs, its processes carry `mark`."""
        self.pid, self._mark = pid, mark
        if not self.started.done():
            self.started.set_result(None)

    def on_start_failed(self, error: OSError | ValueError) -> None:
        """Handle `not_started`."""
        self._spawner.commands.pop(self.number, None)
        self._done = True
        self._close_pipes()
        if not self.started.done():
            self.started.set_result(error)

    def on_ended(self, how: Mapping[str, Any]) -> None:
        """Handle `ended`: the process has exited; if it was told to end, its whole tree has."""
        self._spawner.commands.pop(self.number, None)
        self._over = how
        self._output.exited()

    def on_lost(self) -> None:
        """Handle the supervisor's death: the outcome is unknown."""
        if not self.started.done():
            self.on_start_failed(ConnectionError(LOST_EXIT.message))
        elif self._over is None:
            self.on_ended({})

    def _on_output_end(self, _: object) -> None:
        if self._is_kept or self._end.done() or self._over is None:
            return
        elapsed_s = self._loop.time() - self._began
        if not self._over:
            ended = msgspec.structs.replace(LOST_EXIT, message=self._why_lost, elapsed_s=elapsed_s)
        elif self._over["returncode"] is None:
            ended = CommandExit(None, "", self._over["cause"], "it could not be ended", elapsed_s)
        else:
            ended = self._exit(self._over["returncode"], self._over["cause"])
        self._end.set_result(ended)
        if self._told_to_end:
            self.abandon()

    # --- Requests of longrein ---------------------------------------------------------------------

    def end(self, cause: str) -> None:
        if self._over is None and not self._told_to_end:
            self._told_to_end = True
            self._connection.send(do="end", number=self.number, cause=cause)
            self._spawner.run_in_background(self._end_if_unanswered(cause))
            if cause == "interrupt":
                self._output.discard_output()

    async def _end_if_unanswered(self, cause: str) -> None:
        """End the process tree from here, by its mark, when the supervisor does not answer."""
        try:
            await self._connection.ask(do="ping")
        except ConnectionError:
            if not self._connection.gone and self._over is None and self._mark:
                await self._spawner.end_marked(self._mark, self.pid)
                self._why_lost = NO_ANSWER.format(cause)
                self.on_lost()

    def abandon(self) -> None:
        """Close the pipes; the supervisor drops the rest of the output."""
        if not self._done and not self._is_kept:
            self._done = True
            self._connection.send(do="done", number=self.number)
            self._close_pipes()

    async def keep(self, keeping: BackgroundOptions) -> SpooledTask:
        from longrein.workspace.supervisor.command_processes import KeptTask

        if self._done or self._connection.gone:
            raise OSError(
                "it has ended and was let go" if self._done else "there is no supervisor to keep it"
            )
        self._spawner.check_new(keeping.task)
        self._is_kept = True
        self._spawner.commands.pop(self.number, None)
        self._close_pipes()
        written = await spool_early_output(
            self._spawner.open_early_output(),
            cast("ReplayableSink | None", self._printed),
            self._output.size_bytes,
            keeping,
        )
        shown = self._cwd.encode("utf-8", "replace").decode()  # a folder name may be any bytes
        record = {"task": keeping.task, "command": keeping.command, "cwd": shown}
        wanted = {name: getattr(keeping, name) for name in KeptTask._fields}
        answer = await self._connection.ask(
            do="keep", number=self.number, keeping=wanted, record=record, written=written
        )
        if answer["error"]:
            raise OSError(answer["error"])
        return self._spawner.known(keeping.task)


# --- The spawner ----------------------------------------------------------------------------------

START_S = 10.0
"""Longest wait for a command to start; then it is started without the supervisor."""
START_GRACE_S = 1.0
"""Extra wait for the message of a start at the last moment."""
DRAIN_S = END_S + GIVE_UP_S
"""Longest wait for commands to end at shutdown."""
EXIT_S = 1.0
"""Longest wait for an idle supervisor to exit."""
_early_numbers = count(1)


class SupervisionOptions(msgspec.Struct, frozen=True):
    """Settings that the supervisor gets when longrein connects."""

    nonce: str = ""
    """Nonce of the session, part of its markers."""
    secrets: tuple[str, ...] = ()
    """Known values that must not reach the disk."""
    patterns: tuple[str, ...] = ()
    """Regular expressions of further secrets."""
    keep_s: float = 24 * 3600.0
    """Seconds that background tasks run with no longrein connected."""
    quota_bytes: int = 64 << 20
    """Quota for a command's output before it goes to the background."""
    alone_s: float = 2.0
    """Time between longrein's death and the end of what may not outlive it."""
    grace_s: float = GRACE_S
    """Time from TERM to KILL."""


class SupervisedSpawner(BackgroundTasks):
    """A `Spawner` and `Supervision` through the supervisor."""

    def __init__(
        self,
        folder: str,
        options: SupervisionOptions,
        *,
        wall_us: Callable[[], int],
        notice: Callable[[str], None],
        environ: Mapping[str, str],
        roots: Sequence[str] = (),
    ) -> None:
        """Prepare; the supervisor starts with `warm` or the first command.

        `folder` is the spool (made when needed), `wall_us` the time in microseconds UTC, `environ`
        longrein's environment. No shell is taken from `roots`. `notice` gets one line when no
        supervisor can be started.
        """
        super().__init__(folder, f"longrein:{options.nonce}", options.grace_s)
        self.plain = PlainSpawner(environ.get("PATH", DEFAULT_PATH), roots, grace_s=options.grace_s)
        """Starts commands when there is no supervisor."""
        self.shell = self.plain.shell
        """The shell that runs command lines."""
        self._options = options
        self._wall_us, self._environ = wall_us, environ
        self.notice = notice
        """Gets a line for the user; may be replaced."""
        self._connection: SupervisorConnection | None = None
        self._opening: asyncio.Task[SupervisorConnection | None] | None = None
        self._unavailable = False
        """True when no supervisor can be started."""
        self._untraced = False
        """True if a command was started without the supervisor since the last question whose
        changes are whose.
        """
        self.commands: dict[int, SupervisedCommand] = {}
        """Foreground commands by number."""
        self._redact = redactor(options.secrets, options.nonce, options.patterns)

    # --- Connection to the supervisor -------------------------------------------------------------

    def warm(self) -> None:
        if self._connection is None and self._opening is None and not self._unavailable:
            self._opening = asyncio.get_running_loop().create_task(self._open(start=True))
            self._opening.add_done_callback(self._opened)

    def _opened(self, _: object) -> None:
        self._opening = None

    async def _connected(self) -> SupervisorConnection | None:
        """Return the connection, starting a supervisor if necessary; None when none can be had."""
        if self._connection is None:
            self.warm()
            if self._opening is not None:
                await asyncio.wait([self._opening])
        return self._connection

    async def answered(self) -> bool:
        """Wait until a supervisor has answered, starting one if necessary; False when none can
        be had.
        """
        connection = await self._connected()
        try:
            return connection is not None and bool(
                await connection.ask(do="hello", **self._hello())
            )
        except ConnectionError:
            return False

    async def _open(self, *, start: bool) -> SupervisorConnection | None:
        if not nesting_depth(
            self._environ
        ):  # the environment of a longrein below another holds no keys
            hide_memory()
        if self._connection is None and (sock := connect(self._folder)) is not None:
            self._connection = await self._attach(
                SupervisorConnection(sock, None, self._receive, self._on_lost)
            )
        if self._connection is None and start and not self._unavailable:
            try:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                connection = SupervisorConnection(
                    *start_supervisor(self._folder, self._environ), self._receive, self._on_lost
                )
            except OSError as error:
                self._give_up(error.strerror or str(error))
            else:
                connection.send(do="hello", ref=0, **self._hello())
                self._connection = connection
        return self._connection

    async def _attach(self, connection: SupervisorConnection) -> SupervisorConnection | None:
        """Attach to a running supervisor."""
        try:
            answer = await connection.ask(limit_s=HELLO_S, do="hello", **self._hello())
        except ConnectionError:
            connection.close()
            return None
        if answer["error"]:
            connection.close()
            self._give_up(answer["error"])
            return None
        connection.set_owner(answer["pid"], answer["start"])
        return connection

    def _hello(self) -> dict[str, Any]:
        options = self._options
        known = {
            "secrets": options.secrets,
            "nonce": options.nonce,
            "patterns": options.patterns,
            "wall_us": self._wall_us(),
        }
        return {
            "keep_s": options.keep_s,
            "alone_s": options.alone_s,
            "grace_s": options.grace_s,
            "known": known,
        }

    def _give_up(self, why: str) -> None:
        if not self._unavailable:
            self._unavailable = True
            self.notice(
                "commands cannot go on in the background: no supervisor of processes could be "
                f"had ({why})"
            )

    def _receive(self, message: dict[str, Any]) -> None:
        match message.pop("do"):
            case "news":
                self.tell(message["task"], message["end"])
            case "notice":
                self.notice(message["line"])
            case "started":
                if command := self.commands.get(message["number"]):
                    command.on_started(message["pid"], message["mark"])
            case "not_started":
                if command := self.commands.get(message["number"]):
                    errno, text = message["errno"], message["text"]
                    command.on_start_failed(
                        ValueError(text) if errno is None else OSError(errno, os.strerror(errno))
                    )
            case "ended":
                if command := self.commands.get(message["number"]):
                    command.on_ended(message)

    def _on_lost(self, connection: SupervisorConnection) -> None:
        """Handle the end of the supervisor."""
        if self._connection is connection:
            self._connection = None
        if not connection.owner:
            return  # it died before it was identified; the spool tells whose tasks it had
        commands = list(self.commands.values())
        if not connection.has_answered:
            self._give_up("it ended at once")
        for command in commands:
            command.on_lost()
        self.supervisor_died(connection.owner, [command.pid for command in commands if command.pid])

    # --- Starting commands ------------------------------------------------------------------------

    async def start(
        self, spec: CommandSpec, *, sink: Sink | None, output_bytes_max: int
    ) -> SupervisedCommand | ChildCommand | CommandExit:
        """See `Supervision.start`. Without a supervisor the command cannot go to the background."""
        connection = await self._connected()
        if connection is not None and not connection.unresponsive:
            try:
                ours, theirs = self._open_pipes(spec)
            except OSError as error:
                return start_failure(error, spec)
            running = SupervisedCommand(self, connection, ours, sink, output_bytes_max, spec.cwd)
            confinement = spec.confinement
            connection.send(
                theirs,
                do="start",
                number=running.number,
                until_s=time.monotonic() + START_S,
                command=spec.command if isinstance(spec.command, str) else list(spec.command),
                shell=self.shell,
                cwd=spec.cwd,
                env=spec.variables,
                stdin=spec.stdin,
                confinement=confinement and (list(confinement.words), confinement.filter),
                streams=list(spec.streams.given() if spec.streams is not None else ()),
                traced=spec.traced,
            )
            failure = await self._wait_started(running, connection)
            if failure is None:
                return running
            if connection.has_answered and not isinstance(failure, TimeoutError):
                return (
                    LOST_EXIT
                    if isinstance(failure, ConnectionError)
                    else start_failure(failure, spec)
                )
        self._untraced = self._untraced or spec.traced
        return self.plain.start(spec, sink=sink or NullSink(), output_bytes_max=output_bytes_max)

    async def unwritten(self, paths: Sequence[str]) -> tuple[Sequence[str], bool]:
        """See `Spawner.unwritten`."""
        untraced, self._untraced = self._untraced, False
        if self._connection is None or untraced:
            return paths, False
        try:
            answer = await self._connection.ask(do="unwritten", paths=list(paths))
        except ConnectionError:
            return paths, False
        return answer["paths"], answer["is_complete"]

    def _open_pipes(self, spec: CommandSpec) -> tuple[tuple[int, int], list[int]]:
        """Open the pipes: (our ends of output and report, descriptors for the supervisor). Raises
        OSError.
        """
        ours, (output, report) = open_pipes(spec, self.shell)
        theirs = [output] if report < 0 else [output, report]
        try:
            theirs.insert(0, os.dup(ours[0]))
            theirs += map(os.dup, spec.streams.given().values() if spec.streams else ())
        except OSError:
            close(*ours, *theirs)
            raise
        return ours, theirs

    async def run(
        self, spec: CommandSpec, *, sink: Sink, timeout_s: float, output_bytes_max: int
    ) -> CommandExit:
        until = asyncio.get_running_loop().time() + timeout_s
        started = await self.start(spec, sink=sink, output_bytes_max=output_bytes_max)
        return started if isinstance(started, CommandExit) else await started.run(until)

    async def _wait_started(
        self, running: SupervisedCommand, connection: SupervisorConnection
    ) -> OSError | ValueError | None:
        """Wait until the command runs; else return why not, `TimeoutError` when the supervisor
        does not say.
        """
        try:
            await asyncio.wait([running.started], timeout=START_S + START_GRACE_S)
        except asyncio.CancelledError:
            running.end("interrupt")
            running.abandon()
            raise
        if running.started.done():
            return running.started.result()
        if not connection.unresponsive:
            self.notice(
                f"{UNRESPONSIVE}: commands run without it, and cannot go on in the background "
                "until it does"
            )
        connection.unresponsive = True
        # it will not start later: the supervisor knows the time limit of the request
        running.abandon()
        self.commands.pop(running.number, None)
        return TimeoutError()

    async def start_streams(self, spec: CommandSpec) -> StreamProcess | CommandExit:
        """Start a program that this process talks with over its standard input and output.

        Returns a `CommandExit` with cause `not_started` when it cannot start.
        """
        try:
            ours, theirs = open_stream_pipes()
        except OSError as error:
            return start_failure(error, spec)
        errors = TailSink()
        started: StartedCommand | CommandExit = LOST_EXIT
        try:
            started = await self.start(
                msgspec.structs.replace(spec, streams=Streams(*theirs)),
                sink=errors,
                output_bytes_max=ERROR_OUTPUT_BYTES_MAX,
            )
        finally:
            close(*theirs, *(ours if isinstance(started, CommandExit) else ()))
        if isinstance(started, CommandExit):
            return started
        return await connect_streams(ours, started, errors)

    def open_early_output(self) -> "SpoolWriter":
        """Open a file in the spool for output that belongs to no task yet."""
        from longrein.workspace.supervisor.spool_writer import SpoolWriter

        name = f"{EARLY_PREFIX}-{os.getpid()}-{next(_early_numbers)}"
        redactor = StreamRedactor(self._redact, self._options.secrets, bool(self._options.patterns))
        return SpoolWriter(self._folder, name, self._options.quota_bytes, redactor)

    async def drain(self) -> None:
        """See `Spawner.drain`. Background tasks go on."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        connection = self._connection
        if connection is not None:
            connection.wake()
            with suppress(
                ConnectionError
            ):  # it died and its commands are being ended, or it does not answer
                await connection.ask(limit_s=DRAIN_S, do="drain")
            stays = bool(self.owned(connection.owner))
            if connection.unresponsive and not stays:
                connection.kill()
                self.supervisor_died(connection.owner, ())
            connection.close()
            self._connection = None
            if not stays:
                await connection.wait_exit(EXIT_S)
        await self.wait_ended()
        await self.plain.drain()

    # --- Background tasks -------------------------------------------------------------------------

    async def adopt(self) -> Sequence[SpooledTask]:
        connection = await self._open(start=False) if os.path.isdir(self._folder) else None
        return await self.adopt_tasks(connection.owner if connection else "")

    async def stop(self, task: str, cause: str) -> None:
        connection = self._connection
        if connection is not None and self.record(task).get("owner") == connection.owner:
            try:
                await connection.ask(do="stop", task=task, cause=cause)
            except ConnectionError:
                if connection.gone:
                    raise
                await self.end_without_supervisor(task, cause)
        else:
            self.stop_marked(task)

    async def give(self, task: str, data: bytes, *, eof: bool) -> None:
        connection = self._connection
        if connection is None or self.record(task).get("owner") != connection.owner:
            raise OSError(
                f"the input of {task} cannot be reached: it is over, or its supervisor is of "
                "another version"
            )
        answer = await connection.ask(do="give", task=task, data=data, eof=eof)
        if answer["error"]:
            raise (BrokenPipeError if answer["broken"] else OSError)(answer["error"])
