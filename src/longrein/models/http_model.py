"""A model behind HTTP: one connection pool, one request at a time or several, every failure a value.

The HTTP library is imported by the first use; `warm` does that, and builds the pool.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import msgspec

from longrein.context import Budget, Request
from longrein.events import Usage
from longrein.models.connection import AddressInvalid, Answer, Connections, broken
from longrein.models.failures import Headers, failure_of_status
from longrein.models.healing import eased, told
from longrein.models.layout import Memo, Memos
from longrein.models.library import http_library
from longrein.models.loose_json import NOT_READABLE, loosened
from longrein.models.port import Clock, Delta, Failure, ModelOptions, Reply
from longrein.models.sse import Splitter
from longrein.models.wire import Reading, Wire, fields_of

FIRST_BYTE_IDLES = 5.0
"""The first byte may take this many idle limits: a local server reads the whole prompt before it answers."""
HEARTBEAT_IDLES = 5.0
"""A stream that sends only comments and pings is given up after this many idle limits."""
DRAIN_S = 0.25
"""After the last event the stream's end is awaited this long, so that the connection can be used again."""
LAST_WORDS_S = 1.0
"""Where no event says that it is the last, more is awaited this long after a reply that said why and at what cost."""
NOT_THERE = (404, 405)
"""What a server answers to an address that it does not have, and to a model that it does not have."""
ERROR_BYTES_MAX = 64_000
"""Read of an error's body."""


class HttpModel:
    """A `Model` that speaks one wire over HTTP."""

    def __init__(self, wire: Wire, options: ModelOptions, budget: Budget, clock: Clock) -> None:
        self.name = f"{options.provider}/{options.model}"
        self.provider = options.provider
        self.model = options.model
        self.wire = wire.name
        self.budget = budget
        self._wire = wire
        self._options = options
        self._clock = clock
        self._memos = Memos(wire.grammar)
        self._connections: Connections | None = None
        self._url = wire.url(options.base_url)
        self._unsigned_ends = 0
        self._heard = False

    def warm(self) -> None:
        """Import the HTTP client and build the pool. No socket is opened."""
        if self._connections is None:
            self._connections = Connections(self._options, self._url)

    async def aclose(self) -> None:
        """Close idle connections."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.aclose()

    def forget(self) -> None:
        """Drop what was encoded; the next request makes it again."""
        self._memos = Memos(self._wire.grammar)

    def blocks(self, request: Request) -> list[bytes]:
        """The items of `request` as this wire encodes them, one fragment each: what law 2 compares."""
        memo = self._memo(request)
        return [memo.fragment(item) for item in request.items]

    def body(self, request: Request) -> bytes:
        """The exact bytes that `stream` sends for `request`."""
        return self._wire.body(request, self._memo(request))

    def _memo(self, request: Request) -> Memo:
        """A request without a `PrefixSet` of the log is no part of the conversation: it must not push that one out."""
        return self._memos.of(request.session if request.prefix_seq else f"{request.session} aside")

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `Model.stream`."""
        if problem := header_problem(self._options):
            yield [Failure("auth", problem)]
            return
        response = None
        try:
            response = await self._send(self.body(request))
            if not 200 <= response.status < 300:
                yield [self._healed(await self._refusal(response))]
                return
            reading = self._wire.reading()
            if response.headers.get("content-type", "").startswith("application/json"):
                yield [*await self._whole(response, reading)]
                return
            try:
                async for batch in self._read(response, reading):
                    yield batch
            except broken() as error:
                yield [reading.finish() if reading.settled else cut(reading, error)]
        except broken() as error:
            yield [never_answered(error, self._url)]
        except AddressInvalid as error:
            yield [Failure("invalid", f"the address {self._url} is not valid: {error}")]
        finally:
            if response is not None:
                await response.aclose()

    async def _send(self, body: bytes) -> Answer:
        options, first_s = self._options, self._options.idle_timeout_s * FIRST_BYTE_IDLES
        timeout = {"connect": options.connect_timeout_s, "read": first_s, "write": first_s, "pool": first_s}
        headers = {"content-type": "application/json", **self._wire.headers(options.api_key), **dict(options.headers)}
        self.warm()
        assert self._connections is not None
        answer = await self._connections.post(body, headers, timeout)
        timeout["read"] = options.idle_timeout_s  # from here on it is the longest silence between two reads
        return answer

    async def _whole(self, response: Answer, reading: Reading) -> list[Delta]:
        """An answer said to be JSON: an error in disguise, a chat server that ignores `stream`, or events after all."""
        body = await response.whole()
        if not body.strip():
            return [self._unheard()]
        splitter = Splitter()
        payloads = splitter.feed(body) + splitter.flush()
        batch, final = take(reading, payloads or [body])
        if final is None and reading.draft.stop:
            final = reading.finish()
        self._heard = self._heard or final is not None
        return [*batch, final or self._unheard()]

    def _unheard(self) -> Failure:
        """Somebody answered who is no model: asked again only if a model has been heard there before."""
        kind = "server" if self._heard else "invalid"
        return Failure(kind, f"{self._url} gave an answer that is not a model's; is base_url right?")

    async def _refusal(self, response: Answer) -> Failure:
        body = b""
        async for chunk in response.chunks():
            body += chunk
            if len(body) > ERROR_BYTES_MAX:
                break
        headers = _headers(response)
        if onward := response.headers.get("location", ""):
            said = f"{self._url} sends requests on to {onward.partition('?')[0]}; set base_url to where they are to go"
            return Failure("invalid", said, response.status)
        text, now_s = body.decode("utf-8", "replace"), self._clock.wall_us() / 1e6
        failure = failure_of_status(response.status, text, headers, now_s)
        if response.status not in NOT_THERE:
            return failure
        said = f"{failure.message}; asked was {self._url}: are base_url and model right?"
        return msgspec.structs.replace(failure, message=said)

    def _healed(self, failure: Failure) -> Failure:
        """Leave out what was refused from now on, if that may help."""
        facing = eased(self._wire.facing, failure)
        if facing is None:
            return failure
        self._wire.facing = facing
        self._memos = Memos(self._wire.grammar)
        return told(failure)

    async def _read(self, response: Answer, reading: Reading) -> AsyncIterator[list[Delta]]:
        splitter = Splitter()
        now = asyncio.get_running_loop().time
        patience_s = self._options.idle_timeout_s * HEARTBEAT_IDLES
        last_event = now()
        page = response.headers.get("content-type", "").startswith(("text/html", "text/plain"))
        chunks = aiter(response.chunks())
        async for chunk in chunks:
            payloads = splitter.feed(chunk)
            if payloads:
                last_event, page, self._heard = now(), False, True
            elif now() - last_event > patience_s:
                yield [stalled(reading, patience_s)]
                return
            batch, final = take(reading, payloads)
            if final is None and reading.settled and reading.draft.usage != Usage():
                more, final = take_rest(reading, await _last_words(chunks, splitter))
                batch += more
            if final is not None:
                batch.append(final)
                self._unsigned_ends = 0
            if batch:
                yield batch
            if final is not None:
                await _drain(response)
                return
        yield [self._unheard()] if page else self._ended(reading, splitter.flush())

    def _ended(self, reading: Reading, payloads: list[bytes]) -> list[Delta]:
        """The stream is over and its terminal event was not seen, unless it is what was left."""
        batch, final = take_rest(reading, payloads)
        if final is None and reading.draft.stop and self.wire == "openai-chat":
            # Some servers never send `[DONE]`. One that twice in a row says why it stopped and then ends is such a one.
            self._unsigned_ends += 1
            if self._unsigned_ends >= 2:
                final = reading.finish()
        batch.append(final or reading.draft.failure("truncated", "the stream ended before the model had finished"))
        return batch


def take(reading: Reading, payloads: list[bytes]) -> tuple[list[Delta], Reply | Failure | None]:
    """Feed complete events; what they bring, and the end if they hold it."""
    batch: list[Delta] = []
    for payload in payloads:
        try:
            reading.take(payload, batch)
        except NOT_READABLE:
            loose = loosened(payload)
            if loose is None or not (_taken(reading, loose, batch) or _foreign(reading, loose)):
                said = payload[:80].decode("utf-8", "replace")
                return batch, reading.draft.failure("server", f"the provider sent what is not its protocol: {said}")
        if reading.failed is not None:
            return batch, reading.failed
        if reading.done:
            return batch, reading.finish()
    return batch, None


def take_rest(reading: Reading, payloads: list[bytes]) -> tuple[list[Delta], Reply | Failure | None]:
    """Feed what stood after the last complete event when the stream ended: half an event is no event."""
    batch: list[Delta] = []
    for payload in payloads:
        _taken(reading, payload, batch)
    if reading.failed is not None:
        return batch, reading.failed
    return batch, reading.finish() if reading.done or reading.settled else None


def _taken(reading: Reading, payload: bytes, batch: list[Delta]) -> bool:
    try:
        reading.take(payload, batch)
    except NOT_READABLE:
        return False
    return True


def _foreign(reading: Reading, payload: bytes) -> bool:
    """Whether an event is of a type that the wire does not read: then its fields may be of any kind."""
    event = fields_of(payload.decode())
    return bool(reading.kinds) and isinstance(event.get("type"), str) and event["type"] not in reading.kinds


async def _last_words(chunks: AsyncIterator[bytes], splitter: Splitter) -> list[bytes]:
    """Events that follow a reply which is whole as far as anybody can tell: some servers never end their stream."""
    payloads: list[bytes] = []
    with suppress(TimeoutError, *broken()):
        async with asyncio.timeout(LAST_WORDS_S):
            async for chunk in chunks:
                payloads += splitter.feed(chunk)
    return payloads + splitter.flush()


async def _drain(response: Answer) -> None:
    """Wait shortly for the end of the body; without it the connection would be closed."""
    given_up: tuple[type[Exception], ...] = (TimeoutError, RuntimeError, *broken())
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in response.stream:
                pass
    except given_up:
        pass


def header_problem(options: ModelOptions) -> str:
    """Why the key or a header cannot be sent; empty when it can. The value itself is never repeated."""
    if not _sendable(options.api_key):
        return f"the key for {options.provider} holds a blank line or a character that HTTP forbids; set it again"
    for name, value in options.headers:
        if not (_sendable(name) and _sendable(value)):
            return f"the extra header {name!r} for {options.provider} holds a character that HTTP forbids"
    return ""


def _sendable(text: str) -> bool:
    return text.isascii() and (not text or text.isprintable()) and text.strip() == text


def _headers(response: Answer) -> Headers:
    get = response.headers.get
    return Headers(get("retry-after", ""), get("retry-after-ms", ""), get("date", ""))


def never_answered(error: Exception, url: str) -> Failure:
    """What went wrong before an answer began."""
    core = http_library()
    host = url.split("/")[2] if "://" in url else url
    match error:
        case core.ConnectTimeout():
            return Failure("timeout", f"no connection to {host} in time")
        case core.TimeoutException():
            return Failure("timeout", f"{host} did not begin to answer in time")
        case core.ConnectError():
            return Failure("network", f"cannot connect to {host}: {_reason(error)}")
        case core.UnsupportedProtocol() | core.LocalProtocolError():
            return Failure("invalid", f"a request to {host} cannot be made; check base_url and headers")
        case _:
            return Failure("network", f"the connection to {host} broke: {_reason(error)}")


def cut(reading: Reading, error: Exception) -> Failure:
    """What went wrong while the answer streamed."""
    core = http_library()
    match error:
        case core.ReadTimeout():
            return reading.draft.failure("stalled", "the model fell silent in the middle of its answer")
        case core.RemoteProtocolError():
            return reading.draft.failure("truncated", "the stream was cut before the model had finished")
        case _:
            return reading.draft.failure("network", f"the connection broke in mid-answer: {_reason(error)}")


def stalled(reading: Reading, patience_s: float) -> Failure:
    """Only heartbeats came."""
    return reading.draft.failure("stalled", f"the model sent nothing but heartbeats for {patience_s:.0f} s")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__
