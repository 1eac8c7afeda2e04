"""Formats of message lists: read one message into neutral parts, and write a changed copy of it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from longrein_context.events import (
    TOO_DEEP,
    AnyPart,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UsageError,
    decode_object,
    is_too_deep,
    storable,
    text_of,
)
from longrein_context.state.token_estimate import arguments_text, estimate_text


class Unread(msgspec.Struct, frozen=True):
    """A block or item of a kind that a format does not know. It is always sent unchanged."""

    kind: str  # Its type, for the user
    tokens: int  # Estimated tokens


class NeutralMessage(msgspec.Struct, frozen=True):
    """A message of a list in neutral form. Equal messages read equal; parts hidden from the
    model are left out.
    """

    side: Literal[
        "system", "user", "assistant", "other"
    ]  # Role of the author. Results of tools belong to the user's side. `other`: unread as a whole
    parts: tuple[
        AnyPart, ...
    ] = ()  # Content in order. `ToolCall.id` and `ToolResult.call` are the provider's ids.
    system: str = ""  # System text inside the message, beside the parts
    usage: Usage | None = (
        None  # Usage of the request that the message answers, where the message holds it
    )
    unread: tuple[Unread, ...] = ()  # Blocks beside the parts that the format does not know


def read_message(form: "MessageFormat", one: Any) -> NeutralMessage:
    """Return the neutral form of a message, with texts that JSON can hold."""
    return storable(form.read(one))


class MessageFormat(Protocol):
    """Reader and writer of the messages of one library or wire."""

    def read(self, one: Any) -> NeutralMessage:
        """Return the neutral form of a message. Raises `UsageError` for an object that is no
        message.
        """
        ...

    def rewrite(self, one: Any, changes: Mapping[int, AnyPart | None]) -> Any:
        """Return a copy with the parts at these indices of `NeutralMessage.parts` replaced; None
        leaves a part out.

        Returns None when nothing would be left of the message.
        """
        ...

    def tell(self, text: str) -> Any:
        """Return a user message with this text."""
        ...


# --- Dicts: OpenAI chat, OpenAI Responses items, Anthropic content blocks -------------------------
# Each message is read by itself, so one list may mix the three. Objects of vendor libraries with `model_dump` are  # noqa: E501
# dumped first.


_TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "summary_text")
_IMAGE_TYPES = ("image", "image_url", "input_image")
_DOCUMENT_TYPES = ("document", "file", "input_file", "input_audio")
_KNOWN_BLOCKS = {
    "user": (*_TEXT_TYPES, *_IMAGE_TYPES, *_DOCUMENT_TYPES, "tool_result"),
    "assistant": (*_TEXT_TYPES, "thinking", "redacted_thinking", "tool_use"),
}
"""Role -> types of the blocks that are read. Every other block is sent unchanged."""
_UNREAD = "unread/"
"""Start of the media type of a block inside a result that is not read."""
_SHOWN_CHARS = 200  # Characters kept of content that is neither text nor image


class DictFormat:
    """Format of dicts, as OpenAI and Anthropic take them."""

    def read(self, one: Any) -> NeutralMessage:
        fields = fields_of(one)
        match fields.get("type"):
            case kind if _is_unread(kind, fields):
                return NeutralMessage("other", unread=(unread_item(kind or "message", fields),))
            case "function_call" | "custom_tool_call":
                return NeutralMessage(
                    "assistant", (_call(fields["call_id"], fields["name"], _arguments_of(fields)),)
                )
            case "function_call_output" | "custom_tool_call_output":
                return NeutralMessage("user", (_result(fields["call_id"], fields.get("output")),))
            case "reasoning":
                summary = text_of(content_parts(fields.get("summary")))
                return NeutralMessage("assistant", (Thinking(summary),))
            case _:
                return _read_spoken(fields)

    def rewrite(self, one: Any, changes: Mapping[int, AnyPart | None]) -> Any:
        fields = fields_of(one)
        if fields.get("type") in _ITEMS:
            return _rewrite_item(fields, changes[0])
        if fields.get("role") == "tool":
            change = changes[0]
            return (
                None
                if change is None
                else {**fields, "content": result_content(change, fields.get("content"))}
            )
        return _rewrite_spoken(fields, changes)

    def tell(self, text: str) -> Any:
        return {"role": "user", "content": text}


DICT_FORMAT = DictFormat()
_ITEMS = (
    "function_call",
    "custom_tool_call",
    "function_call_output",
    "custom_tool_call_output",
    "reasoning",
)


def fields_of(one: Any) -> dict[str, Any]:
    """Return a message as a dict. Raises `UsageError` for an object that is no message."""
    if isinstance(one, dict):
        return one
    dump = getattr(one, "model_dump", None)
    if dump is None:
        raise UsageError(
            f"a message of the list is a {type(one).__name__}; give dicts, or the shape that "
            "reads them"
        )
    fields: dict[str, Any] = dump(exclude_none=True)
    return fields


# --- Reading --------------------------------------------------------------------------------------


def _is_unread(kind: Any, fields: dict[str, Any]) -> bool:
    """Return whether a message is of a form that this format does not know: an item of a hosted
    tool, a message of another wire.
    """
    if kind in _ITEMS:
        return kind != "reasoning" and not fields.get("call_id")
    role = fields.get("role")
    if role == "assistant":
        return bool(fields.get("function_call") or fields.get("audio"))
    if role in ("system", "developer", "user", "tool"):
        return "content" not in fields and "parts" in fields
    references = role is None and "id" in fields
    return bool(kind) or role == "function" or "parts" in fields or references


def unread_item(kind: str, content: Any) -> Unread:
    """Return the record of a block or item that is sent unchanged."""
    return Unread(kind, estimate_text(_raw(content)))


def is_fixed(part: AnyPart) -> bool:
    """Return whether a result holds a block of a kind that is not read: it is sent unchanged."""
    return isinstance(part, ToolResult) and any(
        isinstance(inner, Document) and inner.media.startswith(_UNREAD) for inner in part.parts
    )


def _read_spoken(fields: dict[str, Any]) -> NeutralMessage:
    content = fields.get("content")
    match fields.get("role"):
        case "system" | "developer":
            return NeutralMessage("system", system=text_of(content_parts(content)))
        case "tool":
            return NeutralMessage("user", (_result(str(fields.get("tool_call_id")), content),))
        case "assistant":
            calls = tuple(_chat_call(call) for call in fields.get("tool_calls") or ())
            return read_blocks("assistant", content, calls)
        case "user":
            return read_blocks("user", content)
        case role:
            raise UsageError(
                f"a message of the list has the role {role!r}; roles are system, user, assistant, "
                "tool"
            )


def read_blocks(
    side: Literal["user", "assistant"], content: Any, calls: Sequence[ToolCall] = ()
) -> NeutralMessage:
    """Read the content of a message of this side."""
    blocks = _blocks(content)
    parts = [_block(block) for block in blocks if is_read(side, block)]
    unread = [
        unread_item(_kind(block), fields_of(block)) for block in blocks if not is_read(side, block)
    ]
    return NeutralMessage(side, (*parts, *calls), unread=tuple(unread))


def is_read(side: str, block: Any) -> bool:
    """Return whether a content block of this side is one of the parts of its message."""
    return isinstance(block, str) or _kind(block) in _KNOWN_BLOCKS[side]


def _kind(block: Any) -> str:
    """Return the type of a block. Where it has none, as on Bedrock, it is `text` or no known type:
    a shortened copy of any other block would be of a form that its wire does not take.
    """
    fields = fields_of(block)
    if "type" in fields:
        return str(fields["type"])
    name = next(iter(fields), "block")
    return name if name == "text" else f"{name} without a type"


def _blocks(content: Any) -> list[Any]:
    return [content] if isinstance(content, str) else list(content or ())


def content_parts(content: Any) -> tuple[AnyPart, ...]:
    """Return all parts of a content; a block of an unknown kind becomes a document."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_block(block) for block in _blocks(content))


def _block(block: Any) -> AnyPart:
    if isinstance(block, str):
        return Text(block)
    fields, kind = fields_of(block), _kind(block)
    if kind in _TEXT_TYPES:
        return Text(str(fields.get("text") or fields.get("refusal") or ""))
    if kind in ("thinking", "redacted_thinking"):
        return Thinking(str(fields.get("thinking") or fields.get("data") or ""))
    if kind == "tool_use":
        return _call(fields["id"], fields["name"], fields.get("input"))
    if kind == "tool_result":
        status = "failed" if fields.get("is_error") else "ok"
        return _result(fields["tool_use_id"], fields.get("content"), status)
    return _other(str(kind), fields)


def _other(kind: str, fields: dict[str, Any]) -> AnyPart:
    """Return an image or document part. Its name is made of its last characters; the bytes stay
    in the list.
    """
    raw = _raw({key: value for key, value in fields.items() if key != "cache_control"})
    name = f"list:{raw[-_SHOWN_CHARS:]}"
    if kind in _IMAGE_TYPES:
        return Image(name, "image/*", len(raw))
    if kind in _DOCUMENT_TYPES:
        return Document(name, kind, len(raw), head=raw[:_SHOWN_CHARS])
    return Document(name, f"{_UNREAD}{kind}", len(raw), head=raw)


def _raw(value: Any) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except UnicodeEncodeError:
        return ascii(value)


def _chat_call(call: Any) -> ToolCall:
    fields = fields_of(call)
    function = fields.get("function") or fields.get("custom") or {}
    return _call(str(fields.get("id")), str(function.get("name")), _arguments_of(function))


def _arguments_of(fields: dict[str, Any]) -> Any:
    return fields["arguments"] if "arguments" in fields else fields.get("input")


def _call(id_: str, name: str, arguments: Any) -> ToolCall:
    if is_too_deep(arguments):
        return ToolCall(id_, name, None, f"({TOO_DEEP})")
    if isinstance(arguments, dict):
        return ToolCall(id_, name, arguments)
    text = arguments if isinstance(arguments, str) else _raw(arguments)
    return ToolCall(id_, name, parsed(text), text)


def parsed(text: str) -> dict[str, Any] | None:
    """Return the JSON object in `text`; None when there is none."""
    return decode_object(text or "{}")


def _result(call: str, content: Any, status: str = "ok") -> ToolResult:
    if isinstance(content, str) or content is None or isinstance(content, Sequence):
        return ToolResult(call, "", status, content_parts(content))
    return ToolResult(
        call, "", status, (Text(msgspec.json.encode(content, enc_hook=str).decode()),)
    )


# --- Writing --------------------------------------------------------------------------------------


def _rewrite_item(fields: dict[str, Any], change: AnyPart | None) -> Any:
    match change:
        case None:
            return None
        case ToolCall():
            return {
                **fields,
                ("arguments" if "arguments" in fields else "input"): arguments_text(change),
            }
        case ToolResult():
            return {**fields, "output": result_content(change, fields.get("output"), "input_text")}
        case _:  # shortened thinking is plain text
            return {"role": "assistant", "content": text_of((change,))}


def result_content(change: AnyPart, content: Any, kind: str = "text") -> Any:
    """Return the content of a changed result: a text, and the images of `content` that `change`
    keeps.
    """
    text = text_of((change,))
    keeps = isinstance(change, ToolResult) and any(
        not isinstance(part, Text) for part in change.parts
    )
    if not keeps or not isinstance(content, list):
        return text
    rest = [
        block
        for block in content
        if not isinstance(block, str) and fields_of(block).get("type") not in _TEXT_TYPES
    ]
    return [{"type": kind, "text": text}, *rest]


def _rewrite_spoken(fields: dict[str, Any], changes: Mapping[int, AnyPart | None]) -> Any:
    content, calls = fields.get("content"), list(fields.get("tool_calls") or ())
    kept, said = rewrite_blocks(str(fields.get("role")), content, changes)
    asked = [(call, changes.get(n, call)) for n, call in enumerate(calls, said)]
    left = [
        _rewrite_chat_call(call, to) if isinstance(to, ToolCall) else call
        for call, to in asked
        if to is not None
    ]
    if not kept and not left:
        return None
    rest = {key: value for key, value in fields.items() if key not in ("content", "tool_calls")}
    written: Any = None
    if kept:
        written = "".join(kept) if isinstance(content, str) else kept
    return {**rest, "content": written, **({"tool_calls": left} if left else {})}


def rewrite_blocks(
    side: str, content: Any, changes: Mapping[int, AnyPart | None]
) -> tuple[list[Any], int]:
    """Return the blocks of a content that are left, changed ones included, and how many were
    parts of the message.
    """
    kept: list[Any] = []
    said = 0
    for block in _blocks(content):
        new = block
        if is_read(side, block):
            new = _rewrite_block(block, changes[said]) if said in changes else block
            said += 1
        if new is not None:
            kept.append(new)
    return kept, said


def _rewrite_chat_call(call: Any, to: ToolCall) -> dict[str, Any]:
    fields = fields_of(call)
    if "custom" in fields:
        return {**fields, "custom": {**fields["custom"], "input": arguments_text(to)}}
    return {**fields, "function": {**fields["function"], "arguments": arguments_text(to)}}


def _rewrite_block(block: Any, change: AnyPart | None) -> Any:
    if change is None:
        return None
    if isinstance(block, str):
        return text_of((change,))
    fields = fields_of(block)
    match change:
        case ToolCall():
            return {**fields, "input": msgspec.json.decode(arguments_text(change))}
        case ToolResult():
            return {**fields, "content": result_content(change, fields.get("content"))}
        case _ if _kind(block) in _TEXT_TYPES:
            return {**fields, "text": text_of((change,))}
        case _:
            return {"type": "text", "text": text_of((change,))}


# --- Usage ----------------------------------------------------------------------------------------

_WRAPPED = ("usage", "usage_metadata")
_CACHED = ("prompt_tokens_details", "input_tokens_details", "input_token_details")


def usage_of(reply: Any) -> Usage | None:
    """Return the usage in an answer or usage object (dict or object); None without one."""
    for name in _WRAPPED:
        inner = _get(reply, name)
        if inner is not None and not isinstance(inner, int | str) and not callable(inner):
            return usage_of(inner)
    given = _number(reply, "prompt_tokens", "input_tokens")
    if given is None:
        return None
    output = _number(reply, "completion_tokens", "output_tokens") or 0
    apart = _number(reply, "cache_read_input_tokens")
    written = _number(reply, "cache_creation_input_tokens") or 0
    if apart is not None or written:  # Anthropic counts cached tokens apart from the input
        return Usage(given, apart or 0, written, output)
    details = next((found for name in _CACHED if (found := _get(reply, name)) is not None), reply)
    read = _number(details, "cached_tokens", "cache_read", "cache_read_tokens") or 0
    written = _number(details, "cache_creation", "cache_write_tokens") or 0
    return Usage(max(0, given - read - written), read, written, output)


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _number(value: Any, *names: str) -> int | None:
    return next((found for name in names if isinstance(found := _get(value, name), int)), None)
