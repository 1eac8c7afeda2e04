"""The plain terminal: pipes, dumb terminals, no UTF-8 (R095)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.support.forked import ForkedProcess, can_fork
from tests.terminal.held_clock import set_clock
from tests.terminal.pseudo_terminal import ROOT, PseudoTerminal
from tests.timeouts import HANG_S


def start(name: str, folder: Path, *arguments: str, **environ: str) -> "subprocess.Popen[bytes]":
    env = {
        "TERM": "xterm",
        "LANG": "C.UTF-8",
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
    } | environ
    module, words = "tests.terminal.scripted_terminal", [name, str(folder), *arguments]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    how: dict[str, Any] = {**streams, "env": env, "cwd": folder}
    if can_fork(words, env):
        return ForkedProcess(module, [module, *words], **how)
    return subprocess.Popen([sys.executable, "-m", module, *words], **how)


def play(name: str, folder: Path, said: str, **environ: str) -> str:
    """What stands on stdout when `said` was piped in; nothing may stand on stderr."""
    out, err = start(name, folder, **environ).communicate(said.encode(), timeout=HANG_S)
    assert err == b""
    return out.decode()


def told(folder: Path) -> list[Any]:
    return [json.loads(row) for row in (folder / "told.jsonl").read_bytes().splitlines()]


def test_a_pipe_gets_lines_and_no_escapes(tmp_path: Path) -> None:
    out = play("tools", tmp_path, "go\n")
    assert "\x1b" not in out
    assert "● Read ok  src/longrein/app.py\n● Bash failed 12 s  python -m pytest -q …\n" in out
    assert "retrying in 1 s, attempt 2 of 10: Overloaded\n" in out
    assert "All **done**.\n" in out
    assert "› go\n" in out


def test_each_line_is_said_and_all_is_done_before_it_ends(tmp_path: Path) -> None:
    out = play("echo", tmp_path, "one\n\nthree\nfive and six\n")
    assert [row for row in out.split("\n") if row.startswith("You said")] == [
        "You said 3 characters in 1 lines.",
        "You said 5 characters in 1 lines.",
        "You said 12 characters in 1 lines.",
    ]


def test_nothing_piped_in_is_no_error(tmp_path: Path) -> None:
    assert play("echo", tmp_path, "").startswith(
        "longrein 0.1.0 · /work · /help\nmock/small, without a key\n"
    )


@pytest.mark.parametrize(
    "environ", [{"LC_ALL": "C", "LANG": "C"}, {"PYTHONIOENCODING": "ascii"}, {"TERM": "dumb"}]
)
def test_R095_no_unicode_error_in_any_locale(tmp_path: Path, environ: dict[str, str]) -> None:
    out = play("markdown", tmp_path, "日本\n", **environ)
    assert "The end." in out
    if "PYTHONIOENCODING" in environ:
        assert "> \\u65e5\\u672c\n" in out
        assert out.isascii()
    else:
        assert "› 日本\n" in out
        assert "| 読む | reads a file" in out


@pytest.mark.parametrize(
    "environ",
    [
        {"TERM": "dumb"},
        {"TERM": "dumb", "LANG": "C", "LC_ALL": "C"},
        {"PYTHONIOENCODING": "ascii"},
        {"ARGS": "plain"},
    ],
)
def test_R095_a_dumb_terminal_is_never_redrawn(tmp_path: Path, environ: dict[str, str]) -> None:
    with PseudoTerminal("tools", tmp_path, **environ) as tty:
        tty.until(lambda: ">" in tty.lines()).send("go\n")
        tty.until("All **done**.").until(lambda: tty.lines().count(">") == 1).send("\x04").exits(0)
        assert b"\x1b" not in tty.raw.replace(rb"\x1b", b"")


def test_a_question_with_nobody_to_ask_is_a_no(tmp_path: Path) -> None:
    out = play("command", tmp_path, "go\n")
    assert "? Bash: no rule allows this command\n| rm -rf build \\u202e\n" in out
    assert "no: stdin has ended, so nobody can approve this\n" in out
    assert "● Bash denied" in out
    assert [word["verdict"] for word in told(tmp_path) if word["type"] == "Answer"] == ["deny"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("n", {"verdict": "deny"}),
        ("s", {"verdict": "allow", "scope": "session", "rule": "Edit(/src/big.py)"}),
        ("Y", {"verdict": "allow"}),
        ("yes", {"verdict": "allow"}),
        ("1", {"verdict": "allow"}),
        ("OK", {"verdict": "allow"}),
        ("no", {"verdict": "deny"}),
        ("f do it otherwise", {"verdict": "deny", "message": "do it otherwise"}),
        ("do it otherwise\nyes", {"verdict": "allow"}),  # no answer is asked again
    ],
)
def test_a_question_is_answered_by_a_line(
    tmp_path: Path, line: str, answer: dict[str, str]
) -> None:
    with PseudoTerminal("approve", tmp_path, ARGS="plain") as tty:
        tty.until(lambda: ">" in tty.lines()).send("go\n")
        tty.until("s  yes, for this session: Edit(/src/big.py)").until("answer>").send(line + "\n")
        tty.until("You said").until(lambda: tty.lines()[-1] == ">" or ">" in tty.lines()).send(
            "\x04"
        ).exits(0)
        [given] = [word for word in tty.told() if word["type"] == "Answer"]
        plainly = {"scope": "once", "rule": "", "message": ""}
        assert {name: given[name] for name in ("verdict", *plainly)} == plainly | answer


@pytest.mark.parametrize("line", ["yes", "ja", "是", "no", "4x\nyes", ""])
def test_each_line_answers_one_question_of_three(tmp_path: Path, line: str) -> None:
    with PseudoTerminal("three", tmp_path, ARGS="plain") as tty:
        tty.until(lambda: ">" in tty.lines()).send("go\n").until("› y  yes, once").until("answer>")
        for n in range(1, 4):
            tty.until(lambda n=n: tty.text().count("? a") == n).send(f"{line}\n")
        tty.until(lambda: tty.text().count("● Bash") or ">" in tty.lines()).send("\x04").exits(0)
        told = [(word["type"], word.get("scope")) for word in tty.told()]
        assert told == [("Said", None), *[("Answer", "once")] * 3]


@pytest.mark.parametrize("line", ["yes", "s", "also make sure", ""])
def test_a_line_that_was_begun_before_a_question_stood_answers_nothing(
    tmp_path: Path, line: str
) -> None:
    with PseudoTerminal("command", tmp_path, ARGS="plain", HELD_CLOCK="1", QUIET_S="0.7") as tty:
        tty.until(lambda: ">" in tty.lines()).send("go\n").until("answer>").send(f"{line}\n")
        tty.until("typed before the question stood here, so it answers nothing")
        set_clock(tmp_path / "clock", 10)
        tty.send("hm\n").until(lambda: tty.text().count("y  yes, once") == 3)
        tty.send("nein\n").until("You said deny").until(lambda: ">" in tty.lines()).send("\x04")
        tty.exits(0)
        told = [(word["type"], word.get("verdict")) for word in tty.told()]
        assert told == [("Said", None), ("Answer", "deny")]


def test_ctrl_c_interrupts_then_leaves(tmp_path: Path) -> None:
    with PseudoTerminal("hang", tmp_path, ARGS="plain") as tty:
        tty.until(lambda: ">" in tty.lines()).send("go\n").until(
            lambda: tty.lines().count("› go") == 1
        )
        tty.send("\x03").until("● Bash interrupted").until(
            "interrupted  say what to do instead"
        ).send("\x03")
        tty.exits(130)


def test_a_signal_ends_it(tmp_path: Path) -> None:
    with start("hang", tmp_path) as stage:
        assert stage.stdin
        assert stage.stdout
        stage.stdin.write(b"go\n")
        stage.stdin.flush()
        while b"go" not in stage.stdout.readline():
            pass
        stage.send_signal(signal.SIGTERM)
        assert stage.wait(HANG_S) == 143


def test_a_reader_that_leaves_is_no_traceback(tmp_path: Path) -> None:
    stage = start("flood", tmp_path)
    assert stage.stdin
    assert stage.stdout
    assert stage.stderr
    stage.stdout.close()
    stage.stdin.write(b"go\n")
    stage.stdin.close()
    assert stage.wait(HANG_S) == 1
    assert stage.stderr.read() == b""
    stage.stderr.close()


def test_a_list_is_shown_as_the_commands_to_type(tmp_path: Path) -> None:
    out = play("echo", tmp_path, "/model\n/mode\n/resume\n")
    price = "200k window, $3 in and $15 out per million tokens"
    assert f"\n/model mock/small  {price}  (now)\n/model mock/large  {price}\nfor this" in out
    assert "\n/mode acceptEdits  as default, and changes files inside the folders" in out
    assert "\n/mode plan  changes nothing; ends with a plan\n" in out
    assert "\nfor this session; permission_mode in the settings makes it last\n" in out
    assert "/resume 11111111-aaaa  mend the parser  1 day ago · 12 entries\n" in out


def test_a_question_mark_alone_shows_the_keys(tmp_path: Path) -> None:
    out = play("echo", tmp_path, "?\n? why\n")
    assert "alone on the line: show these keys" in out
    assert out.count("You said") == 1
    assert "You said 5 characters" in out


def test_a_session_is_left_for_another(tmp_path: Path) -> None:
    play("echo", tmp_path, "/resume 2222\n")
    assert (tmp_path / "outcome").read_text() == "switch 2222 0"
