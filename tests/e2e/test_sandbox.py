"""The sandbox as the user meets it: what runs unasked, what leaves it, and what is said where
none works.
"""

import json
from typing import Any

import pytest

from longrein.workspace.sandbox import landlock

from .harness import CliHarness, bash, calls, needs_bubblewrap, needs_sandbox, says

LACKING = landlock.available()
"""Why Landlock does not work here; '' where it does, so that a broken bubblewrap is no end of
the sandbox.
"""
only_without_landlock = pytest.mark.skipif(not LACKING, reason="Landlock works here")


def broken_program(cli: CliHarness) -> None:
    """Put a bubblewrap in front on the search path that cannot make a namespace."""
    program = cli.folder / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    cli.env["PATH"] = f"{program.parent}:{cli.env['PATH']}"


@needs_bubblewrap
def test_a_confined_command_runs_unasked_and_one_outside_asks(cli: CliHarness) -> None:
    cli.plays(
        calls(bash('python3 -c \'open("made", "w"); print(6 * 7)\'')),
        calls(bash("touch more", outside_sandbox="it needs the network")),
        says("so"),
    )
    ran = cli.run("-p", "x")
    assert ran.code == 3
    (first, printed), (second, told) = cli.results()
    assert (first, printed) == ("ok", "42")
    assert (second, "outside the sandbox" in told) == ("denied", True)
    assert (cli.project / "made").exists()
    assert not (cli.project / "more").exists()


@needs_bubblewrap
@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("echo x > /usr/x", "[the sandbox probably stopped a write: "),
        (
            "python3 -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'",
            "[the sandbox has no network: ",
        ),
        ("echo fine; exit 3", ""),
    ],
)
def test_a_command_that_the_sandbox_stopped_says_so(
    cli: CliHarness, command: str, note: str
) -> None:
    cli.plays(calls(bash(command)), says("so"))
    cli.run("-p", "x")
    ((status, told),) = cli.results()
    assert status == "failed"
    assert ("outside_sandbox asks the user" in told, note in told) == (bool(note), True)


@needs_sandbox
def test_settings_that_a_command_made_are_moved_away_and_told(cli: CliHarness) -> None:
    cli.plays(calls(bash("echo x > .mcp.json; echo y > notes")), says("so"))
    assert cli.run("-p", "x", "--permission-mode", "acceptEdits").code == 0
    ((status, told),) = cli.results()
    assert (status, f"{cli.project}/.mcp.json (now {cli.state}" in told) == ("ok", True)
    assert not (cli.project / ".mcp.json").exists()
    assert (cli.project / "notes").exists()


WAITS = "while [ ! -e go ]; do sleep 0.05; done"


@needs_sandbox
@pytest.mark.parametrize("rung", ["bubblewrap", "landlock"])
@pytest.mark.parametrize(
    ("command", "more"),
    [
        (f"echo x > .envrc; {WAITS}", {"timeout": 300}),
        (f"{WAITS}; echo x > .envrc", {"timeout": 300}),
        (f"echo x > .envrc; {WAITS}", {"run_in_background": True}),
        (f"{WAITS}; echo x > .envrc", {"run_in_background": True}),
    ],
    ids=["before its limit", "after its limit", "at its start", "at its end"],
)
def test_what_a_command_in_the_background_made_is_told_by_its_call_or_its_end(
    cli: CliHarness, command: str, more: dict[str, Any], rung: str
) -> None:
    if rung == "landlock":
        if LACKING:
            pytest.skip(LACKING)
        broken_program(cli)
    cli.plays(calls(bash(command, **more)), calls(bash("touch go")), says("so"), says("so"))
    wait = ("--wait-tasks", "60")
    assert cli.run("-p", "x", "--permission-mode", "acceptEdits", *wait).code == 0
    assert not (cli.project / ".envrc").exists()
    assert "".join(cli.reports()).count(f"{cli.project}/.envrc (now {cli.state}") == 1


@needs_bubblewrap
def test_what_a_rule_forbids_to_change_is_read_only(cli: CliHarness) -> None:
    (cli.project / "kept").mkdir()
    (cli.project / "kept/file").write_text("old")
    trick = (
        'python3 -c \'open("ke" + "pt/file", "w")\'; python3 -c \'open("fr" + "ee", "w")\'; '
        "cat kept/file"
    )
    cli.plays(calls(bash(trick)), says("so"))
    cli.run("-p", "x", "--disallowedTools", "Edit(kept/**)")
    assert (cli.project / "kept/file").read_text() == "old"
    assert (cli.project / "free").exists()


@only_without_landlock
def test_S094_without_the_required_sandbox_nothing_starts(cli: CliHarness) -> None:
    broken_program(cli)
    cli.settings('[sandbox]\nmode = "required"')
    cli.plays(calls(bash("touch made")), says("so"))
    ran = cli.run("-p", "x", "--dangerously-skip-permissions")
    assert ran.code == 2
    assert "No permissions to create a new namespace" in ran.err
    assert "longrein doctor" in ran.err
    assert not (cli.project / "made").exists()


@only_without_landlock
def test_S094_without_a_sandbox_commands_ask(cli: CliHarness) -> None:
    broken_program(cli)
    cli.plays(calls(bash("touch made")), says("so"))
    assert cli.run("-p", "x").code == 3
    assert not (cli.project / "made").exists()
    assert (
        "none, so commands run as you and ask: bubblewrap does not work here"
        in cli.run("doctor").text
    )


@pytest.mark.parametrize("mode", ["off", "required"])
def test_a_project_may_only_narrow_the_sandbox(cli: CliHarness, mode: str) -> None:
    (cli.project / ".longrein").mkdir()
    (cli.project / ".longrein/config.toml").write_text(f'[sandbox]\nmode = "{mode}"\n')
    assert cli.run("trust").code == 0
    cli.plays(says("so"))
    broken_program(cli)
    ran = cli.run("-p", "x")
    assert ("can only be narrowed" in ran.err, ran.code) == (
        (True, 0) if mode == "off" else (False, 2 if LACKING else 0)
    )


def test_the_first_line_names_the_sandbox(cli: CliHarness) -> None:
    broken_program(cli)
    cli.plays(says("so"))
    first = json.loads(
        cli.run("-p", "x", "--output-format", "stream-json", "--verbose").out.splitlines()[0]
    )
    assert first["sandbox"] == ("none" if LACKING else "landlock")


@pytest.mark.skipif(bool(LACKING), reason=LACKING or "Landlock works")
def test_landlock_cannot_lock_a_file_so_the_command_asks(cli: CliHarness) -> None:
    broken_program(cli)
    (cli.project / "kept").write_text("old")
    cli.plays(calls(bash("perl -e 'open F, q(>kept)'")), calls(bash("touch made")), says("so"))
    assert cli.run("-p", "x", "--disallowedTools", "Edit(kept)").code == 3
    assert (cli.project / "kept").read_text() == "old"
    cli.plays(calls(bash("touch made")), says("so"))
    assert cli.run("-p", "x", "--permission-mode", "acceptEdits").code == 0
    assert (cli.project / "made").exists()
