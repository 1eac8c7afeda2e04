"""Run commands through the supervisor, so that they can become background tasks and outlive
longrein.

Each session has one supervisor. It is started ahead of the first command and found again by its
socket after a crash. Where no supervisor can be started, no command can: each says why.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from errno import ESTALE
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from longrein.workspace.command_environment import DEFAULT_PATH, nesting_depth
from longrein.workspace.command_output import (
    LOST_EXIT,
    open_pipes,
    open_stream_pipes,
    start_failure,
)
from longrein.workspace.files import find_program, spellings
from longrein.workspace.spool_reader import EARLY_PREFIX
from longrein.workspace.stream_process import (
    ERROR_OUTPUT_BYTES_MAX,
    StreamProcess,
    TailSink,
    connect_streams,
)
from longrein.workspace.supervisor.channel import SOCKET
from longrein.workspace.supervisor.process_privacy import hide_memory
from longrein.workspace.supervisor.process_tree import GIVE_UP_S, GRACE_S
from longrein.workspace.supervisor.shell_lines import MOUNTS, close, reports_folder
from longrein.workspace.supervisor_client import (
    HELLO_S,
    LOG_NAME,
    UNRESPONSIVE,
    SupervisorConnection,
    connect,
    start_supervisor,
)
from longrein.workspace.task_adoption import END_S, BackgroundTasks
from longrein.workspace.workspace_port import (
    CommandExit,
    CommandSpec,
    Sink,
    SpooledTask,
    StartedCommand,
    Streams,
)
from longrein_context.events import redactor
from longrein_context.events.redact_stream import StreamRedactor

if TYPE_CHECKING:
    from longrein.workspace.running_command import SupervisedCommand
    from longrein.workspace.supervisor.spool_writer import SpoolWriter


_numbers = count(1)


# --- The spawner ----------------------------------------------------------------------------------

START_S = 30.0
"""Longest wait for a command to start."""
START_GRACE_S = 1.0
"""Extra wait for the message of a start at the last moment."""
DRAIN_S = END_S + GIVE_UP_S
"""Longest wait for commands to end at shutdown."""
NO_SUPERVISOR = "the command was not started: the supervisor of processes cannot be started"
EXIT_S = 1.0
"""Longest wait for an idle supervisor to exit."""
_early_numbers = count(1)


class WarmSandbox(msgspec.Struct):
    """A sandbox that the supervisor has ready for the next command."""

    number: int
    like: CommandSpec
    pipes: tuple[int, int]
    """Our ends of output and report."""

    def suits(self, spec: CommandSpec) -> bool:
        """Return True if the command can run in it: its variables and words come later."""
        return _warm_part(spec) == _warm_part(self.like)


def _warm_part(spec: CommandSpec) -> tuple[object, ...]:
    """Return what a sandbox has to know of its command before it starts."""
    confinement = spec.confinement
    place = (confinement.words, confinement.filter) if confinement is not None else ()
    return (spec.cwd, place, spec.traced, spec.stdin, spec.streams, type(spec.command))


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


def find_shell(search_path: str, roots: Sequence[str]) -> str:
    """Find `bash`, else `sh`, on the search path or the system's own, outside `roots`."""
    outside = spellings(roots)
    found = (
        find_program(name, path, outside)
        for name in ("bash", "sh")
        for path in (search_path, DEFAULT_PATH)
    )
    return next(filter(None, found), "/bin/sh")


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
        longrein's environment. No shell is taken from `roots`. `notice` gets what the supervisor
        says to the user, a line each.
        """
        super().__init__(folder, f"longrein:{options.nonce}", options.grace_s)
        self.shell = find_shell(environ.get("PATH", DEFAULT_PATH), roots)
        """The shell that runs command lines."""
        self._options = options
        self._wall_us, self._environ = wall_us, environ
        self.notice = notice
        """Gets a line for the user; may be replaced."""
        self._connection: SupervisorConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._warm: WarmSandbox | None = None
        self._prepares = True
        """False if the last command could not have had a sandbox made ahead."""
        self._to_prepare: CommandSpec | None = None
        """What to prepare once the supervisor is there."""
        self._problem = ""
        """Why no supervisor could be started at the last attempt."""
        self.commands: dict[int, SupervisedCommand] = {}
        """Foreground commands by number."""
        self._redact = redactor(options.secrets, options.nonce, options.patterns)

    # --- Connection to the supervisor -------------------------------------------------------------

    def warm(self) -> None:
        if self._connection is not None or self._opening is not None:
            return
        if os.path.exists(os.path.join(self._folder, SOCKET)):
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._opened)
        else:
            self._start_supervisor()

    def _opened(self, _: object) -> None:
        self._opening = None
        if self._to_prepare is not None:
            self.prepare(self._to_prepare)

    @property
    def may_prepare(self) -> bool:
        return self._prepares and self._warm is None and self._to_prepare is None

    def prepare(self, like: CommandSpec) -> None:
        self.warm()
        if self._connection is None:
            self._to_prepare = like
            return
        self._to_prepare = None
        confinement, connection = like.confinement, self._connection
        has_mounts = confinement is not None and confinement.words[0] == MOUNTS
        self._prepares = has_mounts and self.shell.endswith("bash")
        if confinement is None or not self._prepares or connection.unresponsive:
            return
        if self._warm is not None and self._warm.suits(like):
            return
        self._drop_warm()
        try:
            ours, theirs = self._open_pipes(like, reports=True)
        except OSError:
            return  # the command will say it
        self._warm = WarmSandbox(next(_numbers), like, ours)
        connection.send(
            theirs,
            do="prepare",
            number=self._warm.number,
            shell=self.shell,
            cwd=like.cwd,
            confinement=(list(confinement.words), confinement.filter),
            traced=like.traced,
        )

    def _drop_warm(self) -> None:
        if self._warm is not None:
            close(*self._warm.pipes)
            self._warm = None

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

    async def _open(self) -> None:
        """Attach to the supervisor that listens, or start one."""
        try:
            found = await self._find()
        except OSError as error:
            self._problem = str(error)
        else:
            if found is None:
                self._start_supervisor()

    async def _find(self) -> SupervisorConnection | None:
        """Attach to the supervisor that listens; None when there is none. Raises OSError if it
        refuses.
        """
        self._hide()
        if self._connection is None and (sock := connect(self._folder)) is not None:
            self._connection = await self._attach(
                SupervisorConnection(sock, None, self._receive, self._on_lost)
            )
        return self._connection

    def _start_supervisor(self) -> None:
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            connection = SupervisorConnection(
                *start_supervisor(self._folder, self._environ), self._receive, self._on_lost
            )
        except OSError as error:
            self._problem = error.strerror or str(error)
        else:
            connection.send(do="hello", ref=0, **self._hello())
            self._connection = connection
        self._hide()

    def _hide(self) -> None:
        # the environment of a longrein below another holds no keys
        if not nesting_depth(self._environ):
            hide_memory()

    async def _attach(self, connection: SupervisorConnection) -> SupervisorConnection | None:
        """Attach to a running supervisor; None when it has ended. Raises OSError if it refuses."""
        try:
            answer = await connection.ask(limit_s=HELLO_S, do="hello", **self._hello())
        except ConnectionError:
            connection.close()
            return None
        if answer["error"]:
            connection.close()
            raise OSError(answer["error"])
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
            case "dropped":
                if self._warm is not None and self._warm.number == message["number"]:
                    self._drop_warm()
            case "ended":
                if command := self.commands.get(message["number"]):
                    command.on_ended(message)

    def _on_lost(self, connection: SupervisorConnection) -> None:
        """Handle the end of the supervisor."""
        if self._connection is connection:
            self._connection = None
            self._drop_warm()
        if not connection.owner:
            return  # it died before it was identified; the spool tells whose tasks it had
        commands = list(self.commands.values())
        if not connection.has_answered:
            self._problem = f"it ended at once; {os.path.join(self._folder, LOG_NAME)} may say why"
        for command in commands:
            command.on_lost()
        self.supervisor_died(connection.owner, [command.pid for command in commands if command.pid])

    # --- Starting commands ------------------------------------------------------------------------

    async def start(
        self, spec: CommandSpec, *, sink: Sink | None, output_bytes_max: int
    ) -> "SupervisedCommand | CommandExit":
        """See `Supervision.start`. Without a supervisor no command starts."""
        connection = await self._connected()
        if connection is None:
            return CommandExit(126, "", "not_started", f"{NO_SUPERVISOR} ({self._problem})")
        came = await self._start_warm(connection, spec, sink, output_bytes_max)
        return came or await self._start_cold(connection, spec, sink, output_bytes_max)

    async def _start_warm(
        self,
        connection: SupervisorConnection,
        spec: CommandSpec,
        sink: Sink | None,
        output_bytes_max: int,
    ) -> "SupervisedCommand | CommandExit | None":
        """Start a command in the sandbox that is ready; None if there is none that does."""
        warm = self._warm
        if warm is None or not warm.suits(spec) or connection.unresponsive:
            return None
        self._warm = None
        running, failure = await self._ask_to_start(
            connection,
            spec,
            (warm.pipes, sink, output_bytes_max, spec.cwd, warm.number),
            do="run",
            reports=reports_folder(spec.command, self.shell),
        )
        is_stale = isinstance(failure, OSError) and failure.errno == ESTALE
        return None if is_stale else self._came(running, failure, connection, spec)

    async def _start_cold(
        self,
        connection: SupervisorConnection,
        spec: CommandSpec,
        sink: Sink | None,
        output_bytes_max: int,
    ) -> "SupervisedCommand | CommandExit":
        """Start a command by the supervisor."""
        try:
            reports = reports_folder(spec.command, self.shell)
            ours, theirs = self._open_pipes(spec, reports=reports)
        except OSError as error:
            return start_failure(error, spec)
        confinement = spec.confinement
        running, failure = await self._ask_to_start(
            connection,
            spec,
            (ours, sink, output_bytes_max, spec.cwd, next(_numbers)),
            theirs,
            do="start",
            cwd=spec.cwd,
            stdin=spec.stdin,
            confinement=confinement and (list(confinement.words), confinement.filter),
            streams=list(spec.streams.given() if spec.streams is not None else ()),
            traced=spec.traced,
        )
        return self._came(running, failure, connection, spec)

    async def _ask_to_start(
        self,
        connection: SupervisorConnection,
        spec: CommandSpec,
        reading: tuple[tuple[int, int], Sink | None, int, str, int],
        descriptors: Sequence[int] = (),
        **message: Any,
    ) -> "tuple[SupervisedCommand, OSError | ValueError | None]":
        """Ask the supervisor for a command; return it, and why it does not run.

        `reading`: further arguments of `SupervisedCommand`.
        """
        from longrein.workspace.running_command import SupervisedCommand

        running = SupervisedCommand(self, connection, *reading)
        connection.send(
            descriptors,
            number=running.number,
            until_s=time.monotonic() + START_S,
            command=spec.command if isinstance(spec.command, str) else list(spec.command),
            shell=self.shell,
            env=spec.variables,
            **message,
        )
        return running, await self._wait_started(running, connection)

    def _came(
        self,
        running: "SupervisedCommand",
        failure: OSError | ValueError | None,
        connection: SupervisorConnection,
        spec: CommandSpec,
    ) -> "SupervisedCommand | CommandExit":
        """Return what came of a start."""
        if failure is None:
            return running
        if isinstance(failure, TimeoutError):
            return CommandExit(126, "", "not_started", f"{UNRESPONSIVE}; try again")
        if not isinstance(failure, ConnectionError):
            return start_failure(failure, spec)
        if connection.has_answered:
            return LOST_EXIT
        return CommandExit(126, "", "not_started", f"{NO_SUPERVISOR} ({self._problem})")

    async def unwritten(self, paths: Sequence[str]) -> tuple[Sequence[str], bool]:
        """See `Spawner.unwritten`."""
        if self._connection is None:
            return paths, False
        try:
            answer = await self._connection.ask(do="unwritten", paths=list(paths))
        except ConnectionError:
            return paths, False
        return answer["paths"], answer["is_complete"]

    @staticmethod
    def _open_pipes(spec: CommandSpec, *, reports: bool) -> tuple[tuple[int, int], list[int]]:
        """Open the pipes: (our ends of output and report, descriptors for the supervisor). Raises
        OSError.
        """
        ours, (output, report) = open_pipes(reports=reports)
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
        self, running: "SupervisedCommand", connection: SupervisorConnection
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
        connection.unresponsive = True
        connection.wake()
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
        self._to_prepare = None
        self._drop_warm()
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

    # --- Background tasks -------------------------------------------------------------------------

    async def adopt(self) -> Sequence[SpooledTask]:
        connection = None
        with suppress(OSError):  # it refuses: its tasks are read from the spool
            connection = await self._find() if os.path.isdir(self._folder) else None
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


@asynccontextmanager
async def temporary_spawner(
    environ: Mapping[str, str], roots: Sequence[str] = ()
) -> AsyncIterator[SupervisedSpawner]:
    """Give a spawner for commands outside a session, and end what they leave running."""
    with tempfile.TemporaryDirectory(
        prefix="longrein-spool-", ignore_cleanup_errors=True
    ) as folder:
        spawner = SupervisedSpawner(
            folder,
            SupervisionOptions(),
            wall_us=lambda: 0,
            notice=lambda _line: None,
            environ=environ,
            roots=roots,
        )
        try:
            yield spawner
        finally:
            await spawner.drain()
