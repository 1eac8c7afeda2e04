"""Start a process with `posix_spawn`, from the single-threaded supervisor.

All its descriptors are closed on exec. `posix_spawn` sets no folder and searches no path, so the
supervisor changes its folder for a moment and comes back. Importing `subprocess` would take half of
the supervisor's start.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence

from longrein.workspace.supervisor.shell_lines import (
    LANDLOCK,
    MOUNTS,
    Confined,
    close,
    command_words,
    confined_words,
    find_on_path,
    open_filter,
)

IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; a command gets the default."""


def spawn(  # noqa: PLR0913, PLR0917 - what makes a process
    command: str | Sequence[str],
    shell: str,
    cwd: str,
    env: Mapping[str, str],
    output: int,
    report: int,
    stdin: int,
    home: int,
    confinement: Confined = None,
    *,
    user_namespace: int = -1,
    kept_mounts: int = -1,
    trace: Callable[[], None] | None = None,
    stdout: int = -1,
    error: int = -1,
) -> int:
    """Start a command without a terminal, in a session of its own, and return its pid.

    What it prints goes to `output`, or to `stdout` and `error`. `report` is open in the process
    under the same number. `confinement` holds the words and the filter of a `Confinement`. `home`
    is the folder to come back to. `user_namespace`, `kept_mounts`: see `mounted_start`. `trace`
    runs last in the new process of a confined command.

    Raises OSError or ValueError (empty command, NUL, unencodable text). Closes no descriptor.
    """
    if not command:
        raise ValueError("nothing")
    words = command_words(command, report)
    targets = (stdin, *(one if one >= 0 else output for one in (stdout, error)))
    actions = [(os.POSIX_SPAWN_DUP2, one, number) for number, one in enumerate(targets)]
    if report >= 0:
        os.set_inheritable(report, True)  # it keeps its number; the caller closes it soon
    filter_descriptor = -1
    ends = {"output": output, "report": report, "stdin": stdin, "stdout": stdout, "error": error}
    os.chdir(cwd)
    try:
        path = shell if isinstance(command, str) else find_on_path(words[0], env)
        if confinement and confinement[0][0] == LANDLOCK:
            from longrein.workspace.supervisor.landlock_process import landlock_start

            with open(confinement[1], "rb") as plan:
                return landlock_start(plan.read(), path, words, cwd, env, trace, **ends)
        if confinement:
            filter_descriptor = open_filter(confinement[1])
            front = confinement[0]
            mounts = front[1] if front[0] == MOUNTS else ""
            path, words = confined_words(
                front[2:] if mounts else front, filter_descriptor, path, words, env
            )
            if mounts:
                from longrein.workspace.supervisor.mount_process import mounted_start

                return mounted_start(
                    mounts, user_namespace, path, words, env, trace, kept_mounts, **ends
                )
        return os.posix_spawn(
            path, words, env, file_actions=actions, setsid=True, setsigdef=IGNORED_HERE
        )
    finally:
        close(filter_descriptor)
        os.fchdir(home)
