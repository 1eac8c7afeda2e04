"""The editor's own files and terminals: unsaved text, writes, commands, and what stays as it is."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from longrein_context.events import FileChanged, FileSeen
from tests.acp.harness import FILES, READ_ONLY, TERMINALS, agent, file
from tests.e2e.harness import CliHarness, bash, call, calls, needs_bubblewrap, of, says
from tests.tables import split_words

ONCE = "once"


def turn(cli: CliHarness, capabilities: Any, before: Any = None, prompt: str = "go") -> Any:
    """Run one prompt; return the editor."""

    async def work() -> Any:
        async with agent(cli, capabilities=capabilities) as longrein:
            session = await longrein.new()
            if before is not None:
                before(longrein.editor)
            assert await longrein.prompt(session.session_id, prompt) == "end_turn"
            return longrein.editor

    return asyncio.run(work())


def edits(cli: CliHarness) -> None:
    cli.plays(
        calls(call("Read", file_path="app.py")),
        calls(call("Edit", file_path="app.py", old_string="two", new_string="2")),
        says("Done."),
    )


def test_a19_unsaved_text_is_read_and_the_editor_writes(cli: CliHarness) -> None:
    path = file(cli, "app.py", "one\ntwo\n")
    edits(cli)
    editor = turn(cli, FILES, lambda editor: editor.files.update({str(path): "zero\none\ntwo\n"}))
    assert cli.results()[0] == ("ok", "1\tzero\n2\tone\n3\ttwo")
    assert editor.written == [(str(path), "zero\none\n2\n")]
    assert path.read_text() == "zero\none\n2\n"
    assert editor.call("Edit")["status"] == "completed"
    seen, changed = of(cli, FileSeen), of(cli, FileChanged)
    assert [one.before for one in changed] == [seen[0].hash]
    assert not [one for one in changed if one.by != "agent"]


def test_a_saved_file_with_other_line_ends_is_not_taken_for_changed(cli: CliHarness) -> None:
    path = cli.project / "app.py"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    edits(cli)
    editor = turn(cli, READ_ONLY, lambda editor: editor.files.update({str(path): "one\ntwo\n"}))
    assert editor.asked
    assert path.read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n"


def test_a_file_with_unsaved_text_is_not_written_behind_the_editor(cli: CliHarness) -> None:
    path = file(cli, "app.py", "one\ntwo\n")
    edits(cli)
    turn(cli, READ_ONLY, lambda editor: editor.files.update({str(path): "zero\ntwo\n"}))
    assert path.read_text() == "one\ntwo\n"
    assert "the editor holds changes of it that are not saved" in cli.results()[1][1]


def test_a_write_that_the_editor_refuses_goes_to_the_disk(cli: CliHarness) -> None:
    path = file(cli, "app.py", "one\ntwo\n")
    edits(cli)
    editor = turn(cli, FILES, lambda editor: setattr(editor, "refuses_writes", True))
    assert editor.written
    assert path.read_text() == "one\n2\n"


def test_path_that_was_not_allowed_is_not_asked_of_editor(cli: CliHarness, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("x\n")
    cli.plays(calls(call("Read", file_path=str(secret))), says("No."))
    editor = turn(cli, FILES, lambda editor: setattr(editor, "choose", lambda _question: "no"))
    assert cli.results()[0][0] == "denied"
    assert editor.asked == []


def test_a19_a_command_runs_in_a_terminal_of_the_editor(cli: CliHarness) -> None:
    cli.plays(calls(bash("echo hello; echo $EDITOR_SECRET; exit 3")), says("Done."))
    editor = turn(cli, TERMINALS)
    assert [what for what, _ in editor.terminal_log] == ["create", "exit", "output", "release"]
    assert cli.results() == [("failed", "hello\n[exit code 3]")]
    assert editor.call("Bash")["content"] == [{"type": "terminal", "terminalId": "t0"}]
    assert editor.statuses("Bash") == ["pending", "in_progress", "failed"]


@needs_bubblewrap
def test_a_command_in_a_terminal_is_in_the_sandbox(cli: CliHarness, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    cli.plays(calls(bash(f"touch inside; touch {outside}")), says("Done."))
    editor = turn(cli, TERMINALS)
    assert editor.terminal_log
    assert (cli.project / "inside").exists()
    assert not outside.exists()


def test_a_command_in_a_terminal_ends_at_its_limit_and_by_cancel(cli: CliHarness) -> None:
    cli.plays(
        calls(bash("echo on; sleep 100", timeout=300)), calls(bash("sleep 101")), says("Done.")
    )

    async def work() -> Any:
        async with agent(cli, capabilities=TERMINALS) as longrein:
            session = (await longrein.new()).session_id
            prompt = asyncio.create_task(longrein.prompt(session, "go"))
            await longrein.editor.wait_for(lambda: len(longrein.editor.terminals) == 2)
            await longrein.connection.cancel(session_id=session)
            assert await prompt == "cancelled"
            return longrein.editor

    editor = asyncio.run(work())
    assert [what for what, which in editor.terminal_log if which == "t0"][:2] == ["create", "kill"]
    assert {what for what, which in editor.terminal_log if which == "t1"} >= set(
        split_words("create kill release")
    )
    assert [status for status, _ in cli.results()] == ["failed", "interrupted"]
    assert "timed out after 0.3 s" in cli.results()[0][1]


@pytest.mark.parametrize("command", ["cd src && pwd", "sleep 0.1"])
def test_a_command_that_the_editor_cannot_serve_runs(cli: CliHarness, command: str) -> None:
    """A changed folder must be noticed, and a background task must outlive the editor."""
    (cli.project / "src").mkdir()
    cli.plays(
        calls(bash(command, **({} if "cd" in command else {"run_in_background": True}))),
        says("Done."),
    )
    editor = turn(cli, TERMINALS)
    assert editor.terminal_log == []
    assert cli.results()[0][0] == "ok"


def all_edits(question: Any) -> str:
    offered = [one.option_id for one in question.options]
    return "all_edits" if "all_edits" in offered else ONCE


@needs_bubblewrap
@pytest.mark.parametrize("confined", ["ask", "run"])
def test_an_editor_is_asked_about_confined_commands(cli: CliHarness, confined: str) -> None:
    cli.env["LONGREIN_CONFINED"] = confined
    cli.plays(
        *(calls(bash(text)) for text in ("ls", "python3 -c 1", "touch a", "true > b")),
        says("Done."),
    )
    editor = turn(cli, {}, lambda editor: setattr(editor, "choose", all_edits))
    titles = [question.tool_call.raw_input["command"] for question in editor.questions]
    assert titles == (["touch a"] if confined == "run" else ["python3 -c 1", "touch a"])
    assert (cli.project / "a").exists()
    assert (cli.project / "b").exists()
