"""What one tool puts at a path every tool sees at that path, and no write vanishes."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from .harness import CliHarness, Turn, background, bash, call, calls, needs_bubblewrap, says

pytestmark = needs_bubblewrap


@pytest.fixture
def name() -> Iterator[str]:
    """A name in /tmp that nobody else uses; whatever has it in the real /tmp is removed."""
    name = f"/tmp/one-world-{uuid4().hex}"
    yield name
    shutil.rmtree(name, ignore_errors=True)
    Path(name).unlink(missing_ok=True)


def results(cli: CliHarness, *turns: Turn, mode: str = "acceptEdits") -> list[tuple[str, str]]:
    """Run the calls of each turn in a session; return (status, text) of each result."""
    cli.plays(*(calls(turn) for turn in turns), says("so"))
    cli.run("-p", "x", "--permission-mode", mode)
    return cli.results()


def next_run(cli: CliHarness, first: Turn, second: Turn | None) -> str:
    """Run one call in a new session and another, if any, in its next run; return the last
    result.
    """
    script = [turn for one in (first, second) if one for turn in (calls(one), says("so"))]
    cli.plays(*script)
    for words in ((), ("-c",))[: len(script) // 2]:
        cli.run("-p", "x", *words, "--permission-mode", "acceptEdits")
    return cli.results()[-1][1]


def check(found: list[tuple[str, str]], *wanted: str) -> None:
    """Check that each result is ok and that the last ones hold these texts."""
    assert [text for status, text in found if status != "ok"] == []
    for (_, text), part in zip(found[-len(wanted) :], wanted, strict=True):
        assert part in text


def test_a_command_runs_what_a_file_tool_wrote_to_tmp(cli: CliHarness, name: str) -> None:
    written = call("Write", file_path=f"{name}.py", content="print(6 * 7)\n")
    try:
        check(results(cli, written, bash(f"python3 {name}.py"), mode="bypassPermissions"), "42")
        assert os.path.exists(f"{name}.py"), "what it says it made is there for the user"
    finally:
        Path(f"{name}.py").unlink(missing_ok=True)


def test_file_tools_find_what_a_command_wrote_to_tmp(cli: CliHarness, name: str) -> None:
    found = results(
        cli,
        bash(f"mkdir {name}; echo needle > {name}/y"),
        call("Read", file_path=f"{name}/y"),
        call("Grep", pattern="needle", path=name, output_mode="content"),
        call("Glob", pattern="*", path=name),
        call("Edit", file_path=f"{name}/y", old_string="needle", new_string="thread"),
        bash(f"cat {name}/y"),
    )
    check(found, "needle", "needle", f"{name}/y", "", "thread")


def test_a_task_and_a_hook_see_the_same_tmp(cli: CliHarness, name: str) -> None:
    line = f"test -e {name}.task && echo seen > {name}.hook; true"
    table = {"PostToolUse": [{"hooks": [{"type": "command", "command": line}]}]}
    (cli.home / ".claude").mkdir()
    (cli.home / ".claude/settings.json").write_text(json.dumps({"hooks": table}))
    found = results(
        cli,
        background(f"echo from a task > {name}.task; echo made"),
        bash(f"until test -s {name}.task; do sleep 0.01; done"),
        call("Read", file_path=f"{name}.task"),
        call("Read", file_path=f"{name}.hook"),
    )
    check(found, "from a task", "seen")


def test_a_file_of_the_users_tmp_is_outside(cli: CliHarness, name: str) -> None:
    Path(name).write_text("the user's")
    ((status, text),) = results(cli, call("Read", file_path=name))
    assert status != "ok"
    assert "outside the session's folders" in text


def test_a_file_of_the_users_tmp_is_read_where_a_rule_allows_it(cli: CliHarness, name: str) -> None:
    Path(name).write_text("the user's")
    cli.settings(f'[permissions]\nallow = ["Read(/{name})"]')
    check(results(cli, call("Read", file_path=name)), "the user's")


LOST = (
    "git config --global a.b c",
    "echo x > ~/.profile",
    "mkdir -p ~/new/folder",
    "echo x > /var/tmp/x",
    "echo x > /etc/x",
    "cp /etc/hostname ~",
    'python3 -c \'import os; open(os.path.expanduser("~/x"), "w")\'',
)


def test_no_write_vanishes(cli: CliHarness) -> None:
    (cli.home / ".gitconfig").write_text("[user]\nname = Ann\n")
    before = sorted(map(str, cli.home.rglob("*")))
    found = results(cli, *map(bash, LOST), bash("echo x > ~/.profile | cat"))
    for line, (_, text) in zip((*LOST, "pipe"), found, strict=True):
        assert "ead-only file system" in text or "ermission denied" in text, line
    assert "[exit code" in found[0][1]
    assert (cli.home / ".gitconfig").read_text() == "[user]\nname = Ann\n"
    assert {one for one in map(str, cli.home.rglob("*")) if ".cache" not in one} <= set(before)


def test_file_tools_read_the_caches_of_commands(cli: CliHarness) -> None:
    folder = next_run(cli, bash("echo cached > $XDG_CACHE_HOME/x; echo $XDG_CACHE_HOME"), None)
    path = folder.strip() + "/x"
    assert Path(path).read_text() == "cached\n"
    first = bash("echo again >> $XDG_CACHE_HOME/x")
    assert "again" in next_run(cli, first, call("Read", file_path=path))


@pytest.mark.parametrize("tool", ["Write", "Edit", "Read"])
def test_no_tool_follows_a_link_that_a_command_made_in_tmp(
    cli: CliHarness, name: str, tool: str
) -> None:
    target = cli.folder / "target"
    target.write_text("secret\n")
    more = {
        "Write": {"content": "evil"},
        "Edit": {"old_string": "secret", "new_string": "evil"},
        "Read": {},
    }
    found = results(cli, bash(f"ln -s {target} {name}"), call(tool, file_path=name, **more[tool]))
    assert found[1][0] != "ok"
    assert "secret" not in found[1][1]
    assert target.read_text() == "secret\n"


def test_the_next_run_of_the_session_finds_its_tmp(cli: CliHarness, name: str) -> None:
    assert "kept" in next_run(cli, bash(f"echo kept > {name}"), bash(f"cat {name}"))


def test_a_stopped_command_is_told_behind_a_pipe(cli: CliHarness) -> None:
    found = results(cli, bash("touch ~/x 2>&1 | cat"), bash("echo 'nothing' | cat"))
    assert "sandbox" in found[0][1]
    assert "sandbox" not in found[1][1]


def test_the_first_request_says_what_commands_can_do(cli: CliHarness) -> None:
    cli.plays(says("so"))
    cli.run("-p", "x")
    shown = str([entry.event for entry in cli.entries()][:4])
    for part in (
        "they can change the session's folders, /tmp",
        "Network of commands: none",
    ):
        assert part in shown
    assert "Nobody answers questions in this run" in shown
