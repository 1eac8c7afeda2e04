"""Ports of an MCP connection; without the SDK, so that the rest of longrein can use them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from longrein.agent.extension_part import AskUser
from longrein.extensions.mcp.server_config import McpServer
from longrein.workspace import CommandExit, CommandSpec, Confinement, StreamProcess

Status = Literal["connecting", "connected", "failed", "needs login", "disabled"]
Progress = Callable[[float, float | None, str], None]
"""Gets (done, total, message) of a running call."""


class McpFailure(Exception):
    """A request to a server that failed; the text is for the model and the user."""


class CannotStart(McpFailure):
    """A program that is not there, or may not be run: trying again changes nothing."""


class ListedTool(msgspec.Struct, frozen=True):
    """A tool as its server lists it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    reads: bool = False
    """The server's claim that it only reads. It never allows a call unasked."""
    always_listed: bool = False
    result_chars_max: int = 0
    """Characters of a result that the server wants to be shown; 0 for the usual limit."""


class ListedPrompt(msgspec.Struct, frozen=True):
    """A prompt as its server lists it."""

    name: str
    description: str
    arguments: tuple[tuple[str, bool], ...]
    """(name, required)."""


class ListedResource(msgspec.Struct, frozen=True):
    """A resource or a template of resources."""

    uri: str
    name: str
    description: str
    template: bool = False


class ServerOffer(msgspec.Struct, frozen=True):
    """Tools, prompts and other contents that a connected server offers."""

    tools: tuple[ListedTool, ...] = ()
    prompts: tuple[ListedPrompt, ...] = ()
    resources: bool = False
    instructions: str = ""
    title: str = ""
    """Name and version that the server gives itself."""
    protocol: str = ""


class ServerHost(msgspec.Struct):
    """Services of longrein that connections need."""

    start_process: Callable[[CommandSpec], Awaitable[StreamProcess | CommandExit]]
    environment: Callable[[], Mapping[str, str]]
    """Environment of commands."""
    run_line: Callable[[str, Mapping[str, str], Confinement | None], Awaitable[bytes]]
    """Runs a command line with further variables and returns its output."""
    cwd: str
    token_folder: str
    """Folder of the OAuth tokens."""
    version: str
    confine: Callable[[McpServer, str], Confinement | None] = lambda _server, _cwd: None
    """Returns how to confine the program of a server in a folder; None for not at all. Raises
    `OSError`.
    """
    private_hosts: Sequence[str] = ()
    """Hosts in private networks, besides that of its own URL, to which a server may lead
    requests.
    """
    notice: Callable[[str], None] = lambda _text: None
    """Tells the user one line."""
    changed: Callable[[str], None] = lambda _server: None
    """Called when the status or the offer of a server has changed."""
    resource_updated: Callable[[str, str], None] = lambda _server, _uri: None
    announce: Callable[[str, str], None] = lambda _kind, _text: None
    """Tells hooks of the user of a question or a login: (type of the notification, text)."""
    roots: Callable[[], Sequence[str]] = tuple
    elicit: AskUser | None = None
    """None where nobody can answer."""
    login: Callable[[str], Awaitable[None]] | None = None
    """Shows the address at which the user logs in; None where nobody can."""
    tunnel: Callable[[str, Mapping[str, Any]], Awaitable[Any]] | None = None
    """Carries one JSON-RPC message to a server inside the program that runs longrein and returns
    its answer.

    None where longrein runs by itself. Raises `McpFailure`.
    """
    startup_s: float = 30.0
    call_s: float = 600.0
    output_tokens_max: int = 25_000
    """Size of a result that is shown whole."""
