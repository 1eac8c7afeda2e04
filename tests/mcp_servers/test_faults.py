"""A7, R102: a server that dies, hangs, floods or lies costs a message, never the session."""

import re

import pytest

from longrein_context.events import Reminded
from tests.e2e.harness import BYPASS, CliHarness, call, calls, of, says
from tests.mcp_servers.harness import fault, late, one_call, prefixes, serve
from tests.timeouts import growing_limits

FEW_MS = {"timeout": 400}
LATE = r"\[mcp\] s: no answer within 0.4 s"
STOPPED = r"\[mcp\] s: it has stopped \(exit code 3\): fatal: out of luck|connection was lost"
CALLS = (
    ("good", {}, "ok", "echo hi"),
    ("noisy", {}, "ok", "echo hi"),
    ("dies", {}, "failed", STOPPED),
    ("hangs", FEW_MS, "failed", f"{LATE}; the call was cancelled"),
    ("floods", FEW_MS, "failed", LATE),
    ("huge", {}, "failed", r"\[mcp\] s: .*(more than 16 MB|connection was lost)"),
    ("garbage", {}, "failed", r"\[mcp\] s: .*(not valid JSON-RPC|connection was lost)"),
    ("slow", {}, "ok", "slow"),
)


@pytest.mark.parametrize(("mode", "more", "status", "says_"), CALLS, ids=[row[0] for row in CALLS])
def test_a_call_of_a_server_that_fails(
    cli: CliHarness, mode: str, more: dict[str, int], status: str, says_: str
) -> None:
    serve(cli, s=fault(mode, **more))
    found = one_call(cli, call("mcp__s__echo", text="hi"))
    assert found[0] == status, found
    assert re.search(says_, found[1]), found


OTHER_VERSION = "it speaks version 1999-01-01 of the protocol, .*: update the server"
NO_JSON = r"not connected yet: s \(it prints lines that are no JSON, such as 'not json'\)"
STARTS = (
    ("dead", {}, r"MCP server s: it has stopped \(exit code 1\): cannot work here"),
    ("silent", {"startup_timeout_sec": 0.3}, "MCP server s: it has not answered within 0.3 s"),
    ("version", {}, f"MCP server s: {OTHER_VERSION}"),
    ("no-json", {}, f"MCP servers {NO_JSON}"),
    ("echo", {}, "MCP server s: it repeats what it is sent: the command is no MCP server"),
)


@pytest.mark.parametrize(
    ("mode", "more", "line"), STARTS, ids=[f"{row[0]}-{len(row[1])}" for row in STARTS]
)
def test_a_server_that_does_not_connect(
    cli: CliHarness, mode: str, more: dict[str, float], line: str
) -> None:
    serve(cli, s=fault(mode, **more), other=fault("good"))
    cli.plays(calls(call("mcp__other__echo", text="hi")), says("done"))
    run = cli.run("-p", "go", BYPASS)
    assert (run.code, run.text) == (0, "done\n")
    assert re.search(line, run.err), run.err
    assert cli.results() == [("ok", "echo hi")]


def test_at_its_limit_a_server_that_prints_no_json_is_told_from_a_silent_one(
    cli: CliHarness,
) -> None:
    for limit_s in growing_limits(0.5):
        serve(cli, s=fault("no-json", startup_timeout_sec=limit_s))
        cli.plays(says("done"))
        run = cli.run("-p", "go", BYPASS)
        if "no JSON" in run.err:
            break
    assert (
        f"MCP server s: it has not answered within {limit_s:g} s; it prints lines that are no "
        "JSON, such as 'not json'"
    ) in run.err


def test_a_server_that_ignores_methods_it_does_not_know_is_connected(cli: CliHarness) -> None:
    serve(cli, s=fault("mute"))
    assert one_call(cli, call("mcp__s__echo", text="hi")) == ("ok", "echo hi")


def test_a_server_that_is_not_installed_and_one_with_an_unset_variable(cli: CliHarness) -> None:
    serve(
        cli,
        gone={"command": "not-installed-server"},
        unset={"command": "x", "args": ["${NOT_SET}"]},
        ok=fault("good"),
    )
    cli.plays(calls(call("mcp__ok__echo", text="hi"), late("mcp__gone__x")), says("done"))
    run = cli.run("-p", "go", BYPASS)
    assert (
        "MCP server gone: it cannot be started: not-installed-server: no such file or directory"
        in run.err
    )
    assert (
        "MCP server unset (~/.config/longrein/mcp.json): it needs the variable NOT_SET, which is "
        "not set" in run.err
    )
    assert [status for status, _ in cli.results()] == ["ok", "failed"]


@pytest.mark.parametrize("output", ["text", "stream-json"])
def test_a_tool_with_a_bad_definition_costs_only_itself(cli: CliHarness, output: str) -> None:
    serve(cli, s=fault("invalid"))
    cli.plays(
        calls(*(call(f"mcp__s__{name}", text="hi") for name in ("echo", "bad", "none"))),
        says("done"),
    )
    run = cli.run("-p", "go", BYPASS, "--output-format", output, "--verbose")
    assert [status for status, _ in cli.results()] == ["ok", "ok", "ok"]
    told = (
        "MCP server s: the definition of 'bad', 'none' is not valid; it was mended; 1 of its tools "
        "have no name and are left out"
    )
    assert told in (run.err if output == "text" else run.text)
    named = {spec.name: spec.schema for spec in prefixes(cli)[-1].tools}
    assert named["mcp__s__bad"]["properties"] == {"n": {}}


def test_a_call_of_a_server_that_still_starts_says_why_it_is_not_there(cli: CliHarness) -> None:
    cli.settings("[mcp]\nwait_s = 0.2")
    serve(cli, s=fault("until go"))
    cli.plays(calls(call("mcp__s__echo", text="hi")), says("done"))
    cli.run("-p", "go", BYPASS)
    assert cli.results() == [
        (
            "failed",
            "[unknown-tool] MCP server s has not connected within 0.2 s: call again later.",
        )
    ]
    assert any(one.state.startswith("still starting") for one in of(cli, Reminded))


def test_a_schema_that_lies_is_repaired_or_left_to_the_server(cli: CliHarness) -> None:
    serve(cli, s=fault("lies"))
    cli.plays(
        calls(
            call("mcp__s__echo", text="hi"),
            late("mcp__s__deep", x=1),
            late("mcp__s__says"),
            late("mcp__s__dot_name"),
        ),
        says("done"),
    )
    run = cli.run("-p", "go", BYPASS)
    assert run.code == 0, run.told()
    assert [status for status, _ in cli.results()] == ["ok", "ok", "failed", "ok"], cli.results()
    names = [spec.name for spec in prefixes(cli)[-1].tools]
    assert all(len(name) <= 64 for name in names)
    assert len(names) == len(set(names))


def test_an_error_of_the_server_is_a_failed_call(cli: CliHarness) -> None:
    serve(cli, s=fault("good"))
    assert one_call(cli, call("mcp__s__echo", text="fail")) == ("failed", "echo fail")


def test_requests_of_a_server_are_answered_or_declined(cli: CliHarness) -> None:
    """Sampling is refused, roots are told, a question is declined in a headless run."""
    serve(cli, s=fault("asks"))
    status, text = one_call(cli, call("mcp__s__echo", text="hi"))
    assert status == "ok"
    assert '"action": "decline"' in text
    assert f'"uri": "file://{cli.project}"' in text
    assert "Sampling not supported" in text


def test_a_large_result_is_kept_whole_behind_a_handle(cli: CliHarness) -> None:
    serve(cli, s=fault("large"))
    status, text = one_call(cli, call("mcp__s__echo", text="hi"))
    assert status == "ok"
    assert text.startswith("line 0 of")
    assert text.rstrip().endswith("line 99999 of a large result")


def test_secrets_of_a_server_are_not_stored(cli: CliHarness) -> None:
    serve(cli, s=fault("good", env={"SERVER_TOKEN": "tok-0123456789-canary"}))
    status, text = one_call(cli, call("mcp__s__echo", text="hi"))
    assert status == "ok"
    assert "canary" not in text
    held = [
        path
        for path in cli.state.rglob("*")
        if path.is_file() and b"0123456789-canary" in path.read_bytes()
    ]
    assert not held
