"""A model behind HTTP: one connection pool, one request at a time or several, every failure a value.

No answer is without a limit: its head, one event, the reply and all of it in bytes; silence, and events that bring
nothing of the reply, in seconds. A limit that is reached is a failure that says so.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import msgspec

from longrein.context import Budget, Request
from longrein.events import Usage
from longrein.models.content import DECODE_ERRORS, REPLY_CHARS_MAX, repair_json
from longrein.models.failures import RetryHeaders, failure_of_status
from longrein.models.port import Clock, Delta, Failure, ModelOptions, Reply
from longrein.models.transport import (
    EVENT_BYTES_MAX,
    AddressInvalid,
    ClosedEarly,
    ConnectFailed,
    ConnectionPool,
    ConnectTimeout,
    EventSplitter,
    EventTooLong,
    HttpResponse,
    ReadTimeout,
    RequestInvalid,
    ResponseTooLong,
    TransportError,
)
from longrein.models.wire import FragmentCache, FragmentCaches, StreamReader, Wire, WireTarget, json_fields

# ---------------------------------------------------------------------------------------------------------------------
#
# What to leave out when a provider refuses a request for one thing in it, so that a session is never stuck with it.
#
# A picture or a piece of reasoning that is refused once would be refused in each later request. The model answers
# such a refusal with a failure that may be asked again, and encodes without the thing from then on.


IMAGE_SIDES_PX = (8_000, 2_000, 0)
"""Longest side of a picture that is sent: what one takes, what many in one request may have, none at all."""
_REASONING_REFUSED = (
    r"signature.{0,80}(thinking|thought)|(thinking|thought).{0,80}signature|expected `?(redacted_)?thinking|"
    r"encrypted[_ ]content.{0,80}(verif|decrypt|invalid|not supported|pars)|reasoning.{0,60}without its required"
)
_IMAGE_REFUSED = (
    r"(image|picture|media|vision).{0,120}(exceed|too large|too big|invalid|not support|unsupported|could not|unable|"
    r"corrupt|dimension|pixels)|"
    r"(could not|unable to|not support|unsupported|invalid|cannot|failed to).{0,60}(image|vision)"
)


def drop_refused(target: WireTarget, failure: Failure) -> WireTarget | None:
    """The facing to go on with after `failure`; None when leaving something out would not help."""
    if failure.kind != "invalid" or failure.status not in (400, 404, 413, 415, 422):
        return None
    text = failure.message
    if target.reasoning and re.search(_REASONING_REFUSED, text, re.IGNORECASE | re.DOTALL):
        return msgspec.structs.replace(target, reasoning=False, effort="")
    smaller = [side for side in IMAGE_SIDES_PX if side < target.picture_side_px]
    if smaller and re.search(_IMAGE_REFUSED, text, re.IGNORECASE | re.DOTALL):
        return msgspec.structs.replace(target, picture_side_px=smaller[0])
    return None


def as_retryable(failure: Failure) -> Failure:
    """`failure` as one that may be asked again."""
    said = f"{failure.message}; asked again without what was refused"
    return msgspec.structs.replace(failure, kind="server", message=said)


# --- http_model ------------------------------------------------------------------------------------------------------


FIRST_BYTE_FACTOR = 5.0
"""The first byte may take this many idle limits: a local server reads the whole prompt before it answers."""
DRAIN_S = 0.25
"""After the last event the stream's end is awaited this long, so that the connection can be used again."""
TRAILING_WAIT_S = 1.0
"""Where no event says that it is the last, more is awaited this long after a reply that said why and at what cost."""
NOT_FOUND_STATUSES = (404, 405)
"""What a server answers to an address that it does not have, and to a model that it does not have."""
ERROR_BYTES_MAX = 64_000
"""Read of an error's body."""
BODY_BYTES_MAX = 32 << 20
"""An answer that does not stream."""
TRAILING_BYTES_MAX = 1 << 20
"""What follows a reply that is whole."""


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
        self._caches = FragmentCaches(wire.item_format)
        self._connections: ConnectionPool | None = None
        self._url = wire.url(options.base_url)
        self._ends_without_done = 0
        self._was_model = False

    def warm(self) -> None:
        """Build the pool. No socket is opened."""
        if self._connections is None:
            self._connections = ConnectionPool(self._options, self._url)

    async def aclose(self) -> None:
        """Close idle connections."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.aclose()

    def clear_cache(self) -> None:
        """Drop what was encoded; the next request makes it again."""
        self._caches = FragmentCaches(self._wire.item_format)

    def blocks(self, request: Request) -> list[bytes]:
        """The items of `request` as this wire encodes them, one fragment each: what law 2 compares."""
        cache = self._cache(request)
        return [cache.fragment(item) for item in request.items]

    def body(self, request: Request) -> bytes:
        """The exact bytes that `stream` sends for `request`."""
        return self._wire.body(request, self._cache(request))

    def _cache(self, request: Request) -> FragmentCache:
        """A request without a `PrefixSet` of the log is no part of the conversation: it must not push that one out."""
        return self._caches.of(request.session if request.prefix_seq else f"{request.session} aside")

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `Model.stream`."""
        if problem := header_problem(self._options):
            yield [Failure("auth", problem)]
            return
        response = None
        try:
            response = await self._send(self.body(request))
            if not 200 <= response.status < 300:
                yield [self._without_refused(await self._read_error(response))]
                return
            reader = self._wire.reader()
            try:
                if response.headers.get("content-type", "").startswith("application/json"):
                    yield [*await self._read_json(response, reader)]
                    return
                async for batch in self._read(response, reader):
                    yield batch
            except (TransportError, EventTooLong) as error:
                yield [reader.finish() if reader.may_end else stream_failure(reader, error)]
        except TransportError as error:
            yield [request_failure(error, self._url)]
        except AddressInvalid as error:
            yield [Failure("invalid", f"the address {self._url} is not valid: {error}")]
        finally:
            if response is not None:
                await response.aclose()

    async def _send(self, body: bytes) -> HttpResponse:
        options = self._options
        headers = {"content-type": "application/json", **self._wire.headers(options.api_key), **dict(options.headers)}
        self.warm()
        assert self._connections is not None
        return await self._connections.post(body, headers, options.idle_timeout_s * FIRST_BYTE_FACTOR)

    async def _read_json(self, response: HttpResponse, reader: StreamReader) -> list[Delta]:
        """An answer said to be JSON: an error in disguise, a server that ignores `stream`, or events after all."""
        body = await self._body(response, BODY_BYTES_MAX)
        return self._read_json_body(body, reader) if body.strip() else [self._not_a_model()]

    def _read_json_body(self, body: bytes, reader: StreamReader) -> list[Delta]:
        batch, final = read_body(reader, body)
        self._was_model = self._was_model or final is not None
        return [*batch, final or self._not_a_model()]

    async def _body(self, response: HttpResponse, bytes_max: int) -> bytes:
        """Read a body that does not stream. Raises `ResponseTooLong` and, past `content_timeout_s`, `ReadTimeout`."""
        pieces: list[bytes] = []
        came = 0
        try:
            async with asyncio.timeout(self._options.content_timeout_s):
                async for chunk in response.chunks():
                    pieces.append(chunk)
                    came += len(chunk)
                    if came > bytes_max:
                        raise ResponseTooLong(f"it is longer than {bytes_max >> 20} MB")
        except TimeoutError:
            raise ReadTimeout from None
        return b"".join(pieces)

    def _not_a_model(self) -> Failure:
        """Somebody answered who is no model: asked again only if a model has been heard there before."""
        kind = "server" if self._was_model else "invalid"
        return Failure(kind, f"{self._url} gave an answer that is not a model's; is base_url right?")

    async def _read_error(self, response: HttpResponse) -> Failure:
        body = b""
        with suppress(TimeoutError, TransportError):  # what has come of it will do
            async with asyncio.timeout(self._options.idle_timeout_s):
                async for chunk in response.chunks():
                    body += chunk
                    if len(body) > ERROR_BYTES_MAX:
                        break
        headers = _retry_headers(response)
        if onward := response.headers.get("location", ""):
            said = f"{self._url} sends requests on to {onward.partition('?')[0]}; set base_url to where they are to go"
            return Failure("invalid", said, response.status)
        text, now_s = body.decode("utf-8", "replace"), self._clock.wall_us() / 1e6
        failure = failure_of_status(response.status, text, headers, now_s)
        if response.status not in NOT_FOUND_STATUSES:
            return failure
        said = f"{failure.message}; asked was {self._url}: are base_url and model right?"
        return msgspec.structs.replace(failure, message=said)

    def _without_refused(self, failure: Failure) -> Failure:
        """Leave out what was refused from now on, if that may help."""
        target = drop_refused(self._wire.target, failure)
        if target is None:
            return failure
        self._wire.target = target
        self._caches = FragmentCaches(self._wire.item_format)
        return as_retryable(failure)

    async def _read(self, response: HttpResponse, reader: StreamReader) -> AsyncIterator[list[Delta]]:
        splitter = EventSplitter()
        now = asyncio.get_running_loop().time
        limit_s = self._options.content_timeout_s
        came, last_s, has_events = 0, now(), False
        chunks = aiter(response.chunks())
        async for chunk in chunks:
            payloads = splitter.feed(chunk)
            has_events = has_events or bool(payloads)
            self._was_model = self._was_model or has_events
            batch, final = read_events(reader, payloads)
            if final is None and reader.may_end and reader.builder.usage != Usage():
                more, final = read_rest(reader, await _trailing_events(chunks, splitter))
                batch += more
            if reader.builder.size_chars != came:
                came, last_s = reader.builder.size_chars, now()
            elif final is None and now() - last_s > limit_s:
                final = stalled_failure(reader, limit_s)
            if final is not None:
                batch.append(final)
                self._ends_without_done = 0
            if batch:
                yield batch
            if final is not None:
                if isinstance(final, Reply):
                    await _drain(response)
                return
        page = not has_events and response.headers.get("content-type", "").startswith(("text/html", "text/plain"))
        yield self._at_end(reader, splitter, page)

    def _at_end(self, reader: StreamReader, splitter: EventSplitter, page: bool) -> list[Delta]:
        """The stream is over and its terminal event was not seen, unless it is what was left; or it was no stream.

        `page`: it is text and had no events.
        """
        left = splitter.rest
        if not reader.builder.size_chars and left.lstrip()[:1] in (b"{", b"["):
            return self._read_json_body(left, reader)
        payloads = splitter.flush()
        if page and not payloads:
            return [self._not_a_model()]
        batch, final = read_rest(reader, payloads)
        if final is None and reader.builder.stop and self.wire == "openai-chat":
            # Some servers never send `[DONE]`. One that twice in a row says why it stopped and then ends is such a one.
            self._ends_without_done += 1
            if self._ends_without_done >= 2:
                final = reader.finish()
        batch.append(final or reader.builder.failure("truncated", "the stream ended before the model had finished"))
        return batch


def read_events(reader: StreamReader, payloads: list[bytes]) -> tuple[list[Delta], Reply | Failure | None]:
    """Feed complete events; what they bring, and the end if they hold it."""
    batch: list[Delta] = []
    for payload in payloads:
        try:
            reader.feed(payload, batch)
        except DECODE_ERRORS:
            loose = repair_json(payload)
            if loose is None or not (_try_read(reader, loose, batch) or _is_foreign(reader, loose)):
                said = payload[:80].decode("utf-8", "replace")
                return batch, reader.builder.failure("server", f"the provider sent what is not its protocol: {said}")
        if reader.failed is not None:
            return batch, reader.failed
        if reader.done:
            return batch, reader.finish()
        if reader.builder.size_chars > REPLY_CHARS_MAX:
            said = f"the model's answer was cut: it grew beyond {REPLY_CHARS_MAX >> 20} MB without an end"
            return batch, reader.builder.failure("invalid", said)
    return batch, None


def read_rest(reader: StreamReader, payloads: list[bytes]) -> tuple[list[Delta], Reply | Failure | None]:
    """Feed what stood after the last complete event when the stream ended: half an event is no event."""
    batch: list[Delta] = []
    for payload in payloads:
        _try_read(reader, payload, batch)
    if reader.failed is not None:
        return batch, reader.failed
    return batch, reader.finish() if reader.done or reader.may_end else None


def read_body(reader: StreamReader, body: bytes) -> tuple[list[Delta], Reply | Failure | None]:
    """Read a whole body: events, one JSON object, or a list of them. No end when it holds no reply.

    Raises `EventTooLong`. JSON that can be read is whole, whether or not it says why the model stopped.
    """
    splitter = EventSplitter()
    payloads = splitter.feed(body) + splitter.flush()
    batch, final = read_events(reader, payloads or _split_list(body))
    ended = reader.builder.stop or (reader.builder.slots and not payloads)
    return batch, final or (reader.finish() if ended else None)


def _split_list(body: bytes) -> list[bytes]:
    """The elements of a JSON list (Gemini without `alt=sse`); anything else is one."""
    if not body.lstrip().startswith(b"["):
        return [body]
    try:
        return [bytes(raw) for raw in msgspec.json.decode(body, type=list[msgspec.Raw])]
    except DECODE_ERRORS:
        return [body]


def _try_read(reader: StreamReader, payload: bytes, batch: list[Delta]) -> bool:
    try:
        reader.feed(payload, batch)
    except DECODE_ERRORS:
        return False
    return True


def _is_foreign(reader: StreamReader, payload: bytes) -> bool:
    """Whether an event is of a type that the wire does not read: then its fields may be of any kind."""
    event = json_fields(payload.decode())
    delta = event.get("delta")
    kinds = [fields.get("type") for fields in (event, delta) if isinstance(fields, dict)]
    return bool(reader.kinds) and any(isinstance(kind, str) and kind not in reader.kinds for kind in kinds)


async def _trailing_events(chunks: AsyncIterator[bytes], splitter: EventSplitter) -> list[bytes]:
    """Events that follow a reply which is whole as far as anybody can tell: some servers never end their stream."""
    payloads: list[bytes] = []
    came = 0
    with suppress(TimeoutError, TransportError, EventTooLong):
        async with asyncio.timeout(TRAILING_WAIT_S):
            async for chunk in chunks:
                payloads += splitter.feed(chunk)
                came += len(chunk)
                if came > TRAILING_BYTES_MAX:
                    break
    return payloads + splitter.flush()


async def _drain(response: HttpResponse) -> None:
    """Wait shortly for the end of the body; without it the connection would be closed."""
    with suppress(TimeoutError, TransportError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in response.body:
                pass


def header_problem(options: ModelOptions) -> str:
    """Why the key or a header cannot be sent; empty when it can. The value itself is never repeated."""
    if not _is_sendable(options.api_key):
        return f"the key for {options.provider} holds a blank line or a character that HTTP forbids; set it again"
    for name, value in options.headers:
        if not (_is_sendable(name) and _is_sendable(value)):
            return f"the extra header {name!r} for {options.provider} holds a character that HTTP forbids"
    return ""


def _is_sendable(text: str) -> bool:
    return text.isascii() and (not text or text.isprintable()) and text.strip() == text


def _retry_headers(response: HttpResponse) -> RetryHeaders:
    get = response.headers.get
    return RetryHeaders(get("retry-after", ""), get("retry-after-ms", ""), get("date", ""))


def request_failure(error: Exception, url: str) -> Failure:
    """What went wrong before an answer began."""
    host = url.split("/")[2] if "://" in url else url
    match error:
        case ConnectTimeout():
            return Failure("timeout", f"no connection to {host} in time")
        case ReadTimeout():
            return Failure("timeout", f"{host} did not begin to answer in time")
        case ConnectFailed():
            return Failure("network", f"cannot connect to {host}: {_one_line(error)}")
        case RequestInvalid():
            return Failure("invalid", f"a request to {host} cannot be made; check base_url and headers")
        case ResponseTooLong():
            return Failure("invalid", f"{host} answered with more than can be taken: {error}")
        case _:
            return Failure("network", f"the connection to {host} broke: {_one_line(error)}")


def stream_failure(reader: StreamReader, error: Exception) -> Failure:
    """What went wrong while the answer streamed."""
    match error:
        case ReadTimeout():
            return reader.builder.failure("stalled", "the model fell silent in the middle of its answer")
        case ClosedEarly():
            return reader.builder.failure("truncated", "the stream was cut before the model had finished")
        case ResponseTooLong():
            return reader.builder.failure("invalid", f"the model's answer was cut: {error}")
        case EventTooLong():
            said = f"the model's answer was cut: one event is longer than {EVENT_BYTES_MAX >> 20} MB"
            return reader.builder.failure("invalid", said)
        case _:
            return reader.builder.failure("network", f"the connection broke in mid-answer: {_one_line(error)}")


def stalled_failure(reader: StreamReader, limit_s: float) -> Failure:
    """Only heartbeats came."""
    return reader.builder.failure("stalled", f"the model sent nothing but heartbeats for {limit_s:g} s")


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__
