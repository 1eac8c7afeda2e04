"""The wire `gemini`: contents of parts; calls pair by name and id; thought signatures are fields
of their parts.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.models.model_port import CallDelta, Delta, Failure, Reply
from longrein.models.wire_base import (
    FragmentCache,
    StreamReader,
    Wire,
    WireTarget,
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
    PdfPiece,
    Piece,
    TextPiece,
    arguments_object,
    describe_search,
    encode_json,
    received_json,
)
from longrein_context import Item, Request
from longrein_context.events import ToolCall, ToolResult, ToolSpec, Usage

# --- Reading a stream -----------------------------------------------------------------------------
#
# There is no terminal event: a stream is complete when it has a stop reason and ends.


_STOPS = {"STOP": "end", "MAX_TOKENS": "length"}
_REFUSALS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "LANGUAGE",
        "MODEL_ARMOR",
    }
)
_BAD_CALL_REASONS = frozenset(
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS"}
)


class _Call(msgspec.Struct, rename="camel"):
    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None
    will_continue: bool | None = None


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _Call | None = None
    thought_signature: str | None = None
    tool_call: msgspec.Raw = msgspec.Raw(b"")
    tool_response: msgspec.Raw = msgspec.Raw(b"")


class _Search(msgspec.Struct, rename="camel"):
    """The call or the response of a tool that the provider runs."""

    tool_type: str | None = None
    id: str | None = None
    args: dict[str, Any] | None = None


class _Content(msgspec.Struct, rename="camel"):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    prompt_feedback: _Feedback | None = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_search = msgspec.json.Decoder(_Search).decode


def usage_of(usage: _Usage) -> Usage:
    """Convert a usage; thoughts count as output."""
    given = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    read, thought = usage.cached_content_token_count or 0, usage.thoughts_token_count or 0
    return Usage(
        max(0, given - read), read, 0, (usage.candidates_token_count or 0) + thought, thought
    )


class GeminiStreamReader(StreamReader):
    """Parser of one streamed answer."""

    wire = "gemini"

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._searches: dict[str, tuple[_Search, str]] = {}
        """Calls of the provider's own search without a response, with their parts."""
        self._searched = 0

    @property
    def may_end(self) -> bool:
        """True if the reply is complete: a stop reason has arrived."""
        return bool(self.builder.stop)

    def feed(self, payload: bytes, out: list[Delta]) -> None:
        """Read one chunk."""
        event = _decode(payload)
        if event.usage_metadata is not None:
            self.builder.usage = usage_of(event.usage_metadata)
        if event.model_version:
            self.builder.model = event.model_version
        if event.candidates:
            candidate = event.candidates[0]
            if candidate.content is not None:
                for part in candidate.content.parts or ():
                    self._part(part, out)
            if candidate.finish_reason:
                self._stop(candidate)
        elif event.prompt_feedback is not None and event.prompt_feedback.block_reason:
            self.builder.stop = "refusal"

    def _part(self, part: _Part, out: list[Delta]) -> None:
        if part.tool_call or part.tool_response:
            self._search(part, out)
            return
        if part.function_call is not None:
            self._call(part.function_call, part.thought_signature, out)
        elif part.thought and part.text:
            slots = self.builder.slots
            after_search = bool(slots) and slots[-1].kind == "thinking" and bool(slots[-1].raw)
            slot = self.builder.open("thinking") if after_search else self.builder.last("thinking")
            self.grow(slot, part.text, out)
        elif part.text and not part.thought:
            self.grow(self.builder.last("text"), part.text, out)
        if part.thought_signature and part.function_call is None and not part.thought:
            self.builder.last("text").raw = encode_json(
                {"thoughtSignature": part.thought_signature}
            ).decode()

    def _search(self, part: _Part, out: list[Delta]) -> None:
        """Keep a search when its response comes; one without a response is left out."""
        called = bytes(part.tool_call)
        raw = called or bytes(part.tool_response)
        signed = (
            f',"thoughtSignature":{encode_json(part.thought_signature).decode()}'
            if part.thought_signature
            else ""
        )
        whole = f'{{"{"toolCall" if called else "toolResponse"}":{raw.decode("utf-8", "replace")}{signed}}}'  # noqa: E501
        search = _decode_search(raw)
        self.builder.size_chars += len(whole)
        if called:
            self._searches[search.id or ""] = search, whole
        elif search.id is not None and (begun := self._searches.pop(search.id, None)) is not None:
            queries = [str(query) for query in (begun[0].args or {}).get("queries") or ()]
            self._searched += max(1, len(queries))
            slot = self.builder.open("thinking")
            slot.raw = f"{begun[1]},{whole}"
            self.grow(slot, describe_search(", ".join(queries)), out)

    def finish(self) -> Reply | Failure:
        self.builder.usage = msgspec.structs.replace(
            self.builder.usage, web_searches=self._searched
        )
        return super().finish()

    def _call(self, call: _Call, signature: str | None, out: list[Delta]) -> None:
        if call.will_continue:
            self.failed = self.builder.failure(
                "invalid", "the provider sends arguments in pieces, which nobody asked for"
            )
            return
        received = received_json(call.args or {})
        slot = self.builder.open("call", received, call.name or "")
        slot.place = (0, call.id) if call.id else None
        fields = {"id": call.id} if call.id else {}
        if signature:
            fields["thoughtSignature"] = signature
        slot.raw = encode_json(fields).decode()
        out.append(CallDelta(slot.call, slot.name, received))

    def _stop(self, candidate: _Candidate) -> None:
        reason = candidate.finish_reason or ""
        if (
            reason in _BAD_CALL_REASONS and not self.builder.calls
        ):  # a call of an unknown tool is a call
            said = (
                "the model wrote a call that the provider could not read "
                f"({candidate.finish_message or reason})"
            )
            self.failed = self.builder.failure("server", said)
        else:
            self.builder.stop = "refusal" if reason in _REFUSALS else _STOPS.get(reason, "end")


# --- Writing a request ----------------------------------------------------------------------------


_OPENING = {"user": b'{"role":"user","parts":[', "model": b'{"role":"model","parts":['}
_NO_SIGNATURE = "skip_thought_signature_validator"
"""Value that Gemini 3 accepts as the signature of a call that another model made."""
THINKING_TOKENS = {
    "none": 0,
    "minimal": 512,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
    "max": 24_576,
}
"""Thinking budgets in tokens of Gemini 2.5, which takes a number."""


class Gemini(Wire):
    """The wire `gemini`."""

    name = "gemini"
    root = "/v1beta"

    def __init__(self, target: WireTarget) -> None:
        super().__init__(target)
        name = family(target.model)
        self.path = f"/models/{target.model}:streamGenerateContent?alt=sse"
        self._thinks = not name.startswith(("gemini-1", "gemini-2-0", "gemma"))
        self._by_level = self._thinks and not name.startswith("gemini-2-5")

    def headers(self, api_key: str) -> dict[str, str]:
        """Headers with the key."""
        return {"x-goog-api-key": api_key} if api_key else {}

    def body(self, request: Request, cache: FragmentCache) -> bytes:
        """Encode the request."""
        head = cached_head(cache, request, lambda: self._head(request))
        chunks = cache.chunks(request.items)
        config = encode_json(self._config(request.max_output_tokens))
        start = b'{"generationConfig":%b%b,"contents":[' % (config, head)
        if cache.first_side == "model":
            start += b'{"role":"user","parts":[{"text":"(continued)"}]},'
        return b"".join((start, *chunks, cache.closing, b"]}"))

    def reader(self) -> GeminiStreamReader:
        """Make a parser for one reply."""
        return GeminiStreamReader(self.target.model)

    def _config(self, limit: int) -> dict[str, object]:
        config: dict[str, object] = {"maxOutputTokens": limit}
        if self.target.stops:
            config["stopSequences"] = self.target.stops
        if self._thinks:
            thinking: dict[str, object] = {"includeThoughts": True}
            effort = self.target.effort
            if effort and self._by_level:
                thinking["thinkingLevel"] = {"none": "minimal", "max": "high"}.get(effort, effort)
            elif effort:
                thinking["thinkingBudget"] = THINKING_TOKENS.get(effort, -1)
            config["thinkingConfig"] = thinking
        return config

    def _head(self, request: Request) -> bytes:
        head = b""
        if request.prefix.system.strip():
            head += b',"systemInstruction":' + encode_json(
                {"parts": [{"text": request.prefix.system}]}
            )
        tools: list[dict[str, object]] = []
        if own := own_tools(request.prefix):
            tools.append({"functionDeclarations": list(map(_tool, own))})
        if searches_web(request.prefix):
            tools.append({"googleSearch": {}})
            head += b',"toolConfig":{"includeServerSideToolInvocations":true}'
        if tools:
            head += b',"tools":' + encode_json(tools)
        return head

    def side(self, item: Item) -> str:
        return "model" if item.mine else "user"

    def bracket(self, side: str, fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
        return list_chunks(_OPENING[side], fragments), b"]}"

    def _said(self, item: Item, text: str) -> bytes:
        return encode_json({"text": text} | self._signature(item))

    def _piece(self, piece: Piece) -> bytes:
        return encode_json(_part(piece))

    def _signature(self, item: Item) -> dict[str, object]:
        return {
            key: value for key, value in self._own_fields(item).items() if key == "thoughtSignature"
        }

    def _call(self, item: Item, call: ToolCall) -> bytes:
        signature = self._signature(item)
        if self._by_level and not self.target.owns(item):
            signature = {"thoughtSignature": _NO_SIGNATURE}
        return b'{"functionCall":{"id":%b,"name":%b,"args":%b}%b}' % (
            encode_json(wire_call_id(call.id)),
            encode_json(wire_tool_name(call.name)),
            arguments_object(call),
            b"," + encode_json(signature)[1:-1] if signature else b"",
        )

    def _result(self, item: Item, result: ToolResult) -> bytes:
        pieces = self.pieces(item)
        text = "\n".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
        response = {
            "id": wire_call_id(result.call),
            "name": wire_tool_name(result.name),
            "response": {"output" if result.status == "ok" else "error": text},
        }
        shown = [encode_json(_part(piece)) for piece in pieces if not isinstance(piece, TextPiece)]
        return b",".join((encode_json({"functionResponse": response}), *shown))


def _tool(tool: ToolSpec) -> dict[str, object]:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}


def _part(piece: Piece) -> dict[str, object]:
    match piece:
        case TextPiece(text):
            return {"text": text if text.strip() else "(empty)"}
        case ImagePiece(media, base64):
            return {"inlineData": {"mimeType": media, "data": base64}}
        case PdfPiece(_, base64):
            return {"inlineData": {"mimeType": "application/pdf", "data": base64}}
