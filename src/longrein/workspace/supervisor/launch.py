"""Start a process in a session of its own, with `subprocess`."""

from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, Popen

from longrein.workspace.supervisor.shell import (
    Confined,
    close,
    command_words,
    confined_words,
    find_on_path,
    open_filter,
)


def launch(
    command: str | Sequence[str],
    shell: str,
    cwd: str,
    env: Mapping[str, str],
    *,
    output: int,
    report: int = -1,
    stdin: int = DEVNULL,
    confinement: Confined = None,
) -> Popen[bytes]:
    """Start a command without a terminal; stdout and stderr go to `output`.

    `report` is open in the process under the same number. `confinement` holds the words and the filter of a
    `Confinement`. Raises OSError or ValueError (empty command, NUL, unencodable
    text). Closes no descriptor.
    """
    if not command:
        raise ValueError("nothing")
    words, path = command_words(command, report), shell if isinstance(command, str) else None
    filter_descriptor = open_filter(confinement[1]) if confinement else -1
    if confinement:
        own = path or find_on_path(words[0], env)
        path, words = confined_words(confinement[0], filter_descriptor, own, words, env)
    try:
        return Popen(
            words,
            executable=path,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[one for one in (report, filter_descriptor) if one >= 0],
        )
    finally:
        close(filter_descriptor)
