"""Help pages: complete, and no wider than the screen."""

import pytest

from longrein.cli import main
from longrein.frontends.argv import bundled_commands
from longrein.frontends.help_page import EXIT_CODES, help_page
from longrein.frontends.subcommands import MAIN
from tests.tables import cases

from .fake_app import FakeApp

COMMANDS = bundled_commands()


def test_the_page_says_it_all() -> None:
    page = help_page(MAIN)
    missing = [flag.name for flag in MAIN.flags if flag.name not in page]
    missing += [name for name in COMMANDS if name not in page]
    missing += [what for _, what in EXIT_CODES if what not in page]
    assert missing == []


@pytest.mark.parametrize("width", [10, 60, 80, 120])
@pytest.mark.parametrize("command", list(COMMANDS))
def test_it_fits(command: str, width: int) -> None:
    page = help_page(COMMANDS[command], width)
    assert max(map(len, page.splitlines())) <= max(width, 66)


@cases("argv", ["--help"], ["-h"], ["-p", "x", "--help"], ["config", "set", "-h"])
def test_help_is_on_stdout(argv: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(argv, FakeApp) == 0
    out, err = capfd.readouterr()
    assert out.startswith("Usage: longrein [FLAGS] [PROMPT]\n\nA coding agent for the terminal.")
    assert err == ""


def test_a_command_has_its_own_page(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--help"], FakeApp) == 0
    assert capfd.readouterr().out == help_page(COMMANDS["export"])


def test_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"], FakeApp) == 0
    assert capfd.readouterr().out.startswith("longrein 0.")
