"""The wire `anthropic`: Anthropic Messages, content blocks inside alternating messages.

On this wire the request marks what the provider caches: the end of the system text and the items in
`Request.marks`.
"""

from collections.abc import Sequence

import msgspec

from longrein.models.model_port import CallDelta, Delta
from longrein.models.wire_base import (
    FragmentCache,
    StreamReader,
    Wire,
    cached_head,
    list_chunks,
    own_tools,
    searches_web,
    wire_call_id,
    wire_tool_name,
)
from longrein.models.wire_content import (
    PIECE_CHARS,
    ImagePiece,
    PartBuilder,
    PdfPiece,
    Piece,
    TextPiece,
    arguments_object,
    describe_search,
    encode_json,
    read_arguments,
)
from longrein_context import Item, Request
from longrein_context.events import ToolCall, ToolResult, ToolSpec, Usage

WEB_SEARCH_TOOL = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
"""The provider's search. More uses in one reply could end it with `pause_turn`."""
API_VERSION = "2023-06-01"
"""Version of the API, sent in a header."""
_MARK = b',"cache_control":{"type":"ephemeral"}}'
_HOUR_MARK = b',"cache_control":{"type":"ephemeral","ttl":"1h"}}'
HOUR_HOST = "api.anthropic.com"
"""Host that takes the mark of an hour; servers that only speak the wire may refuse it."""
_OPENING = {"user": b'{"role":"user","content":[', "assistant": b'{"role":"assistant","content":['}
_STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "length",  # the model wants a further request to go on
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_ERROR_CODES = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "authentication_error": 401,
    "permission_error": 403,
    "billing_error": 402,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "not_found_error": 404,
}
"""Error type -> HTTP status."""
_EFFORT_ALIASES = {"minimal": "low"}
_NUMBERED_THINKING = (
    "claude-3",
    *("claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-2", "claude-opus-4-5"),
    *("claude-sonnet-4-0", "claude-sonnet-4-2", "claude-sonnet-4-5", "claude-haiku-4-5"),
)
EFFORT_TOKENS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 24_576, "max": 49_152}
"""Thinking budgets in tokens, for models that take a number."""


class Anthropic(Wire):
    """The wire `anthropic`."""

    name = "anthropic"
    path = "/messages"

    def headers(self, api_key: str) -> dict[str, str]:
        """Headers with version and key."""
        return {"anthropic-version": API_VERSION} | ({"x-api-key": api_key} if api_key else {})

    def body(self, request: Request, cache: FragmentCache) -> bytes:
        """Encode the request. Without its cache marks, the list of messages is a prefix of the
        next request's list.
        """
        head = cached_head(cache, request, lambda: self._head(request))
        chunks = cache.chunks(request.items)
        marked = _with_cache_marks(request, chunks)
        limit = request.max_output_tokens
        start = b'{"max_tokens":%d%b,%b,"messages":[' % (limit, self._thinking_option(limit), head)
        if (
            cache.first_side == "assistant"
        ):  # only after a rewind or a digest; a conversation must begin with the user
            start += b'{"role":"user","content":[{"type":"text","text":"(continued)"}]},'
        return b"".join((start, *marked, cache.closing, b"]}"))

    def reader(self) -> "AnthropicStreamReader":
        """Make a parser for one reply."""
        return AnthropicStreamReader(self.target.model)

    def _thinking_option(self, limit: int) -> bytes:
        effort = self.target.effort
        if not effort or effort == "none" or limit <= 2 * EFFORT_TOKENS["minimal"]:
            return b""
        if takes_adaptive_thinking(self.target.model):
            return b',"thinking":{"type":"adaptive"},"output_config":{"effort":%b}' % encode_json(
                _EFFORT_ALIASES.get(effort, effort)
            )
        budget = min(EFFORT_TOKENS.get(effort, EFFORT_TOKENS["medium"]), limit // 2)
        return b',"thinking":{"type":"enabled","budget_tokens":%d}' % budget

    def _head(self, request: Request) -> bytes:
        prefix = request.prefix
        lasts = self.target.has_pauses and self.target.host == HOUR_HOST
        mark = _HOUR_MARK if lasts else _MARK
        head = b'"model":%b,"stream":true' % encode_json(self.target.model)
        tools = [encode_json(_tool(tool)) for tool in own_tools(prefix)]
        if searches_web(prefix):
            tools.append(encode_json(WEB_SEARCH_TOOL))
        if self.target.stops:
            head += b',"stop_sequences":' + encode_json(self.target.stops)
        if prefix.system.strip():
            system = encode_json({"type": "text", "text": prefix.system})
            head += b',"system":[%b]' % (system[:-1] + mark)
        elif tools:
            tools[-1] = tools[-1][:-1] + mark
        return head + (b',"tools":[%b]' % b",".join(tools) if tools else b"")

    def side(self, item: Item) -> str:
        return "assistant" if item.mine else "user"

    def bracket(self, side: str, fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
        return list_chunks(_OPENING[side], fragments), b"]}"

    def _call(self, item: Item, call: ToolCall) -> bytes:  # noqa: ARG002
        return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
            encode_json(wire_call_id(call.id)),
            encode_json(wire_tool_name(call.name)),
            arguments_object(call),
        )

    def _said(self, item: Item, text: str) -> bytes:  # noqa: ARG002
        return encode_json({"type": "text", "text": text})

    def _piece(self, piece: Piece) -> bytes:
        return encode_json(_block(piece))

    def _result(self, item: Item, result: ToolResult) -> bytes:
        pieces = self.pieces(item)
        fields: dict[str, object] = {
            "type": "tool_result",
            "tool_use_id": wire_call_id(result.call),
        }
        if len(pieces) == 1 and isinstance(pieces[0], TextPiece):
            fields["content"] = pieces[0].text
        elif pieces:
            fields["content"] = [
                _block(p) for p in pieces if not isinstance(p, TextPiece) or p.text.strip()
            ]
        if result.status != "ok":
            fields["is_error"] = True
        return encode_json(fields)


def takes_adaptive_thinking(model: str) -> bool:
    """Return whether the model takes an effort word (Claude 4.6 and later) instead of a token
    budget.
    """
    name = model.rsplit("/", 1)[-1]
    return name.startswith("claude-") and not name.startswith(_NUMBERED_THINKING)


def _tool(tool: ToolSpec) -> dict[str, object]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def _block(piece: Piece) -> dict[str, object]:
    match piece:
        case TextPiece(text):
            return {"type": "text", "text": text if text.strip() else "(empty)"}
        case ImagePiece(media, base64):
            return {
                "type": "image",
                "source": {"type": "base64", "media_type": media, "data": base64},
            }
        case PdfPiece(name, base64):
            source = {"type": "base64", "media_type": "application/pdf", "data": base64}
            return {"type": "document", "source": source, "title": name}


def _with_cache_marks(request: Request, chunks: list[bytes]) -> list[bytes]:
    """Add cache marks to `chunks`; a mark on thinking or on an empty fragment moves to the block
    before.
    """
    marked = list(chunks)
    for mark in request.marks:
        for at in range(min(mark, len(request.items) - 1), -1, -1):
            fragment = chunks[2 * at + 1]
            if fragment and request.items[at].kind != "thinking":
                marked[2 * at + 1] = fragment[:-1] + _MARK
                break
    return marked


# --- Reading a stream -----------------------------------------------------------------------------


class _Part(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    data: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"")


class _Kind(msgspec.Struct, gc=False):
    type: str = ""


class _ServerTools(msgspec.Struct, gc=False):
    web_search_requests: int | None = None


class _CacheCreation(msgspec.Struct, gc=False):
    ephemeral_1h_input_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    server_tool_use: _ServerTools | None = None


class _Message(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    delta: _Part | None = None
    content_block: msgspec.Raw = msgspec.Raw(b"")
    message: _Message | None = None
    usage: _Usage | None = None


class _Whole(_Message):
    content: list[msgspec.Raw] = []
    stop_reason: str | None = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_block = msgspec.json.Decoder(_Block).decode
_decode_whole = msgspec.json.Decoder(_Whole).decode
_KINDS = {
    "": "text",
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "tool_use": "call",
}
"""Block type -> kind of part. Other types belong to the provider's own tools; of those only the
search is read.
"""


class _Hit(msgspec.Struct):
    title: str | None = None
    url: str | None = None


class _SearchError(msgspec.Struct):
    error_code: str | None = None


class _Found(msgspec.Struct):
    tool_use_id: str = ""
    content: list[_Hit] | _SearchError = []


_decode_found = msgspec.json.Decoder(_Found).decode


class _Search(msgspec.Struct):
    """A search whose result has not come yet."""

    slot: PartBuilder
    id: str
    pieces: list[str]
    """Its arguments as far as they were received."""


class AnthropicStreamReader(StreamReader):
    """Parser of one message, streamed or whole."""

    wire = "anthropic"
    error_statuses = _ERROR_CODES
    kinds = frozenset(
        {
            *("message_start", "message_delta", "message_stop", "message", "error"),
            *("content_block_start", "content_block_delta", "content_block_stop"),
            *("text_delta", "input_json_delta", "thinking_delta", "signature_delta"),
        }
    )

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._slots: dict[int, PartBuilder | None] = {}
        self._given: dict[int, str] = {}
        """Arguments in the start of a call, used when the call has no deltas."""
        self._id: str | None = None
        self._searches: dict[int, _Search] = {}

    def feed(self, payload: bytes, out: list[Delta]) -> None:
        """Read one event or a whole message."""
        event = _decode(payload)
        if event.type == "content_block_delta" and event.delta is not None:
            self._grow(event.index, event.delta, out)
        elif event.type == "content_block_start":
            self._open(event.index, bytes(event.content_block), out)
        elif event.type == "content_block_stop":
            self._shut(event.index)
        elif event.type == "message_start" and event.message is not None:
            self._begin(event.message)
        elif event.type == "message_delta":
            self._use(event.usage)
            if event.delta is not None:
                self._stop(event.delta.stop_reason)
        elif event.type == "message_stop":
            self.done = True
        elif event.type == "message":
            self._whole(_decode_whole(payload), out)

    def _begin(self, message: _Message) -> None:
        """Read the start of a message. A second one inside a message (a gateway that retried) is
        a failure.
        """
        if self._slots and message.id != self._id:
            said = "the provider began a second answer in the middle of the first"
            self.failed = self.builder.failure("truncated", said)
            return
        self._id = message.id
        self._use(message.usage)
        self.builder.model = message.model or ""

    def _whole(self, message: _Whole, out: list[Delta]) -> None:
        self._begin(message)
        for index, block in enumerate(message.content):
            self._open(index, bytes(block), out)
            self._shut(index)
        self._stop(message.stop_reason)
        self.done = True

    def _stop(self, reason: str | None) -> None:
        if reason:
            self.builder.stop = _STOPS.get(reason, "end")

    def _grow(self, index: int, delta: _Part, out: list[Delta]) -> None:
        slot = self._slots[index] if index in self._slots else self._slot(index, delta)
        if slot is None:
            if delta.partial_json and index in self._searches:
                self._searches[index].pieces.append(delta.partial_json)
                self.builder.size_chars += PIECE_CHARS + len(delta.partial_json)
            return
        if slot.kind == "text":
            self.grow(slot, delta.text, out)
        elif slot.kind == "call":
            self.grow(slot, delta.partial_json, out)
        else:
            self._think(slot, delta.thinking or "", delta.signature or "", out)

    def _think(self, slot: PartBuilder, text: str, sign: str, out: list[Delta]) -> None:
        self.grow(slot, text, out)
        if sign:
            slot.signature_pieces.append(sign)
            self.builder.size_chars += PIECE_CHARS + len(sign)

    def _slot(self, index: int, delta: _Part) -> PartBuilder:
        """Begin a part for a block whose start never arrived."""
        if delta.partial_json:
            kind = "call"
        elif delta.thinking or delta.signature:
            kind = "thinking"
        else:
            kind = "text"
        self._slots[index] = slot = self.builder.open(kind)
        return slot

    def _open(self, index: int, raw: bytes, out: list[Delta]) -> None:
        if raw in (b"", b"null"):
            return  # the first delta shows the kind
        type_ = _decode_kind(raw).type
        kind = _KINDS.get(type_)
        if kind is None:
            self._slots[index] = None
            if type_ == "server_tool_use":
                self._begin_search(index, _decode_block(raw))
            elif type_ == "web_search_tool_result":
                self._end_search(raw, out)
            return
        block = _decode_block(raw)
        if kind == "call":
            self._open_call(index, block, out)
            return
        self._slots[index] = slot = self.builder.open(kind)
        if block.type == "redacted_thinking":
            slot.raw = encode_json({"type": "redacted_thinking", "data": block.data or ""}).decode()
        elif kind == "thinking":
            self._think(slot, block.thinking or "", block.signature or "", out)
        else:
            self.grow(slot, block.text, out)

    def _open_call(self, index: int, block: _Block, out: list[Delta]) -> None:
        slot = self.builder.open_call(block.name or "", index, block.id or "")
        self._slots[index] = slot
        whole = bytes(block.input).strip()
        if whole not in (b"", b"{}", b"null"):
            self._given[index] = msgspec.json.format(whole, indent=-1).decode()  # without blanks
        if not slot.raw:
            slot.raw = encode_json({"type": "tool_use", "id": block.id or ""}).decode()
            out.append(CallDelta(slot.call, slot.name))

    def _begin_search(self, index: int, block: _Block) -> None:
        if block.name == "web_search" and block.id:
            given = bytes(block.input).strip()
            pieces = [given.decode()] if given not in (b"", b"{}", b"null") else []
            self._searches[index] = _Search(self.builder.open("thinking"), block.id, pieces)

    def _end_search(self, raw: bytes, out: list[Delta]) -> None:
        """Keep a search with its result; one without a result is left out, as the provider
        refuses it alone.
        """
        found = _decode_found(raw)
        search = next((one for one in self._searches.values() if one.id == found.tool_use_id), None)
        if search is None or search.slot.raw:
            return
        given = read_arguments("".join(search.pieces)) or {}
        call = {"type": "server_tool_use", "id": search.id, "name": "web_search", "input": given}
        search.slot.raw = f"{encode_json(call).decode()},{raw.decode('utf-8', 'replace')}"
        self.builder.size_chars += len(raw)
        failed = found.content if isinstance(found.content, _SearchError) else None
        hits = [] if isinstance(found.content, _SearchError) else found.content
        pages = [(hit.title or "", hit.url or "") for hit in hits]
        problem = (failed.error_code or "unknown") if failed else ""
        self.grow(search.slot, describe_search(str(given.get("query", "")), pages, problem), out)

    def _shut(self, index: int) -> None:
        slot = self._slots.get(index)
        if slot is None:
            return
        if slot.kind == "call" and not slot.pieces:
            self.builder.grow(slot, self._given.get(index, ""))
        elif slot.kind == "thinking" and slot.signature_pieces:
            fields = {
                "type": "thinking",
                "thinking": slot.text,
                "signature": "".join(slot.signature_pieces),
            }
            slot.raw = encode_json(fields).decode()

    def _use(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        was = self.builder.usage
        self.builder.usage = Usage(
            was.input_tokens if usage.input_tokens is None else usage.input_tokens,
            was.cache_read_tokens
            if usage.cache_read_input_tokens is None
            else usage.cache_read_input_tokens,
            was.cache_write_tokens
            if usage.cache_creation_input_tokens is None
            else usage.cache_creation_input_tokens,
            was.output_tokens if usage.output_tokens is None else usage.output_tokens,
            web_searches=(
                usage.server_tool_use.web_search_requests if usage.server_tool_use else None
            )
            or was.web_searches,
            cache_write_hour_tokens=(
                usage.cache_creation.ephemeral_1h_input_tokens if usage.cache_creation else None
            )
            or was.cache_write_hour_tokens,
        )
