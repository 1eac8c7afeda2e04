"""A sandbox that is made before its command is known: its namespaces and mounts take longer than
most commands.

Its first process is a bash that waits. It gets words to execute through a file in memory, once a
byte comes through a pipe; when the pipe ends without one, it exits. `env -i` gives the command
exactly its variables, so nothing of the waiting shell is left in it.

Standard library only: the supervisor loads this module.
"""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from longrein.workspace.supervisor.command_processes import Command
from longrein.workspace.supervisor.mount_watch import Plan
from longrein.workspace.supervisor.shell_lines import close, command_words, find_on_path

ENV = "/usr/bin/env"
WORDS_BYTES_MAX = 96 << 10
"""Largest command with its variables; a larger one may be too long for the system, and the shell
would say so in its own words.
"""
WAITING = (
    'read -rn1 -u "$1" || exit; mapfile -td "" -u "$2" words; '
    'eval "exec $1<&- $2<&- ${words[0]}"; exec "${words[@]:1}"'
)
"""Arguments: descriptors of the pipe and of the words. The first word closes further descriptors.
"""


class WarmSandbox:
    """A sandbox whose command is still to come."""

    def __init__(self, number: int, report: int, cwd: str, plan: Plan) -> None:
        """Open its files, and note the folders of its mounts: call it before they are made.

        `number` is longrein's for the command. Raises OSError.
        """
        self.number = number
        self.command: Command | None = None
        """Its process, once started."""
        self.plan = plan
        """Its mounts."""
        self._report = report
        self._cwd = cwd
        self._then = plan.identities(cwd)
        self._words = os.memfd_create("longrein-command")
        self._waits, self._begins = os.pipe()
        for descriptor in (self._words, self._waits):
            os.set_inheritable(descriptor, True)  # the caller starts the process at once

    def waiting_words(self, shell: str) -> list[str]:
        """Return the words of the waiting process, which has no variables."""
        return [shell, "-c", WAITING, "bash", str(self._waits), str(self._words)]

    def started(self, command: Command) -> None:
        """Note the process."""
        self.command = command
        os.set_inheritable(self._words, False)
        close(self._waits)
        self._waits = -1

    @property
    def is_waiting(self) -> bool:
        """True until it has a command or is closed."""
        return self._begins >= 0

    def begin(self, line: str, shell: str, env: Mapping[str, str], *, reports: bool) -> bool:
        """Let the command line begin; False if the sandbox does not do: its process has ended, a
        file is another one now, or the line is too long for this way.

        `reports`: the shell tells its last folder.
        """
        if not self.is_waiting or self.plan.identities(self._cwd) != self._then:
            return False
        words = command_words(line, self._report if reports else -1)
        words[0] = words[0] if find_on_path(words[0], env) == shell else shell
        variables = [f"{name}={value}" for name, value in env.items()]
        closed = f"{self._report}>&-" if self._report >= 0 and not reports else ""
        told = b"".join(
            os.fsencode(word) + b"\0" for word in (closed, ENV, "-i", *variables, *words)
        )
        if len(told) > WORDS_BYTES_MAX:
            return False
        os.pwrite(self._words, told, 0)
        try:
            os.write(self._begins, b"1")
        except BrokenPipeError:
            return False
        self.close()
        return True

    def drop(self) -> None:
        """End its processes: they have no command."""
        if self.command is not None and self.command.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.command.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Close its files: a process that still waits exits."""
        close(self._words, self._waits, self._begins)
        self._words = self._waits = self._begins = -1
