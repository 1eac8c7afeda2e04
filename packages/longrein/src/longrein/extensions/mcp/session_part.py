"""The MCP servers of a session, as a part of it.

Their tools enter the prefix before the first request; the model is told of later changes.
"""

import asyncio
import importlib.util
import re
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial

import msgspec

from longrein import __version__
from longrein.agent.extension_part import (
    AskUser,
    ControlHandler,
    ExtensionPart,
    SlashCommand,
    Surroundings,
)
from longrein.agent.hooks import SessionHooks
from longrein.agent.messages import InboxMessage, UserMessage
from longrein.agent.redaction import redacted
from longrein.app.additions import Additions, ProgramServers
from longrein.app.execution import variables
from longrein.app.run_context import RunContext
from longrein.config import project_root
from longrein.extensions.mcp.mcp_port import ServerHost
from longrein.extensions.mcp.server_config import McpServer, token_folder
from longrein.extensions.mcp.server_files import load_mcp_servers, read_server, server_secrets
from longrein.extensions.mcp.servers import MISSING, McpToolset
from longrein.extensions.mcp.settings import McpOptions
from longrein.permissions import visible
from longrein.tools import DeferralPolicy, Tool
from longrein.tools.tool_search import MCP_PREFIX
from longrein.workspace import (
    CollectingSink,
    CommandSpec,
    Confinement,
    SupervisedSpawner,
    Workspace,
    run_in_background,
)
from longrein_context import external_event
from longrein_context.events import Reminded, Text, ToolCall, UsageError, UserSpoke, text_of
from longrein_context.events.escape import whole_number

CHANGED = "mcp_changed"
STARTING = "still starting: a call of one of its tools waits for it"
RESOURCE = "mcp_resource"
UPDATED = "mcp_resource_updated"
"""Kinds of reminders."""
MENTIONS_MAX = 10
_MENTION = r"(?<!\S)@([A-Za-z0-9_-]+):([A-Za-z][A-Za-z0-9+.-]*:[^\s]+)"
"""`@SERVER:URI` in the user's words."""


class McpServers(ExtensionPart):
    """The MCP servers of a session and its subagents."""

    toolset: McpToolset
    """Set when the part is attached."""

    def __init__(self, run_context: RunContext, additions: Additions) -> None:
        """Raises `UsageError` for servers of a program that cannot be used."""
        self._run_context, self._ask = run_context, additions.servers.ask
        self._servers, self.notes = find_servers(run_context, additions.servers)
        self.secrets = server_secrets(self._servers)
        options = run_context.settings.of(McpOptions)
        self.deferral = DeferralPolicy(options.listed_tokens_max, options.listed_share / 100)
        self._in_use = bool(self._servers) or self._ask is not None
        self._missing: dict[str, str] = {}
        """Call -> why its tool is not here."""

    # --- Tools ------------------------------------------------------------------------------------

    def attach(self, place: Surroundings) -> None:
        self.toolset = mcp_toolset(
            self._run_context, self._servers, place.spawner, place.workspace, place.session
        )
        if self._ask is not None:
            from longrein.extensions.mcp.control_requests import tunnel

            self.toolset.host.tunnel = tunnel(self._ask)
        self.toolset.denies = place.denies
        sent = (
            place.state.prefix if place.state.asks else None
        )  # the first may never have been sent
        self.toolset.attach(place.tools, place.nonce, sent, place.state.seq)

    @property
    def offered(self) -> Sequence[Tool]:
        return self.toolset.offered

    @property
    def grows(self) -> bool:
        return bool(self.toolset.servers)

    @property
    def instructions(self) -> tuple[str, str]:
        return "MCP servers", self.toolset.instructions

    async def find_tool(self, name: str) -> Tool | None:
        server = _server_of(name)
        if server not in self.toolset.servers:
            return None
        tool = await self.toolset.find(name)
        if tool is None:
            view = next(one for one in self.toolset.views() if one.name == server)
            offered = ", ".join(one.split("__", 2)[2] for one in view.tools) or "none"
            why = visible(view.problem or f"it offers {offered}")[:300]
            raise UsageError(f"the MCP server {server} has no such tool: {why}")
        return tool

    # --- Life -------------------------------------------------------------------------------------

    def opened(self) -> None:
        host, session = self.toolset.host, self.session
        changed, updated = host.changed, host.resource_updated

        def note_change(server: str) -> None:
            changed(server)
            session.poke()

        def note_update(server: str, uri: str) -> None:
            updated(server, uri)
            session.poke()

        host.announce, host.confine = session.part(SessionHooks).notify, self._confine
        host.notice = session.notice
        host.changed = note_change
        host.resource_updated = note_update

    def _confine(self, server: McpServer, cwd: str) -> Confinement | None:
        from longrein.agent.confinement import confine
        from longrein.extensions.mcp.server_confinement import server_sandbox

        sandbox = self.session.deps.sandbox
        if sandbox is None or server.sandbox == "off":
            return None
        return confine(self.session, cwd, sandbox=server_sandbox(sandbox, server, cwd))

    def started(self) -> None:
        if self._in_use:
            self.toolset.start()

    async def release(self) -> None:
        await self.toolset.close()

    # --- Changes ----------------------------------------------------------------------------------

    async def before_move(self) -> None:
        """Record what the servers offer: as prefix before the first request, later as news."""
        session, servers = self.session, self.toolset
        if not self._in_use or session.closed:
            return
        if session.state.turn_open and not session.paused:
            if not servers.pinned:
                await session.perform(self._enter_prefix())
            await self._read_mentions()
            for open_call in list(session.state.calls.values()):
                call = open_call.call
                is_late = call.name not in session.deps.tools and call.id not in self._missing
                if is_late and _server_of(call.name) in servers.connecting:
                    await session.perform(self._wait_for(call))
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

    async def _enter_prefix(self) -> None:
        """Wait for the servers, then put their tools and instructions into the prefix."""
        session, servers = self.session, self.toolset
        servers.want()
        if waiting := servers.connecting:
            limit_s = servers.options.wait_s
            await session.commit(flush=True)  # a kill while they connect loses no word of the user
            session.notice(f"waiting for MCP servers: {', '.join(waiting)} (at most {limit_s:g} s)")
            try:
                await asyncio.wait_for(servers.ready(), limit_s)
            except TimeoutError:
                late = ", ".join(servers.late)
                session.notice(
                    f"MCP servers not connected yet: {late}; their tools are found with ToolSearch "
                    "once they are"
                )
        starting = servers.connecting
        servers.pin()
        for name in starting:
            session.append(*external_event(CHANGED, name, STARTING))
        present = session.state.prefix
        wanted = redacted(session.deps.prefix(session.deps.model, "tools"), session.deps.redact)
        if present is None or (present.tools, present.deferred, present.context) != (
            wanted.tools,
            wanted.deferred,
            wanted.context,
        ):
            session.append(wanted)

    async def _wait_for(self, call: ToolCall) -> None:
        """Wait for the server of a call; it is bounded, as the start is."""
        limit_s = self.toolset.options.wait_s
        server = _server_of(call.name)
        try:
            await asyncio.wait_for(self.find_tool(call.name), limit_s)
        except TimeoutError:
            why = f"MCP server {server} has not connected within {limit_s:g} s: call again later"
            self._missing[call.id] = f"[unknown-tool] {why}."
        except UsageError as error:
            self._missing[call.id] = f"[unknown-tool] {error}."

    def why_missing(self, call: ToolCall) -> str:
        return self._missing.get(call.id, "")

    async def _read_mentions(self) -> None:
        """Read the resources that the user has mentioned since the last look."""
        session, servers = self.session, self.toolset
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
            await session.perform(self._read(server, uri, told))
            session.append(*told)

    async def _read(self, server: str, uri: str, told: list[Reminded]) -> None:
        text = await self.toolset.mention(server, uri)
        told += external_event(RESOURCE, f"{server}:{uri}", text)

    # --- Prompts ----------------------------------------------------------------------------------

    def tell(self, message: InboxMessage) -> Awaitable[None] | None:
        """Put the text of a server's prompt into the inbox in place of its command."""
        if self._in_use and isinstance(message, UserMessage) and (line := _prompt_line(message)):
            return asyncio.ensure_future(self._tell(message, line))
        return None

    async def _tell(self, message: UserMessage, line: str) -> None:
        """Raises `UsageError`."""
        command, *words = _split_words(line)
        text = await self.toolset.prompt_text(command[1:], words, self.session.blobs)
        told = msgspec.structs.replace(message, parts=(Text(text), *message.parts[1:]))
        await self.session.tell(told)

    # --- Frontends --------------------------------------------------------------------------------

    def connections(self) -> Sequence[tuple[str, str]]:
        return [(view.name, view.status) for view in self.toolset.views()]

    def let_user_answer(self, ask: AskUser | None = None) -> None:
        if ask is None:
            self.toolset.let_user_answer()
        else:
            self.toolset.host.elicit = ask

    def slash_commands(self) -> Sequence[SlashCommand]:
        from longrein.extensions.mcp.slash_command import server_rows

        prompts = [
            SlashCommand(
                name,
                " ".join(argument.upper() for argument, _ in prompt.arguments),
                prompt.description,
            )
            for name, _, prompt in self.toolset.prompts()
        ]
        return [
            SlashCommand(
                "mcp",
                "[NAME | reconnect NAME | …]",
                "MCP servers; also login, disable, enable",
                partial(server_rows, self.toolset),
                "MCP servers",
            ),
            *prompts,
        ]

    def control_requests(self) -> Mapping[str, ControlHandler]:
        from longrein.extensions.mcp.control_requests import control_handlers

        return control_handlers(
            self.toolset, self._run_context.environ, self._in_use, self.session.hide
        )


def _server_of(tool: str) -> str:
    """Return the server in the full name of a tool; '' for a tool of none."""
    prefix, _, name = tool.partition(MCP_PREFIX)
    return name.partition("__")[0] if not prefix else ""


def _prompt_line(message: UserMessage) -> str:
    """Return the command `/mcp__SERVER__PROMPT …` that a message is; '' for any other message."""
    first = message.parts[0] if message.parts else None
    text = first.text.strip() if isinstance(first, Text) else ""
    return text if text.startswith("/mcp__") and "__" in text.partition(" ")[0][6:] else ""


def _split_words(line: str) -> list[str]:
    """Split a command line into words; quotes hold a word together."""
    return [(quoted or plain) for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', line)]


MCP_OUTPUT_TOKENS = 25_000
"""Size of a result of a server that is shown whole."""
HELPER_S, HELPER_BYTES_MAX = 10.0, 64_000
"""Limits of a `headersHelper`."""


def find_servers(
    run_context: RunContext, added: ProgramServers
) -> tuple[tuple[McpServer, ...], list[str]]:
    """Return the servers to use, and notes for the user.

    Raises `UsageError` for a wrong server of a program that wants to know of it.
    """
    given = [
        read_server(name, entry, run_context.environ, "program", added.source)
        for name, entry in added.entries.items()
    ]
    wrong = next((server for server in given if server.problem), None)
    if wrong is not None and added.refuses_wrong:
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
    return whole_number(environ.get(name, ""))
