"""MCP servers in a session: their tools enter the prefix before the first request; later changes
are told.
"""

import asyncio
import re
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import msgspec

from longrein.agent.messages import InboxMessage, UserMessage, prompt_line, split_words
from longrein.agent.redaction import redacted
from longrein.agent.session_part import SessionPart
from longrein.context import external_event
from longrein.events import Reminded, Text, UserSpoke, text_of

if TYPE_CHECKING:
    from longrein.agent.session import Session
    from longrein.tools.mcp.servers import McpToolset

CHANGED = "mcp_changed"
RESOURCE = "mcp_resource"
UPDATED = "mcp_resource_updated"
"""Kinds of reminders."""
MENTIONS_MAX = 10
_MENTION = r"(?<!\S)@([A-Za-z0-9_-]+):([A-Za-z][A-Za-z0-9+.-]*:[^\s]+)"
"""`@SERVER:URI` in the user's words."""


async def record_server_changes(session: "Session") -> None:
    """Record what the servers offer, before the next move: as prefix before the first request,
    later as news.
    """
    servers = session.deps.mcp
    if servers is None or session.deps.parent_policy is not None or session.closed:
        return
    if session.state.turn_open and not session.paused:
        if not servers.pinned:
            await session.perform(_enter_prefix(session, servers))
        await _read_mentions(session, servers)
    for server, text in servers.take_news():
        session.append(*external_event(CHANGED, server, text))
    for resource in servers.take_updates():
        session.append(*external_event(UPDATED, resource, ""))
    changed, servers.changed_tools = servers.changed_tools, []
    if changed:
        session.approvals.ask_again(changed)
        session.notice(
            f"MCP servers have changed {', '.join(changed)[:200]}: calls are asked about again"
        )


async def _enter_prefix(session: "Session", servers: "McpToolset") -> None:
    """Wait for the servers, then put their tools and instructions into the prefix."""
    servers.want()
    if waiting := servers.connecting:
        session.notice(
            f"waiting for MCP servers: {', '.join(waiting)} (at most {servers.options.wait_s:g} s)"
        )
        try:
            await asyncio.wait_for(servers.ready(), servers.options.wait_s)
        except TimeoutError:
            late = ", ".join(servers.late)
            session.notice(
                f"MCP servers not connected yet: {late}; their tools are found with ToolSearch "
                "once they are"
            )
    servers.pin()
    present, wanted = (
        session.state.prefix,
        redacted(session.deps.prefix(session.deps.model, "tools"), session.deps.redact),
    )
    if present is None or (present.tools, present.deferred, present.context) != (
        wanted.tools,
        wanted.deferred,
        wanted.context,
    ):
        session.append(wanted)


async def _read_mentions(session: "Session", servers: "McpToolset") -> None:
    """Read the resources that the user has mentioned since the last look."""
    first, servers.read_seq = servers.read_seq + 1, session.state.seq
    if first > session.state.seq:
        return
    texts = [
        text_of(entry.event.parts)
        for entry in session.entries_from(first)
        if isinstance(entry.event, UserSpoke) and not entry.event.verbatim
    ]
    found = [
        match.groups()
        for text in texts
        for match in re.finditer(_MENTION, text)
        if match[1] in servers.servers
    ]
    for server, uri in list(dict.fromkeys(found))[:MENTIONS_MAX]:
        told: list[Reminded] = []

        async def read(server: str = server, uri: str = uri, told: list[Reminded] = told) -> None:
            told += external_event(RESOURCE, f"{server}:{uri}", await servers.mention(server, uri))

        await session.perform(read())
        session.append(*told)


class McpPrompts(SessionPart):
    """Put the text of a server's prompt into the inbox in place of its command."""

    rank = 15

    def __init__(self, servers: "McpToolset") -> None:
        self._servers = servers

    def tell(self, message: InboxMessage) -> Awaitable[None] | None:
        if isinstance(message, UserMessage) and (line := prompt_line(message)):
            return asyncio.ensure_future(self._tell(message, line))
        return None

    async def _tell(self, message: UserMessage, line: str) -> None:
        """Raises `UsageError`."""
        command, *words = split_words(line)
        text = await self._servers.prompt_text(command[1:], words, self.session.blobs)
        told = msgspec.structs.replace(message, parts=(Text(text), *message.parts[1:]))
        await self.session.tell(told)
