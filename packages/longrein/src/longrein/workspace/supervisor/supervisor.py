"""The supervisor's requests and clients. One thread; it waits only in its loop."""

import os
import socket
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from errno import EMFILE, ESTALE, ETIMEDOUT

from longrein.workspace.supervisor.channel import VERSION, Channel
from longrein.workspace.supervisor.command_processes import (
    ALL_COMMANDS,
    Command,
    KeptTask,
    RemainingProcesses,
)
from longrein.workspace.supervisor.kept_mounts import KeptMounts
from longrein.workspace.supervisor.mount_watch import MountWatch
from longrein.workspace.supervisor.pipes import READ, WRITE, Loop, Pipes
from longrein.workspace.supervisor.posix_spawn import spawn
from longrein.workspace.supervisor.process_tree import (
    COMMAND_MARK,
    GRACE_S,
    SANDBOX_MARK,
    Terminations,
    Tree,
    owner_mark,
)
from longrein.workspace.supervisor.shell_lines import LANDLOCK, MOUNTS, close, sandbox_mark
from longrein.workspace.supervisor.task_processes import Context, Tasks
from longrein.workspace.supervisor.warm_sandbox import WarmSandbox

TYPE_CHECKING = False  # `typing` is slow to import, and the supervisor starts with each session
if TYPE_CHECKING:
    from longrein.workspace.supervisor.write_traces import Listener, WriteTraces

ALONE_S = 2.0
"""Seconds between longrein's death and the end of what may not outlive it."""
GONE = "longrein is gone"
WARM_S = 60.0
"""Seconds for which a sandbox waits for its command: it keeps file systems busy."""


_Start = namedtuple("_Start", "command shell cwd env confinement stdin traced")
"""A process to start; fields as in `do_start`."""


class _Ends:
    """Descriptors that came with a command."""

    def __init__(self, descriptors: Sequence[int], streams: Sequence[str]) -> None:
        count = max(0, len(descriptors) - len(streams))
        self.output, self.theirs, self.report = (*descriptors[:count], -1, -1, -1)[:3]
        own = dict(zip(streams, descriptors[count:], strict=False))
        self.stdin, self.stdout, self.stderr = (
            own.get(name, -1) for name in ("stdin", "stdout", "stderr")
        )

    def take_output(self) -> int:
        """Return our end of the output pipe; it stays open."""
        output, self.output = self.output, -1
        return output

    def close(self) -> None:
        """Close those that nobody has taken."""
        close(self.output, self.theirs, self.report, self.stdin, self.stdout, self.stderr)


class Client:
    """A connected process: the attached longrein, or one that only stops a task."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.commands: dict[int, Command] = {}
        """Its foreground commands by number, without those it is done with."""
        self.stuck = False
        """True while messages wait to be sent."""
        self.leaving = False
        """True once it has asked to end everything but the background tasks."""


class Supervisor:
    """The supervisor's state. Each method `do_…` handles the message of that name."""

    def __init__(
        self, first: socket.socket, clock: Callable[[], float], user_namespace: int = -1
    ) -> None:
        """`first`: socket to longrein. `user_namespace`: see `apply_mounts`."""
        self._user_namespace = user_namespace
        self.owner = owner_mark()
        self.start = int(self.owner.partition(".")[2])
        self.loop = Loop(clock)
        self.terminations = Terminations(clock)
        self.mounts = MountWatch(self.loop.watch, self._notice)
        self._kept_mounts = KeptMounts(user_namespace, self.mounts, self.loop.after)
        self.pipes = Pipes(self.loop)
        self._made_traces: WriteTraces | None = None
        self._warm: WarmSandbox | None = None
        """A sandbox that waits for its command."""
        self.tasks = Tasks(self.loop, self.pipes, self.end, self._task_over)
        self.commands: dict[int, Command] = {}
        """Running commands by pid."""
        self.clients: list[Client] = []
        self.attached: Client | None = self._add_client(first)
        self._attachments = 0
        self._number = 0
        """Number of the last command."""
        self._devnull = os.open(os.devnull, os.O_RDONLY)
        self._home = os.open(".", os.O_RDONLY)
        self._departures = 0
        """Longreins that left and whose commands are about to be told to end."""
        self._stopping = self._unkillable = False
        self._unsent: list[Client] = []
        """Clients with queued messages: all messages of a round are sent together, so that they
        wake up once.
        """
        self._keep_s = 24 * 3600.0
        self._alone_s, self._grace_s = ALONE_S, GRACE_S

    def run(self) -> None:
        """Run until no client is connected and nothing is left to look after."""
        while not self._is_idle():
            self.loop.step(self.terminations.wait_s())
            self.terminations.walk()
            while self._unsent:
                self._flush_client(self._unsent.pop())

    def _is_idle(self) -> bool:
        if self.commands or self.tasks.running or self.terminations or self._departures:
            return False
        return (self._stopping or not self.clients) and not self._ends_stragglers()

    def _ends_stragglers(self) -> bool:
        """End processes that a look at the process table missed because they forked meanwhile.

        False when there are none: orphaned descendants are children of this process, so without
        children nothing is left.
        """
        if self._unkillable or not self.reap():
            return False
        self._end_remaining(lambda: None)
        return True

    # --- Clients ----------------------------------------------------------------------------------

    def accept(self, listening: socket.socket) -> None:
        """Accept a client."""
        try:
            sock, _ = listening.accept()
        except OSError:
            return
        self._add_client(sock)

    def _add_client(self, sock: socket.socket) -> Client:
        client = Client(Channel(sock))
        self.clients.append(client)
        self.loop.watch(sock.fileno(), lambda: self._receive(client))
        return client

    def _receive(self, client: Client) -> None:
        for message in client.channel.receive():
            descriptors = client.channel.take(int(str(message.pop("fds", 0))))
            getattr(self, f"do_{message.pop('do')}")(client, descriptors, **message)
        self._flush_client(client)

    def tell(self, client: Client | None, **message: object) -> None:
        """Queue a message to a client, if there is one."""
        if client is not None:
            client.channel.put(message)
            self._unsent.append(client)

    def _flush_client(self, client: Client) -> None:
        if client not in self.clients:
            return
        stuck = not client.channel.flush()
        if client.channel.closed:
            self._remove_client(client)
        elif stuck != client.stuck:
            client.stuck = stuck
            self.loop.watch(
                client.channel.socket.fileno(),
                lambda: self._receive(client),
                READ | WRITE if stuck else READ,
            )

    def _remove_client(self, client: Client) -> None:
        """Remove a client that is gone. Its foreground commands are read for nobody and end
        soon.
        """
        self.clients.remove(client)
        self.loop.unwatch(client.channel.socket.fileno())
        client.channel.close()
        if client is not self.attached:
            return
        self._drop_ready()
        self.attached = None
        self._attachments += 1
        attachments = self._attachments
        for command in client.commands.values():
            command.report_end = None
            self.pipes.discard_output(command)
        self._departures += 1
        last = self._number
        self.loop.after(
            0.0 if client.leaving else self._alone_s, lambda: self._after_departure(client, last)
        )
        self.loop.after(self._keep_s, lambda: self._end_forgotten(attachments))

    def _after_departure(self, client: Client, last: int) -> None:
        """End what a client left. `last` is the last command started while it was connected."""
        self._departures -= 1
        for command in client.commands.values():
            self.end(command, "interrupt")
        if self.attached is not None:  # a new longrein is attached: end only what the dead one left
            return self._end_remaining(lambda: None, last)
        for command in list(self.tasks.running.values()):
            if command.kept and command.kept.policy != "keep":
                self.end(command, GONE)
        return None if client.leaving else self._end_remaining(lambda: None)

    def _end_forgotten(self, attachments: int) -> None:
        if self.attached is None and attachments == self._attachments:
            for command in list(self.tasks.running.values()):
                self.end(command, f"nobody came back within {self._keep_s / 3600:g} h")

    def stop_all(self, cause: str) -> None:
        """End everything, background tasks too, and then this process."""
        self._stopping = True
        self._drop_ready()
        for command in list(self.commands.values()):
            self.end(command, cause if command.kept else "interrupt")
        self._end_remaining(lambda: None)

    def _end_remaining(self, done: Callable[[], None], last: float = ALL_COMMANDS) -> None:
        """End all processes of commands up to number `last`, except tasks and awaited commands."""
        kill_at = self.loop.clock() + self._grace_s
        rest = RemainingProcesses(self.owner, os.getpid(), kill_at, self._spared, last)

        def over() -> None:
            self._unkillable = self.loop.clock() >= rest.give_up_at
            done()

        self.terminations.end(rest, over)

    def _spared(self) -> Iterable[Tree]:
        if self._stopping:
            return ()
        attached = self.attached
        awaited = attached.commands.values() if attached and not attached.leaving else ()
        return [command.tree for command in (*self.tasks.running.values(), *awaited)]

    # --- Messages ---------------------------------------------------------------------------------

    def do_ping(self, client: Client, _: Sequence[int], *, ref: int) -> None:
        """Answer, so that longrein knows the supervisor listens."""
        self.tell(client, do="answer", ref=ref, error="")

    def do_hello(  # the only message that carries secrets
        self,
        client: Client,
        _: Sequence[int],
        *,
        ref: int,
        keep_s: float,
        alone_s: float,
        grace_s: float,
        known: dict[str, object],
    ) -> None:
        """Attach a longrein; only one can be attached at a time."""
        if self.attached is not None and self.attached is not client:
            self._receive(self.attached)  # it may be dead without the loop having noticed
        if self.attached is not None and self.attached is not client:
            return self.tell(
                client,
                do="answer",
                ref=ref,
                error="another longrein is attached to this supervisor",
            )
        self.attached = client
        self._attachments += 1
        self._keep_s = keep_s
        self._alone_s = alone_s
        self._grace_s = grace_s
        self.tasks.set_context(Context(**known))
        return self.tell(client, do="answer", ref=ref, error="", pid=os.getpid(), start=self.start)

    def do_start(  # noqa: PLR0913 - the fields of the message
        self,
        client: Client,
        descriptors: Sequence[int],
        *,
        number: int,
        command: str | list[str],
        shell: str,
        cwd: str,
        env: dict[str, str],
        stdin: bool,
        until_s: float,
        confinement: tuple[list[str], str] | None,
        streams: Sequence[str] = (),
        traced: bool = False,
    ) -> None:
        """Start a command.

        The descriptors are both ends of the output pipe and the shell's end of the report pipe.
        Those of the standard `streams` (`stdin`, `stdout`, `stderr`) of the command follow. After
        `until_s` (monotonic) nothing is started, because longrein no longer waits. `confinement`
        holds the words and the filter of a `Confinement`. `traced`: the files that it writes are
        noted for `do_unwritten`, if it is confined.
        """
        ends = _Ends(descriptors, streams)
        try:
            if self.loop.clock() > until_s:
                raise OSError(ETIMEDOUT, os.strerror(ETIMEDOUT))
            start = _Start(command, shell, cwd, env, confinement, stdin, traced)
            started = self._start(start, ends)
        except (OSError, ValueError) as error:
            return self._not_started(client, number, error)
        finally:
            ends.close()
        return self._started(client, number, started)

    def _start(self, start: _Start, ends: _Ends, warm: WarmSandbox | None = None) -> Command:
        """Start the process of a command. Raises OSError and ValueError."""
        confinement = start.confinement
        listener = self._new_listener() if start.traced and confinement else None
        self._number += 1
        mark = f"{self.owner}.{self._number}/"
        own_input = -1
        try:
            if ends.output < 0 or ends.theirs < 0:
                raise OSError(EMFILE, os.strerror(EMFILE))
            if ends.stdin < 0:
                ends.stdin = os.dup(self._devnull)
            if start.stdin:
                close(ends.stdin)
                ends.stdin, own_input = os.pipe()
                os.set_blocking(own_input, False)
            plan = warm.plan if warm is not None else None
            if plan is None and confinement and confinement[0][0] == MOUNTS:
                plan = self.mounts.prepare(confinement[0][1])
            pid = spawn(
                start.command,
                start.shell,
                start.cwd,
                self._marked(start.env, mark, is_confined=bool(confinement)),
                ends.theirs,
                ends.report,
                ends.stdin,
                self._home,
                confinement,
                user_namespace=self._user_namespace,
                kept_mounts=self._kept_mounts.find(plan) if plan is not None else -1,
                trace=listener.install if listener is not None else None,
                stdout=ends.stdout,
                error=ends.stderr,
            )
        except (OSError, ValueError):
            close(own_input, listener.take() if listener is not None else -1)
            raise
        started = Command(pid, mark, ends.take_output(), own_input, self.loop.clock())
        started.is_confined = confinement is not None and confinement[0][0] != LANDLOCK
        if plan is not None:
            started.plan = plan
            self.mounts.add(pid, plan, None if warm is None else lambda: self._drop_warm(warm))
        if start.traced:
            taken = listener.take() if listener is not None else -1
            self._traces().add(taken, lambda: not started.over and started.kept is None)
        self.commands[pid] = started
        return started

    @staticmethod
    def _marked(env: dict[str, str], mark: str, *, is_confined: bool) -> dict[str, str]:
        marked = {**env, COMMAND_MARK: env.get(COMMAND_MARK, "") + mark}
        return {**marked, SANDBOX_MARK: sandbox_mark()} if is_confined else marked

    def _started(self, client: Client, number: int, started: Command) -> None:
        started.report_end = lambda: self._report_end(client, number, started)
        client.commands[number] = started
        self.tell(client, do="started", number=number, pid=started.pid, mark=started.mark)

    def _not_started(self, client: Client, number: int, error: OSError | ValueError) -> None:
        errno = error.errno if isinstance(error, OSError) else None
        self.tell(client, do="not_started", number=number, errno=errno, text=str(error))

    # --- The next sandbox -------------------------------------------------------------------------

    def do_prepare(
        self,
        _: Client,
        descriptors: Sequence[int],
        *,
        number: int,
        shell: str,
        cwd: str,
        confinement: tuple[list[str], str],
        traced: bool,
    ) -> None:
        """Make the sandbox of a command line that `do_run` gives later. Fields as in `do_start`.
        Not answered: `do_run` tells.
        """
        self._drop_warm(self._warm)
        ends = _Ends(descriptors, ())
        try:
            plan = self.mounts.prepare(confinement[0][1])
            warm = self._warm = WarmSandbox(number, ends.report, cwd, plan)
            words = warm.waiting_words(shell)
            start = _Start(words, shell, cwd, {}, confinement, False, traced)
            warm.started(self._start(start, ends, warm))
        except (OSError, ValueError):
            self._drop_warm(self._warm)
            return
        finally:
            ends.close()
        self.loop.after(WARM_S, lambda: self._drop_warm(warm))

    def do_run(
        self,
        client: Client,
        _: Sequence[int],
        *,
        number: int,
        until_s: float,
        command: str,
        shell: str,
        env: dict[str, str],
        reports: bool,
    ) -> None:
        """Let a command line begin in the sandbox of `do_prepare`; ESTALE where that does not do.
        Fields as in `do_start`; `reports`: the shell tells its last folder.
        """
        if self.loop.clock() > until_s:
            return self._not_started(client, number, OSError(ETIMEDOUT, os.strerror(ETIMEDOUT)))
        self.mounts.look()
        warm, self._warm = self._warm, None
        started = warm.command if warm is not None and warm.number == number else None
        if (
            warm is None
            or started is None
            or not warm.begin(
                command,
                shell,
                self._marked(env, started.mark, is_confined=True),
                reports=reports,
            )
        ):
            self._drop_warm(warm)
            return self._not_started(client, number, OSError(ESTALE, os.strerror(ESTALE)))
        started.began_s = self.loop.clock()
        self.mounts.add(started.pid, started.plan)
        return self._started(client, number, started)

    def _drop_ready(self) -> None:
        """Drop what was made for the next command."""
        self._drop_warm(self._warm)
        self._kept_mounts.drop_all()

    def _drop_warm(self, warm: WarmSandbox | None) -> None:
        """Let a waiting sandbox end, if it has no command."""
        if warm is None or not warm.is_waiting:
            return
        warm.drop()
        self.tell(self.attached, do="dropped", number=warm.number)
        if warm is self._warm:
            self._warm = None

    def _traces(self) -> "WriteTraces":
        if self._made_traces is None:
            from longrein.workspace.supervisor.write_traces import WriteTraces

            self._made_traces = WriteTraces(self.loop)
        return self._made_traces

    @staticmethod
    def _new_listener() -> "Listener | None":
        """Return what traces the next command; None where that cannot be had."""
        from longrein.workspace.supervisor.write_traces import Listener

        try:
            return Listener()
        except OSError:
            return None

    def _notice(self, line: str) -> None:
        """Tell the user a line."""
        if self.attached is not None:
            self.tell(self.attached, do="notice", line=line)

    def _report_end(self, client: Client, number: int, command: Command) -> None:
        what = {
            "returncode": command.returncode,
            "cause": command.cause,
            "elapsed_s": command.elapsed_s,
        }
        self.tell(client, do="ended", number=number, **what)

    def do_unwritten(
        self, client: Client, _: Sequence[int], *, ref: int, paths: Sequence[str]
    ) -> None:
        """Tell which of these real paths no foreground command has written."""
        found, is_complete = self._traces().unwritten(paths)
        self.tell(client, do="answer", ref=ref, error="", paths=found, is_complete=is_complete)

    def do_end(self, client: Client, _: Sequence[int], *, number: int, cause: str) -> None:
        """End a foreground command."""
        if command := client.commands.get(number):
            self.end(command, cause)

    def do_done(self, client: Client, _: Sequence[int], *, number: int) -> None:
        """Forget a foreground command that longrein no longer needs; its output is discarded."""
        if command := client.commands.pop(number, None):
            command.report_end = None
            self.pipes.discard_output(command)

    def do_keep(
        self,
        client: Client,
        _: Sequence[int],
        *,
        ref: int,
        number: int,
        keeping: dict[str, object],
        record: dict[str, object],
        written: dict[str, object],
    ) -> None:
        """Make a foreground command a background task."""
        command = client.commands.pop(number, None)
        if command is None:
            return self.tell(client, do="answer", ref=ref, error="it is over and forgotten")
        who = {
            "pid": command.pid,
            "start": command.start(),
            "mark": command.mark,
            "owner": self.owner,
        }
        record = {**record, **who, "stdin_inode": command.stdin_inode, "version": VERSION}
        error = self.tasks.keep(command, KeptTask(**keeping), record, written)
        self.tell(client, do="answer", ref=ref, error=error)
        if error:  # nobody could find it again
            self.pipes.discard_output(command)
            return self.end(command, "interrupt")
        return self.tasks.finish(command) if command.over else None

    def do_stop(self, client: Client, _: Sequence[int], *, ref: int, task: str, cause: str) -> None:
        """End a task."""
        if command := self.tasks.running.get(task):
            self.end(command, cause)
        self.tell(client, do="answer", ref=ref, error="", known=command is not None)

    def do_give(
        self, client: Client, _: Sequence[int], *, ref: int, task: str, data: bytes, eof: bool
    ) -> None:
        """Write to a task's input."""
        command = self.tasks.running.get(task)
        error = self.pipes.give(command, data, eof) if command else "it is over"
        self.tell(
            client, do="answer", ref=ref, error=error, broken=command is None or command.stdin < 0
        )

    def do_drain(self, client: Client, _: Sequence[int], *, ref: int) -> None:
        """End everything but the background tasks, at longrein's normal exit."""
        client.leaving = True
        self._drop_ready()
        for command in list(self.commands.values()):
            if command.kept is None:
                self.end(command, "interrupt")
        self._end_remaining(lambda: self.tell(client, do="answer", ref=ref, error=""))

    # --- Ending commands --------------------------------------------------------------------------

    def end(self, command: Command, cause: str, state: str = "killed") -> None:
        """End a command's process tree."""
        if not command.ending and not command.over:
            command.mark_ending(cause, state, self.loop.clock() + self._grace_s)
            self.terminations.end(command.tree, lambda: self._tree_gone(command))

    def _tree_gone(self, command: Command) -> None:
        """Finish a command whose tree is gone.

        A leader whose threads are still ending can be reaped in a moment.
        """
        self.reap()  # its exit may not have been read yet
        left_s = command.tree.give_up_at - self.loop.clock()
        if command.returncode is None and left_s > 0:
            self.loop.after(left_s, lambda: self._over(command))
        else:
            self._over(command)

    def reap(self) -> bool:
        """Reap all exited children, also adopted ones. False when there are no children left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.terminations.gone(pid)
            if command := self.commands.pop(pid, None):
                self.mounts.remove(pid)
                command.reaped(os.waitstatus_to_exitcode(status), self.loop.clock())
                if self._warm is not None and self._warm.command is command:
                    self._drop_warm(self._warm)
                if command.tree not in self.terminations:
                    self._over(command)

    def _over(self, command: Command) -> None:
        """Finish a command that has ended, with its tree if it was told to, or that cannot be
        ended.
        """
        if command.over:
            return
        command.over = True
        command.elapsed_s = command.elapsed_s or self.loop.clock() - command.began_s
        self.commands.pop(command.pid, None)
        self.pipes.close_input(command)
        if command.kept is not None:
            self.tasks.finish(command)
        elif command.report_end is not None:
            command.report_end()
        else:
            self.pipes.discard_output(command)

    def _task_over(self, task: str, end: dict[str, object]) -> None:
        self.tell(self.attached, do="news", task=task, end=end)
        if self.attached is None:
            self._end_remaining(lambda: None)
