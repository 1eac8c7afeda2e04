"""`MemorySupervision`: scripted commands that outlive the session that started them, on the test's
clock.

`leave` ends longrein, `die` ends the supervisor and all its commands. The spool is a dict that
survives both.
"""

import asyncio
import shlex
from collections.abc import Callable, Sequence

import msgspec

from longrein.agent import Clock
from longrein.testing.workspace import FLOOD_PIECE, Commands, Ran, find_command
from longrein.workspace import (
    BackgroundOptions,
    CommandExit,
    CommandSpec,
    Sink,
    SpooledTask,
)

LEFT_S = 2.0
"""Seconds until other commands than kept tasks end after longrein is gone."""
PIECES = 4
"""Pieces in which a command prints its output."""
GONE = "the supervisor of commands is gone"


class MemorySupervision:
    """A `workspace.Supervision` and `workspace.Spawner`. `commands` as of `MemorySpawner`."""

    def __init__(self, commands: Commands, clock: Clock) -> None:
        self.started: list[str] = []
        """Every command line that was run, in order."""
        self.spool: dict[str, Kept] = {}
        """Kept tasks, running and over, until they are settled."""
        self.ever_kept: list[str] = []
        """Ids of all tasks that were ever kept, in order."""
        self.ends: dict[str, str] = {}
        """How kept tasks truly ended: their states."""
        self.files: dict[str, bytes] = {}
        """Output of finished tasks, by path."""
        self.running: list[MemoryProcess] = []
        """Running processes."""
        self.watch: Callable[[BackgroundOptions], None] = lambda _keeping: None
        """Called before a command is kept."""
        self.alive = True
        """True while the supervisor lives; `adopt` or the next start revives a dead one."""
        self._commands, self.clock = commands, clock
        self._listeners: list[Callable[[str], None]] = []

    # --- The port ---------------------------------------------------------------------------------

    def warm(self) -> None:
        """See `Spawner.warm`."""
        self.alive = True

    may_prepare = False

    def prepare(self, like: CommandSpec) -> None:
        """See `Supervision.prepare`."""

    async def run(
        self, spec: CommandSpec, *, sink: Sink, timeout_s: float, output_bytes_max: int
    ) -> CommandExit:
        """See `Spawner.run`."""
        started = await self.start(spec, sink=sink, output_bytes_max=output_bytes_max)
        if isinstance(started, CommandExit):
            return started
        timer = asyncio.ensure_future(self.clock.sleep(timeout_s))
        over = asyncio.ensure_future(started.ended())
        try:
            await asyncio.wait((timer, over), return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                started.end("timeout")
            return await over
        except asyncio.CancelledError:
            started.end("interrupt")
            raise
        finally:
            timer.cancel()
            over.cancel()

    async def start(
        self, spec: CommandSpec, *, sink: Sink | None, output_bytes_max: int
    ) -> "MemoryProcess | CommandExit":
        """See `Supervision.start`."""
        self.alive = True
        line = spec.command if isinstance(spec.command, str) else shlex.join(spec.command)
        ran = find_command(self._commands, line)
        if ran.code < 0:
            return CommandExit(None, cause="not_started", message="no such folder")
        self.started.append(line)
        return MemoryProcess(self, line, ran, spec.cwd, sink, output_bytes_max, stdin=spec.stdin)

    async def adopt(self) -> Sequence[SpooledTask]:
        """See `Supervision.adopt`."""
        await asyncio.sleep(0)
        for kept in self.spool.values():
            if kept.now.state == "running" and kept.process not in self.running:
                kept.now = msgspec.structs.replace(kept.now, state="lost", cause=GONE)
        return [kept.now for kept in self.spool.values()]

    async def unwritten(self, paths: Sequence[str]) -> tuple[Sequence[str], bool]:
        """See `Spawner.unwritten`."""
        await asyncio.sleep(0)
        return paths, False

    def spooled(self, task: str) -> SpooledTask | None:
        """See `Supervision.spooled`."""
        kept = self.spool.get(task)
        if kept is None or kept.now.state != "running":
            return None if kept is None else kept.now
        return msgspec.structs.replace(kept.now, elapsed_s=kept.process.elapsed_s)

    def read(self, task: str, start: int, size_bytes: int) -> tuple[int, bytes]:
        """See `Supervision.read`."""
        kept = self.spool.get(task)
        data = bytes(kept.process.output) if kept is not None else b""
        return start, data[start : start + size_bytes]

    def on_news(self, call: Callable[[str], None]) -> None:
        """See `Supervision.on_news`."""
        self._listeners.append(call)

    def tell(self, task: str) -> None:
        """Call the listeners in the loop's next round."""
        for call in self._listeners:
            asyncio.get_running_loop().call_soon(call, task)

    async def stop(self, task: str, cause: str) -> None:
        """See `Supervision.stop`."""
        kept = self.spool.get(task)
        if kept is not None and kept.now.state == "running":
            kept.process.end(cause)
        await asyncio.sleep(0)

    async def give(self, task: str, data: bytes, *, eof: bool) -> None:
        """See `Supervision.give`."""
        await asyncio.sleep(0)
        kept = self.spool.get(task)
        if kept is None or kept.now.state != "running":
            raise BrokenPipeError("it has ended")
        kept.process.given.set()

    def whole(self, task: str) -> str:
        """See `Supervision.whole`."""
        kept = self.spool.get(task)
        if kept is None or not kept.process.output:
            return ""
        path = f"/spool/{task}.out"
        self.files[path] = bytes(kept.process.output)
        return path

    def settle(self, task: str) -> None:
        """See `Supervision.settle`."""
        self.spool.pop(task, None)
        self.files.pop(f"/spool/{task}.out", None)

    async def drain(self) -> None:
        """See `Spawner.drain`: ends what is not kept."""
        for process in [one for one in self.running if one.kept is None]:
            process.end("interrupt")
        await asyncio.sleep(0)

    # --- Deaths -----------------------------------------------------------------------------------

    def leave(self) -> None:
        """End longrein: listeners are dropped, and commands that may not stay end a moment
        later.
        """
        self._listeners.clear()
        for process in list(self.running):
            if process.kept is None or process.kept.policy == "stop":
                asyncio.get_running_loop().call_later(LEFT_S, process.end, "longrein ended")

    def die(self) -> None:
        """Kill the supervisor and all its commands, and report it to longrein."""
        self.alive = False
        for process in list(self.running):
            process.vanish()
        self.tell("")


class Kept(msgspec.Struct):
    """A task in the spool."""

    process: "MemoryProcess"
    now: SpooledTask


class MemoryProcess:
    """A started command: a `workspace.StartedCommand`."""

    def __init__(
        self,
        home: MemorySupervision,
        line: str,
        ran: Ran,
        cwd: str,
        sink: Sink | None,
        most: int,
        *,
        stdin: bool,
    ) -> None:
        self.home, self.line, self.ran, self.cwd, self.sink, self.most = (
            home,
            line,
            ran,
            cwd,
            sink,
            most,
        )
        self.pid = 1_000 + len(home.started)
        self.output = bytearray()
        self.kept: BackgroundOptions | None = None
        self.waits = False
        """True while it waits for input."""
        self.given = asyncio.Event()
        """Set once standard input was written to, or when it has none."""
        if not stdin:
            self.given.set()
        self._begun_s, self._begun_us = home.clock.mono_s(), home.clock.wall_us()
        self._over: asyncio.Future[CommandExit] = asyncio.get_running_loop().create_future()
        home.running.append(self)
        self._life = asyncio.ensure_future(self._live())

    def waits_for_keys(self) -> tuple[str, bytes]:
        """See `StartedCommand.waits_for_keys`: no program does."""
        return "", b""

    async def ended(self) -> CommandExit:
        """See `StartedCommand.ended`."""
        return await asyncio.shield(self._over)

    def end(self, cause: str) -> None:
        """See `StartedCommand.end`: takes effect at once."""
        if self in self.home.running:
            self._life.cancel()
            self._finish(CommandExit(None, "SIGTERM", cause, elapsed_s=self.elapsed_s))

    def vanish(self) -> None:
        """End without a known outcome."""
        self._life.cancel()
        self.home.running.remove(self)
        if self.kept is None and not self._over.done():
            self._over.set_result(CommandExit(None, "SIGKILL", "interrupt", GONE))

    async def keep(self, keeping: BackgroundOptions) -> SpooledTask:
        """See `StartedCommand.keep`."""
        self.home.watch(keeping)
        await asyncio.sleep(0)
        if not self.home.alive:
            raise OSError(GONE)
        self.kept = keeping
        self.home.ever_kept.append(keeping.task)
        self.home.spool[keeping.task] = Kept(self, self._now(keeping))
        if self._over.done():  # it had ended meanwhile
            self._settled(self._over.result(), keeping)
        elif keeping.timeout_s:
            rest_s = max(0.0, keeping.timeout_s - self.elapsed_s)
            asyncio.get_running_loop().call_later(rest_s, self.end, "timeout")
        return self.home.spool[keeping.task].now

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start on the monotonic clock."""
        return self.home.clock.mono_s() - self._begun_s

    def _now(self, keeping: BackgroundOptions) -> SpooledTask:
        return SpooledTask(
            keeping.task,
            keeping.command,
            self.cwd,
            self.pid,
            self._begun_us,
            keeping.policy,
            f"/spool/{keeping.task}.out",
            len(self.output),
            written_at=self._begun_us if self.output else 0,
            reads_input=self.waits,
        )

    async def _live(self) -> None:
        ran = self.ran
        data = ran.output.encode() if isinstance(ran.output, str) else ran.output
        size = max(1, -(-len(data) // PIECES))
        for at in range(0, len(data), size):
            if not self._print(data[at : at + size]):
                return
            await self._pass(ran.delay_s * min(size, len(data) - at) / len(data))
        while ran.flood:
            if not self._print(FLOOD_PIECE):
                return
            await asyncio.sleep(0)
        if ran.hang:
            await asyncio.Event().wait()
        if ran.asks and not self.given.is_set():
            self._ask(True)
            await self.given.wait()
            self._ask(False)
        if not data:
            await self._pass(ran.delay_s)
        code = None if ran.signal else ran.code
        self._finish(
            CommandExit(code, ran.signal, elapsed_s=self.elapsed_s, cwd=ran.cwd or self.cwd)
        )

    def _ask(self, waits: bool) -> None:
        self.waits = waits
        if self.kept is not None:
            kept = self.home.spool[self.kept.task]
            kept.now = msgspec.structs.replace(kept.now, reads_input=waits)

    async def _pass(self, seconds: float) -> None:
        await (self.home.clock.sleep(seconds) if seconds > 0 else asyncio.sleep(0))

    def _print(self, data: bytes) -> bool:
        """Print; False when the output limit is reached."""
        self.output += data
        if self.kept is None:
            if self.sink is not None:
                self.sink.write(data)
        else:
            kept = self.home.spool[self.kept.task]
            told = self.home.clock.wall_us()
            kept.now = msgspec.structs.replace(
                kept.now, size_bytes=len(self.output), written_at=told
            )
        if len(self.output) < self.most:
            return True
        self._finish(CommandExit(None, "SIGTERM", "flood", elapsed_s=self.elapsed_s))
        return False

    def _finish(self, ended: CommandExit) -> None:
        self.home.running.remove(self)
        if not self._over.done():
            self._over.set_result(ended)
        if self.kept is not None:
            self._settled(ended, self.kept)

    def _settled(self, ended: CommandExit, keeping: BackgroundOptions) -> None:
        """Write the end to the spool."""
        states = {"exit": "done" if ended.code == 0 else "failed", "timeout": "timed_out"}
        kept = self.home.spool[keeping.task]
        kept.now = msgspec.structs.replace(
            kept.now,
            size_bytes=len(self.output),
            state=states.get(ended.cause, "killed"),
            code=ended.code,
            cause="" if ended.cause == "exit" else ended.cause,
            elapsed_s=ended.elapsed_s,
        )
        self.home.ends[keeping.task] = kept.now.state
        self.home.tell(keeping.task)
