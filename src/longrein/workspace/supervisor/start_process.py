"""Start a process in a session of its own, with `subprocess`."""

from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, Popen

from longrein.workspace.supervisor.shell import command_words


def launch(
    command: str | Sequence[str],
    shell: str,
    cwd: str,
    env: Mapping[str, str],
    *,
    output: int,
    report: int = -1,
    stdin: int = DEVNULL,
) -> Popen[bytes]:
    """Start a command without a terminal; stdout and stderr go to `output`.

    `report` is open in the process under the same number. Raises OSError or ValueError (empty command, NUL, unencodable
    text). Closes no descriptor.
    """
    if not command:
        raise ValueError("nothing")
    return Popen(
        command_words(command, report),
        executable=shell if isinstance(command, str) else None,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=output,
        stderr=output,
        start_new_session=True,
        pass_fds=() if report < 0 else (report,),
    )
