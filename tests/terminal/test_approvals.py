"""Permission questions on a real terminal: the whole content is shown, and only intended keys
answer.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.terminal.held_clock import set_clock
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.test_approval_sizes import page_through


def answers(told: list[Any]) -> list[Any]:
    return [word for word in told if word["type"] == "Answer"]


def test_a_300_line_diff_scrolls_and_prints_all(tmp_path: Path) -> None:
    with PseudoTerminal("approve", tmp_path) as tty:
        tty.ask("go").until("lines 1-").until(tty.keys_count)
        rows = tty.lines()
        assert "? Edit: it changes src/big.py" in rows
        assert "│ file_path: src/big.py" in rows
        assert "│ - line 0 of the old text" in rows
        assert any("of 302, +150 -150; PgDn" in row for row in rows)
        assert any(
            row.startswith("›y yes, once    s yes, for this session: Edit(/src/big.py)")
            for row in rows
        )
        assert "waiting · mock/small" in tty.lines()[-1] or any(
            "waiting · mock/small" in row for row in tty.lines()
        )
        tty.send("\x1b[6~")
        tty.until("│ - line 15 of the old text").until(
            lambda: "│ - line 0 of the old text" not in tty.lines()
        )
        for _ in range(30):
            tty.send("\x1b[6~")
        tty.until(r"│ + line 149 of the new text \u202e").until("-302 of 302").send("e")
        whole = [f"- line {n} of the old text" for n in range(150)]
        tty.until(lambda: [row for row in tty.everything() if row in whole] == whole).until(
            "yes, once"
        )
        tty.send("n").until("You said deny").until("● Edit denied  src/big.py")
        assert [(a["verdict"], a.get("message", "")) for a in answers(tty.leave())] == [
            ("deny", "")
        ]


@pytest.mark.parametrize(
    ("key", "scope", "line"),
    [
        ("s", "session", "allowed for this session"),
        ("a", "always", "allowed always  Edit(/src/big.py)"),
    ],
)
def test_each_key_stores_what_it_shows(tmp_path: Path, key: str, scope: str, line: str) -> None:
    with PseudoTerminal("approve", tmp_path) as tty:
        tty.ask("go").until("yes, once").until(tty.keys_count).send(f"{key}\r")
        tty.until(tty.pager_counts).send(key).until("not shown yet: ")
        page_through(tty)  # 302 lines
        tty.send(key).until(tty.keys_count).send("\r").until("You said").until("idle")
        assert any(row.startswith(line) for row in tty.everything())
        [answer] = answers(tty.leave())
        assert (answer["verdict"], answer["scope"], answer["rule"]) == (
            "allow",
            scope,
            "Edit(/src/big.py)",
        )


def test_a_no_with_a_reason(tmp_path: Path) -> None:
    with PseudoTerminal("command", tmp_path) as tty:
        tty.ask("go").until(r"│ rm -rf build \u202e").until(tty.keys_count).send("f")
        tty.until("why not › what to do instead").send("yes but not like this\r")
        tty.until("no: yes but not like this").until("You said deny: yes but not like this").until(
            "idle"
        )
        [answer] = answers(tty.leave())
        assert (answer["verdict"], answer["message"]) == ("deny", "yes but not like this")


def test_esc_leaves_the_reason_and_the_question_stands(tmp_path: Path) -> None:
    with PseudoTerminal("command", tmp_path) as tty:
        tty.ask("go").until("yes, once").until(tty.keys_count).send("f").until("why not ›").send(
            "hm"
        )
        tty.until("hm").send("\x1b").until(tty.keys_count).send("n").until("You said deny:").until(
            "idle"
        )
        assert len(answers(tty.leave())) == 1


def test_a_draft_keeps_the_keys_until_esc(tmp_path: Path) -> None:
    with PseudoTerminal("command", tmp_path, HELD_CLOCK="1", QUIET_S="0.7") as tty:
        tty.until("say something").send("go\ryyyyaaa").until("yes, once").until("› yyyyaaa")
        tty.until("draft in the input: Esc to answer")
        set_clock(tmp_path / "clock", 10)  # a pause in a sentence gives no key to the question
        tty.send("s").until("› yyyyaaas")
        assert not tty.keys_count()
        tty.send("\x1b").until(lambda: not any("draft in" in row for row in tty.lines()))
        assert not tty.keys_count(), "Esc itself is a key"
        set_clock(tmp_path / "clock", 20)
        tty.until(tty.keys_count)
        tty.send("n").until("You said deny").until("› yyyyaaas").send("\x15")
        tty.until("say something")  # Ctrl-U: the line is empty again
        assert [a["verdict"] for a in answers(tty.leave())] == ["deny"]


def test_a_paste_answers_nothing(tmp_path: Path) -> None:
    with PseudoTerminal("command", tmp_path) as tty:
        tty.ask("go").until("yes, once").until(tty.keys_count)
        tty.send("\x1b[200~yes\ny\n\x1b[201~y").until("draft in the input: Esc to answer")
        assert not tty.keys_count()
        tty.send("\x1b").until(tty.keys_count).send("n").until("You said deny")


def test_a_key_right_after_a_question_is_drawn_is_text(tmp_path: Path) -> None:
    with PseudoTerminal("command", tmp_path, HELD_CLOCK="1", QUIET_S="0.7") as tty:
        tty.ask("go").until("yes, once").send("n")  # it has hardly been seen
        tty.until("› n").send("\x15").until(lambda: "›" in tty.lines())
        assert not tty.keys_count()
        set_clock(tmp_path / "clock", 10)
        tty.until(tty.keys_count).send("n").until("You said deny")


def test_a_line_that_is_begun_at_a_question_is_its_answer_or_asked_back(tmp_path: Path) -> None:
    with PseudoTerminal("command", tmp_path) as tty:
        tty.ask("go").until(tty.keys_count).send("hold on").until("› hold on")
        tty.until("draft in the input: Esc to answer").send("\r")
        tty.until("Enter again sends this; the question takes y yes, s session, a always, n no")
        tty.send("\r").until("after this turn: hold on").until("Esc to answer")
        tty.send("\x1b").until(tty.keys_count).send("ja").until("› ja").send("\r")
        tty.until("○ Bash running")
        assert [a["verdict"] for a in answers(tty.leave())] == ["allow"]


@pytest.mark.parametrize(
    ("keys", "verdict"),
    [
        ("\r", "allow"),
        ("1", "allow"),
        ("\x1b[B\x1b[B\x1b[B\r", "deny"),
        ("4", "deny"),
        ("yes\r", "allow"),
        ("nein\r", "deny"),
        ("是\r", "allow"),
        ("否\r", "deny"),
    ],
)
def test_a_question_is_a_list_like_any_other(tmp_path: Path, keys: str, verdict: str) -> None:
    with PseudoTerminal("command", tmp_path) as tty:
        tty.ask("go").until(tty.keys_count).until("› Enter: yes, once").send(keys)
        tty.until("○ Bash running" if verdict == "allow" else "You said deny")
        told = tty.leave()
    assert [(a["verdict"], a["scope"]) for a in answers(told)] == [(verdict, "once")]
    assert len(told) == 2, "the prompt and the answer"


@pytest.mark.parametrize("mark", ["s", "2", "\x1b[B", "\x1b[C"])
def test_an_answer_that_lasts_needs_enter(tmp_path: Path, mark: str) -> None:
    with PseudoTerminal("command", tmp_path) as tty:
        tty.ask("go").until(tty.keys_count).send(mark)
        tty.until("Enter: yes, for this session: Bash(rm -rf build)").until(tty.keys_count)
        tty.send("\r").until("allowed for this session  Bash(rm -rf build)")
        tty.until("/permissions remove Bash(rm -rf build) takes it back")
        assert [a["scope"] for a in answers(tty.leave())] == ["session"]


@pytest.mark.parametrize("key", ["v", "\x0f"])
def test_an_answer_that_lasts_needs_enter_from_its_page_too(tmp_path: Path, key: str) -> None:
    with PseudoTerminal("command", tmp_path) as tty:
        tty.ask("go").until(tty.keys_count).send(key).until(tty.pager_counts).send("s")
        tty.until("Enter: yes, for this session: Bash(rm -rf build)").until(tty.keys_count)
        tty.send("n").until("You said deny")
        assert [a["verdict"] for a in answers(tty.leave())] == ["deny"]
