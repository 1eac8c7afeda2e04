"""Control requests about MCP servers, and the servers inside the program that runs longrein."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from longrein.agent.extension_part import ControlHandler
from longrein.extensions.mcp.mcp_port import McpFailure
from longrein.extensions.mcp.server_files import read_server, server_secrets
from longrein.extensions.mcp.servers import McpToolset, ServerView
from longrein.frontends.headless.control_lines import ControlError

Line = dict[str, Any]

_STATUSES = {"connecting": "pending", "needs login": "needs-auth"}
"""Status of an MCP server -> spelling in the protocol, where that differs."""


def tunnel(
    ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
) -> Callable[[str, Mapping[str, Any]], Awaitable[Any]]:
    """Return the function that carries one message to a server of the program and returns its
    answer. `ask` sends a request to the program.
    """

    async def send(server: str, message: Mapping[str, Any]) -> Any:
        try:
            response = await ask("mcp_message", {"server_name": server, "message": dict(message)})
        except ControlError as error:
            raise McpFailure(str(error)) from None
        return response.get("mcp_response") if isinstance(response, dict) else None

    return send


def control_handlers(
    toolset: McpToolset,
    environ: Mapping[str, str],
    in_use: bool,
    hide: Callable[[Sequence[str]], None],
) -> Mapping[str, ControlHandler]:
    """Return the handlers of the requests about servers.

    `environ`: variables for `${NAME}` in servers of the program. `hide` masks further secrets.
    """

    def server_named(request: Mapping[str, Any]) -> str:
        """Return the name of the server that a request is about."""
        name = str(request.get("serverName"))
        if name not in toolset.servers:
            raise ControlError(f"there is no MCP server {name[:60]!r}")
        return name

    async def status(_request: Mapping[str, Any]) -> Line:
        return {"mcpServers": [_server(view) for view in toolset.views()]}

    async def reconnect(request: Mapping[str, Any]) -> Line:
        toolset.reconnect(server_named(request))
        return {}

    async def toggle(request: Mapping[str, Any]) -> Line:
        act = toolset.enable if request.get("enabled") else toolset.disable
        act(server_named(request))
        return {}

    async def set_servers(request: Mapping[str, Any]) -> Line:
        """Change the servers of the program and wait until each new one is connected or has
        failed.
        """
        given = request.get("servers")
        if not in_use or not isinstance(given, dict):
            raise ControlError(
                "mcp_set_servers: servers must be an object of name -> entry, after an initialize"
            )
        return await _set_servers(toolset, environ, given, hide)

    async def read_resource(request: Mapping[str, Any]) -> Line:
        name = server_named(request)
        try:
            return {"contents": await toolset.read_resource(name, str(request.get("uri")))}
        except McpFailure as error:
            raise ControlError(str(error)) from None

    return {
        "mcp_status": ControlHandler(status),
        "mcp_reconnect": ControlHandler(reconnect),
        "mcp_toggle": ControlHandler(toggle),
        "mcp_set_servers": ControlHandler(set_servers, waits=True),
        "mcp_read_resource": ControlHandler(read_resource, waits=True),
    }


async def _set_servers(
    toolset: McpToolset,
    environ: Mapping[str, str],
    given: Mapping[str, Any],
    hide: Callable[[Sequence[str]], None],
) -> Line:
    read = [
        read_server(str(name), raw, environ, "program", "program") for name, raw in given.items()
    ]
    hide(server_secrets(read))
    configured = {name for name, one in toolset.servers.items() if one.scope != "program"}
    taken = [one.name for one in read if one.name in configured]
    added, removed = toolset.set_program_servers([one for one in read if one.name not in taken])
    if added:
        await toolset.ready()
    problems = {
        view.name: view.problem for view in toolset.views() if view.name in added and view.problem
    }
    stays = "the user has configured a server of this name, which stays"
    return {
        "added": [name for name in added if name not in problems],
        "removed": removed,
        "errors": problems | dict.fromkeys(taken, stays),
    }


def _server(view: ServerView) -> Line:
    """Return one server as the answer to `mcp_status` has it."""
    return {
        "name": view.name,
        "status": _STATUSES.get(view.status, view.status),
        "scope": view.scope,
        "tools": [{"name": name.rpartition("__")[2]} for name in view.tools],
        **({"error": view.problem} if view.problem else {}),
        **({"serverInfo": {"name": view.title, "version": ""}} if view.title else {}),
    }
