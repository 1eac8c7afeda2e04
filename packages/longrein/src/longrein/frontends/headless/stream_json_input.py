"""Parser of stdin lines for `--input-format stream-json`. Pure."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from longrein.app.user_requests import without_blanks
from longrein.frontends.headless.control_lines import ControlRequest, ControlResponse
from longrein.frontends.stdio import STDIN_BYTES_MAX
from longrein.steps.human_text import escape_line
from longrein_context.events import (
    ATTACHED,
    AnyPart,
    Document,
    Image,
    Text,
    UsageError,
    decode_json,
)
from longrein_context.events.escape import shortened

How = Literal["queued", "steer", "now"]

Keep = Callable[[bytes, str], Image | Document]
"""(bytes, media type) of a picture or a document -> its stored part."""


class InputMessage(msgspec.Struct, frozen=True):
    """A user message."""

    parts: tuple[AnyPart, ...]
    how: How
    """`queued`: after the running turn; `steer`: with its next request; `now`: interrupts it."""
    verbatim: bool = False
    """True if the program has composed the text, which therefore names no skill or resource."""


EXAMPLE = '{"type":"user","message":{"role":"user","content":"…"}}'
PRIORITIES: dict[str, How] = {"later": "queued", "next": "steer", "now": "now"}


def parse_line(
    line: bytes, keep: Keep | None
) -> InputMessage | ControlRequest | ControlResponse | None:
    """Parse one line; None for kinds of lines that are ignored. Raises `UsageError` for a
    malformed line.
    """
    if len(line) > STDIN_BYTES_MAX:
        raise UsageError(
            f"stdin: {_short(line[:1000])} is longer than 10 MB; name large files in the message"
        )
    try:
        data = decode_json(line)
    except msgspec.DecodeError:
        raise UsageError(f"stdin: {_short(line)} is no JSON; a line is {EXAMPLE}") from None
    kind = data.get("type") if isinstance(data, dict) else None
    if kind == "control_request":
        request = data.get("request")
        return ControlRequest(
            str(data.get("request_id", "")), request if isinstance(request, dict) else {}
        )
    if kind == "control_response":
        return _response(data.get("response"))
    if kind in ("control_cancel_request", "keep_alive", "update_environment_variables"):
        return None  # requests of the program are answered at once, so that none is left to cancel
    if kind != "user":
        raise UsageError(f"stdin: {_short(line)} is no user message; a line is {EXAMPLE}")
    parts = without_blanks(_parts(data.get("message"), keep))
    if not parts:
        raise UsageError(f"stdin: {_short(line)} has no text; a line is {EXAMPLE}")
    how = PRIORITIES.get(data.get("priority", "later"), "queued")
    return InputMessage(parts, how, verbatim=data.get("client_composed") is True)


def _response(response: Any) -> ControlResponse:
    match response:
        case {"subtype": "success", "request_id": str(number)}:
            return ControlResponse(number, response.get("response"))
        case {"request_id": str(number)}:
            return ControlResponse(
                number, error=str(response.get("error") or "the program gave no answer")
            )
        case _:
            raise UsageError("stdin: a control_response has no request_id; it answers no request")


def _parts(message: Any, keep: Keep | None) -> tuple[AnyPart, ...]:
    content = (
        message.get("content")
        if isinstance(message, dict) and message.get("role") == "user"
        else None
    )
    if isinstance(content, str):
        return (_text(content),)
    if not isinstance(content, list):
        return ()
    return tuple(_part(block, keep) for block in content)


def _part(block: Any, keep: Keep | None) -> AnyPart:
    match block:
        case {"type": "text", "text": str(text)}:
            return _text(text)
        case {
            "type": "image",
            "source": {"type": "base64", "media_type": str(media), "data": str(data)},
        } if keep and media.startswith("image/"):
            return keep(_bytes(data), media)
        case {"type": "document", "source": dict(source)} if keep:
            return _document(source, str(block.get("title") or ""), keep)
        case {"type": "image", "source": {"type": "url"}}:
            raise UsageError(f"stdin: an image by address cannot be taken; {SEND_BYTES}")
        case {"type": str(kind)}:
            raise UsageError(f"stdin: a content block of type {kind!r} cannot be taken; text can")
        case _:
            raise UsageError("stdin: a content block has no type; write it as a text block")


SEND_BYTES = "send its bytes as base64, or name the address in the text"


def _document(source: dict[str, Any], title: str, keep: Keep) -> AnyPart:
    """Convert a document: PDF files are kept whole, text becomes an attached text."""
    match source:
        case {"type": "base64", "media_type": "application/pdf", "data": str(data)}:
            kept = keep(_bytes(data), "application/pdf")
            return msgspec.structs.replace(kept, name=escape_line(title)) if title else kept
        case {"type": "base64", "media_type": str(media), "data": str(data)} if media.startswith(
            "text/"
        ):
            return _attached(_bytes(data).decode("utf-8", "replace"), title)
        case {"type": "text", "data": str(text)} | {"type": "content", "content": str(text)}:
            return _attached(text, title)
        case {"type": "url"}:
            raise UsageError(f"stdin: a document by address cannot be taken; {SEND_BYTES}")
        case _:
            raise UsageError("stdin: a document must be a PDF file or text, as base64 or as text")


def _attached(text: str, title: str) -> Text:
    name = escape_line(title) or "a document"
    return _text(f"{ATTACHED}{name}]\n{text}\n[end of {name}]")


def _text(text: str) -> Text:
    return Text(text.replace("\0", "\ufffd"))  # no wire carries NUL


def _bytes(data: str) -> bytes:
    from binascii import a2b_base64

    try:
        return a2b_base64(data, strict_mode=True)
    except ValueError:
        raise UsageError("stdin: the data of an image or a document is no base64") from None


def _short(line: bytes) -> str:
    return repr(shortened(line.decode("utf-8", "replace").strip(), 60))
