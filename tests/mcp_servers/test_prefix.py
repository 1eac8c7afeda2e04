"""A7, A18.10, S081: what servers do never changes the prefix but by an entry with a reason."""

import json
from pathlib import Path

import pytest

from longrein.testing.loopback import Call, Received, Turn
from longrein_context import fold
from longrein_context.events import Asked, Reminded
from tests.e2e.harness import BYPASS, CliHarness, Provider, call, calls, says
from tests.e2e.test_children import serve as provider
from tests.mcp_servers.harness import fault, late, prefixes, serve


def reasons(cli: CliHarness) -> list[str]:
    return [prefix.reason for prefix in prefixes(cli)]


def requests_after_first_prefix(cli: CliHarness) -> list[int]:
    """Seq of the prefix of each request."""
    return [entry.event.prefix for entry in cli.entries() if isinstance(entry.event, Asked)]


def reminders(cli: CliHarness) -> str:
    return "\n".join(
        e.event.text
        for e in cli.entries()
        if isinstance(e.event, Reminded) and e.event.kind == "mcp_changed"
    )


def test_tools_enter_the_prefix_once_before_the_first_request(cli: CliHarness) -> None:
    serve(cli, s=fault("good"))
    cli.plays(calls(call("mcp__s__echo", text="hi")), says("done"), says("again"))
    assert cli.run("-p", "go", BYPASS).code == 0
    assert (
        cli.run("-p", "-c", "more", BYPASS).code == 0
    )  # resumed: the same bytes, though the server is not there yet
    assert reasons(cli) == ["start", "tools"]
    assert len(set(requests_after_first_prefix(cli))) == 1
    names = [spec.name for spec in prefixes(cli)[-1].tools]
    assert names[-2:] == ["ToolSearch", "CallTool"]
    assert "mcp__s__echo" in names
    assert any("| Be kind." in text for text in prefixes(cli)[-1].context)


def test_a_resumed_session_whose_server_is_gone_keeps_its_prefix(cli: CliHarness) -> None:
    serve(cli, s=fault("good"))
    cli.plays(says("done"), calls(call("mcp__s__echo", text="hi")), says("again"))
    assert cli.run("-p", "go", BYPASS).code == 0
    serve(cli, s=fault("dead"))
    assert cli.run("-p", "-c", "more", BYPASS).code == 0
    assert reasons(cli) == ["start", "tools"]
    assert cli.results()[0][0] == "failed"
    assert "cannot work here" in cli.results()[0][1]


def test_a_server_that_is_removed_from_the_settings_is_a_break_with_a_reason(
    cli: CliHarness,
) -> None:
    serve(cli, s=fault("good"))
    cli.plays(says("done"), says("again"))
    assert cli.run("-p", "go", BYPASS).code == 0
    serve(cli)
    assert cli.run("-p", "-c", "more", BYPASS).code == 0
    assert reasons(cli) == ["start", "tools", "tools"]


@pytest.mark.parametrize("mode", ["grows", "changes"])
def test_list_changed_keeps_the_prefix_and_tells_the_model(
    cli: CliHarness, mode: str, tmp_path: Path
) -> None:
    serve(cli, s=fault(mode, str(tmp_path / "changed")))
    steps = [
        calls(call("mcp__s__echo", text="hi")),
        calls(call("ToolSearch", query="mcp__s__later")),
    ]
    cli.plays(
        *steps,
        calls(late("mcp__s__later", text="x") if mode == "grows" else call("mcp__s__echo")),
        says("done"),
    )
    assert cli.run("-p", "go", BYPASS).code == 0
    assert reasons(cli) == ["start", "tools"]
    assert len(set(requests_after_first_prefix(cli))) == 1
    described = [
        spec.description for spec in prefixes(cli)[-1].tools if spec.name == "mcp__s__echo"
    ]
    assert described == ["The tool echo."]  # the old definition stays
    told = reminders(cli)
    assert "mcp__s__echo" in told
    assert [status for status, _ in cli.results()] == ["ok"] * 3
    if mode == "grows":
        assert "new: mcp__s__later" in told
        assert "## mcp__s__later" in cli.results()[1][1]


def test_a_slow_server_is_found_later(cli: CliHarness) -> None:
    """The first request does not wait longer than `mcp.wait_s`."""
    serve(cli, s=fault("until go"))
    echo = late("mcp__s__echo", text="hi")["arguments"]

    def answer(request: Received) -> Turn:
        if "echo hi" in request.said:
            return Turn(text="done")
        if "new: mcp__s__echo" in request.said:
            return Turn(calls=(Call("CallTool", echo),))
        return Turn(calls=(Call("Bash", {"command": "touch go; sleep 0.2"}),))

    with Provider(script=answer) as served:
        cli.settings(served.settings("anthropic", "[mcp]\nwait_s = 0"), "served/small")
        run = cli.run("-p", "go", BYPASS)
    assert run.code == 0, run.told()
    assert "MCP servers not connected yet: s" in run.err
    assert reasons(cli)[0] == "start"
    assert len(set(requests_after_first_prefix(cli))) == 1
    assert cli.results()[-1] == ("ok", "echo hi")
    assert "new: mcp__s__echo" in reminders(cli)


def test_two_hundred_tools_cost_a_small_first_request_and_are_found_in_two_steps(
    cli: CliHarness,
) -> None:
    serve(cli, s=fault("many"))
    cli.plays(
        calls(call("ToolSearch", query="thing number 137")),
        calls(late("mcp__s__tool_137", text="hi")),
        says("done"),
    )
    assert cli.run("-p", "go", BYPASS).code == 0
    assert "## mcp__s__tool_137" in cli.results()[0][1]
    assert cli.results()[1] == ("ok", "echo hi")
    prefix = prefixes(cli)[-1]
    assert sum(spec.name.startswith("mcp__") for spec in prefix.deferred) == 200
    size = (
        len(json.dumps([spec.sent for spec in prefix.tools]))
        + len(prefix.system)
        + sum(map(len, prefix.context))
    )
    assert size <= 20_000, size


def test_a_request_after_a_restart_of_the_server_begins_with_the_same_bytes(
    cli: CliHarness,
) -> None:
    serve(cli, s=fault("dies"))
    cli.plays(*[calls(call("mcp__s__echo", text=str(n))) for n in range(5)], says("done"))
    assert cli.run("-p", "go", BYPASS).code == 0
    assert [status for status, _ in cli.results()] == ["failed"] * 5
    assert len(set(requests_after_first_prefix(cli))) == 1
    assert reasons(cli) == ["start", "tools"]
    assert fold(cli.entries()).prefix == prefixes(cli)[-1]


def test_a_resource_that_was_read_and_changes_is_told(cli: CliHarness) -> None:
    serve(cli, s=fault("updates"))
    read = late("ReadMcpResourceTool", server="s", uri="note://one")
    cli.plays(calls(read), calls(call("mcp__s__echo", text="x")), says("done"))
    run = cli.run("-p", "go", BYPASS)
    assert run.code == 0
    assert "Warning" not in run.err
    told = [
        e.event.text
        for e in cli.entries()
        if isinstance(e.event, Reminded) and "resource" in e.event.kind
    ]
    assert any("s:note://one" in text for text in told), told


@pytest.mark.parametrize("mode", ["good", "many"])
def test_a_subagent_uses_the_servers_of_its_parent(cli: CliHarness, mode: str) -> None:
    """A provider that refuses what real ones refuse takes all requests: each tool is listed
    once.
    """
    serve(cli, s=fault(mode))
    name = "mcp__s__echo" if mode == "good" else "mcp__s__tool_7"
    with provider(
        cli,
        Turn(
            when="SPLIT",
            calls=(Call("Agent", {"description": "one part", "prompt": "Task APPLE: do it."}),),
        ),
        Turn(
            when="Task APPLE", calls=(Call("CallTool", {"name": name, "args": {"text": "deep"}}),)
        ),
        Turn(when="Task APPLE", text="used"),
        Turn(when="SPLIT", text="all done"),
    ) as served:
        ran = cli.run("-p", "SPLIT", BYPASS)
        assert (ran.code, ran.text) == (0, "all done\n"), ran.told()
        assert (served.unused, served.refused) == ([], [])
        for request in served.requests:
            names = [tool["name"] for tool in request.json["tools"]]
            assert len(names) == len(set(names))
        assert any("echo deep" in json.dumps(request.json) for request in served.requests)
        if mode == "many":
            assert len(json.dumps(served.requests[0].json).encode()) <= 20_000
