"""Questions on windows of every size: title, path and keys are visible, and a yes covers what
was visible.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from longrein.store import Reader, list_sessions
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.test_real import home

SIZES = [(20, 6), (24, 8), (40, 12), (80, 24), (200, 60)]
FOLDER = "packages/backend/services/accounts"
PATH = f"{FOLDER}/ledger.py"
LINES = [f"value_{n} = {n}" for n in range(1, 61)]


def project_with_edit(tmp_path: Path, changed: int) -> tuple[Path, dict[str, str]]:
    """A project whose model reads a file and changes `changed` lines of it, from line 20 on."""
    old = "\n".join(LINES[19 : 19 + changed])
    new = old.replace(" = ", " = 7 * ")
    edit = {"file_path": PATH, "old_string": old, "new_string": new}
    look = {"calls": [{"name": "Read", "arguments": {"file_path": PATH}}]}
    project = home(
        tmp_path, look, {"calls": [{"name": "Edit", "arguments": edit}]}, {"text": "Mended.\n"}
    )
    (project / FOLDER).mkdir(parents=True)
    (project / PATH).write_text("\n".join(LINES) + "\n")
    return project, {"old": old, "new": new}


def open_at(project: Path, columns: int, rows: int) -> PseudoTerminal:
    root = project.parent
    places = {"HOME": str(root / "home"), "LONGREIN_STATE_DIR": str(root / "state")}
    return PseudoTerminal(
        "", project, columns, rows, **places, LONGREIN_SANDBOX_MODE="off", ARGS="mend"
    )


def page_through(tty: PseudoTerminal) -> None:
    """Go through the page of a question, a screen at a time, on which a reader is never late."""
    late_s, tty.late_s = tty.late_s, 0.0
    end = tty.send("G").settle(0.5).lines()[1:-1]
    tty.send("g").settle(0.5)
    while tty.lines()[1:-1] != end:
        before = tty.lines()
        tty.send(" ").until(lambda before=before: tty.lines() != before)
        tty.settle(0.05)  # two keys at once would pass over a screen
    tty.late_s = late_s


def answers(tmp_path: Path) -> list[Any]:
    [session] = list_sessions(str(tmp_path / "state"))
    entries = Reader(str(tmp_path / "state"), session.session).entries()
    return [entry.event for entry in entries if type(entry.event).__name__ == "PermissionAnswered"]


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_I13_title_path_and_keys_are_visible_and_yes_covers_what_was_visible(
    tmp_path: Path, columns: int, rows: int
) -> None:
    project, _ = project_with_edit(tmp_path, 1)
    with open_at(project, columns, rows) as tty:
        tty.until(tty.keys_count)
        shown = tty.lines()
        [title] = [row for row in shown if row.startswith("? Edit")]
        assert "ger.py" in title, "the end of the path"
        assert all(len(row) <= columns for row in shown)
        keys = next(row for row in shown if row.lstrip("› ").startswith("y yes"))
        assert " n no" in keys or any(" n no" in row for row in shown)
        if rows >= 24:
            expected = [f"17   {LINES[16]}", f"18   {LINES[17]}", f"19   {LINES[18]}"]
            expected += ["20 - value_20 = 20", "20 + value_20 = 7 * 20"]
            expected += [f"21   {LINES[20]}", f"22   {LINES[21]}", f"23   {LINES[22]}"]
            at = shown.index(f"│ {expected[0]}")
            assert shown[at - 1 : at + 9] == ["│   ⋮", *(f"│ {row}" for row in expected), "│   ⋮"]
            by_text = {
                row: tty.screen.buffer[shown.index(row)][2].fg
                for row in shown
                if row.startswith("│ 20 ")
            }
            assert by_text == {"│ 20 - value_20 = 20": "red", "│ 20 + value_20 = 7 * 20": "green"}
        else:
            tty.send("y").until(tty.pager_counts)
            assert answers(tmp_path) == [], "the first y has only shown the change"
            tty.send("y").settle(0.2)
            assert answers(tmp_path) == [], "its last lines were not on the screen yet"
            page_through(tty)
        tty.send("y").until(lambda: "Mended." in tty.text()).until("idle")
    assert [(one.verdict, one.scope) for one in answers(tmp_path)] == [("allow", "once")]
    assert "value_20 = 7 * 20" in (project / PATH).read_text()


@pytest.mark.parametrize(("columns", "rows"), [(20, 6), (24, 8), (40, 12), (80, 24)])
def test_I13_a_change_larger_than_the_window_is_shown_before_it_is_approved(
    tmp_path: Path, columns: int, rows: int
) -> None:
    project, texts = project_with_edit(tmp_path, 30)
    with open_at(project, columns, rows) as tty:
        tty.until(tty.keys_count).send("y").until(tty.pager_counts)
        assert tty.lines()[0].startswith("? Edit")
        assert tty.lines()[0].endswith("ledger.py")
        tty.send("G").until("52   value_52 = 52").send("g").until(
            lambda: "it changes" in tty.lines()[1]
        )
        tty.send("/49 +\r").until("49 + value_49")
        tty.resize(30, 10).until(lambda: len(tty.lines()[0]) > 20).settle(1.0)
        assert tty.lines()[0].endswith("ledger.py"), "the conversation below does not draw over it"
        assert tty.pager_counts()
        assert texts["new"].split("\n")[0] not in (project / PATH).read_text()
        tty.send("y").until("not shown yet")
        assert answers(tmp_path) == []
        page_through(tty)
        tty.send("q").until(lambda: not tty.screen.is_alternate).until(tty.keys_count)
        assert any(row.startswith("? Edit") for row in tty.lines())
        tty.send("y").until("Mended.")
    assert [one.verdict for one in answers(tmp_path)] == ["allow"]


def test_I13_a_change_that_was_scrolled_through_is_approved_at_once(tmp_path: Path) -> None:
    project, _ = project_with_edit(tmp_path, 30)
    with open_at(project, 80, 24) as tty:
        tty.until(tty.keys_count)
        tty.late_s = 0.0  # 60 waits
        for _ in range(20):
            before = tty.lines()
            tty.send("\x1b[6~").until(lambda before=before: tty.lines() != before)
            if "-69 of 69" in tty.text():
                break
        tty.until("│ 49 + value_49 = 7 * 49").send("y").until("Mended.")
        assert not tty.screen.is_alternate


def test_I13_all_edits_of_this_session_changes_the_mode(tmp_path: Path) -> None:
    project, _ = project_with_edit(tmp_path, 1)
    with open_at(project, 80, 24) as tty:
        tty.until("m yes, and all edits of this session").until(tty.keys_count).send("m\r").until(
            "Mended."
        )
        tty.until("idle · mock/small · acceptEdits")
    assert [one.verdict for one in answers(tmp_path)] == ["allow"]


def test_I13_a_no_and_why_from_the_page_goes_to_the_model(tmp_path: Path) -> None:
    project, _ = project_with_edit(tmp_path, 30)
    with open_at(project, 40, 12) as tty:
        tty.until(tty.keys_count).send("v").until(tty.pager_counts).send("f").until("why not ›")
        tty.send("use a table\r").until("no: use a table").until("Mended.")
    assert [(one.verdict, one.message) for one in answers(tmp_path)] == [("deny", "use a table")]


COMMAND = {"calls": [{"name": "Bash", "arguments": {"command": "git push origin topic"}}]}


@pytest.mark.parametrize(("size", "opens"), [((80, 24), False), ((24, 8), True)])
def test_I13_always_exactly_this_stores_a_rule_for_this_command_alone(
    tmp_path: Path, size: tuple[int, int], opens: bool
) -> None:
    project = home(tmp_path, COMMAND, {"text": "Pushed.\n"})
    with open_at(project, *size) as tty:
        tty.until(tty.keys_count)
        if not opens:
            tty.until("x always exactly this: Bash(git push origin topic)").until(
                "a always: Bash(git push:*)"
            )
        tty.send("x\r")
        if opens:
            tty.until(tty.pager_counts)
            page_through(tty)
            tty.send("x").until("Enter: always").send("\r")
        tty.until("Pushed.").until("idle")
    settings = (tmp_path / "home" / ".config" / "longrein" / "config.toml").read_text()
    assert '"Bash(git push origin topic)"' in settings
    assert "push:*" not in settings


@pytest.mark.parametrize("key", ["s", "a"])
def test_a_yes_to_a_folder_covers_its_files_and_no_dotfile(tmp_path: Path, key: str) -> None:
    def change(path: str) -> dict[str, Any]:
        arguments = {"file_path": path, "content": "x\n"}
        return {"calls": [{"name": "Write", "arguments": arguments}]}

    asked = change("src/a.py")
    project = home(tmp_path, asked, change("src/b/c.py"), change("src/.env"), {"text": "Done.\n"})
    with open_at(project, 80, 24) as tty:
        tty.until("s yes, for this session: Edit(src/**), all files below src/ but dotfiles")
        tty.until("a always in this folder: Edit(src/**), all files below src/ but dotfiles")
        tty.until(tty.keys_count).send(f"{key}\r").until("? Write: it changes src/.env")
        assert (project / "src/b/c.py").read_text() == "x\n"
        tty.until(tty.keys_count).send("n").until("idle")
    assert not (project / "src/.env").exists()
    settings = (tmp_path / "home" / ".config" / "longrein" / "config.toml").read_text()
    assert (f'"Edit(/{project}/src/[!.]*)"' in settings) == (key == "a")
    assert "src/**" not in settings


def test_I13_several_questions_are_numbered(tmp_path: Path) -> None:
    with PseudoTerminal("three", tmp_path) as tty:
        tty.ask("go").until("(1 of 3)").until(tty.keys_count).send("y").until("(1 of 2)").until(
            tty.keys_count
        ).send("y")
        tty.until(lambda: "? a9 general asks: Bash: no rule allows it" in tty.lines())
        tty.until(tty.keys_count).send("n").until("idle")
        verdicts = [word["verdict"] for word in tty.leave() if word["type"] == "Answer"]
        assert verdicts == ["allow", "allow", "deny"]


@pytest.mark.parametrize(
    ("typed", "verdict", "rule"),
    [
        ("x\n", "allow", "Bash(git push origin topic)"),
        ("a\n", "allow", "Bash(git push:*)"),
        ("f\nnot today\n", "deny", ""),
        ("f not today\n", "deny", ""),
    ],
)
def test_I13_the_plain_terminal_asks_the_same(
    tmp_path: Path, typed: str, verdict: str, rule: str
) -> None:
    project = home(tmp_path, COMMAND, {"text": "Pushed.\n"})
    root = project.parent
    places = {
        "HOME": str(root / "home"),
        "LONGREIN_STATE_DIR": str(root / "state"),
        "LONGREIN_SANDBOX_MODE": "off",
    }
    with PseudoTerminal("", project, **places, ARGS="--plain") as tty:
        tty.until(lambda: ">" in tty.lines()).send("go\n").until(
            "x  always exactly this: Bash(git push origin topic)"
        )
        tty.until("answer>")
        for part in typed.splitlines():
            tty.send(part + "\n")
            if part == "f":
                tty.until("why not>")
        tty.until("Pushed.")
    [answer] = answers(tmp_path)
    assert (answer.verdict, answer.rule) == (verdict, rule)
    assert answer.message == ("not today" if verdict == "deny" else "")
    settings = (tmp_path / "home" / ".config" / "longrein" / "config.toml").read_text()
    assert (json.dumps(rule) in settings) is bool(rule)
