"""The Anthropic wire: validation of `POST /v1/messages`, and answers.

Each refusal has the status and the words of the real provider, as far as they are known.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.testing.loopback.answer import ReplyContext, argument_pieces, call_id, encode
from longrein.testing.loopback.overflow_errors import overflow
from longrein.testing.loopback.prompt_cache import CacheUsage
from longrein.testing.loopback.script import Turn, split_text, stop_of, text_pieces
from longrein.testing.loopback.validation import (
    IMAGE_TOKENS,
    NAME,
    Block,
    BlockCache,
    ImageInfo,
    Limits,
    Overflow,
    ParsedRequest,
    Refused,
    Rules,
    ValidationInput,
    check_window,
    convert,
    duplicates,
    inspect_image,
    is_signed,
    sign,
    tokens_of,
    without_cache_mark,
)

# --- Blocks ----------------------------------------------------------------------------------------------------------


WIRE = "anthropic"
IMAGE_BYTES_MAX = 5_242_880
"""Largest image, counted in base64."""
IMAGE_SIDE_MAX = 8_000
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MEDIA = ("image/jpeg", "image/png", "image/gif", "image/webp")
_KEYS = {
    "text": "type text cache_control citations",
    "image": "type source cache_control",
    "document": "type source cache_control title context citations",
    "thinking": "type thinking signature",
    "redacted_thinking": "type data",
    "tool_use": "type id name input cache_control caller",
    "tool_result": "type tool_use_id content is_error cache_control",
}


def block_of(raw: bytes, cache: BlockCache) -> Block:
    """Parse the block `raw`, or take it from the cache."""
    return cache.get(WIRE, raw) or cache.keep(WIRE, raw, read_block(raw))


def read_block(raw: bytes) -> Block:
    """Parse the block `raw`."""
    fields = msgspec.json.decode(raw)
    if not isinstance(fields, dict):
        return Block(raw=raw, problem="{at}: Input should be a valid dictionary or object to extract fields from")
    mark = fields.get("cache_control")
    block = Block(fields.get("type") or "", without_cache_mark(raw, mark))
    block.pictures = tuple(inspect_image(source["data"]) for source in _sources(fields))
    skipped = sum(picture.base64_bytes for picture in block.pictures)
    block.tokens = tokens_of(len(block.raw) - skipped) + IMAGE_TOKENS * len(block.pictures)
    if mark is not None:
        block.mark_s = 3_600.0 if mark.get("ttl") == "1h" else -1.0
    block.id = str(fields.get("id") or fields.get("tool_use_id") or "")
    block.name = str(fields.get("name") or "")
    block.text = str(fields.get("thinking") or "")
    block.signature = fields.get("signature") if block.kind == "thinking" else fields.get("data")
    block.problem = _problem(block, fields)
    return block


def _sources(fields: dict[str, Any]) -> list[dict[str, Any]]:
    content = fields.get("content")
    inner = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    sources = [part.get("source") for part in [fields, *inner] if part.get("type") == "image"]
    return [s for s in sources if isinstance(s, dict) and s.get("type") == "base64" and isinstance(s.get("data"), str)]


def _problem(block: Block, fields: dict[str, Any]) -> str:
    """Say what is wrong with a block wherever it stands; empty for nothing."""
    if "input_schema" in fields or block.kind == "custom":
        return _tool_problem(block, fields)
    known = _KEYS.get(block.kind)
    if known is None:
        tags = ", ".join(f"'{kind}'" for kind in _KEYS)
        return f"{{at}}: Input tag '{block.kind}' found using 'type' does not match any of the expected tags: {tags}"
    extra = [key for key in fields if key not in known.split()]
    if extra:
        return f"{{at}}.{block.kind}.{extra[0]}: Extra inputs are not permitted"
    match block.kind:
        case "text":
            return _text_problem(fields)
        case "tool_use":
            return _call_problem(block, fields)
        case "tool_result":
            return _result_problem(block, fields)
        case "image":
            return _image_problem(fields)
    unsigned = block.kind == "thinking" and block.signature is None
    return "{at}.thinking.signature: Field required" if unsigned else ""


def _text_problem(fields: dict[str, Any]) -> str:
    text = fields.get("text")
    if not isinstance(text, str):
        return "{at}.text.text: Input should be a valid string"
    if not text:
        if "cache_control" in fields:
            return "{at}.text: cache_control cannot be set for empty text blocks"
        return "messages: text content blocks must be non-empty"
    return "" if text.strip() else "messages: text content blocks must contain non-whitespace text"


def _call_problem(block: Block, fields: dict[str, Any]) -> str:
    if not _ID.fullmatch(block.id):
        return "{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if not NAME.fullmatch(block.name):
        return "{at}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    return "" if isinstance(fields.get("input"), dict) else "{at}.tool_use.input: Input should be a valid dictionary"


def _result_problem(block: Block, fields: dict[str, Any]) -> str:
    if not _ID.fullmatch(block.id):
        return "{at}.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    content = fields.get("content")
    for n, part in enumerate(content if isinstance(content, list) else []):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "image", "document", "search_result"):
            return (
                f"{{at}}.tool_result.content.{n}: Input tag '{kind}' found using 'type' "
                "does not match any of the expected tags"
            )
        problem = _text_problem(part) if kind == "text" else _image_problem(part) if kind == "image" else ""
        if problem:
            return problem.replace("{at}", f"{{at}}.tool_result.content.{n}")
    return ""


def _image_problem(fields: dict[str, Any]) -> str:
    source = fields.get("source")
    if not isinstance(source, dict) or source.get("type") not in ("base64", "url", "file"):
        return "{at}.image.source: Field required"
    if source["type"] != "base64":
        return ""
    if source.get("media_type") not in _MEDIA:
        kinds = "'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        return f"{{at}}.image.source.base64.media_type: Input should be {kinds}"
    picture = inspect_image(str(source.get("data")))
    if picture.base64_bytes > IMAGE_BYTES_MAX:
        size = f"{picture.base64_bytes} bytes > {IMAGE_BYTES_MAX} bytes"
        return f"{{at}}.image.source.base64: image exceeds 5 MB maximum: {size}"
    if not picture.media:
        return "Could not process image"
    if picture.media != source["media_type"]:
        return (
            f"{{at}}.image.source.base64.data: The image was specified using the {source['media_type']} media type, "
            f"but the image appears to be a {picture.media} image"
        )
    if max(picture.width, picture.height) > IMAGE_SIDE_MAX:
        return (
            "{at}.image.source.base64.data: At least one of the image dimensions exceed max allowed size: "
            f"{IMAGE_SIDE_MAX} pixels"
        )
    return ""


def _tool_problem(block: Block, fields: dict[str, Any]) -> str:
    if not NAME.fullmatch(block.name):
        return "{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    schema = fields.get("input_schema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "{at}.custom.input_schema.type: Input should be 'object'"
    return ""


# --- Requests --------------------------------------------------------------------------------------------------------


MARKS_MAX = 4
MANY_IMAGES = 20
"""Number of images above which the side limit is `MANY_SIDE_MAX`."""
MANY_SIDE_MAX = 2_000
IMAGES_MAX = 100
_FIELDS = frozenset(
    (
        *("model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "stop_sequences", "thinking"),
        *("temperature", "top_p", "top_k", "metadata", "service_tier", "output_config", "container", "mcp_servers"),
        *("cache_control", "context_management", "speed", "inference_geo"),
    )
)
_ROLE_BLOCKS = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")


def parse_request(given: ValidationInput) -> ParsedRequest:
    """Parse and validate a request. Raises `Refused`."""
    fields, limits, rules, cache = given.fields, given.limits, given.rules, given.cache
    parsed = ParsedRequest(WIRE)
    if not rules.lenient:
        _check_head(fields, limits)
    parsed.model = msgspec.json.decode(fields.get("model", b'""'))
    parsed.output_max = msgspec.json.decode(fields.get("max_tokens", b"0"))
    for side in ("tools", "system"):
        for raw in _listed(fields.get(side)):
            _add(parsed, side, block_of(raw, cache))
    messages = convert(fields.get("messages", msgspec.Raw(b"[]")), list[_Message], "messages")
    turns = [(message.role, [block_of(raw, cache) for raw in _listed(message.content)]) for message in messages]
    for role, blocks in turns:
        for block in blocks:
            _add(parsed, role, block)
    parsed.replies = sum(role == "assistant" for role, _ in turns)
    last = max((n for n, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    parsed.tail = [block.raw for _, blocks in turns[last + 1 :] for block in blocks]
    parsed.first = b"[%b]" % b",".join(block.raw for block in turns[0][1]) if turns else b""
    if not rules.lenient:
        _check_messages(messages, turns, parsed, rules)
        if b'"enabled"' in bytes(fields.get("thinking", b"")):
            _check_thinking_first(turns)
        check_window(parsed, limits, rules)
    return parsed


def refusal(refused: Refused) -> tuple[int, bytes]:
    """Return status and body of an error."""
    if isinstance(refused, Overflow):
        return overflow(WIRE, refused.used, refused.limit)
    error = {"type": refused.kind or KINDS.get(refused.status, "invalid_request_error"), "message": refused.message}
    return refused.status, msgspec.json.encode({"type": "error", "error": error, "request_id": "req_loopback"})


KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""HTTP status -> error type."""


def _listed(raw: msgspec.Raw | None) -> Sequence[bytes]:
    """Split `system`, `tools` or `content` into blocks; a bare string is one text block."""
    if raw is None or raw == b"null":
        return ()
    data = bytes(raw)
    if data.startswith(b"["):
        return [bytes(inner) for inner in msgspec.json.decode(data, type=list[msgspec.Raw])]
    return [b'{"type":"text","text":%b}' % data]


def _add(parsed: ParsedRequest, side: str, block: Block) -> None:
    if block.mark_s:
        parsed.marks.append((len(parsed.blocks), block.mark_s))
    parsed.add(side, block.raw, block.tokens)


# --- Rules of a request ----------------------------------------------------------------------------------------------


def _check_head(fields: dict[str, msgspec.Raw], limits: Limits) -> None:
    for name in ("model", "max_tokens", "messages"):
        if name not in fields:
            raise Refused(f"{name}: Field required")
    for name in fields:
        if name not in _FIELDS:
            raise Refused(f"{name}: Extra inputs are not permitted")
    convert(fields["model"], str, "model")
    limit = convert(fields["max_tokens"], int, "max_tokens")
    most = limits.output_tokens_max
    if limit < 1:
        raise Refused("max_tokens: Input should be greater than or equal to 1")
    if most and limit > most:
        raise Refused(f"max_tokens: {limit} > {most}, which is the maximum allowed number of output tokens")
    _check_thinking(fields, limit)
    for n, raw in enumerate(_listed(fields.get("system"))):
        if problem := read_block(raw).problem:
            raise Refused(problem.replace("messages: ", "system: ").replace("{at}", f"system.{n}"))
    _check_tools([read_block(raw) for raw in _listed(fields.get("tools"))])


def _check_thinking(fields: dict[str, msgspec.Raw], limit: int) -> None:
    thinking = convert(fields.get("thinking", msgspec.Raw(b"{}")), dict[str, Any], "thinking")
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens") or 0
        if budget < 1_024:
            raise Refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= limit:
            raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`")


def _check_tools(tools: list[Block]) -> None:
    for n, tool in enumerate(tools):
        if tool.problem:
            raise Refused(tool.problem.replace("{at}", f"tools.{n}"))
    if duplicates([tool.name for tool in tools]):
        raise Refused("tools: Tool names must be unique.")


Turns = list[tuple[str, list[Block]]]


def _check_messages(messages: list[_Message], turns: Turns, parsed: ParsedRequest, rules: Rules) -> None:
    if not turns:
        raise Refused("messages: at least one message is required")
    for at, (role, blocks) in enumerate(turns):
        _check_role(at, role, turns, rules)
        if not blocks:
            raise Refused(
                f"messages.{at}: all messages must have non-empty content "
                "except for the optional final assistant message"
            )
        for n, block in enumerate(blocks):
            _check_block(f"messages.{at}.content.{n}", role, block, parsed.model)
    _check_pairs(turns)
    _check_last_message(messages[-1], turns, rules)
    if len(parsed.marks) > MARKS_MAX:
        raise Refused(f"A maximum of {MARKS_MAX} blocks with cache_control may be provided. Found {len(parsed.marks)}.")
    _check_images(turns)


def _check_role(at: int, role: str, turns: Turns, rules: Rules) -> None:
    if role not in _ROLE_BLOCKS:
        raise Refused(
            f'messages: Unexpected role "{role}". The Messages API accepts a top-level `system` parameter, '
            'not "system" as an input message role.'
            if role == "system"
            else f"messages.{at}.role: Input should be 'user' or 'assistant'"
        )
    if at == 0 and role != "user" and rules.user_first:
        raise Refused('messages: first message must use the "user" role')
    if at and rules.alternation and role == turns[at - 1][0]:
        raise Refused(
            f'messages: roles must alternate between "user" and "assistant", but found multiple "{role}" roles in a row'
        )


def _check_block(at: str, role: str, block: Block, model: str) -> None:
    if block.problem:
        raise Refused(block.problem.replace("{at}", at))
    if block.kind not in _ROLE_BLOCKS[role]:
        raise Refused(
            f"{at}: `{block.kind}` blocks can only be in `{'assistant' if role == 'user' else 'user'}` messages"
        )
    if block.kind in ("thinking", "redacted_thinking") and not is_signed(
        block.signature or "", WIRE, model, block.text
    ):
        raise Refused(f"{at}: Invalid `{'signature' if block.text else 'data'}` in `{block.kind}` block")


def _check_pairs(turns: Turns) -> None:
    """Check that each call has its result at the start of the next message, and that ids are unique."""
    seen: dict[str, None] = {}
    waiting: list[str] = []
    for at, (_, blocks) in enumerate(turns):
        heads = 0
        while heads < len(blocks) and blocks[heads].kind == "tool_result":
            heads += 1
        answered = [block.id for block in blocks if block.kind == "tool_result"]
        for n, block in enumerate(blocks):
            if block.kind == "tool_result" and block.id not in waiting:
                raise Refused(
                    f"messages.{at}.content.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {block.id}. "
                    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
        if again := duplicates(answered):
            raise Refused(
                f"messages.{at}.content.{_last(blocks, again[0])}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {again[0]}"
            )
        _check_missing(at - 1, waiting, [block.id for block in blocks[:heads]])
        waiting = [block.id for block in blocks if block.kind == "tool_use"]
        for n, block in enumerate(blocks):
            if block.kind == "tool_use" and block.id in seen:
                raise Refused(f"messages.{at}.content.{n}: `tool_use` ids must be unique")
            if block.kind == "tool_use":
                seen[block.id] = None
    _check_missing(len(turns) - 1, waiting, [])


def _last(blocks: list[Block], id_: str) -> int:
    return max(n for n, block in enumerate(blocks) if block.id == id_)


def _check_missing(at: int, waiting: list[str], answered: list[str]) -> None:
    missing = [id_ for id_ in waiting if id_ not in answered]
    if missing:
        raise Refused(
            f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )


def _check_last_message(last: _Message, turns: Turns, rules: Rules) -> None:
    if last.role != "assistant":
        return
    if not rules.accepts_prefill:
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    final = turns[-1][1][-1]
    if (
        final.kind == "text"
        and str(msgspec.json.decode(final.raw)["text"]).rstrip() != msgspec.json.decode(final.raw)["text"]
    ):
        raise Refused("messages: final assistant content cannot end with trailing whitespace")


def _check_thinking_first(turns: Turns) -> None:
    """With a thinking budget, check that the reply before results begins with thinking."""
    last = max((n for n, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    if last < 0 or turns[-1][1][0].kind != "tool_result":
        return
    found = turns[last][1][0].kind
    if found not in ("thinking", "redacted_thinking"):
        raise Refused(
            f"messages.{last}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block "
            "(preceeding the lastmost "
            "set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks "
            "from previous turns. "
            "To avoid this requirement, disable `thinking`."
        )


def _check_images(turns: Turns) -> None:
    pictures: list[ImageInfo] = [picture for _, blocks in turns for block in blocks for picture in block.pictures]
    if len(pictures) > IMAGES_MAX:
        raise Refused(f"messages: too many images and documents: {len(pictures)} + 0 > {IMAGES_MAX}")
    if len(pictures) <= MANY_IMAGES:
        return
    for at, (_, blocks) in enumerate(turns):
        for n, block in enumerate(blocks):
            if any(max(picture.width, picture.height) > MANY_SIDE_MAX for picture in block.pictures):
                raise Refused(
                    f"messages.{at}.content.{n}.image.source.base64.data: At least one of the image dimensions exceed "
                    f"max allowed size for many-image requests: {MANY_SIDE_MAX} pixels"
                )


# --- Answers ---------------------------------------------------------------------------------------------------------
#
# Named events; blocks start, grow and stop.


_STOPS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def event(name: str, data: bytes) -> bytes:
    """Encode one server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def stream_events(turn: Turn, answer: ReplyContext) -> list[bytes]:
    """Return all events of an answer."""
    out = [_start(answer), _PING]
    index = 0
    if turn.thinking:
        out += _thinking(turn.thinking, index, answer.model)
        index += 1
    texts = text_pieces(turn)
    if texts:
        out += _text(texts, index)
        index += 1
    for n in range(len(turn.calls)):
        out += _call(turn, n, index, answer)
        index += 1
    delta = {"stop_reason": _STOPS[stop_of(turn)], "stop_sequence": None}
    usage = {**_input(answer.cached), "output_tokens": answer.output}
    out.append(event("message_delta", encode({"type": "message_delta", "delta": delta, "usage": usage})))
    out.append(event("message_stop", b'{"type":"message_stop"}'))
    return out


def error_event(status: int, word: str, message: str) -> bytes:
    """Return an error event inside a stream."""
    error = {"type": word or KINDS.get(status, "overloaded_error"), "message": message}
    return event("error", encode({"type": "error", "error": error}))


def _input(cached: CacheUsage) -> dict[str, object]:
    return {
        "input_tokens": cached.input,
        "cache_creation_input_tokens": cached.written,
        "cache_read_input_tokens": cached.read,
    }


def _start(answer: ReplyContext) -> bytes:
    cached = answer.cached
    created = {
        "ephemeral_5m_input_tokens": cached.written - cached.written_hour,
        "ephemeral_1h_input_tokens": cached.written_hour,
    }
    usage = {**_input(cached), "cache_creation": created, "output_tokens": 1, "service_tier": "standard"}
    body: dict[str, object] = {
        "id": f"msg_{answer.serial:024d}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    return event("message_start", encode({"type": "message_start", "message": body}))


def _open(index: int, block: dict[str, object]) -> bytes:
    start = {"type": "content_block_start", "index": index, "content_block": block}
    return event("content_block_start", encode(start))


def _grow(index: int, kind: str, key: str, texts: list[str]) -> list[bytes]:
    head = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
    lead = head % (index, kind.encode(), key.encode())
    return [b"%b%b}}\n\n" % (lead, encode(text)) for text in texts]


def _shut(index: int) -> bytes:
    return event("content_block_stop", b'{"type":"content_block_stop","index":%d}' % index)


def _thinking(text: str, index: int, model: str) -> list[bytes]:
    signed = _grow(index, "signature_delta", "signature", [sign(WIRE, model, text)])
    grown = _grow(index, "thinking_delta", "thinking", split_text(text))
    return [_open(index, {"type": "thinking", "thinking": "", "signature": ""}), *grown, *signed, _shut(index)]


def _text(texts: list[str], index: int) -> list[bytes]:
    return [_open(index, {"type": "text", "text": ""}), *_grow(index, "text_delta", "text", texts), _shut(index)]


def _call(turn: Turn, n: int, index: int, answer: ReplyContext) -> list[bytes]:
    call = turn.calls[n]
    block: dict[str, object] = {"type": "tool_use", "name": call.name, "input": {}}
    if id_ := call_id(call, n, answer, "toolu_{}"):
        block["id"] = id_
    grown = _grow(index, "input_json_delta", "partial_json", ["", *argument_pieces(turn, n, answer)])
    return [_open(index, block), *grown, _shut(index)]
