"""`longrein help`, the man page, shell completion, words that look like commands: one table,
real shells.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from longrein.commands.completion import bash_script, fish_script, zsh_script
from longrein.frontends.argv import bundled_commands
from longrein.frontends.help_page import help_page, man_page
from longrein.frontends.subcommands import MAIN
from tests.e2e.harness import CliHarness

COMMANDS = bundled_commands()

ROOT = Path(__file__).parent.parent.parent
NAMES = [name for name in COMMANDS if name]


def test_help_shows_the_same_pages_as_the_flag(cli: CliHarness) -> None:
    assert cli.run("help").text == cli.run("--help").text == help_page(MAIN)
    for name in NAMES:
        assert cli.run("help", name).text == help_page(COMMANDS[name]), name


def test_help_needs_no_settings(cli: CliHarness) -> None:
    cli.config.write_text("nonsense = [")
    assert cli.run("help").code == cli.run("completion", "bash").code == 0


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("sesions", "did you mean sessions?"),
        ("init", "nothing needs to be set up"),
        ("xyzzy", "`longrein help` lists"),
    ],
)
def test_help_of_no_command(cli: CliHarness, word: str, said: str) -> None:
    done = cli.run("help", word)
    assert (done.code, said in done.err) == (2, True)


@pytest.mark.parametrize(
    "word",
    [
        "sesions",
        "sesion",
        "exprot",
        "serach",
        "doctr",
        "loginn",
        "logut",
        "contxt",
        "demoo",
        "complete",
        "hlep",
        "init",
    ],
)
def test_a_lone_word_that_looks_like_a_command_is_not_sent_and_can_be(
    cli: CliHarness, word: str
) -> None:
    cli.plays({"text": "Hello."})
    done = cli.run(word)
    assert done.code == 2
    assert f"no command {word!r}" in done.err
    assert f"(if it is a prompt: longrein -- {word})" in done.err
    assert cli.sessions == []
    assert cli.run("-p", "--", word).text == "Hello.\n"


def test_a_near_miss_with_flags_is_named_before_its_flags(cli: CliHarness) -> None:
    done = cli.run("sesions", "--json")
    assert (done.code, "did you mean sessions?" in done.err) == (2, True)


# --- Man page -------------------------------------------------------------------------------------


def test_the_man_page_of_the_docs_is_the_present_one(cli: CliHarness) -> None:
    assert (ROOT / "packages/longrein/longrein.1").read_text() == man_page(), "make docs"
    assert cli.run("help", "--man").text == man_page()


def test_the_man_page_has_every_command_and_flag() -> None:
    page = man_page().replace("\\-", "-")
    for command in COMMANDS.values():
        assert f"\\fB{command.name}\\fR" in page or command is MAIN
        assert all(f"\\fB{name}\\fR" in page for flag in command.flags for name in flag.names)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_reads_the_man_page_without_a_warning() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww"],
        input=man_page().encode(),
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""


# --- Completion -----------------------------------------------------------------------------------


def bash_offers(*words: str) -> set[str]:
    """Return what bash offers for the last of `words`."""
    script = f"""{bash_script()}
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_longrein
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_offers_every_command_and_flag() -> None:
    for name, command in COMMANDS.items():
        offered = bash_offers("longrein", *filter(None, [name]), "")
        assert {spelling for flag in command.flags for spelling in flag.names} <= offered
    assert set(NAMES) <= bash_offers("longrein", "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ses",), {"sessions"}),
        (("--output-format", ""), {"text", "json", "stream-json"}),
        (("--permission-mode", "pl"), {"plan"}),
        (("export", "--format", "h"), {"html"}),
        (("--model", "a/b", "tas"), {"tasks"}),
        (("completion", ""), {"bash", "zsh", "fish", "-h", "--help"}),
        (("login", "anth"), {"anthropic"}),
        (("help", "doc"), {"doctor"}),
    ],
)
def test_bash_offers(words: tuple[str, ...], offered: set[str]) -> None:
    assert bash_offers("longrein", *words) == offered


def test_bash_offers_folders_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "file").touch()
    assert bash_offers("longrein", "--add-dir", f"{tmp_path}/") == {f"{tmp_path}/inner"}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_takes_its_script() -> None:
    script = f"autoload -Uz compinit; compinit -D -u\n{zsh_script()}\nprint -r -- $_comps[longrein]"
    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("_longrein\n", "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("longrein ses", "sessions"),
        ("longrein --output-format str", "stream-json"),
        ("longrein export --form", "--format"),
    ],
)
def test_fish_offers(tmp_path: Path, line: str, first: str) -> None:
    script = f"{fish_script()}\ncomplete -C '{line}'"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        ["fish", "-N", "-c", script], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.split("\t")[0] == first


def test_every_shell_has_every_spelling() -> None:
    zsh, fish = zsh_script(), fish_script()
    for command in COMMANDS.values():
        for flag in command.flags:
            for name in flag.names:
                assert f"'{name}:" in zsh
                assert (f" -l {name[2:]} " if name.startswith("--") else f" -s {name[1:]} ") in fish


def test_an_unknown_shell_is_named(cli: CliHarness) -> None:
    done = cli.run("completion", "tcsh")
    assert (done.code, "one of bash, zsh, fish" in done.err) == (2, True)
    assert cli.run("completion").err == "longrein: which one? longrein completion bash|zsh|fish\n"
