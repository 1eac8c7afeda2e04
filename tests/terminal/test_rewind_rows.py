"""The preview of a rewind and the ways to go back, and a rewind of commands on a real terminal."""

from pathlib import Path

from longrein.agent import RewindPreview
from longrein.frontends.terminal.event_lines import plain
from longrein.frontends.terminal.session_commands import preview_rows, preview_summary, ways_back
from longrein_context.events import FilePut
from tests.terminal.test_real import home, open_it

KEPT = FilePut("/w/c", False, "it was changed since by somebody else")
SUMMARIES = {
    "no file has changed since": RewindPreview(),
    "1 file put back": RewindPreview(("/w/a",)),
    "2 files put back, 1 removed": RewindPreview(("/w/a", "/w/b"), ("/w/n",)),
    "3 removed, 1 kept as they are": RewindPreview((), ("/w/1", "/w/2", "/w/3"), (KEPT,)),
}


def test_a_preview_is_summed_up_in_one_line() -> None:
    assert {preview_summary(preview): preview for preview in SUMMARIES.values()} == SUMMARIES


def test_every_file_is_listed_with_what_becomes_of_it() -> None:
    preview = RewindPreview(
        ("/w/a\x1b[31m",), ("/w/n",), (KEPT,), ("b1 still runs and may change files again",)
    )
    assert [plain(row).strip() for row in preview_rows(preview)] == [
        "1 file put back, 1 removed, 1 kept as they are",
        "put back  /w/a\\x1b[31m",
        "removed  /w/n",
        "kept  /w/c  it was changed since by somebody else",
        "b1 still runs and may change files again",
        "files that .gitignore excludes stay as they are",
    ]
    many = [plain(row) for row in preview_rows(RewindPreview(tuple(f"/w/{n}" for n in range(300))))]
    assert (len(many), many[-2].strip()) == (203, "… and 100 more")


def test_files_of_others_can_only_be_overwritten_where_there_are_any() -> None:
    for preview, values in (
        (RewindPreview(), "7|7 files|7 only-files|7 show"),
        (RewindPreview((), (), (KEPT,)), ""),
    ):
        found = "|".join(row.value for row in ways_back("7", preview))
        assert found == (values or "7|7 files|7 only-files|7 all-files|7 show")


def test_what_a_command_did_is_shown_taken_back_and_brought_back(tmp_path: Path) -> None:
    command = "mkdir -p made/deep && echo 1 > made/deep/new && rm calc.py && chmod 600 run.sh"
    calls = [{"name": "Bash", "arguments": {"command": command}}]
    project = home(tmp_path, {"calls": calls}, {"text": "Done.\n"})
    (project / "calc.py").write_bytes(b"a - b\r\n")
    (project / "run.sh").write_text("exit 0\n")
    (project / "run.sh").chmod(0o755)
    with open_it(project) as tty:
        tty.ask("tidy up").until(tty.keys_count).send("y").until("Done.").until("idle")
        assert not (project / "calc.py").exists()
        tty.ask("/rewind").until("› tidy up").send("\r").until("2 files put back, 1 removed").send(
            "\x1b[B\r"
        )
        tty.until("rewound").until("› tidy up").send("\x15")
        assert (project / "calc.py").read_bytes() == b"a - b\r\n"
        assert (project / "run.sh").stat().st_mode & 0o777 == 0o755
        assert not (project / "made").exists()
        tty.ask("/rewind undo").until(lambda: sum("rewound" in row for row in tty.lines()) == 2)
        assert (project / "made/deep/new").read_text() == "1\n"
        assert not (project / "calc.py").exists()
