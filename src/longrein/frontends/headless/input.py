"""Parser of stdin lines for `--input-format stream-json`. Pure."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from longrein.events import AnyPart, Image, Text, UsageError, decode_json
from longrein.frontends.headless.control import ControlRequest, ControlResponse
from longrein.frontends.stdio import STDIN_BYTES_MAX
from longrein.frontends.text_format import shortened

How = Literal["queued", "steer", "now"]

KeepImage = Callable[[bytes, str], Image]
"""(bytes, media type) of a picture -> its stored part."""


class InputMessage(msgspec.Struct, frozen=True):
    """A user message."""

    parts: tuple[AnyPart, ...]
    how: How
    """`queued`: after the running turn; `steer`: with its next request; `now`: interrupts it."""


EXAMPLE = '{"type":"user","message":{"role":"user","content":"…"}}'
PRIORITIES: dict[str, How] = {"later": "queued", "next": "steer", "now": "now"}


def parse_line(
    line: bytes, keep_image: KeepImage | None
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
    parts = _parts(data.get("message"), keep_image)
    if not parts:
        raise UsageError(f"stdin: {_short(line)} has no text; a line is {EXAMPLE}")
    return InputMessage(parts, PRIORITIES.get(data.get("priority", "later"), "queued"))


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


def _parts(message: Any, keep_image: KeepImage | None) -> tuple[AnyPart, ...]:
    content = (
        message.get("content")
        if isinstance(message, dict) and message.get("role") == "user"
        else None
    )
    if isinstance(content, str):
        return (_text(content),) if content.strip() else ()
    if not isinstance(content, list):
        return ()
    return tuple(_part(block, keep_image) for block in content)


def _part(block: Any, keep_image: KeepImage | None) -> AnyPart:
    match block:
        case {"type": "text", "text": str(text)}:
            return _text(text)
        case {
            "type": "image",
            "source": {"type": "base64", "media_type": str(media), "data": str(data)},
        } if keep_image:
            return keep_image(_bytes(data), media)
        case {"type": str(kind)}:
            raise UsageError(f"stdin: a content block of type {kind!r} cannot be taken; text can")
        case _:
            raise UsageError("stdin: a content block has no type; write it as a text block")


def _text(text: str) -> Text:
    return Text(text.replace("\0", "\ufffd"))  # no wire carries NUL


def _bytes(data: str) -> bytes:
    from binascii import a2b_base64

    try:
        return a2b_base64(data, strict_mode=True)
    except ValueError:
        raise UsageError("stdin: the data of an image is no base64") from None


def _short(line: bytes) -> str:
    return repr(shortened(line.decode("utf-8", "replace").strip(), 60))
