"""The screens that a user meets, at the sizes of windows that users have: nothing needed is
missing or overflows.
"""

import re
from pathlib import Path

import pytest

from tests.terminal.pseudo_terminal import PseudoTerminal

SIZES = [(24, 8), (40, 12), (80, 24), (200, 60)]
at_every_size = pytest.mark.parametrize(("columns", "rows"), SIZES)


FOOTER = re.compile(r"(idle|waiting|running|thinking)\b")


def cells(row: str) -> int:
    """Columns of a row; the emulator puts an empty cell after a wide character, which `display`
    leaves out.
    """
    return sum(2 if "\u2e80" <= char <= "\uffef" else 1 for char in row)


def check(tty: PseudoTerminal, *needed: str) -> list[str]:
    """Check what holds on every screen: rows fit, one footer and it is last, the input above it,
    `needed` is there.

    What a test waited for may have come with the first part of a frame.
    """
    tty.until(lambda: is_whole(tty.lines(), needed))
    rows = tty.lines()
    assert all(cells(row) <= tty.screen.columns for row in rows)
    shown = [row for row in rows if row]
    assert [row for row in shown if FOOTER.match(row)] == shown[-1:], "one footer, in the last row"
    assert sum(row.startswith("› ") or row == "›" for row in shown[-12:]) >= 1, "the input"
    return shown


def is_whole(rows: list[str], needed: tuple[str, ...]) -> bool:
    """Whether the last row is the footer and `needed` is there, also where it is wrapped."""
    shown = [row for row in rows if row]
    text = "".join(shown).replace(" ", "")
    has_all = all(part.replace(" ", "") in text for part in needed)
    return has_all and bool(shown) and FOOTER.match(shown[-1]) is not None


@at_every_size
def test_the_start(tmp_path: Path, columns: int, rows: int) -> None:
    with PseudoTerminal("echo", tmp_path, columns, rows) as tty:
        shown = check(tty.until("say something"), "longrein 0.1.0", "idle")
        assert not tty.screen.cursor.hidden
        assert tty.screen.cursor.x == 2, "the cursor stands behind the prompt sign"
        assert len(shown) <= min(7, rows - 1)
        tty.leave()


@at_every_size
def test_a_streaming_answer(tmp_path: Path, columns: int, rows: int) -> None:
    with PseudoTerminal("slow", tmp_path, columns, rows) as tty:
        tty.until("say something").send("60 30\r").until(lambda: "word020" in tty.text())
        tty.until("running")
        assert any(re.search(r"word\d", row) for row in tty.lines()), (
            "the answer is seen while it comes"
        )
        (tmp_path / "go30").touch()
        tty.until(lambda: "The end." in tty.text()).until("idle")
        check(tty)
        words = re.findall(r"word\d{3}", tty.text())
        assert words == [f"word{n:03}" for n in range(60)], "each word once and in order"


@at_every_size
def test_a_question(tmp_path: Path, columns: int, rows: int) -> None:
    with PseudoTerminal("command", tmp_path, columns, rows) as tty:
        tty.until("say something").send("go\r").until("waiting").until(" n ")
        check(tty, "n no", *(("? Bash", "y yes", "rm -rf build") if columns > 30 else ()))
        tty.until(
            lambda: any(
                tty.screen.buffer[y][1].bold for y, row in enumerate(tty.lines()) if " n no" in row
            )
        )
        tty.send("n")
        tty.until(lambda: "You said deny" in tty.text()).until("idle")
        check(tty)


@at_every_size
def test_a_list(tmp_path: Path, columns: int, rows: int) -> None:
    with PseudoTerminal("echo", tmp_path, columns, rows) as tty:
        tty.until("say something").send("/mode\r").until("which mode?").until("› default")
        check(tty, "which mode?", "1 of 6")
        for mode in ("acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"):
            tty.send("\x1b[B").until(f"› {mode}"[: columns - 1])
        check(tty, "6 of 6")
        tty.send("\x1b[A\r").until(lambda: "mode: dontAsk" in tty.text())
        check(tty, "dontAsk")


@at_every_size
def test_subagents_and_tasks(tmp_path: Path, columns: int, rows: int) -> None:
    with PseudoTerminal("company", tmp_path, columns, rows) as tty:
        tty.until("say something").send("wait\r").until("a10 explore running").until(
            "a11 general running"
        )
        check(
            tty, "a10 explore", "a11 general", "b1", *(("Esc interrupts",) if columns > 30 else ())
        )
        tty.send("\x03").until("idle")


def test_500_resizes_lose_no_word_and_leave_no_stale_row(tmp_path: Path) -> None:
    """The window changes its size while an answer streams; afterwards the screen is as if it had
    never changed. `lab.terminal` measures as many resizes.
    """
    sizes = [(40 + 7 * n % 90, 10 + 5 * n % 30) for n in range(500)]
    with PseudoTerminal("slow", tmp_path, 130, 40) as tty:
        tty.until("say something").send("150 140\r").until("word005")
        for columns, rows in sizes:
            tty.size(columns, rows)
            tty.read(0)
        tty.resize(130, 40)
        (tmp_path / "go140").touch()
        seen = set(re.findall(rb"word\d{3}", tty.raw))
        tty.until(lambda: "The end." in tty.text()).until("idle").settle()
        seen |= set(re.findall(rb"word\d{3}", tty.raw))
        assert {f"word{n:03}".encode() for n in range(150)} <= seen, "every word was written"
        rows_of = {"say something": 1, "idle · mock/small": 1, "Esc interrupts": 0}
        tty.send("\x0c").until(
            lambda: all(
                sum(words in row for row in tty.lines()) == many for words, many in rows_of.items()
            )
        )
        before = len(tty.raw)
        tty.send("5\r").until(lambda: b"The end." in tty.raw[before:]).until("idle")
