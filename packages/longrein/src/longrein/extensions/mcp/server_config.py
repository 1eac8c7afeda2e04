"""A configured MCP server, as `config.mcp_servers` reads it from the user's files."""

import re
from hashlib import sha256
from typing import Literal

import msgspec

NAME_CHARS_MAX = 64
"""Longest name of a tool that every provider takes."""


Transport = Literal["stdio", "http", "sse", "sdk"]
Scope = Literal["flag", "local", "project", "user", "program"]
Sandbox = Literal["strict", "network", "off"]
"""Confinement of a stdio server. `strict`: as for commands. `network`: in the sandbox, with the
network and the paths that its entry names. `off`: none, as the user.
"""


class OAuthOptions(msgspec.Struct, frozen=True):
    """Key `oauth` of a server."""

    client_id: str = ""
    """'' to register at the authorization server."""
    callback_port: int = 0
    """Port of the loopback redirect; 0 for any."""
    scopes: str = ""


class McpServer(msgspec.Struct, frozen=True):
    """MCP server: how to reach it, and which of its tools to use."""

    name: str
    transport: Transport = "stdio"
    """`sdk`: inside the program that runs longrein; messages go through its control protocol."""
    program_name: str = ""
    """Its name as it was written, by which the program of an `sdk` server knows it; '' for
    `name`.
    """
    command: tuple[str, ...] = ()
    """Program and arguments of a stdio server."""
    env: tuple[tuple[str, str], ...] = ()
    """Further environment variables of a stdio server."""
    cwd: str = ""
    """Folder of a stdio server; '' for the session's."""
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of each HTTP request."""
    headers_helper: str = ""
    """Command line that prints further headers as a JSON object."""
    oauth: OAuthOptions = OAuthOptions()
    call_s: float = 0.0
    """Limit of one call in seconds; 0 for that of the settings."""
    startup_s: float = 0.0
    """Limit of connecting in seconds; 0 for that of the settings."""
    only_tools: tuple[str, ...] | None = None
    """Tools to offer; None for all."""
    without_tools: tuple[str, ...] = ()
    always_listed: bool = False
    """True if its tools are never deferred."""
    sandbox: Sandbox = "network"
    scope: Scope = "user"
    source: str = ""
    """File that names it, for display."""
    problem: str = ""
    """Reason why the server cannot be used; '' if it can."""
    disabled: bool = False

    @property
    def address(self) -> str:
        """Command line or URL, for display. A secret in it may still have to be redacted."""
        return " ".join(self.command) if self.transport == "stdio" else self.url

    def offers(self, tool: str) -> bool:
        """Return True if the settings of the server leave the tool in."""
        return (
            self.only_tools is None or tool in self.only_tools
        ) and tool not in self.without_tools


def token_folder(state_dir: str) -> str:
    """Return the folder of the tokens of all servers."""
    return f"{state_dir}/mcp_tokens"


def token_path(server: McpServer, folder: str) -> str:
    """Return the path of a server's tokens. They belong to its URL: another server of that name
    does not get them.
    """
    return f"{folder}/{server.name}-{sha256(server.url.encode()).hexdigest()[:16]}.json"


def usable_name(name: str) -> str:
    """Return a server's name as it stands in the names of its tools: letters, digits, `-` and
    single `_`.

    `__` separates server and tool, so that a rule for the server `a` must not cover a server
    `a__b`.
    """
    return re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", name)).strip("_")[:40]
