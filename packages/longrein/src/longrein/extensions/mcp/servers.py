"""The MCP servers of a session: their connections, and their tools as ordinary tools.

Tools enter the prefix once, before the first request. From then on the prefix keeps its bytes:
tools that come or change later are found with `ToolSearch` and called with `CallTool`, and the
model is told.
"""

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from longrein.extensions.mcp.mcp_port import (
    ListedPrompt,
    ListedTool,
    McpFailure,
    ServerHost,
    Status,
)
from longrein.extensions.mcp.questions import Action, Questions
from longrein.extensions.mcp.server_config import McpServer
from longrein.extensions.mcp.settings import McpOptions
from longrein.tools.registry import make_tool
from longrein.tools.text_encoding import clean_text
from longrein.tools.tool_port import Blobs, Outcome, Tool, ToolContext
from longrein.tools.tool_search import (
    CALL_TOOL_ENTRY,
    MCP_PREFIX,
    found_by_search,
    tool_search,
)
from longrein_context.events import PrefixSet, Text, ToolSpec, UsageError, text_of

if TYPE_CHECKING:
    from longrein.extensions.mcp.connection import McpConnection

START_DELAY_S = 0.2
"""Pause after the start, so that the prompt is on the screen before the SDK is imported."""
MENTION_CHARS_MAX = 50_000
NAME_CHARS_MAX = 200
"""Arguments in the name of a background task."""
CHARS_PER_TOKEN = 4
LISTED_RESOURCES_MAX = 200
UPDATES_MAX = 20
"""Changed resources that are told at once."""
CONNECTION_MODULE = "longrein.extensions.mcp.connection"
MISSING = (
    "MCP servers are configured, but the package `mcp` is missing: pip install 'longrein[mcp]'"
)


class ServerView(msgspec.Struct, frozen=True):
    """State of one server, for display."""

    name: str
    status: Status
    problem: str
    address: str
    scope: str
    tools: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    resources: bool = False
    title: str = ""
    protocol: str = ""


class McpToolset:
    """All servers of a session. Belongs to one event loop; subagents share it."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        host: ServerHost,
        options: McpOptions,
        in_background: Callable[[Callable[[], Any]], "asyncio.Future[Any]"],
    ) -> None:
        self.servers = {server.name: server for server in servers}
        self.host, self.options = host, options
        self.questions = Questions(self._tell_user)
        self._logging_in: set[str] = set()
        self._in_background = in_background
        self._connections: dict[str, McpConnection] = {}
        self._registry: dict[str, Tool] = {}
        self._nonce = ""
        self.denies: Callable[[str], bool] = lambda _: False
        """Returns True if a rule forbids every call of a tool."""
        self._offered: dict[str, Tool] = {}
        """Tools in the prefix, with their definitions there."""
        self.instructions = ""
        """Text for the static context."""
        self.pinned = False
        """True once the prefix has the tools of the servers."""
        self._has_search = False
        """True if the prefix has the tools that find later ones."""
        self.read_seq = 0
        """Entry up to which the session has searched the user's words for resources."""
        self._news: dict[str, str] = {}
        self.changed_tools: list[str] = []
        """Tools whose definition a server has changed since they were offered; taken by the
        session.
        """
        self._names: dict[str, dict[str, ListedTool]] = {}
        """Server -> tools by their full name."""
        self._opening: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._connect: Callable[[McpServer, ServerHost], McpConnection] | None = None
        """Class of connections; None until the SDK is imported."""
        self._closing: list[asyncio.Task[None]] = []
        self.missing = ""
        """Reason why no server can be used; '' if they can."""
        host.changed, host.resource_updated = self._note_change, self._note_update
        self._updated: dict[str, None] = {}
        """`SERVER:URI` of resources that changed after they were read."""

    # --- Life -------------------------------------------------------------------------------------

    def attach(
        self, registry: dict[str, Tool], nonce: str, stored: PrefixSet | None, seq: int = 0
    ) -> None:
        """Use `registry` for the tools.

        `stored` is the prefix of a resumed session, whose definitions stay; `seq` its last entry.
        """
        self._registry = registry
        self._nonce = nonce
        self.read_seq = seq
        if not self.servers:
            self.pinned = True
            return
        self.pinned = self._has_search = stored is not None and any(
            spec.name == "ToolSearch" for spec in stored.tools
        )
        for spec in stored.callable_tools if stored is not None and self.pinned else ():
            words = spec.name.split("__", 2)
            if spec.name in RESOURCE_TOOLS:
                self._offered[spec.name] = msgspec.structs.replace(
                    self._resource_tools()[spec.name], spec=spec
                )
            elif spec.name.startswith(MCP_PREFIX) and len(words) == 3 and words[1] in self.servers:
                always = self.servers[words[1]].always_listed
                self._offered[spec.name] = self._made(
                    words[1], spec, reads=False, always_listed=always
                )
        self._registry.update(self._offered)
        self._renew_search()

    @property
    def usable(self) -> list[McpServer]:
        return [one for one in self.servers.values() if not (one.problem or one.disabled)]

    def start(self) -> None:
        """Connect in the background, a moment later."""
        if self._opening is None and self.usable and not self.missing:
            self._opening = asyncio.ensure_future(self._open())

    def want(self) -> None:
        """Connect now."""
        self.start()
        self._wanted.set()

    async def _open(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), START_DELAY_S)
        try:
            module = await self._in_background(lambda: importlib.import_module(CONNECTION_MODULE))
        except ImportError as error:
            self.missing = (
                MISSING
                if (error.name or "").startswith("mcp")
                else f"MCP servers cannot be used: {error}"
            )
            self.host.notice(self.missing)
            return
        self._connect = module.McpConnection
        for server in self.usable:
            self._connections[server.name] = module.McpConnection(server, self.host)
            self._connections[server.name].start()

    async def ready(self) -> None:
        """Wait until each server is connected or has failed."""
        self.want()
        if self._opening is not None:
            await asyncio.shield(self._opening)
        for connection in list(self._connections.values()):
            await connection.settled()

    @property
    def connecting(self) -> list[str]:
        """Servers whose outcome is not known yet."""
        if self.missing:
            return []
        return [
            one.name
            for one in self.usable
            if one.name not in self._connections
            or self._connections[one.name].status == "connecting"
        ]

    @property
    def late(self) -> list[str]:
        """Servers whose outcome is not known yet, with what is known of the reason."""
        noises = {name: connection.noise for name, connection in self._connections.items()}
        return [
            f"{name} ({noises[name]})" if noises.get(name) else name for name in self.connecting
        ]

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        closing = (*self._closing, *(one.close() for one in self._connections.values()))
        await asyncio.gather(*closing, return_exceptions=True)

    def reconnect(self, name: str) -> None:
        """Connect with a server anew. Raises `UsageError`."""
        self._known(name)
        self.want()
        if name in self._connections:
            self._connections[name].reconnect()

    def _tell_user(self, text: str) -> None:
        self.host.notice(text)  # of the session, which comes later

    def let_user_answer(self) -> None:
        self.host.elicit = self._ask_user

    async def _ask_user(
        self, server: str, message: str, schema: Mapping[str, Any], url: str
    ) -> tuple[Action, dict[str, Any]]:
        self.host.announce(
            "elicitation_dialog", f"MCP server {server} asks: {clean_text(message)[:1_000]}"
        )
        answer = await self.questions.ask(server, message, schema, url)
        self.host.announce("elicitation_response", f"MCP server {server} was answered: {answer[0]}")
        return answer

    def login(self, name: str) -> None:
        """Connect anew and show where to log in. Raises `UsageError`."""

        async def show(url: str) -> None:
            self.host.notice(f"MCP server {name}: open this address and log in there: {url}")

        self._known(name)
        self._logging_in.add(name)
        self.host.login = show
        self.reconnect(name)

    def disable(self, name: str) -> None:
        """End the connection with a server until it is enabled. Raises `UsageError`."""
        self.servers[name] = msgspec.structs.replace(self._known(name), disabled=True)
        self._disconnect(name)

    def _disconnect(self, name: str) -> None:
        if connection := self._connections.pop(name, None):
            self._closing.append(asyncio.ensure_future(connection.close()))

    def enable(self, name: str) -> None:
        """Connect with a server that was disabled. Raises `UsageError`."""
        server = self.servers[name] = msgspec.structs.replace(self._known(name), disabled=False)
        if server.problem:
            raise UsageError(f"MCP server {name}: {server.problem}")
        if self._connect is not None and name not in self._connections:
            self._connections[name] = self._connect(server, self.host)
            self._connections[name].start()
        self.want()

    def set_program_servers(self, servers: Sequence[McpServer]) -> tuple[list[str], list[str]]:
        """Put `servers` in place of those that the program has named; return the names (added,
        removed).

        Where the prefix cannot find later tools, the next turn begins with another one.
        """
        wanted = {one.name: one for one in servers}
        named = [name for name, one in self.servers.items() if one.scope == "program"]
        removed = [name for name in named if wanted.get(name) != self.servers[name]]
        for name in removed:
            self._remove(name)
        added = [name for name in wanted if name not in self.servers]
        for name in added:
            self.servers[name] = wanted[name]
            if not wanted[name].problem:
                self.enable(name)
        self.pinned = self.pinned and (self._has_search or not added)
        self._renew_search()
        return added, removed

    def _remove(self, name: str) -> None:
        """Forget a server. Tools of it that the prefix holds answer that it is not there."""
        self._disconnect(name)
        del self.servers[name]
        gone = self._names.pop(name, {})
        for full in gone.keys() - self._offered.keys():
            self._registry.pop(full, None)
        if self.pinned and gone:
            self._news[name] = f"gone: {', '.join(gone)}"[:4_000]

    def views(self) -> list[ServerView]:
        return [self._view(server) for server in self.servers.values()]

    def _view(self, server: McpServer) -> ServerView:
        connection = self._connections.get(server.name)
        if server.problem or server.disabled or connection is None:
            status: Status = "disabled" if server.disabled else "connecting"
            if server.problem or self.missing:
                status = "failed"
            return ServerView(
                server.name, status, server.problem or self.missing, server.address, server.scope
            )
        offer = connection.offer
        return ServerView(
            server.name,
            connection.status,
            clean_text(connection.problem),
            server.address,
            server.scope,
            tuple(self._names.get(server.name, ())),
            tuple(f"{MCP_PREFIX}{server.name}__{one.name}" for one in offer.prompts),
            offer.resources,
            clean_text(offer.title),
            offer.protocol,
        )

    # --- Tools ------------------------------------------------------------------------------------

    async def find(self, name: str) -> Tool | None:
        """Return a tool by its full name, once the servers are connected; None where there is
        none.
        """
        if name not in self._registry:
            await self.ready()
        return self._registry.get(name)

    @property
    def offered(self) -> tuple[Tool, ...]:
        return tuple(self._offered.values())

    def pin(self) -> None:
        """Freeze what the prefix holds: the tools and instructions of the servers that are
        connected now.
        """
        tools = [
            self._registry[name] for server in self.servers for name in self._names.get(server, ())
        ]
        resources = [self._registry[name] for name in RESOURCE_TOOLS if name in self._registry]
        self._offered = {tool.spec.name: tool for tool in (*tools, *resources)}
        self.instructions = self._instructions()
        self.pinned, self._has_search = True, bool(self.servers)
        self._news.clear()

    def take_news(self) -> list[tuple[str, str]]:
        """Return (server, text) of changes that the model has to be told of, once."""
        news = list(self._news.items())
        self._news.clear()
        return news

    def take_updates(self) -> list[str]:
        """Return `SERVER:URI` of resources that changed after they were read, once."""
        updated = list(self._updated)
        self._updated.clear()
        return updated

    def _note_update(self, server: str, uri: str) -> None:
        if len(self._updated) < UPDATES_MAX:
            self._updated[f"{server}:{clean_text(uri)[:500]}"] = None

    def _note_change(self, name: str) -> None:
        """Take over what a server offers now."""
        from longrein.extensions.mcp.tool_specs import tool_names

        connection = self._connections.get(name)
        if connection is None or connection.status != "connected":
            return
        if name in self._logging_in:
            self._logging_in.discard(name)
            self.host.announce("auth_success", f"MCP server {name}: you are logged in")
        tools = {one.name: one for one in reversed(connection.offer.tools)}
        names = tool_names(name, sorted(tools))
        listed = {full: tools[own] for full, own in names.items()}
        before, self._names[name] = self._names.get(name, {}), listed
        known = [*before] or [
            full for full in self._offered if full.startswith(f"{MCP_PREFIX}{name}__")
        ]
        new = [full for full in listed if full not in known and not self.denies(full)]
        gone = [full for full in known if full not in listed]
        changed = []
        for full, tool in listed.items():
            made = self._tool(name, full, tool)
            old = self._registry.get(full)
            if old is not None and old.spec.sent != made.spec.sent:
                changed.append(full)
            self._registry[full] = made
        if connection.offer.resources:
            self._registry.update(
                {
                    key: tool
                    for key, tool in self._resource_tools().items()
                    if key not in self._registry
                }
            )
        if self.pinned:
            said = [
                f"{word}: {', '.join(names)}"
                for word, names in (("new", new), ("gone", gone), ("changed", changed))
                if names
            ]
            if said:
                self._news[name] = "; ".join(said)[:4_000]
            self.changed_tools += changed
        self._renew_search()

    def _renew_search(self) -> None:
        """Let `ToolSearch` find the tools as they are now."""
        search = tool_search(found_by_search(self._registry.values()))
        self._registry.update(
            {search.spec.name: search, CALL_TOOL_ENTRY.spec.name: CALL_TOOL_ENTRY}
        )

    def _tool(self, server: str, full: str, listed: ListedTool) -> Tool:
        from longrein.extensions.mcp.tool_specs import tool_spec

        always = listed.always_listed or self.servers[server].always_listed
        spec = tool_spec(full, listed, self._nonce)
        return self._made(server, spec, reads=listed.reads, always_listed=always)

    def _made(self, server: str, spec: ToolSpec, *, reads: bool, always_listed: bool) -> Tool:
        async def run(context: ToolContext, /, **arguments: Any) -> Outcome:
            shown = [context.note]
            work = self._call(
                server, spec, context.blobs, arguments, lambda data: [note(data) for note in shown]
            )
            if context.commands.tasks is None:
                return await work
            name = f"{spec.name} {clean_text(str(arguments))[:NAME_CHARS_MAX]}"
            came = await context.commands.tasks.carry(name, work, after_s=self.options.background_s)
            if isinstance(came, Outcome):
                return came
            from longrein.tools.bash import background_message

            shown.clear()  # the call has ended for the screen
            return Outcome.of(background_message(came, "", self.options.background_s))

        return Tool(
            spec=spec,
            access="read" if reads else "command",
            run=run,
            together=lambda _: reads,
            paths=lambda _: (),
            listing="always" if always_listed else "listed",
            withdrawn=self.denies(spec.name),
        )

    async def _call(
        self,
        server: str,
        spec: ToolSpec,
        blobs: Blobs,
        arguments: Mapping[str, Any],
        note: Callable[[bytes], Any],
    ) -> Outcome:
        """Call the tool of `spec`, for which the call was allowed."""
        full = spec.name
        from longrein.extensions.mcp.result_content import outcome_of

        def progress(done: float, total: float | None, message: str) -> None:
            share = f"{done:g}/{total:g}" if total else f"{done:g}"
            note(clean_text(f"{share} {message}".strip()[:500]).encode() + b"\n")

        try:
            connection = await self._connection(server)
            if full not in self._names.get(server, ()) and not connection.offer.tools:
                await asyncio.wait_for(connection.settled(), connection.startup_s)
            listed = self._names.get(server, {}).get(full)
            if listed is None:
                why = f": {connection.problem}" if connection.status != "connected" else ""
                raise McpFailure(f"the server does not offer this tool{why}")
            if self._registry[full].spec.sent != spec.sent:
                raise McpFailure(
                    "it has changed this tool since the call was allowed; nothing was run: call "
                    "it again"
                )
            most = listed.result_chars_max or CHARS_PER_TOKEN * self.host.output_tokens_max
            said = await connection.call_tool(
                listed.name, arguments, progress, self._call_s(server)
            )
            return outcome_of(said, blobs, most)
        except (McpFailure, TimeoutError) as failure:
            return Outcome.fail(
                f"[mcp] {server}: {clean_text(str(failure)) or 'it is not connected yet'}"
            )

    def _call_s(self, server: str) -> float:
        return self.servers[server].call_s or self.host.call_s

    def _known(self, name: str) -> McpServer:
        if name not in self.servers:
            raise UsageError(
                f"there is no MCP server {name[:60]!r}; there are "
                f"{', '.join(self.servers) or 'none'}"
            )
        return self.servers[name]

    async def _connection(self, name: str) -> "McpConnection":
        """Return the connection with a server. Raises `McpFailure`."""
        self.want()
        if self._opening is not None:
            await asyncio.shield(self._opening)
        if name not in self._connections:
            known = self.servers.get(name)
            why = self.missing or (
                known.problem or "it is disabled" if known else "there is no such server"
            )
            raise McpFailure(why)
        return self._connections[name]

    def _instructions(self) -> str:
        """Return the instructions of all connected servers that no rule denies, quoted as
        theirs.
        """
        from longrein.extensions.mcp.tool_specs import instructions_text

        said = [
            (name, one.offer.instructions)
            for name, one in self._connections.items()
            if one.status == "connected" and not self.denies(f"{MCP_PREFIX}{name}__")
        ]
        return instructions_text(said, self._nonce)

    # --- Resources --------------------------------------------------------------------------------

    def _resource_tools(self) -> dict[str, Tool]:
        async def ListMcpResourcesTool(context: ToolContext, server: str = "") -> Outcome:  # noqa: ARG001
            """List the resources of MCP servers.

            server: Only those of this server.
            """
            return Outcome.of(await self.list_resources(server))

        async def ReadMcpResourceTool(context: ToolContext, server: str, uri: str) -> Outcome:
            """Read a resource of an MCP server.

            server: The server's name.
            uri: The resource's URI.
            """
            from longrein.extensions.mcp.result_content import resource_parts

            try:
                contents = await self.read_resource(server, uri)
            except McpFailure as failure:
                return Outcome.fail(f"[mcp] {server}: {clean_text(str(failure))}")
            parts = tuple(part for one in contents for part in resource_parts(one, context.blobs))
            return Outcome(parts or (Text("[no content]"),))

        made = (
            make_tool(
                ListMcpResourcesTool,
                access="none",
                together=True,
                kind="search",
                listing="deferred",
            ),
            make_tool(
                ReadMcpResourceTool,
                access="read",
                together=True,
                kind="read",
                listing="deferred",
                key_argument="uri",
            ),
        )
        return {
            tool.spec.name: msgspec.structs.replace(tool, withdrawn=self.denies(tool.spec.name))
            for tool in made
        }

    async def list_resources(self, server: str = "") -> str:
        """List the resources of one server or of all, one line each."""
        names = [server] if server else [one.name for one in self.usable]
        lines: list[str] = []
        for name in names:
            try:
                connection = await self._connection(name)
                if not connection.offer.resources and connection.status == "connected":
                    continue
                for one in await connection.list_resources(self._call_s(name)):
                    what = "template " if one.template else ""
                    text = " ".join(f"{one.name} {one.description}".split())[:200]
                    lines.append(clean_text(f"{what}@{name}:{one.uri}  {text}"))
            except McpFailure as failure:
                lines.append(clean_text(f"{name}: {failure}"))
        more = len(lines) - LISTED_RESOURCES_MAX
        shown = [*lines[:LISTED_RESOURCES_MAX], *([f"and {more} more"] if more > 0 else [])]
        return "\n".join(shown) or "no server offers resources"

    async def read_resource(self, server: str, uri: str) -> list[dict[str, Any]]:
        """Return the contents of a resource as the server gives them. Raises `McpFailure`."""
        connection = await self._connection(server)
        return await connection.read_resource(uri, self._call_s(server))

    async def mention(self, server: str, uri: str) -> str:
        """Return the text of a resource that the user mentioned, or why it cannot be read."""
        try:
            contents = await self.read_resource(server, uri)
        except McpFailure as failure:
            return f"it cannot be read: {clean_text(str(failure))}"
        texts = [
            clean_text(str(one["text"])) if "text" in one else "[binary content]"
            for one in contents
        ]
        return "\n".join(texts)[:MENTION_CHARS_MAX] or "(no content)"

    # --- Prompts ----------------------------------------------------------------------------------

    def prompts(self) -> list[tuple[str, str, ListedPrompt]]:
        """Return (command, server, prompt) of all prompts that are known now."""
        from longrein.extensions.mcp.tool_specs import tool_name

        return [
            (tool_name(name, one.name), name, one)
            for name, connection in self._connections.items()
            for one in connection.offer.prompts
        ]

    async def prompt_text(self, command: str, words: Sequence[str], blobs: Blobs) -> str:
        """Return the text of the prompt `mcp__SERVER__PROMPT`, with `words` as its arguments.

        Raises `UsageError`.
        """
        server = self._known(command.removeprefix(MCP_PREFIX).partition("__")[0])
        try:
            connection = await self._connection(server.name)
            await asyncio.wait_for(connection.settled(), connection.startup_s + 1)
            found = {name: one for name, of, one in self.prompts() if of == server.name}
            if command not in found:
                why = f" ({connection.problem})" if connection.problem else ""
                raise UsageError(
                    f"there is no prompt /{command[:80]}{why}; there are {_listed(found)}"
                )
            prompt = found[command]
            arguments = _prompt_arguments(command, prompt, words)
            said = await connection.get_prompt(prompt.name, arguments, self._call_s(server.name))
        except (McpFailure, TimeoutError) as failure:
            raise UsageError(
                f"/{command}: {clean_text(str(failure)) or 'the server is not connected'}"
            ) from None
        texts = [_message_text(one, blobs) for one in said]
        return "\n\n".join(filter(None, texts)) or "(an empty prompt)"


RESOURCE_TOOLS = ("ListMcpResourcesTool", "ReadMcpResourceTool")


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(f"/{name}" for name in list(names)[:20]) or "none"


def _prompt_arguments(command: str, prompt: ListedPrompt, words: Sequence[str]) -> dict[str, str]:
    """Match the words after a command with the arguments of its prompt; the last one takes the
    rest.

    Raises `UsageError` where a required one is missing.
    """
    names = [name for name, _ in prompt.arguments]
    given = [*words]
    if names and len(given) > len(names):
        given = [*given[: len(names) - 1], " ".join(given[len(names) - 1 :])]
    arguments = dict(zip(names, given, strict=False))
    missing = [name for name, required in prompt.arguments if required and name not in arguments]
    if missing:
        raise UsageError(
            f"/{command} needs {', '.join(missing)}: /{command} {' '.join(names).upper()}"
        )
    return arguments


def _message_text(message: Mapping[str, Any], blobs: Blobs) -> str:
    from longrein.extensions.mcp.result_content import parts_of

    content = message.get("content")
    blocks = content if isinstance(content, list) else [content or {}]
    text = text_of(parts_of(blocks, blobs))
    return text if message.get("role") != "assistant" else f"(assistant)\n{text}"
