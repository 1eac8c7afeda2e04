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
            row.startswith(" y yes, once    s yes, for this session: Edit(/src/big.py)")
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
        tty.ask("go").until("yes, once").until(tty.keys_count).send(key)
        tty.until(tty.pager_counts).send(key).until("not shown yet: ")
        page_through(tty)  # 302 lines
        tty.send(key).until("You said").until("idle")
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


def test_what_is_typed_while_a_question_comes_up_answers_nothing(tmp_path: Path) -> None:
    with PseudoTerminal("command", tmp_path, HELD_CLOCK="1") as tty:
        tty.until("say something").send("go\ryyyyaaa").until("yes, once").until("› yyyyaaa")
        assert not tty.keys_count()
        set_clock(tmp_path / "clock", 10)
        tty.until(tty.keys_count)  # once nobody has typed for a while
        tty.send("n").until("You said deny").until("› yyyyaaa").send(
            "\x15"
        )  # Ctrl-U: the line is empty again
        tty.until("say something")
        assert [a["verdict"] for a in answers(tty.leave())] == ["deny"]


def test_a_paste_answers_nothing(tmp_path: Path) -> None:
    with PseudoTerminal("command", tmp_path) as tty:
        tty.ask("go").until("yes, once").until(tty.keys_count).send(
            "\x1b[200~yes\ny\n\x1b[201~"
        ).settle()
        assert tty.keys_count()
        tty.send("n").until("You said deny")


def test_a_line_that_is_begun_as_a_question_comes_up_answers_nothing(tmp_path: Path) -> None:
    with PseudoTerminal("command", tmp_path, HELD_CLOCK="1") as tty:
        tty.ask("go").until("yes, once").send("n")  # it has hardly been seen
        tty.until("› n").send("\x15").until(lambda: "›" in tty.lines())
        assert not tty.keys_count()
        set_clock(tmp_path / "clock", 10)
        tty.until(tty.keys_count).send("n").until("You said deny")


def test_a_line_that_is_begun_below_a_question_answers_nothing(tmp_path: Path) -> None:
    with PseudoTerminal("command", tmp_path, HELD_CLOCK="1") as tty:
        tty.ask("go").until("yes, once")
        set_clock(tmp_path / "clock", 10)
        tty.until(tty.keys_count)
        for char in "hold on":
            tty.send(char)
        tty.until("› hold on").until("│ rm -rf build").until(lambda: not tty.keys_count())
        tty.send("\x15").until(lambda: "›" in tty.lines())
        set_clock(tmp_path / "clock", 20)
        tty.until(tty.keys_count).send("y").until("○ Bash running")
        assert [a["verdict"] for a in answers(tty.leave())] == ["allow"]
