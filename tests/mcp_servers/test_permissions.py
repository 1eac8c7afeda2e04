"""A10, S081: calls of servers' tools ask, whatever the server claims of them."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from longrein.agent.messages import Answer
from longrein.agent.session import Approvals, Session
from longrein.permissions import Rules
from longrein_context.events import PermissionAsked
from tests.e2e.harness import BYPASS, CliHarness, call, calls, says
from tests.mcp_servers.harness import fault, late, prefixes, serve

RULES: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("no rule", (), False),
    ("the server", ("--allowedTools", "mcp__s"), True),
    ("all tools of the server", ("--allowedTools", "mcp__s__*"), True),
    ("the tool", ("--allowedTools", "mcp__s__echo"), True),
    ("another tool", ("--allowedTools", "mcp__s__other"), False),
    ("another server", ("--allowedTools", "mcp__s2"), False),
    ("edits are accepted", ("--permission-mode", "acceptEdits"), False),
    ("auto", ("--permission-mode", "auto"), False),
    ("plan mode", ("--permission-mode", "plan"), False),
    ("bypassed", (BYPASS,), True),
    ("bypassed, but denied", (BYPASS, "--disallowedTools", "mcp__s"), False),
)


@pytest.mark.parametrize("mode", ["good", "claims"])
@pytest.mark.parametrize(
    ("flags", "runs"), [row[1:] for row in RULES], ids=[row[0] for row in RULES]
)
def test_a_call_of_a_servers_tool(
    cli: CliHarness, mode: str, flags: tuple[str, ...], runs: bool
) -> None:
    """In the mode `claims` the server says that its tools only read."""
    serve(cli, s=fault(mode))
    cli.plays(calls(call("mcp__s__echo", text="hi")), says("done"))
    cli.run("-p", "go", *flags)
    assert [status for status, _ in cli.results()] == ["ok" if runs else "denied"], cli.results()


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize(("deny", "stays", "gone"), [
    ("mcp__s", "Bash mcp__t__echo", "mcp__s__echo"),
    ("mcp__s__echo", "Bash mcp__t__echo", "mcp__s__echo"),
    ("mcp__*", "Bash", "mcp__s__echo mcp__t__echo"),
    ("Bash", "Read mcp__s__echo mcp__t__echo", "Bash"),
    ("Bash(*),KillShell", "Agent mcp__s__echo", "Bash TaskStop"),
    ("Edit,Bash(rm *),Task(explore)", "Bash Agent mcp__s__echo", "Edit Write"),
])  # fmt: skip
def test_a_tool_that_a_rule_denies_altogether_is_not_offered(
    cli: CliHarness, deny: str, stays: str, gone: str, deferred: bool
) -> None:
    serve(cli, s=fault("good"), t=fault("good"))
    cli.settings("[mcp]\nlisted_tokens_max = 0\n" if deferred else "")
    cli.plays(calls(call("ToolSearch", query="mcp__s__echo, mcp__t__echo")), says("done"))
    assert cli.run("-p", "go", "--disallowedTools", deny).text == "done\n"
    last = prefixes(cli)[-1]
    offered = {spec.name for spec in (*last.tools, *last.deferred)}
    assert offered >= set(stays.split())
    assert not offered & set(gone.split())
    found = cli.results()[0][1]
    assert [name for name in stays.split() if "mcp" in name and f"## {name}" not in found] == []
    assert [name for name in gone.split() if f"## {name}" in found] == []


def test_an_argument_named_command_is_no_shell_command(cli: CliHarness) -> None:
    """`ls` needs no question as a command of Bash; as an argument of a server's tool it says
    nothing.
    """
    serve(cli, s=fault("claims"))
    cli.plays(
        calls(late("mcp__s__run", command="ls"), late("mcp__s__echo", command="ls", text="x")),
        says("done"),
    )
    cli.run("-p", "go", "--permission-mode", "auto")
    assert [status for status, _ in cli.results()] == ["denied", "denied"]


def test_resources_are_listed_without_and_read_with_a_question(cli: CliHarness) -> None:
    serve(cli, s=fault("good"))
    made = calls(
        late("ListMcpResourcesTool"), late("ReadMcpResourceTool", server="s", uri="note://one")
    )
    cli.plays(made, says("done"))
    cli.run("-p", "go")
    assert [status for status, _ in cli.results()] == ["ok", "denied"]
    assert cli.results()[0][1] == "@s:note://one  one A note."


def test_a_project_server_is_started_only_after_trust_and_approval(cli: CliHarness) -> None:
    """S047, S054, S058: until then no program of the project runs."""
    mark = cli.project / "started"
    entry = {"command": "sh", "args": ["-c", f"touch {mark}; exit 1"]}
    (cli.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"evil": entry}}))
    cli.plays(says("done"), says("done"), says("done"))
    untrusted = cli.run("-p", "go")
    assert "not read, because this folder is not trusted: .mcp.json" in untrusted.err
    assert cli.run("mcp", "test").code == 1
    assert not mark.exists()
    assert cli.run("trust").code == 0
    (cli.project / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"evil": {**entry, "env": {"A": "1"}}}})
    )
    changed = cli.run("-p", "go")
    assert (
        "not started, because you have not approved them: MCP servers evil; `longrein mcp approve`"
        in changed.err
    )
    assert not mark.exists()
    assert cli.run("mcp", "approve").code == 0
    cli.run("-p", "go")
    assert mark.exists()


def test_the_environment_of_a_server_has_no_keys(cli: CliHarness) -> None:
    """S069."""
    script = "import os, json; open('env.json', 'w').write(json.dumps(dict(os.environ)))"
    serve(cli, s={"command": "python3", "args": ["-c", script], "env": {"OWN": "yes"}})
    cli.plays(says("done"))
    cli.run("-p", "go", env={"ANTHROPIC_API_KEY": "sk-ant-canary", "SOME_TOKEN": "canary"})
    environ = json.loads((cli.project / "env.json").read_text())
    assert "canary" not in str(environ)
    assert (environ["OWN"], environ["CLAUDE_PROJECT_DIR"]) == ("yes", str(cli.project))


def test_without_the_extra_one_line_says_how_to_install_it(cli: CliHarness, tmp_path: Path) -> None:
    """A stand-in hides the package."""
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide/sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\nfound = "
        "PathFinder.find_spec\nPathFinder.find_spec = lambda name, path=None, target=None: None if "
        "name.split('.')[0] in ('mcp', 'mcp_types') else found(name, path, target)\n"
    )
    serve(cli, s=fault("good"))
    cli.plays(calls(late("mcp__s__echo", text="x")), says("done"))
    run = cli.run("-p", "go", BYPASS, env={"PYTHONPATH": str(tmp_path / "hide")})
    assert run.code == 0, run.told()
    assert run.err.count("pip install 'longrein[mcp]'") == 1
    assert cli.results()[0][0] == "failed"


CHANGED: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("the tool", "changes", ("--allowedTools", "mcp__s__echo"), "denied"),
    ("the server", "changes", ("--allowedTools", "mcp__s"), "denied"),
    ("all tools of the server", "grows", ("--allowedTools", "mcp__s__*"), "denied"),
    ("bypassed", "changes", (BYPASS,), "ok"),
)


@pytest.mark.parametrize(
    ("mode", "flags", "status"), [row[1:] for row in CHANGED], ids=[row[0] for row in CHANGED]
)
def test_S081_a_tool_that_its_server_changes_is_asked_about_again(
    cli: CliHarness, mode: str, flags: tuple[str, ...], status: str
) -> None:
    """Its definition on the wire stays the one that was approved; other tools of the server are
    allowed as before.
    """
    serve(cli, s=fault(mode, str(cli.project / "changed")))
    echo = call("mcp__s__echo", text="hi")
    more = [calls(late("mcp__s__later", text="x"))] if mode == "grows" else []
    cli.plays(calls(echo), calls(echo), *more, says("done"), calls(echo), says("again"))
    run = cli.run("-p", "go", *flags)
    assert [status for status, _ in cli.results()] == ["ok", status, *["ok" for _ in more]], (
        cli.results()
    )
    assert "MCP servers have changed mcp__s__echo: calls are asked about again" in run.err
    (cli.project / "changed").unlink()
    assert {
        spec.description
        for prefix in prefixes(cli)
        for spec in prefix.tools
        if spec.name == "mcp__s__echo"
    } <= {"The tool echo."}


def test_S081_a_tool_that_changed_between_two_runs_of_a_session_is_asked_about_again(
    cli: CliHarness,
) -> None:
    changed = cli.project / "changed"
    serve(cli, s=fault("changes", str(changed)))
    echo = calls(call("mcp__s__echo", text="hi"))
    cli.plays(says("done"), echo, echo, says("again"))
    assert cli.run("-p", "go").code == 0
    changed.touch()
    cli.run("-p", "-c", "more", "--allowedTools", "mcp__s")
    first, second = (
        cli.results()
    )  # the first may come before the server has said what it offers now
    assert first[0] == "denied" or "it has changed this tool since the call was allowed" in first[1]
    assert second[0] == "denied"


def test_S081_a_new_answer_of_the_user_holds_for_the_changed_tool() -> None:
    session = SimpleNamespace(
        approvals=Approvals(), notice=lambda _line: None, rules=Rules(base="/w")
    )
    session.approvals.ask_again(["mcp__s__echo", "mcp__s__other"])
    question = PermissionAsked("c1", "mcp__s__echo", "", "", "mcp__s__echo")
    Session.grant(session, Answer("c1", "allow", scope="session", rule="mcp__s__echo"), question)  # type: ignore[arg-type]
    assert session.approvals.changed_tools == ("mcp__s__other",)
