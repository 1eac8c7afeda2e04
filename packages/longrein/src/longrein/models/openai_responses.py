"""The wire `openai-responses`: a flat list of items, nothing stored at the provider, reasoning
sent back encrypted.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.models.model_port import CallDelta, Delta
from longrein.models.wire_base import (
    FragmentCache,
    StreamReader,
    TokenDetails,
    Wire,
    cached_head,
    family,
    list_chunks,
    own_tools,
    searches_web,
    wire_call_id,
    wire_tool_name,
)
from longrein.models.wire_content import (
    ImagePiece,
    PartBuilder,
    PdfPiece,
    Piece,
    TextPiece,
    arguments_string,
    describe_search,
    encode_json,
    received_json,
)
from longrein_context import Item, Request
from longrein_context.events import ToolCall, ToolResult, ToolSpec, Usage

# --- Reading a stream -----------------------------------------------------------------------------
#
# Terminal events are `response.completed`, `response.incomplete` and `response.failed`. The status
# inside the response counts, not the name of the event.


class _Piece(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Source(msgspec.Struct):
    url: str | None = None


class _Action(msgspec.Struct):
    """Action of a search: `search`, `open_page` or `find_in_page`."""

    type: str = ""
    query: str | None = None
    queries: list[str] | None = None
    sources: list[_Source] | None = None
    url: str | None = None
    pattern: str | None = None


class _Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    content: list[_Piece] | None = None
    summary: list[_Piece] | None = None
    encrypted_content: str | None = None
    phase: str | None = None
    action: _Action | None = None


class _Kind(msgspec.Struct):
    type: str = ""


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: TokenDetails | None = None
    output_tokens_details: TokenDetails | None = None


class _Error(msgspec.Struct):
    code: str | int | None = None
    type: str | None = None
    message: str | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: _Error | None = None
    incomplete_details: _Incomplete | None = None


class _Whole(_Response):
    object: str = ""
    output: list[msgspec.Raw] = []


class _Event(msgspec.Struct):
    type: str = ""
    object: str | None = None
    output_index: int = 0
    summary_index: int = 0
    delta: str | None = None
    item: msgspec.Raw = msgspec.Raw(b"")
    response: _Response | None = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_item = msgspec.json.Decoder(_Item).decode
_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_whole = msgspec.json.Decoder(_Whole).decode
_KINDS = {
    "message": "text",
    "reasoning": "thinking",
    "function_call": "call",
    "web_search_call": "thinking",
}
"""Item type -> kind of part. Other types belong to the provider's own tools."""
_EVENT_TYPES = frozenset(
    {
        *("response.output_item.added", "response.output_item.done", "error"),
        *(
            "response.output_text.delta",
            "response.refusal.delta",
            "response.function_call_arguments.delta",
        ),
        *("response.reasoning_summary_text.delta", "response.reasoning_text.delta"),
        *(
            "response.completed",
            "response.incomplete",
            "response.done",
            "response.failed",
            "response.cancelled",
        ),
    }
)
"""Event types that are read."""


def usage_of(usage: _Usage) -> Usage:
    """Convert a usage."""
    details = usage.input_tokens_details or TokenDetails()
    read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
    thought = (usage.output_tokens_details or TokenDetails()).reasoning_tokens or 0
    return Usage(
        max(0, (usage.input_tokens or 0) - read - written),
        read,
        written,
        usage.output_tokens or 0,
        thought,
    )


def _describe(action: _Action) -> str:
    what = ", ".join(filter(None, action.queries or (action.query,)))
    opened = " in ".join(filter(None, (action.pattern, action.url)))
    return describe_search(
        what or opened, [("", source.url or "") for source in action.sources or ()]
    )


class ResponsesStreamReader(StreamReader):
    """Parser of one response, streamed or whole."""

    wire = "openai-responses"
    kinds = _EVENT_TYPES

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._slots: dict[int, PartBuilder | None] = {}
        """Open parts by output index; None for an ignored item."""
        self._summary = 0
        self._searches = 0

    def feed(self, payload: bytes, out: list[Delta]) -> None:
        """Read one event."""
        if payload == b"[DONE]":
            return
        event = _decode(payload)
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self._grow(event, "text", out)
            case "response.function_call_arguments.delta":
                self._grow(event, "call", out)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._think(event, out)
            case "response.output_item.added":
                self._open(event.output_index, bytes(event.item), out)
            case "response.output_item.done":
                self._shut(event.output_index, bytes(event.item), out)
            case "response.completed" | "response.incomplete" | "response.done":
                self._end(event.response or _Response(), event.type.removeprefix("response."))
            case "response.failed" | "response.cancelled":
                self._fail((event.response or _Response()).error or _Error(event.type))
            case "" if event.object == "response":
                self._whole_response(_decode_whole(payload), out)
        if event.type == "response.refusal.delta":
            self.builder.stop = "refusal"

    def _whole_response(self, response: _Whole, out: list[Delta]) -> None:
        for index, raw in enumerate(response.output):
            self._shut(index, bytes(raw), out)
        self._end(response, "")

    def _open(self, index: int, raw: bytes, out: list[Delta]) -> PartBuilder | None:
        kind = _KINDS.get(_decode_kind(raw).type)
        if kind is None:
            self._slots[index] = None
            return None
        item = _decode_item(raw)
        if kind != "call":
            self._slots[index] = slot = self.builder.open(kind, name=item.name or "")
            return slot
        slot = self.builder.open_call(item.name or "", index, item.call_id or "")
        self._slots[index] = slot
        if not slot.raw:
            slot.raw = encode_json({"id": item.id or "", "call_id": item.call_id or ""}).decode()
            out.append(CallDelta(slot.call, slot.name))
        return slot

    def _grow(self, event: _Event, kind: str, out: list[Delta]) -> None:
        slot = self._growing(event.output_index, kind)
        if slot is not None:
            self.grow(slot, event.delta, out)

    def _think(self, event: _Event, out: list[Delta]) -> None:
        text, slot = event.delta, self._growing(event.output_index, "thinking")
        if not text or slot is None:
            return
        if event.summary_index != self._summary:
            self._summary, text = event.summary_index, ("\n\n" if slot.pieces else "") + text
        self.grow(slot, text, out)

    def _growing(self, index: int, kind: str) -> PartBuilder | None:
        """Return the part of `kind` at `index`, a new one if its start never arrived; None for
        an ignored item.
        """
        slot = self._slots.get(index)
        if slot is None and index in self._slots:
            return None
        if slot is None or slot.kind != kind:
            self._slots[index] = slot = self.builder.open(kind)
        return slot

    def _shut(self, index: int, raw: bytes, out: list[Delta]) -> None:
        """End an item: keep the bytes that must be sent back, and take the text that no delta
        brought.
        """
        slot = self._slots.pop(index, None)  # items without an index follow one after the other
        kind = _KINDS.get(_decode_kind(raw).type)
        if kind is not None and (slot is None or slot.kind != kind):
            slot = self._open(index, raw, out)
            self._slots.pop(index, None)
        if kind is None or slot is None:
            return
        item = _decode_item(raw)
        if item.action is not None:
            slot.raw = raw.decode("utf-8", "replace")
            self.builder.size_chars += len(raw)
            self._searches += item.action.type == "search"
            self._whole(slot, _describe(item.action), out)
        elif slot.kind == "thinking":
            if item.encrypted_content:
                slot.raw = raw.decode("utf-8", "replace")
                self.builder.size_chars += len(raw)
            self._whole(
                slot, "\n\n".join(p.text or "" for p in item.summary or item.content or ()), out
            )
        elif slot.kind == "text":
            if item.phase:
                slot.raw = encode_json({"phase": item.phase}).decode()
            self._whole(slot, "".join(p.text or p.refusal or "" for p in item.content or ()), out)
            if any(p.refusal for p in item.content or ()):
                self.builder.stop = "refusal"
        elif slot.kind == "call":
            given = item.arguments or ""
            self._whole(slot, given if isinstance(given, str) else received_json(given), out)

    def _whole(self, slot: PartBuilder, text: str, out: list[Delta]) -> None:
        """Add the part of `text` that no delta brought: all of it, or its end."""
        come = slot.text
        if len(text) > len(come) and text.startswith(come):
            self.grow(slot, text[len(come) :], out)

    def _end(self, response: _Response, name: str) -> None:
        """End the response. `name` is the status in the event's type, used if the response holds
        none.
        """
        self.done = True
        self.builder.model = response.model or ""
        if response.usage is not None:
            counted = usage_of(response.usage)
            self.builder.usage = msgspec.structs.replace(counted, web_searches=self._searches)
        reason = response.incomplete_details.reason if response.incomplete_details else None
        status = response.status or name
        if status in ("failed", "cancelled"):
            self._fail(response.error or _Error(status))
        elif reason or status == "incomplete":
            self.builder.stop = "refusal" if reason == "content_filter" else "length"

    def _fail(self, error: _Error) -> None:
        code, text = str(error.code or error.type or ""), error.message or ""
        self.fail(code, text, text or code)


# --- Writing a request ----------------------------------------------------------------------------


_OPENING = b'{"type":"message","role":"user","content":['
_KEPT_STARTS = (b'{"type":"message"', b'{"type":"function_call"')
WEB_SEARCH_TOOL: dict[str, object] = {"type": "web_search"}
"""The provider's search."""
_WITHOUT_REASONING = ("gpt-4", "gpt-3", "chatgpt")


class OpenAIResponses(Wire):
    """The wire `openai-responses`."""

    name = "openai-responses"
    path = "/responses"

    def body(self, request: Request, cache: FragmentCache) -> bytes:
        """Encode the request."""
        head = cached_head(cache, request, lambda: self._head(request))
        chunks = cache.chunks(request.items)
        start = b'{"max_output_tokens":%d,%b,"input":[' % (request.max_output_tokens, head)
        return b"".join((start, *chunks, cache.closing, b"]}"))

    def reader(self) -> ResponsesStreamReader:
        """Make a parser for one reply."""
        return ResponsesStreamReader(self.target.model)

    def _head(self, request: Request) -> bytes:
        fields: dict[str, object] = {"model": self.target.model, "stream": True, "store": False}
        fields["prompt_cache_key"] = request.route or request.session
        include = ["web_search_call.action.sources"] if searches_web(request.prefix) else []
        if not family(self.target.model).startswith(_WITHOUT_REASONING):
            include.insert(0, "reasoning.encrypted_content")
            if self.target.effort:
                fields["reasoning"] = {"effort": self.target.effort, "summary": "auto"}
        if include:
            fields["include"] = include
        if request.prefix.system.strip():
            fields["instructions"] = request.prefix.system
        if request.prefix.tools:
            hosted = [WEB_SEARCH_TOOL] if searches_web(request.prefix) else []
            fields["tools"] = [*map(_tool, own_tools(request.prefix)), *hosted]
        return encode_json(fields)[1:-1]

    def side(self, item: Item) -> str:
        if item.mine:
            return "assistant"
        if item.kind == "result":
            return "result"
        return "user"

    def bracket(self, side: str, fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
        if side == "user":
            return list_chunks(_OPENING, fragments), b"]}"
        kept = len(fragments)
        while side == "assistant" and kept and not fragments[kept - 1].startswith(_KEPT_STARTS):
            kept -= 1  # the provider refuses reasoning without a following item (a cut answer)
        return list_chunks(b"", fragments[:kept]) + [b""] * (2 * (len(fragments) - kept)), b""

    def _call(self, item: Item, call: ToolCall) -> bytes:  # noqa: ARG002
        return b'{"type":"function_call","call_id":%b,"name":%b,"arguments":%b}' % (
            encode_json(wire_call_id(call.id)),
            encode_json(wire_tool_name(call.name)),
            arguments_string(call),
        )

    def _thinking(self, item: Item) -> bytes:
        fields = self._own_fields(item)
        if fields.get("type") != "web_search_call":
            return super()._thinking(item)
        # By its own id, the provider would want the reasoning before it, which may have been
        # cleared.
        return encode_json({**fields, "id": _own_id("ws", item)})

    def _piece(self, piece: Piece) -> bytes:
        return encode_json(_content(piece))

    def _said(self, item: Item, text: str) -> bytes:
        """Encode text as an output message with all fields, which strict servers (vLLM,
        gateways) require.
        """
        content = [{"type": "output_text", "text": text, "annotations": []}]
        fields: dict[str, object] = {
            "type": "message",
            "id": _own_id("msg", item),
            "status": "completed",
        }
        fields |= {"role": "assistant", "content": content}
        fields |= {key: value for key, value in self._own_fields(item).items() if key == "phase"}
        return encode_json(fields)

    def _result(self, item: Item, result: ToolResult) -> bytes:
        pieces = self.pieces(item)
        output: object = "\n".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
        if not all(isinstance(piece, TextPiece) for piece in pieces):
            output = [_content(piece) for piece in pieces]
        return encode_json(
            {"type": "function_call_output", "call_id": wire_call_id(result.call), "output": output}
        )


def _own_id(kind: str, item: Item) -> str:
    """Make an id that the provider has not given, so that it looks nothing up."""
    return f"{kind}_" + "_".join(map(str, item.key))


def _tool(tool: ToolSpec) -> dict[str, object]:
    fields = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
    }
    return {**fields, "strict": False}


def _content(piece: Piece) -> dict[str, object]:
    match piece:
        case TextPiece(text):
            return {"type": "input_text", "text": text if text.strip() else "(empty)"}
        case ImagePiece(media, base64):
            return {"type": "input_image", "image_url": f"data:{media};base64,{base64}"}
        case PdfPiece(name, base64):
            return {
                "type": "input_file",
                "filename": name,
                "file_data": f"data:application/pdf;base64,{base64}",
            }
