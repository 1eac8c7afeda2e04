"""Questions about hosts on a real terminal: asked by name, by commands and by tasks of an idle
session.
"""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import UNTIL_GO, needs_bubblewrap
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.test_real import home

pytestmark = needs_bubblewrap

CURL = "curl -sS --fail https://other.example/"


def reaching(tmp_path: Path, command: str, **more: Any) -> tuple[PseudoTerminal, Path]:
    """A session whose model runs one command, where each host is asked for; and its settings."""
    call = {"name": "Bash", "arguments": {"command": command, **more}}
    project = home(tmp_path, {"calls": [call]}, *[{"text": "So it is.\n"}] * 3)
    settings = tmp_path / "home/.config/longrein/config.toml"
    settings.write_text(settings.read_text() + '[sandbox]\nnetwork = ["ask"]\n')
    places = {"HOME": str(tmp_path / "home"), "LONGREIN_STATE_DIR": str(tmp_path / "state")}
    return PseudoTerminal("", project, columns=120, **places), settings


@pytest.mark.parametrize(
    ("key", "line", "stored"),
    [
        ("s", "allowed for this session  Network(other.example)", False),
        ("a", "allowed always  Network(other.example)", True),
    ],
)
def test_a_host_is_asked_for_by_name_and_always_stores_what_it_shows(
    tmp_path: Path, key: str, line: str, stored: bool
) -> None:
    tty, settings = reaching(tmp_path, CURL)
    with tty:
        tty.ask("go").until("? Network: a command in the sandbox wants to reach other.example")
        tty.until("│ reach other.example on port 443").until(f" {key} ").until(tty.keys_count)
        assert any("always: Network(other.example)" in row for row in tty.lines())
        tty.send(f"{key}\r").until("So it is.").until("idle")
        assert line in tty.everything()
    assert ('allow = ["Network(other.example)"]' in settings.read_text()) is stored


def test_a_no_fails_the_command_and_the_turn_goes_on(tmp_path: Path) -> None:
    tty, settings = reaching(tmp_path, CURL)
    with tty:
        tty.ask("go").until("reach other.example on port 443").until(tty.keys_count).send("n")
        tty.until("So it is.").until("idle").until("say something")
        assert any("the user said no" in row for row in tty.everything())
    assert "Network" not in settings.read_text()


def test_a_task_of_an_idle_session_asks_and_the_session_stays_idle(tmp_path: Path) -> None:
    tty, _ = reaching(tmp_path, f"{UNTIL_GO}; {CURL}", run_in_background=True)
    with tty:
        tty.ask("go").until("So it is.").until("idle")
        (tmp_path / "project/go").touch()
        tty.until("reach other.example on port 443").until(tty.keys_count).send("n")
        tty.until(lambda: not any("reach other.example" in row for row in tty.lines()))
        tty.until("the sandbox refused a host to a background task: other.example").until(
            "say something"
        )


def test_esc_withdraws_the_question_of_the_command_that_it_ends(tmp_path: Path) -> None:
    tty, _ = reaching(tmp_path, CURL)
    with tty:
        tty.ask("go").until("reach other.example on port 443").send("\x1b")
        tty.until(lambda: not any("reach other.example" in row for row in tty.lines())).until(
            "idle"
        )


def test_a_question_that_a_crash_left_open_is_not_asked_again(tmp_path: Path) -> None:
    tty, _ = reaching(tmp_path, CURL)
    with tty:
        tty.ask("go").until("reach other.example on port 443")
        os.kill(tty.pid, signal.SIGKILL)
        tty.wait_exit()
    places = {"HOME": str(tmp_path / "home"), "LONGREIN_STATE_DIR": str(tmp_path / "state")}
    with PseudoTerminal("", tmp_path / "project", columns=120, ARGS="-c", **places) as again:
        again.until("the last turn was cut off").until("say something").settle()
        assert not any("reach other.example" in row for row in again.lines())
