"""`longrein export --whole`, `longrein import`: sessions move between machines and come from
other agents.
"""

import json
from contextlib import closing
from pathlib import Path

import pytest

from longrein.agent.session import SNAPSHOT_FROM
from longrein.store import Reader
from longrein.testing.loopback import Turn
from longrein_context import fold
from longrein_context.events import ModeSet, Reminded
from longrein_context.snapshot_codec import decode_state
from tests.transcripts.fixtures import CLAUDE_ID, CODEX_ID, ClaudeFile, Line, text, uses, write
from tests.transcripts.test_claude_code import conversation as claude_conversation
from tests.transcripts.test_codex import conversation as codex_conversation

from .harness import CliHarness, bash, calls, says
from .test_children import serve


def claude_lines() -> list[Line]:
    file = ClaudeFile()
    file.said("why does the build fail?", parent=None)
    file.reply("m1", uses("t1", "Bash", command="make"))
    file.result("t1", "the key is sk-ant-api03-" + "a1B2" * 24)
    file.reply("m2", text("A rule is missing."))
    return file.lines


def test_a_session_moves_to_another_machine_and_goes_on(cli: CliHarness, tmp_path: Path) -> None:
    cli.plays(calls(bash("echo $((40+2))")), says("It is 42."))
    assert cli.run("-p", "count", "--permission-mode", "bypassPermissions").code == 0
    session, file = cli.session, str(tmp_path / "s.zip")
    done = cli.run("export", session, "--whole", "-o", file)
    assert (done.code, done.text) == (0, "")
    there = tmp_path / "there"
    there.mkdir()
    new = {"LONGREIN_STATE_DIR": str(tmp_path / "new")}
    done = cli.run("import", file, cwd=there, env=new)
    assert done.code == 0, done.err
    assert done.text.startswith(f"imported {session}: ")
    assert (
        f"It works in {there}, not in {cli.project} where it was; go on with `longrein -r "
        f"{session}`" in done.text
    )
    cli.plays(*[says("It was 42.")] * 5)  # the script counts the replies of the whole conversation
    done = cli.run("-p", "-r", session, "what was it?", cwd=there, env=new)
    assert (done.code, done.text) == (0, "It was 42.\n")
    cli.state = tmp_path / "new"
    events = [entry.event for entry in cli.entries(session)]
    assert ModeSet("default") in events
    (moved,) = (
        event for event in events if isinstance(event, Reminded) and event.kind == "session_moved"
    )
    assert str(there) in moved.text
    again = cli.run("import", file, cwd=there, env=new)
    assert (again.code, again.text) == (1, "")
    assert f"there is already a session {session}" in again.err


@pytest.mark.parametrize(("form", "session"), [("claude", CLAUDE_ID), ("codex", CODEX_ID)])
def test_a_transcript_of_another_agent_becomes_a_session_that_goes_on(
    cli: CliHarness, tmp_path: Path, form: str, session: str
) -> None:
    lines = claude_lines() if form == "claude" else codex_conversation()
    path = write(tmp_path / "t.jsonl", [*lines[:2], b"{broken", b"\xff\xfe", b"[1]", *lines[2:]])
    done = cli.run("import", str(path))
    assert (done.code, done.err) == (0, "")
    assert done.text.startswith(f"imported {session}: 1 message, 2 replies, ")
    assert "Skipped: 3 lines that cannot be read" in done.text
    assert "Not taken over: " in done.text
    assert "sk-ant-api03" not in repr(cli.entries(session))
    cli.plays(*[says("I know.")] * 9)  # the script counts the replies of the whole conversation
    assert cli.run("-p", "-r", session, "and now?").text == "I know.\n"
    assert cli.run("-p", "-c", "and now?").text == "I know.\n"
    again = cli.run("import", str(path))
    assert again.code == 1
    assert f"there is already a session {session}" in again.err
    assert session in cli.run("sessions").text
    assert "A rule is missing." in cli.run("search", "rule is missing").text


def test_a_long_import_leaves_the_snapshot_that_its_first_turn_resumes_from(
    cli: CliHarness, tmp_path: Path
) -> None:
    file = ClaudeFile()
    for n in range(SNAPSHOT_FROM // 3):
        file.said(f"question {n}")
        file.reply(f"m{n}", text(f"answer {n}"))
    assert cli.run("import", str(write(tmp_path / "t.jsonl", file.lines))).code == 0
    with closing(Reader(str(cli.state), CLAUDE_ID)) as reader:
        kept = reader.snapshot()
        assert kept is not None
        assert kept.seq == reader.tail()[0]
        assert decode_state(kept.state) == fold(reader.entries())
    bundle = str(tmp_path / "s.zip")
    assert cli.run("export", CLAUDE_ID, "--whole", "-o", bundle).code == 0
    cli.state = tmp_path / "new"
    new = {"LONGREIN_STATE_DIR": str(cli.state)}
    assert cli.run("import", bundle, env=new).code == 0
    with closing(Reader(str(cli.state), CLAUDE_ID)) as reader:
        moved = reader.snapshot()
        assert moved is not None
        assert decode_state(moved.state) == fold(reader.entries())


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_every_provider_takes_an_imported_conversation(
    cli: CliHarness, tmp_path: Path, wire: str
) -> None:
    claude = write(tmp_path / "a.jsonl", claude_conversation().lines)
    codex = write(tmp_path / "b.jsonl", codex_conversation())
    assert cli.run("import", str(claude), str(codex)).code == 0
    with serve(cli, Turn(text="I know."), Turn(text="I know."), wire=wire) as provider:
        for session in (CLAUDE_ID, CODEX_ID):
            done = cli.run("-p", "-r", session, "and now?", "--model", "served/small")
            assert (done.code, done.text) == (0, "I know.\n"), done.err
        for request in provider.requests:
            assert "A rule is missing." in json.dumps(request.json)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty, or holds no JSON object"),
        (b"PK\x03\x04rest", "is damaged"),
        (b"\x00" * 100_000, "is empty, or holds no JSON object"),
        (b'{"type":"user"}\n' * 3, "no transcript of Claude Code or Codex"),
        (b'{"type":"user","message":{"content":""}}\n', "holds no conversation"),
        (b"[" * 200_000 + b"\n", "is empty, or holds no JSON object"),
    ],
)
def test_a_file_that_cannot_be_imported_is_one_line_and_leaves_nothing(
    cli: CliHarness, tmp_path: Path, content: bytes | None, told: str
) -> None:
    path = tmp_path / "x"
    if content is not None:
        path.write_bytes(content)
    done = cli.run("import", str(path))
    assert (done.code, done.text) == (1, "")
    assert told in done.err
    assert done.err.count("\n") == 1
    assert cli.sessions == []


def test_several_files_are_imported_one_by_one(cli: CliHarness, tmp_path: Path) -> None:
    good, bad = write(tmp_path / "a.jsonl", claude_lines()), tmp_path / "none"
    done = cli.run("import", str(bad), str(good), str(tmp_path))
    assert done.code == 1
    assert done.text.startswith(f"imported {CLAUDE_ID}")
    assert done.err.count("\n") == 2
    assert cli.run("import").code == 2


def test_exports_refuse_what_makes_no_sense(cli: CliHarness, tmp_path: Path) -> None:
    cli.run("import", str(write(tmp_path / "a.jsonl", claude_lines())))
    assert cli.run("export", CLAUDE_ID, "--whole", "--format", "html").code == 2
    page = tmp_path / "p.html"
    assert cli.run("export", CLAUDE_ID, "--format", "html", "-o", str(page)).code == 0
    assert "A rule is missing." in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    assert cli.run("export", CLAUDE_ID, "--format", "html", "-o", str(page)).code == 2
    atif = json.loads(cli.run("export", CLAUDE_ID, "--format", "atif").text)
    assert atif["schema_version"] == "ATIF-v1.8"
