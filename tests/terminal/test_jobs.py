"""Ctrl-Z and `fg`, as a shell with job control sees them."""

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import UNTIL_GO
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.test_real import home

TICKS = {"command": f"echo tick 1; {UNTIL_GO}; echo tick 2"}


def shell(project: Path) -> PseudoTerminal:
    """A shell that has started longrein."""
    root = project.parent
    line = f"{shlex.quote(sys.executable)} -m longrein --dangerously-skip-permissions"
    (root / "rc").write_text("PS1='shell> '\n")
    tty = PseudoTerminal(
        "bash",
        project,
        HOME=str(root / "home"),
        LONGREIN_STATE_DIR=str(root / "state"),
        ARGS=f"--rcfile {root}/rc -i",
    )
    tty.until("shell>").send(f"{line}\r")
    return tty.until("say something")


def pid_of(project: Path) -> int:
    """The longrein that the shell has started."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"-m\0longrein\0" in words and os.readlink(f"/proc/{pid}/cwd") == str(project):
                return int(pid)
        except OSError:
            continue
    raise AssertionError("it does not run")


@pytest.mark.parametrize("how", ["key", "SIGTSTP", "SIGSTOP"])
def test_it_stops_gives_the_terminal_back_and_comes_again(tmp_path: Path, how: str) -> None:
    project = home(
        tmp_path, {"calls": [{"name": "Bash", "arguments": TICKS}]}, {"text": "All is ticked.\n"}
    )
    with shell(project) as tty:
        tty.ask("go").until("tick 1")
        if how == "key":
            tty.send("\x1a")
        else:
            os.kill(pid_of(project), getattr(signal, how))
        tty.until("Stopped").until(lambda: tty.lines()[tty.screen.cursor.y] == "shell>").send(
            "clear; fg\r"
        )
        (project / "go").touch()
        tty.until("● Bash ok").until("All is ticked.").until("idle").until("say something").send(
            "typed"
        )
        tty.until("› typed")
        assert sum("typed" in row for row in tty.lines()) == 1, "the terminal does not echo"
        tty.send("\x15\x04").until("is kept").until("shell>").send("exit $?\r").exits(0)


def test_without_a_shell_it_does_not_stop(tmp_path: Path) -> None:
    with PseudoTerminal(
        "", home(tmp_path), HOME=str(tmp_path / "home"), LONGREIN_STATE_DIR=str(tmp_path / "state")
    ) as tty:
        tty.until("say something").send("\x1a")
        tty.until("not started from a shell that could bring it back").leave()
