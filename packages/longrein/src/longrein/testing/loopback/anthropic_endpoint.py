"""The Anthropic wire: validation of `POST /v1/messages`, and answers.

Each refusal has the status and the words of the real provider, as far as they are known.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from longrein.models.scripted import split_text
from longrein.testing.loopback.response_parts import (
    SEARCHES,
    CacheUsage,
    ReplyContext,
    argument_pieces,
    call_id,
    encode,
    searches_of,
)
from longrein.testing.loopback.script import Limits, Rules, Turn, stop_of, text_pieces
from longrein.testing.loopback.validation import (
    ParsedRequest,
    Refused,
    SentBlock,
    SentMessage,
    WireEndpoint,
    convert,
    duplicates,
    inspect_image,
    listed,
    sign,
)
from longrein_context.events import decode_object

IMAGE_BYTES_MAX = 5_242_880
"""Largest image, counted in base64."""
IMAGE_SIDE_MAX = 8_000
MANY_IMAGES = 20
"""Number of images above which the side limit is `MANY_SIDE_MAX`."""
MANY_SIDE_MAX = 2_000
MARKS_MAX = 4
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MARK = re.compile(rb',\s*"cache_control"\s*:\s*\{[^{}]*\}\s*\}\Z')
_TEXT = b'{"type":"text","text":%b}'
_MEDIA = ("image/jpeg", "image/png", "image/gif", "image/webp")
_THINKING = ("thinking", "redacted_thinking")
_KEYS = {
    "text": "type text cache_control citations",
    "image": "type source cache_control",
    "document": "type source cache_control title context citations",
    "thinking": "type thinking signature",
    "redacted_thinking": "type data",
    "tool_use": "type id name input cache_control caller",
    "tool_result": "type tool_use_id content is_error cache_control",
    "server_tool_use": "type id name input cache_control caller",
    "web_search_tool_result": "type tool_use_id content cache_control caller",
}
_FIELDS = (
    *(
        "model",
        "messages",
        "max_tokens",
        "system",
        "tools",
        "tool_choice",
        "stream",
        "stop_sequences",
        "thinking",
    ),
    *(
        "temperature",
        "top_p",
        "top_k",
        "metadata",
        "service_tier",
        "output_config",
        "container",
        "mcp_servers",
    ),
    *("cache_control", "context_management", "speed", "inference_geo"),
)
_ROLE_BLOCKS = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": (
        *("text", "thinking", "redacted_thinking", "tool_use"),
        "server_tool_use",
        "web_search_tool_result",
    ),
}
_ERROR_TYPES = {
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


class _RawMessage(msgspec.Struct):
    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")


class AnthropicEndpoint(WireEndpoint):
    """The wire `anthropic`."""

    name = overflow = "anthropic"
    path = r"(?:/v1)?/messages"
    items = "messages"
    at = "messages.{at}.content.{n}"
    images_max = 100
    not_an_object = "{at}: Input should be a valid dictionary or object to extract fields from"
    no_items = "messages: at least one message is required"
    user_first = 'messages: first message must use the "user" role'
    no_prefill = (
        "This model does not support assistant message prefill. The conversation must "
        "end with a user message."
    )
    too_many_images = "messages: too many images and documents: {count} + 0 > 100"

    def _output_limit(self, fields: dict[str, msgspec.Raw]) -> int:
        return convert(fields, "max_tokens", int, 0)

    def _flags(self, fields: dict[str, msgspec.Raw], model: str) -> frozenset[str]:  # noqa: ARG002
        thinks = {"thinking"} if b'"enabled"' in bytes(fields.get("thinking", b"")) else set()
        return frozenset(
            thinks
            | ({SEARCHES} if b'"web_search_20250305"' in bytes(fields.get("tools", b"")) else set())
        )

    def _prefix(
        self, fields: dict[str, msgspec.Raw], read: Callable[[bytes], SentBlock]
    ) -> list[tuple[str, SentBlock]]:
        return [
            (side, read(raw))
            for side in ("tools", "system")
            for raw in listed(fields.get(side), _TEXT)
        ]

    def _messages(
        self, fields: dict[str, msgspec.Raw], read: Callable[[bytes], SentBlock]
    ) -> list[SentMessage]:
        found = convert(fields, "messages", list[_RawMessage], [])
        return [
            SentMessage(one.role, [read(raw) for raw in listed(one.content, _TEXT)])
            for one in found
        ]

    def _read_fields(self, raw: bytes, fields: dict[str, Any]) -> SentBlock:
        mark = fields.get("cache_control")
        block = SentBlock(
            fields.get("type") or "", raw if mark is None else _without_mark(raw, fields)
        )
        block.pictures = tuple(inspect_image(source["data"]) for source in _sources(fields))
        if isinstance(mark, dict):
            block.mark_s = 3_600.0 if mark.get("ttl") == "1h" else -1.0
        block.id = str(fields.get("id") or fields.get("tool_use_id") or "")
        block.name = str(fields.get("name") or "")
        block.text = str(fields.get("thinking") or "")
        block.signature = (
            fields.get("signature") if block.kind == "thinking" else fields.get("data")
        )
        block.problem = _problem(block, fields)
        return block

    def _check_head(self, fields: dict[str, msgspec.Raw], limits: Limits) -> None:
        for name in ("model", "max_tokens", "messages"):
            if name not in fields:
                raise Refused(f"{name}: Field required")
        for name in fields:
            if name not in _FIELDS:
                raise Refused(f"{name}: Extra inputs are not permitted")
        convert(fields, "model", str)
        limit, most = convert(fields, "max_tokens", int), limits.output_tokens_max
        if limit < 1:
            raise Refused("max_tokens: Input should be greater than or equal to 1")
        if most and limit > most:
            raise Refused(
                f"max_tokens: {limit} > {most}, which is the maximum allowed number of output "
                "tokens"
            )
        _check_thinking(convert(fields, "thinking", dict[str, Any], {}), limit)
        found = self._prefix(fields, self.read_block)
        for side in ("system", "tools"):
            for n, block in enumerate(block for one, block in found if one == side):
                if block.problem:
                    raise Refused(
                        block.problem.replace("messages: ", f"{side}: ").replace(
                            "{at}", f"{side}.{n}"
                        )
                    )
        if duplicates([block.name for side, block in found if side == "tools"]):
            raise Refused("tools: Tool names must be unique.")

    def _check_messages(
        self, messages: list[SentMessage], parsed: ParsedRequest, rules: Rules
    ) -> None:
        super()._check_messages(messages, parsed, rules)
        last = messages[-1]
        if last.role == "assistant" and last.blocks[-1].kind == "text":
            text = msgspec.json.decode(last.blocks[-1].raw)["text"]
            if text.rstrip() != text:
                raise Refused(
                    "messages: final assistant content cannot end with trailing whitespace"
                )
        if len(parsed.marks) > MARKS_MAX:
            found = len(parsed.marks)
            raise Refused(
                f"A maximum of {MARKS_MAX} blocks with cache_control may be provided. Found "
                f"{found}."
            )
        _check_image_sides(messages)
        if "thinking" in parsed.flags:
            _check_thinking_first(messages)

    def _check_role(self, at: int, messages: list[SentMessage], rules: Rules) -> None:
        role = messages[at].role
        if role == "system":
            raise Refused(
                'messages: Unexpected role "system". The Messages API accepts a top-level '
                "`system` parameter, "
                'not "system" as an input message role.'
            )
        if role not in _ROLE_BLOCKS:
            raise Refused(f"messages.{at}.role: Input should be 'user' or 'assistant'")
        if at and rules.alternation and role == messages[at - 1].role:
            raise Refused(
                'messages: roles must alternate between "user" and "assistant", '
                f'but found multiple "{role}" roles in a row'
            )
        if not messages[at].blocks:
            raise Refused(
                f"messages.{at}: all messages must have non-empty content "
                "except for the optional final assistant message"
            )

    def _check_block(
        self,
        path: str,
        role: str,
        block: SentBlock,
        model: str,
        rules: Rules,  # noqa: ARG002
    ) -> None:
        if block.kind not in _ROLE_BLOCKS[role]:
            other = "assistant" if role == "user" else "user"
            raise Refused(f"{path}: `{block.kind}` blocks can only be in `{other}` messages")
        if block.kind in _THINKING and block.signature != sign(self.name, model, block.text):
            raise Refused(
                f"{path}: Invalid `{'signature' if block.text else 'data'}` in `{block.kind}` block"
            )
        if block.kind == "web_search_tool_result":
            content = msgspec.json.decode(block.raw)["content"]
            for hit in content if isinstance(content, list) else []:
                if hit.get("encrypted_content") != sign(self.name, model, str(hit.get("url"))):
                    raise Refused(f"{path}: Invalid `encrypted_content` in `search_result` block")

    def _check_pairs(self, messages: list[SentMessage]) -> None:
        """Check that each call has its result at the start of the next message, and that ids are
        unique.
        """
        seen: list[str] = []
        waiting: list[str] = []
        for at, message in enumerate(messages):
            _check_searches(at, message)
            results = [
                (n, block) for n, block in enumerate(message.blocks) if block.kind == "tool_result"
            ]
            for n, block in results:
                if block.id not in waiting:
                    raise Refused(
                        f"messages.{at}.content.{n}: unexpected `tool_use_id` found in "
                        "`tool_result` blocks: "
                        f"{block.id}. Each `tool_result` block must have a corresponding "
                        "`tool_use` block in the "
                        "previous message."
                    )
            if again := duplicates([block.id for _, block in results]):
                last = max(n for n, block in results if block.id == again[0])
                raise Refused(
                    f"messages.{at}.content.{last}: each tool_use must have a single result. "
                    f"Found multiple `tool_result` blocks with id: {again[0]}"
                )
            _check_missing(
                at - 1,
                waiting,
                [block.id for place, (n, block) in enumerate(results) if n == place],
            )
            waiting = [block.id for block in message.blocks if block.kind == "tool_use"]
            for n, block in enumerate(message.blocks):
                if block.kind == "tool_use" and block.id in seen:
                    raise Refused(f"messages.{at}.content.{n}: `tool_use` ids must be unique")
                if block.kind == "tool_use":
                    seen.append(block.id)
        _check_missing(len(messages) - 1, waiting, [])

    def _error_body(self, refused: Refused) -> dict[str, Any]:
        kind = refused.kind or _ERROR_TYPES.get(refused.status, "invalid_request_error")
        return {
            "type": "error",
            "error": {"type": kind, "message": refused.message},
            "request_id": "req_loopback",
        }

    def error_event(self, status: int, word: str, message: str) -> bytes:
        error = {"type": word or _ERROR_TYPES.get(status, "overloaded_error"), "message": message}
        return _event("error", encode({"type": "error", "error": error}))

    def stream_events(self, turn: Turn, answer: ReplyContext) -> list[bytes]:
        out = [_start(answer), b'event: ping\ndata: {"type":"ping"}\n\n']
        for index, (block, deltas) in enumerate(self._content_blocks(turn, answer)):
            start = {"type": "content_block_start", "index": index, "content_block": block}
            out.append(_event("content_block_start", encode(start)))
            lead = (
                b"event: content_block_delta\ndata: "
                b'{"type":"content_block_delta","index":%d,"delta":' % index
            )
            out += [b"%b%b}\n\n" % (lead, delta) for delta in deltas]
            out.append(
                _event("content_block_stop", b'{"type":"content_block_stop","index":%d}' % index)
            )
        delta = {"stop_reason": _STOPS[stop_of(turn)], "stop_sequence": None}
        usage: dict[str, object] = {**_input(answer.cached), "output_tokens": answer.output}
        if searches := searches_of(turn, answer):
            usage["server_tool_use"] = {
                "web_search_requests": len(searches),
                "web_fetch_requests": 0,
            }
        out.append(
            _event(
                "message_delta", encode({"type": "message_delta", "delta": delta, "usage": usage})
            )
        )
        return [*out, _event("message_stop", b'{"type":"message_stop"}')]

    def _content_blocks(
        self, turn: Turn, answer: ReplyContext
    ) -> list[tuple[dict[str, object], list[bytes]]]:
        """Return each block of an answer as it starts, with the deltas by which it grows."""
        blocks: list[tuple[dict[str, object], list[bytes]]] = []
        if turn.thinking:
            texts = _deltas("thinking_delta", "thinking", split_text(turn.thinking))
            texts += _deltas(
                "signature_delta", "signature", [sign(self.name, answer.model, turn.thinking)]
            )
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, texts))
        for query, url, number in searches_of(turn, answer):
            id_, sealed = f"srvtoolu_{number}", sign(self.name, answer.model, url)
            asked: dict[str, object] = {
                "type": "server_tool_use",
                "id": id_,
                "name": "web_search",
                "input": {},
            }
            blocks.append(
                (
                    asked,
                    _deltas(
                        "input_json_delta", "partial_json", [encode({"query": query}).decode()]
                    ),
                )
            )
            hit = {
                "type": "web_search_result",
                "url": url,
                "title": query,
                "page_age": None,
                "encrypted_content": sealed,
            }
            blocks.append(
                ({"type": "web_search_tool_result", "tool_use_id": id_, "content": [hit]}, [])
            )
        if pieces := text_pieces(turn):
            blocks.append(({"type": "text", "text": ""}, _deltas("text_delta", "text", pieces)))
        for n, call in enumerate(turn.calls):
            block: dict[str, object] = {"type": "tool_use", "name": call.name, "input": {}}
            if id_ := call_id(call, n, answer, "toolu_{}"):
                block["id"] = id_
            given = ["", *argument_pieces(turn, n, answer)]
            blocks.append((block, _deltas("input_json_delta", "partial_json", given)))
        return blocks

    def plain_body(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        message: dict[str, Any] = {}
        for event in events:
            match event:
                case {"type": "message_start", "message": dict(started)}:
                    message = started
                case {"type": "content_block_start", "content_block": dict(block)}:
                    message["content"].append(block)
                case {"type": "content_block_delta", "delta": dict(delta)}:
                    block = message["content"][-1]
                    for key, text in delta.items():
                        if key != "type":
                            block[key] = block.get(key, "") + text
                case {"type": "message_delta", "delta": dict(delta), "usage": dict(usage)}:
                    message |= {**delta, "usage": {**message["usage"], **usage}}
                case _:
                    pass
        for block in message["content"]:
            if "partial_json" in block:
                block["input"] = decode_object(block.pop("partial_json") or "{}") or {}
        return message


def _check_searches(at: int, message: SentMessage) -> None:
    """Check that each search of the provider has its result in the same message, and each result
    its search.
    """
    made = [block.id for block in message.blocks if block.kind == "server_tool_use"]
    found = [block.id for block in message.blocks if block.kind == "web_search_tool_result"]
    for id_ in made:
        if id_ not in found:
            raise Refused(
                f"messages.{at}: `web_search` tool use with id {id_} was found without a "
                "corresponding "
                "`web_search_tool_result` block"
            )
    for id_ in found:
        if id_ not in made:
            raise Refused(
                f"messages.{at}: unexpected `tool_use_id` found in `web_search_tool_result` "
                f"blocks: {id_}"
            )


# --- Blocks ---------------------------------------------------------------------------------------


def _without_mark(raw: bytes, fields: dict[str, Any]) -> bytes:
    short = _MARK.sub(b"}", raw)
    if len(short) < len(raw):
        return short
    return msgspec.json.encode(
        {key: value for key, value in fields.items() if key != "cache_control"}
    )


def _sources(fields: dict[str, Any]) -> list[dict[str, Any]]:
    content = fields.get("content")
    inner = (
        [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    )
    sources = [part.get("source") for part in [fields, *inner] if part.get("type") == "image"]
    return [
        s
        for s in sources
        if isinstance(s, dict) and s.get("type") == "base64" and isinstance(s.get("data"), str)
    ]


def _problem(block: SentBlock, fields: dict[str, Any]) -> str:
    """Say what is wrong with a block wherever it stands; empty for nothing."""
    if "input_schema" in fields or block.kind in ("custom", "web_search_20250305"):
        return _tool_problem(block, fields)
    known = _KEYS.get(block.kind)
    if known is None:
        tags = ", ".join(f"'{kind}'" for kind in _KEYS)
        return (
            f"{{at}}: Input tag '{block.kind}' found using 'type' does not match any of the "
            f"expected tags: {tags}"
        )
    if extra := [key for key in fields if key not in known.split()]:
        return f"{{at}}.{block.kind}.{extra[0]}: Extra inputs are not permitted"
    match block.kind:
        case "text":
            return _text_problem(fields)
        case "tool_use" | "server_tool_use":
            return _call_problem(block, fields)
        case "tool_result":
            return _result_problem(block, fields)
        case "image":
            return _image_problem(fields)
    unsigned = block.kind == "thinking" and block.signature is None
    return "{at}.thinking.signature: Field required" if unsigned else ""


def _tool_problem(block: SentBlock, fields: dict[str, Any]) -> str:
    if block.kind == "web_search_20250305":
        return (
            ""
            if block.name == "web_search"
            else f"{{at}}.{block.kind}.name: Input should be 'web_search'"
        )
    if not _NAME.fullmatch(block.name):
        return "{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    schema = fields.get("input_schema")
    fits = isinstance(schema, dict) and schema.get("type") == "object"
    return "" if fits else "{at}.custom.input_schema.type: Input should be 'object'"


def _text_problem(fields: dict[str, Any]) -> str:
    text = fields.get("text")
    if not isinstance(text, str):
        return "{at}.text.text: Input should be a valid string"
    if not text and "cache_control" in fields:
        return "{at}.text: cache_control cannot be set for empty text blocks"
    if not text:
        return "messages: text content blocks must be non-empty"
    return "" if text.strip() else "messages: text content blocks must contain non-whitespace text"


def _call_problem(block: SentBlock, fields: dict[str, Any]) -> str:
    if not _ID.fullmatch(block.id):
        return "{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if not _NAME.fullmatch(block.name):
        return "{at}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    return (
        ""
        if isinstance(fields.get("input"), dict)
        else "{at}.tool_use.input: Input should be a valid dictionary"
    )


def _result_problem(block: SentBlock, fields: dict[str, Any]) -> str:
    if not _ID.fullmatch(block.id):
        return "{at}.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    content = fields.get("content")
    for n, part in enumerate(content if isinstance(content, list) else []):
        at = f"{{at}}.tool_result.content.{n}"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "image", "document", "search_result"):
            return (
                f"{at}: Input tag '{kind}' found using 'type' does not match any of the "
                "expected tags"
            )
        if kind == "text":
            problem = _text_problem(part)
        elif kind == "image":
            problem = _image_problem(part)
        else:
            problem = ""
        if problem:
            return problem.replace("{at}", at)
    return ""


def _image_problem(fields: dict[str, Any]) -> str:
    at, source = "{at}.image.source", fields.get("source")
    if not isinstance(source, dict) or source.get("type") not in ("base64", "url", "file"):
        return f"{at}: Field required"
    if source["type"] != "base64":
        return ""
    if source.get("media_type") not in _MEDIA:
        kinds = "'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
        return f"{at}.base64.media_type: Input should be {kinds}"
    picture = inspect_image(str(source.get("data")))
    if picture.base64_bytes > IMAGE_BYTES_MAX:
        size = f"{picture.base64_bytes} bytes > {IMAGE_BYTES_MAX} bytes"
        return f"{at}.base64: image exceeds 5 MB maximum: {size}"
    if not picture.media:
        return "Could not process image"
    if picture.media != source["media_type"]:
        return (
            f"{at}.base64.data: The image was specified using the {source['media_type']} media "
            "type, "
            f"but the image appears to be a {picture.media} image"
        )
    if max(picture.width, picture.height) > IMAGE_SIDE_MAX:
        most = f"{IMAGE_SIDE_MAX} pixels"
        return (
            f"{at}.base64.data: At least one of the image dimensions exceed max allowed size: "
            f"{most}"
        )
    return ""


# --- Rules of a conversation ----------------------------------------------------------------------


def _check_thinking(thinking: dict[str, Any], limit: int) -> None:
    budget = thinking.get("budget_tokens") or 0
    if thinking.get("type") != "enabled":
        return
    if budget < 1_024:
        raise Refused(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        )
    if budget >= limit:
        raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`")


def _check_missing(at: int, waiting: list[str], answered: list[str]) -> None:
    missing = [id_ for id_ in waiting if id_ not in answered]
    if missing:
        raise Refused(
            f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately "
            "after: "
            f"{', '.join(missing)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )


def _check_thinking_first(messages: list[SentMessage]) -> None:
    """With a thinking budget, check that the reply before results begins with thinking."""
    last = max((n for n, message in enumerate(messages) if message.role == "assistant"), default=-1)
    if last < 0 or messages[-1].blocks[0].kind != "tool_result":
        return
    found = messages[last].blocks[0].kind
    if found not in _THINKING:
        raise Refused(
            f"messages.{last}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{found}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block "
            "(preceeding the "
            "lastmost set of `tool_use` and `tool_result` blocks). We recommend you include "
            "thinking blocks from "
            "previous turns. To avoid this requirement, disable `thinking`."
        )


def _check_image_sides(messages: list[SentMessage]) -> None:
    """Check the side limit of a request with many images."""
    if sum(len(block.pictures) for message in messages for block in message.blocks) <= MANY_IMAGES:
        return
    for at, message in enumerate(messages):
        for n, block in enumerate(message.blocks):
            if any(
                max(picture.width, picture.height) > MANY_SIDE_MAX for picture in block.pictures
            ):
                raise Refused(
                    f"messages.{at}.content.{n}.image.source.base64.data: At least one of the "
                    "image dimensions exceed "
                    f"max allowed size for many-image requests: {MANY_SIDE_MAX} pixels"
                )


# --- Answers --------------------------------------------------------------------------------------
#
# Named events; blocks start, grow and stop.


_STOPS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}


def _event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def _deltas(kind: str, key: str, texts: list[str]) -> list[bytes]:
    lead = b'{"type":"%b","%b":' % (kind.encode(), key.encode())
    return [b"%b%b}" % (lead, encode(text)) for text in texts]


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
    message: dict[str, object] = {
        "id": f"msg_{answer.serial:024d}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            **_input(cached),
            "cache_creation": created,
            "output_tokens": 1,
            "service_tier": "standard",
        },
    }
    return _event("message_start", encode({"type": "message_start", "message": message}))
