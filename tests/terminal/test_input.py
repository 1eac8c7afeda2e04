"""What is typed: lines, pastes, history, completion, and the three acts while a turn goes on."""

import asyncio
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab.support.spawner import spawner_in
from longrein.app.file_names import FileNames, FilesFound
from longrein.frontends.terminal.input_completion import Pastes, ProjectHistory, at_prefix
from longrein.workspace import open_workspace
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.timeouts import HANG_S

pytestmark = pytest.mark.anyio


def said(told: list[Any]) -> list[tuple[str, str]]:
    return [
        (word.get("how", "prompt"), word["parts"][0]["text"])
        for word in told
        if word["type"] == "Said"
    ]


# --- Pastes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pasted", "shown"),
    [
        ("one\ntwo", "one\ntwo"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("1\n2\n3\n4\n5", "1\n2\n3\n4\n5"),
        ("1\n2\n3\n4\n5\n6", "[Pasted text #1 +6 lines]"),
        ("1\n2\n3\n4\n5\n6\n", "[Pasted text #1 +6 lines]"),
        ("x" * 1_001, "[Pasted text #1 +1 lines]"),
    ],
)
def test_a_long_paste_is_folded_and_comes_back_whole(pasted: str, shown: str) -> None:
    pastes = Pastes()
    assert pastes.fold(pasted) == shown
    assert pastes.expand(f"see {shown}!") == f"see {pasted}!".replace("\r\n", "\n").replace(
        "\r", "\n"
    )


def test_a_mark_that_was_never_dealt_stays_as_typed_and_a_mark_is_deleted_as_one() -> None:
    mark = "[Pasted text #12 +9 lines]"
    assert Pastes().expand(mark) == mark
    assert [Pastes.token_before(text) for text in (f"see {mark}", f"see {mark} ")] == [len(mark), 0]


def test_a_paste_of_500_lines_is_one_mark_and_whole_when_sent(tmp_path: Path) -> None:
    lines = [f"line {n} 日本\t'\"\\" for n in range(500)]
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("look: \x1b[200~" + "\r".join(lines) + "\x1b[201~")
        tty.until("› look: [Pasted text #1 +500 lines]").send("\r")
        tty.until("in 500 lines.").until("… 489 more lines").until("idle")
        assert said(tty.leave()) == [("prompt", "look: " + "\n".join(lines))]
    assert stat.S_IMODE((tmp_path / "history").stat().st_mode) == 0o600
    assert list(ProjectHistory(str(tmp_path / "history")).load_history_strings()) == [
        "look: " + "\n".join(lines)
    ]


@pytest.mark.parametrize(
    ("early", "told", "left"),
    [
        ("hello\r", ["hello"], ""),
        ("日本語 ünï\r", ["日本語 ünï"], ""),
        ("hello\n", ["hello"], ""),  # as the kernel would make it of an Enter
        ("one\rtwo\rthr", ["one", "two"], "thr"),
        ("\r\r", [], ""),
        ("a\r\rb", ["a"], "b"),
        ("/help\r", [], ""),
        ("not yet", [], "not yet"),
    ],
)
def test_what_was_typed_before_the_first_frame_is_typed(
    tmp_path: Path, early: str, told: list[str], left: str
) -> None:
    with PseudoTerminal("echo", tmp_path, typed=early) as tty:
        for text in told:
            tty.until(f"› {text}").until(f"You said {len(text)} characters in 1 lines.")
        if early.startswith("/"):
            tty.until("keys: ? or /keys")
        tty.until(f"› {left or 'say something'}").until("idle").send(
            "\x03"
        )  # what is left in the input
        assert [text for _, text in said(tty.leave())] == told


def test_what_was_typed_before_a_list_to_choose_from_is_sent_nowhere(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path, typed="hello\r", CHOOSING="1") as tty:
        tty.until("which session?").until("› hello").send("\x1b").until("idle").send("\x03")
        assert tty.leave() == []


def test_backspace_takes_a_mark_at_once(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("a\x1b[200~" + "x\n" * 9 + "\x1b[201~")
        tty.until("› a[Pasted text #1 +9 lines]").send("\x7f").until(lambda: "› a" in tty.lines())


# --- Lines and history ----------------------------------------------------------------------------


def test_many_lines_and_the_way_back_to_them(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("one\x1b\rtwo\nthree\\\rfour")
        tty.until("› one").until("  two").until("  three").until("  four").send("\r")
        tty.until("You said 18 characters in 4 lines.").until("idle").send("second\r")
        tty.until("You said 6 characters").until("say something").send("\x1b[A").until("› second")
        tty.send("\x1b[A").until(lambda: tty.lines().count("› one") == 2).send("\x03").until(
            "say something"
        )
        assert said(tty.leave()) == [("prompt", "one\ntwo\nthree\nfour"), ("prompt", "second")]
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("\x1b[A").until("› second")


def test_history_takes_what_is_there_and_a_disk_that_refuses(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_bytes(b'"first"\nno json\n\xff\n"second \\n line"\n"cut')
    history = ProjectHistory(str(file))
    assert list(history.load_history_strings()) == ["second \n line", "first"]
    ProjectHistory(str(tmp_path / "none" / "history")).store_string("kept nowhere")
    ProjectHistory("").store_string("kept nowhere")
    assert list(ProjectHistory("").load_history_strings()) == []


def test_an_empty_line_says_nothing(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("\r  \r\x15ok\r").until("You said 2 characters")
        assert said(tty.leave()) == [("prompt", "ok")]


# --- E4: three acts -------------------------------------------------------------------------------


def test_E4_queue_steer_and_take_back_are_three_acts(tmp_path: Path) -> None:
    with PseudoTerminal("slow", tmp_path) as tty:
        tty.ask("400 60").until("word00").until("Enter queues, Ctrl-S steers").send("2\r")
        tty.until("after this turn: 2").until("↑ takes the last one back").until("1 queued").send(
            "into it\x13"
        )
        tty.until("with the next request: into it").until("2 queued").send("\x1b[A")
        tty.until("› into it").until(
            lambda: not any("with the next request" in row for row in tty.lines())
        )
        assert any("after this turn: 2" in row for row in tty.lines())
        tty.send("\x15").until("Enter queues").send("\x1b")
        tty.until("interrupted  say").until("word001").until("The end.").until("idle")
        assert not any("after this turn" in row for row in tty.lines())
        assert said(tty.leave()) == [("prompt", "400 60"), ("queued", "2"), ("steer", "into it")]


def test_a_stop_key_loses_neither_a_draft_nor_what_is_queued(tmp_path: Path) -> None:
    with PseudoTerminal("hang", tmp_path) as tty:
        tty.ask("go").until("○ Bash running").send("a draft").until("› a draft").send("\x1b")
        tty.until("interrupted  say").until("idle").until("› a draft")


# --- Completion -----------------------------------------------------------------------------------


COMPLETED = {
    "see @test\t": "› see @tests/test_app.py",
    "@with\t": '› @"src/with blank.py"',
    "/cost\t": "› /cost",
    "/cle\t": "› /clear",
}


def test_tab_completes_however_fast(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        for typed, written in COMPLETED.items():
            tty.until("say something").send(typed).until(
                lambda written=written: written in tty.lines()
            )
            tty.send("\x03")


def test_enter_takes_the_marked_row_and_sends_a_word_that_was_whole(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("see @app").until("src/app.py").send("\x1b[B")
        tty.until("› see @src/app.py").send("\r").until("› see @src/app.py")
        tty.send("now\r").until("You said 19 characters")
        tty.until("say something").send("/mode").until("› /mode").until("/model").send(
            "\x1b[B\x1b[B"
        )
        tty.until("› /mode").send("\r").until("acceptEdits").send("\x1b").until("say something")
        tty.send("/mod").until("› /mod").until("/model").send("\t").until("› /model").send("\r")
        tty.until("mock/large").send("\x1b").until("say something")
        assert [text for _, text in said(tty.leave())] == ["see @src/app.py now"]


def test_tab_takes_the_marked_row_and_the_next_enter_sends(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("see @app").until("src/app.py").send("\x1b[B\x1b[B")
        tty.until("› see @tests/test_app.py").send("\t").until(
            lambda: "src/app.py" not in tty.text()
        )
        tty.send("\t" * 3).send("\r").until("You said 22 characters")
        tty.until("say something").send("see @app").until("src/app.py").send("\t\r")
        tty.until("You said 15 characters")
        sent = [text for _, text in said(tty.leave())]
        assert sent == ["see @tests/test_app.py", "see @src/app.py"]


def test_a_command_line_at_the_prompt_is_explained_and_sent_when_meant(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path, 110) as tty:
        tty.ask("longrein sessions").until("`!longrein sessions` runs it here")
        tty.until("› longrein sessions").send("\r").until("You said 17 characters")
        tty.ask("longrein is slow").until("You said 16 characters")
        assert [text for _, text in said(tty.leave())] == ["longrein sessions", "longrein is slow"]


def file_names(folder: Path, clock: list[float] | None = None, **limits: int) -> FileNames:
    workspace = open_workspace(
        (str(folder),), spawner=spawner_in(folder.parent / "spool"), environment=dict(os.environ)
    )
    return FileNames(workspace, lambda: str(folder), lambda: (clock or [0.0])[0], **limits)


@pytest.fixture
def large_repository(tmp_path: Path) -> Path:
    """60,000 files that are in git's index alone."""
    blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    entries = "".join(f"100644 {blob}\tsrc/module_{n:05}.py\n" for n in range(60_000))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(
        ["git", "update-index", "--index-info"], cwd=tmp_path, input=entries.encode(), check=True
    )
    return tmp_path


@pytest.mark.skipif(shutil.which("git") is None, reason="git lists these")
async def test_every_file_of_a_large_repository_is_found_and_what_is_not_shown_is_counted(
    large_repository: Path,
) -> None:
    names = file_names(large_repository)
    assert await names.find("") == FilesFound(
        ["src/", *(f"src/module_{n:05}.py" for n in range(49))], "59,951 more; type on"
    )
    assert await names.find("MODULE_59999") == FilesFound(["src/module_59999.py"])


async def test_a_list_that_ends_early_says_so(tmp_path: Path) -> None:
    for n in range(30):
        (tmp_path / f"folder{n % 3}").mkdir(exist_ok=True)
        (tmp_path / f"folder{n % 3}" / f"file{n:02}").touch()
    assert (await file_names(tmp_path).find("file")).note == ""
    found = await file_names(tmp_path, files_max=25).find("file29")
    assert found == FilesFound([], "only 25 files of this folder were looked at")


async def test_the_list_of_files_is_made_anew_where_a_name_begins_and_after_a_while(
    tmp_path: Path,
) -> None:
    clock = [0.0]
    names = file_names(tmp_path, clock)
    assert (await names.find("")).paths == []
    (tmp_path / "new.py").touch()
    assert (await names.find("n")).paths == []
    async with asyncio.timeout(HANG_S):  # the list is renewed beside the search
        while (await names.find("")).paths != ["new.py"]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        (tmp_path / "newer.py").touch()
        while (await names.find("newer")).paths != ["newer.py"]:
            await asyncio.sleep(0)
            clock[0] += 60.0  # a list that was begun before may end only now


async def test_a_file_made_since_is_found_by_a_name_that_is_typed_at_once(tmp_path: Path) -> None:
    names = file_names(tmp_path)
    (tmp_path / "old.py").touch()
    assert (await names.find("old")).paths == ["old.py"]
    (tmp_path / "made.py").touch()
    assert (await names.find("made")).paths == ["made.py"]


def test_that_files_are_missing_stands_under_those_that_are_offered(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("@app").until("tests/test_app.py").until(
            "… 1,234 more; type on"
        )
        for written in ("› @src/app.py", "› @tests/test_app.py", "› @app"):
            tty.send("\x1b[B").until(lambda written=written: written in tty.lines())


def test_commands_are_offered_while_typing(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("/co")
        tty.until("/compact [FOCUS]").until("/context").until("/cost").until(
            "what was used and spent"
        )
        tty.send("\x1b").until(lambda: not any("/context" in row for row in tty.lines()))
        assert "› /co" in tty.lines()


@pytest.mark.parametrize(
    ("text", "prefix"),
    [("@", ""), ("see @src/a", "src/a"), ("a@b", None), ("@a b", None), ("x\n@y", "y"), ("", None)],
)
def test_where_a_file_name_is_being_typed(text: str, prefix: str | None) -> None:
    assert at_prefix(text) == prefix
