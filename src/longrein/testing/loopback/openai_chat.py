"""The Chat Completions wire: validation by the rules of OpenAI and of compatible servers, and answers."""

import re
from typing import Any

import msgspec

from longrein.testing.loopback.answer import ReplyContext, argument_pieces, call_id, encode
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
    length_problem,
    tokens_of,
)

WIRE = "openai-chat"
ID_CHARS_MAX = 40
_ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_SHORT = re.compile(r"[a-zA-Z0-9]{9}")
_KINDS = "'text', 'image_url', 'input_audio', 'refusal', and 'file'"


def parse_request(given: ValidationInput) -> ParsedRequest:
    """Parse and validate a request. Raises `Refused`."""
    fields, limits, rules, cache = given.fields, given.limits, given.rules, given.cache
    parsed = ParsedRequest(WIRE)
    if not rules.lenient:
        _check_head(fields, limits)
    parsed.model = msgspec.json.decode(fields.get("model", b'""'))
    limit = fields.get("max_completion_tokens", fields.get("max_tokens", b"0"))
    parsed.output_max = msgspec.json.decode(limit) or 0
    tools = convert(fields.get("tools", msgspec.Raw(b"[]")), list[msgspec.Raw], "tools")
    for raw in tools:
        parsed.add("tools", bytes(raw))
    messages = [
        _message(bytes(raw), cache)
        for raw in convert(fields.get("messages", msgspec.Raw(b"[]")), list[msgspec.Raw], "messages")
    ]
    for block in messages:
        parsed.add(block.kind, block.raw, block.tokens)
    last = max((n for n, block in enumerate(messages) if block.kind == "assistant"), default=-1)
    parsed.replies = sum(block.kind == "assistant" for block in messages)
    parsed.tail = [block.raw for block in messages[last + 1 :] if block.kind not in ("system", "developer")]
    parsed.first = next((block.raw for block in messages if block.kind == "user"), b"")
    if convert(fields.get("stream_options", msgspec.Raw(b"{}")), dict[str, Any], "stream_options").get("include_usage"):
        parsed.flags = frozenset({"usage"})
    if not rules.lenient:
        _check_tools(tools)
        _check_messages(messages, rules)
        check_window(parsed, limits, rules)
    return parsed


def refusal(refused: Refused) -> tuple[int, bytes]:
    """Return status and body of an error."""
    if isinstance(refused, Overflow):
        return overflow("openai", refused.used, refused.limit)
    kind = refused.kind or KINDS.get(refused.status, "invalid_request_error")
    error = {"message": refused.message, "type": kind, "param": refused.param or None, "code": refused.code or None}
    return refused.status, msgspec.json.encode({"error": error})


KINDS = {
    401: "invalid_request_error",
    429: "rate_limit_exceeded",
    500: "server_error",
    502: "server_error",
    503: "service_unavailable",
    529: "overloaded_error",
}
"""HTTP status -> error type."""


# --- Messages --------------------------------------------------------------------------------------------------------


def _message(raw: bytes, cache: BlockCache) -> Block:
    return cache.get(WIRE, raw) or cache.keep(WIRE, raw, _read(raw))


def _read(raw: bytes) -> Block:
    fields = msgspec.json.decode(raw)
    if not isinstance(fields, dict):
        return Block(raw=raw, problem="Invalid type for '{at}': expected an object.")
    block = Block(str(fields.get("role")), raw)
    block.pictures = images_of(_urls(fields.get("content")))
    skipped = sum(picture.base64_bytes for picture in block.pictures)
    block.tokens = tokens_of(len(raw) - skipped) + IMAGE_TOKENS * len(block.pictures)
    block.id = str(fields.get("tool_call_id") or "")
    calls = fields.get("tool_calls")
    ids = [str(call.get("id") or "") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    block.note = "\n".join(ids)
    block.problem = _problem(block, fields)
    return block


def _urls(content: Any) -> list[Any]:
    """Return the addresses of images in `content`."""
    parts = content if isinstance(content, list) else []
    shown = [part.get("image_url") for part in parts if isinstance(part, dict)]
    return [image.get("url") for image in shown if isinstance(image, dict)]


def _problem(block: Block, fields: dict[str, Any]) -> str:
    """Say what is wrong with a message wherever it stands; empty for nothing."""
    if block.kind not in _ROLES:
        known = "', '".join(_ROLES[:-1])
        return f"Invalid value: '{block.kind}'. Supported values are: '{known}', and 'developer'."
    content = fields.get("content")
    if content is None and not fields.get("tool_calls") and not fields.get("refusal"):
        return "Invalid value for 'content': expected a string, got null."
    if not isinstance(content, str | list | None):
        return "Invalid type for '{at}.content': expected one of a string or array of objects."
    if "tool_calls" in fields:
        if block.kind != "assistant":
            return "'tool_calls' is only allowed in messages with role 'assistant'"
        if problem := _calls_problem(fields["tool_calls"]):
            return problem
    if block.kind == "tool" and not block.id:
        return "Missing required parameter: '{at}.tool_call_id'."
    return _parts_problem(block, content) if isinstance(content, list) else ""


def _calls_problem(calls: Any) -> str:
    if not isinstance(calls, list) or not calls:
        return f"Invalid '{{at}}.tool_calls': {EMPTY_ARRAY}"
    for n, call in enumerate(calls):
        at = f"{{at}}.tool_calls[{n}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or call.get("type") != "function":
            return f"Missing required parameter: '{at}.function'."
        id_ = call.get("id")
        if not isinstance(id_, str) or not id_:
            return f"Missing required parameter: '{at}.id'."
        if problem := length_problem(f"{at}.id", id_, ID_CHARS_MAX):
            return problem
        if not TOOL_NAME.fullmatch(str(function.get("name"))):
            return f"Invalid '{at}.function.name': {NAME_PATTERN}"
        if not is_json_object(function.get("arguments")):
            return f"Invalid '{at}.function.arguments': expected a string that holds a JSON object."
    return ""


def _parts_problem(block: Block, parts: list[Any]) -> str:
    if not parts:
        return f"Invalid '{{at}}.content': {EMPTY_ARRAY}"
    for n, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            if not isinstance(part.get("text"), str):
                return f"Missing required parameter: '{{at}}.content[{n}].text'."
        elif kind in ("image_url", "file", "input_audio") and block.kind != "user":
            return (
                f"Invalid '{{at}}'. Image URLs are only allowed for messages with role 'user', "
                f"but this message with role '{block.kind}' contains an image URL."
            )
        elif kind == "image_url":
            image = part.get("image_url")
            if problem := image_problem(image.get("url") if isinstance(image, dict) else None):
                return problem.replace("{at}", f"{{at}}.content[{n}].image_url")
        elif kind not in ("file", "input_audio", "refusal"):
            return f"Invalid value: '{kind}'. Supported values are: {_KINDS}."
    return ""


# --- Rules of a request ----------------------------------------------------------------------------------------------


def _check_head(fields: dict[str, msgspec.Raw], limits: Limits) -> None:
    if "model" not in fields:
        raise Refused("you must provide a model parameter")
    convert(fields["model"], str, "model")
    if "messages" not in fields:
        raise Refused("Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    name = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    limit = convert(fields[name], int, name) if name in fields else None
    if limit is not None and limit < 1:
        raise Refused(
            f"Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got {limit} instead.",
            param="max_tokens",
            code="integer_below_min_value",
        )
    if limit is not None and limits.output_tokens_max and limit > limits.output_tokens_max:
        raise Refused(
            f"max_tokens is too large: {limit}. This model supports at most {limits.output_tokens_max} completion "
            f"tokens, whereas you provided {limit}.",
            param="max_tokens",
            code="invalid_value",
        )


def _check_tools(tools: list[msgspec.Raw]) -> None:
    names = []
    for n, raw in enumerate(tools):
        function = msgspec.json.decode(raw).get("function")
        if not isinstance(function, dict):
            raise Refused(f"Missing required parameter: 'tools[{n}].function'.", param=f"tools[{n}].function")
        names.append(str(function.get("name")))
        if not TOOL_NAME.fullmatch(names[-1]):
            raise Refused(
                f"Invalid 'tools[{n}].function.name': {NAME_PATTERN}",
                param=f"tools[{n}].function.name",
                code="invalid_value",
            )
    if again := duplicates(names):
        raise Refused(f"Invalid 'tools': function names must be unique, but {again[0]!r} occurs twice.", param="tools")


def _check_messages(messages: list[Block], rules: Rules) -> None:
    if not messages:
        raise Refused(
            f"Invalid 'messages': {EMPTY_ARRAY}",
            param="messages",
            code="empty_array",
        )
    for at, block in enumerate(messages):
        if block.problem:
            raise Refused(
                block.problem.replace("{at}", f"messages[{at}]"), param=f"messages[{at}]", code="invalid_value"
            )
        for id_ in [*block.note.split("\n"), block.id] if rules.short_ids else []:
            if id_ and not _SHORT.fullmatch(id_):
                raise Refused(f"Tool call id was {id_} but must be a-z, A-Z, 0-9, with a length of 9.")
    spoken = [block.kind for block in messages if block.kind not in ("system", "developer")]
    if rules.user_first and spoken[:1] == ["assistant"]:
        raise Refused(
            "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
        )
    _check_pairs(messages)
    if messages[-1].kind == "assistant" and not rules.accepts_prefill:
        raise Refused("Cannot set `add_generation_prompt` to True when the last message is from the assistant.")
    if sum(len(block.pictures) for block in messages) > IMAGES_MAX:
        raise Refused(f"Invalid 'messages': too many images. At most {IMAGES_MAX} are allowed.", param="messages")


def _check_pairs(messages: list[Block]) -> None:
    """Check that the messages after calls answer each call once, and no other message answers a call."""
    seen: dict[str, None] = {}
    waiting: list[str] = []
    known: list[str] = []
    for at, block in enumerate(messages):
        if block.kind == "tool":
            if block.id not in known:
                raise Refused(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    param=f"messages.[{at}].role",
                )
            if block.id not in waiting:
                raise Refused(
                    f"Duplicate value for 'tool_call_id' of '{block.id}'", param=f"messages.[{at}].tool_call_id"
                )
            waiting.remove(block.id)
            continue
        _check_missing(at, waiting)
        waiting = known = []
        if block.note:
            ids = block.note.split("\n")
            again = duplicates(ids) or [id_ for id_ in ids if id_ in seen]
            if again:
                raise Refused(
                    f"Duplicate value for 'tool_calls[].id' of '{again[0]}'", param=f"messages.[{at}].tool_calls"
                )
            seen |= dict.fromkeys(ids)
            waiting, known = list(ids), list(ids)
    _check_missing(len(messages), waiting)


def _check_missing(at: int, waiting: list[str]) -> None:
    if waiting:
        raise Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            param=f"messages.[{at}].role",
        )


# --- Answers ---------------------------------------------------------------------------------------------------------
#
# Chunks of one choice, the usage in a chunk of its own, then `[DONE]`.


_STOPS = {"end": "stop", "calls": "tool_calls", "length": "length", "refusal": "content_filter"}
_CREATED = 1_760_000_000


def stream_events(turn: Turn, answer: ReplyContext) -> list[bytes]:
    """Return all events of an answer."""
    lead = encode(
        {
            "id": f"chatcmpl-{answer.serial:024d}",
            "object": "chat.completion.chunk",
            "created": _CREATED,
            "model": answer.model,
            "system_fingerprint": "fp_loopback",
        }
    )[:-1]

    def chunk(delta: bytes, reason: bytes = b"null") -> bytes:
        return b'data: %b,"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]}\n\n' % (
            lead,
            delta,
            reason,
        )

    out = [chunk(b'{"role":"assistant","content":"","refusal":null}')]
    out += [chunk(b'{"reasoning_content":%b}' % encode(text)) for text in split_text(turn.thinking)]
    out += [chunk(b'{"content":%b}' % encode(text)) for text in text_pieces(turn)]
    for index in range(len(turn.calls)):
        out += [chunk(encode({"tool_calls": [piece]})) for piece in _call(turn, index, answer)]
    out.append(chunk(b"{}", encode(_STOPS[stop_of(turn)])))
    if "usage" in answer.flags:
        out.append(b'data: %b,"choices":[],"usage":%b}\n\n' % (lead, encode(usage(answer))))
    out.append(b"data: [DONE]\n\n")
    return out


def error_event(status: int, word: str, message: str) -> bytes:
    """Return an error event inside a stream."""
    error = {"message": message, "type": word or KINDS.get(status, "server_error"), "param": None, "code": status}
    return b"data: %b\n\n" % encode({"error": error})


def usage(answer: ReplyContext) -> dict[str, Any]:
    """Usage in the form of this wire: cached tokens are part of the prompt."""
    cached = answer.cached
    prompt = cached.input + cached.read + cached.written
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer.output,
        "total_tokens": prompt + answer.output,
        "prompt_tokens_details": {"cached_tokens": cached.read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": answer.reasoning, "audio_tokens": 0},
    }


def _call(turn: Turn, index: int, answer: ReplyContext) -> list[dict[str, Any]]:
    call = turn.calls[index]
    head: dict[str, Any] = {"index": index, "type": "function", "function": {"name": call.name, "arguments": ""}}
    if id_ := call_id(call, index, answer, "call_{}"):
        head["id"] = id_
    return [head, *({"index": index, "function": {"arguments": t}} for t in argument_pieces(turn, index, answer))]
