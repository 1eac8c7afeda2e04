"""The MCP servers of a session: which there are, and what they are given."""

import importlib.util
from collections.abc import Mapping, Sequence

from longrein import __version__
from longrein.agent import OpenSession
from longrein.composition.additions import Additions
from longrein.config import load_mcp_servers, project_root
from longrein.run_context import RunContext
from longrein.tools.mcp import McpServer
from longrein.tools.mcp.port import ServerHost
from longrein.tools.mcp.server_config import token_folder
from longrein.tools.mcp.servers import MISSING, McpToolset
from longrein.workspace import CollectingSink, SupervisedSpawner, Workspace, run_in_background

HELPER_S, HELPER_BYTES_MAX = 10.0, 64_000
"""Limits of a `headersHelper`."""


def find_servers(run_context: RunContext, additions: Additions) -> tuple[tuple[McpServer, ...], list[str]]:
    """Return the servers to use, and notes for the user."""
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
    servers = {server.name: server for server in (*found.servers, *additions.mcp_servers)}
    notes = [*found.notes]
    if waiting := ", ".join(server.name for server in found.unapproved):
        notes.append(f"not started, because you have not approved them: MCP servers {waiting}; `longrein mcp approve`")
    notes += [f"MCP server {one.name} ({one.source}): {one.problem}" for one in servers.values() if one.problem]
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
    options = run_context.settings.mcp

    async def run_line(line: str, more: Mapping[str, str]) -> bytes:
        sink = CollectingSink()
        env = {**workspace.environment(session), **more}
        await spawner.run(
            line, cwd=run_context.cwd, env=env, sink=sink, timeout_s=HELPER_S, output_bytes_max=HELPER_BYTES_MAX
        )
        return bytes(sink.data)

    host = ServerHost(
        start_process=lambda words, cwd, env, confinement: spawner.start_streams(
            words, cwd=cwd, env=env, confinement=confinement
        ),
        environment=lambda: workspace.environment(session),
        run_line=run_line,
        cwd=project_root(run_context.cwd),
        token_folder=token_folder(run_context.state_dir),
        version=__version__,
        roots=lambda: workspace.roots,
        startup_s=options.startup_s,
        call_s=options.call_s,
    )
    toolset = McpToolset(servers, host, options, run_in_background)
    toolset.missing = MISSING if importlib.util.find_spec("mcp") is None else ""
    return toolset


def connect_servers(mcp: McpToolset, session: OpenSession) -> None:
    """Let what servers say reach the session."""
    changed, updated = mcp.host.changed, mcp.host.resource_updated

    def note_change(server: str) -> None:
        changed(server)
        session.poke()

    def note_update(server: str, uri: str) -> None:
        updated(server, uri)
        session.poke()

    mcp.host.notice, mcp.host.changed, mcp.host.resource_updated = session.notice, note_change, note_update
