"""Choice of the sandbox: bubblewrap where it works, else Landlock, else none with the reasons."""

import errno
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property

import msgspec

from longrein.atomic_file import replace_file
from longrein.workspace.command_environment import DEFAULT_PATH
from longrein.workspace.files import find_program, read, spellings
from longrein.workspace.sandbox.bubblewrap import bubblewrap_arguments
from longrein.workspace.supervisor.mount_process import KERNEL_MIN

TRIAL_S = 5.0
"""Longest wait for the trial run of a sandbox's program."""
KEPT_BYTES_MAX = 4096
"""Size of the file that holds a success."""


class Rung(msgspec.Struct, frozen=True):
    """Way in which commands are confined."""

    name: str
    """`bubblewrap`, `landlock` or `none`."""
    reason: str
    """Program that confines; for `landlock` why bubblewrap does not, for `none` why there is no
    sandbox.
    """

    @property
    def confines(self) -> bool:
        """True if commands run in a sandbox."""
        return self.name != "none"


class Trial:
    """A trial run of bubblewrap. It runs beside other work until `rung` is asked for.

    A run costs about 15 ms of CPU, so that a success counts for the next start, too: the trial then
    comes with the first command. A failure is not kept, because the user may have mended it.
    """

    def __init__(self, environ: Mapping[str, str], roots: Sequence[str], kept: str = "") -> None:
        """Start the trial; the program is searched on the PATH of `environ`, outside `roots`.

        `kept` is the file that holds the last success; '' for none.
        """
        self.program = _find_bubblewrap(environ, roots)
        self._kept = kept
        self._process: subprocess.Popen[bytes] | None = None
        self._problem = ""
        self._rung: Rung | None = None
        if not self.program:
            self._rung = _without_bubblewrap(
                "bubblewrap (`bwrap`) is not installed; install the package bubblewrap"
            )
        elif not _has_mount_calls():
            self._rung = _without_bubblewrap("the sandbox needs Linux 5.12 or newer")
        elif os.geteuid() == 0 and (
            foreign := [root for root in roots if _owner(root) not in (0, None)]
        ):
            self._rung = Rung(
                "none",
                f"{foreign[0]} belongs to another user, and a confined root cannot write there",
            )
        elif self._succeeded_before():
            self._rung = Rung("bubblewrap", self.program)
        else:
            self._start()

    def _succeeded_before(self) -> bool:
        try:
            return bool(self._kept) and read(self._kept, KEPT_BYTES_MAX) == self._circumstances
        except OSError:
            return False

    @cached_property
    def _circumstances(self) -> bytes:
        """All that a result depends on, as far as it can be told without a run."""
        found, kernel = os.stat(self.program), os.uname()
        stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        return msgspec.json.encode((self.program, *stamp, *kernel[:4], os.geteuid()))

    def _start(self) -> None:
        trial = bubblewrap_arguments(self.program, "/")
        try:
            self._process = subprocess.Popen(
                [*trial, self.program, "--version"],
                env={"PATH": DEFAULT_PATH},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self._problem = f"{self.program} cannot be started: {error.strerror or error}"

    @property
    def rung(self) -> Rung:
        """The result; waits for the trial."""
        if self._rung is None:
            self._rung = self._result()
        return self._rung

    def confirm(self) -> None:
        """Run the trial now where an earlier one was believed. Raises PermissionError where it
        fails.
        """
        if self.rung.name != "bubblewrap" or self._process is not None:
            return
        self._start()
        found = self._result()
        if found.name != "bubblewrap":
            self._process = None
            with suppress(OSError):
                os.unlink(self._kept)
            why = f"{found.reason.partition(';')[0]}; start longrein again"
            raise PermissionError(errno.EPERM, f"bubblewrap worked at the last start; now {why}")

    def _result(self) -> Rung:
        if self._process is None:
            return _without_bubblewrap(self._problem)
        try:
            _, told = self._process.communicate(timeout=TRIAL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return _without_bubblewrap(f"{self.program} did not answer in {TRIAL_S:g} s")
        if self._process.returncode == 0:
            if self._kept:
                with suppress(OSError):
                    replace_file(self._kept, [self._circumstances], durable=False)
            return Rung("bubblewrap", self.program)
        lines = told.decode("utf-8", "replace").strip().splitlines() or [
            f"exit code {self._process.returncode}"
        ]
        return _without_bubblewrap(
            f"bubblewrap does not work here: {lines[-1].removeprefix('bwrap: ')[:200]}"
        )


def _without_bubblewrap(reason: str) -> Rung:
    """Return the next rung; `reason` is why bubblewrap does not work."""
    from longrein.workspace.sandbox.landlock import available

    lacking = available()
    return Rung("none", f"{reason}; {lacking}") if lacking else Rung("landlock", reason)


def _find_bubblewrap(environ: Mapping[str, str], roots: Sequence[str]) -> str:
    outside = spellings(roots)
    paths = (environ.get("PATH", DEFAULT_PATH), DEFAULT_PATH)
    return next(filter(None, (find_program("bwrap", path, outside) for path in paths)), "")


def _has_mount_calls() -> bool:
    """Return True if this kernel mounts by descriptors."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= KERNEL_MIN


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def find_rung(environ: Mapping[str, str], roots: Sequence[str]) -> Rung:
    """Return how commands in these roots would be confined."""
    return Trial(environ, roots).rung
