"""S074: on a terminal what a model or a provider wrote is shown and never obeyed; pipes and
files get the bytes.
"""

import json
import os
import pty
import subprocess
import threading
import tty
from typing import Any

import pytest

from longrein.steps.human_text import escape
from tests.timeouts import HANG_S

from .harness import CliHarness, fails, says

EVIL = "a\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\r\x7f\u202e\u200b\U000e0041z"
SHOWN = "a\\u001b]52;c;aGk=\\u0007\\u001b[2J\\u009b31m\\u000d\\u007f\\u202e\\u200b\\udb40\\udc41z"


def on_terminal(cli: CliHarness, *words: str) -> str:
    """What `longrein WORDS` writes when stdout and stderr are a terminal that changes nothing."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    pieces: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(master, 65536):
                pieces.append(piece)
        except OSError:  # the last writer has closed it
            return

    command = [*cli.command, *words]
    process = subprocess.Popen(
        command, cwd=cli.project, env=cli.env, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
    )
    os.close(slave)
    reading = threading.Thread(target=read)
    reading.start()
    process.wait(HANG_S)
    reading.join(HANG_S)
    os.close(master)
    return b"".join(pieces).decode()


def test_the_answer(cli: CliHarness) -> None:
    cli.plays(says(EVIL))
    assert on_terminal(cli, "-p", "x") == f"{SHOWN}\n"
    assert cli.run("-p", "x").out == f"{EVIL}\n".encode()


@pytest.mark.parametrize("flags", [("json",), ("stream-json", "--include-partial-messages")])
def test_lines_for_programs_have_the_same_values(flags: tuple[str, ...], cli: CliHarness) -> None:
    cli.plays(says(EVIL))
    shown = on_terminal(cli, "-p", "x", "--output-format", *flags)
    assert escape(shown) == shown
    ran: Any = cli.run("-p", "x", "--output-format", *flags)
    assert (
        json.loads(shown.splitlines()[-1])["result"]
        == json.loads(ran.text.splitlines()[-1])["result"]
        == EVIL
    )
    assert "\u202e" in ran.text, "a pipe gets what it always got"


@pytest.mark.parametrize(
    ("status", "flags"), [(401, ()), (401, ("--output-format", "json")), (500, ("--verbose",))]
)
def test_an_error_of_the_provider(status: int, flags: tuple[str, ...], cli: CliHarness) -> None:
    cli.plays(fails(status, EVIL, times=99))
    shown = on_terminal(cli, "-p", "x", *flags)
    assert escape(shown) == shown
    assert "52;c;aGk=" in shown


@pytest.mark.parametrize(
    "words", [("export", "SESSION"), ("sessions",), ("sessions", "--json"), ("search", "aGk")]
)
def test_what_is_stored(words: tuple[str, ...], cli: CliHarness) -> None:
    cli.plays(says(EVIL))
    assert cli.run("-p", EVIL).code == 0
    shown = on_terminal(cli, *(cli.session if word == "SESSION" else word for word in words))
    assert escape(shown) == shown
    assert "52;c;aGk=" in shown
