"""Start a process with `posix_spawn`, from the single-threaded supervisor.

All its descriptors are closed on exec. `posix_spawn` sets no folder and searches no path, so the supervisor changes its
folder for a moment and comes back. Importing `subprocess` would take half of the supervisor's start; it is the fallback
where spawned processes cannot call `setsid`.
"""

import os
import signal
from collections.abc import Mapping, Sequence

from longrein.workspace.supervisor.shell import command_words

IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; a command gets the default."""


def spawn(
    command: str | Sequence[str],
    shell: str,
    cwd: str,
    env: Mapping[str, str],
    output: int,
    report: int,
    stdin: int,
    home: int,
) -> int:
    """Start a command as `launch` does and return its pid. `home` is the folder to come back to.

    Raises OSError or ValueError (empty command, NUL, unencodable text). Closes no descriptor.
    """
    if not command:
        raise ValueError("nothing")
    words = command_words(command, report)
    actions = [(os.POSIX_SPAWN_DUP2, one, number) for number, one in ((0, stdin), (1, output), (2, output))]
    if report >= 0:
        os.set_inheritable(report, True)  # it keeps its number; the caller closes it soon
    os.chdir(cwd)
    try:
        path = shell if isinstance(command, str) else find_on_path(words[0], env)
        return os.posix_spawn(path, words, env, file_actions=actions, setsid=True, setsigdef=IGNORED_HERE)
    except NotImplementedError:
        from longrein.workspace.supervisor.start_process import launch

        popen = launch(command, shell, cwd, env, output=output, report=report, stdin=stdin)
        popen.returncode, pid = 0, popen.pid  # the supervisor reaps it by pid
        return int(pid)
    finally:
        os.fchdir(home)


def find_on_path(name: str, env: Mapping[str, str]) -> str:
    """Find a program by name on the command's own search path."""
    if "/" in name:
        return name
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return name
