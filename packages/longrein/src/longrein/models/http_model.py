"""`HttpModel`: a model that speaks one wire over HTTP.

Every answer is limited: in bytes (head, one event, the reply, the whole answer) and in seconds
(silence, events without content). Reaching a limit gives a `Failure` that names it.
"""

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from longrein.models.failures import (
    REFUSED_ATTEMPTS_MAX,
    RetryHeaders,
    failure_of_status,
    is_loopback,
)
from longrein.models.model_port import (
    TEXT_WIRE,
    Clock,
    Delta,
    Failure,
    ModelOptions,
    ReadBlob,
    Reply,
    UsageDelta,
)
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
from longrein.models.wire_content import (
    DECODE_ERRORS,
    REPLY_CHARS_MAX,
    blob_bytes,
    picture_words,
    pictures_in,
    repair_json,
)
from longrein_context import Budget, Request
from longrein_context.events import Image, Usage, decode_json
from longrein_context.events.escape import one_line, whole_number

if TYPE_CHECKING:
    from longrein.models.text_tool_calls import TextCallRendering


# --- Recovery from refused content ----------------------------------------------------------------
#
# An image or a piece of reasoning that is refused once would be refused in each later request.
# `HttpModel` answers such a refusal with a retryable failure and leaves the content out from then
# on: only the picture that was refused, as far as the provider or a few trials tell which it is.


MANY_IMAGES_SIDE_PX = 2_000
"""Longest side of an image where a request has many."""
TRIALS_MAX = 4
"""Pictures of one request that are left out one at a time, to find the refused one."""
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


_IMAGES_UNSUPPORTED = (
    r"(\bnot|n't|\bno)\b.{0,20}(support|accept|allow|capab|enable).{0,30}(image|vision|picture)s?\b"
    r"(?!.{0,12}(type|format|media|url|size))|"
    r"\b(image|vision|picture)s?( inputs?)? (is|are) not (support|enable|available)"
)
_IMAGE_LARGE = r"dimension|pixels|exceed|too (large|big)"


class RefusedContent:
    """Finds out which content of its requests a provider refuses."""

    def __init__(self) -> None:
        self._answered: Request | None = None
        self._accepted: set[str] = set()
        self._refused: frozenset[str] = frozenset()
        self._tried: list[str] = []

    def note_answer(self, request: Request, target: WireTarget) -> None:
        """Note that the provider took a request: what was left out on trial is refused."""
        self._answered = request
        if self._tried and self._tried[-1] in _blobs(request):
            self._refused, self._tried = target.refused_pictures, []

    def drop(
        self, target: WireTarget, failure: Failure, request: Request, body: bytes
    ) -> tuple[WireTarget, str] | None:
        """Return a target without the refused content, and the content in words; None when
        `failure` is about something else.
        """
        if failure.kind != "invalid" or failure.status not in (400, 404, 413, 415, 422):
            return None
        text = failure.message
        if target.reasoning and _matches(_REASONING_REFUSED, text):
            return msgspec.structs.replace(target, reasoning=False, effort=""), "the thinking"
        if not target.picture_side_px or not _matches(_IMAGE_REFUSED, text):
            return None
        if _blobs(request) <= target.refused_pictures:
            return None  # no picture was sent
        if _matches(_IMAGES_UNSUPPORTED, text):
            return msgspec.structs.replace(target, picture_side_px=0), "pictures"
        pictures = [one for item in request.items for one in pictures_in(item.part)]
        is_large = any(max(one.width, one.height) > MANY_IMAGES_SIDE_PX for one in pictures)
        has_limit = target.picture_side_px <= MANY_IMAGES_SIDE_PX
        if is_large and not has_limit and _matches(_IMAGE_LARGE, text):
            smaller = msgspec.structs.replace(target, picture_side_px=MANY_IMAGES_SIDE_PX)
            return smaller, f"pictures of more than {MANY_IMAGES_SIDE_PX} pixels"
        return self._drop_picture(target, text, pictures, body)

    def _drop_picture(
        self, target: WireTarget, text: str, pictures: list[Image], body: bytes
    ) -> tuple[WireTarget, str]:
        """Return a target without the picture that was refused, or without any when no other
        choice is left.
        """
        sent = {one.blob: one for one in pictures if one.blob not in self._refused}
        named = named_pictures(text, body, list(sent), target.read_blob)
        left_out = self._next_left_out(target, list(sent), named)
        if not left_out:
            return msgspec.structs.replace(target, picture_side_px=0), "pictures"
        words = "; ".join(picture_words(sent[blob]) for blob in sent if blob in left_out)
        fewer = msgspec.structs.replace(target, refused_pictures=left_out | self._refused)
        return fewer, f"the picture ({words})"

    def _next_left_out(
        self, target: WireTarget, sent: list[str], named: list[str]
    ) -> frozenset[str]:
        """Return the pictures to leave out next; none when all suspects were tried."""
        if named:
            self._refused |= frozenset(named)
            return frozenset(named)
        if self._answered is not None:
            self._accepted.update(_blobs(self._answered))
        suspects = [blob for blob in sent if blob not in self._accepted] or sent
        untried = [blob for blob in suspects if blob not in self._tried]
        if untried and len(self._tried) < TRIALS_MAX:
            self._tried.append(untried[-1])
            return frozenset(untried[-1:])
        everything = frozenset(suspects)
        return frozenset() if everything <= target.refused_pictures else everything


def _blobs(request: Request) -> set[str]:
    """Return the blobs of the pictures of a request."""
    return {one.blob for item in request.items for one in pictures_in(item.part)}


def named_pictures(text: str, body: bytes, blobs: Sequence[str], read_blob: ReadBlob) -> list[str]:
    """Return the picture at the place of the request that an error names, such as
    `messages.3.content.0`; an empty list when it names none, or a place with several.
    """
    place = re.search(r"\b(messages|input|contents)\b[\w.\[\]]*", text)
    if place is None:
        return []
    try:
        node: Any = decode_json(body)
    except msgspec.DecodeError:
        return []
    for step in re.split(r"[.\[\]]+", place[0]):
        at = whole_number(step, -1)
        if isinstance(node, list) and 0 <= at < len(node):
            node = node[at]
        elif at >= 0:
            return []
        elif isinstance(node, dict):
            node = node.get(step, node)
    inside = msgspec.json.encode(node)
    known = {blob: blob_bytes(blob, read_blob) for blob in blobs}
    found = [blob for blob, data in known.items() if data and b64encode(data) in inside]
    return found if len(found) == 1 else []


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE | re.DOTALL) is not None


def as_retryable(failure: Failure, left_out: str) -> Failure:
    """Turn `failure` into one that the loop retries."""
    said = f"{failure.message}; asked again without {left_out}"
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
        self._refused = RefusedContent()
        self._text_calls: TextCallRendering | None = None

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

    def _with_text_calls(self, request: Request) -> Request:
        blocks = (item.block for item in request.items if item.kind == "call")
        if not any(block is not None and block.wire == TEXT_WIRE for block in blocks):
            return request
        if self._text_calls is None:
            from longrein.models.text_tool_calls import TextCallRendering

            self._text_calls = TextCallRendering()
        return self._text_calls.rewritten(request)

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        if problem := header_problem(self._options):
            yield [Failure("auth", problem)]
            return
        response = None
        request = self._with_text_calls(request)
        try:
            body = self.body(request)
            response = await self._send(body)
            if not 200 <= response.status < 300:
                failure = await self._read_error(response)
                yield [self._without_refused(failure, request, body)]
                return
            self._refused.note_answer(request, self._wire.target)
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

    def _without_refused(self, failure: Failure, request: Request, body: bytes) -> Failure:
        """Leave the refused content out of later requests, if `failure` names such content."""
        dropped = self._refused.drop(self._wire.target, failure, request, body)
        if dropped is None:
            return failure
        self._wire.target, left_out = dropped
        self._caches = SessionCaches(lambda: FragmentCache(self._wire))
        return as_retryable(failure, left_out)

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
