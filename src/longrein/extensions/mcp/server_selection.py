"""The MCP servers of a session: which there are, and what they are given."""

import importlib.util
from collections.abc import Mapping, Sequence

from longrein import __version__
from longrein.app.additions import Additions
from longrein.app.execution import variables
from longrein.app.run_context import RunContext
from longrein.config import project_root
from longrein.events import UsageError
from longrein.extensions.mcp.mcp_port import ServerHost
from longrein.extensions.mcp.server_config import McpServer, token_folder
from longrein.extensions.mcp.server_files import load_mcp_servers, read_server
from longrein.extensions.mcp.servers import MISSING, McpToolset
from longrein.extensions.mcp.settings import McpOptions
from longrein.workspace import (
    CollectingSink,
    CommandSpec,
    Confinement,
    SupervisedSpawner,
    Workspace,
    run_in_background,
)

MCP_OUTPUT_TOKENS = 25_000
"""Size of a result of a server that is shown whole."""
HELPER_S, HELPER_BYTES_MAX = 10.0, 64_000
"""Limits of a `headersHelper`."""


def find_servers(
    run_context: RunContext, additions: Additions
) -> tuple[tuple[McpServer, ...], list[str]]:
    """Return the servers to use, and notes for the user.

    Raises `UsageError` for a wrong server of a program that wants to know of it.
    """
    given = [
        read_server(name, entry, run_context.environ, "program", additions.servers_source)
        for name, entry in additions.mcp_servers.items()
    ]
    wrong = next((server for server in given if server.problem), None)
    if wrong is not None and additions.refuses_wrong_servers:
        raise UsageError(f"{wrong.source}: {wrong.name}: {wrong.problem}")
    options = run_context.options
    found = load_mcp_servers(
        run_context.cwd,
        run_context.home,
        run_context.environ,
        run_context.state_dir,
        trusted=run_context.trusted.cover(run_context.cwd),
        approved=options.trust,
        given=options.mcp_config,
        strict=options.strict_mcp_config,
    )
    servers = {server.name: server for server in (*found.servers, *given)}
    notes = [*found.notes]
    if waiting := ", ".join(server.name for server in found.unapproved):
        notes.append(
            f"not started, because you have not approved them: MCP servers {waiting}; `longrein "
            "mcp approve`"
        )
    notes += [
        f"MCP server {one.name} ({one.source}): {one.problem}"
        for one in servers.values()
        if one.problem
    ]
    usable = any(not (one.problem or one.disabled) for one in servers.values())
    if usable and importlib.util.find_spec("mcp") is None:
        notes.append(MISSING)
    return tuple(servers.values()), notes


def mcp_toolset(
    run_context: RunContext,
    servers: Sequence[McpServer],
    spawner: SupervisedSpawner,
    workspace: Workspace,
    session: str,
) -> McpToolset:
    """Return the servers, not connected yet, of a session or of '' for one look at them."""
    options, environ = run_context.settings.of(McpOptions), variables(run_context)

    async def run_line(
        line: str, more: Mapping[str, str], confinement: Confinement | None
    ) -> bytes:
        sink = CollectingSink()
        env = {**workspace.environment(session), **more}
        await spawner.run(
            CommandSpec(line, run_context.cwd, env, confinement),
            sink=sink,
            timeout_s=HELPER_S,
            output_bytes_max=HELPER_BYTES_MAX,
        )
        return bytes(sink.data)

    host = ServerHost(
        start_process=spawner.start_streams,
        environment=lambda: workspace.environment(session),
        run_line=run_line,
        cwd=project_root(run_context.cwd),
        token_folder=token_folder(run_context.state_dir),
        version=__version__,
        roots=lambda: workspace.roots,
        startup_s=_named_number(environ, "MCP_TIMEOUT") / 1000 or options.startup_s,
        call_s=_named_number(environ, "MCP_TOOL_TIMEOUT") / 1000 or options.call_s,
        output_tokens_max=_named_number(environ, "MAX_MCP_OUTPUT_TOKENS") or MCP_OUTPUT_TOKENS,
        private_hosts=run_context.settings.tools.web_private_hosts,
    )
    toolset = McpToolset(servers, host, options, run_in_background)
    toolset.missing = MISSING if importlib.util.find_spec("mcp") is None else ""
    return toolset


def _named_number(environ: Mapping[str, str], name: str) -> int:
    """Return the positive number that a variable holds, else 0."""
    written = environ.get(name, "")
    return int(written) if written.isascii() and written.isdigit() and len(written) < 12 else 0
