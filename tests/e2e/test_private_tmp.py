"""A path means one file for commands, file tools and the user, also below `/tmp`."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import CliHarness, bash, call, calls, needs_bubblewrap, says

BYPASS = "--dangerously-skip-permissions"


@pytest.fixture
def tmp() -> Iterator[Path]:
    """A folder of the user's in the machine's own /tmp."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lr-") as folder:
        yield Path(folder)


@needs_bubblewrap
def test_what_the_user_names_is_there_for_commands(cli: CliHarness, tmp: Path) -> None:
    for name in ("named.csv", "other.csv", "two words.csv"):
        (tmp / name).write_text(name)
    named = f"{tmp}/named.csv"
    cli.plays(calls(bash(f"cat {named} '{tmp}/two words.csv' {tmp}/other.csv")), says("so"))
    cli.run("-p", f"look at {named}, and '{tmp}/two words.csv'.")
    (told,) = cli.reports()
    assert told.startswith("named.csvtwo words.csvcat: ")
    assert "other.csv: No such file" in told


@needs_bubblewrap
def test_a_socket_that_the_user_names_stays_out_of_reach(cli: CliHarness, tmp: Path) -> None:
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(f"{tmp}/daemon")
        daemon.listen()
        cli.plays(calls(bash(f"test -e {tmp}/daemon || echo hidden")), says("so"))
        cli.run("-p", f"who serves {tmp}/daemon?")
    assert cli.reports() == ["hidden"]


@needs_bubblewrap
def test_what_a_file_tool_names_is_the_same_file_for_all(cli: CliHarness, tmp: Path) -> None:
    (tmp / "read").write_text("old")
    cli.plays(
        calls(call("Read", file_path=f"{tmp}/read")),
        calls(call("Write", file_path=f"{tmp}/new/made", content="hi")),
        calls(bash(f"cat {tmp}/read {tmp}/new/made")),
        calls(bash(f"echo x > {tmp}/read")),
        says("so"),
    )
    cli.run("-p", "go", BYPASS)
    _, wrote, seen, changed = cli.reports()
    assert wrote == f"Created {tmp}/new/made (1 line, 2 bytes)."
    assert (tmp / "new/made").read_text() == "hi"
    assert seen == "oldhi"
    assert "Read-only file system" in changed
    assert (tmp / "read").read_text() == "old"


@needs_bubblewrap
def test_a_file_tool_asks_for_a_path_below_tmp_as_for_any_outside(
    cli: CliHarness, tmp: Path
) -> None:
    cli.plays(calls(call("Write", file_path=f"{tmp}/made", content="hi")), says("so"))
    cli.run("-p", "go", "--permission-mode", "acceptEdits")
    assert [status for status, _ in cli.results()] == ["denied"]
    assert os.listdir(tmp) == []


@needs_bubblewrap
def test_a_file_of_a_commands_own_tmp_says_where_it_lies(cli: CliHarness, tmp: Path) -> None:
    path = f"{tmp}.made"
    cli.plays(
        calls(bash(f"echo x > {path}")),
        calls(call("Read", file_path=path)),
        calls(call("Edit", file_path=path, old_string="x", new_string="y")),
        calls(bash(f"cat {path}")),
        says("so"),
    )
    cli.run("-p", "go", "--permission-mode", "acceptEdits")
    _, read, edited, seen = cli.reports()
    lies = f"{path} (in the commands' own /tmp: {cli.session_folder()}/sandbox/tmp/"
    assert f"[{lies}" in read
    assert f"Edited {lies}" in edited
    assert seen == "y"
    assert not os.path.exists(path)


@needs_bubblewrap
def test_secrets_and_what_rules_forbid_stay_hidden_though_named(cli: CliHarness) -> None:
    secret, forbidden = cli.home / ".ssh/id", cli.home / "forbidden"
    secret.parent.mkdir()
    for path in (secret, forbidden, cli.home / "notes"):
        path.write_text("content of it")
    words = f"{secret} {forbidden} {cli.home}/notes {cli.home} /tmp"
    reads = "print(open('{0}').read(), end=' ')"
    programs = [f'python3 -c "{reads.format(one)}"' for one in words.split()[:3]]
    cli.plays(calls(*map(bash, programs)), says("so"))
    cli.run("-p", f"look at {words}", "--disallowedTools", f"Read(/{forbidden})")
    assert [told.count("content of it") for told in cli.reports()] == [0, 0, 1]
