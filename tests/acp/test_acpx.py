"""A8 with a client that somebody else wrote: acpx, a headless ACP client on npm that uses the
TypeScript SDK.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acp.harness import file
from tests.e2e.harness import CliHarness, bash, call, calls, says
from tests.timeouts import HANG_S

BIN = Path(sys.prefix) / "node/node_modules/.bin"
pytestmark = pytest.mark.skipif(
    not (BIN / "acpx").exists(), reason="needs acpx, which `make clients` installs"
)

EDIT = call("Edit", file_path="app.py", old_string="two", new_string="2")


def acpx(
    cli: CliHarness, *words: str, permissions: str = "--approve-all", form: str = "text"
) -> str:
    """Run acpx in the project with `longrein acp` as its agent; return its stdout."""
    agent = f"{cli.command[0]} acp"
    done = subprocess.run(
        [
            "acpx",
            "--cwd",
            str(cli.project),
            permissions,
            "--format",
            form,
            "--ttl",
            "1",
            "--agent",
            agent,
            *words,
        ],
        env={**cli.env, "PATH": f"{BIN}{os.pathsep}{cli.env['PATH']}"},
        cwd=cli.project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_turn_with_files_and_a_terminal_of_the_client(cli: CliHarness) -> None:
    path = file(cli, "app.py", "one\ntwo\n")
    cli.plays(
        calls(call("Read", file_path="app.py"), thinking="First I look."),
        calls(EDIT),
        calls(bash("echo hi")),
        says("Ready."),
    )
    told = acpx(cli, "exec", "change it")
    for step in (
        "[thinking] First I look.",
        "[client] fs/read_text_file",
        "[client] session/request_permission",
        "[client] fs/write_text_file",
        "[client] terminal/create",
        "[client] terminal/release",
        "[tool] Edit app.py (completed)",
        "Ready.",
        "[done] end_turn",
    ):
        assert step in told, told
    assert path.read_text() == "one\n2\n"
    assert [status for status, _ in cli.results()] == ["ok", "ok", "ok"]


def test_a_client_that_denies(cli: CliHarness) -> None:
    path = file(cli, "app.py", "one\ntwo\n")
    cli.plays(calls(call("Read", file_path="app.py")), calls(EDIT), says("I may not."))
    told = acpx(cli, "exec", "change it", permissions="--deny-all")
    assert "[tool] Edit app.py (failed)" in told
    assert "I may not." in told
    assert path.read_text() == "one\ntwo\n"


def test_every_line_is_a_message(cli: CliHarness) -> None:
    cli.plays(says("Hello."))
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in acpx(cli, "exec", "hi", form="json").splitlines()
    ]
    assert all(line["jsonrpc"] == "2.0" for line in lines)
    assert lines[-1]["result"]["stopReason"] == "end_turn"


def test_a_session_over_several_processes(cli: CliHarness) -> None:
    cli.plays(says("One."), says("Two."))
    acpx(cli, "sessions", "new")
    assert "One." in acpx(cli, "prompt", "first")
    # the owner of the queue leaves after a second, and refuses what comes in that moment; the
    # next command resumes the session
    assert cli.wait_survivors() == []
    assert "mode set: plan" in acpx(cli, "set-mode", "plan")
    assert cli.wait_survivors() == []
    again = acpx(cli, "prompt", "second")
    assert "session/resume" in again
    assert "Two." in again
    assert cli.said() == ["One.", "Two."]
    assert cli.wait_survivors() == []
