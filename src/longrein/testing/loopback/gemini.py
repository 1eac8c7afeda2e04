"""The Gemini wire: validation of `POST /v1beta/models/X:streamGenerateContent`, and answers."""

import re
from typing import Any

import msgspec

from longrein.testing.loopback.answer import ReplyContext, argument_pieces, encode
from longrein.testing.loopback.overflow_errors import overflow
from longrein.testing.loopback.script import Turn, split_text, stop_of, text_pieces
from longrein.testing.loopback.validation import (
    IMAGE_TOKENS,
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
    inspect_image,
    is_signed,
    sign,
    tokens_of,
)

WIRE = "gemini"
INLINE_BYTES_MAX = 20_971_520
"""Largest request."""
IMAGES_MAX = 3_600
NO_SIGNATURE = "skip_thought_signature_validator"
"""Accepted in place of a signature, for calls that another model made."""
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
_MEDIA = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/heic", "image/heif")
_DATA = ("text", "inlineData", "functionCall", "functionResponse", "fileData", "executableCode", "codeExecutionResult")


class _Content(msgspec.Struct):
    role: str = ""
    parts: list[msgspec.Raw] = []


Turns = list[tuple[str, list[Block]]]


def parse_request(given: ValidationInput) -> ParsedRequest:
    """Parse and validate a request. Raises `Refused`."""
    fields, rules = given.fields, given.rules
    parsed = ParsedRequest(WIRE, given.model)
    if not rules.lenient:
        _check_head(fields, given.limits)
    config = convert(fields.get("generationConfig", msgspec.Raw(b"{}")), dict[str, Any], "generation_config")
    parsed.output_max = config.get("maxOutputTokens") or 0
    tools = convert(fields.get("tools", msgspec.Raw(b"[]")), list[msgspec.Raw], "tools")
    for raw in tools:
        parsed.add("tools", bytes(raw))
    if "systemInstruction" in fields:
        parsed.add("system", bytes(fields["systemInstruction"]))
    messages = convert(fields.get("contents", msgspec.Raw(b"[]")), list[_Content], "contents")
    turns = [(content.role, [_part(bytes(raw), given.cache) for raw in content.parts]) for content in messages]
    for role, parts in turns:
        for part in parts:
            parsed.add(role, part.raw, part.tokens)
    last = max((n for n, (role, _) in enumerate(turns) if role == "model"), default=-1)
    parsed.replies = sum(role == "model" for role, _ in turns)
    parsed.tail = [part.raw for _, parts in turns[last + 1 :] for part in parts]
    parsed.first = b"[%b]" % b",".join(part.raw for part in turns[0][1]) if turns else b""
    parsed.flags = frozenset({"signed"} if signs_calls(given.model) else ())
    if not rules.lenient:
        _check_tools(tools)
        _check_turns(turns, parsed, rules)
        check_window(parsed, given.limits, rules)
    return parsed


def signs_calls(model: str) -> bool:
    """Return whether the model signs its calls and requires the signatures: Gemini 3 and later."""
    return re.match(r"gemini-([3-9]|\d\d)", model) is not None


def refusal(refused: Refused) -> tuple[int, bytes]:
    """Return status and body of an error."""
    if isinstance(refused, Overflow):
        return overflow(WIRE, refused.used, refused.limit)
    word = refused.kind if refused.kind.isupper() else KINDS.get(refused.status, "INVALID_ARGUMENT")
    error = {"code": refused.status, "message": refused.message, "status": word}
    return refused.status, msgspec.json.encode({"error": error})


KINDS = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
"""HTTP status -> error type."""


# --- Parts -----------------------------------------------------------------------------------------------------------


def _part(raw: bytes, cache: BlockCache) -> Block:
    return cache.get(WIRE, raw) or cache.keep(WIRE, raw, _read(raw))


def _read(raw: bytes) -> Block:
    fields = msgspec.json.decode(raw)
    if not isinstance(fields, dict):
        return Block(raw=raw, problem="Invalid value at '{at}' (part): expected an object")
    block = Block(next((key for key in _DATA if key in fields), ""), raw, tokens_of(len(raw)))
    inner = fields.get(block.kind)
    if isinstance(inner, dict):
        block.id, block.name = str(inner.get("id") or ""), str(inner.get("name") or "")
    block.signature = fields.get("thoughtSignature")
    if block.kind == "functionCall" and isinstance(inner, dict):
        block.text = f"{block.name} {msgspec.json.encode(inner.get('args') or {}, order='deterministic').decode()}"
    elif block.kind == "text":
        block.text = str(inner)
        block.note = "thought" if fields.get("thought") else ""
    if block.kind == "inlineData" and isinstance(inner, dict) and str(inner.get("mimeType")).startswith("image/"):
        block.pictures = (inspect_image(str(inner.get("data"))),)
        block.tokens = IMAGE_TOKENS
    block.problem = _problem(block, inner)
    return block


def _problem(block: Block, inner: Any) -> str:
    if not block.kind:
        return "* GenerateContentRequest.{at}.data: required oneof field 'data' must have one initialized field"
    if block.kind == "text":
        return "" if isinstance(inner, str) else "Invalid value at '{at}.text' (TYPE_STRING)"
    if not isinstance(inner, dict):
        return f"Invalid value at '{{at}}.{block.kind}'"
    if block.kind in ("functionCall", "functionResponse"):
        word = "function_call" if block.kind == "functionCall" else "function_response"
        if not block.name:
            return f"* GenerateContentRequest.{{at}}.{word}.name: Name cannot be empty."
        if not _NAME.fullmatch(block.name):
            return (
                f"* GenerateContentRequest.{{at}}.{word}.name: Invalid function name. "
                "Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), "
                "dots (.) or dashes (-), with a maximum length of 64."
            )
        key = "args" if word == "function_call" else "response"
        return "" if isinstance(inner.get(key, {}), dict) else f"Invalid value at '{{at}}.{word}.{key}'"
    return _image_problem(block, inner) if block.pictures else ""


def _image_problem(block: Block, inner: dict[str, Any]) -> str:
    picture = block.pictures[0]
    if inner.get("mimeType") not in _MEDIA:
        return f"Unsupported MIME type: {inner.get('mimeType')}"
    return "" if picture.media else "Unable to process input image."


# --- Rules of a request ----------------------------------------------------------------------------------------------


def _check_head(fields: dict[str, msgspec.Raw], limits: Limits) -> None:
    known = "contents systemInstruction tools toolConfig generationConfig safetySettings cachedContent labels"
    for name in fields:
        if name not in known.split():
            raise Refused(f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
    size = sum(len(bytes(raw)) for raw in fields.values())
    if size > INLINE_BYTES_MAX:
        raise Refused(f"Request payload size exceeds the limit: {INLINE_BYTES_MAX} bytes.")
    config = convert(fields.get("generationConfig", msgspec.Raw(b"{}")), dict[str, Any], "generation_config")
    limit = config.get("maxOutputTokens")
    if limit is not None and (limit < 1 or 0 < limits.output_tokens_max < limit):
        most = limits.output_tokens_max + 1 if limits.output_tokens_max else "2147483647"
        raise Refused(
            f"Unable to submit request because it has a maxOutputTokens value of {limit} but the supported range is "
            f"from 1 (inclusive) to {most} (exclusive). Update the value and try again."
        )


def _check_tools(tools: list[msgspec.Raw]) -> None:
    names = []
    for n, raw in enumerate(tools):
        for m, declared in enumerate(msgspec.json.decode(raw).get("functionDeclarations") or ()):
            names.append(str(declared.get("name") or ""))
            if not _NAME.fullmatch(names[-1]):
                raise Refused(
                    f"* GenerateContentRequest.tools[{n}].function_declarations[{m}].name: Invalid function name. "
                    "Must start with a letter or an underscore."
                )
    if again := duplicates(names):
        raise Refused(f"Duplicate function declaration found: {again[0]}")


def _check_turns(turns: Turns, parsed: ParsedRequest, rules: Rules) -> None:
    if not turns:
        raise Refused("* GenerateContentRequest.contents: contents is not specified")
    for at, (role, parts) in enumerate(turns):
        if role not in ("user", "model"):
            raise Refused("Please use a valid role: user, model.")
        if not parts:
            raise Refused(f"* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty.")
        if at and rules.alternation and role == turns[at - 1][0]:
            raise Refused("Please ensure that multiturn requests alternate between user and model.")
        for n, part in enumerate(parts):
            if part.problem:
                raise Refused(part.problem.replace("{at}", f"contents[{at}].parts[{n}]"))
    if turns[0][0] != "user" and rules.user_first:
        raise Refused("Please ensure that multiturn requests start with a user turn.")
    _check_pairs(turns)
    _check_signatures(turns, parsed.model)
    if turns[-1][0] == "model" and not rules.accepts_prefill:
        raise Refused("Please ensure that multiturn requests end with a user role or a function response.")
    if sum(len(part.pictures) for _, parts in turns for part in parts) > IMAGES_MAX:
        raise Refused(f"Please use fewer images: at most {IMAGES_MAX} are allowed in one request.")


def _check_pairs(turns: Turns) -> None:
    """Check that the turn after calls begins with their responses, in order, and no other turn has responses."""
    calls: list[Block] = []
    for at, (role, parts) in enumerate(turns):
        responses = [part for part in parts if part.kind == "functionResponse"]
        if responses and (role == "model" or not calls):
            raise Refused("Please ensure that function response turn comes immediately after a function call turn.")
        if len(responses) != len(calls):
            raise Refused(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        if responses != parts[: len(responses)] and any(p.kind == "text" for p in parts[: len(responses)]):
            raise Refused("Please ensure that function response parts come before all other parts of their turn.")
        if [_name(part) for part in responses] != [_name(part) for part in calls]:
            raise Refused("Please ensure that function response parts match the function call parts by name and id.")
        calls = [part for part in parts if part.kind == "functionCall"]
        if calls and role == "user":
            raise Refused(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        if again := duplicates([part.id for part in calls if part.id]):
            raise Refused(f"Duplicate function call id {again[0]!r} in contents[{at}].")
    if calls:
        raise Refused(
            "Please ensure that the number of function response parts is equal to the number of function call "
            "parts of the function call turn."
        )


def _name(part: Block) -> tuple[str, str]:
    return part.name, part.id


def _check_signatures(turns: Turns, model: str) -> None:
    """Check signatures; with Gemini 3 the first call of each step of the present turn must have one."""
    begin = max((n for n, (role, parts) in enumerate(turns) if role == "user" and _is_user_turn(parts)), default=0)
    for at, (role, parts) in enumerate(turns):
        for part in parts:
            signature = part.signature
            if signature is not None and signature != NO_SIGNATURE and not is_signed(signature, WIRE, model, part.text):
                raise Refused("Corrupted thought signature.")
        first = next(((n, p) for n, p in enumerate(parts) if p.kind == "functionCall"), None)
        if first is not None and role == "model" and at > begin and signs_calls(model) and first[1].signature is None:
            raise Refused(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{first[1].name}` , position {first[0] + 1}."
            )


def _is_user_turn(parts: list[Block]) -> bool:
    """Return whether the user begins a new turn: no function responses."""
    return all(part.kind != "functionResponse" for part in parts)


# --- Answers ---------------------------------------------------------------------------------------------------------
#
# Chunks of one candidate. There is no terminal event; the last chunk holds the finish reason.


_STOPS = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}


def stream_events(turn: Turn, answer: ReplyContext) -> list[bytes]:
    """Return all events of an answer."""
    tail = encode({"modelVersion": answer.model, "responseId": f"resp{answer.serial:024d}"})[1:]

    def chunk(part: bytes, more: bytes = b"") -> bytes:
        body = b'{"candidates":[{"content":{"parts":[%b],"role":"model"}%b,"index":0}],%b' % (part, more, tail)
        return b"data: %b\r\n\r\n" % body

    out = [chunk(b'{"text":%b,"thought":true}' % encode(text)) for text in split_text(turn.thinking)]
    out += [chunk(b'{"text":%b}' % encode(text)) for text in text_pieces(turn)]
    reason = _STOPS[stop_of(turn)]
    for index in range(len(turn.calls)):
        part = _call(turn, index, answer)
        if part is None:
            reason = "MALFORMED_FUNCTION_CALL"
            break
        out.append(chunk(encode(part)))
    tail = encode({"usageMetadata": usage(answer)})[1:-1] + b"," + tail
    out.append(chunk(b'{"text":""}', b',"finishReason":%b' % encode(reason)))
    return out


def error_event(status: int, word: str, message: str) -> bytes:
    """Return an error event inside a stream."""
    error = {"code": status, "message": message, "status": word or KINDS.get(status, "INTERNAL")}
    return b"data: %b\r\n\r\n" % encode({"error": error})


def usage(answer: ReplyContext) -> dict[str, Any]:
    """Usage in the form of this wire: thoughts are counted separately from the answer."""
    cached = answer.cached
    given = cached.input + cached.read + cached.written
    counted: dict[str, Any] = {
        "promptTokenCount": given,
        "candidatesTokenCount": answer.output - answer.reasoning,
        "totalTokenCount": given + answer.output,
    }
    if cached.read:
        counted["cachedContentTokenCount"] = cached.read
    if answer.reasoning:
        counted["thoughtsTokenCount"] = answer.reasoning
    return counted


def _call(turn: Turn, index: int, answer: ReplyContext) -> dict[str, Any] | None:
    """Encode one call; None if its arguments are not a JSON object, which this provider does not pass on."""
    call = turn.calls[index]
    try:
        arguments = msgspec.json.decode("".join(argument_pieces(turn, index, answer)), type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    made: dict[str, Any] = {"name": call.name, "args": arguments}
    if answer.hit_by("duplicate_ids"):
        made["id"] = "call0"
    elif call.id:
        made["id"] = call.id
    part: dict[str, Any] = {"functionCall": made}
    if "signed" in answer.flags and index == 0:
        text = f"{call.name} {msgspec.json.encode(arguments, order='deterministic').decode()}"
        part["thoughtSignature"] = sign(WIRE, answer.model, text)
    return part
