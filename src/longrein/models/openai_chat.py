"""OpenAI Chat Completions, and the many servers that speak it more or less: OpenRouter, Ollama, llama.cpp, LM Studio,
vLLM, DeepSeek, Moonshot, Mistral, xAI, Groq.

Fragments have three shapes that cannot be mistaken for each other: text is the inside of a JSON string (so it holds no
bare quote), objects begin with `{"`, fields of the assistant's message (its reasoning) with `"`. All text of a run is
one string: several servers refuse lists.
"""

from collections.abc import Sequence

import msgspec

from longrein.context import Item, Request
from longrein.events import Text, Thinking, ToolCall, ToolResult, ToolSpec
from longrein.models.arguments import text_json
from longrein.models.chat_stream import ChatReading
from longrein.models.content import Pdf, Picture, Piece, Plain, encode_json
from longrein.models.layout import Grammar, Memo
from longrein.models.naming import family, short_call_id, wire_call_id, wire_tool_name
from longrein.models.wire import Facing, fields_of, head_of, with_path

_BETWEEN = b"\\n\\n"
_PICTURES_SAID = b',{"role":"user","content":[{"type":"text","text":"[pictures of the results above, in their order]"}'
_MISTRAL = ("mistral", "ministral", "codestral", "devstral", "magistral", "pixtral")


class Habits(msgspec.Struct, frozen=True):
    """Where a server differs from the rest."""

    limit_key: bytes = b"max_tokens"
    """Name of the output limit."""
    usage_on_wish: bool = True
    """Takes `stream_options`; usage does not come without."""
    cache_key: bool = False
    """Takes `prompt_cache_key`."""
    short_ids: bool = False
    """Takes call ids of nine letters and digits only."""
    files: bool = False
    """Takes PDF files."""
    nested_effort: bool = False
    """Takes `reasoning.effort` in place of `reasoning_effort`."""
    auto_marks: bool = False
    """Marks the cache itself when a top-level `cache_control` asks for it."""
    says_done: bool = True
    """Ends its stream with `[DONE]`."""


def habits_of(host: str, model: str) -> Habits:
    """What is known of the server at `host`."""
    short = host.endswith("mistral.ai") or family(model).startswith(_MISTRAL)
    if host.endswith(("api.openai.com", ".azure.com")):
        return Habits(b"max_completion_tokens", cache_key=True, files=True)
    if host.endswith("openrouter.ai"):
        claude = "claude" in model
        return Habits(files=True, nested_effort=True, auto_marks=claude, short_ids=short)
    if host.endswith("mistral.ai"):
        return Habits(usage_on_wish=False, short_ids=True)
    if host.endswith(("moonshot.ai", "moonshot.cn")):
        return Habits(cache_key=True)
    return Habits(short_ids=short, says_done=not host.endswith("perplexity.ai"))


class OpenAIChat:
    """The wire `openai-chat`."""

    name = "openai-chat"

    def __init__(self, facing: Facing) -> None:
        self.facing = facing
        self.habits = habits_of(facing.host, facing.model)
        self.grammar = Grammar(self._encode, _side, _lay)
        self._id = short_call_id if self.habits.short_ids else wire_call_id

    def url(self, base_url: str) -> str:
        """The Chat Completions address."""
        return with_path(base_url, "/v1", "/chat/completions")

    def headers(self, api_key: str) -> dict[str, str]:
        """The key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def body(self, request: Request, memo: Memo) -> bytes:
        """The request."""
        head = head_of(memo, request, lambda: self._head(request))
        chunks = memo.chunks(request.items)
        system = request.prefix.system
        start = b'{"%b":%d,%b,"messages":[' % (self.habits.limit_key, request.max_output_tokens, head)
        if system.strip():
            start += encode_json({"role": "system", "content": system}) + (b"," if memo.first_side else b"")
        return b"".join((start, *chunks, memo.closing, b"]}"))

    def reading(self) -> ChatReading:
        """Reads one answer."""
        return ChatReading(self.facing.model, self.habits.says_done)

    def _head(self, request: Request) -> bytes:
        habits, effort = self.habits, self.facing.effort
        fields: dict[str, object] = {"model": self.facing.model, "stream": True}
        if habits.usage_on_wish:
            fields["stream_options"] = {"include_usage": True}
        if habits.cache_key:
            fields["prompt_cache_key"] = request.route or request.session
        if habits.auto_marks:
            fields["cache_control"] = {"type": "ephemeral"}
        if effort:
            fields["reasoning" if habits.nested_effort else "reasoning_effort"] = (
                {"effort": effort} if habits.nested_effort else effort
            )
        if self.facing.stops:
            fields["stop"] = self.facing.stops
        if request.prefix.tools:
            fields["tools"] = [_tool(tool) for tool in request.prefix.tools]
        return encode_json(fields)[1:-1]

    def _encode(self, item: Item) -> bytes:
        match item.part:
            case ToolCall() as call:
                return self._call(item, call)
            case Thinking():
                return _reasoning(self.facing, item)
            case ToolResult() as result:
                return self._result(item, result)
            case Text(text) if item.mine:
                return encode_json(text)[1:-1] if text.strip() else b""
            case _:
                return b",".join(map(_fragment, self.facing.pieces(item, pdf=self.habits.files)))

    def _call(self, item: Item, call: ToolCall) -> bytes:
        extra = fields_of(item.block.raw).get("extra_content") if item.block and self.facing.owns(item) else None
        return b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}%b}' % (
            encode_json(self._id(call.id)),
            encode_json(wire_tool_name(call.name)),
            text_json(call),
            b',"extra_content":' + encode_json(extra) if extra else b"",
        )

    def _result(self, item: Item, result: ToolResult) -> bytes:
        """The message of a result; pictures follow after a newline, which no compact JSON holds."""
        pieces = self.facing.pieces(item, pdf=self.habits.files)
        text = "\n".join(piece.text for piece in pieces if isinstance(piece, Plain))
        shown = [_fragment(piece) for piece in pieces if not isinstance(piece, Plain)]
        if shown and not text:
            text = "[a picture; it follows after the results]"
        message = {"role": "tool", "tool_call_id": self._id(result.call), "content": text}
        return b"\n".join((encode_json(message), *shown))


def _tool(tool: ToolSpec) -> dict[str, object]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _reasoning(facing: Facing, item: Item) -> bytes:
    """Reasoning under the name it came by, as a field of the assistant's message."""
    fields = fields_of(item.block.raw) if item.block is not None and facing.owns(item) else {}
    return encode_json(fields)[1:-1]


def _fragment(piece: Piece) -> bytes:
    match piece:
        case Plain(text):
            return encode_json(text if text.strip() else "(empty)")[1:-1]
        case Picture(media, base64):
            return encode_json({"type": "image_url", "image_url": {"url": f"data:{media};base64,{base64}"}})
        case Pdf(name, base64):
            file = {"filename": name, "file_data": f"data:application/pdf;base64,{base64}"}
            return encode_json({"type": "file", "file": file})


# --- brackets ----------------------------------------------------------------------------------------------------


def _side(item: Item) -> str:
    return "assistant" if item.mine else "tool" if item.kind == "result" else "user"


def _lay(side: str, fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    if side == "assistant":
        return _lay_assistant(fragments)
    return _lay_results(fragments) if side == "tool" else _lay_user(fragments)


def _lay_user(fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    chunks: list[bytes] = []
    if not any(fragment.startswith(b'{"') for fragment in fragments):
        for fragment in fragments:
            chunks += (_BETWEEN if chunks else b'{"role":"user","content":"', fragment)
        return chunks, b'"}'
    lead, end = b'{"role":"user","content":[', b""
    for fragment in fragments:
        is_text = not fragment.startswith(b'{"')
        chunks += (lead + end + (b'{"type":"text","text":"' if is_text else b""), fragment)
        lead, end = (b'"}' if is_text else b""), b","
    return chunks, lead + b"]}"


def _lay_results(fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    chunks: list[bytes] = []
    pictures: list[bytes] = []
    for fragment in fragments:
        message, *shown = fragment.split(b"\n") if b"\n" in fragment else (fragment,)
        chunks += (b"," if chunks else b"", message)
        pictures += shown
    if not pictures:
        return chunks, b""
    return chunks, b",".join((_PICTURES_SAID, *pictures)) + b"]}"


def _lay_assistant(fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    ranks = [0 if f.startswith(b'"') else 2 if f.startswith(b'{"') else 1 for f in fragments]
    if ranks != sorted(ranks) or ranks.count(0) > 1:
        return _lay_mixed(fragments, ranks)
    return _lay_in_order(fragments, ranks)


def _lay_in_order(fragments: Sequence[bytes], ranks: Sequence[int]) -> tuple[list[bytes], bytes]:
    chunks: list[bytes] = []
    closing, was = b'{"role":"assistant"', -1
    for fragment, rank in zip(fragments, ranks, strict=True):
        if rank == was:
            lead = b"," if rank == 2 else _BETWEEN
        elif rank == 0:
            lead = closing + b","
        elif rank == 1:
            lead = closing + b',"content":"'
        else:
            lead = closing + (b',"content":null' if was < 1 else b"") + b',"tool_calls":['
        chunks += (lead, fragment)
        closing, was = (b"", b'"', b"]")[rank], rank
    return chunks, closing + (b',"content":""}' if was == 0 else b"}")


def _lay_mixed(fragments: Sequence[bytes], ranks: Sequence[int]) -> tuple[list[bytes], bytes]:
    """Text after a call, or several replies in one run: put in the only order that this wire has, in one chunk."""
    pairs = sorted(zip(ranks, fragments, strict=True), key=lambda pair: pair[0])
    thinking = [pair for pair in pairs if pair[0] == 0][:1]
    rest = [pair for pair in pairs if pair[0] > 0]
    ordered = thinking + rest
    chunks, closing = _lay_in_order([f for _, f in ordered], [r for r, _ in ordered])
    return [b"".join(chunks)] + [b""] * (2 * len(fragments) - 1), closing
