"""Texts of the terminal in other languages: the catalogue, and a session in Chinese on a
pseudo-terminal.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from longrein.frontends.localization import (
    PLACEHOLDER,
    language_of,
    read_texts,
    translate,
    use_language,
)
from longrein.frontends.terminal.command_table import COMMANDS
from longrein.frontends.terminal.event_lines import STATUS, WAKES
from longrein.frontends.terminal.keymap import key_rows
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.test_real import ASKED, home

SOURCE = Path(__file__).parents[2] / "src/longrein"
FILES = [
    *SOURCE.glob("frontends/**/*.py"),
    SOURCE / "app/user_requests.py",
    SOURCE / "permissions/rule_evaluation.py",
    SOURCE / "commands/interactive.py",
    SOURCE / "config/model_choice.py",
    SOURCE / "models/http_model.py",
    SOURCE / "extensions/mcp/session_part.py",
    SOURCE / "steps/call_results.py",
    SOURCE / "steps/turn_work.py",
]
TEXTS = read_texts("zh")
LETTERS_MIN = 2
"""Letters that a text of the code must have of its own, so that it counts as the source of a
key.
"""


@pytest.fixture
def chinese() -> Iterator[None]:
    use_language("zh")
    yield
    use_language("en")


@cache
def sources() -> tuple[frozenset[str], tuple["re.Pattern[str]", ...]]:
    """The texts in the code: constants, and patterns of f-strings."""
    constants, patterns = set[str](), set[str]()
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                constants.add(node.value.strip())
            elif isinstance(node, ast.JoinedStr):
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else ""
                    for part in node.values
                ]
                if sum(map(str.isalpha, "".join(parts))) >= LETTERS_MIN:
                    parts[0], parts[-1] = parts[0].lstrip(), parts[-1].rstrip()
                    patterns.add("".join(re.escape(part) or ".*?" for part in parts))
    return frozenset(constants), tuple(re.compile(one, re.DOTALL) for one in patterns)


def is_used(key: str) -> bool:
    constants, patterns = sources()
    return key in constants or any(pattern.fullmatch(key) for pattern in patterns)


def test_every_text_of_the_catalogue_is_used_by_the_code() -> None:
    assert [key for key in TEXTS if not is_used(key)] == [], (
        "remove these from texts_zh.toml, or mend their wording"
    )
    assert not is_used("a text that no code has")


def test_every_translation_has_the_placeholders_of_its_text() -> None:
    wrong = {
        key: shown
        for key, shown in TEXTS.items()
        if sorted(PLACEHOLDER.findall(key)) != sorted(PLACEHOLDER.findall(shown))
        or key != key.strip()
        or not shown
    }
    assert not wrong


def test_commands_keys_and_states_are_all_translated() -> None:
    needed = [
        *(command.summary for command in COMMANDS),
        *(what for _, what, _ in key_rows({})),
        *(word for word, _ in STATUS.values()),
        *WAKES.values(),
    ]
    assert [text for text in needed if text not in TEXTS] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("idle", "空闲"),
        ("  Enter goes on with it", "  按 Enter 继续"),
        ("12 queued", "12 条排队"),
        ("yes, for this session: Bash(no, and say why)", "是，本次会话内：Bash(no, and say why)"),
        ("`a: {part}` is covered by no rule: b", "`a: {part}` 不在任何规则之内：b"),
        ("there is no command /a; did you mean /b?", "没有命令 /a；您是指 /b 吗？"),
        ("nobody has translated this", "nobody has translated this"),
        ("", ""),
        ("  ", "  "),
    ],
)
def test_a_text_is_found_with_what_stands_in_its_places(
    chinese: None, text: str, shown: str
) -> None:
    assert translate(text) == shown


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "C", "LC_MESSAGES": "zh_CN"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({}, "en"),
    ],
)
def test_the_language_is_that_of_the_environment(environ: dict[str, str], language: str) -> None:
    assert language_of(environ) == language


@pytest.mark.parametrize("by", ["setting", "LANG"])
def test_a_session_in_chinese(tmp_path: Path, by: str) -> None:
    project = home(tmp_path, ASKED, {"text": "waiting\n"})
    config = tmp_path / "home/.config/longrein/config.toml"
    if by == "setting":
        config.write_text(f'{config.read_text()}\n[terminal]\nlanguage = "zh"\n')
    environ = {"HOME": str(tmp_path / "home"), "LONGREIN_STATE_DIR": str(tmp_path / "state")}
    if by == "LANG":
        environ |= {"LANG": "zh_CN.UTF-8", "PYTHONUTF8": "1"}

    def shows(text: str) -> bool:
        return any(text in row.replace(" ", "") for row in tty.everything())

    with PseudoTerminal("", project, LONGREIN_SANDBOX_MODE="off", **environ) as tty:
        tty.until(lambda: shows("说点什么")).until(lambda: shows("空闲")).send("go\r")
        tty.until(lambda: shows("y是，仅此一次")).until(lambda: shows("Bash(makeit)")).until(
            lambda: shows("等待")
        )
        tty.until(
            lambda: any(
                tty.screen.buffer[y][1].bold for y in range(24) if tty.lines()[y].startswith(" y ")
            )
        )
        tty.send("n").until(lambda: shows("已拒绝")).until(lambda: shows("空闲"))
        assert any(row.strip() == "waiting" for row in tty.everything()), (
            "what the model says is not translated"
        )
        tty.send("/help\r").until(lambda: shows("更换模型")).send("/nope\r").until(
            lambda: shows("没有命令/nope")
        )
        tty.send("\x04").exits(0)
