"""Parts that a program adds to those of options and settings."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from longrein.agent.hooks import HookHandler
from longrein.config import Plugins
from longrein.models import Model
from longrein.tools import Tool

if TYPE_CHECKING:
    from longrein.tools.editor_services import Editor


class ProgramServers(msgspec.Struct, frozen=True):
    """MCP servers that a program names or has inside."""

    entries: Mapping[str, dict[str, Any]] = {}
    """Servers in addition to the configured ones: name -> entry as in `.mcp.json`."""
    source: str = ""
    """Place that names them, for messages."""
    refuses_wrong: bool = False
    """True if a wrong entry is an error; else a line tells of it."""
    ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]] | None = None
    """(subtype, fields) -> answer: sends a request to the program; None where it has no servers
    inside.
    """


class Additions(msgspec.Struct, frozen=True):
    """Parts that a program passes in addition to options and settings."""

    model: Model | None = None
    """Replaces the model that options and settings name."""
    tools: tuple[Tool, ...] = ()
    """Tools offered after the built-in ones."""
    builtin: tuple[str, ...] | None = None
    """Names of the built-in tools to offer; None for all."""
    window_tokens: int = 0
    """Replaces the model's context window; 0 for the known value."""
    max_output_tokens: int = 0
    """Replaces the model's output limit; 0 for the known value."""
    editor: "Editor | None" = None
    """Editor whose buffers and terminals the tools use."""
    hooks: tuple[HookHandler, ...] = ()
    """Hooks of the program, besides those of files."""
    asks_user: bool = False
    """True if a person or program can answer questions of the model; decided once, when the
    session begins.
    """
    answers_permissions: bool = False
    """True if a program or an editor answers permission questions, and so is asked about confined
    commands too.
    """
    servers: ProgramServers = ProgramServers()
    skills: tuple[str, ...] | None = None
    """Names of the skills and commands that the model may load; None for all."""
    plugins: Plugins = msgspec.field(default_factory=Plugins)


NOTHING_ADDED = Additions()
