"""Start a process in a session of its own, with `subprocess`."""

import sys
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, Popen

from longrein.workspace.supervisor.shell_lines import (
    FILTER,
    LANDLOCK,
    MOUNTS,
    Confined,
    close,
    command_words,
    confined_words,
    find_on_path,
    open_filter,
)


def launch(  # noqa: PLR0913 - what makes a process
    command: str | Sequence[str],
    shell: str,
    cwd: str,
    env: Mapping[str, str],
    *,
    output: int,
    report: int = -1,
    stdin: int = DEVNULL,
    error: int = -1,
    confinement: Confined = None,
    stdout: int = -1,
) -> Popen[bytes]:
    """Start a command without a terminal; stdout and stderr go to `output`, or to `stdout` and
    `error`.

    `report` is open in the process under the same number. `confinement` holds the words and the
    filter of a `Confinement`. Raises OSError or ValueError (empty command, NUL, unencodable text).
    Closes no descriptor.
    """
    if not command:
        raise ValueError("nothing")
    words, path = command_words(command, report), shell if isinstance(command, str) else None
    filter_descriptor = open_filter(confinement[1]) if confinement else -1
    if confinement:
        own = path or find_on_path(words[0], env)
        front = confinement[0]
        if front[0] == LANDLOCK:
            from longrein.workspace.supervisor.landlock_process import helper_words

            front = helper_words(sys.executable, FILTER)
        elif front[0] == MOUNTS:
            from longrein.workspace.supervisor.mount_process import helper_words

            front = [*helper_words(sys.executable, front[1]), *front[2:]]
        path, words = confined_words(front, filter_descriptor, own, words, env)
    try:
        return Popen(
            words,
            executable=path,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout if stdout >= 0 else output,
            stderr=error if error >= 0 else output,
            start_new_session=True,
            pass_fds=[one for one in (report, filter_descriptor) if one >= 0],
        )
    finally:
        close(filter_descriptor)
