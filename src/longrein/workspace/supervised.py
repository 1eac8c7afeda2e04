"""Commands whose parent is the supervisor: they can become tasks, and outlive longrein when they are kept.

One supervisor per session, started when a command is near, found again by its socket after a crash. Where none can be
started, commands are children of longrein as before, and nothing can be kept.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec

from longrein.events import redactor
from longrein.workspace.child import not_started
from longrein.workspace.environment import DEFAULT_PATH
from longrein.workspace.foreground import LOST, Early, Foreground, Unkept, open_pipes
from longrein.workspace.kept import END_S, KeptTasks
from longrein.workspace.link import DEAF, HELLO_S, Link, connect, start_supervisor
from longrein.workspace.port import Ended, Printout, Sink, Spooled, Started
from longrein.workspace.running import Nobody
from longrein.workspace.spawner import PlainSpawner
from longrein.workspace.spool import EARLY
from longrein.workspace.supervisor.holding import Holding
from longrein.workspace.supervisor.spooling import Output
from longrein.workspace.tree import GIVE_UP_S, GRACE_S

START_S = 10.0
"""For a command to be started; then a supervisor that hears nothing is done without."""
LATE_S = 1.0
"""For the word that it was started at the last moment."""
DRAIN_S = END_S + GIVE_UP_S
"""For all that may not stay to end; a supervisor that says nothing by then holds nobody back from leaving."""
EXIT_S = 1.0
"""For one with nothing left to do to exit."""
NO_LIMIT_S = 1e9
_early_numbers = count(1)


class SupervisionOptions(msgspec.Struct, frozen=True):
    """What a supervisor is told at the beginning."""

    nonce: str = ""
    """Of the session; its markers carry it."""
    secrets: tuple[str, ...] = ()
    """Known values that must not reach the disk."""
    patterns: tuple[str, ...] = ()
    """Regular expressions of further ones."""
    keep_s: float = 24 * 3600.0
    """How long kept tasks go on with nobody attached."""
    quota_bytes: int = 64 << 20
    """For the output of a command before it is kept."""
    alone_s: float = 2.0
    """After longrein is gone, until what may not go on without it is told to end."""
    grace_s: float = GRACE_S
    """TERM to KILL."""


class SupervisedSpawner:
    """See `Spawner` and `Supervision`."""

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
        """`folder` is the spool (made when it is needed), `wall_us` the time in microseconds UTC, `environ` longrein's
        environment, `roots` where no shell is taken from. `notice` gets one line when no supervisor can be had."""
        self.plain = PlainSpawner(environ.get("PATH", DEFAULT_PATH), roots, grace_s=options.grace_s)
        """Starts commands when there is no supervisor to do it."""
        self.shell = self.plain.shell
        """What runs a command line."""
        self._folder, self._options = folder, options
        self._wall_us, self._environ = wall_us, environ
        self.notice = notice
        """Gets a line for the user; may be replaced."""
        self._link: Link | None = None
        self._opening: asyncio.Task[Link | None] | None = None
        self._unable = False
        """No supervisor can be had."""
        self._commands: dict[int, Foreground] = {}
        self._kept = KeptTasks(folder, f"longrein:{options.nonce}", options.grace_s)
        self._redact = redactor(options.secrets, options.nonce, options.patterns)

    # --- the supervisor -----------------------------------------------------------------------------------------

    def warm(self) -> None:
        """See `Supervision.warm`."""
        if self._link is None and self._opening is None and not self._unable:
            self._opening = asyncio.get_running_loop().create_task(self._open(start=True))
            self._opening.add_done_callback(self._opened)

    def _opened(self, _: object) -> None:
        self._opening = None

    async def _linked(self) -> Link | None:
        """The conversation with the supervisor, which is started if need be; None when none can be had."""
        if self._link is None:
            self.warm()
            if self._opening is not None:
                await asyncio.wait([self._opening])
        return self._link

    async def answered(self) -> bool:
        """Wait until a supervisor has answered, starting one if need be; False when none can be had."""
        link = await self._linked()
        try:
            return link is not None and bool(await link.ask(do="hello", **self._hello()))
        except ConnectionError:
            return False

    async def _open(self, *, start: bool) -> Link | None:
        if self._link is None and (sock := connect(self._folder)) is not None:
            self._link = await self._join(Link(sock, None, self._hear, self._lost))
        if self._link is None and start and not self._unable:
            try:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                link = Link(*start_supervisor(self._folder, self._environ), self._hear, self._lost)
            except OSError as error:
                self._give_up(error.strerror or str(error))
            else:
                link.send(do="hello", ref=0, **self._hello())
                self._link = link
        return self._link

    async def _join(self, link: Link) -> Link | None:
        """Attach to a supervisor that was there before."""
        try:
            answer = await link.ask(limit_s=HELLO_S, do="hello", **self._hello())
        except ConnectionError:
            link.close()
            return None
        if answer["error"]:
            link.close()
            self._give_up(answer["error"])
            return None
        link.introduce(answer["pid"], answer["start"])
        return link

    def _hello(self) -> dict[str, Any]:
        told = self._options
        known = {"secrets": told.secrets, "nonce": told.nonce, "patterns": told.patterns, "wall_us": self._wall_us()}
        return {"keep_s": told.keep_s, "alone_s": told.alone_s, "grace_s": told.grace_s, "known": known}

    def _give_up(self, why: str) -> None:
        if not self._unable:
            self._unable = True
            self.notice(f"commands cannot go on in the background: no supervisor of processes could be had ({why})")

    def _hear(self, message: dict[str, Any]) -> None:
        match message.pop("do"):
            case "news":
                self._kept.tell(message["task"], message["end"])
            case "started":
                if command := self._commands.get(message["number"]):
                    command.runs(message["pid"], message["mark"])
            case "not_started":
                if command := self._commands.get(message["number"]):
                    errno, text = message["errno"], message["text"]
                    command.did_not_start(ValueError(text) if errno is None else OSError(errno, os.strerror(errno)))
            case "ended":
                if command := self._commands.get(message["number"]):
                    command.is_over(message)

    def _lost(self, link: Link) -> None:
        """The supervisor is gone."""
        if self._link is link:
            self._link = None
        if not link.owner:
            return  # it died before it had said who it was; whose tasks it had is asked of the spool
        commands = list(self._commands.values())
        if not link.heard:
            self._give_up("it ended at once")
        for command in commands:
            command.is_lost()
        self._kept.supervisor_died(link.owner, [command.pid for command in commands if command.pid])

    # --- starting -----------------------------------------------------------------------------------------------

    async def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        sink: Printout | None,
        output_bytes_max: int,
        stdin: bool = False,
    ) -> Started | Ended:
        """See `Supervision.start`. Without a supervisor what is started cannot be kept."""
        begun = await self._begin(command, cwd=cwd, env=env, sink=sink, output_bytes_max=output_bytes_max, stdin=stdin)
        if begun is None:
            run = self.plain.run(
                command,
                cwd=cwd,
                env=env,
                sink=sink or Nobody(),
                timeout_s=NO_LIMIT_S,
                output_bytes_max=output_bytes_max,
            )
            return Unkept(asyncio.get_running_loop().create_task(run))
        if isinstance(begun, Foreground):
            begun.early = Early(sink, self._early_output)
        return begun

    async def _begin(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        sink: Sink | None,
        output_bytes_max: int,
        stdin: bool = False,
    ) -> Foreground | Ended | None:
        """The command runs, or why it does not; None when there is no supervisor to start it."""
        link = await self._linked()
        if link is None or link.deaf:
            return None
        try:
            ours, theirs = open_pipes(command, self.shell)
        except OSError as error:
            return not_started(error, command, cwd)
        begun = Foreground(
            link, self._commands, self._kept, pipes=ours, sink=sink, output_bytes_max=output_bytes_max, cwd=cwd
        )
        words = command if isinstance(command, str) else list(command)
        until_s = time.monotonic() + START_S
        what = {"command": words, "shell": self.shell, "cwd": cwd, "env": dict(env), "stdin": stdin}
        link.send(theirs, do="start", number=begun.number, until_s=until_s, **what)
        try:
            failure = await begun.wait_started(START_S + LATE_S)
        except TimeoutError:
            self._not_heard(link, begun)
            return None
        except asyncio.CancelledError:
            begun.end("interrupt")
            begun.abandon()
            raise
        if failure is None:
            return begun
        if not link.heard:
            return None  # it never came up, so nothing was started
        return LOST if isinstance(failure, ConnectionError) else not_started(failure, command, cwd)

    def _not_heard(self, link: Link, begun: Foreground) -> None:
        """It was not started, nor will it be: the supervisor may wake up, but that is told until when to start it."""
        if not link.deaf:
            self.notice(f"{DEAF}: commands run without it, and cannot go on in the background until it does")
        link.deaf = True
        begun.abandon()
        self._commands.pop(begun.number, None)

    def _early_output(self) -> Output:
        name = f"{EARLY}-{os.getpid()}-{next(_early_numbers)}"
        return Output(self._folder, name, self._options.quota_bytes, self._holding())

    def _holding(self) -> Holding:
        return Holding(self._redact, self._options.secrets, bool(self._options.patterns))

    async def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        sink: Sink,
        timeout_s: float,
        output_bytes_max: int,
    ) -> Ended:
        """See `Spawner.run`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        begun = await self._begin(command, cwd=cwd, env=env, sink=sink, output_bytes_max=output_bytes_max)
        if begun is None:
            return await self.plain.run(
                command, cwd=cwd, env=env, sink=sink, timeout_s=timeout_s, output_bytes_max=output_bytes_max
            )
        if isinstance(begun, Ended):
            return begun
        timer = loop.call_at(until, begun.end, "timeout")
        try:
            return await begun.ended()
        except asyncio.CancelledError:
            begun.end("interrupt")
            begun.abandon()
            raise
        finally:
            timer.cancel()

    async def drain(self) -> None:
        """See `Spawner.drain`. Kept tasks go on."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        link = self._link
        if link is not None:
            link.wake()
            with suppress(ConnectionError):  # what it left is being ended, then, or it is deaf
                await link.ask(limit_s=DRAIN_S, do="drain")
            stays = bool(self._kept.owned(link.owner))
            if link.deaf and not stays:
                link.kill()
                self._kept.supervisor_died(link.owner, ())
            link.close()
            self._link = None
            if not stays:
                await link.wait_exit(EXIT_S)
        await self._kept.wait()
        await self.plain.drain()

    # --- kept tasks ---------------------------------------------------------------------------------------------

    async def adopt(self) -> Sequence[Spooled]:
        """See `Supervision.adopt`."""
        link = await self._open(start=False) if os.path.isdir(self._folder) else None
        return await self._kept.adopt(link.owner if link else "")

    def spooled(self, task: str) -> Spooled | None:
        """See `Supervision.spooled`."""
        return self._kept.spooled(task)

    def read(self, task: str, start: int, size_bytes: int) -> tuple[int, bytes]:
        """See `Supervision.read`."""
        return self._kept.read(task, start, size_bytes)

    def on_news(self, call: Callable[[str], None]) -> None:
        """See `Supervision.on_news`."""
        self._kept.on_news(call)

    def whole(self, task: str) -> str:
        """See `Supervision.whole`."""
        return self._kept.whole(task)

    def settle(self, task: str) -> None:
        """See `Supervision.settle`."""
        self._kept.settle(task)

    async def stop(self, task: str, cause: str) -> None:
        """See `Supervision.stop`."""
        link = self._link
        if link is not None and self._kept.record(task).get("owner") == link.owner:
            try:
                await link.ask(do="stop", task=task, cause=cause)
            except ConnectionError:
                if link.gone:
                    raise
                await self._kept.stop_unheard(task, cause)
        else:
            self._kept.stop(task)

    async def give(self, task: str, data: bytes, *, eof: bool) -> None:
        """See `Supervision.give`."""
        link = self._link
        if link is None or self._kept.record(task).get("owner") != link.owner:
            raise OSError(f"the input of {task} cannot be reached: it is over, or its supervisor is of another version")
        answer = await link.ask(do="give", task=task, data=data, eof=eof)
        if answer["error"]:
            raise (BrokenPipeError if answer["broken"] else OSError)(answer["error"])
