"""The wire `openai-chat`: Chat Completions of OpenAI, OpenRouter, Ollama, llama.cpp, vLLM, Mistral
and many others.

Fragments have three shapes: text is the inside of a JSON string (without a bare quote), an object
begins with `{"`, a field of the assistant's message (its reasoning) begins with `"`. All text of a
run is joined into one string, because several servers refuse lists. Reasoning between `<think>`
tags is text on the wire and thinking in the log.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.models.model_port import CallDelta, Delta, Failure, Reply
from longrein.models.wire_base import (
    FragmentCache,
    StreamReader,
    TokenDetails,
    Wire,
    WireTarget,
    cached_head,
    family,
    json_fields,
    kimi_call_id,
    own_tools,
    short_call_id,
    wire_call_id,
    wire_tool_name,
)
from longrein.models.wire_content import (
    PIECE_CHARS,
    THINK,
    THINK_END,
    ImagePiece,
    PartBuilder,
    PdfPiece,
    Piece,
    TextPiece,
    ThinkTags,
    arguments_string,
    encode_json,
    read_arguments,
    received_json,
    split_at_lone_end,
)
from longrein_context import Item, Request
from longrein_context.events import ToolCall, ToolResult, ToolSpec, Usage

# --- Reading a stream -----------------------------------------------------------------------------
#
# The terminal event is `data: [DONE]`. `finish_reason` alone does not end a stream, since the usage
# may follow; a stream that ends after it is complete.


_STOPS = {
    "stop": "end",
    "eos": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "sensitive": "refusal",
    "refusal": "refusal",
}
_ERROR_STOPS = {
    "error": "server",
    "network_error": "server",
    "insufficient_system_resource": "overload",
}


_STREAMED_FIELDS = ("text", "summary", "data")
"""Fields of a reasoning block that stream in pieces."""


class _Pieces(list[str]):
    """Received pieces of such a field."""


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: dict[str, Any] | None = None


class _Chunk(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: "list[_Chunk] | str | None" = None


class _Delta(msgspec.Struct):
    content: str | list[_Chunk] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None
    """The one call of servers from before `tool_calls`."""
    refusal: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None


class _GroqFields(msgspec.Struct):
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    x_groq: _GroqFields | None = None
    """Fields of Groq, which has the usage of a stream here."""
    model: str | None = None


_decode = msgspec.json.Decoder(_Event).decode


def usage_of(usage: _Usage) -> Usage:
    """Convert a usage. Some servers count reasoning besides the completion; their total shows
    it.
    """
    given, written = usage.prompt_tokens or 0, usage.completion_tokens or 0
    details = usage.prompt_tokens_details or TokenDetails()
    read = details.cached_tokens or usage.prompt_cache_hit_tokens or usage.cached_tokens or 0
    cached = details.cache_write_tokens or 0
    thought = (usage.completion_tokens_details or TokenDetails()).reasoning_tokens or 0
    if thought and usage.total_tokens == given + written + thought:
        written += thought
    return Usage(max(0, given - read - cached), read, cached, written, thought)


class ChatStreamReader(StreamReader):
    """Parser of one completion, streamed or whole."""

    wire = "openai-chat"

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._text: PartBuilder | None = None
        self._thinking: PartBuilder | None = None
        """Reasoning; its name is the field that it came in, `content` for reasoning in tags."""
        self._tags = ThinkTags()
        self._calls: list[tuple[int | None, str, PartBuilder]] = []
        self._details: list[dict[str, Any]] = []
        """Reasoning blocks; streamed fields hold `_Pieces`."""
        self._again: tuple[str, str] | None = None
        """(id, name) repeated after a complete call: an echo, or a new call if arguments follow."""

    @property
    def may_end(self) -> bool:
        """True if the reply is complete without `[DONE]`, for servers that never send it."""
        return bool(self.builder.stop)

    def feed(self, payload: bytes, out: list[Delta]) -> None:
        """Read one chunk."""
        if payload == b"[DONE]":
            self.done = True
            return
        event = _decode(payload)
        if event.choices:
            choice = event.choices[0]
            delta = choice.delta or choice.message
            if delta is not None:
                self._grow(delta, out)
            if choice.finish_reason:
                self._content("", out, last=True)
                self._stop(choice.finish_reason)
            if event.model and not self.builder.model:
                self.builder.model = event.model
        usage = event.usage
        if usage is None and event.x_groq is not None:
            usage = event.x_groq.usage
        if usage is not None and usage.prompt_tokens is not None:
            self.builder.usage = usage_of(usage)

    def finish(self) -> Reply | Failure:
        """Build the reply; a `Failure` for a stream without content and without a stop reason."""
        self._content("", [], last=True)
        self._split_at_lone_end()
        if not self.builder.stop and not self.builder.slots:
            return self.builder.failure("empty", "the model gave an empty answer")
        thinking = self._thinking
        if thinking is not None and (self._details or thinking.name):
            fields: dict[str, Any] = {thinking.name: thinking.text} if thinking.name else {}
            if thinking.name == "content":
                fields = {"content": f"{THINK}\n{thinking.text.strip()}\n{THINK_END}"}
            if self._details:
                fields = {"reasoning_details": [_join_pieces(detail) for detail in self._details]}
            thinking.raw = encode_json(fields).decode()
        return super().finish()

    def _split_at_lone_end(self) -> None:
        """Take the reasoning out of text in which only `</think>` came."""
        slots = self.builder.slots
        if self._thinking is not None or not slots or slots[0] is not self._text:
            return
        found = split_at_lone_end(self._text.text)
        if found is None or not (found[1] or self.builder.calls):
            return
        thought, answer = found
        self._text.pieces = [answer]
        if thought:
            self._thinking = PartBuilder("thinking", [thought], "content")
            slots.insert(0, self._thinking)

    def _grow(self, delta: _Delta, out: list[Delta]) -> None:
        if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
            self._content("", out, last=True)  # such a server leaves no tags in the text
        if delta.reasoning_content:
            self._think("reasoning_content", delta.reasoning_content, out)
        elif delta.reasoning:
            self._think("reasoning", delta.reasoning, out)
        if delta.reasoning_details:
            self._detail(delta.reasoning_details)
        content = delta.content
        if content:
            if isinstance(content, str):
                self._content(content, out)
            else:
                self._chunks(content, out)
        calls = delta.tool_calls or []
        if delta.function_call is not None:
            calls = [*calls, _Call(function=delta.function_call)]
        if calls or delta.refusal:
            self._content("", out, last=True)
        for call in calls:
            self._call(call, out)
        if delta.refusal:
            self._say(delta.refusal, out)
            self.builder.stop = "refusal"

    def _content(self, text: str, out: list[Delta], *, last: bool = False) -> None:
        """Read text that may begin with reasoning in tags. `last`: hold nothing back."""
        if self._tags.is_over:
            if text:
                self._say(text, out)
            return
        for kind, piece in self._tags.feed(text, last=last):
            if kind == "thinking":
                self._think("content", piece, out)
            else:
                self._say(piece, out)

    def _say(self, text: str, out: list[Delta]) -> None:
        if self._text is None:
            self._text = self.builder.open("text")
        self.grow(self._text, text, out)

    def _think(self, field: str, text: str, out: list[Delta]) -> None:
        if self._thinking is None:
            self._thinking = self.builder.open("thinking", name=field)
        self.grow(self._thinking, text, out)

    def _chunks(self, chunks: list[_Chunk], out: list[Delta]) -> None:
        """Read content that is a list, as Mistral's reasoning models send it."""
        for chunk in chunks:
            if chunk.text:
                self._say(chunk.text, out)
            inner = chunk.thinking
            for text in [inner] if isinstance(inner, str) else [c.text for c in inner or ()]:
                if text:
                    self._think("", text, out)

    def _detail(self, details: list[dict[str, Any]]) -> None:
        """Add streamed reasoning blocks; neighbours with the same type and index are one block."""
        if self._thinking is None:
            self._thinking = self.builder.open("thinking", name="reasoning")
        for new in details:
            old = self._details[-1] if self._details else None
            if old is None or (old.get("type"), old.get("index")) != (
                new.get("type"),
                new.get("index"),
            ):
                old = {}
                self._details.append(old)
            for key, value in new.items():
                if key in _STREAMED_FIELDS and isinstance(value, str):
                    pieces = old[key] = old[key] if isinstance(old.get(key), _Pieces) else _Pieces()
                    pieces.append(value)
                elif value is not None or key not in old:
                    old[key] = value
                self.builder.size_chars += PIECE_CHARS + (
                    len(value) if isinstance(value, str) else 0
                )

    def _call(self, call: _Call, out: list[Delta]) -> None:
        function = call.function or _Function()
        given = function.arguments
        if isinstance(given, str):
            text = given
        elif given:
            text = received_json(given)
        else:
            text = ""
        name = self._named(call, function.name or "", text)
        slot = self._slot(call, name, text)
        fresh = not slot.name and bool(name)
        if fresh:
            slot.name = name
        if call.id or call.extra_content:
            self._keep(slot, call)
        if name and not fresh and text and slot.is_complete:
            text = ""  # the whole call again
        if text:
            self.builder.grow(slot, text)
        if fresh or text:
            out.append(CallDelta(slot.call, slot.name if fresh else "", text))

    def _named(self, call: _Call, name: str, text: str) -> str:
        """Name for a piece. A repeated name after a complete call names the new call whose
        arguments follow.
        """
        if call.index is not None or not self._calls:
            return name
        id_, slot = self._calls[-1][1:]
        if text and not name and self._again == (call.id or id_, slot.name):
            name = slot.name
        alone = name and not text and (call.id or id_, name) == (id_, slot.name) and slot.pieces
        self._again = (id_, name) if alone and slot.is_complete else None
        return name

    def _slot(self, call: _Call, name: str, text: str) -> PartBuilder:
        """Call that a piece belongs to. Servers may omit the index, the id or both, or give all
        calls index 0.
        """
        known = [
            (id_, slot)
            for index, id_, slot in self._calls
            if call.index is None or index == call.index
        ]
        if known:
            id_, slot = known[-1]
            other = bool((call.id and id_ and call.id != id_) or (slot.name and name != slot.name))
            bare = call.index is None and not call.id
            if call.id and (call.id, name) == (id_, slot.name) and _is_same(call, slot, text):
                return slot
            again = bool(name and slot.pieces and (text or bare)) and slot.is_complete
            if not (name and (other or again)):
                return slot
        slot = self.builder.open("call")
        self._calls.append((call.index, call.id or "", slot))
        return slot

    def _keep(self, slot: PartBuilder, call: _Call) -> None:
        fields: dict[str, Any] = {"id": call.id} if call.id else {}
        if call.extra_content:
            fields["extra_content"] = call.extra_content
        if not slot.raw or call.extra_content:
            slot.raw = encode_json(fields).decode()

    def _stop(self, reason: str) -> None:
        if reason in _ERROR_STOPS:
            self.failed = self.builder.failure(
                _ERROR_STOPS[reason], f"the provider broke off: {reason}"
            )
        elif self.builder.stop != "refusal":
            self.builder.stop = _STOPS.get(reason, "end")


def _is_same(call: _Call, slot: PartBuilder, text: str) -> bool:
    """Return whether a piece of the name and id of a call belongs to it or repeats it.

    Some servers give all calls one id, so that without an index the arguments decide.
    """
    if call.index is not None:
        return True
    return slot.is_complete and read_arguments(text) == read_arguments(slot.text)


def _join_pieces(detail: dict[str, Any]) -> dict[str, Any]:
    """Join the pieces of a reasoning block."""
    return {
        key: "".join(value) if isinstance(value, _Pieces) else value
        for key, value in detail.items()
    }


# --- Writing a request ----------------------------------------------------------------------------


_TEXT_SEPARATOR = b"\\n\\n"
_IMAGES_MESSAGE = (
    b',{"role":"user","content":[{"type":"text","text":"[pictures of the results '
    b'above, in their order]"}'
)
_MISTRAL = ("mistral", "ministral", "codestral", "devstral", "magistral", "pixtral")


class ServerQuirks(msgspec.Struct, frozen=True):
    """Differences of a server from the other servers of this wire."""

    limit_key: bytes = b"max_tokens"
    """Field name of the output limit."""
    usage_on_wish: bool = True
    """Takes `stream_options`, without which it sends no usage."""
    cache_key: bool = False
    """Takes `prompt_cache_key`."""
    short_ids: bool = False
    """Takes only call ids of nine letters and digits."""
    files: bool = False
    """Takes PDF files."""
    nested_effort: bool = False
    """Takes `reasoning.effort` in place of `reasoning_effort`."""
    auto_marks: bool = False
    """Places cache marks itself if the request holds a top-level `cache_control`."""


def quirks_of(host: str, model: str) -> ServerQuirks:
    """Known differences of the server at `host`."""
    short = host.endswith("mistral.ai") or family(model).startswith(_MISTRAL)
    if host.endswith(("api.openai.com", ".azure.com")):
        return ServerQuirks(b"max_completion_tokens", cache_key=True, files=True)
    if host.endswith("openrouter.ai"):
        claude = "claude" in model
        return ServerQuirks(files=True, nested_effort=True, auto_marks=claude, short_ids=short)
    if host.endswith("mistral.ai"):
        return ServerQuirks(usage_on_wish=False, short_ids=True)
    if host.endswith(("moonshot.ai", "moonshot.cn")):
        return ServerQuirks(cache_key=True)
    return ServerQuirks(short_ids=short)


class OpenAIChat(Wire):
    """The wire `openai-chat`."""

    name = "openai-chat"
    path = "/chat/completions"

    def __init__(self, target: WireTarget) -> None:
        super().__init__(target)
        self.quirks = quirks_of(target.host, target.model)
        self.takes_pdf = self.quirks.files
        self.has_own_ids = family(target.model).startswith("kimi")
        """True if the template of the model renders call ids, so that they go back as they came."""

    def body(self, request: Request, cache: FragmentCache) -> bytes:
        """Encode the request."""
        head = cached_head(cache, request, lambda: self._head(request))
        chunks = cache.chunks(request.items)
        system = request.prefix.system
        start = b'{"%b":%d,%b,"messages":[' % (
            self.quirks.limit_key,
            request.max_output_tokens,
            head,
        )
        if system.strip():
            start += encode_json({"role": "system", "content": system}) + (
                b"," if cache.first_side else b""
            )
        return b"".join((start, *chunks, cache.closing, b"]}"))

    def reader(self) -> ChatStreamReader:
        """Make a parser for one reply."""
        return ChatStreamReader(self.target.model)

    def _head(self, request: Request) -> bytes:
        quirks, effort = self.quirks, self.target.effort
        fields: dict[str, object] = {"model": self.target.model, "stream": True}
        if quirks.usage_on_wish:
            fields["stream_options"] = {"include_usage": True}
        if quirks.cache_key:
            fields["prompt_cache_key"] = request.route or request.session
        if quirks.auto_marks:
            fields["cache_control"] = {"type": "ephemeral"}
        if effort:
            fields["reasoning" if quirks.nested_effort else "reasoning_effort"] = (
                {"effort": effort} if quirks.nested_effort else effort
            )
        if self.target.stops:
            fields["stop"] = self.target.stops
        if tools := own_tools(request.prefix):
            fields["tools"] = list(map(_tool, tools))
        return encode_json(fields)[1:-1]

    def side(self, item: Item) -> str:
        if item.mine:
            return "assistant"
        if item.kind == "result":
            return "tool"
        return "user"

    def bracket(self, side: str, fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
        if side == "assistant":
            return _bracket_assistant(fragments)
        return _bracket_results(fragments) if side == "tool" else _bracket_user(fragments)

    def _id(self, item: Item, call: str, name: str) -> bytes:
        if self.quirks.short_ids:
            return encode_json(short_call_id(call))
        if not self.has_own_ids:
            return encode_json(wire_call_id(call))
        is_ours = item.block is not None and item.block.wire == self.name
        came = str(json_fields(item.block.raw).get("id", "")) if item.block and is_ours else ""
        return encode_json(came if came.startswith("functions.") else kimi_call_id(call, name))

    def _thinking(self, item: Item) -> bytes:
        """Encode reasoning as a field of the assistant's message, under the field name it was
        received with, or as text in its tags.

        The chat templates of models that write `<think>` cut the text at `</think>`. They leave
        the reasoning of earlier turns out and keep that of the running turn, which Qwen and
        MiniMax need between calls. So the server decides, and gets what the model wrote.
        """
        fields = self._own_fields(item)
        tagged = fields.get("content")
        return self._said(item, tagged) if isinstance(tagged, str) else encode_json(fields)[1:-1]

    def _said(self, item: Item, text: str) -> bytes:  # noqa: ARG002
        return encode_json(text)[1:-1]

    def _call(self, item: Item, call: ToolCall) -> bytes:
        extra = self._own_fields(item).get("extra_content")
        return b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}%b}' % (
            self._id(item, call.id, call.name),
            encode_json(wire_tool_name(call.name)),
            arguments_string(call),
            b',"extra_content":' + encode_json(extra) if extra else b"",
        )

    def _result(self, item: Item, result: ToolResult) -> bytes:
        """Encode a result message. Its images follow, each after a newline, which compact JSON
        never holds.
        """
        pieces = self.pieces(item)
        text = "\n".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
        shown = [self._piece(piece) for piece in pieces if not isinstance(piece, TextPiece)]
        if shown and not text:
            text = "[a picture; it follows after the results]"
        message = b'{"role":"tool","tool_call_id":%b,"content":%b}' % (
            self._id(item, result.call, result.name),
            encode_json(text),
        )
        return b"\n".join((message, *shown))

    def _piece(self, piece: Piece) -> bytes:
        match piece:
            case TextPiece(text):
                return encode_json(text if text.strip() else "(empty)")[1:-1]
            case ImagePiece(media, base64):
                return encode_json(
                    {"type": "image_url", "image_url": {"url": f"data:{media};base64,{base64}"}}
                )
            case PdfPiece(name, base64):
                file = {"filename": name, "file_data": f"data:application/pdf;base64,{base64}"}
                return encode_json({"type": "file", "file": file})


def _tool(tool: ToolSpec) -> dict[str, object]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


# --- Brackets -------------------------------------------------------------------------------------


def _bracket_user(fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    chunks: list[bytes] = []
    if not any(fragment.startswith(b'{"') for fragment in fragments):
        for fragment in fragments:
            chunks += (_TEXT_SEPARATOR if chunks else b'{"role":"user","content":"', fragment)
        return chunks, b'"}'
    lead, end = b'{"role":"user","content":[', b""
    for fragment in fragments:
        is_text = not fragment.startswith(b'{"')
        chunks += (lead + end + (b'{"type":"text","text":"' if is_text else b""), fragment)
        lead, end = (b'"}' if is_text else b""), b","
    return chunks, lead + b"]}"


def _bracket_results(fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    chunks: list[bytes] = []
    pictures: list[bytes] = []
    for fragment in fragments:
        message, *shown = fragment.split(b"\n") if b"\n" in fragment else (fragment,)
        chunks += (b"," if chunks else b"", message)
        pictures += shown
    if not pictures:
        return chunks, b""
    return chunks, b",".join((_IMAGES_MESSAGE, *pictures)) + b"]}"


def _rank(fragment: bytes) -> int:
    """Return 0 for a text, 2 for a call, 1 for anything else."""
    if fragment.startswith(b'"'):
        return 0
    return 2 if fragment.startswith(b'{"') else 1


def _bracket_assistant(fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    ranks = [_rank(fragment) for fragment in fragments]
    if ranks != sorted(ranks) or ranks.count(0) > 1:
        return _bracket_mixed(fragments, ranks)
    return _bracket_in_order(fragments, ranks)


def _bracket_in_order(
    fragments: Sequence[bytes], ranks: Sequence[int]
) -> tuple[list[bytes], bytes]:
    chunks: list[bytes] = []
    closing, was = b'{"role":"assistant"', -1
    for fragment, rank in zip(fragments, ranks, strict=True):
        if rank == was:
            lead = b"," if rank == 2 else _TEXT_SEPARATOR
        elif rank == 0:
            lead = closing + b","
        elif rank == 1:
            lead = closing + b',"content":"'
        else:
            lead = closing + (b',"content":null' if was < 1 else b"") + b',"tool_calls":['
        chunks += (lead, fragment)
        closing, was = (b"", b'"', b"]")[rank], rank
    return chunks, closing + (b',"content":""}' if was == 0 else b"}")


def _bracket_mixed(fragments: Sequence[bytes], ranks: Sequence[int]) -> tuple[list[bytes], bytes]:
    """Bracket text after a call, or several replies in one run, in the order this wire requires,
    as one chunk.
    """
    pairs = sorted(zip(ranks, fragments, strict=True), key=lambda pair: pair[0])
    thinking = [pair for pair in pairs if pair[0] == 0][:1]
    rest = [pair for pair in pairs if pair[0] > 0]
    ordered = thinking + rest
    chunks, closing = _bracket_in_order([f for _, f in ordered], [r for r, _ in ordered])
    return [b"".join(chunks)] + [b""] * (2 * len(fragments) - 1), closing
