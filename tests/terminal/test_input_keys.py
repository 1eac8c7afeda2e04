"""Keys of the input on a real terminal: search, editor, rewind, Shift-Enter, vim, own keys, `!`,
`#`, pictures.
"""

import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longrein.frontends.terminal.drafts import Draft, DraftFile
from longrein.frontends.terminal.input_actions import HistorySearch, sent_messages
from longrein.frontends.terminal.input_completion import ProjectHistory
from tests.terminal.pseudo_terminal import WIDE, PseudoTerminal
from tests.terminal.test_input import said

UP, DOWN = "\x1b[A", "\x1b[B"


def has(tty: PseudoTerminal, row: str) -> Any:
    """Whether a row of the screen is exactly `row`."""
    return lambda: row in tty.lines()


def program(path: Path, text: str) -> str:
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# --- History --------------------------------------------------------------------------------------


def test_messages_of_this_folder_come_first_each_once(tmp_path: Path) -> None:
    for name, texts in (("here", ["one", "two", "one"]), ("-there", ["far", "two"])):
        for text in texts:
            ProjectHistory(str(tmp_path / name)).store_string(text)
    rows = sent_messages(str(tmp_path / "here"))
    assert [(row.value, row.note) for row in rows] == [("one", ""), ("two", ""), ("far", "-there")]
    assert sent_messages("") == sent_messages(str(tmp_path / "nowhere" / "x")) == []


def test_each_word_that_is_typed_narrows_the_search(tmp_path: Path) -> None:
    for text in ("fix the parser", "fix the Lexer", "run tests"):
        ProjectHistory(str(tmp_path / "here")).store_string(text)
    search = HistorySearch(sent_messages(str(tmp_path / "here")), "fix")
    assert [row.value for row in search.rows] == ["fix the Lexer", "fix the parser"]
    search.type(" lex")
    assert search.chosen == "fix the Lexer"
    search.type("zz")
    assert (search.chosen, search.rows) == ("", [])
    search.erase()
    search.erase()
    assert search.chosen == "fix the Lexer"


def test_ctrl_r_takes_a_message_into_the_input(tmp_path: Path) -> None:
    for text in ("fix the parser", "run the tests", "write docs"):
        ProjectHistory(str(tmp_path / "history")).store_string(text)
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("\x12").until("search what was sent:").until(
            "› write docs"
        ).send("the ")
        tty.until("1 of 2").send("pars").until("1 of 1").send("\r").until(
            has(tty, "› fix the parser")
        )
        tty.send("!\r").until("You said 15 characters")
        tty.until("say something").send("\x12").until("search what was sent").send("zzz").until(
            "nothing that was sent"
        )
        tty.send("\x1b").until(lambda: not any("search what" in row for row in tty.lines()))
        assert said(tty.leave()) == [("prompt", "fix the parser!")]


# --- Editor ---------------------------------------------------------------------------------------


def test_ctrl_g_edits_the_draft_and_the_screen_comes_back(tmp_path: Path) -> None:
    editor = program(
        tmp_path / "editor",
        'stat -c %a "$1" >mode; cat "$1" >before; printf "more\\nlines\\n" >>"$1"',
    )
    with PseudoTerminal("echo", tmp_path, EDITOR=editor) as tty:
        tty.until("say something").send("draft ").until("› draft").send("\x07").until(
            "  lines"
        ).until("idle")
        tty.send("!\r").until("in 2 lines.")
        assert said(tty.leave()) == [("prompt", "draft more\nlines!")]
    assert (tmp_path / "before").read_text() == "draft "
    assert (tmp_path / "mode").read_text().strip() == "600"


@pytest.mark.parametrize(
    ("editor", "seen"),
    [
        ("no-such-editor-here", "$EDITOR names no-such-editor-here, which is not there"),
        ("false", "false ended with code 1; the input is as it was"),
        ("'", "$EDITOR cannot be read as a command"),
    ],
)
def test_an_editor_that_does_not_work_is_told_in_one_line(
    tmp_path: Path, editor: str, seen: str
) -> None:
    with PseudoTerminal("echo", tmp_path, EDITOR=editor) as tty:
        tty.until("say something").send("kept").until("› kept").send("\x07").until(seen).until(
            has(tty, "› kept")
        )


def test_what_happens_meanwhile_is_shown_after_the_editor(tmp_path: Path) -> None:
    editor = program(tmp_path / "editor", "echo IN-EDITOR; while [ ! -e go ]; do sleep 0.05; done")
    with PseudoTerminal("slow", tmp_path, EDITOR=editor) as tty:
        tty.ask("60 20").until("word010").send("\x07").until("IN-EDITOR")
        (tmp_path / "go20").touch()
        tty.until((tmp_path / "streamed").exists)
        (tmp_path / "go").touch()
        tty.until("The end.").until("idle")
        assert sum("word059" in row for row in tty.everything()) == 1


# --- Rewind ---------------------------------------------------------------------------------------


def test_esc_esc_on_an_idle_screen_opens_the_list_of_prompts(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path, 80, 30) as tty:
        tty.until("say something").send("\x1b\x1b").settle().ask("first").until("You said 5").until(
            "idle"
        )
        tty.send("\x1b").until("Esc again goes back").send("\x1b").until("go back to before which")
        tty.send("\r").until("what goes back?").until("the files only").send("\r").until(
            has(tty, "› first")
        )
        rewind = {
            "type": "Rewind",
            "to": 2,
            "files": False,
            "conversation": True,
            "overwrite": False,
        }
        assert tty.send("\x15").leave()[-1] == rewind


def test_esc_esc_with_a_draft_changes_nothing(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path, 80, 30) as tty:
        tty.ask("first").until("You said 5").until("idle").send("abc").until("› abc").send(
            "\x1b\x1b"
        ).settle()
        assert has(tty, "› abc")()
        assert not any("go back" in row for row in tty.lines())


# --- Shift-Enter ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["\x1b[13;2u", "\x1b[27;2;13~", "\x1b\r", "\\\r", "\n", "\x1b[13;66u"]
)
def test_a_new_line_by_every_way(tmp_path: Path, key: str) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send(f"one{key}two\r").until("in 2 lines.")
        assert said(tty.leave()) == [("prompt", "one\ntwo")]


def test_the_kitty_protocol_is_turned_on_when_the_terminal_has_it_and_off_at_the_end(
    tmp_path: Path,
) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").until_written("\x1b[?u")
        assert b"\x1b[>1u" not in tty.raw
        tty.send("\x1b[?0u").until_written("\x1b[>1u")
        tty.send("x\x1b[97;5uy").until(has(tty, "› yx")).send("\x1b[99;5u").until("say something")
        os.kill(tty.pid, signal.SIGTERM)
        tty.exits(143)
        assert tty.raw.count(b"\x1b[<u") == 1
        assert b"\x1b[>4m" in tty.raw[tty.raw.index(b"\x1b[<u") :]


# --- Vim and own keys -----------------------------------------------------------------------------


def test_vim_mode_edits_and_shows_its_mode(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path, VIM="1") as tty:
        tty.until("INSERT · idle").send("hello wurld\x1b").until("NORMAL · idle").send("bfuro0x")
        tty.until("› ello world").send("\r").until("You said 10").until("INSERT")
        assert said(tty.leave()) == [("prompt", "ello world")]


def test_keys_can_be_changed_and_mistakes_are_one_line(tmp_path: Path) -> None:
    keys = {
        "history_search": ["f5", "ctrl-x ctrl-r"],
        "editor": ["ctrl-nope"],
        "steer": ["ctrl-g"],
        "redraw": [],
    }
    ProjectHistory(str(tmp_path / "history")).store_string("sent before")
    with PseudoTerminal("echo", tmp_path, 100, 40, KEYS=msgspec.json.encode(keys).decode()) as tty:
        tty.until("keys.editor: `ctrl-nope` is no key; write it as ctrl-g").until("say something")
        for key in ("\x1b[15~", "\x18\x12"):
            tty.send(key).until("› sent before").send("\x1b")
            tty.until(lambda: not any("search what" in row for row in tty.lines()))
        tty.ask("/keys").until("keys.history_search").until("F5, Ctrl-X Ctrl-R").until("no key")


# --- Commands and notes of the user ---------------------------------------------------------------


def test_a_command_of_the_user_runs_at_once_and_esc_stops_it(tmp_path: Path) -> None:
    with PseudoTerminal("hang", tmp_path) as tty:
        tty.ask("!make it").until("! make it").until("  ran make it")
        tty.ask("!sleep 100").until("! sleep 100  running").until("  begun").send("\x1b")
        tty.until("! sleep 100  interrupted").until("idle").settle()
        assert sum("! make it" in row for row in tty.everything()) == 1
        tty.ask("go").until("Bash running").send("!date\r").until("  ran date").until(
            "Bash running"
        )
        assert said(tty.leave()) == [("prompt", "go")]


def test_a_note_is_added_to_the_file_that_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("# Rules\n\n- be kind")
    with PseudoTerminal("echo", tmp_path, WIDE) as tty:
        tty.ask("# use tabs").until("remember this in which file?").send("\r").until(
            "added to "
        ).until("use tabs;")
        tty.ask("#everywhere").until("remember this").send(f"{DOWN}\r").until(
            "own/AGENTS.md: everywhere"
        )
        for text in ("## a heading", "#123 is open"):
            tty.ask(text).until(f"› {text}").until("idle")
        assert said(tty.leave()) == [("prompt", "## a heading"), ("prompt", "#123 is open")]
    assert (tmp_path / "AGENTS.md").read_text() == "# Rules\n\n- be kind\n- use tabs\n"
    assert (tmp_path / "own/AGENTS.md").read_text() == "- everywhere\n"


# --- Pictures -------------------------------------------------------------------------------------


def test_a_dropped_picture_is_a_mark_and_goes_with_the_message(tmp_path: Path) -> None:
    picture = tmp_path / "a shot.png"
    picture.write_bytes(b"png")
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something")
        for pasted in (
            str(picture),
            str(picture).replace(" ", "\\ "),
            f"'{picture}'",
            f"file://{tmp_path}/a%20shot.png",
        ):
            tty.send(f"\x1b[200~{pasted}\x1b[201~").until(has(tty, "› [image a shot.png]")).send(
                "\x7f\x7f"
            )
            tty.until("say something")
        tty.send(f"see \x1b[200~{picture}\x1b[201~\r").until("[Image #1]").until("idle")
        tty.send("\x1b[200~/etc/hosts\x1b[201~").until(has(tty, "› /etc/hosts")).send("\x15")
        told = tty.leave()
    assert [part["type"] for part in told[0]["parts"]] == ["text", "image"]


def test_ctrl_v_takes_a_picture_of_the_clipboard(tmp_path: Path) -> None:
    program(tmp_path / "wl-paste", 'test "$3" = image/png && printf png')
    path = f"{tmp_path}:{os.environ['PATH']}"
    with PseudoTerminal("echo", tmp_path, PATH=path, WAYLAND_DISPLAY="wayland-0") as tty:
        tty.until("say something").send("\x16").until(has(tty, "› [image clipboard.png]")).send(
            "\r"
        )
        tty.until("[Image #1]").until("idle").leave()
    (tmp_path / "wl-paste").unlink()
    with PseudoTerminal("echo", tmp_path, PATH=path) as tty:
        tty.until("say something").send("\x16").until("needs wl-paste, xclip or pngpaste")


# --- Drafts ---------------------------------------------------------------------------------------


def test_a_draft_comes_back_after_a_kill_and_is_gone_once_sent(tmp_path: Path) -> None:
    drafts = tmp_path / "drafts"
    long = "\n".join(f"line {n}" for n in range(20))
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send(f"half a \x1b[200~{long}\x1b[201~").until("half a [Pasted")
        tty.until(
            lambda: (
                drafts.is_dir() and any(b"half a" in path.read_bytes() for path in drafts.iterdir())
            )
        )
        assert [path.stat().st_mode & 0o777 for path in drafts.iterdir()] == [0o600]
        os.kill(tty.pid, signal.SIGKILL)
        tty.wait_exit()
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("what you had typed is back").until("half a [Pasted").send(" thought").until(
            "] thought"
        )
        os.kill(tty.pid, signal.SIGTERM)
        tty.exits(143)
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("› half a [Pasted text #1 +20 lines] thought").send("\r").until("in 20 lines.")
        assert said(tty.leave()) == [("prompt", f"half a {long} thought")]
    assert list(drafts.iterdir()) == []


def test_a_draft_of_a_process_that_lives_is_left_alone(tmp_path: Path) -> None:
    other = DraftFile(str(tmp_path / "here"), 1)
    other.save(Draft("of another"))
    assert DraftFile(str(tmp_path / "here"), 2).take_over(lambda _: True) == Draft()
    assert DraftFile(str(tmp_path / "here"), 2).take_over(lambda _: False) == Draft("of another")
    assert [path.name for path in tmp_path.iterdir()] == ["here.2"]
    (tmp_path / "here.3").write_bytes(b"not json")
    (tmp_path / "here.2").unlink()
    assert DraftFile(str(tmp_path / "here"), 4).take_over(lambda _: False) == Draft()
    for end in ("\u00b2", "99999999999999"):
        (tmp_path / f"here.{end}").write_bytes(msgspec.json.encode(Draft(end)))
    assert DraftFile(str(tmp_path / "here"), 5).take_over() == Draft("99999999999999")
