"""Ctrl-C, Esc and signals in every state; the terminal settings are restored (R090)."""

import os
import re
from pathlib import Path

import pytest

from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.timeouts import HANG_S

STATES = [
    ("slow", "word0", "400 40"),
    ("hang", "○ Bash running", "go"),
    ("approve", "yes, once", "go"),
]


@pytest.mark.parametrize("key", ["\x03", "\x1b"], ids=["ctrl-c", "esc"])
@pytest.mark.parametrize(("name", "seen", "said"), STATES)
def test_R090_a_key_interrupts_and_the_next_one_leaves(
    tmp_path: Path, name: str, seen: str, said: str, key: str
) -> None:
    with PseudoTerminal(name, tmp_path) as tty:
        tty.ask(said).until(seen).send(key)
        tty.until("interrupted  say what to do instead").until("idle · mock/small").until(
            "say something"
        )
        assert sum("interrupted  say" in row for row in tty.everything()) == 1
        tty.send("\x03" if key == "\x03" else "\x03\x03").exits(0)
        assert tty.outcome == "exit  0"


def test_what_came_before_the_interrupt_stays(tmp_path: Path) -> None:
    with PseudoTerminal("slow", tmp_path) as tty:
        tty.ask("400 40").until("word035").send("\x03").until("interrupted  say").settle()
        words = re.findall(r"word\d{3}", "\n".join(tty.everything()))
        assert words == [f"word{n:03}" for n in range(len(words))], "each once, in order"
        assert len(words) > 35
        assert sum("● Bash interrupted" in row for row in tty.everything()) == 0


def test_idle_ctrl_c_clears_the_line_then_leaves(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("half a line").until("half a line").send("\x03")
        tty.until("say something").until("Ctrl-C again leaves; the session is kept").send(
            "\x03"
        ).exits(0)


def test_a_second_interrupt_is_no_wish_to_leave(tmp_path: Path) -> None:
    with PseudoTerminal("hang", tmp_path) as tty:
        for n in (1, 2):
            tty.ask("go").until("○ Bash running").send("\x03")
            tty.until(
                lambda n=n: sum("● Bash interrupted" in row for row in tty.lines()) == n
            ).until("idle")
        tty.until("Ctrl-C again leaves").send("x\x7f")
        tty.until(lambda: not any("Ctrl-C again" in row for row in tty.lines()))
        tty.send("\x03")  # the warning has gone, so it only warns
        tty.until("Ctrl-C again leaves")


def test_a_second_ctrl_c_after_its_time_leaves_nothing(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path, AGAIN_S="0.01") as tty:
        tty.until("say something")
        for text in ("one", "two"):
            tty.send(text).until(f"› {text}").send("\x03").until(
                lambda: (
                    any("say something" in row for row in tty.lines())
                    and not any("Ctrl-C again" in row for row in tty.lines())
                )
            )
        tty.ask("hi").until("You said").leave()


def test_ctrl_d_leaves_and_says_how_to_go_on(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.ask("hi").until("You said").leave()
        assert "session 0c5c0c0e is kept; `longrein -c` goes on with it" in tty.lines()
        assert not any("say something" in row or "idle" in row for row in tty.lines())


def test_a_terminal_that_goes_away_ends_it(tmp_path: Path) -> None:
    tty = PseudoTerminal("echo", tmp_path)
    tty.ask("hi").until("You said")
    os.close(tty.fd)
    assert tty.process.wait(HANG_S) == 129
