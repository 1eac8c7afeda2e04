"""MCP servers and the program that runs longrein: `mcp_message` carries JSON-RPC, `elicitation`
their questions.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from longrein.frontends.headless.control_lines import ControlChannel, ControlError
from longrein.frontends.headless.initialize import Initialize
from longrein.tools.mcp import McpServer
from longrein.tools.mcp.mcp_port import Elicit, McpFailure, elicit_answer
from longrein.tools.mcp.server_config import usable_name


def mcp_tunnel(channel: ControlChannel) -> Callable[[str, Mapping[str, Any]], Awaitable[Any]]:
    """Return the function that carries one message to a server of the program and returns its
    answer.
    """

    async def send(server: str, message: Mapping[str, Any]) -> Any:
        try:
            response = await channel.request(
                "mcp_message", {"server_name": server, "message": dict(message)}
            )
        except ControlError as error:
            raise McpFailure(str(error)) from None
        return response.get("mcp_response") if isinstance(response, dict) else None

    return send


def program_servers(given: Initialize) -> tuple[McpServer, ...]:
    """Return the servers that `initialize` names in `sdkMcpServers`; other SDKs name them by
    `--mcp-config`.
    """
    names = given.fields.get("sdkMcpServers")
    listed = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return tuple(
        McpServer(
            usable_name(name),
            transport="sdk",
            program_name=name,
            scope="program",
            source="initialize",
        )
        for name in listed
        if usable_name(name)
    )


def elicitation(channel: ControlChannel) -> Elicit:
    """Return the function that lets the program answer the questions of MCP servers; one that
    cannot declines.
    """

    async def ask(server: str, message: str, schema: Mapping[str, Any], url: str) -> Any:
        mode: Mapping[str, Any] = (
            {"mode": "url", "url": url} if url else {"mode": "form", "requested_schema": schema}
        )
        try:
            answer = await channel.request(
                "elicitation", {"mcp_server_name": server, "message": message, **mode}
            )
        except ControlError:
            return "decline", {}
        return elicit_answer(answer)

    return ask
