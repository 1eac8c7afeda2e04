"""A command of the supervisor, until it has ended or is in the background."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from longrein.workspace.command_output import LOST_EXIT, OutputReader
from longrein.workspace.spool_reader import remove_task, waits_for_keys
from longrein.workspace.supervisor.command_processes import KeptTask
from longrein.workspace.supervisor.shell_lines import close, last_folder, signal_name
from longrein.workspace.supervisor_client import SupervisorConnection
from longrein.workspace.workspace_port import (
    BackgroundOptions,
    CommandExit,
    ReplayableSink,
    Sink,
    SpooledTask,
)

if TYPE_CHECKING:
    from longrein.workspace.supervised_command import SupervisedSpawner
    from longrein.workspace.supervisor.spool_writer import SpoolWriter

NO_ANSWER = "the supervisor of processes did not answer, so longrein ended it itself ({})"


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


class SupervisedCommand:
    """A `StartedCommand`, whose parent is the supervisor.

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
        number: int,
    ) -> None:
        """`pipes`: our ends of output and report (-1 for none). Without a sink nothing is read."""
        self.pid = 0
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._output = OutputReader(pipes[0], sink, output_bytes_max, self.end)
        self._output.ended.add_done_callback(self._on_output_end)
        self._report = pipes[1]
        self._end: asyncio.Future[CommandExit] = self._loop.create_future()
        self.number = number
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
        if not self._done:
            self._output.start()  # what a sandbox printed that did not do is nobody's
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

    def _exit(self, returncode: int, cause: str) -> CommandExit:
        """Build the outcome of a return code: an exit code or the name of a signal."""
        code, name = (returncode, "") if returncode >= 0 else (None, signal_name(-returncode))
        return CommandExit(
            code, name, cause, "", self._loop.time() - self._began, last_folder(self._report)
        )

    # --- Requests of longrein ---------------------------------------------------------------------

    def waits_for_keys(self) -> tuple[str, bytes]:
        return waits_for_keys(self.pid)

    async def ended(self) -> CommandExit:
        ended = await asyncio.shield(self._end)
        self.abandon()
        return ended

    async def run(self, until: float) -> CommandExit:
        """Wait for the end; end the command at `until` (loop time), or when the wait is
        cancelled.
        """
        timer = self._loop.call_at(until, self.end, "timeout")
        try:
            return await self.ended()
        except asyncio.CancelledError:
            self.end("interrupt")
            self.abandon()
            raise
        finally:
            timer.cancel()

    def end(self, cause: str) -> None:
        """See `StartedCommand.end`. After an interrupt, output is discarded."""
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

    def _close_pipes(self) -> None:
        close(self._output.detach_output(), self._report)
        self._report = -1

    async def keep(self, keeping: BackgroundOptions) -> SpooledTask:
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
