"""A6.2, A6.3 `--output-format`: every line parsed by the SDK of Claude Code, and the same end in
each format.
"""

import json
from typing import Any

import pytest

from tests.e2e.harness import CliHarness, bash, call, calls, says

pytest.importorskip("claude_agent_sdk", reason="the SDK comes with `make library`")

from claude_agent_sdk import AssistantMessage, Message, ResultMessage, SystemMessage
from claude_agent_sdk._internal.message_parser import parse_message

TURNS = (
    calls(
        call("Read", file_path="a.txt"),
        call("Read", file_path="none.txt"),
        thinking="First I look.",
    ),
    calls(
        bash("echo größer; exit 3"),
        call("Agent", description="look", prompt="look", subagent_type="explore"),
    ),
    says("The report."),
    calls(call("Write", file_path="b.txt", content="b")),
    says("All done."),
)
ALONE = (TURNS[0], calls(bash("echo größer; exit 3")), *TURNS[3:])
"""The same without a subagent, whose answers may come before or after."""


@pytest.fixture(autouse=True)
def script(cli: CliHarness) -> None:
    (cli.project / "a.txt").write_text("one\n")
    cli.plays(*TURNS)


def lines(cli: CliHarness, *more: str) -> list[dict[str, Any]]:
    ran = cli.run(
        "-p",
        "go",
        "--output-format",
        "stream-json",
        "--verbose",
        "--allowedTools",
        "Bash(echo *)",
        *more,
    )
    return [json.loads(line) for line in ran.text.splitlines()]


@pytest.mark.parametrize("more", [(), ("--include-partial-messages",)])
def test_A6_3_the_sdk_parses_every_line(cli: CliHarness, more: tuple[str, ...]) -> None:
    written = lines(cli, *more)
    parsed: list[Message | None] = [parse_message(line) for line in written]
    assert [
        line["type"] for line, message in zip(written, parsed, strict=True) if message is None
    ] == []
    first, last = parsed[0], parsed[-1]
    assert isinstance(first, SystemMessage)
    assert first.subtype == "init"
    assert isinstance(last, ResultMessage)
    assert (last.num_turns, last.session_id) == (written[-1]["num_turns"], first.data["session_id"])
    used = [block for one in parsed if isinstance(one, AssistantMessage) for block in one.content]
    assert {"ThinkingBlock", "ToolUseBlock", "TextBlock"} == {
        type(block).__name__ for block in used
    }
    assert any(one.parent_tool_use_id for one in parsed if isinstance(one, AssistantMessage))


def test_A6_2_json_is_the_last_line_of_the_stream_and_text_its_result(cli: CliHarness) -> None:
    cli.plays(*ALONE)
    streamed = lines(cli)[-1]
    cli.plays(*ALONE)
    alone = json.loads(
        cli.run("-p", "go", "--output-format", "json", "--allowedTools", "Bash(echo *)").text
    )
    assert isinstance(parse_message(alone), ResultMessage)
    assert alone.keys() == streamed.keys()
    same = ("type", "subtype", "is_error", "num_turns", "result", "stop_reason")
    assert {key: alone[key] for key in same} == {key: streamed[key] for key in same}
    cli.plays(*ALONE)
    assert (
        cli.run("-p", "go", "--allowedTools", "Bash(echo *)").text.strip()
        == alone["result"]
        == "All done."
    )
