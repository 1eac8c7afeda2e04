"""`HttpModel`: a model that speaks one wire over HTTP.

Every answer is limited: in bytes (head, one event, the reply, the whole answer) and in seconds
(silence, events without content). Reaching a limit gives a `Failure` that names it.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import msgspec

from longrein.models.failures import (
    REFUSED_ATTEMPTS_MAX,
    RetryHeaders,
    failure_of_status,
    is_loopback,
)
from longrein.models.model_port import Clock, Delta, Failure, ModelOptions, Reply, UsageDelta
from longrein.models.transport import (
    EVENT_BYTES_MAX,
    AddressInvalid,
    ClosedEarly,
    ConnectFailed,
    ConnectRefused,
    ConnectTimeout,
    EventSplitter,
    EventTooLong,
    HttpClient,
    HttpResponse,
    ReadTimeout,
    RequestInvalid,
    ResponseTooLong,
    TransportError,
    load_http_client,
)
from longrein.models.wire_base import (
    FragmentCache,
    SessionCaches,
    StreamReader,
    Wire,
    WireTarget,
    json_fields,
)
from longrein.models.wire_content import DECODE_ERRORS, REPLY_CHARS_MAX, repair_json
from longrein_context import Budget, Request
from longrein_context.events import Usage
from longrein_context.events.escape import one_line

# --- Recovery from refused content ----------------------------------------------------------------
#
# An image or a piece of reasoning that is refused once would be refused in each later request.
# `HttpModel` answers such a refusal with a retryable failure and leaves the content out from then
# on.


IMAGE_SIDES_PX = (8_000, 2_000, 0)
"""Longest side of an image, tried in turn: the limit for one, the limit for many in one request,
no images.
"""
_REASONING_REFUSED = (
    r"signature.{0,80}(thinking|thought)|(thinking|thought).{0,80}signature|expected "
    r"`?(redacted_)?thinking|"
    r"encrypted[_ ]content.{0,80}(verif|decrypt|invalid|not "
    r"supported|pars)|reasoning.{0,60}without its required"
)
_IMAGE_REFUSED = (
    r"(image|picture|media|vision).{0,120}(exceed|too large|too big|invalid|not "
    r"support|unsupported|could not|unable|"
    r"corrupt|dimension|pixels)|"
    r"(could not|unable to|not support|unsupported|invalid|cannot|failed to).{0,60}(image|vision)"
)


def drop_refused(target: WireTarget, failure: Failure) -> WireTarget | None:
    """Return a target without the refused content; None when `failure` is about something else."""
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
    """Turn `failure` into one that the loop retries."""
    said = f"{failure.message}; asked again without what was refused"
    return msgspec.structs.replace(failure, kind="server", message=said)


# --- The model ------------------------------------------------------------------------------------


FIRST_BYTE_FACTOR = 5.0
"""Idle limits that the first byte may take: a local server reads the whole prompt before it
answers.
"""
DRAIN_S = 0.25
"""Wait for the end of the body after the last event, so that the connection can be reused."""
TRAILING_WAIT_S = 1.0
"""Wait for more events after a reply with stop reason and usage, where no terminal event is
expected.
"""
NOT_FOUND_STATUSES = (404, 405)
"""Statuses for an unknown address or an unknown model."""
ERROR_BYTES_MAX = 64_000
"""Bytes that are read of an error's body."""
BODY_BYTES_MAX = 32 << 20
"""Largest answer that does not stream."""
TRAILING_BYTES_MAX = 1 << 20
"""Bytes that are read after a complete reply."""


class HttpModel:
    """A `Model` that speaks one wire over HTTP."""

    def __init__(self, wire: Wire, options: ModelOptions, budget: Budget, clock: Clock) -> None:
        self.name = f"{options.provider}/{options.model}"
        self.provider = options.provider
        self.model = options.model
        self.wire = wire.name
        self.budget = budget
        self.key_source = options.key_source
        self.served_as = options.served_as
        self._wire = wire
        self._options = options
        self._clock = clock
        self._caches = SessionCaches(lambda: FragmentCache(wire))
        self._client: HttpClient | None = None
        load_http_client()
        self._url = wire.url(options.base_url)
        self._was_model = False

    async def aclose(self) -> None:
        """Close idle connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def forget(self) -> None:
        """Drop encoded items when memory is short; the next request encodes them again."""
        self._caches.clear()

    def blocks(self, request: Request) -> list[bytes]:
        """Encoded items of `request`, one fragment each, to compare the prefixes of two
        requests.
        """
        cache = self._caches.of(request)
        return [cache.fragment(item) for item in request.items]

    def body(self, request: Request) -> bytes:
        """Exact bytes that `stream` sends for `request`."""
        return self._wire.body(request, self._caches.of(request))

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
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
        headers = {
            "content-type": "application/json",
            **self._wire.headers(options.api_key),
            **dict(options.headers),
        }
        if self._client is None:
            self._client = HttpClient(self._options, self._url)
        return await self._client.post(body, headers, options.idle_timeout_s * FIRST_BYTE_FACTOR)

    async def _read_json(self, response: HttpResponse, reader: StreamReader) -> list[Delta]:
        """Read an answer of type JSON: an error with status 200, a server that ignores `stream`,
        or events.
        """
        body = await self._body(response, BODY_BYTES_MAX)
        return self._read_json_body(body, reader) if body.strip() else [self._not_a_model()]

    def _read_json_body(self, body: bytes, reader: StreamReader) -> list[Delta]:
        batch, final = read_body(reader, body)
        self._was_model = self._was_model or final is not None
        return [*batch, final or self._not_a_model()]

    async def _body(self, response: HttpResponse, bytes_max: int) -> bytes:
        """Read a body that does not stream. Raises `ResponseTooLong` and, past
        `content_timeout_s`, `ReadTimeout`.
        """
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
        """Failure for an answer that no model sent; retryable only if a model has answered at
        this address before.
        """
        kind = "server" if self._was_model else "invalid"
        return Failure(
            kind, f"{self._url} gave an answer that is not a model's; is base_url right?"
        )

    async def _read_error(self, response: HttpResponse) -> Failure:
        body = b""
        with suppress(TimeoutError, TransportError):  # a part of the body is enough
            async with asyncio.timeout(self._options.idle_timeout_s):
                async for chunk in response.chunks():
                    body += chunk
                    if len(body) > ERROR_BYTES_MAX:
                        break
        headers = _retry_headers(response)
        if onward := response.headers.get("location", ""):
            said = (
                f"{self._url} sends requests on to {onward.partition('?')[0]}; set base_url to "
                "where they are to go"
            )
            return Failure("invalid", said, response.status)
        text, now_s = body.decode("utf-8", "replace"), self._clock.wall_us() / 1e6
        advice = self._options.key_advice
        failure = failure_of_status(response.status, text, headers, now_s, advice)
        if response.status not in NOT_FOUND_STATUSES:
            return failure
        said = f"{failure.message}; asked was {self._url}: are base_url and model right?"
        return msgspec.structs.replace(failure, message=said)

    def _without_refused(self, failure: Failure) -> Failure:
        """Leave the refused content out of later requests, if `failure` names such content."""
        target = drop_refused(self._wire.target, failure)
        if target is None:
            return failure
        self._wire.target = target
        self._caches = SessionCaches(lambda: FragmentCache(self._wire))
        return as_retryable(failure)

    async def _read(
        self, response: HttpResponse, reader: StreamReader
    ) -> AsyncIterator[list[Delta]]:
        splitter = EventSplitter()
        now = asyncio.get_running_loop().time
        limit_s = self._options.content_timeout_s
        came = 0
        counted = Usage()
        last_s = now()
        has_events = False
        chunks = aiter(response.chunks())
        async for chunk in chunks:
            payloads = splitter.feed(chunk)
            has_events = has_events or bool(payloads)
            self._was_model = self._was_model or has_events
            batch, final = read_events(reader, payloads)
            if final is None and reader.may_end and reader.builder.usage != Usage():
                more, final = read_rest(reader, await _trailing_events(chunks, splitter))
                batch += more
            if final is None and reader.builder.usage != counted:
                counted = reader.builder.usage
                batch.append(UsageDelta(counted))
            if reader.builder.size_chars != came:
                came, last_s = reader.builder.size_chars, now()
            elif final is None and now() - last_s > limit_s:
                final = stalled_failure(reader, limit_s)
            if final is not None:
                batch.append(final)
            if batch:
                yield batch
            if final is not None:
                if isinstance(final, Reply):
                    await _drain(chunks)
                return
        page = not has_events and response.headers.get("content-type", "").startswith(
            ("text/html", "text/plain")
        )
        yield self._at_end(reader, splitter, page)

    def _at_end(self, reader: StreamReader, splitter: EventSplitter, page: bool) -> list[Delta]:
        """Deltas at the end of a stream without a terminal event. The rest may hold that event, or
        a JSON body.

        `page`: the content type is text and no event has arrived.
        """
        left = splitter.rest
        if not reader.builder.size_chars and left.lstrip()[:1] in (b"{", b"["):
            return self._read_json_body(left, reader)
        payloads = splitter.flush()
        if page and not payloads:
            return [self._not_a_model()]
        batch, final = read_rest(reader, payloads)
        batch.append(
            final
            or reader.builder.failure("truncated", "the stream ended before the model had finished")
        )
        return batch


def read_events(
    reader: StreamReader, payloads: list[bytes]
) -> tuple[list[Delta], Reply | Failure | None]:
    """Feed complete events; return their deltas, and the reply or failure if they end the
    stream.
    """
    batch: list[Delta] = []
    for payload in payloads:
        try:
            reader.read(payload, batch)
        except DECODE_ERRORS:
            loose = repair_json(payload)
            if loose is None or not (_try_read(reader, loose, batch) or _is_foreign(reader, loose)):
                said = payload[:80].decode("utf-8", "replace")
                return batch, reader.builder.failure(
                    "server", f"the provider sent what is not its protocol: {said}"
                )
        if reader.failed is not None:
            return batch, reader.failed
        if reader.done:
            return batch, reader.finish()
        if reader.builder.size_chars > REPLY_CHARS_MAX:
            said = (
                f"the model's answer was cut: it grew beyond {REPLY_CHARS_MAX >> 20} MB "
                "without an end"
            )
            return batch, reader.builder.failure("invalid", said)
    return batch, None


def read_rest(
    reader: StreamReader, payloads: list[bytes]
) -> tuple[list[Delta], Reply | Failure | None]:
    """Feed the rest of a stream that ended; an incomplete event is ignored."""
    batch: list[Delta] = []
    for payload in payloads:
        _try_read(reader, payload, batch)
    if reader.failed is not None:
        return batch, reader.failed
    return batch, reader.finish() if reader.done or reader.may_end else None


def read_body(reader: StreamReader, body: bytes) -> tuple[list[Delta], Reply | Failure | None]:
    """Read a whole body: events, one JSON object, or a list of them. The second value is None
    without a reply.

    A JSON body is complete also without a stop reason. Raises `EventTooLong`.
    """
    splitter = EventSplitter()
    payloads = splitter.feed(body) + splitter.flush()
    batch, final = read_events(reader, payloads or _split_list(body))
    ended = reader.builder.stop or (reader.builder.slots and not payloads)
    return batch, final or (reader.finish() if ended else None)


def _split_list(body: bytes) -> list[bytes]:
    """Elements of a JSON list (Gemini without `alt=sse`); any other body is one element."""
    if not body.lstrip().startswith(b"["):
        return [body]
    try:
        return [bytes(raw) for raw in msgspec.json.decode(body, type=list[msgspec.Raw])]
    except DECODE_ERRORS:
        return [body]


def _try_read(reader: StreamReader, payload: bytes, batch: list[Delta]) -> bool:
    try:
        reader.read(payload, batch)
    except DECODE_ERRORS:
        return False
    return True


def _is_foreign(reader: StreamReader, payload: bytes) -> bool:
    """Return whether the wire ignores events of this type, so that their fields may be of any
    type.
    """
    event = json_fields(payload.decode())
    delta = event.get("delta")
    kinds = [fields.get("type") for fields in (event, delta) if isinstance(fields, dict)]
    return bool(reader.kinds) and any(
        isinstance(kind, str) and kind not in reader.kinds for kind in kinds
    )


async def _trailing_events(chunks: AsyncIterator[bytes], splitter: EventSplitter) -> list[bytes]:
    """Read events after a reply that looks complete. Limited, since some servers never end their
    stream.
    """
    payloads: list[bytes] = []
    came = 0
    with suppress(TimeoutError, TransportError, EventTooLong):
        async with asyncio.timeout(TRAILING_WAIT_S):
            async for chunk in chunks:
                payloads += splitter.feed(chunk)
                came += len(chunk)
                if came > TRAILING_BYTES_MAX or b"[DONE]" in payloads:
                    break
    return payloads + splitter.flush()


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end of the body for at most `DRAIN_S`, so that the connection can be reused."""
    with suppress(TimeoutError, TransportError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass


def header_problem(options: ModelOptions) -> str:
    """Say why the key or a header cannot be sent; empty if it can. Never repeats the value."""
    if not _is_sendable(options.api_key):
        return (
            f"the key for {options.provider} holds a blank line or a character that HTTP "
            "forbids; set it again"
        )
    for name, value in options.headers:
        if not (_is_sendable(name) and _is_sendable(value)):
            return (
                f"the extra header {name!r} for {options.provider} holds a character that HTTP "
                "forbids"
            )
    return ""


def _is_sendable(text: str) -> bool:
    return text.isascii() and (not text or text.isprintable()) and text.strip() == text


def _retry_headers(response: HttpResponse) -> RetryHeaders:
    get = response.headers.get
    return RetryHeaders(get("retry-after", ""), get("retry-after-ms", ""), get("date", ""))


def request_failure(error: Exception, url: str) -> Failure:
    """Failure for an error before the answer began."""
    host = url.split("/")[2].rpartition("@")[2] if "://" in url else url
    match error:
        case ConnectTimeout():
            return Failure("timeout", f"no connection to {host} in time")
        case ReadTimeout():
            return Failure("timeout", f"{host} did not begin to answer in time")
        case ConnectRefused() if is_loopback(url):
            address = f"{url.partition('://')[0]}://{host}"
            return Failure(
                "network",
                f"no connection: is the server running at {address}? Start it, or choose another "
                "model with --model",
                attempts_max=REFUSED_ATTEMPTS_MAX,
            )
        case ConnectFailed():
            return Failure("network", f"cannot connect to {host}: {_one_line(error)}")
        case RequestInvalid():
            return Failure(
                "invalid", f"a request to {host} cannot be made; check base_url and headers"
            )
        case ResponseTooLong():
            return Failure("invalid", f"{host} answered with more than can be taken: {error}")
        case _:
            return Failure("network", f"the connection to {host} broke: {_one_line(error)}")


def stream_failure(reader: StreamReader, error: Exception) -> Failure:
    """Failure for an error while the answer streamed."""
    match error:
        case ReadTimeout():
            return reader.builder.failure(
                "stalled", "the model fell silent in the middle of its answer"
            )
        case ClosedEarly():
            return reader.builder.failure(
                "truncated", "the stream was cut before the model had finished"
            )
        case ResponseTooLong():
            return reader.builder.failure("invalid", f"the model's answer was cut: {error}")
        case EventTooLong():
            said = (
                f"the model's answer was cut: one event is longer than {EVENT_BYTES_MAX >> 20} MB"
            )
            return reader.builder.failure("invalid", said)
        case _:
            return reader.builder.failure(
                "network", f"the connection broke in mid-answer: {_one_line(error)}"
            )


def stalled_failure(reader: StreamReader, limit_s: float) -> Failure:
    """Failure for a stream that brought no content for `limit_s` seconds."""
    return reader.builder.failure(
        "stalled", f"the model sent nothing but heartbeats for {limit_s:g} s"
    )


def _one_line(error: Exception) -> str:
    text = one_line(str(error))
    return text or type(error).__name__
