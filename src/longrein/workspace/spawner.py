"""Starts commands beside longrein, without a sandbox. Their end is told by the process, never by the pipe (R051)."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count

from longrein.workspace import child as children
from longrein.workspace.environment import DEFAULT_PATH
from longrein.workspace.paths import find_program, spellings
from longrein.workspace.port import Ended, Sink
from longrein.workspace.running import LeftOpen, Running
from longrein.workspace.tree import COMMAND_MARK, GRACE_S, owner_mark, survivors
from longrein.workspace.trees import Trees
from longrein.workspace.words import close, last_folder

_spawners = count(1)


def find_shell(search_path: str, roots: Sequence[str]) -> str:
    """`bash`, else `sh`, on the search path or the system's own, never from inside `roots`."""
    outside = spellings(roots)
    found = (find_program(name, path, outside) for name in ("bash", "sh") for path in (search_path, DEFAULT_PATH))
    return next(filter(None, found), "/bin/sh")


class PlainSpawner:
    """A `Spawner` whose children are children of this process. Belongs to one event loop."""

    def __init__(self, search_path: str = DEFAULT_PATH, roots: Sequence[str] = (), *, grace_s: float = GRACE_S) -> None:
        """`search_path` is where `bash` (else `sh`) is looked for, outside `roots`; `grace_s` is TERM to KILL."""
        self.shell = find_shell(search_path, roots)
        self._mark = f"{owner_mark()}.{next(_spawners)}."
        self._numbers = count(1)
        self._used = False
        self._trees = Trees(grace_s)
        self._left_open = LeftOpen()

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
        started = loop.time()
        own = f"{self._mark}{next(self._numbers)}/"
        try:
            child = children.start(command, self.shell, cwd, {**env, COMMAND_MARK: env.get(COMMAND_MARK, "") + own})
        except (OSError, ValueError) as error:
            return children.not_started(error, command, cwd)
        self._used = True
        cause, ending = "exit", None

        def stop(why: str) -> None:
            nonlocal cause, ending
            if ending is None and child.process.returncode is None:
                cause, ending = why, self._trees.end(own, child.process.pid)

        running = Running(child.output, sink, output_bytes_max, stop)
        children.on_exit(child.process, running.exited)
        timer = loop.call_later(timeout_s, stop, "timeout")
        try:
            await running.ended
            if ending is not None:
                self._trees.hurry()
                await asyncio.shield(ending)
        except asyncio.CancelledError:
            stop("interrupt")
            running.abandon()
            raise
        finally:
            timer.cancel()
            cwd_left = last_folder(child.report)
            close(child.report)
        self._leave(running, cause)
        return children.ended(child.process.returncode, cause, loop.time() - started, cwd_left)

    def _leave(self, running: Running, cause: str) -> None:
        output = running.give_away()
        if cause == "exit" and output >= 0:
            self._left_open.keep(output)
        else:
            close(output)

    async def drain(self) -> None:
        """Wait for pending kills, then end what commands left running. For shutdown; nothing may run meanwhile."""
        await self._trees.wait_all()
        if self._used and survivors(self._mark):
            self._trees.end(self._mark, 0)
            await self._trees.wait_all()
        self._left_open.close()
