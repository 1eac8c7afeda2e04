"""MCP servers inside the program that runs longrein: the SDK's own servers, over the control
request `mcp_message`.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tables import record

from .harness import EXAMPLES, NEEDS_CLI, SdkSetup, answers, ask_client, call, of, say, sdk_setup
from .test_examples import run_example
from .test_protocol import INITIALIZE, started, user

sdk = pytest.importorskip("claude_agent_sdk", reason="the SDK drives longrein")
pytest.importorskip("mcp", reason="the extra `mcp`")
pytestmark = NEEDS_CLI

ADD = call("mcp__calc__add", a=15, b=27)


def calculator() -> Any:
    """A server of the SDK with two tools."""

    @sdk.tool("add", "Add two numbers", {"a": float, "b": float})
    async def add(arguments: dict[str, Any]) -> dict[str, Any]:
        return {
            "content": [{"type": "text", "text": f"the sum is {arguments['a'] + arguments['b']}"}]
        }

    @sdk.tool("fail", "Fail", {})
    async def fail(_arguments: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("it cannot be divided")

    return sdk.create_sdk_mcp_server("calculator", tools=[add, fail])


def options(setup: SdkSetup, **more: Any) -> Any:
    return setup.options(
        mcp_servers={"calc": calculator()}, **({"allowed_tools": ["mcp__calc"]} | more)
    )


def results(messages: list[Any]) -> Iterator[str]:
    blocks = (block for message in of(messages, "UserMessage") for block in message.content)
    return (str(block.content) for block in blocks if hasattr(block, "tool_use_id"))


async def test_A6_4_a_tool_of_the_program_is_called(tmp_path: Path) -> None:
    async with (
        sdk_setup(tmp_path, [ADD, call("mcp__calc__fail"), say("42")]) as setup,
        sdk.ClaudeSDKClient(options(setup)) as client,
    ):
        messages = await answers(client, "add")
        summed, failed = results(messages)
        assert summed == "the sum is 42"
        assert "it cannot be divided" in failed
        assert messages[-1].result == "42"
        (server,) = (await client.get_mcp_status())["mcpServers"]
        assert (server["name"], server["status"]) == ("calc", "connected")
        assert [tool["name"] for tool in server["tools"]] == ["add", "fail"]


async def test_A6_4_a_tool_of_the_program_asks_like_any_other(tmp_path: Path) -> None:
    asked = []

    async def deny(name: str, arguments: dict[str, Any], _context: Any) -> Any:
        asked.append((name, arguments))
        return sdk.PermissionResultDeny(message="not now")

    async with (
        sdk_setup(tmp_path, [ADD, say("no")]) as setup,
        sdk.ClaudeSDKClient(options(setup, allowed_tools=[], can_use_tool=deny)) as client,
    ):
        assert "not now" in next(results(await answers(client, "add")))
        assert asked == [("mcp__calc__add", {"a": 15, "b": 27})]


async def test_A6_4_a_server_is_turned_off_and_on(tmp_path: Path) -> None:
    async with (
        sdk_setup(tmp_path, [say("hello"), ADD, say("42")]) as setup,
        sdk.ClaudeSDKClient(options(setup)) as client,
    ):
        await answers(client, "hello")
        await client.toggle_mcp_server("calc", False)
        assert (await client.get_mcp_status())["mcpServers"][0]["status"] == "disabled"
        await client.toggle_mcp_server("calc", True)
        while (await client.get_mcp_status())["mcpServers"][0]["status"] != "connected":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert next(results(await answers(client, "add"))) == "the sum is 42"


HANDSHAKE = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "c", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
}


async def test_stdin_closed_in_a_call_ends_the_call(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [ADD, say("it is gone")]) as setup:
        config = json.dumps({"mcpServers": {"calc": {"type": "sdk", "name": "calculator"}}})
        host = await started(setup, "--allowedTools", "mcp__calc", "--mcp-config", config)
        host.write(INITIALIZE, user("add"))
        while (asked := await host.until("control_request", "mcp_message"))["request"][
            "message"
        ].get("method") != "tools/call":
            message = asked["request"]["message"]
            found = HANDSHAKE.get(message["method"])
            answer = {"jsonrpc": "2.0", "id": message.get("id", 0)}
            answer |= (
                {"result": found} if found else {"error": {"code": -32601, "message": "not here"}}
            )
            response = record(
                subtype="success", request_id=asked["request_id"], response={"mcp_response": answer}
            )
            host.write({"type": "control_response", "response": response})
        code, lines, _ = await host.end()
        assert (code, [one["subtype"] for one in lines if one["type"] == "result"]) == (
            0,
            ["success"],
        )
        assert "the connection was lost during the call" in setup.sent()


async def test_a_project_cannot_name_a_server_of_the_program(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("hello")]) as setup:
        (setup.tree / ".mcp.json").write_text(
            json.dumps({"mcpServers": {"calc": {"type": "sdk", "name": "calc"}}})
        )
        messages = await ask_client(setup, "hello", extra_args={"trust": None})
        told = [message.data.get("content", "") for message in of(messages, "SystemMessage")]
        assert any("type 'sdk' is for servers inside the program" in text for text in told)


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="`make library` gets the examples")
async def test_the_calculator_example_of_the_sdk(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [ADD, say("42")] * 6) as setup:
        code, text = await run_example(setup, "mcp_calculator.py")
    assert (code, text.count("15 + 27 = 42")) == (0, 6)
