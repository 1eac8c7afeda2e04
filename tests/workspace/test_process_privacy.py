"""No command of the same user reads the environment of longrein or its supervisor in /proc
(S069).
"""

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import longrein
import longrein_context
from longrein.workspace.supervisor.process_tree import LINUX
from tests.timeouts import HANG_S

NOBODY = 65534
KEY = "canary-key-in-the-environment"
HIDDEN = """
import os, subprocess, sys
from longrein.workspace.supervisor.process_privacy import hide_memory
hide_memory()
read = "for name in environ mem maps; do cat /proc/$PPID/$name; done; ls -l /proc/$PPID/fd"
print(subprocess.run(["sh", "-c", read], capture_output=True, text=True).stdout)
print("own:", len(os.listdir("/proc/self/fd")) > 2, "VmRSS" in open("/proc/self/status").read())
print("child:", subprocess.run(["sh", "-c", "cat /proc/$$/environ"], capture_output=True).returncode)
"""  # noqa: E501
SUPERVISOR = """
import sys, time
from longrein.workspace.supervisor.process_tree import environment_of, process, processes_with, SPOOL_MARK
from longrein.workspace.supervisor_client import connect, start_supervisor
sock, popen = start_supervisor(sys.argv[1], {"HOME": "/", "PATH": "/bin:/usr/bin"})
while connect(sys.argv[1]) is None:
    time.sleep(0.01)
try:
    print("read:", open(f"/proc/{popen.pid}/environ", "rb").read())
except PermissionError:
    print("read: denied")
print("mark:", f"{SPOOL_MARK}={sys.argv[1]}".encode() in environment_of(popen.pid))
print("listed:", popen.pid in [pid for pid, _ in processes_with(SPOOL_MARK)], process(popen.pid) is not None)
popen.kill()
print("killed:", popen.wait())
"""  # noqa: E501


def as_ordinary_user(program: str, *words: str, env: dict[str, str] | None = None) -> str:
    """Output of a Python program run by a user who is not root."""
    python = (
        sys.executable if os.getuid() else "/usr/bin/python3"
    )  # that of a virtual environment may lie in /root
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if (
        not LINUX
        or not Path(python).exists()
        or version not in subprocess.getoutput(f"{python} --version")
    ):
        pytest.skip(
            f"needs Linux and, for root, a {python} of version {version} that every user can run"
        )
    closed = [one for one in Path(longrein.__file__).parents if not one.stat().st_mode & 0o001]
    if closed and not os.getuid():
        pytest.skip(f"{closed[0]} is closed to other users")
    packages = (longrein, longrein_context)
    sources = [str(Path(one.__path__[0]).parent) for one in packages]
    paths = [*sources, sysconfig.get_path("purelib")]
    ran = subprocess.run(
        [python, "-c", program, *words],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(env or {}),
        },
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
        user=None if os.getuid() else NOBODY,
        extra_groups=None if os.getuid() else [],
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_S069_a_command_cannot_read_the_process_that_started_it() -> None:
    shown = as_ordinary_user(HIDDEN, env={"PROVIDER_API_KEY": KEY})
    assert KEY not in shown
    assert "own: True True" in shown, "the process itself still reads what it needs"
    assert "child: 0" in shown, "its programs are ordinary processes"


def test_S069_the_supervisor_is_closed_too_and_is_still_found_and_killed(tmp_path: Path) -> None:
    folder = Path("/tmp") / f"lr-privacy-{os.getpid()}"  # a folder that an ordinary user reaches
    folder.mkdir(mode=0o700)
    try:
        if not os.getuid():
            os.chown(folder, NOBODY, NOBODY)
        shown = as_ordinary_user(SUPERVISOR, str(folder))
        assert shown.split("\n")[:4] == [
            "read: denied",
            "mark: True",
            "listed: True True",
            f"killed: {-signal.SIGKILL}",
        ]
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
