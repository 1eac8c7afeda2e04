"""One block of the Anthropic wire: what it is, what it weighs, and what is wrong with it wherever it stands."""

import re
from typing import Any

import msgspec

from longrein.testing.loopback.images import look_at
from longrein.testing.loopback.judging import NAME, Block, Memo, unmarked
from longrein.testing.loopback.limits import IMAGE_TOKENS, tokens_of

WIRE = "anthropic"
IMAGE_BYTES_MAX = 5_242_880
"""Of one picture, counted in base64."""
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


def block_of(raw: bytes, memo: Memo) -> Block:
    """What is known of the block `raw`."""
    return memo.get(WIRE, raw) or memo.keep(WIRE, raw, read_block(raw))


def read_block(raw: bytes) -> Block:
    """The block `raw`, read afresh."""
    fields = msgspec.json.decode(raw)
    if not isinstance(fields, dict):
        return Block(raw=raw, problem="{at}: Input should be a valid dictionary or object to extract fields from")
    mark = fields.get("cache_control")
    block = Block(fields.get("type") or "", unmarked(raw, mark))
    block.pictures = tuple(look_at(source["data"]) for source in _sources(fields))
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
    """What is wrong with a block in itself."""
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
    picture = look_at(str(source.get("data")))
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
