"""`LoopbackProvider`: receives requests, validates and keeps them, and plays the script. Answers always stream."""

import asyncio
import inspect
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from longrein.testing.loopback import anthropic, gemini, openai_chat, openai_responses
from longrein.testing.loopback.answer import ReplyContext, count_usage
from longrein.testing.loopback.http import (
    BUFFER_BYTES,
    Delivery,
    RequestHead,
    Responder,
    plan_delivery,
    read_body,
    read_head,
)
from longrein.testing.loopback.overflow_errors import OF_WIRE, overflow
from longrein.testing.loopback.player import Answer, Received, ScriptPlayer
from longrein.testing.loopback.prompt_cache import PromptCache
from longrein.testing.loopback.script import Fault, Play, Turn
from longrein.testing.loopback.validation import (
    BlockCache,
    Limits,
    ParsedRequest,
    Refused,
    Rules,
    ValidationInput,
    parse_body,
)

# --- Wires -----------------------------------------------------------------------------------------------------------


class Wire(msgspec.Struct, frozen=True):
    """Functions of one wire."""

    name: str
    ask: Callable[[ValidationInput], ParsedRequest]
    """Parse and validate a request."""
    refusal: Callable[[Refused], tuple[int, bytes]]
    """Status and body of an error."""
    events: Callable[[Turn, ReplyContext], list[bytes]]
    """All events of an answer."""
    error_event: Callable[[int, str, str], bytes]
    """(status, error type, text) -> error event inside a stream."""


def _wire(module: Any) -> Wire:
    return Wire(module.WIRE, module.parse_request, module.refusal, module.stream_events, module.error_event)


_WIRES: tuple[tuple[str, Wire], ...] = (
    (r"(?:/v1)?/messages", _wire(anthropic)),
    (r"(?:/\w+)*/chat/completions", _wire(openai_chat)),
    (r"(?:/\w+)*/responses", _wire(openai_responses)),
    (r"(?:/\w+)*/models/(?P<model>[^/:]+):streamGenerateContent", _wire(gemini)),
)
"""Pattern of a path -> the wire spoken there."""


def wire_of(path: str) -> tuple[Wire, str] | None:
    """Return the wire at `path` and the model that the path names; None for an unknown path."""
    for pattern, wire in _WIRES:
        if match := re.fullmatch(pattern, path.partition("?")[0]):
            return wire, match["model"] if "model" in match.re.groupindex else ""
    return None


_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "authorization", "api-key")
_NO_KEY = {
    "anthropic": Refused("invalid x-api-key", status=401, kind="authentication_error"),
    "gemini": Refused("API key not valid. Please pass a valid API key.", status=400),
}


def check_headers(wire: Wire, headers: dict[str, str], path: str, rules: Rules) -> None:
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


def status_error(wire: Wire, status: int) -> bytes:
    """Return the body of an error that the request did not cause."""
    return wire.refusal(Refused(ERROR_TEXTS.get(status, f"HTTP {status}"), status=status))[1]


# --- The server ------------------------------------------------------------------------------------------------------


REPORT = "/_loopback/report"
"""Path of the report, for `GET`."""


class LoopbackProvider:
    """A provider on 127.0.0.1: `async with LoopbackProvider(script) as server: server.url`.

    `script` is a `Play`, a list of turns, or a function `(Received) -> Turn` that answers every request. `now_s` is the
    clock of cache lifetimes; `advance` moves it. At most `keep` bodies stay in memory (None: all). Each request is
    copied to `folder`.
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
        self._block_cache = BlockCache()
        self._keep, self._folder = keep, folder
        self._arrived = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}

    # --- public ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "LoopbackProvider":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on `port` of 127.0.0.1; 0 takes any."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=BUFFER_BYTES)
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
        times = [(request.at_s, request.finished_s, request.size_bytes) for request in self.requests]
        left = {"unused": self.unused(), "refused": self.refused}
        return {"requests": len(self.requests), **left, "usage": usage, "times": times}

    # --- connections -----------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        try:
            while (head := await read_head(reader)) is not None:
                body = await read_body(reader, head)
                if not await self._one(head, body, Responder(reader, writer)) or head.last:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return  # the client went away, or the test is over
        finally:
            del self._tasks[task]
            writer.close()

    async def _one(self, head: RequestHead, body: bytes, out: Responder) -> bool:
        """Answer one request; whether the connection lives on."""
        found = wire_of(head.path) if head.method == "POST" else None
        if found is None:
            await self._other_path(head, out)
            return True
        request = self._received(head, body, found[0].name)
        try:
            return await self._answer(found[0], found[1], request, out)
        except ConnectionError:
            request.gone = True
            raise
        finally:
            assert request.done is not None
            request.finished_s = self.now_s()
            request.done.set()

    async def _other_path(self, head: RequestHead, out: Responder) -> None:
        if head.path == REPORT:
            await out.send(200, {}, msgspec.json.encode(self.report()))
        elif head.path.partition("?")[0].endswith("/models"):
            data = [{"id": name, "object": "model", "owned_by": "loopback"} for name in self.models]
            await out.send(200, {}, msgspec.json.encode({"object": "list", "data": data}))
        else:
            await out.send(404, {}, b'{"error":{"message":"Not Found: no wire is spoken at this path"}}')

    def _received(self, head: RequestHead, body: bytes, wire: str) -> Received:
        number = len(self.requests) + 1
        request = Received(number, self.now_s(), head.method, head.path, head.headers, body, wire)
        request.size_bytes, request.done = len(body), asyncio.Event()
        self.requests.append(request)
        self._arrived.set()
        if self._folder is not None:
            name = f"{number:04d}-{wire}"
            (self._folder / f"{name}.json").write_bytes(body)
            lines = [f"{head.method} {head.path}", *(f"{key}: {value}" for key, value in head.headers.items())]
            (self._folder / f"{name}.head").write_text("\n".join(lines) + "\n", encoding="utf-8")
        if self._keep is not None and number > self._keep:
            old = self.requests[number - self._keep - 1]
            old.body, old.parsed = b"", None
        return request

    # --- answers ---------------------------------------------------------------------------------------------

    async def _answer(self, wire: Wire, model: str, request: Received, out: Responder) -> bool:
        try:
            check_headers(wire, request.headers, request.path, self._rules)
            fields = parse_body(request.body, self._limits, self._rules)
            request.parsed = wire.ask(ValidationInput(fields, self._limits, self._rules, self._block_cache, model))
        except Refused as refused:
            request.refused = refused.message
            request.status, body = wire.refusal(refused)
            await out.send(request.status, {}, body)
            return True
        turn, fault = await self._turn(request)
        if turn is None:
            request.status, request.refused = 500, "beyond the script"
            await out.send(500, {}, _no_turn_left(wire, request))
            return True
        if turn.delay_s:
            await out.sleep(turn.delay_s)
        request.fault = (fault.kind or "status") if fault is not None else ""
        if fault is not None and (fault.status or fault.kind in ("status", "overflow")):
            await self._error(wire, request, fault, out)
            return True
        return await self._stream(wire, request, turn, fault, out)

    async def _turn(self, request: Received) -> tuple[Turn | None, Fault | None]:
        if self._answer_all is not None:
            turn = self._answer_all(request)
            return turn, turn.fault
        chosen = self._player.choose(request)
        if chosen is None:
            return None, None
        index, summary, answer = chosen
        request.turn, request.summary = index, summary
        if isinstance(answer, Turn):
            return answer, self._player.next_fault(request, answer)
        self._player.use(index, summary)
        made = answer(request)
        turn = await made if inspect.isawaitable(made) else made
        return turn, turn.fault

    async def _error(self, wire: Wire, request: Received, fault: Fault, out: Responder) -> None:
        status, body = fault.status or 500, b""
        if fault.kind == "overflow":
            assert request.parsed is not None
            window = self._limits.window_tokens
            told, body = overflow(fault.name or OF_WIRE[wire.name], max(request.parsed.used, window + 1), window)
            status = fault.status or told
        elif fault.body is None:
            body = status_error(wire, status)
        if fault.body is not None:
            body = fault.body.encode("utf-8", "surrogateescape")
        request.status = status
        await out.send(status, fault.headers, body)

    async def _stream(self, wire: Wire, request: Received, turn: Turn, fault: Fault | None, out: Responder) -> bool:
        assert request.parsed is not None
        if fault is not None and fault.kind == "empty":
            turn = msgspec.structs.replace(turn, text="", thinking="", calls=(), deltas=0)
        cached, output, reasoning = count_usage(turn, self._cache.count(request.parsed))
        request.usage = {
            "input": cached.input,
            "cache_read": cached.read,
            "cache_write": cached.written,
            "output": output,
            "reasoning": reasoning,
        }
        answer = ReplyContext(
            request.parsed.model, request.number, cached, output, reasoning, request.parsed.flags, fault
        )
        error = b""
        if fault is not None and fault.kind == "error":
            status = fault.status or 529
            error = wire.error_event(status, fault.name, fault.body or ERROR_TEXTS.get(status, "Overloaded"))
        request.status = 200
        await out.begin_stream({"request-id": f"req_{request.number:024d}", **(fault.headers if fault else {})})
        delivery = plan_delivery(turn, fault, wire.events(turn, answer), error)
        if delivery.whole and not delivery.rest:
            self._player.whole(request)
        alive = await _write_delivery(delivery, turn, fault, out)
        if delivery.rest:
            self._player.whole(request)  # the client waited for the rest
        return alive


async def _write_delivery(delivery: Delivery, turn: Turn, fault: Fault | None, out: Responder) -> bool:
    """Write the answer; return whether the connection stays open."""
    await _write_paced(delivery.writes, turn.pace_s, out)
    match delivery.ending:
        case "reset":
            await out.reset()
            return False
        case "close":
            return False
        case "stall":
            assert fault is not None
            await _stay_silent(fault, out)
            await _write_paced(delivery.rest, turn.pace_s, out)
    await out.end_stream()
    return True


async def _write_paced(writes: list[bytes], pace_s: float, out: Responder) -> None:
    for n, data in enumerate(writes):
        if n and pace_s:
            await out.sleep(pace_s)
        await out.chunk(data)
        if not n % 16:
            await asyncio.sleep(0)  # serve other connections during a long stream


async def _stay_silent(fault: Fault, out: Responder) -> None:
    """Send only comments, for `stall_s` or until the client disconnects."""
    left = fault.stall_s or 86_400.0
    while left > 0:
        nap = min(left, fault.ping_s or left)
        await out.sleep(nap)
        left -= nap
        if fault.ping_s and left > 0:
            await out.chunk(b": ping\n\n")


def _no_turn_left(wire: Wire, request: Received) -> bytes:
    """Error body for a request that no turn answers; shows the request's text, so that the reason is visible."""
    said = f"said since the last reply: {request.said[-300:]!r}"
    text = f"the loopback script has no turn for request {request.number}; {said}"
    return wire.refusal(Refused(text, status=500))[1]
