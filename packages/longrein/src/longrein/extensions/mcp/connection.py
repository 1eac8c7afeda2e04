"""The connection with one MCP server: connect, list what it offers, call, connect again after it
ended.

This module imports the `mcp` SDK, which takes a second: `servers` imports it in a thread when the
first server is wanted. Nothing that a server does raises out of here but `McpFailure`.
"""

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

import mcp_types as types
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from pydantic import ValidationError

from longrein.agent.extension_part import AskUser
from longrein.extensions.mcp.mcp_port import (
    CannotStart,
    ListedPrompt,
    ListedResource,
    ListedTool,
    McpFailure,
    Progress,
    ServerHost,
    ServerOffer,
    Status,
)
from longrein.extensions.mcp.mended_tools import with_mended_tools
from longrein.extensions.mcp.server_config import McpServer
from longrein.extensions.mcp.transports import open_transport

T = TypeVar("T")
logging.getLogger("mcp").addHandler(
    logging.NullHandler()
)  # else its warnings stand in the middle of the screen
logging.getLogger("mcp").propagate = False
warnings.simplefilter("ignore", MCPDeprecationWarning)
MODERN = "2026"
"""Protocol versions from here on are stateless."""
PAGES_MAX = 50
LISTED_MAX = 1_000
"""Tools, prompts or resources of one server."""
RESULT_CHARS_MAX = 500_000
"""Most that a server may ask to be shown of a result."""
BACKOFF_S = (0.2, 1.0, 4.0, 15.0, 60.0)
"""Pauses before connecting again, by the number of failures in a row. Later only a call connects
again.
"""
CLOSE_S = 2.0
"""Longest wait for a connection to close."""
CLOSED = "Connection closed"
"""The SDK's error for a request on a connection that has ended."""
WRONG_VERSION = "Unsupported protocol version from the server: "
"""Beginning of the SDK's error for a version that it does not know."""


class McpConnection:
    """Connection with one server. Belongs to one event loop."""

    def __init__(self, server: McpServer, host: ServerHost) -> None:
        self.server, self._host = server, host
        self.status: Status = "connecting"
        self.problem = ""
        """Reason why the server is not connected, for display."""
        self.offer = ServerOffer()
        self._noise: list[str] = []
        """The first line of its output that was no JSON."""
        self._client: Client | None = None
        self._ended, self._stale, self._retry = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._begun = self._known = 0
        """Attempts to connect that have begun, and the last one whose outcome is known."""
        self._outcome = asyncio.Event()
        """Set, and replaced, when an outcome is known."""
        self._answered = False
        """True once the present connection has answered a call."""
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    @property
    def noise(self) -> str:
        """A note on output that was no JSON; '' for none."""
        return (
            f"it prints lines that are no JSON, such as {self._noise[0]!r}" if self._noise else ""
        )

    @property
    def startup_s(self) -> float:
        """Limit of connecting, in seconds."""
        return self.server.startup_s or self._host.startup_s

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def settled(self) -> None:
        """Wait until it is connected or has failed."""
        await self._wait_outcome(max(1, self._begun))

    async def _wait_outcome(self, attempt: int) -> None:
        while self._known < attempt and not self._closing:
            await self._outcome.wait()

    def _tell_outcome(self) -> None:
        self._known = self._begun
        told, self._outcome = self._outcome, asyncio.Event()
        told.set()

    def reconnect(self) -> None:
        self._ended.set()
        self._retry.set()

    async def close(self) -> None:
        """End the connection and the server's process."""
        self._closing = True
        self._ended.set()
        self._retry.set()
        self._tell_outcome()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_S)
            if not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=CLOSE_S)

    # --- Connecting -------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while not self._is_closing():
            self._ended, self._stale, self._noise = asyncio.Event(), asyncio.Event(), []
            self._answered = False
            was = self.status
            self.status = "connecting"
            self._begun += 1
            self._retry.clear()
            try:
                await self._serve()
                problem = "it has ended"
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if self._is_closing() or (task is not None and task.cancelling()):
                    raise
                problem = "the connection was cut"  # by the SDK's task group
            except CannotStart as error:
                problem, failures = str(error), len(BACKOFF_S)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                problem = problem_of(error)
            connected = self._client is not None
            self._client = None
            self._ended.set()
            if self._is_closing():
                return
            failures = 0 if self._answered else failures + 1
            self._fail(problem, was=was, connected=connected, again=failures < len(BACKOFF_S))
            await self._pause(failures)

    def _is_closing(self) -> bool:
        return self._closing

    def _fail(self, problem: str, *, was: Status, connected: bool, again: bool) -> None:
        """Record a failure, and tell the user once of each series."""
        needs_login = "log in (HTTP" in problem
        self.status, self.problem = ("needs login" if needs_login else "failed"), problem
        self._tell_outcome()
        hint = f"; log in with `longrein mcp login {self.server.name}`" if needs_login else ""
        if connected or was != self.status or not again:
            more = (
                ""
                if again or needs_login or not connected
                else "; it is started again only for a call"
            )
            self._host.notice(f"MCP server {self.server.name}: {problem}{hint}{more}")
        self._host.changed(self.server.name)

    async def _pause(self, failures: int) -> None:
        is_last = failures >= len(BACKOFF_S) or self.status == "needs login"
        pause_s = None if is_last else (0.0, *BACKOFF_S)[failures]
        with suppress(TimeoutError):
            await asyncio.wait_for(self._retry.wait(), pause_s)

    async def _serve(self) -> None:
        """Connect, and stay connected until the server or longrein ends it."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self.startup_s):
                    transport = await open_transport(
                        self.server, self._host, stack, self._ended, self._noise
                    )
                    mended = with_mended_tools(transport, self._tell_mended)
                    client = await stack.enter_async_context(self._client_on(mended))
                    offer = await self._read_offer(client)
            except TimeoutError:
                noise = f"; {self.noise}" if self.noise else ""
                raise McpFailure(
                    f"it has not answered within {self.startup_s:g} s{noise}"
                ) from None
            self._client = client
            self.offer = offer
            self.status = "connected"
            self.problem = ""
            self._tell_outcome()
            self._host.changed(self.server.name)
            await self._follow(client)

    def _tell_mended(self, problem: str) -> None:
        self._host.notice(f"MCP server {self.server.name}: {problem}")

    def _client_on(self, transport: Any) -> Client:
        return Client(
            transport,
            client_info=types.Implementation(name="longrein", version=self._host.version),
            message_handler=self._on_message,
            list_roots_callback=self._list_roots,
            elicitation_callback=self._elicit if self._host.elicit is not None else self._decline,
            cache=None,
        )

    async def _follow(self, client: Client) -> None:
        """Wait for the end; list again what has changed."""
        listening = asyncio.ensure_future(self._listen(client))
        try:
            while True:
                waits = [asyncio.ensure_future(one.wait()) for one in (self._ended, self._stale)]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for one in waits:
                        one.cancel()
                if self._ended.is_set():
                    return
                self._stale.clear()
                self.offer = await asyncio.wait_for(self._read_offer(client), self.startup_s)
                self._host.changed(self.server.name)
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def _listen(self, client: Client) -> None:
        """Follow changes on a stateless connection, where the server does not notify by itself."""
        if client.protocol_version < MODERN:
            return
        with suppress(Exception):  # it offers no subscriptions
            async with client.listen(tools_list_changed=True, prompts_list_changed=True) as changes:
                async for _ in changes:
                    self._stale.set()

    async def _read_offer(self, client: Client) -> ServerOffer:
        """List tools and prompts."""
        can = client.server_capabilities
        tools = await _all(client.list_tools, "tools") if can.tools else []
        prompts = await _all(client.list_prompts, "prompts") if can.prompts else []
        info = client.server_info
        return ServerOffer(
            tools=tuple(_tool(one) for one in tools if self.server.offers(one.name)),
            prompts=tuple(_prompt(one) for one in prompts),
            resources=bool(can.resources),
            instructions=client.instructions or "",
            title=f"{info.name} {info.version}" if info else "",
            protocol=str(client.protocol_version),
        )

    # --- Requests of the server -------------------------------------------------------------------

    async def _on_message(self, message: object) -> None:
        match message:
            case types.ToolListChangedNotification() | types.PromptListChangedNotification():
                self._stale.set()
            case types.ResourceUpdatedNotification(params=params):
                self._host.resource_updated(self.server.name, str(params.uri))

    async def _list_roots(self, _: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(
            roots=[types.Root(uri=f"file://{root}") for root in self._host.roots()]
        )

    async def _decline(
        self, _: ClientRequestContext, _params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        self._host.notice(
            f"MCP server {self.server.name} asked a question; nobody is there to answer it: "
            "declined"
        )
        return types.ElicitResult(action="decline")

    async def _elicit(
        self, _: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        ask: AskUser | None = self._host.elicit
        assert ask is not None
        schema = getattr(params, "requested_schema", None) or {}
        action, content = await ask(
            self.server.name, params.message, schema, getattr(params, "url", "") or ""
        )
        return types.ElicitResult(action=action, content=content if action == "accept" else None)

    # --- Requests to the server -------------------------------------------------------------------

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], progress: Progress | None, limit_s: float
    ) -> dict[str, Any]:
        """Call a tool; return its result as JSON data. Raises `McpFailure`."""

        async def report(done: float, total: float | None, message: str | None) -> None:
            if progress is not None:
                progress(done, total, message or "")

        result = await self._ask(
            lambda client: client.call_tool(name, dict(arguments), progress_callback=report),
            limit_s,
            "call",
        )
        data: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return data

    async def read_resource(self, uri: str, limit_s: float) -> list[dict[str, Any]]:
        """Read a resource; return its contents as JSON data. Raises `McpFailure`."""
        result = await self._ask(lambda client: _read_and_follow(client, uri), limit_s, "read")
        return [
            one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in result.contents
        ]

    async def list_resources(self, limit_s: float) -> tuple[ListedResource, ...]:
        """List resources and their templates. Raises `McpFailure`."""

        async def both(client: Client) -> tuple[ListedResource, ...]:
            found = [
                ListedResource(str(r.uri), r.name, r.description or "")
                for r in await _all(client.list_resources, "resources")
            ]
            with suppress(MCPError):  # templates are optional
                templates = await _all(client.list_resource_templates, "resource_templates")
                found += [
                    ListedResource(t.uri_template, t.name, t.description or "", template=True)
                    for t in templates
                ]
            return tuple(found)

        return await self._ask(both, limit_s, "list")

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], limit_s: float
    ) -> list[dict[str, Any]]:
        """Return the messages of a prompt as JSON data. Raises `McpFailure`."""
        result = await self._ask(
            lambda client: client.get_prompt(name, dict(arguments)), limit_s, "prompt"
        )
        data = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return list(data["messages"])

    async def _ask(
        self, work: Callable[[Client], Coroutine[Any, Any, T]], limit_s: float, kind: str
    ) -> T:
        """Do one request on the connection, which is made again first where it is lost."""
        client, ended = await self._connected()
        request = asyncio.ensure_future(work(client))
        end = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait([request, end], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not request.done() and ended.is_set():
                await asyncio.wait([request], timeout=0.1)  # its own error says more
            if request.done():
                found = request.result()
                self._answered = True
                return found
            if ended.is_set():
                raise McpFailure(_lost(kind))
            raise McpFailure(f"no answer within {limit_s:g} s; the {kind} was cancelled")
        except (McpFailure, asyncio.CancelledError):
            raise
        except MCPError as error:
            if ended.is_set() or self._is_lost(error):
                ended.set()
                raise McpFailure(_lost(kind)) from None
            self._answered = True
            raise McpFailure(f"error {error.code}: {error.message}") from None
        except Exception as error:
            if (
                not self._answered
                or "Transport" in type(error).__name__
                or "Http" in type(error).__name__
            ):
                ended.set()
            raise McpFailure(problem_of(error)) from None
        finally:
            end.cancel()
            if not request.done():
                request.cancel()
                await asyncio.wait([request], timeout=CLOSE_S)

    def _is_lost(self, error: MCPError) -> bool:
        """Return True for an error of the SDK about the connection. Servers use its code for errors
        of their own, which over HTTP cannot be told apart.
        """
        is_own = self.server.transport in ("stdio", "sdk") and error.message != CLOSED
        return error.code == types.CONNECTION_CLOSED and not is_own

    async def _connected(self) -> tuple[Client, asyncio.Event]:
        """Return the client, after connecting again where necessary. Raises `McpFailure`."""
        if self._client is None or self._ended.is_set():
            wanted = self._begun
            if self.status != "connecting":  # also when its end is not recorded yet
                wanted += 1
                self._retry.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wait_outcome(wanted), self.startup_s + 1)
        if self._client is None or self._ended.is_set():
            raise McpFailure(f"it is not connected: {self.problem or 'no answer yet'}")
        return self._client, self._ended


def _lost(kind: str) -> str:
    return f"the connection was lost during the {kind}; it may have had effects"


async def _all(fetch: Callable[..., Awaitable[Any]], field: str) -> list[Any]:
    """Read all pages of a listing, up to the limits."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await fetch(cursor=cursor)
        found += getattr(page, field)
        cursor = page.next_cursor
        if not cursor or len(found) >= LISTED_MAX:
            break
    return found[:LISTED_MAX]


async def _read_and_follow(client: Client, uri: str) -> types.ReadResourceResult:
    """Read a resource; from then on the server tells of its changes, where it can."""
    result: types.ReadResourceResult = await client.read_resource(uri)
    resources = client.server_capabilities.resources
    if resources is not None and resources.subscribe and client.protocol_version < MODERN:
        with suppress(MCPError):
            await client.session.subscribe_resource(uri)
    return result


def _tool(one: types.Tool) -> ListedTool:
    meta: Mapping[str, Any] = one.meta or {}
    chars = meta.get("anthropic/maxResultSizeChars")
    return ListedTool(
        name=one.name,
        description=one.description or one.title or "",
        schema=one.input_schema,
        reads=bool(one.annotations and one.annotations.read_only_hint),
        always_listed=meta.get("anthropic/alwaysLoad") is True,
        result_chars_max=min(chars, RESULT_CHARS_MAX)
        if isinstance(chars, int) and chars > 0
        else 0,
    )


def _prompt(one: types.Prompt) -> ListedPrompt:
    return ListedPrompt(
        one.name,
        one.description or "",
        tuple((a.name, bool(a.required)) for a in one.arguments or ()),
    )


def problem_of(error: BaseException) -> str:
    """Return one line about an error; of a group about the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"its answer is not valid: {'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]
    text = " ".join(str(error).split())[:300]
    if text.startswith(WRONG_VERSION):
        version = text.removeprefix(WRONG_VERSION)
        return (
            f"it speaks version {version} of the protocol, which longrein does not: update the "
            "server"
        )
    if isinstance(error, McpFailure | MCPError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
