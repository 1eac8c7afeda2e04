"""Choice of the sandbox: bubblewrap where it works, else Landlock, else none with the reasons."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from longrein.workspace.command_environment import DEFAULT_PATH
from longrein.workspace.files import find_program, spellings
from longrein.workspace.sandbox.bubblewrap import bubblewrap_arguments
from longrein.workspace.supervisor.mount_process import KERNEL_MIN

PROBE_S = 5.0
"""Longest wait for the trial run of a sandbox's program."""


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


class Probe:
    """A trial run of bubblewrap. It runs beside other work until `rung` is asked for."""

    def __init__(self, environ: Mapping[str, str], roots: Sequence[str]) -> None:
        """Start the trial; the program is searched on the PATH of `environ`, outside `roots`."""
        self.program = _find_bubblewrap(environ, roots)
        self._process: subprocess.Popen[bytes] | None = None
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
        else:
            self._start()

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
            self._rung = _without_bubblewrap(
                f"{self.program} cannot be started: {error.strerror or error}"
            )

    @property
    def rung(self) -> Rung:
        """The result; waits for the trial."""
        if self._rung is None:
            self._rung = self._result()
        return self._rung

    def _result(self) -> Rung:
        assert self._process is not None
        try:
            _, told = self._process.communicate(timeout=PROBE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return _without_bubblewrap(f"{self.program} did not answer in {PROBE_S:g} s")
        if self._process.returncode == 0:
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
    return Probe(environ, roots).rung
