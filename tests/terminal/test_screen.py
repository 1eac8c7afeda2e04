"""The screen on a pseudo-terminal with an emulator."""

import re
from pathlib import Path

import pytest

from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.scripted_terminal import MARKDOWN
from tests.terminal.test_real import home, open_it

SIZES = [(80, 24), (200, 60), (40, 20)]


def bare(text: str) -> str:
    """Without blanks, frames and markdown marks: what must be on the screen at any width."""
    return re.sub(r"[\s│╭╮╰╯├┤┬┴┼─•*#`|:\-]|\u200d", "", text)


def count(rows: list[str], part: str) -> int:
    return sum(part in row for row in rows)


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_streamed_cjk_and_tables_are_committed_exactly_once(
    tmp_path: Path, columns: int, rows: int
) -> None:
    with PseudoTerminal("markdown", tmp_path, columns, rows) as tty:
        tty.ask("go").until("The end.").until("idle").settle()
        shown = tty.everything()
        for once in [
            "見出し",
            "first item",
            "nested 中文",
            "│ 名前",
            "│ 読む",
            "def 足す(a",
            "足し算",
            "The end.",
            "╭─",
            "╰─",
        ]:
            assert count(shown, once) == 1, once
        said = re.sub(r"```\w*|\|[-:|]+\|", "", MARKDOWN)
        words = [word for word in re.split(r"[\s|]+", said) if bare(word) and word.isascii()]
        everything = "".join(map(bare, shown))
        assert [word for word in words if bare(word) not in everything] == []
        assert all(len(row) <= columns for row in shown)
        assert (
            "wrappingcountscellsorcharacters全角文字全角文字全角文字全角文字全角文字。"
            in everything
        )
        assert count(shown, "say something") == 1
        [frame] = [row for row in shown if row.startswith("╭")]
        lines = [row for row in shown if row.startswith("│")]
        assert {tty_cells(row) for row in lines} == {len(frame)}, "the frame is straight"


def tty_cells(row: str) -> int:
    return sum(2 if "\u2e80" <= char <= "\uffef" else 1 for char in row)


def test_one_line_a_call_with_its_state_as_a_word(tmp_path: Path) -> None:
    with PseudoTerminal("tools", tmp_path) as tty:
        tty.ask("go").until("○ Bash running").until("....F").until(
            "retrying in 1 s, attempt 2 of 10: Overloaded"
        )
        tty.until("All done.").until("idle").settle()
        shown = tty.everything()
        drawn = "\n".join(shown)
        assert (
            "› go\n\nI look at it first.\n\n● Read ok  src/longrein/app.py\n● Bash failed 12 s  "
            "python -m" in drawn
        )
        assert (
            "● Edit ok +1 -1  a.py\n    a\n  - b\n  + B\n    c\n    d\n\n[x] look\n[>] change\n[ "
            "] verify\n" in drawn
        )
        assert "[ ] verify\n! a notice \\x1b[31m from outside\n\nAll done." in drawn
        assert count(shown, "running") == 0, "what is over leaves no trace"
        assert count(shown, "retrying") == 0


def test_S074_S077_nothing_from_outside_reaches_the_terminal_raw(tmp_path: Path) -> None:
    with PseudoTerminal("tools", tmp_path) as tty:
        tty.ask("\x1b[200~\x1b]0;mine\x07\x1b[201~").until("All done.").until(
            "idle"
        ).settle().leave()
        for raw in (
            b"\x1b]52",
            b"\x1bc",
            b"\x9b31m",
            b"\x07",
            b"\x1b[31m from",
            "\u202e".encode(),
            "\u200b".encode(),
        ):
            assert raw not in tty.raw
        assert (
            count(
                tty.everything(),
                r"tool \x1b]52;c;aGk=\x07 \x1b[2J \x1bc \x9b31m \x07\x07 rlo \u202e tag",
            )
            == 1
        )


def test_an_idle_screen_is_not_redrawn(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.ask("hi").until("You said").until("idle")
        assert any(not tty.read(0.6) for _ in range(20)), "it never rests"


def test_a_long_reply_is_whole_and_held_in_little_memory(tmp_path: Path) -> None:
    with PseudoTerminal("flood", tmp_path) as tty:
        tty.until("say something")
        started_kb = tty.peak_kb
        tty.stream, tty.late_s = _Deaf(), 0.0  # the emulator is slower than the program
        before = len(tty.raw)
        tty.send("go\r").until(lambda: b"cache 90%" in tty.raw[before:])
        assert tty.peak_kb - started_kb <= 16_000, "6,500 on 64 bits"
        tty.leave()
        blocks = 195_000 // len(MARKDOWN.encode())
        assert tty.raw.count("見出し: streaming".encode()) >= blocks


class _Deaf:
    def feed(self, text: str) -> None:
        """Nothing is drawn."""


def test_no_color_is_respected(tmp_path: Path) -> None:
    with PseudoTerminal("tools", tmp_path, NO_COLOR="1") as tty:
        tty.ask("go").until("All done.").until("idle")
        assert not re.search(rb"\x1b\[[\d;]*(3[1-7]|9\d)[;m]", tty.raw)


@pytest.mark.parametrize("sizes", [[(120, 24), (80, 24)], [(60, 24)], [(200, 60), (80, 12)]])
def test_a_resize_in_mid_reply_keeps_the_screen_whole_and_no_word_is_lost(
    tmp_path: Path, sizes: list[tuple[int, int]]
) -> None:
    seen: set[str] = set()
    with PseudoTerminal("slow", tmp_path) as tty:
        tty.ask("100 20 50 70").until("word015")
        for n, (columns, rows) in enumerate(sizes):
            tty.pause()
            seen |= set(
                re.findall(r"word\d{3}", "\n".join(tty.everything()))
            )  # a narrower emulator forgets the rest
            tty.resize(columns, rows)
            (tmp_path / f"go{(20, 50)[n]}").touch()
            tty.until(
                lambda n=n: (
                    max(re.findall(r"word\d{3}", tty.text()), default="") >= f"word0{4 + 2 * n}5"
                )
            )
        for gate in ("go50", "go70"):
            (tmp_path / gate).touch()
        tty.until("The end.").until("idle").settle()
        shown = tty.everything()
        seen |= set(re.findall(r"word\d{3}", "\n".join(shown)))
        assert sorted(seen) == [f"word{n:03}" for n in range(100)]
        assert count(tty.lines(), "say something") == 1
        assert count(tty.lines(), "idle · mock/small") == 1
        assert count(tty.lines(), "Esc interrupts") == 0
        assert count(shown, "word099") == 1


def test_a_narrow_and_a_tiny_terminal_are_survived(tmp_path: Path) -> None:
    with PseudoTerminal("tools", tmp_path, 20, 6) as tty:
        tty.until("say").send("go\r").until("All done").until("idle").resize(5, 2).settle().resize(
            80, 24
        )
        tty.until("say something")
        assert tty.leave()


def test_erased_rows_never_begin_in_the_first_cell_for_tmux_keeps_those(tmp_path: Path) -> None:
    """tmux moves rows that are erased from its first cell on into the scrollback."""
    project = home(tmp_path, {"text": "Done.\n"})
    with open_it(project, forks=False) as tty:
        tty.ask("go").until("Done.").until("idle").resize(40, 12).until("idle").send("\x04").exits(
            0
        )
    erased = re.findall(rb".{3}\x1b\[J", tty.raw, re.DOTALL)
    assert len(erased) > 2
    assert all(one[2:3] == b" " or one.startswith(b"\x1b[K") for one in erased)


def test_a_pasted_tab_is_shown_as_blanks_and_sent_as_a_tab(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("\x1b[200~a\tb\x1b[201~").until("› a   b")
        tty.send("\r").until("You said").until("idle")
        assert [word["parts"][0]["text"] for word in tty.leave()] == ["a\tb"]
