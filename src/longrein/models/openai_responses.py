"""OpenAI Responses: a flat list of input items, nothing stored at the provider, reasoning sent back encrypted."""

from collections.abc import Sequence

from longrein.context import Item, Request
from longrein.events import Text, Thinking, ToolCall, ToolResult, ToolSpec
from longrein.models.arguments import text_json
from longrein.models.content import Pdf, Picture, Piece, Plain, encode_json
from longrein.models.layout import Grammar, Memo
from longrein.models.naming import family, wire_call_id, wire_tool_name
from longrein.models.responses_stream import ResponsesReading
from longrein.models.wire import Facing, fields_of, head_of, listed, thinking_raw, with_path

_OPENING = b'{"type":"message","role":"user","content":['
_OURS = (b'{"type":"message"', b'{"type":"function_call"')
_WITHOUT_REASONING = ("gpt-4", "gpt-3", "chatgpt")


class OpenAIResponses:
    """The wire `openai-responses`."""

    name = "openai-responses"

    def __init__(self, facing: Facing) -> None:
        self.facing = facing
        self.grammar = Grammar(self._encode, _side, _lay)

    def url(self, base_url: str) -> str:
        """The Responses address."""
        return with_path(base_url, "/v1", "/responses")

    def headers(self, api_key: str) -> dict[str, str]:
        """The key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def body(self, request: Request, memo: Memo) -> bytes:
        """The request."""
        head = head_of(memo, request, lambda: self._head(request))
        chunks = memo.chunks(request.items)
        start = b'{"max_output_tokens":%d,%b,"input":[' % (request.max_output_tokens, head)
        return b"".join((start, *chunks, memo.closing, b"]}"))

    def reading(self) -> ResponsesReading:
        """Reads one answer."""
        return ResponsesReading(self.facing.model)

    def _head(self, request: Request) -> bytes:
        fields: dict[str, object] = {"model": self.facing.model, "stream": True, "store": False}
        fields["prompt_cache_key"] = request.route or request.session
        if not family(self.facing.model).startswith(_WITHOUT_REASONING):
            fields["include"] = ["reasoning.encrypted_content"]
            if self.facing.effort:
                fields["reasoning"] = {"effort": self.facing.effort, "summary": "auto"}
        if request.prefix.system.strip():
            fields["instructions"] = request.prefix.system
        if request.prefix.tools:
            fields["tools"] = [_tool(tool) for tool in request.prefix.tools]
        return encode_json(fields)[1:-1]

    def _encode(self, item: Item) -> bytes:
        match item.part:
            case ToolCall() as call:
                return b'{"type":"function_call","call_id":%b,"name":%b,"arguments":%b}' % (
                    encode_json(wire_call_id(call.id)),
                    encode_json(wire_tool_name(call.name)),
                    text_json(call),
                )
            case Thinking():
                return thinking_raw(self.facing, item)
            case ToolResult() as result:
                return self._result(item, result)
            case Text(text) if item.mine:
                return self._said(item, text) if text.strip() else b""
            case _:
                return b",".join(encode_json(_content(piece)) for piece in self.facing.pieces(item, pdf=True))

    def _said(self, item: Item, text: str) -> bytes:
        """An output message: strict servers (vLLM, gateways) take no less. Its id is ours, as those of calls are."""
        content = [{"type": "output_text", "text": text, "annotations": []}]
        known = "msg_" + "_".join(map(str, item.key))
        fields: dict[str, object] = {"type": "message", "id": known, "status": "completed"}
        fields |= {"role": "assistant", "content": content}
        if item.block is not None and self.facing.owns(item):
            fields |= {key: value for key, value in fields_of(item.block.raw).items() if key == "phase"}
        return encode_json(fields)

    def _result(self, item: Item, result: ToolResult) -> bytes:
        pieces = self.facing.pieces(item, pdf=True)
        output: object = "\n".join(piece.text for piece in pieces if isinstance(piece, Plain))
        if not all(isinstance(piece, Plain) for piece in pieces):
            output = [_content(piece) for piece in pieces]
        return encode_json({"type": "function_call_output", "call_id": wire_call_id(result.call), "output": output})


def _tool(tool: ToolSpec) -> dict[str, object]:
    fields = {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {**fields, "strict": False}


def _content(piece: Piece) -> dict[str, object]:
    match piece:
        case Plain(text):
            return {"type": "input_text", "text": text if text.strip() else "(empty)"}
        case Picture(media, base64):
            return {"type": "input_image", "image_url": f"data:{media};base64,{base64}"}
        case Pdf(name, base64):
            return {"type": "input_file", "filename": name, "file_data": f"data:application/pdf;base64,{base64}"}


def _side(item: Item) -> str:
    return "assistant" if item.mine else "result" if item.kind == "result" else "user"


def _lay(side: str, fragments: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    if side == "user":
        return listed(_OPENING, fragments), b"]}"
    kept = len(fragments)
    while side == "assistant" and kept and not fragments[kept - 1].startswith(_OURS):
        kept -= 1  # reasoning that led to nothing (a cut answer): the provider refuses it without what follows it
    return listed(b"", fragments[:kept]) + [b""] * (2 * (len(fragments) - kept)), b""
