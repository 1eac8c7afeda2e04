"""The Gemini wire: validation of `POST /v1beta/models/X:streamGenerateContent` and
`…:generateContent`, and answers.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from longrein.models.scripted import split_text
from longrein.testing.loopback.response_parts import (
    SEARCHES,
    ReplyContext,
    argument_pieces,
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
    raw_blocks,
    sign,
)

INLINE_BYTES_MAX = 20_971_520
"""Largest request."""
NO_SIGNATURE = "skip_thought_signature_validator"
"""Accepted in place of a signature, for calls that another model made."""
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
_MEDIA = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/heic", "image/heif")
_DATA = (
    *(
        "text",
        "inlineData",
        "functionCall",
        "functionResponse",
        "fileData",
        "executableCode",
        "codeExecutionResult",
    ),
    *("toolCall", "toolResponse"),
)
_SERVER_TOOLS = b'"includeServerSideToolInvocations":true'
_FIELDS = (
    *("contents", "systemInstruction", "tools", "toolConfig", "generationConfig"),
    *("safetySettings", "cachedContent", "labels"),
)
_STOPS = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
_STATUS_WORDS = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
_UNEQUAL_NUMBER = (
    "Please ensure that the number of function response parts is equal to the number of function "
    "call "
    "parts of the function call turn."
)


class _Content(msgspec.Struct):
    role: str = ""
    parts: list[msgspec.Raw] = []


class _Config(msgspec.Struct, rename="camel"):
    max_output_tokens: int | None = None


class GeminiEndpoint(WireEndpoint):
    """The wire `gemini`."""

    name = overflow = "gemini"
    path = r"(?:/\w+)*/models/(?P<model>[^/:]+):(?:stream)?[gG]enerateContent"
    items = "contents"
    at = "contents[{at}].parts[{n}]"
    reply_role = "model"
    images_max = 3_600
    not_an_object = "Invalid value at '{at}' (part): expected an object"
    no_items = "* GenerateContentRequest.contents: contents is not specified"
    user_first = "Please ensure that multiturn requests start with a user turn."
    no_prefill = (
        "Please ensure that multiturn requests end with a user role or a function response."
    )
    too_many_images = "Please use fewer images: at most 3600 are allowed in one request."

    def _output_limit(self, fields: dict[str, msgspec.Raw]) -> int:
        return convert(fields, "generationConfig", _Config, _Config()).max_output_tokens or 0

    def _flags(self, fields: dict[str, msgspec.Raw], model: str) -> frozenset[str]:
        searches = b'"googleSearch"' in bytes(fields.get("tools", b""))
        return frozenset(
            ({"signed"} if signs_calls(model) else set()) | ({SEARCHES} if searches else set())
        )

    def _prefix(
        self,
        fields: dict[str, msgspec.Raw],
        read: Callable[[bytes], SentBlock],  # noqa: ARG002
    ) -> list[tuple[str, SentBlock]]:
        return raw_blocks(fields, "systemInstruction")

    def _messages(
        self, fields: dict[str, msgspec.Raw], read: Callable[[bytes], SentBlock]
    ) -> list[SentMessage]:
        found = convert(fields, "contents", list[_Content], [])
        return [
            SentMessage(content.role, [read(bytes(raw)) for raw in content.parts])
            for content in found
        ]

    def _read_fields(self, raw: bytes, fields: dict[str, Any]) -> SentBlock:
        block = SentBlock(next((key for key in _DATA if key in fields), ""), raw)
        data = fields.get(block.kind)
        inner = data if isinstance(data, dict) else {}
        block.id, block.name = str(inner.get("id") or ""), str(inner.get("name") or "")
        block.signature = fields.get("thoughtSignature")
        if block.kind in ("toolCall", "toolResponse"):
            block.text = block.id
        elif block.kind == "functionCall":
            block.text = _signed_text(block.name, inner.get("args") or {})
        elif block.kind == "text":
            block.text = str(data)
        elif block.kind == "inlineData" and str(inner.get("mimeType")).startswith("image/"):
            block.pictures = (inspect_image(str(inner.get("data"))),)
        block.problem = _problem(block, data)
        return block

    def _check_head(self, fields: dict[str, msgspec.Raw], limits: Limits) -> None:
        for name in fields:
            if name not in _FIELDS:
                raise Refused(
                    f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
                )
        if sum(len(bytes(raw)) for raw in fields.values()) > INLINE_BYTES_MAX:
            raise Refused(f"Request payload size exceeds the limit: {INLINE_BYTES_MAX} bytes.")
        config, most = (
            convert(fields, "generationConfig", _Config, _Config()),
            limits.output_tokens_max,
        )
        limit = config.max_output_tokens
        if limit is not None and (limit < 1 or 0 < most < limit):
            raise Refused(
                f"Unable to submit request because it has a maxOutputTokens value of {limit} but "
                "the supported range "
                f"is from 1 (inclusive) to {most + 1 if most else 2147483647} (exclusive). Update "
                "the value and try "
                "again."
            )
        searches = b'"googleSearch"' in bytes(fields.get("tools", b""))
        if searches and _SERVER_TOOLS not in bytes(fields.get("toolConfig", b"")):
            raise Refused(
                "Please enable tool_config.include_server_side_tool_invocations to use Built-in "
                "tools with Function "
                "calling."
            )
        names = []
        for n, tool in enumerate(convert(fields, "tools", list[dict[str, Any]], [])):
            for m, declared in enumerate(tool.get("functionDeclarations") or ()):
                names.append(str(declared.get("name") or ""))
                if not _NAME.fullmatch(names[-1]):
                    raise Refused(
                        f"* GenerateContentRequest.tools[{n}].function_declarations[{m}].name: "
                        "Invalid function name. "
                        "Must start with a letter or an underscore."
                    )
        if again := duplicates(names):
            raise Refused(f"Duplicate function declaration found: {again[0]}")

    def _check_messages(
        self, messages: list[SentMessage], parsed: ParsedRequest, rules: Rules
    ) -> None:
        super()._check_messages(messages, parsed, rules)
        _check_signatures(messages, parsed.model)

    def _check_role(self, at: int, messages: list[SentMessage], rules: Rules) -> None:
        role = messages[at].role
        if role not in ("user", "model"):
            raise Refused("Please use a valid role: user, model.")
        if not messages[at].blocks:
            raise Refused(
                f"* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty."
            )
        if at and rules.alternation and role == messages[at - 1].role:
            raise Refused("Please ensure that multiturn requests alternate between user and model.")

    def _check_pairs(self, messages: list[SentMessage]) -> None:
        """Check that the turn after calls begins with their responses, in order, and no other
        turn has responses.
        """
        please, calls = "Please ensure that function", list[SentBlock]()
        for at, message in enumerate(messages):
            own = [
                [part.id for part in message.blocks if part.kind == kind]
                for kind in ("toolCall", "toolResponse")
            ]
            if own[0] != own[1]:
                raise Refused(
                    f"Please ensure that each tool call of contents[{at}] has its tool response."
                )
            responses = [part for part in message.blocks if part.kind == "functionResponse"]
            if responses and (message.role == "model" or not calls):
                raise Refused(
                    f"{please} response turn comes immediately after a function call turn."
                )
            if len(responses) != len(calls):
                raise Refused(_UNEQUAL_NUMBER)
            if any(part.kind == "text" for part in message.blocks[: len(responses)]):
                raise Refused(f"{please} response parts come before all other parts of their turn.")
            if [(part.name, part.id) for part in responses] != [
                (part.name, part.id) for part in calls
            ]:
                raise Refused(
                    f"{please} response parts match the function call parts by name and id."
                )
            calls = [part for part in message.blocks if part.kind == "functionCall"]
            if calls and message.role == "user":
                said = (
                    "call turn comes immediately after a user turn or after a function "
                    "response turn."
                )
                raise Refused(f"{please} {said}")
            if again := duplicates([part.id for part in calls if part.id]):
                raise Refused(f"Duplicate function call id {again[0]!r} in contents[{at}].")
        if calls:
            raise Refused(_UNEQUAL_NUMBER)

    def _error_body(self, refused: Refused) -> dict[str, Any]:
        word = (
            refused.kind
            if refused.kind.isupper()
            else _STATUS_WORDS.get(refused.status, "INVALID_ARGUMENT")
        )
        return {"error": {"code": refused.status, "message": refused.message, "status": word}}

    def error_event(self, status: int, word: str, message: str) -> bytes:
        error = {
            "code": status,
            "message": message,
            "status": word or _STATUS_WORDS.get(status, "INTERNAL"),
        }
        return b"data: %b\r\n\r\n" % encode({"error": error})

    def stream_events(self, turn: Turn, answer: ReplyContext) -> list[bytes]:
        """See `WireEndpoint.stream_events`: chunks of one candidate. The last one holds the finish
        reason.
        """
        tail = encode({"modelVersion": answer.model, "responseId": f"resp{answer.serial:024d}"})[1:]

        def chunk(part: bytes, more: bytes = b"") -> bytes:
            body = b'{"candidates":[{"content":{"parts":[%b],"role":"model"}%b,"index":0}],%b' % (
                part,
                more,
                tail,
            )
            return b"data: %b\r\n\r\n" % body

        out = [
            chunk(b'{"text":%b,"thought":true}' % encode(text))
            for text in split_text(turn.thinking)
        ]
        for query, url, number in searches_of(turn, answer):
            kind = {"toolType": "GOOGLE_SEARCH_WEB", "id": number}
            signed = {"thoughtSignature": sign(self.name, answer.model, number)}
            out.append(
                chunk(encode({"toolCall": {**kind, "args": {"queries": [query]}}, **signed}))
            )
            out.append(
                chunk(
                    encode(
                        {
                            "toolResponse": {**kind, "response": {"search_suggestions": url}},
                            **signed,
                        }
                    )
                )
            )
        out += [chunk(b'{"text":%b}' % encode(text)) for text in text_pieces(turn)]
        reason = _STOPS[stop_of(turn)]
        for index in range(len(turn.calls)):
            part = _call(turn, index, answer)
            if part is None:
                reason = "MALFORMED_FUNCTION_CALL"
                break
            out.append(chunk(encode(part)))
        tail = encode({"usageMetadata": _usage(answer)})[1:-1] + b"," + tail
        return [*out, chunk(b'{"text":""}', b',"finishReason":%b' % encode(reason))]

    def streams(self, fields: dict[str, msgspec.Raw], path: str) -> bool:
        """See `WireEndpoint.streams`: the path tells."""
        del fields
        return ":stream" in path

    def plain_body(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        parts: list[dict[str, Any]] = []
        for part in [part for event in events for part in _parts_of(event)]:
            before = parts[-1] if parts else {}
            if "text" in part and "text" in before and before.keys() == part.keys():
                before["text"] += part["text"]
            elif part.get("text") != "":
                parts.append(part)
        body = events[-1]
        body["candidates"][0]["content"]["parts"] = parts
        return body


def _parts_of(event: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = event["candidates"][0]["content"]["parts"]
    return parts


def signs_calls(model: str) -> bool:
    """Return whether the model signs its calls and requires the signatures: Gemini 3 and later."""
    return re.match(r"gemini-([3-9]|\d\d)", model) is not None


def _signed_text(name: str, arguments: dict[str, Any]) -> str:
    return f"{name} {msgspec.json.encode(arguments, order='deterministic').decode()}"


def _problem(block: SentBlock, inner: Any) -> str:
    """Say what is wrong with a part wherever it stands; empty for nothing."""
    if not block.kind:
        return (
            "* GenerateContentRequest.{at}.data: required oneof field 'data' must have one "
            "initialized field"
        )
    if block.kind == "text":
        return "" if isinstance(inner, str) else "Invalid value at '{at}.text' (TYPE_STRING)"
    if not isinstance(inner, dict):
        return f"Invalid value at '{{at}}.{block.kind}'"
    if block.kind in ("functionCall", "functionResponse"):
        word, key = (
            ("function_call", "args")
            if block.kind == "functionCall"
            else ("function_response", "response")
        )
        if not block.name:
            return f"* GenerateContentRequest.{{at}}.{word}.name: Name cannot be empty."
        if not _NAME.fullmatch(block.name):
            return (
                f"* GenerateContentRequest.{{at}}.{word}.name: Invalid function name. "
                "Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), "
                "underscores (_), "
                "dots (.) or dashes (-), with a maximum length of 64."
            )
        return (
            ""
            if isinstance(inner.get(key, {}), dict)
            else f"Invalid value at '{{at}}.{word}.{key}'"
        )
    if block.pictures and inner.get("mimeType") not in _MEDIA:
        return f"Unsupported MIME type: {inner.get('mimeType')}"
    return (
        "" if all(picture.media for picture in block.pictures) else "Unable to process input image."
    )


def _check_signatures(messages: list[SentMessage], model: str) -> None:
    """Check signatures; with Gemini 3 the first call of each step of the present turn must have
    one.
    """
    asked = (
        n
        for n, message in enumerate(messages)
        if message.role == "user"
        and all(part.kind != "functionResponse" for part in message.blocks)
    )
    begin = max(asked, default=0)
    for at, message in enumerate(messages):
        for part in message.blocks:
            if part.signature not in (None, NO_SIGNATURE, sign("gemini", model, part.text)):
                raise Refused("Corrupted thought signature.")
        first = next(
            ((n, part) for n, part in enumerate(message.blocks) if part.kind == "functionCall"),
            None,
        )
        if first is not None and at > begin and signs_calls(model) and first[1].signature is None:
            raise Refused(
                "Function call is missing a thought_signature in functionCall parts. This is "
                "required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model "
                "performance. Additional "
                f"data, function call `default_api:{first[1].name}` , position {first[0] + 1}."
            )


def _usage(answer: ReplyContext) -> dict[str, Any]:
    """Usage in the form of this wire: thoughts are counted separately from the answer."""
    counted: dict[str, Any] = {
        "promptTokenCount": answer.cached.total,
        "candidatesTokenCount": answer.output - answer.reasoning,
        "totalTokenCount": answer.cached.total + answer.output,
    }
    if answer.cached.read:
        counted["cachedContentTokenCount"] = answer.cached.read
    if answer.reasoning:
        counted["thoughtsTokenCount"] = answer.reasoning
    return counted


def _call(turn: Turn, index: int, answer: ReplyContext) -> dict[str, Any] | None:
    """Encode one call; None if its arguments are not a JSON object, which this provider does not
    pass on.
    """
    call = turn.calls[index]
    try:
        arguments = msgspec.json.decode(
            "".join(argument_pieces(turn, index, answer)), type=dict[str, Any]
        )
    except msgspec.DecodeError:
        return None
    made: dict[str, Any] = {"name": call.name, "args": arguments}
    if answer.hit_by("duplicate_ids"):
        made["id"] = "call0"
    elif call.id:
        made["id"] = call.id
    part: dict[str, Any] = {"functionCall": made}
    if "signed" in answer.flags and index == 0:
        part["thoughtSignature"] = sign("gemini", answer.model, _signed_text(call.name, arguments))
    return part
