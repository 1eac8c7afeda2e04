"""A7, limits: a long call becomes a background task as a command does; long results are shown by
their ends.
"""

from collections.abc import Mapping

import pytest

from longrein.testing.loopback import Call as LoopbackCall
from longrein.testing.loopback import Turn as LoopbackTurn
from longrein_context.events import Document, TaskEnded, TaskStarted, ToolEnded
from tests.e2e.harness import BYPASS, CliHarness, Turn, call, calls, says
from tests.e2e.test_children import serve as provider
from tests.mcp_servers.harness import fault, one_call, serve


def at_once(cli: CliHarness, seconds: float = 0.3) -> None:
    """Let calls go to the background soon."""
    with (cli.home / ".config/longrein/config.toml").open("a") as settings:
        settings.write(f"\n[mcp]\nbackground_s = {seconds}\n")


def ends(cli: CliHarness) -> list[TaskEnded]:
    return [entry.event for entry in cli.entries() if isinstance(entry.event, TaskEnded)]


def call_and_release(cli: CliHarness, *turns: Turn, text: str = "hi") -> None:
    """Call a tool that waits for the file `go`, then make it."""
    at_once(cli)
    serve(cli, s=fault("waits", str(cli.project / "go")))
    cli.plays(calls(call("mcp__s__echo", text=text)), *turns)
    run = cli.run("-p", "go", BYPASS, "--wait-tasks", "60")
    assert run.code == 0, run.told()


@pytest.mark.parametrize(
    ("text", "state", "code"), [("hi", "done", 0), ("fail", "failed", 1), ("é" * 90_000, "done", 0)]
)
def test_a_long_call_becomes_a_task_and_its_result_is_told(
    cli: CliHarness, text: str, state: str, code: int
) -> None:
    call_and_release(
        cli, calls(call("Bash", command="touch go")), says("waiting"), says("done"), text=text
    )
    status, told = cli.results()[0]
    assert status == "ok"
    assert "not over after 0.3 s: it goes on in the background as b1" in told
    (started,) = [entry.event for entry in cli.entries() if isinstance(entry.event, TaskStarted)]
    assert started.command.startswith("mcp__s__echo {'text': ")
    assert (started.policy, started.promoted) == ("stop", "timeout")
    (end,) = ends(cli)
    assert (end.task, end.state, end.code) == ("b1", state, code)
    assert end.size_bytes == len(f"echo {text}\n".encode())
    assert end.tail.endswith(text[-100:])


def test_a_task_that_is_stopped_ends_the_call(cli: CliHarness) -> None:
    call_and_release(
        cli, calls(call("TaskList")), calls(call("TaskStop", task_id="b1")), says("done")
    )
    assert "asks" not in cli.results()[1][1]
    assert [(end.task, end.state) for end in ends(cli)] == [("b1", "killed")]


def test_a_short_call_stays_in_the_foreground(cli: CliHarness) -> None:
    serve(cli, s=fault("slow"))
    assert one_call(cli, call("mcp__s__echo", text="hi")) == ("ok", "slow")
    assert not ends(cli)


def test_a_call_of_a_subagent_stays_in_the_foreground(cli: CliHarness) -> None:
    """It would have nobody to tell the result to."""
    turns = (
        LoopbackTurn(
            when="go",
            calls=(LoopbackCall("Agent", {"description": "d", "prompt": "Task APPLE: call it."}),),
        ),
        LoopbackTurn(when="Task APPLE", calls=(LoopbackCall("mcp__s__echo", {"text": "x"}),)),
        LoopbackTurn(when="Task APPLE", text="APPLE is done"),
        LoopbackTurn(when="go", text="all done"),
    )
    with provider(cli, *turns):
        at_once(cli, 0.05)
        serve(cli, s=fault("slow"))
        run = cli.run("-p", "go", BYPASS)
    assert (run.code, run.text) == (0, "all done\n"), run.told()
    assert "APPLE is done" in cli.results()[0][1]
    assert not ends(cli)


LIMITS: tuple[tuple[str, Mapping[str, str], str], ...] = (
    ("MCP_TOOL_TIMEOUT", {"MCP_TOOL_TIMEOUT": "300"}, "no answer within 0.3 s"),
    ("wrong", {"MCP_TOOL_TIMEOUT": "soon", "MCP_TIMEOUT": "-1"}, ""),
)


@pytest.mark.parametrize(
    ("env", "problem"), [row[1:] for row in LIMITS], ids=[row[0] for row in LIMITS]
)
def test_limits_of_the_environment(cli: CliHarness, env: Mapping[str, str], problem: str) -> None:
    serve(cli, s=fault("hangs" if problem else "good"))
    cli.plays(calls(call("mcp__s__echo", text="hi")), says("done"))
    assert cli.run("-p", "go", BYPASS, env=dict(env)).code == 0
    assert problem in cli.results()[0][1]


def test_MCP_TIMEOUT_limits_connecting(cli: CliHarness) -> None:
    serve(cli, s=fault("silent"))
    told = cli.run("mcp", "test", env={"MCP_TIMEOUT": "200"})
    assert "it has not answered within 0.2 s" in told.text, told.told()


@pytest.mark.parametrize(("tokens", "shown"), [("", 100_000), ("1000", 4_000), ("none", 100_000)])
def test_MAX_MCP_OUTPUT_TOKENS_limits_what_is_shown(
    cli: CliHarness, tokens: str, shown: int
) -> None:
    serve(cli, s=fault("large"))
    cli.plays(calls(call("mcp__s__echo", text="hi")), says("done"))
    assert cli.run("-p", "go", BYPASS, env={"MAX_MCP_OUTPUT_TOKENS": tokens}).code == 0
    (end,) = [entry.event for entry in cli.entries() if isinstance(entry.event, ToolEnded)]
    (part,) = end.parts
    assert isinstance(part, Document)
    assert len(part.head) + len(part.tail) == shown
    assert part.lines == 100_000
    assert part.tail.endswith("line 99999 of a large result")
