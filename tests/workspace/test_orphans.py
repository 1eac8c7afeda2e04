"""Orphans of a crash are found by their mark and ended at the next start; held sessions are not
touched.
"""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from longrein.workspace import end_orphans
from longrein.workspace.orphans import find_orphans
from longrein.workspace.supervisor import process_tree
from longrein.workspace.supervisor.process_tree import (
    LINUX,
    Process,
    owner_mark,
    owner_process,
    process,
    processes_with,
    send,
    variable,
)
from tests.timeouts import HANG_S, wait_until
from tests.work_counters import files_opened


class CrashedSession:
    """Starts processes as a crashed longrein leaves them: marked, with a parent that is gone."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.session = f"crashed-{tag}"

    def start_orphan(self, script: str = "exec sleep 999", **marks: str) -> int:
        """Start a process in a session of its own whose parent has exited; returns its pid."""
        environment = {
            "PATH": os.environ["PATH"],
            "LONGREIN_TEST_TAG": self.tag,
            "LONGREIN_SESSION": self.session,
        }
        words = ["sh", "-c", 'setsid sh -c "$1" >/dev/null 2>&1 & echo $!', "sh", script]
        done = subprocess.run(
            words, env=environment | marks, stdout=subprocess.PIPE, check=False, timeout=HANG_S
        )
        pid = int(done.stdout)
        if script.startswith("exec "):
            # in an exec a process has its new name before it has an environment to be found by
            wait_until(lambda: Path(f"/proc/{pid}/comm").read_text().strip() == script.split()[1])
            wait_until(lambda: Path(f"/proc/{pid}/environ").read_bytes() != b"")
        return pid

    def alive(self) -> list[int]:
        found = [
            pid
            for pid, env in processes_with("LONGREIN_TEST_TAG")
            if variable(env, "LONGREIN_TEST_TAG") == self.tag
        ]
        return [pid for pid in found if process(pid) is not None]

    def held(self, session: str) -> bool:
        """True for other sessions: a real longrein knows only those of one state folder."""
        return session != self.session


@pytest.fixture
def crashed(tag: str) -> CrashedSession:
    return CrashedSession(tag)


def wait_for(path: Path) -> None:
    wait_until(path.exists)


def gone(pid: int) -> bool:
    return process(pid) is None


def test_R055_what_a_crash_left_is_ended(crashed: CrashedSession) -> None:
    pids = [crashed.start_orphan(), crashed.start_orphan()]
    said = end_orphans(crashed.held)
    assert all(f"({pid})" in " ".join(said) for pid in pids)
    assert all(gone(pid) for pid in pids)
    assert end_orphans(crashed.held) == []


def test_R055_who_ignores_TERM_is_killed_and_children_without_a_mark_go_along(
    crashed: CrashedSession, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    crashed.start_orphan(
        f"trap '' TERM; env -u LONGREIN_SESSION sleep 999 & touch {ready}; while :; do sleep 9; "
        "done"
    )
    wait_for(ready)
    end_orphans(crashed.held)
    assert crashed.alive() == []


def test_a_session_that_is_held_keeps_its_processes(crashed: CrashedSession) -> None:
    pid = crashed.start_orphan()
    asked: list[str] = []
    assert end_orphans(lambda session: not asked.append(session)) == []  # type: ignore[func-returns-value]
    assert crashed.session in asked
    assert not gone(pid)


def test_a_process_whose_longrein_lives_is_spared_whatever_the_lock_says(
    crashed: CrashedSession,
) -> None:
    pid = crashed.start_orphan(LONGREIN_COMMAND=f"{owner_mark()}.1.1/")
    assert [one for one in find_orphans(crashed.held) if one.process.pid == pid] == []


@pytest.mark.parametrize(
    "command", ["/{dead}.5.1.1/", "/1.1.1.1/", "/x.y/", "", "//", "/{alive}//{dead}.7.1.1/"]
)
def test_a_mark_whose_longrein_is_dead_protects_nobody(
    crashed: CrashedSession, command: str
) -> None:
    died = subprocess.Popen(["true"])
    died.wait()
    mark = command.format(dead=died.pid, alive=owner_mark().strip("/") + ".1.1")
    pid = crashed.start_orphan(LONGREIN_COMMAND=mark)
    assert pid in [one.process.pid for one in find_orphans(crashed.held)]


def test_a_longrein_started_inside_a_lost_session_spares_itself_and_who_started_it(
    crashed: CrashedSession, tmp_path: Path
) -> None:
    went = tmp_path / "went"
    program = (
        "from longrein.workspace import end_orphans\nsaid = end_orphans(lambda session: session "
        f"!= {crashed.session!r})\nopen({str(went)!r}, 'w').write(repr(said))\n"
    )
    other = crashed.start_orphan()
    crashed.start_orphan(f'{sys.executable} -c "$PROGRAM"; sleep 999; true', PROGRAM=program)
    wait_until(lambda: went.exists() and bool(went.read_text()))
    assert f"sleep ({other})" in went.read_text()
    assert len(crashed.alive()) >= 1, "its own shell lives on"


def test_a_number_that_now_belongs_to_another_is_not_signalled(crashed: CrashedSession) -> None:
    pid = crashed.start_orphan()
    real = process(pid)
    earlier = Process(pid, real.parent, real.group, real.session, real.start - 1)
    assert send(earlier, signal.SIGKILL) is False
    assert not gone(pid)
    assert send(real, signal.SIGKILL) is True


def test_the_look_opens_at_most_two_small_files_of_each_process(crashed: CrashedSession) -> None:
    crashed.start_orphan()
    with files_opened() as opened:
        find_orphans(lambda _: True)
    looked = Counter(found[1] for path, _ in opened if (found := re.match(r"/proc/(\d+)/", path)))
    assert max(looked.values()) <= 2
    assert len(opened) - looked.total() <= 20


@pytest.mark.skipif(not LINUX, reason="the flags stand in /proc")
@pytest.mark.parametrize(
    ("state", "flags", "lives"),
    [("S", 0x400000, True), ("S", 0x400004, False), ("R", 0x4, False), ("Z", 0x400000, False)],
)
def test_an_owner_that_is_ending_is_dead(
    monkeypatch: pytest.MonkeyPatch, state: str, flags: int, lives: bool
) -> None:
    """A killed process may still close its files, on a busy machine for a while."""
    mark = owner_mark()
    name, _, rest = Path("/proc/self/stat").read_text().rpartition(")")
    fields = [state, *rest.split()[1:]]
    fields[6] = str(flags)
    stat = f"{name}) {' '.join(fields)}".encode()
    monkeypatch.setattr(process_tree, "_slurp", lambda _path, _own: stat)
    assert (owner_process(mark) is not None) is lives


@pytest.mark.parametrize("number", ["", "x", "-1", "\u00b2", "\u0661", "1" * 16, "1" * 5_000])
def test_a_mark_that_a_command_wrote_names_nobody(number: str) -> None:
    """Each start reads the marks of what is left: one of 5,000 digits ended it."""
    own = process(os.getpid())
    assert owner_process(f"/{own.pid}.{own.start}") is not None
    assert owner_process(f"/{number}.{own.start}") is None
    assert owner_process(f"/{own.pid}.{number}") is None
