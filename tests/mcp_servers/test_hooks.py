"""A4.1: hooks of the type `mcp_tool`, with a reference server that others wrote."""

import json
from typing import Any

import pytest

from longrein_context.events import HookAnswered
from tests.e2e.harness import BYPASS, CliHarness, bash, calls, of, says
from tests.mcp_servers.harness import fault, program, serve
from tests.timeouts import HANG_S


def use(cli: CliHarness, **hook: Any) -> None:
    table = {
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "mcp_tool", **hook}]}]}
    }
    (cli.home / ".claude").mkdir()
    (cli.home / ".claude/settings.json").write_text(json.dumps(table))
    cli.plays(calls(bash("touch ran.txt")), says("done"))


def test_a4_1_a_tool_of_a_server_decides(cli: CliHarness) -> None:
    """The server `filesystem` reads a file of the project, which holds the decision."""
    serve(cli, files={"command": program("mcp-server-filesystem"), "args": [str(cli.project)]})
    decision = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "by MCP",
    }
    (cli.project / "touch ran.txt").write_text(json.dumps({"hookSpecificOutput": decision}))
    path = f"{cli.project}/${{tool_input.command}}"
    use(
        cli,
        server="files",
        tool="read_text_file",
        input={"path": path, "other": "${nothing.here}", "n": 7},
        timeout=HANG_S,
    )
    assert cli.run("-p", "go", BYPASS).code == 0
    assert cli.results() == [("denied", "Denied: a hook refused this call: by MCP")]
    found = [(one.hook, one.decision) for one in of(cli, HookAnswered)]
    assert found == [("mcp__files__read_text_file", "deny")]


@pytest.mark.parametrize(("server", "tool", "flags", "said"), [
    ("nobody", "echo", (), "there is no MCP server 'nobody'"),
    ("s", "nothing", (), "the MCP server s has no such tool: it offers"),
    ("s", "echo", ("--disallowedTools", "mcp__s__echo"), "the rule mcp__s__echo forbids it"),
    ("dead", "echo", (), "the MCP server dead has no such tool"),
])  # fmt: skip
def test_a_tool_that_cannot_be_called_is_one_line(
    cli: CliHarness, server: str, tool: str, flags: tuple[str, ...], said: str
) -> None:
    serve(cli, s=fault("good"), dead={"command": "/nonexistent"})
    use(cli, server=server, tool=tool, input={"text": "hi"})
    ran = cli.run("-p", "go", BYPASS, *flags)
    assert (ran.code, ran.text) == (0, "done\n")
    assert len([line for line in ran.err.splitlines() if said in line]) == 1, ran.err
    assert (cli.project / "ran.txt").exists()
