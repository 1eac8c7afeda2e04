"""The Responses wire: validation of `POST /v1/responses`, and answers."""

from typing import Any

import msgspec

from longrein.testing.loopback import openai_chat as chat
from longrein.testing.loopback.answer import ReplyContext, argument_pieces, call_id, encode
from longrein.testing.loopback.openai_chat import KINDS
from longrein.testing.loopback.overflow_errors import overflow
from longrein.testing.loopback.script import Turn, split_text, stop_of, text_pieces
from longrein.testing.loopback.validation import (
    EMPTY_ARRAY,
    IMAGE_TOKENS,
    IMAGES_MAX,
    NAME_PATTERN,
    TOOL_NAME,
    Block,
    BlockCache,
    Limits,
    Overflow,
    ParsedRequest,
    Refused,
    Rules,
    ValidationInput,
    check_window,
    convert,
    duplicates,
    image_problem,
    images_of,
    is_json_object,
    is_signed,
    length_problem,
    sign,
    tokens_of,
)

WIRE = "openai-responses"
ID_CHARS_MAX = 64
_ROLES = ("assistant", "system", "developer", "user")
_KINDS = ("message", "reasoning", "function_call", "function_call_output")
_PARTS = {
    "user": ("input_text", "input_image", "input_file"),
    "assistant": ("output_text", "refusal"),
}


def parse_request(given: ValidationInput) -> ParsedRequest:
    """Parse and validate a request. Raises `Refused`."""
    fields, limits, rules = given.fields, given.limits, given.rules
    parsed = ParsedRequest(WIRE)
    if not rules.lenient:
        _check_head(fields, limits)
    parsed.model = msgspec.json.decode(fields.get("model", b'""'))
    parsed.output_max = msgspec.json.decode(fields.get("max_output_tokens", b"0")) or 0
    tools = convert(fields.get("tools", msgspec.Raw(b"[]")), list[msgspec.Raw], "tools")
    for raw in tools:
        parsed.add("tools", bytes(raw))
    if "instructions" in fields:
        parsed.add("system", bytes(fields["instructions"]))
    items = [_item(raw, given.cache) for raw in _listed(fields.get("input"))]
    _add_items(parsed, items)
    include = convert(fields.get("include", msgspec.Raw(b"[]")), list[str], "include")
    parsed.flags = frozenset({"sealed"} if "reasoning.encrypted_content" in include else ())
    if not rules.lenient:
        _check_tools(tools)
        _check_items(items, parsed, rules)
        check_window(parsed, limits, rules)
    return parsed


def refusal(refused: Refused) -> tuple[int, bytes]:
    """Return status and body of an error."""
    if isinstance(refused, Overflow):
        return overflow(WIRE, refused.used, refused.limit)
    return chat.refusal(refused)


def _listed(raw: msgspec.Raw | None) -> list[bytes]:
    """Split `input` into items; a bare string is one message of the user."""
    data = bytes(raw or b"[]")
    if data.startswith(b"["):
        return [bytes(inner) for inner in msgspec.json.decode(data, type=list[msgspec.Raw])]
    return [b'{"type":"message","role":"user","content":%b}' % data]


def _is_assistant(item: Block) -> bool:
    return item.kind in ("reasoning", "function_call") or item.name == "assistant"


def _add_items(parsed: ParsedRequest, items: list[Block]) -> None:
    """Add `items` to `parsed`: blocks, number of replies, and the items since the last reply."""
    was_mine, last = False, -1
    for n, item in enumerate(items):
        parsed.add("assistant" if _is_assistant(item) else "user", item.raw, item.tokens)
        if _is_assistant(item):
            parsed.replies += not was_mine
            last = n
        was_mine = _is_assistant(item)
    parsed.tail = [item.raw for item in items[last + 1 :]]
    parsed.first = next((item.raw for item in items if item.name == "user"), b"")


# --- Items -----------------------------------------------------------------------------------------------------------


def _item(raw: bytes, cache: BlockCache) -> Block:
    return cache.get(WIRE, raw) or cache.keep(WIRE, raw, _read(raw))


def _read(raw: bytes) -> Block:
    """Parse an item; `name` of a message is its role."""
    fields = msgspec.json.decode(raw)
    if not isinstance(fields, dict):
        return Block(raw=raw, problem="Invalid type for '{at}': expected an object.")
    block = Block(fields.get("type") or ("message" if "role" in fields else ""), raw)
    content = fields.get("output") if block.kind == "function_call_output" else fields.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    block.pictures = images_of([part.get("image_url") for part in parts])
    skipped = sum(picture.base64_bytes for picture in block.pictures)
    block.tokens = tokens_of(len(raw) - skipped) + IMAGE_TOKENS * len(block.pictures)
    block.id = str(fields.get("call_id") or "")
    block.name = str(fields.get("role") or "")
    block.note = "" if "id" not in fields else str(fields["id"])
    block.text = _summary(fields)
    block.signature = fields.get("encrypted_content")
    block.problem = _problem(block, fields)
    return block


def _summary(fields: dict[str, Any]) -> str:
    summary = fields.get("summary")
    parts = summary if isinstance(summary, list) else []
    return "\n\n".join(str(part.get("text")) for part in parts if isinstance(part, dict))


def _problem(block: Block, fields: dict[str, Any]) -> str:
    match block.kind:
        case "message":
            return _message_problem(block, fields)
        case "function_call":
            return _call_problem(block, fields)
        case "function_call_output":
            return _output_problem(block, fields)
        case "reasoning":
            return "" if isinstance(fields.get("summary"), list) else "Missing required parameter: '{at}.summary'."
    kinds = "', '".join(_KINDS)
    return f"Invalid value: '{block.kind}'. Supported values are: '{kinds}'."


def _message_problem(block: Block, fields: dict[str, Any]) -> str:
    if block.name not in _ROLES:
        return f"Invalid value: '{block.name}'. Supported values are: '{', '.join(_ROLES)}'."
    content = fields.get("content")
    if isinstance(content, str):
        return ""
    if not isinstance(content, list):
        return "Missing required parameter: '{at}.content'."
    if not content:
        return f"Invalid '{{at}}.content': {EMPTY_ARRAY}"
    if block.name == "assistant" and (lacking := _missing_field(fields, content)):
        return f"Missing required parameter: '{{at}}.{lacking}'."
    return _parts_problem(content, _PARTS.get(block.name, _PARTS["user"]), "content")


def _missing_field(fields: dict[str, Any], content: list[Any]) -> str:
    """Name the field that an assistant message lacks; vLLM and others require it, OpenAI does not."""
    for name in ("id", "status"):
        if not isinstance(fields.get(name), str):
            return name
    texts = [n for n, part in enumerate(content) if isinstance(part, dict) and part.get("type") == "output_text"]
    return next((f"content[{n}].annotations" for n in texts if not isinstance(content[n].get("annotations"), list)), "")


def _parts_problem(parts: list[Any], allowed: tuple[str, ...], where: str) -> str:
    for n, part in enumerate(parts):
        at = f"{{at}}.{where}[{n}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            return f"Invalid value: '{kind}'. Supported values are: {allowed}."
        if kind in ("input_text", "output_text") and not isinstance(part.get("text"), str):
            return f"Missing required parameter: '{at}.text'."
        if kind == "input_image" and (problem := image_problem(part.get("image_url"))):
            return problem.replace("{at}", at)
    return ""


def _call_problem(block: Block, fields: dict[str, Any]) -> str:
    if not block.id:
        return "Missing required parameter: '{at}.call_id'."
    if problem := length_problem("{at}.call_id", block.id, ID_CHARS_MAX):
        return problem
    if not TOOL_NAME.fullmatch(str(fields.get("name"))):
        return f"Invalid '{{at}}.name': {NAME_PATTERN}"
    if not is_json_object(fields.get("arguments")):
        return "Invalid '{at}.arguments': expected a string that holds a JSON object."
    return ""


def _output_problem(block: Block, fields: dict[str, Any]) -> str:
    if not block.id:
        return "Missing required parameter: '{at}.call_id'."
    output = fields.get("output")
    if isinstance(output, list):
        return _parts_problem(output, _PARTS["user"], "output")
    return "" if isinstance(output, str) else "Missing required parameter: '{at}.output'."


# --- Rules of a request ----------------------------------------------------------------------------------------------


def _check_head(fields: dict[str, msgspec.Raw], limits: Limits) -> None:
    for name in ("model", "input"):
        if name not in fields:
            raise Refused(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    convert(fields["model"], str, "model")
    if "max_output_tokens" not in fields:
        return
    limit = convert(fields["max_output_tokens"], int, "max_output_tokens")
    if limit < 16:
        raise Refused(
            "Invalid 'max_output_tokens': integer below minimum value. "
            f"Expected a value >= 16, but got {limit} instead.",
            param="max_output_tokens",
            code="integer_below_min_value",
        )
    if limits.output_tokens_max and limit > limits.output_tokens_max:
        raise Refused(
            "Invalid 'max_output_tokens': integer above maximum value. "
            f"Expected a value <= {limits.output_tokens_max}, but got {limit} instead.",
            param="max_output_tokens",
            code="integer_above_max_value",
        )


def _check_tools(tools: list[msgspec.Raw]) -> None:
    names = []
    for n, raw in enumerate(tools):
        fields = msgspec.json.decode(raw)
        if "name" not in fields:
            raise Refused(f"Missing required parameter: 'tools[{n}].name'.", param=f"tools[{n}].name")
        names.append(str(fields["name"]))
        if not TOOL_NAME.fullmatch(names[-1]):
            raise Refused(f"Invalid 'tools[{n}].name': {NAME_PATTERN}", param=f"tools[{n}].name", code="invalid_value")
    if again := duplicates(names):
        raise Refused(f"Invalid 'tools': function names must be unique, but {again[0]!r} occurs twice.", param="tools")


def _check_items(items: list[Block], parsed: ParsedRequest, rules: Rules) -> None:
    if not items:
        raise Refused(f"Invalid 'input': {EMPTY_ARRAY}", param="input", code="empty_array")
    for at, item in enumerate(items):
        if item.problem:
            raise Refused(item.problem.replace("{at}", f"input[{at}]"), param=f"input[{at}]", code="invalid_value")
        if item.kind == "reasoning":
            _check_reasoning(at, items, parsed.model)
    if rules.user_first and _is_assistant(items[0]):
        raise Refused("Invalid 'input': the first item must be a message of the user.", param="input[0]")
    _check_pairs(items)
    if _is_assistant(items[-1]) and not rules.accepts_prefill:
        raise Refused("Invalid 'input': the last item must not be the assistant's.", param=f"input[{len(items) - 1}]")
    if sum(len(item.pictures) for item in items) > IMAGES_MAX:
        raise Refused(f"Invalid 'input': too many images. At most {IMAGES_MAX} are allowed.", param="input")


def _check_reasoning(at: int, items: list[Block], model: str) -> None:
    """Check that the reasoning is signed by this provider and model, and that an item of the reply follows."""
    item = items[at]
    if item.signature is None:
        raise Refused(
            f"Item with id '{item.note}' not found. Items are not persisted when `store` is set to false. "
            "Try again with `store` set to true, or remove this item from your input.",
            status=404,
            param="input",
        )
    if not is_signed(item.signature, WIRE, model, item.text):
        raise Refused(
            f"The encrypted content {item.signature[:4]}... could not be verified. "
            "Reason: Encrypted content could not be decrypted or parsed.",
            code="invalid_encrypted_content",
        )
    after = items[at + 1] if at + 1 < len(items) else None
    if after is None or not _is_assistant(after):
        raise Refused(
            f"Item '{item.note}' of type 'reasoning' was provided without its required following item.", param="input"
        )


def _check_pairs(items: list[Block]) -> None:
    """Check that each call has one later output, and each output an earlier call."""
    called: dict[str, None] = {}
    answered: dict[str, None] = {}
    for item in items:
        if item.kind == "function_call":
            if item.id in called:
                raise Refused(f"Duplicate function call with call_id {item.id} found in input.", param="input")
            called[item.id] = None
        elif item.kind == "function_call_output":
            if item.id not in called:
                raise Refused(f"No tool call found for function call output with call_id {item.id}.", param="input")
            if item.id in answered:
                raise Refused(f"Duplicate tool output found for function call {item.id}.", param="input")
            answered[item.id] = None
    missing = [id_ for id_ in called if id_ not in answered]
    if missing:
        raise Refused(f"No tool output found for function call {missing[0]}.", param="input")


# --- Answers ---------------------------------------------------------------------------------------------------------
#
# Numbered events; each item is added, grows and is done.


_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}


class _EventWriter:
    """Writes numbered events, and collects the finished items."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.output: list[dict[str, Any]] = []

    def say(self, kind: str, **fields: Any) -> None:
        """Add one event."""
        data = encode({"type": kind, "sequence_number": len(self.events), **fields})
        self.events.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    def grow(self, kind: str, item_id: str, texts: list[str], **where: int) -> None:
        """Add the deltas of one item, encoded fast since there may be many."""
        fields = {"type": f"{kind}.delta", "item_id": item_id, "output_index": len(self.output), **where}
        lead = b"event: %b.delta\ndata: %b" % (kind.encode(), encode(fields)[:-1])
        first = len(self.events)
        self.events += [
            b'%b,"sequence_number":%d,"delta":%b}\n\n' % (lead, n, encode(text)) for n, text in enumerate(texts, first)
        ]

    def done(self, item: dict[str, Any]) -> None:
        """Finish an item."""
        self.say("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)


def stream_events(turn: Turn, answer: ReplyContext) -> list[bytes]:
    """Return all events of an answer."""
    stream = _EventWriter()
    response = {"id": f"resp_{answer.serial:024d}", "object": "response", "model": answer.model, "store": False}
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    stream.say("response.created", response=begun)
    stream.say("response.in_progress", response=begun)
    if turn.thinking:
        _reasoning(stream, turn.thinking, answer)
    if texts := text_pieces(turn):
        _text(stream, texts, answer)
    for index in range(len(turn.calls)):
        _call(stream, turn, index, answer)
    reason = _INCOMPLETE.get(stop_of(turn))
    status = "incomplete" if reason else "completed"
    whole = {
        **response,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": stream.output,
        "usage": usage(answer),
    }
    stream.say(f"response.{status}", response=whole)
    return stream.events


def error_event(status: int, word: str, message: str) -> bytes:
    """Return an error event inside a stream."""
    error = {"code": word or KINDS.get(status, "server_error"), "message": message}
    response = {"id": "resp_failed", "object": "response", "status": "failed", "error": error}
    return b"event: response.failed\ndata: %b\n\n" % encode({"type": "response.failed", "response": response})


def usage(answer: ReplyContext) -> dict[str, Any]:
    """Usage in the form of this wire."""
    cached = answer.cached
    given = cached.input + cached.read + cached.written
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": cached.read},
        "output_tokens": answer.output,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning},
        "total_tokens": given + answer.output,
    }


def _reasoning(stream: _EventWriter, text: str, answer: ReplyContext) -> None:
    id_, at = f"rs_{answer.serial:024d}", len(stream.output)
    item: dict[str, Any] = {"id": id_, "type": "reasoning", "summary": []}
    stream.say("response.output_item.added", output_index=at, item=item)
    part = {"type": "summary_text", "text": ""}
    where = {"item_id": id_, "output_index": at, "summary_index": 0}
    stream.say("response.reasoning_summary_part.added", **where, part=part)
    stream.grow("response.reasoning_summary_text", id_, split_text(text), summary_index=0)
    stream.say("response.reasoning_summary_text.done", **where, text=text)
    part = {"type": "summary_text", "text": text}
    stream.say("response.reasoning_summary_part.done", **where, part=part)
    is_signed = {"encrypted_content": sign(WIRE, answer.model, text)} if "sealed" in answer.flags else {}
    stream.done({**item, "summary": [part], **is_signed})


def _text(stream: _EventWriter, texts: list[str], answer: ReplyContext) -> None:
    id_, at = f"msg_{answer.serial:024d}", len(stream.output)
    item: dict[str, Any] = {"id": id_, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    stream.say("response.output_item.added", output_index=at, item=item)
    part = {"type": "output_text", "annotations": [], "text": ""}
    where = {"item_id": id_, "output_index": at, "content_index": 0}
    stream.say("response.content_part.added", **where, part=part)
    stream.grow("response.output_text", id_, texts, content_index=0)
    text = "".join(texts)
    stream.say("response.output_text.done", **where, text=text)
    stream.say("response.content_part.done", **where, part={**part, "text": text})
    stream.done({**item, "status": "completed", "content": [{**part, "text": text}]})


def _call(stream: _EventWriter, turn: Turn, index: int, answer: ReplyContext) -> None:
    call, at = turn.calls[index], len(stream.output)
    id_ = f"fc_{answer.serial:012d}{index:012d}"
    item: dict[str, Any] = {"id": id_, "type": "function_call", "status": "in_progress", "name": call.name}
    if call_ := call_id(call, index, answer, "call_{}"):
        item["call_id"] = call_
    stream.say("response.output_item.added", output_index=at, item={**item, "arguments": ""})
    texts = argument_pieces(turn, index, answer)
    stream.grow("response.function_call_arguments", id_, texts)
    whole = "".join(texts)
    stream.say("response.function_call_arguments.done", item_id=id_, output_index=at, arguments=whole)
    stream.done({**item, "status": "completed", "arguments": whole})
