"""Data between the ACP frontend and its caller: a host that opens sessions, and the sessions it
has opened.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longrein.agent import SessionPort
from longrein.agent.extension_part import AskUser
from longrein.events import Image
from longrein.tools.editor_services import Editor

CustomCommand = tuple[str, str, str]
"""(name, description, hint for its arguments)"""


class SessionRequest(msgspec.Struct, frozen=True):
    """Request of an editor to open a session."""

    cwd: str
    """Absolute folder."""
    folders: tuple[str, ...] = ()
    """Further absolute folders to work in."""
    mcp_servers: Mapping[str, dict[str, Any]] = {}
    """MCP servers of the editor in the form of `mcpServers` in `.mcp.json`: name -> `command`,
    `args`, `env`, or `type`, `url`, `headers`.
    """


class StoredSession(msgspec.Struct, frozen=True):
    """A session that can be loaded."""

    session: str
    cwd: str
    title: str
    updated_us: int
    """Time of the last entry, microseconds UTC."""


class SessionFacts(msgspec.Struct, frozen=True):
    """An open session with what the frontend needs beside it."""

    port: SessionPort
    model: Callable[[], str]
    """Present model, as `provider/model`."""
    models: Callable[[], Sequence[str]]
    """Models to choose from, the present one among them."""
    window_tokens: Callable[[], int]
    """Context window of the present model."""
    notes: tuple[str, ...]
    """Notices from opening the session, one line each."""
    keep_image: Callable[[bytes, str], Image]
    """(bytes, media type) of a picture -> its stored part."""
    keep_blob: Callable[[bytes], str]
    """Store content; return the name of its blob."""
    read_blob: Callable[[str], bytes]
    """Content of a blob. Raises `KeyError`."""
    file_text: Callable[[str], str | None]
    """Present text of a file, at most 1 MB of it; None when there is none."""
    context_lines: Callable[[], Sequence[str]]
    """Report of the context's contents, line by line."""
    custom_commands: Callable[[], Sequence[CustomCommand]]
    """Skills and commands of the user's files, as they are on disk now."""
    elicit: Callable[[AskUser], None]
    """Let MCP servers ask the user by a function."""
    after_close: Callable[[], Awaitable[None]]
    """Send the last traces of the closed session, and delete it if nothing was said in it."""


class Host(Protocol):
    """Opens and finds sessions for the frontend. Methods raise `LongreinError`."""

    version: str
    mcp_transports: Sequence[str]
    """Transports beside stdio by which MCP servers of the editor are used: `http`, `sse`."""

    async def open(self, request: SessionRequest, session: str, editor: Editor) -> SessionFacts:
        """Open the stored `session`, or a new one for ''; its tools use what `editor` offers."""
        ...

    def stored(self) -> Sequence[StoredSession]:
        """Return all stored sessions, newest first."""
        ...

    async def fork(self, session: str) -> str:
        """Copy a stored session; return the id of the copy."""
        ...

    async def delete(self, session: str) -> None:
        """Delete a stored session. One that is open cannot be deleted."""
        ...

    def check_model(self) -> None:
        """Raise `ModelUnknown` when neither settings nor keys offer a model."""
        ...
