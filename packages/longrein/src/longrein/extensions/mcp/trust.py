"""MCP servers in the question of trust: what it says of them, and does with them."""

from longrein.config.settings_file import shorten_home
from longrein.config.trusted_folders import FILES_SHOWN_MAX, NAME_CHARS_MAX, Folder, Kind
from longrein.extensions.mcp.server_files import (
    approve_servers,
    project_servers,
    project_servers_files,
)


def _find(folder: Folder) -> list[str]:
    return project_servers_files(folder.cwd)


def _effect(path: str, folder: Folder) -> str:
    """Name the servers of a file with what they run."""
    own = shorten_home(path, folder.home)
    found = [
        server
        for server in project_servers(folder.cwd, folder.home, folder.environ)
        if server.source == own
    ]
    said = [f"{one.name}: {one.problem or one.address}"[:NAME_CHARS_MAX] for one in found]
    return "starts " + "; ".join(said[:FILES_SHOWN_MAX]) if said else "names no server"


SERVERS = Kind("MCP servers", _find, _effect, approve_servers)
"""The MCP servers that a project names in its `.mcp.json` files."""
