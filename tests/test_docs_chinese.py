"""The page in Chinese says what holds: its commands, keys and settings exist, and both pages
link to each other.
"""

import re
import tomllib
from pathlib import Path

from longrein.config import load_settings
from longrein.frontends.help_page import help_page
from longrein.frontends.subcommands import MAIN
from longrein.frontends.terminal.approvals import Question, choices
from longrein.frontends.terminal.command_table import BY_NAME
from longrein.frontends.terminal.keymap import key_rows
from longrein_context.events import PermissionAsked

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_pages_link_to_each_other() -> None:
    assert "/blob/main/README.zh.md)" in ENGLISH
    assert "/blob/main/README.md)" in PAGE
    assert re.findall(r"\]\((?!https://)[^)]+\)", PAGE) == []


def test_commands_and_flags_of_the_page_exist() -> None:
    page = help_page(MAIN, 100)
    for command in re.findall(r"\$ longrein ([a-z]+)", PAGE):
        assert f"  {command} " in page, command
    for flag in re.findall(r"\$ longrein (-[a-z])", PAGE):
        assert flag in page, flag
    slashes = re.findall(r"`/([a-z]+)`", PAGE)
    assert slashes
    assert [name for name in slashes if name not in BY_NAME] == []
    keys = ", ".join(name for name, _, _ in key_rows({}))
    assert [
        key
        for key in re.findall(r"^\| (Ctrl-\w|Enter|Esc) \|", PAGE, re.MULTILINE)
        if key not in keys
    ] == []


def test_the_answers_to_a_question_are_those_of_the_page() -> None:
    question = Question(
        PermissionAsked("c1", "Bash", "make it", "no rule", "Bash(make it)"), {"command": "make it"}
    )
    offered = [row.value for row in choices(question)]
    named = re.findall(r"`([a-z])` ", PAGE)
    assert named
    assert [key for key in named if key not in offered] == []


def test_the_settings_and_install_lines_of_the_page_hold(tmp_path: Path) -> None:
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    tomllib.loads(text)
    file = tmp_path / ".config/longrein/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    settings = load_settings(
        cwd=str(tmp_path), home=str(tmp_path), environ={}, flags={}, trusted=False
    )
    assert (settings.terminal.language, settings.notes) == ("zh", ())
    lines = [line for line in PAGE.splitlines() if "pip install" in line]
    assert lines
    assert all(line.split("  #")[0] in ENGLISH for line in lines)
