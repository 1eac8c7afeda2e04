"""The Chat Completions wire: validation by the rules of OpenAI and of compatible servers, and
answers.

`OpenAI` holds what both OpenAI wires share.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from longrein.models.scripted import split_text
from longrein.testing.loopback.response_parts import ReplyContext, argument_pieces, call_id, encode
from longrein.testing.loopback.script import Limits, Rules, Turn, stop_of, text_pieces
from longrein.testing.loopback.validation import (
    Picture,
    Refused,
    SentBlock,
    SentMessage,
    WireEndpoint,
    convert,
    duplicates,
    inspect_image,
    raw_blocks,
)

# --- Both OpenAI wires ----------------------------------------------------------------------------


IMAGE_BYTES_MAX = 20 * 1024 * 1024
"""Largest image, in base64."""
EMPTY_ARRAY = (
    "empty array. Expected an array with minimum length 1, but got an empty array instead."
)
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAME_PATTERN = (
    "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
)
ERROR_TYPES = {
    401: "invalid_request_error",
    429: "rate_limit_exceeded",
    500: "server_error",
    502: "server_error",
    503: "service_unavailable",
    529: "overloaded_error",
}
_MEDIA = ("image/png", "image/jpeg", "image/gif", "image/webp")


class OpenAI(WireEndpoint):
    """Rules of both OpenAI wires."""

    images_max = 500
    not_an_object = "Invalid type for '{at}': expected an object."
    function: str
    """Path of the name inside a tool, such as `function.`."""

    def _error_body(self, refused: Refused) -> dict[str, Any]:
        kind = refused.kind or ERROR_TYPES.get(refused.status, "invalid_request_error")
        fields = {
            "message": refused.message,
            "type": kind,
            "param": refused.param or None,
            "code": refused.code or None,
        }
        return {"error": fields}

    def check_tools(self, fields: dict[str, msgspec.Raw]) -> None:
        """Check the names of the tools."""
        names = []
        for n, tool in enumerate(convert(fields, "tools", list[dict[str, Any]], [])):
            if not self.function and tool.get("type") == "web_search":
                continue
            holder = tool.get("function") if self.function else tool
            if not isinstance(holder, dict) or ("name" not in holder and not self.function):
                lacking = f"tools[{n}].{'function' if self.function else 'name'}"
                raise Refused(f"Missing required parameter: '{lacking}'.", param=lacking)
            names.append(str(holder.get("name")))
            if not TOOL_NAME.fullmatch(names[-1]):
                path = f"tools[{n}].{self.function}name"
                raise Refused(f"Invalid '{path}': {NAME_PATTERN}", param=path, code="invalid_value")
        if again := duplicates(names):
            said = f"Invalid 'tools': function names must be unique, but {again[0]!r} occurs twice."
            raise Refused(said, param="tools")


def missing(name: str) -> Refused:
    """Make the error for a missing field."""
    return Refused(
        f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter"
    )


def split_data_url(url: str) -> tuple[str, str]:
    """Split a `data:` URL into (media type, base64); ('', '') for another URL."""
    head, comma, data = url.partition(",")
    return (
        (head[5:-7], data)
        if comma and head.startswith("data:") and head.endswith(";base64")
        else ("", "")
    )


def images_of(urls: list[Any]) -> tuple[Picture, ...]:
    """Inspect the images among data URLs."""
    return tuple(
        inspect_image(data)
        for url in urls
        if isinstance(url, str) and (data := split_data_url(url)[1])
    )


def image_problem(url: Any, at: str) -> str:
    """Say what is wrong with the image at `url`; empty for nothing."""
    if not isinstance(url, str):
        return f"Missing required parameter: '{at}.image_url'."
    media, data = split_data_url(url)
    if not data and url.startswith("https://"):
        return ""
    if not data:
        return f"Invalid '{at}.image_url': expected a base64-encoded data URL or an address."
    picture = inspect_image(data)
    if picture.base64_bytes > IMAGE_BYTES_MAX:
        return "Image size exceeds the limit of 20MB."
    if picture.media in _MEDIA and picture.media == media:
        return ""
    return (
        "You uploaded an unsupported image. Please make sure your image has of one the following "
        "formats: "
        "['png', 'jpeg', 'gif', 'webp']."
    )


def call_problem(at: str, id_at: str, id_: str, id_chars_max: int, function: dict[str, Any]) -> str:
    """Say what is wrong with a call at `at`; empty for nothing."""
    if not id_:
        return f"Missing required parameter: '{id_at}'."
    if len(id_) > id_chars_max:
        return (
            f"Invalid '{id_at}': string too long. Expected a string with maximum length "
            f"{id_chars_max}, "
            f"but got a string with length {len(id_)} instead."
        )
    if not TOOL_NAME.fullmatch(str(function.get("name"))):
        return f"Invalid '{at}.name': {NAME_PATTERN}"
    given = function.get("arguments")
    try:
        fits = isinstance(given, str) and isinstance(msgspec.json.decode(given), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        fits = False
    return "" if fits else f"Invalid '{at}.arguments': expected a string that holds a JSON object."


# --- Chat Completions -----------------------------------------------------------------------------


_ROLES = ("system", "assistant", "user", "function", "tool", "developer")
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")
_STOPS = {"end": "stop", "calls": "tool_calls", "length": "length", "refusal": "content_filter"}


class OpenAIChatEndpoint(OpenAI):
    """The wire `openai-chat`."""

    name = "openai-chat"
    path = r"(?:/\w+)*/chat/completions"
    overflow = "openai"
    items = "messages"
    at = "messages[{at}]"
    function = "function."
    no_items = f"Invalid 'messages': {EMPTY_ARRAY}"
    user_first = (
        "After the optional system message, conversation roles must alternate "
        "user/assistant/user/assistant/..."
    )
    no_prefill = (
        "Cannot set `add_generation_prompt` to True when the last message is from the assistant."
    )
    too_many_images = "Invalid 'messages': too many images. At most 500 are allowed."

    def _output_limit(self, fields: dict[str, msgspec.Raw]) -> int:
        name = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
        return convert(fields, name, int, 0)

    def _flags(self, fields: dict[str, msgspec.Raw], model: str) -> frozenset[str]:  # noqa: ARG002
        options = convert(fields, "stream_options", dict[str, Any], {})
        return frozenset({"usage"} if options.get("include_usage") else ())

    def _prefix(
        self,
        fields: dict[str, msgspec.Raw],
        read: Callable[[bytes], SentBlock],  # noqa: ARG002
    ) -> list[tuple[str, SentBlock]]:
        return raw_blocks(fields)

    def _messages(
        self, fields: dict[str, msgspec.Raw], read: Callable[[bytes], SentBlock]
    ) -> list[SentMessage]:
        # A message is one block; its kind is its role
        blocks = [read(raw) for raw in convert(fields, "messages", list[msgspec.Raw], [])]
        return [SentMessage(block.kind, (block,)) for block in blocks]

    def _read_fields(self, raw: bytes, fields: dict[str, Any]) -> SentBlock:
        content, calls = fields.get("content"), fields.get("tool_calls")
        parts = (
            [part for part in content if isinstance(part, dict)]
            if isinstance(content, list)
            else []
        )
        block = SentBlock(str(fields.get("role")), raw, str(fields.get("tool_call_id") or ""))
        images = [part.get("image_url") for part in parts]
        block.pictures = images_of(
            [image.get("url") for image in images if isinstance(image, dict)]
        )
        if isinstance(calls, list):
            block.calls = tuple(
                str(call.get("id") or "") for call in calls if isinstance(call, dict)
            )
        block.problem = _problem(block, fields)
        return block

    def _check_head(self, fields: dict[str, msgspec.Raw], limits: Limits) -> None:
        if "model" not in fields:
            raise Refused("you must provide a model parameter")
        convert(fields, "model", str)
        if "messages" not in fields:
            raise missing("messages")
        limit, most = self._output_limit(fields), limits.output_tokens_max
        given = "max_completion_tokens" in fields or "max_tokens" in fields
        if given and limit < 1:
            raise Refused(
                "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but "
                f"got {limit} instead.",
                param="max_tokens",
                code="integer_below_min_value",
            )
        if most and limit > most:
            raise Refused(
                f"max_tokens is too large: {limit}. This model supports at most {most} completion "
                "tokens, "
                f"whereas you provided {limit}.",
                param="max_tokens",
                code="invalid_value",
            )
        self.check_tools(fields)

    def _check_block(
        self,
        path: str,  # noqa: ARG002
        role: str,  # noqa: ARG002
        block: SentBlock,
        model: str,  # noqa: ARG002
        rules: Rules,
    ) -> None:
        for id_ in (*block.calls, block.id) if rules.short_ids else ():
            if id_ and not _SHORT_ID.fullmatch(id_):
                raise Refused(
                    f"Tool call id was {id_} but must be a-z, A-Z, 0-9, with a length of 9."
                )

    def _check_pairs(self, messages: list[SentMessage]) -> None:
        """Check that the messages after calls answer each call once, and no other message
        answers a call.
        """
        seen: set[str] = set()
        waiting: list[str] = []
        known: tuple[str, ...] = ()
        for at, block in enumerate(message.blocks[0] for message in messages):
            if block.kind == "tool":
                if block.id not in known:
                    said = (
                        "messages with role 'tool' must be a response to a preceeding message "
                        "with 'tool_calls'."
                    )
                    raise Refused(f"Invalid parameter: {said}", param=f"messages.[{at}].role")
                if block.id not in waiting:
                    said = f"Duplicate value for 'tool_call_id' of '{block.id}'"
                    raise Refused(said, param=f"messages.[{at}].tool_call_id")
                waiting.remove(block.id)
                continue
            _check_answered(at, waiting)
            if again := duplicates(block.calls) or [id_ for id_ in block.calls if id_ in seen]:
                said = f"Duplicate value for 'tool_calls[].id' of '{again[0]}'"
                raise Refused(said, param=f"messages.[{at}].tool_calls")
            seen.update(block.calls)
            waiting, known = list(block.calls), block.calls
        _check_answered(len(messages), waiting)

    def error_event(self, status: int, word: str, message: str) -> bytes:
        kind = word or ERROR_TYPES.get(status, "server_error")
        error = {"message": message, "type": kind, "param": None, "code": status}
        return b"data: %b\n\n" % encode({"error": error})

    def stream_events(self, turn: Turn, answer: ReplyContext) -> list[bytes]:
        """See `WireEndpoint.stream_events`: chunks of one choice, the usage in one of its own, then
        `[DONE]`.
        """
        head = {
            "id": f"chatcmpl-{answer.serial:024d}",
            "object": "chat.completion.chunk",
            "created": 1_760_000_000,
        }
        lead = encode({**head, "model": answer.model, "system_fingerprint": "fp_loopback"})[:-1]

        def chunk(delta: bytes, reason: bytes = b"null") -> bytes:
            choice = b'{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}' % (delta, reason)
            return b'data: %b,"choices":[%b]}\n\n' % (lead, choice)

        out = [chunk(b'{"role":"assistant","content":"","refusal":null}')]
        out += [
            chunk(b'{"reasoning_content":%b}' % encode(text)) for text in split_text(turn.thinking)
        ]
        out += [chunk(b'{"content":%b}' % encode(text)) for text in text_pieces(turn)]
        for index in range(len(turn.calls)):
            out += [chunk(encode({"tool_calls": [piece]})) for piece in _call(turn, index, answer)]
        out.append(chunk(b"{}", encode(_STOPS[stop_of(turn)])))
        if "usage" in answer.flags:
            out.append(b'data: %b,"choices":[],"usage":%b}\n\n' % (lead, encode(_usage(answer))))
        return [*out, b"data: [DONE]\n\n"]

    def plain_body(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        calls: dict[int, dict[str, Any]] = {}
        reason = None
        for choice in [choice for event in events for choice in event["choices"]]:
            reason = choice["finish_reason"] or reason
            delta = choice["delta"]
            for key in ("reasoning_content", "content"):
                if delta.get(key):
                    message[key] = (message.get(key) or "") + delta[key]
            for piece in delta.get("tool_calls", ()):
                call = calls.setdefault(piece["index"], {"function": {"arguments": ""}})
                function = piece.get("function", {})
                call |= {key: piece[key] for key in ("id", "type") if key in piece}
                call["function"]["arguments"] += function.get("arguments", "")
                call["function"] |= {key: function[key] for key in ("name",) if key in function}
        if calls:
            message["tool_calls"] = list(calls.values())
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        head = {key: events[0][key] for key in ("id", "created", "model", "system_fingerprint")}
        usage = {"usage": events[-1]["usage"]}
        return {**head, "object": "chat.completion", "choices": [choice], **usage}


def _problem(block: SentBlock, fields: dict[str, Any]) -> str:
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
        id_ = id_ if isinstance(id_, str) else ""
        if problem := call_problem(f"{at}.function", f"{at}.id", id_, 40, function):
            return problem
    return ""


def _parts_problem(block: SentBlock, parts: list[Any]) -> str:
    if not parts:
        return f"Invalid '{{at}}.content': {EMPTY_ARRAY}"
    for n, part in enumerate(parts):
        at, kind = f"{{at}}.content[{n}]", part.get("type") if isinstance(part, dict) else None
        if kind == "text" and not isinstance(part.get("text"), str):
            return f"Missing required parameter: '{at}.text'."
        if kind in ("image_url", "file", "input_audio") and block.kind != "user":
            return (
                "Invalid '{at}'. Image URLs are only allowed for messages with role 'user', "
                f"but this message with role '{block.kind}' contains an image URL."
            )
        if kind == "image_url":
            image = part.get("image_url")
            if problem := image_problem(
                image.get("url") if isinstance(image, dict) else None, f"{at}.image_url"
            ):
                return problem
        elif kind not in ("text", "file", "input_audio", "refusal"):
            kinds = "'text', 'image_url', 'input_audio', 'refusal', and 'file'"
            return f"Invalid value: '{kind}'. Supported values are: {kinds}."
    return ""


def _check_answered(at: int, waiting: list[str]) -> None:
    if waiting:
        raise Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: "
            f"{', '.join(waiting)}",
            param=f"messages.[{at}].role",
        )


def _usage(answer: ReplyContext) -> dict[str, Any]:
    """Usage in the form of this wire: cached tokens are part of the prompt."""
    return {
        "prompt_tokens": answer.cached.total,
        "completion_tokens": answer.output,
        "total_tokens": answer.cached.total + answer.output,
        "prompt_tokens_details": {"cached_tokens": answer.cached.read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": answer.reasoning, "audio_tokens": 0},
    }


def _call(turn: Turn, index: int, answer: ReplyContext) -> list[dict[str, Any]]:
    call = turn.calls[index]
    head: dict[str, Any] = {
        "index": index,
        "type": "function",
        "function": {"name": call.name, "arguments": ""},
    }
    if id_ := call_id(call, index, answer, "call_{}"):
        head["id"] = id_
    return [
        head,
        *(
            {"index": index, "function": {"arguments": t}}
            for t in argument_pieces(turn, index, answer)
        ),
    ]
