"""Gemini: contents of parts, calls paired by name and id, thought signatures riding on the parts they belong to."""

from collections.abc import Sequence

from longrein.context import Item, Request
from longrein.events import Text, Thinking, ToolCall, ToolResult, ToolSpec
from longrein.models.arguments import object_json
from longrein.models.content import Pdf, Picture, Piece, Plain, encode_json
from longrein.models.gemini_stream import GeminiReading
from longrein.models.layout import Grammar, Memo
from longrein.models.naming import family, wire_call_id, wire_tool_name
from longrein.models.wire import Facing, fields_of, head_of, listed, with_path

_OPENING = {"user": b'{"role":"user","parts":[', "model": b'{"role":"model","parts":['}
_NO_SIGNATURE = "skip_thought_signature_validator"
"""What Gemini 3 takes in place of a signature on calls that another model made."""
THINKING_TOKENS = {"none": 0, "minimal": 512, "low": 2_048, "medium": 8_192, "high": 24_576, "max": 24_576}
"""Thinking budgets of Gemini 2.5, which takes a number."""


class Gemini:
    """The wire `gemini`."""

    name = "gemini"

    def __init__(self, facing: Facing) -> None:
        self.facing = facing
        self.grammar = Grammar(self._encode, _side, _lay)
        name = family(facing.model)
        self._thinks = not name.startswith(("gemini-1", "gemini-2-0", "gemma"))
        self._by_level = self._thinks and not name.startswith("gemini-2-5")

    def url(self, base_url: str) -> str:
        """The streaming address of the model."""
        return with_path(base_url, "/v1beta", f"/models/{self.facing.model}:streamGenerateContent?alt=sse")

    def headers(self, api_key: str) -> dict[str, str]:
        """The key."""
        return {"x-goog-api-key": api_key} if api_key else {}

    def body(self, request: Request, memo: Memo) -> bytes:
        """The request."""
        head = head_of(memo, request, lambda: self._head(request))
        chunks = memo.chunks(request.items)
        config = encode_json(self._config(request.max_output_tokens))
        start = b'{"generationConfig":%b%b,"contents":[' % (config, head)
        if memo.first_side == "model":
            start += b'{"role":"user","parts":[{"text":"(continued)"}]},'
        return b"".join((start, *chunks, memo.closing, b"]}"))

    def reading(self) -> GeminiReading:
        """Reads one answer."""
        return GeminiReading(self.facing.model)

    def _config(self, limit: int) -> dict[str, object]:
        config: dict[str, object] = {"maxOutputTokens": limit}
        if self.facing.stops:
            config["stopSequences"] = self.facing.stops
        if self._thinks:
            thinking: dict[str, object] = {"includeThoughts": True}
            effort = self.facing.effort
            if effort and self._by_level:
                thinking["thinkingLevel"] = {"none": "minimal", "max": "high"}.get(effort, effort)
            elif effort:
                thinking["thinkingBudget"] = THINKING_TOKENS.get(effort, -1)
            config["thinkingConfig"] = thinking
        return config

    def _head(self, request: Request) -> bytes:
        head = b""
        if request.prefix.system.strip():
            head += b',"systemInstruction":' + encode_json({"parts": [{"text": request.prefix.system}]})
        if request.prefix.tools:
            tools = [{"functionDeclarations": [_tool(tool) for tool in request.prefix.tools]}]
            head += b',"tools":' + encode_json(tools)
        return head

    def _encode(self, item: Item) -> bytes:
        match item.part:
            case ToolCall() as call:
                return self._call(item, call)
            case Thinking():
                return b""  # only the signature has to go back, and that stands on the part that follows
            case ToolResult() as result:
                return self._result(item, result)
            case Text(text) if item.mine:
                return encode_json({"text": text} | self._signature(item)) if text.strip() else b""
            case _:
                return b",".join(encode_json(_part(piece)) for piece in self.facing.pieces(item, pdf=True))

    def _signature(self, item: Item) -> dict[str, object]:
        fields = fields_of(item.block.raw) if item.block is not None and self.facing.owns(item) else {}
        return {key: value for key, value in fields.items() if key == "thoughtSignature"}

    def _call(self, item: Item, call: ToolCall) -> bytes:
        signature = self._signature(item)
        if self._by_level and not self.facing.owns(item):
            signature = {"thoughtSignature": _NO_SIGNATURE}
        return b'{"functionCall":{"id":%b,"name":%b,"args":%b}%b}' % (
            encode_json(wire_call_id(call.id)),
            encode_json(wire_tool_name(call.name)),
            object_json(call),
            b"," + encode_json(signature)[1:-1] if signature else b"",
        )

    def _result(self, item: Item, result: ToolResult) -> bytes:
        pieces = self.facing.pieces(item, pdf=True)
        text = "\n".join(piece.text for piece in pieces if isinstance(piece, Plain))
        response = {
            "id": wire_call_id(result.call),
            "name": wire_tool_name(result.name),
            "response": {"output" if result.status == "ok" else "error": text},
        }
        shown = [encode_json(_part(piece)) for piece in pieces if not isinstance(piece, Plain)]
        return b",".join((encode_json({"functionResponse": response}), *shown))


def _tool(tool: ToolSpec) -> dict[str, object]:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}


def _part(piece: Piece) -> dict[str, object]:
    match piece:
        case Plain(text):
            return {"text": text if text.strip() else "(empty)"}
        case Picture(media, base64):
            return {"inlineData": {"mimeType": media, "data": base64}}
        case Pdf(_, base64):
            return {"inlineData": {"mimeType": "application/pdf", "data": base64}}


def _side(item: Item) -> str:
    return "model" if item.mine else "user"


def _lay(side: str, fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    return listed(_OPENING[side], fragments), b"]}"
