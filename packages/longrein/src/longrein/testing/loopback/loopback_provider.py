"""`LoopbackProvider`: receives requests, validates and keeps them, and plays the script. Answers
stream where the request asks for it.
"""

import asyncio
import inspect
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import h11
import msgspec

from longrein.testing.loopback.anthropic_endpoint import AnthropicEndpoint
from longrein.testing.loopback.gemini_endpoint import GeminiEndpoint
from longrein.testing.loopback.http_connection import Connection, planned_writes, split_writes
from longrein.testing.loopback.openai_chat_endpoint import OpenAIChatEndpoint
from longrein.testing.loopback.openai_responses_endpoint import OpenAIResponsesEndpoint
from longrein.testing.loopback.overflow_errors import overflow
from longrein.testing.loopback.player import Answer, Received, ScriptPlayer
from longrein.testing.loopback.prompt_cache import PromptCache
from longrein.testing.loopback.response_parts import ReplyContext, count_usage, encode
from longrein.testing.loopback.script import Fault, Limits, Play, Rules, Turn
from longrein.testing.loopback.validation import (
    Refused,
    SentBlock,
    WireEndpoint,
    event_data,
    parse_body,
)

# --- Wires ----------------------------------------------------------------------------------------


WIRES: tuple[WireEndpoint, ...] = (
    AnthropicEndpoint(),
    OpenAIChatEndpoint(),
    OpenAIResponsesEndpoint(),
    GeminiEndpoint(),
)


def wire_of(path: str) -> tuple[WireEndpoint, str] | None:
    """Return the wire at `path` and the model that the path names; None for an unknown path."""
    for wire in WIRES:
        if match := re.fullmatch(wire.path, path.partition("?")[0]):
            return wire, match.groupdict().get("model", "")
    return None


_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "authorization", "api-key")
_NO_KEY = {
    "anthropic": Refused("invalid x-api-key", status=401, kind="authentication_error"),
    "gemini": Refused("API key not valid. Please pass a valid API key.", status=400),
}


def check_headers(wire: WireEndpoint, headers: dict[str, str], path: str, rules: Rules) -> None:
    """Raise `Refused` for a wrong key or a missing version."""
    if rules.keys:
        given = [headers.get(name, "").removeprefix("Bearer ") for name in _KEY_HEADERS]
        given.append(path.rpartition("key=")[2])
        if not any(key in rules.keys for key in given):
            shown = next((key for key in given if key), "")[:4]
            raise _NO_KEY.get(wire.name) or Refused(
                f"Incorrect API key provided: {shown}***. You can find your API key at "
                "https://platform.openai.com/account/api-keys.",
                status=401,
                code="invalid_api_key",
            )
    if wire.name == "anthropic" and not rules.lenient and not headers.get("anthropic-version"):
        raise Refused("anthropic-version: header is required")


ERROR_TEXTS = {
    400: "Bad request",
    401: "invalid x-api-key",
    402: "Your credit balance is too low to access the API. Please go to Plans & Billing.",
    403: "Your API key does not have permission to use the specified resource.",
    404: "The requested resource could not be found.",
    408: "Request timed out",
    413: "Request exceeds the maximum size",
    429: "This request would exceed your organization's rate limit. Please try again later.",
    500: "Internal server error",
    502: "Bad gateway",
    503: "The service is temporarily unavailable.",
    504: "Timed out",
    529: "Overloaded",
}
"""HTTP status -> error text of a provider."""


def status_error(wire: WireEndpoint, status: int) -> bytes:
    """Return the body of an error that the request did not cause."""
    return wire.refusal(Refused(ERROR_TEXTS.get(status, f"HTTP {status}"), status=status))[1]


# --- The server -----------------------------------------------------------------------------------


REPORT = "/_loopback/report"
"""Path of the report, for `GET`."""


class LoopbackProvider:
    """A provider on 127.0.0.1: `async with LoopbackProvider(script) as server: server.url`.

    `script` is a `Play`, a list of turns, or a function `(Received) -> Turn` that answers every
    request. `now_s` is the clock of cache lifetimes; `advance` moves it. Of answered requests the
    newest `keep` bodies stay in memory (None: all). Each request is copied to `folder`.
    """

    def __init__(
        self,
        script: Play | Sequence[Answer] | Callable[[Received], Turn],
        *,
        summaries: Sequence[Turn] = (),
        rules: Rules | None = None,
        limits: Limits | None = None,
        now_s: Callable[[], float] = time.monotonic,
        keep: int | None = None,
        folder: Path | None = None,
    ) -> None:
        play = script if isinstance(script, Play) else Play()
        self.requests: list[Received] = []
        self.url = ""
        self.port = 0
        self.models: Sequence[str] = ("loopback",)
        self._answer_all = script if callable(script) else None
        turns = script if isinstance(script, Sequence) else play.turns
        self._player = ScriptPlayer(turns, summaries or play.summaries, play.order)
        self._rules, self._limits = rules or play.rules, limits or play.limits
        self._now_s, self._advanced_s = now_s, 0.0
        self._cache = PromptCache(self._limits, self.now_s)
        self._blocks: dict[tuple[str, bytes], SentBlock] = {}
        self._keep, self._folder = keep, folder
        self._answered: deque[Received] = deque()
        """Requests whose bodies are kept, in the order of their answers."""
        self._arrived = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}

    # --- public -----------------------------------------------------------------------------------

    async def __aenter__(self) -> "LoopbackProvider":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on `port` of 127.0.0.1; 0 takes any."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """Stop serving and cut all connections."""
        if self._server is not None:
            self._server.close()
            await asyncio.sleep(0)  # let new connections start, so that they can be cancelled
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def now_s(self) -> float:
        """Time of the provider in seconds."""
        return self._now_s() + self._advanced_s

    def advance(self, seconds: float) -> None:
        """Advance the provider's clock, for cache lifetimes."""
        self._advanced_s += seconds

    def unused(self) -> list[str]:
        """Unused turns of the script, one line each."""
        return self._player.unused()

    @property
    def refused(self) -> list[str]:
        """Refusals in the provider's words, one line per request."""
        return [f"request {r.number}: {r.status} {r.refused}" for r in self.requests if r.refused]

    async def wait_requests(self, number: int) -> Received:
        """Wait for request `number` (from 1) and return it."""
        while len(self.requests) < number:
            self._arrived.clear()
            await self._arrived.wait()
        return self.requests[number - 1]

    def report(self) -> dict[str, object]:
        """Report requests, usage, times, refusals and unused turns."""
        usage = [request.usage for request in self.requests]
        times = [
            (request.at_s, request.finished_s, request.size_bytes) for request in self.requests
        ]
        left = {"unused": self.unused(), "refused": self.refused}
        return {"requests": len(self.requests), **left, "usage": usage, "times": times}

    # --- connections ------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        connection = Connection(reader, writer)
        try:
            while got := await connection.read_request():
                if not await self._serve_one(*got, connection):
                    break
        except (ConnectionError, h11.RemoteProtocolError, asyncio.CancelledError):
            return  # the client went away, or the test is over
        finally:
            del self._tasks[task]
            writer.close()

    async def _serve_one(self, head: h11.Request, body: bytes, out: Connection) -> bool:
        """Answer one request; return whether the connection lives on."""
        path = head.target.decode()
        found = wire_of(path) if head.method == b"POST" else None
        if found is None:
            await self._other_path(path, out)
            return True
        request = self._received(head, body, found[0].name)
        try:
            return await self._answer(found[0], found[1], request, out)
        except ConnectionError:
            request.gone = True
            raise
        finally:
            request.finished_s = self.now_s()
            request.done.set()
            self._answered.append(request)
            if self._keep is not None and len(self._answered) > self._keep:
                old = self._answered.popleft()
                old.body, old.parsed = b"", None

    async def _other_path(self, path: str, out: Connection) -> None:
        if path == REPORT:
            await out.send(200, {}, msgspec.json.encode(self.report()))
        elif path.partition("?")[0].endswith("/models"):
            data = [{"id": name, "object": "model", "owned_by": "loopback"} for name in self.models]
            await out.send(200, {}, msgspec.json.encode({"object": "list", "data": data}))
        else:
            await out.send(
                404, {}, b'{"error":{"message":"Not Found: no wire is spoken at this path"}}'
            )

    def _received(self, head: h11.Request, body: bytes, wire: str) -> Received:
        number = len(self.requests) + 1
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        request = Received(
            number, self.now_s(), head.target.decode(), headers, body, wire, size_bytes=len(body)
        )
        self.requests.append(request)
        self._arrived.set()
        if self._folder is not None:
            lines = [f"POST {request.path}", *(f"{key}: {value}" for key, value in headers.items())]
            (self._folder / f"{number:04d}-{wire}.json").write_bytes(body)
            (self._folder / f"{number:04d}-{wire}.head").write_text(
                "\n".join(lines) + "\n", encoding="utf-8"
            )
        return request

    # --- answers ----------------------------------------------------------------------------------

    async def _answer(
        self, wire: WireEndpoint, model: str, request: Received, out: Connection
    ) -> bool:
        try:
            check_headers(wire, request.headers, request.path, self._rules)
            fields = parse_body(request.body, self._limits, self._rules)
            streams = wire.streams(fields, request.path)
            request.parsed = wire.parse_request(
                fields, self._limits, self._rules, self._blocks, model
            )
        except Refused as refused:
            request.refused = refused.message
            request.status, body = wire.refusal(refused)
            await out.send(request.status, {}, body)
            return True
        turn = await self._turn(request)
        if turn is None:
            request.status, request.refused = 500, "beyond the script"
            said = f"said since the last reply: {request.said[-300:]!r}"
            text = f"the loopback script has no turn for request {request.number}; {said}"
            await out.send(500, {}, wire.refusal(Refused(text, status=500))[1])
            return True
        if turn.delay_s:
            await out.sleep(turn.delay_s)
        fault = turn.fault
        request.fault = (fault.kind or "status") if fault is not None else ""
        whole = () if streams else ("error",)  # an error is a whole answer
        if fault is not None and (fault.status or fault.kind in ("status", "overflow", *whole)):
            await self._error(wire, request, fault, out)
            return True
        return await self._reply(wire, request, turn, out, streams=streams)

    async def _turn(self, request: Received) -> Turn | None:
        """Choose the turn for `request`, with its fault if it is due."""
        if self._answer_all is not None:
            return self._answer_all(request)
        assert request.parsed is not None
        entry = self._player.choose(request, request.parsed)
        if entry is None:
            return None
        request.turn, request.summary = entry.index, entry.kind == "summary"
        if isinstance(entry.answer, Turn):
            fault = self._player.next_fault(entry, entry.answer, request.parsed)
            return msgspec.structs.replace(entry.answer, fault=fault)
        entry.used = True
        made = entry.answer(request)
        return await made if inspect.isawaitable(made) else made

    async def _error(
        self, wire: WireEndpoint, request: Received, fault: Fault, out: Connection
    ) -> None:
        request.status = fault.status or 500
        body = status_error(wire, request.status)
        if fault.kind == "overflow":
            assert request.parsed is not None
            window = self._limits.window_tokens
            told, body = overflow(
                fault.name or wire.overflow, max(request.parsed.used, window + 1), window
            )
            request.status = fault.status or told
        if fault.body is not None:
            body = fault.body.encode("utf-8", "surrogateescape")
        await out.send(request.status, fault.headers, body)

    async def _reply(
        self, wire: WireEndpoint, request: Received, turn: Turn, out: Connection, *, streams: bool
    ) -> bool:
        assert request.parsed is not None
        fault = turn.fault or Fault(kind="none")
        if fault.kind == "empty":
            turn = msgspec.structs.replace(turn, text="", thinking="", calls=(), deltas=0)
        cached, output, reasoning = count_usage(turn, self._cache.count(request.parsed))
        counts = {"input": cached.input, "cache_read": cached.read, "cache_write": cached.written}
        request.usage = {**counts, "output": output, "reasoning": reasoning}
        parsed = request.parsed
        flags = parsed.flags if streams else parsed.flags | {"usage"}
        answer = ReplyContext(parsed.model, request.number, cached, output, reasoning, flags, fault)
        events = wire.stream_events(turn, answer)
        form = {}
        if not streams:
            events = [encode(wire.plain_body(event_data(events)))]
            form = {"content-type": "application/json"}
        error = wire.error_event(529, fault.name, fault.body or ERROR_TEXTS[529])
        writes, rest = (
            planned_writes(turn, fault, events, error),
            list[bytes](),
        )
        if fault.kind in ("cut", "stall"):
            writes, rest = split_writes(writes, fault.at)
        request.status = 200
        id_ = {"request-id": f"req_{request.number:024d}"}
        await out.begin_stream({**id_, **form, **fault.headers})
        if not rest and fault.kind not in ("error", "empty"):
            self._player.written(parsed)
        await out.stream(writes, turn.pace_s)
        if fault.kind == "cut" and fault.how == "reset":
            await out.reset()
        if fault.kind == "cut" and fault.how != "end":
            return False
        if fault.kind == "stall":
            await _stay_silent(fault, out)
            await out.stream(rest, turn.pace_s)
            self._player.written(parsed)  # the client waited for the rest
        await out.end_stream()
        return True


async def _stay_silent(fault: Fault, out: Connection) -> None:
    """Send only comments, for `stall_s` or until the client disconnects."""
    left = fault.stall_s or 86_400.0
    while left > 0:
        nap = min(left, fault.ping_s or left)
        await out.sleep(nap)
        left -= nap
        if fault.ping_s and left > 0:
            await out.stream([b": ping\n\n"])
