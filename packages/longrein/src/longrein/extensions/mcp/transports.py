"""Transports to MCP servers: a process of `workspace`, streamable HTTP, SSE. All of them are
bounded.
"""

import asyncio
import os
import shutil
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from longrein.extensions.mcp.mcp_port import CannotStart, McpFailure, ServerHost
from longrein.extensions.mcp.oauth import oauth_of
from longrein.extensions.mcp.result_content import error_line
from longrein.extensions.mcp.server_config import McpServer
from longrein.workspace import CommandExit, CommandSpec, Confinement, StreamProcess
from longrein.workspace.http import CheckedTransport, NetError, RefusedAddress, host_of
from longrein_context.events import decode_object

MESSAGE_BYTES_MAX = 16 << 20
"""Largest message of a server. Larger ones end the connection."""
BURST_MESSAGES, BURST_PAUSE_S = 200, 0.05
"""Messages in a row after which other work gets its turn."""
PROBE = "server/discover"
"""The request by which the SDK finds out whether a server is stateless, before it sends
`initialize`.
"""
PROBE_S = 3.0
"""Longest wait for its answer, in seconds. A server of the stateless protocol that starts slower
can still connect with `initialize`.
"""
NOISE_CHARS_MAX = 80
CONNECT_S = 10.0
READ_S = 300.0


async def open_transport(
    server: McpServer,
    host: ServerHost,
    stack: AsyncExitStack,
    ended: asyncio.Event,
    noise: list[str],
) -> Any:
    """Return the SDK's transport to a server; `ended` is set when the connection is over. Raises
    `McpFailure`.

    `noise` gets the first line of the server's output that is no JSON.
    """
    if server.transport == "sdk":
        if host.tunnel is None:
            raise CannotStart("it is inside a program, and none runs longrein")
        return tunnel(partial(host.tunnel, server.program_name or server.name), ended)
    if server.transport == "stdio":
        confinement = _confinement(server, host)
        hint = (
            f" (in the sandbox: `longrein mcp get {server.name}`)"
            if confinement is not None
            else ""
        )
        return _stdio(await _start(server, host, confinement, stack), ended, hint, noise)
    headers = dict(server.headers) | await _helper_headers(server, host)
    auth = (
        None if any(name.lower() == "authorization" for name in headers) else oauth_of(server, host)
    )
    answers = HttpAnswers()
    try:
        trusted = (host_of(server.url), *host.private_hosts)
    except NetError as error:
        raise CannotStart(str(error)) from None
    make = _client_factory(headers, auth, answers, trusted)
    if server.transport == "sse":
        return _ending(
            sse_client(server.url, timeout=CONNECT_S, httpx_client_factory=make), ended, answers
        )
    client = await stack.enter_async_context(make())
    return _ending(streamable_http_client(server.url, http_client=client), ended, answers)


async def _finish(tasks: Sequence[asyncio.Task[None]], streams: Sequence[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for stream in streams:
        stream.close()


# --- A server inside the program that runs longrein -----------------------------------------------


@asynccontextmanager
async def tunnel(
    send: Callable[[Mapping[str, Any]], Awaitable[Any]], ended: asyncio.Event
) -> AsyncIterator[Any]:
    """Yield the two streams of the SDK over `send`, which carries one message and returns its
    answer.
    """
    to_client, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    carrying: set[asyncio.Task[None]] = set()
    problem: list[str] = []

    async def carry(message: Mapping[str, Any]) -> None:
        try:
            answer = await send(message)
            if "method" in message and "id" in message:  # else nothing is to be answered
                await to_client.send(
                    SessionMessage(
                        types.jsonrpc_message_adapter.validate_python(answer, by_name=False)
                    )
                )
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        except (McpFailure, ValueError) as error:
            problem.append(
                str(error)
                if isinstance(error, McpFailure)
                else "it sent an answer that is not JSON-RPC"
            )
            ended.set()
            to_client.close()

    async def write() -> None:
        async with from_client:
            async for one in from_client:
                data = one.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
                task = asyncio.ensure_future(carry(data))
                carrying.add(task)
                task.add_done_callback(carrying.discard)

    writing = asyncio.ensure_future(write())
    try:
        yield read_stream, write_stream
    except BaseException as error:
        if problem:
            raise McpFailure(problem[0]) from error
        raise
    finally:
        streams = (read_stream, write_stream, to_client, from_client)
        await _finish([writing, *carrying], streams)
    if problem:
        raise McpFailure(problem[0])


# --- stdio ----------------------------------------------------------------------------------------


def _confinement(server: McpServer, host: ServerHost) -> Confinement | None:
    try:
        return host.confine(server, server.cwd or host.cwd)
    except OSError as error:
        raise CannotStart(f"the sandbox could not be set up ({error.strerror or error})") from None


async def _start(
    server: McpServer, host: ServerHost, confinement: Confinement | None, stack: AsyncExitStack
) -> StreamProcess:
    environment = {**host.environment(), "CLAUDE_PROJECT_DIR": host.cwd, **dict(server.env)}
    cwd, program = server.cwd or host.cwd, server.command[0]
    found = os.path.join(cwd, program) if "/" in program else program
    if confinement is not None and not shutil.which(found, path=environment.get("PATH")):
        raise CannotStart(
            f"it cannot be started: {program}: no such file or directory"
        )  # the sandbox says less
    process = await host.start_process(CommandSpec(server.command, cwd, environment, confinement))
    if isinstance(process, CommandExit):
        raise CannotStart(f"it cannot be started: {process.message}")
    stack.push_async_callback(process.close)
    return process


@asynccontextmanager
async def _stdio(
    process: StreamProcess, ended: asyncio.Event, hint: str, noise: list[str]
) -> AsyncIterator[Any]:
    """Yield the two streams of the SDK over a process; `hint` follows the reason of its end."""
    to_client, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    problem: list[str] = []
    written: deque[bytes] = deque(maxlen=8)
    is_answered = asyncio.Event()

    async def read() -> None:
        async with to_client:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for message in _messages(process, problem, written, noise):
                    is_answered.set()
                    await to_client.send(message)
        ended.set()

    async def write() -> None:
        async with from_client:
            async for message in from_client:
                data = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                written.append(data)
                try:
                    process.writer.write(data + b"\n")
                    await process.writer.drain()
                except OSError:
                    return  # its end is noticed by the reader
                if getattr(message.message, "method", "") == PROBE:
                    tasks.append(
                        asyncio.ensure_future(
                            _refuse_probe(message.message.id, is_answered, to_client)
                        )
                    )

    tasks = [asyncio.ensure_future(read()), asyncio.ensure_future(write())]
    try:
        yield read_stream, write_stream
        if not problem:
            problem.append(await _why_ended(process) + hint)
    except BaseException as error:
        if problem or process.reader.at_eof():  # says more than what the SDK makes of it
            raise McpFailure(problem[0] if problem else await _why_ended(process) + hint) from error
        raise
    finally:
        await _finish(tasks, (read_stream, write_stream, to_client, from_client))
    raise McpFailure(problem[0])


async def _refuse_probe(request: Any, is_answered: asyncio.Event, to_client: Any) -> None:
    """Refuse the probe in the place of a server that ignores methods that it does not know."""
    with suppress(TimeoutError):
        await asyncio.wait_for(is_answered.wait(), PROBE_S)
    error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="no answer")
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        if not is_answered.is_set():
            await to_client.send(
                SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request, error=error))
            )


async def _messages(
    process: StreamProcess, problem: list[str], written: Collection[bytes], noise: list[str]
) -> AsyncIterator[SessionMessage]:
    """Yield the messages of a process until its output ends or cannot be used, for which `problem`
    has the reason.

    Lines that do not begin like JSON are log lines of a careless server; `noise` gets the first
    one. `written`: the last lines that it was sent.
    """
    count = 0
    while True:
        try:
            line = await process.reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            problem.append(
                f"it sent a message of more than {MESSAGE_BYTES_MAX >> 20} MB; the connection was "
                "ended"
            )
            return
        count += 1
        if count % BURST_MESSAGES == 0:
            await asyncio.sleep(BURST_PAUSE_S)
        if not line.lstrip().startswith(b"{"):
            if line.strip() and not noise:
                noise.append(line.decode("utf-8", "replace").strip()[:NOISE_CHARS_MAX])
            continue
        if line.strip() in written:
            problem.append("it repeats what it is sent: the command is no MCP server")
            return
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            problem.append("it sent a message that is not valid JSON-RPC; the connection was ended")
            return
        yield SessionMessage(message)


async def _why_ended(process: StreamProcess) -> str:
    """Say how a process ended, with the line of its errors that says why."""
    if not process.reader.at_eof():
        return "the connection was ended"
    with suppress(TimeoutError):
        await asyncio.wait_for(process.ended(), 0.5)
    end = process.exit
    if end is None:
        how = "closed its output"
    elif end.signal:
        how = f"ended by {end.signal}"
    else:
        how = f"exit code {end.code}"
    why = error_line(process.errors.text)
    return f"it has stopped ({how})" + (f": {why[:200]}" if why else "")


# --- HTTP -----------------------------------------------------------------------------------------


class HttpAnswers:
    """Status of the last HTTP answer, which the SDK's own error does not tell."""

    def __init__(self) -> None:
        self.status = 0
        self.refusal = ""
        """Reason why a host that the server named is not reached."""

    @property
    def problem(self) -> str:
        """Line about a refusal; '' for none."""
        if self.refusal:
            return self.refusal
        if self.status in (401, 403):
            return f"it wants you to log in (HTTP {self.status})"
        return f"it answers with HTTP {self.status}" if self.status >= 400 else ""


@asynccontextmanager
async def _ending(transport: Any, ended: asyncio.Event, answers: HttpAnswers) -> AsyncIterator[Any]:
    """Yield a transport's streams; set `ended` when its reading stream is closed."""
    try:
        async with _reading(transport, ended) as streams:
            yield streams
    except (Exception, BaseExceptionGroup) as error:
        if answers.problem and not _is_failure(error):
            raise McpFailure(answers.problem) from error
        raise


def _is_failure(error: BaseException) -> bool:
    """Return True if the error is one of ours, also within groups."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_failure, error.exceptions))
    return isinstance(error, McpFailure)


@asynccontextmanager
async def _reading(transport: Any, ended: asyncio.Event) -> AsyncIterator[Any]:
    async with transport as (reading, writing):
        to_client, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def read() -> None:
            count = 0
            async with to_client:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async for message in reading:
                        count += 1
                        if count % BURST_MESSAGES == 0:
                            await asyncio.sleep(BURST_PAUSE_S)
                        await to_client.send(message)
            ended.set()

        task = asyncio.ensure_future(read())
        try:
            yield read_stream, writing
        finally:
            await _finish([task], (to_client, read_stream))


async def _helper_headers(server: McpServer, host: ServerHost) -> dict[str, str]:
    """Return the headers that the server's helper prints. Raises `McpFailure`."""
    if not server.headers_helper:
        return {}
    confinement = (
        _confinement(server, host) if server.sandbox == "strict" else None
    )  # the user's own may read keys
    output = await host.run_line(
        server.headers_helper, {"CLAUDE_PROJECT_DIR": host.cwd}, confinement
    )
    found = decode_object(output)
    if found is None or not all(isinstance(value, str) for value in found.values()):
        raise McpFailure("its headersHelper has not printed a JSON object of texts")
    return found


def _client_factory(
    headers: dict[str, str], auth: httpx2.Auth | None, answers: HttpAnswers, trusted: Sequence[str]
) -> Callable[..., httpx2.AsyncClient]:
    def make(
        headers: dict[str, str] | None = headers,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = auth,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=own_headers | (headers or {}),
            auth=auth or own_auth,
            timeout=timeout or httpx2.Timeout(CONNECT_S, read=READ_S),
            transport=BoundedTransport(answers, trusted),
        )

    own_headers, own_auth = headers, auth
    return make


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Transport that ends a response whose message is too large.

    Hosts that a server names, such as that of its authorization server, must be public or
    `trusted`.
    """

    def __init__(self, answers: HttpAnswers, trusted: Sequence[str]) -> None:
        self._inner, self._answers = CheckedTransport(trusted), answers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        try:
            response = await self._inner.handle_async_request(request)
        except RefusedAddress as error:
            self._answers.refusal = str(error)
            raise
        self._answers.status = response.status_code
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _BoundedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    """Body of a response; counts the bytes since the last blank line, which ends an event of
    SSE.
    """

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._inner:
            end = max(piece.rfind(b"\n\n"), piece.rfind(b"\r\n\r\n"))
            size = size + len(piece) if end < 0 else len(piece) - end
            if size > MESSAGE_BYTES_MAX:
                raise httpx2.ReadError(
                    f"it sent a message of more than {MESSAGE_BYTES_MAX >> 20} MB"
                )
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
