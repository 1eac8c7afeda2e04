"""The row that takes keys while longrein is imported: keys are kept, the terminal is restored on
every way out.
"""

import os
import signal
import termios
import time
from pathlib import Path

import pytest

from longrein.frontends.first_frame import HINT, keys_of, opens_screen
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.test_real import home, open_it


def start(project: Path, arguments: str = "") -> PseudoTerminal:
    """Start longrein with all its imports, which are what the row bridges."""
    return open_it(project, arguments, forks=False)


def start_held(project: Path) -> PseudoTerminal:
    """Start longrein, and wait for the row; it stands until `let_go`."""
    return open_it(project, forks=False, module="tests.terminal.held_start").until(HINT)


def let_go(project: Path) -> None:
    (project / "go").touch()


@pytest.mark.parametrize(
    ("words", "opens"),
    [
        ("", True),
        ("-c", True),
        ("-r abc", True),
        ("--model a/b -c", True),
        ("-p hello", False),
        ("--print=1", False),
        ("--plain", False),
        ("sessions", False),
        ("--state-dir x sessions", False),
        ("--help", False),
    ],
)
def test_only_a_start_of_the_screen_draws_the_row(words: str, opens: bool) -> None:
    assert opens_screen(words.split(), {"TERM": "xterm"}) is opens
    assert not opens_screen(words.split(), {"TERM": "dumb"})


def test_a_prompt_of_several_words_opens_the_screen() -> None:
    assert opens_screen(["mend the tests"], {"TERM": "xterm"})


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("a\r", "a\r"),
        ("\r\ra\r\r\rb", "a\rb"),
        ("a\nb", "a\nb"),  # Ctrl-J
        ("\x1b[200~a\r\rb\x1b[201~\r\r", "\x1b[200~a\r\rb\x1b[201~\r"),
    ],
)
def test_enters_on_an_empty_input_are_left_out(typed: str, keys: str) -> None:
    assert keys_of(typed, as_text=False) == keys
    assert "\r" not in keys_of(typed, as_text=True)


@pytest.mark.parametrize("delay_s", [0.0, 0.005, 0.06, 0.12, 0.2])
def test_text_and_enter_typed_before_the_screen_stands_are_sent(
    tmp_path: Path, delay_s: float
) -> None:
    with start(home(tmp_path, {"text": "Hello there.\n"}, {"text": "Hello again.\n"})) as tty:
        time.sleep(delay_s)
        tty.send("first ünï\r").until("› first ünï").until("Hello there.").until("idle")
        tty.ask("second").until("Hello again.").until("idle").send("\x04").exits(0)


def test_the_row_shows_what_was_typed_and_gives_way_to_the_screen(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "Hello there.\n"})
    with start_held(project) as tty:
        assert not termios.tcgetattr(tty.fd)[3] & (termios.ECHO | termios.ICANON), (
            "keys are taken one by one"
        )
        tty.send("not yet\x1b[D\x1b[D")
        let_go(project)
        tty.until("idle").until("› not yet")
        assert HINT not in tty.text()
        assert tty.text().count("not yet") == 1
        tty.send("X\r").until("› not yXet").until("Hello there.").until("idle").send("\x04").exits(
            0
        )


def test_a_paste_in_the_first_row_is_one_text(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "Hello there.\n"})
    with start_held(project) as tty:
        tty.send("\x1b[200~one\r\rtwo\x1b[201~")
        let_go(project)
        tty.until("idle").until("› one")
        tty.until("  two").send("\x03").send("\x04").exits(0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_start_restores_the_terminal(
    tmp_path: Path, number: signal.Signals
) -> None:
    project = home(tmp_path, {"text": "Hello there.\n"})
    with start_held(project) as tty:
        os.kill(tty.pid, number)
        assert tty.wait_exit() in (-number, 128 + number)
        assert termios.tcgetattr(tty.fd) == tty.before
        assert tty.raw.rstrip().endswith(b"\x1b[?2004l") or b"\x1b[?2004l" in tty.raw[-200:]


def test_ctrl_c_at_the_start_ends_it(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "Hello there.\n"})
    with start_held(project) as tty:
        tty.send("\x03")
        assert tty.wait_exit() in (-signal.SIGINT, 130)
        assert termios.tcgetattr(tty.fd) == tty.before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [("--model nobody/x", "Unknown provider"), ("--modle", "has no flag"), ("-r none", "none")],
)
def test_an_error_at_the_start_stands_where_the_row_stood(
    tmp_path: Path, arguments: str, said: str
) -> None:
    with start(home(tmp_path, {"text": "Hello there.\n"}), arguments) as tty:
        assert tty.wait_exit() != 0
        assert termios.tcgetattr(tty.fd) == tty.before
        assert said in tty.text()
        assert "›" not in tty.text()


def test_a_question_of_trust_is_asked_without_the_row(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "Hello there.\n"})
    (project / "AGENTS.md").write_text("Be kind.\n")
    with start_held(project) as tty:
        tty.send("y\r")
        let_go(project)
        tty.until("Trust this folder?")
        assert "›" not in tty.text()
        tty.send("n\r").until("say something").until("idle").send("\x04").exits(0)
