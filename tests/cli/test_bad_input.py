"""Bad input: arguments, the exact line on stderr, the exit code. Stdout stays empty."""

import shlex
import subprocess
import sys
from functools import partial

import pytest

from longrein.cli import main
from longrein.frontends.argv import RESERVED, bundled_commands
from longrein.frontends.subcommands import NOT_YET
from longrein_context.events import (
    BudgetError,
    ModelUnknown,
    SessionBusy,
    SessionReadOnly,
    SessionUnknown,
    SettingsError,
    StoreDamaged,
    StoreFull,
    ToolError,
    UsageError,
)
from tests.tables import read_rows

from .fake_app import FakeApp

COMMANDS = bundled_commands()

UUID = "0192d0c8-0000-7000-8000-000000000001"

TABLE = [
    *read_rows("""
-p => the prompt is empty: write longrein -p "…" or pipe text in
-p '' => the prompt is empty: write longrein -p "…" or pipe text in
-p ' ⏎ ' => the prompt is empty: write longrein -p "…" or pipe text in
-p - => the prompt is empty: write longrein -p "…" or pipe text in
-p fix it => one prompt is expected, but 'it' follows 'fix': put quotes around the whole
sesions => no command 'sesions'; did you mean sessions? (if it is a prompt: longrein -- sesions)
trust now => longrein trust does not know what to do with 'now'
sessions -p => longrein sessions has no flag -p; see longrein sessions --help
--model a/b doctor => longrein doctor has no flag --model; see longrein doctor --help
export => which one? longrein export ID [FLAGS]; `longrein sessions` lists them
export a b => longrein export does not know what to do with 'b'
export a --format josnl =>
    --format: 'josnl' is not one of jsonl, html, markdown, atif, transcript; did you mean jsonl?
--verbos => longrein has no flag --verbos; did you mean --verbose?
--frobnicate => longrein has no flag --frobnicate; see longrein --help
'--\x1b[31m' => longrein has no flag --\\x1b[31m; see longrein --help
-z => longrein has no flag -z; see longrein --help
-pz x => longrein has no flag -z; see longrein --help
--print=yes => --print takes no value: leave out =yes
--model => --model needs a value: --model PROVIDER/MODEL
--model= => --model needs a value: --model PROVIDER/MODEL
--model '' => --model needs a value: --model PROVIDER/MODEL
--model --verbose => --model needs a value: --model PROVIDER/MODEL
--model a/b --model c/d => --model is given twice, as 'a/b' and 'c/d': give it once
-p x --output-format jsn =>
    --output-format: 'jsn' is not one of text, json, stream-json; did you mean json?
--output-format json => --output-format goes with -p: add -p
--input-format stream-json => --input-format goes with -p: add -p
-p --input-format stream-json =>
    --input-format stream-json goes with --output-format stream-json: add it
-p x --include-partial-messages =>
    --include-partial-messages goes with -p --output-format stream-json: add them
--permission-mode plan --dangerously-skip-permissions =>
    --dangerously-skip-permissions and --permission-mode plan: give one of them
--allowedTools 'Bash(git' =>
    --allowedTools: 'Bash(git' is no list of rules such as 'Edit,Bash(git status)'
--allowedTools , => --allowedTools: ',' is no list of rules such as 'Edit,Bash(git status)'
--disallowedTools 'a)(' =>
    --disallowedTools: 'a)(' is no list of rules such as 'Edit,Bash(git status)'
--max-turns 0 => --max-turns: '0' is not a whole number above 0
--max-turns 1.5 => --max-turns: '1.5' is not a whole number above 0
--max-turns ٣ => --max-turns: '٣' is not a whole number above 0
--max-budget-usd nan => --max-budget-usd: 'nan' is not an amount of US dollars such as 2.50
--max-budget-usd 1,50 => --max-budget-usd: '1,50' is not an amount of US dollars such as 2.50
--max-budget-usd=-1 => --max-budget-usd: '-1' is not an amount of US dollars such as 2.50
-c -r => -c and -r name two sessions: give one of them
-p -r => -r needs an ID with -p: `longrein sessions` lists them
--fork-session => --fork-session copies a session: say which with -c or -r ID
--session-id 12 => --session-id: '12' is not a UUID
--agent=x => --agent is not available yet
--mcp-config => --mcp-config needs a value: --mcp-config FILE|JSON
-p x --max-thinking-tokens 1k => --max-thinking-tokens: '1k' is not a number of tokens
--setting-sources usr => --setting-sources: 'usr' is not one of user, project, local
--resume-session-at x => --resume-session-at goes with -c or -r ID
--system-prompt '' --system-prompt-file f =>
    --system-prompt and --system-prompt-file: give one of them
--json-schema '{}' => --json-schema goes with -p: add -p
-p x --permission-prompt-tool stdio =>
    --permission-prompt-tool stdio goes with --input-format stream-json
"""),
    (
        "Signin",
        (
            "no command 'Signin': `longrein login` keeps a key; others come from variables such as "
            "ANTHROPIC_API_KEY (if it is a prompt: longrein -- Signin)"
        ),
    ),
    (
        "init --force",
        (
            "no command 'init': nothing needs to be set up; instructions for a project stand in "
            "its AGENTS.md (if it is a prompt: longrein -- init)"
        ),
    ),
    *(
        (
            word,
            f"no command {word!r}; did you mean {command}? (if it is a prompt: longrein -- {word})",
        )
        for word, command in (
            ("session", "sessions"),
            ("task", "tasks"),
            ("doctr", "doctor"),
            ("contxt", "context"),
        )
    ),
    (
        "--permission-mode acceptedits",
        (
            "--permission-mode: 'acceptedits' is not one of default, acceptEdits, plan, auto, "
            "dontAsk, bypassPermissions; did you mean acceptEdits?"
        ),
    ),
    (
        f"-c --session-id {UUID}",
        "--session-id names a new session: leave out -c and -r, or add --fork-session",
    ),
    (
        "--profile sead",
        (
            "--profile: 'sead' is not one of default, standard, small, seed, seed-later, seed-new, "
            "seed-framework; did you mean seed?"
        ),
    ),
    *((flag, f"{flag} is not available yet") for flag in sorted(NOT_YET)),
]


@pytest.mark.parametrize(("line", "says"), TABLE)
def test_wrong_arguments(
    line: str, says: str, no_stdin: None, capfd: pytest.CaptureFixture[str]
) -> None:
    app = FakeApp()
    assert main(shlex.split(line), lambda: app) == 2
    assert capfd.readouterr() == ("", f"longrein: {says}\n")
    assert app.calls == []


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_a_command_of_another_agent_is_never_sent_to_a_model(
    word: str, no_stdin: None, capfd: pytest.CaptureFixture[str]
) -> None:
    app = FakeApp()
    assert (
        main([word], lambda: app)
        == main([word.upper(), "--model", "a/b"], lambda: app)
        == main([word, "on", "--x"], lambda: app)
        == 2
    )
    out, err = capfd.readouterr()
    assert (out, len(err.splitlines()), app.calls) == ("", 3, [])
    assert err.splitlines()[0].startswith(f"longrein: no command '{word}': ")


def test_no_command_of_ours_is_reserved_and_the_most_common_ones_of_others_are() -> None:
    assert not RESERVED.keys() & COMMANDS.keys()
    common = "auth config exec help init login logout resume run serve update upgrade version web"
    assert set(common.split()) <= RESERVED.keys() | COMMANDS.keys()


@pytest.mark.parametrize("code", [1, 2])
def test_our_error_is_one_line_and_its_code(
    code: int, no_stdin: None, capfd: pytest.CaptureFixture[str]
) -> None:
    kinds = {
        1: (
            ModelUnknown,
            SessionUnknown,
            SessionBusy,
            SessionReadOnly,
            StoreDamaged,
            StoreFull,
            ToolError,
        )
    }
    for kind in kinds.get(code, (UsageError, SettingsError, BudgetError)):
        assert main(["-p", "x"], partial(FakeApp, error=kind("what"))) == code
        assert capfd.readouterr() == ("", "longrein: what\n")


def test_ctrl_c_outside_of_a_session_is_130(
    no_stdin: None, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["-p", "x"], lambda: FakeApp(error=KeyboardInterrupt())) == 130
    assert capfd.readouterr() == ("", "")


def test_a_bug_flies(no_stdin: None) -> None:
    with pytest.raises(ZeroDivisionError):
        main(["-p", "x"], lambda: FakeApp(error=ZeroDivisionError()))


def test_after_a_bug_the_last_line_says_that_nothing_is_lost() -> None:
    code = "from longrein import cli; cli.ask_for_a_report(); 1 / 0"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-2:] == [
        "ZeroDivisionError: division by zero",
        (
            "longrein: this is a bug in longrein, please report it; the session is saved, "
            "`longrein -c` goes on with it"
        ),
    ]
