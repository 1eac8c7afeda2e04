"""MCP servers inside the program that runs longrein: the control request `mcp_message` carries their JSON-RPC."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from longrein.frontends.headless.control import ControlChannel, ControlError
from longrein.frontends.headless.initialize import Initialize
from longrein.tools.mcp import McpServer
from longrein.tools.mcp.port import McpFailure
from longrein.tools.mcp.server_config import usable_name


def mcp_tunnel(channel: ControlChannel) -> Callable[[str, Mapping[str, Any]], Awaitable[Any]]:
    """Return the function that carries one message to a server of the program and returns its answer."""

    async def send(server: str, message: Mapping[str, Any]) -> Any:
        try:
            response = await channel.request("mcp_message", {"server_name": server, "message": dict(message)})
        except ControlError as error:
            raise McpFailure(str(error)) from None
        return response.get("mcp_response") if isinstance(response, dict) else None

    return send


def program_servers(given: Initialize) -> tuple[McpServer, ...]:
    """Return the servers that `initialize` names in `sdkMcpServers`; other SDKs name them by `--mcp-config`."""
    names = given.fields.get("sdkMcpServers")
    listed = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return tuple(
        McpServer(usable_name(name), transport="sdk", program_name=name, scope="program", source="initialize")
        for name in listed
        if usable_name(name)
    )
