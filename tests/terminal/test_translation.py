"""Texts of the terminal in other languages: the catalogue, and a session in Chinese on a
pseudo-terminal.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lab.source_tree import AGENT, ENGINE
from longrein.app.run_context import read_run_context
from longrein.frontends.localization import (
    PLACEHOLDER,
    language_of,
    read_texts,
    translate,
    use_language,
)
from longrein.frontends.reports import doctor
from longrein.frontends.terminal.command_table import COMMANDS, HELP_GROUPS
from longrein.frontends.terminal.command_types import Command
from longrein.frontends.terminal.event_lines import STATUS, WAKES, plain
from longrein.frontends.terminal.keymap import key_rows
from longrein.frontends.terminal.markdown_blocks import Block
from longrein.options import Options
from longrein.permissions import Call
from longrein.steps.human_text import counted
from tests.permissions.calls import bash, read, verdict, write
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.scripted_session import ScriptedSession
from tests.terminal.scripted_terminal import echo
from tests.terminal.test_commands import ARGUMENTS, RecordedConversation, opened
from tests.terminal.test_real import ASKED, home

SOURCE = AGENT
SHOWN = [
    *(path for path in SOURCE.glob("frontends/terminal/*.py") if path.stem != "prompt_commands"),
    *(SOURCE / f"frontends/reports/{name}.py" for name in ("context", "cost", "doctor")),
    SOURCE / "frontends/goals_command.py",
    SOURCE / "frontends/provider_keys.py",
    SOURCE / "app/user_requests.py",
    *SOURCE.glob("config/*_key*.py"),
    SOURCE / "config/key_editing.py",
    *(SOURCE / f"permissions/{name}.py" for name in ("rule_evaluation", "network_hosts")),
    *(SOURCE / f"permissions/{name}.py" for name in ("program_table", "bash_parser")),
    SOURCE / "agent/permission_check.py",
    SOURCE / "agent/network_questions.py",
]
"""Files whose texts reach the screen of the terminal: the terminal, the reports that it shows, and
the reasons of permission questions.
"""
FILES = [
    *SHOWN,
    *SOURCE.glob("frontends/**/*.py"),
    *SOURCE.glob("permissions/*.py"),
    *SOURCE.glob("agent/*.py"),
    *SOURCE.glob("app/*.py"),
    *ENGINE.rglob("*.py"),
    SOURCE / "config/model_choice.py",
    SOURCE / "config/settings.py",
    SOURCE / "models/failures.py",
    SOURCE / "workspace/sandbox/rung.py",
    SOURCE / "workspace/sandbox/landlock.py",
    SOURCE / "choices.py",
    SOURCE / "steps/human_text.py",
    SOURCE / "steps/steps.py",
    *SOURCE.glob("tools/recall*.py"),
    SOURCE / "tools/logged_versions.py",
    SOURCE / "tools/ask_user.py",
    SOURCE / "commands/interactive.py",
    SOURCE / "config/model_choice.py",
    SOURCE / "models/http_model.py",
    SOURCE / "extensions/mcp/session_part.py",
    *SOURCE.glob("extensions/schedules/*.py"),
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
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("counted"):
                noun = ast.unparse(node.args[1]).strip("'")
                patterns |= {f".*? {counted(count, noun)[2:]}" for count in (1, 2)}
    return frozenset(constants), tuple(re.compile(one, re.DOTALL) for one in patterns)


COMPOSED = {
    "`{part}`: {why}",
    "{why} (and {count} more part)",
    "{why} (and {count} more parts)",
    "{why} (the other part, `{part}`, is allowed)",
    "more than {what}",
    "There is no entry {handle}; the newest is {last}",
    ", and with {count} subagent at work ({names}), and with what still waits to be said",
    ", and with {count} subagents at work ({names}), and with what still waits to be said",
}
"""Texts that the code puts together; `test_reasons_of_questions` and the walk through the commands
make them.
"""


def is_used(key: str) -> bool:
    constants, patterns = sources()
    return (
        key in constants or key in COMPOSED or any(pattern.fullmatch(key) for pattern in patterns)
    )


@pytest.mark.scan
def test_every_text_of_the_catalogue_is_used_by_the_code() -> None:
    assert [key for key in TEXTS if not is_used(key)] == [], (
        "remove these from texts_zh.toml, or mend their wording"
    )
    assert not is_used("a text that no code has")


CHINESE = re.compile("[\u4e00-\u9fff]")
WORDS_MIN = 2
"""Words that a text has; a single word may be a name, and the walk through all commands finds
those.
"""
NOT_SHOWN = re.compile(
    r"[\[\\!-].*"  # arguments of commands, patterns, options
    r"|(?:\w+ )*(?:bold|dim|default|noreverse|underline|nostrike|ansi\w+)(?: \w+)*"  # styles
    r"|\w+\[.*\](?:\W+None)?|\w+ \| None|(?:Callable|Coroutine)\[.*"  # types
    r"|bg:.*|\.|/agents tell .*|EVERY PROMPT|Esc, Ctrl-C|Esc Esc|/goals \[.*"
    r"|(?:only-|all-)files"
)
"""Constants of two words that are no text for people."""
OTHERS = {
    *("System prompt", "System tools", "MCP tools", "Memory files", "Autocompact buffer"),
    *("Free space", "git stash", "git worktree", "git reflog", "git branch", "git tag"),
    "git config",
    "no summary: ".strip(),  # the beginning that is left out
    "a line on stdin is longer than 10 MB",  # an error of the plain terminal's pipe
    (
        "not run: the answer was cut by the output limit inside this call; send it again in "
        "smaller pieces"
    ),  # for the model
    "a hook has changed the input to what the tool cannot take:",  # for the model
    "the session that started this command has ended",  # for the command
    (
        "write a host (example.com), all names below one (*.example.com), an address or a range "
        "(10.0.0.0/8)"
    ),  # a wrong setting, told before the terminal starts
    *("not the name of a host", "an address with a zone", "the port is above 65535"),
    "it is an address of a page: write the host alone",
    *("it only reads, or rules cover all its parts", "the sandbox confines it"),  # reasons of a yes
    *("mode bypassPermissions", "a hook allows it", "the user allowed it"),
    *("sandbox.network names it", "the rule  allows it", "mode : inside the roots"),
    *HELP_GROUPS.values(),  # names of commands
}
"""Texts that no screen of the terminal shows in a session."""


def texts_of(file: Path) -> Iterator[tuple[str, str]]:
    """Yield (sample, constant parts) of each text of a file: constants and f-strings that are no
    docstrings, no tables and no prompts for the model.
    """
    tree = ast.parse(file.read_text())
    skipped = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr | ast.JoinedStr):
            skipped |= {id(child) for child in ast.iter_child_nodes(node)}
        if isinstance(node, ast.Call) and ast.unparse(node.func) in TABLES:
            skipped |= {id(child) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.value
        if isinstance(node, ast.JoinedStr):
            parts = [
                str(part.value) if isinstance(part, ast.Constant) else "" for part in node.values
            ]
            yield "".join(part or "7" for part in parts), "\0".join(filter(None, parts))


TABLES = ("word_set", "frozenset", "re.compile", "re.search", "re.sub", "_Options", "_matching")
"""Calls whose arguments are no texts."""


def is_text(text: str) -> bool:
    """Whether a constant is a text for people: two words, and no table or prompt."""
    bare = text.replace("\0", "").strip()
    words = re.findall(r"[A-Za-z]{2,}", re.sub(r"`[^`]*`", "", bare))
    is_long = "\n" in bare or bare in OTHERS or NOT_SHOWN.fullmatch(bare) is not None
    return len(words) >= WORDS_MIN and " " in bare and not is_long


def is_translated(sample: str, parts: str) -> bool:
    """Whether a text has a translation, alone or as a part of a longer text."""
    if CHINESE.search(translate(sample)):
        return True
    pieces = [piece for piece in parts.split("\0") if piece.strip()]
    return any(_holds(key, pieces) for key in TEXTS)


def _holds(key: str, pieces: list[str]) -> bool:
    at = 0
    for piece in pieces:
        found = key.find(piece.strip(), at)
        if found < 0:
            return False
        at = found + len(piece.strip())
    return True


@pytest.mark.scan
def test_no_text_of_the_terminal_is_left_in_english(chinese: None) -> None:
    texts = [
        (file.name, sample, parts)
        for file in dict.fromkeys(SHOWN)
        for sample, parts in texts_of(file)
        if is_text(parts)
    ]
    english = [(name, sample) for name, sample, parts in texts if not is_translated(sample, parts)]
    print(f"texts of the terminal that appear in English: {len(english)} of {len(texts)}")
    assert english == []


CALLS = [
    *(write("src/a.py"), write("/etc/passwd"), write("a", "/etc/x"), write(".git/hooks/x")),
    *(read("/etc/passwd"), Call("mcp__a__b", {}, "read"), Call("WebFetch", {"url": "x"}, "read")),
    *map(
        bash,
        (
            *(
                "make",
                "make && npm test",
                "ls && make",
                "make; npm t; cargo b",
                "sudo ls",
                "cat $X",
            ),
            *("rm -rf $X", "sed -n $X f", "awk $X f", "find . -exec x {} +", "git -c a=b log"),
            *("git commit -m x", "git frobnicate", "PATH=. ls", "./run", "for x in a; do x; done"),
            *(
                "echo x > f",
                "x=(1)",
                "tar xf a",
                "date -s 1",
                "jq $X",
                "ps e",
                "$X",
                "sort -k $X f",
            ),
            *(
                "cat <<E\nx",
                "( (",
                "alias a=b",
                "read PATH",
                "printf -v A b",
                "strings @f",
                "set -k",
            ),
            *("test $X -eq 1", "git config a b", "git stash", "cd $X; ls", "exec 3<>/dev/tcp/a/1"),
        ),
    ),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.arguments)[:40])
@pytest.mark.parametrize("mode", ["default", "plan", "dontAsk"])
def test_reasons_of_questions_are_translated(chinese: None, call: Call, mode: str) -> None:
    for rules in ({}, {"ask": call.tool}, {"deny": call.tool}, {"deny": "Read(.env)"}):
        reason = verdict(call, mode=mode, **rules)
        if reason.kind != "allow":
            assert english_words(translate(reason.reason)) == [], translate(reason.reason)


def english_words(shown: str) -> list[str]:
    """Two and more English words in a row that are no name, command, path or setting."""
    names = (
        r"`[^`]*`",
        r"\"[^\"]*\"",
        r"\[[^]]*\]",
        r"\w+\([^)]*\)",  # rules
        r"/[a-z-]+(?: [a-z]+)*",  # commands
        r"\b(?:git|tar) \w+",  # programs
        r"（[a-z ]+）",  # parts of Bash's grammar
        r"\w+ at (?=http)",  # local servers
        r"\S*[/.:_=]\S*",  # paths and settings
        r"\b[A-Z]\w*",
    )
    bare = re.sub("|".join(names), "§", shown)
    return re.findall(r"[a-z']{2,}(?: [a-z']{2,})+", bare)


NAMES_SHOWN = ("mend the parser", "be kind", "def main", "a parser", "a title", "full §")
"""What users, models and files say in the scripted session."""


@pytest.mark.anyio
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
async def test_every_command_answers_in_chinese(chinese: None, command: Command) -> None:
    for argument in ARGUMENTS[command.name]:
        for row in await shown_rows(f"/{command.name} {argument}"):
            known = row
            for name in NAMES_SHOWN:
                known = known.replace(name, "§")
            assert english_words(known) == [], row


async def shown_rows(text: str) -> list[str]:
    """The rows that a command shows on the screen: lines, list, page."""
    conversation = RecordedConversation(opened(ScriptedSession(echo)))
    await conversation.run(text)
    rows = [plain(piece) for piece in conversation.shown if not isinstance(piece, Block)]
    if conversation.chooser is not None:
        rows += map(plain, conversation.chooser.draw(110, 40))
    return rows


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
                tty.screen.buffer[y][1].bold for y in range(24) if tty.lines()[y].startswith("›y ")
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


def test_no_two_texts_of_the_catalogue_are_one_pattern() -> None:
    """Of two that differ in the names of their places only, the second is never used."""
    same: dict[str, list[str]] = {}
    for key in TEXTS:
        same.setdefault(re.sub(r"\{\w+\}", "{}", key), []).append(key)
    assert [keys for keys in same.values() if len(keys) > 1] == []


def test_what_is_missing_on_a_machine_is_told_in_chinese(
    chinese: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"PATH": str(tmp_path / "no programs"), "HOME": str(tmp_path)}
    monkeypatch.setenv("PATH", environ["PATH"])
    run_context = read_run_context(Options(), environ, folder=str(tmp_path))
    told = [
        text for _, what, text in doctor.findings_of(run_context) if what in ("bash", "git", "rg")
    ]
    assert len(told) == 3
    for text in told:
        assert english_words(translate(text)) == [], text
