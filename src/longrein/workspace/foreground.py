"""A command that a supervisor started, as longrein sees it until it has ended or is kept."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from longrein.workspace import child as children
from longrein.workspace.kept import KeptTasks
from longrein.workspace.link import Link
from longrein.workspace.port import Ended, Keeping, Printout, Sink, Spooled
from longrein.workspace.running import Running
from longrein.workspace.supervisor.spooling import Output
from longrein.workspace.words import close, last_folder, report_pipe

KEEPING_FIELDS = ("task", "policy", "timeout_s", "quota_bytes", "memory_bytes", "cpu_s")
"""Those of `Keeping` that the supervisor obeys."""
LOST = Ended(None, "", "lost", "the supervisor of processes ended, and what it had started was ended with it")
SILENT = "the supervisor of processes did not answer, so longrein ended it itself ({})"
_numbers = count(1)


class Early:
    """Puts into the spool what a command had printed before it was kept."""

    def __init__(self, printout: Printout | None, output: Callable[[], Output]) -> None:
        """`printout` has all of it, None when nothing was read; `output()` opens a file in the spool."""
        self._printout, self._open = printout, output

    async def keep(self, keeping: Keeping, printed_bytes: int) -> dict[str, object]:
        """All of it is in the spool under the task's name, redacted and under its quota; what is not to be had again
        is counted. Gives what who goes on writing must know. Raises OSError.

        The loop gets its turn in between: there may be much to redact.
        """
        output = self._open()
        output.limit(keeping.quota_bytes)
        try:
            for piece in self._printout.pieces() if self._printout is not None else ():
                output.write(piece)
                printed_bytes -= len(piece)
                await asyncio.sleep(0)
        except OSError as error:
            output.lose(error, max(0, printed_bytes))
        try:
            output.rename(keeping.task)
        except OSError:
            output.remove()
            raise
        return output.handed()


class Foreground:
    """See `Started`. It is in `running` until it has ended or is kept."""

    def __init__(  # all that becomes of it is decided here
        self,
        link: Link,
        running: dict[int, "Foreground"],
        kept: KeptTasks,
        *,
        pipes: tuple[int, int],
        sink: Sink | None,
        output_bytes_max: int,
        cwd: str,
    ) -> None:
        """`pipes`: our ends of the output and of the report (-1 for none). Without a sink nothing is read."""
        self._loop = asyncio.get_running_loop()
        self.pid, self._mark = 0, ""
        self.number = next(_numbers)
        """By which the supervisor knows it."""
        self.started: asyncio.Future[OSError | ValueError | None] = self._loop.create_future()
        """See `wait_started`."""
        self._link, self._running, self._kept, self._cwd = link, running, kept, cwd
        running[self.number] = self
        self._began = self._loop.time()
        self._output = Running(pipes[0], sink, output_bytes_max, self.end)
        self._output.ended.add_done_callback(self._tell)
        self._report = pipes[1]
        self.early: Early | None = None
        """It can be kept."""
        self._over: Mapping[str, Any] | None = None
        self._told_to_end = self._is_kept = self._done = False
        self._why_lost = LOST.message
        self._end: asyncio.Future[Ended] = self._loop.create_future()

    # --- what the supervisor says -------------------------------------------------------------------------------

    def runs(self, pid: int, mark: str) -> None:
        """It was started; its processes carry this mark."""
        self.pid, self._mark = pid, mark
        if not self.started.done():
            self.started.set_result(None)

    async def wait_started(self, limit_s: float) -> OSError | ValueError | None:
        """None once it runs, else why it does not. Raises `TimeoutError` when neither was heard by then."""
        await asyncio.wait([self.started], timeout=limit_s)
        if not self.started.done():
            raise TimeoutError
        return self.started.result()

    def did_not_start(self, error: OSError | ValueError) -> None:
        """It could not be started."""
        self._running.pop(self.number, None)
        self._done = True
        self._let_go()
        if not self.started.done():
            self.started.set_result(error)

    def is_over(self, how: Mapping[str, Any]) -> None:
        """Its process has ended; when it was told to, its whole tree."""
        self._running.pop(self.number, None)
        self._over = how
        self._output.exited()

    def is_lost(self) -> None:
        """The supervisor is gone: nobody knows how it ends."""
        if not self.started.done():
            self.did_not_start(ConnectionError(LOST.message))
        elif self._over is None:
            self.is_over({})

    def _tell(self, _: object) -> None:
        if self._is_kept or self._end.done() or self._over is None:
            return
        how, elapsed_s = self._over, self._loop.time() - self._began
        left_in = last_folder(self._report)
        if not how:
            ended = msgspec.structs.replace(LOST, message=self._why_lost, elapsed_s=elapsed_s)
        elif how["returncode"] is None:
            ended = Ended(None, "", how["cause"], "it could not be ended", elapsed_s)
        else:
            ended = children.ended(how["returncode"], how["cause"], elapsed_s, left_in)
        self._end.set_result(ended)
        if self._told_to_end:
            self.abandon()

    # --- what longrein wants ------------------------------------------------------------------------------------

    async def ended(self) -> Ended:
        """See `Started.ended`."""
        ended = await asyncio.shield(self._end)
        self.abandon()
        return ended

    def end(self, cause: str) -> None:
        """See `Started.end`. Who interrupts it has heard enough."""
        if self._over is None and not self._told_to_end:
            self._told_to_end = True
            self._link.send(do="end", number=self.number, cause=cause)
            self._kept.see_to(self._end_unheard(cause))
            if cause == "interrupt":
                self._output.mute()

    async def _end_unheard(self, cause: str) -> None:
        """Who hears nothing ends nothing: then it is ended from here, by its mark."""
        try:
            await self._link.ask(do="ping")
        except ConnectionError:
            if not self._link.gone and self._over is None and self._mark:
                await self._kept.end_marked(self._mark, self.pid)
                self._why_lost = SILENT.format(cause)
                self.is_lost()

    def abandon(self) -> None:
        """Nobody wants the rest of its output, nor to keep it."""
        if self._done or self._is_kept:
            return
        self._done = True
        self._link.send(do="done", number=self.number)
        self._let_go()

    def _let_go(self) -> None:
        close(self._output.give_away(), self._report)
        self._report = -1

    async def keep(self, keeping: Keeping) -> Spooled:
        """See `Started.keep`."""
        if self._done or self.early is None or self._link.gone:
            raise OSError("it has ended and was let go" if self._done else "there is no supervisor to keep it")
        self._kept.check_new(keeping.task)
        self._is_kept = True
        self._running.pop(self.number, None)
        close(self._output.give_away(), self._report)
        self._report = -1
        written = await self.early.keep(keeping, self._output.size_bytes)
        shown = self._cwd.encode("utf-8", "replace").decode()  # a folder may be called by any bytes
        record = {"task": keeping.task, "command": keeping.command, "cwd": shown}
        wanted = {name: getattr(keeping, name) for name in KEEPING_FIELDS}
        answer = await self._link.ask(do="keep", number=self.number, keeping=wanted, record=record, written=written)
        if answer["error"]:
            raise OSError(answer["error"])
        return self._kept.known(keeping.task)


class Unkept:
    """A command without a supervisor, as a `Started`: it cannot be kept."""

    pid = 0

    def __init__(self, run: "asyncio.Task[Ended]") -> None:
        self._run = run
        self._cause = ""

    async def ended(self) -> Ended:
        """See `Started.ended`."""
        await asyncio.wait([self._run])
        return Ended(None, "", self._cause) if self._run.cancelled() else self._run.result()

    def end(self, cause: str) -> None:
        """See `Started.end`."""
        self._cause = self._cause or cause
        self._run.cancel()

    async def keep(self, keeping: Keeping) -> Spooled:
        """See `Started.keep`: it never can."""
        raise OSError(f"{keeping.task} cannot go on in the background: there is no supervisor of processes")


def open_pipes(command: str | Sequence[str], shell: str) -> tuple[tuple[int, int], list[int]]:
    """(our ends of output and report, what is sent to the supervisor). Raises OSError."""
    opened: list[int] = []
    try:
        opened += os.pipe()
        report, their_report = report_pipe(command, shell)
        opened += [one for one in (report, their_report) if one >= 0]
        os.set_blocking(opened[0], False)
        return (opened[0], report), [os.dup(opened[0]), opened[1], *([their_report] if their_report >= 0 else [])]
    except OSError:
        close(*opened)
        raise
