"""Content blocks of a prompt as parts of the user's message."""

from binascii import a2b_base64
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from longrein.context.state.quoting import quote_external
from longrein.events import ATTACHED, AnyPart, Document, Image, Text, UsageError
from longrein.steps.human_text import escape_line

KeepBlob = Callable[[bytes], str]

IMAGE_BYTES_MAX = 32 * 1024 * 1024
RESOURCE_CHARS_MAX = 200_000
"""Characters of an embedded resource that go into the message; the model reads the rest of a
file itself.
"""


def parts_of(blocks: Sequence[Any], nonce: str, keep_blob: KeepBlob) -> tuple[AnyPart, ...]:
    """Convert the blocks of a prompt. Raises `UsageError` for an empty prompt and for what cannot
    be taken.

    The content of resources comes from files, so it is quoted as data. `nonce` is that of the
    session.
    """
    parts = tuple(_part(block, nonce, keep_blob) for block in blocks)
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        raise UsageError("the prompt is empty")
    return parts


def _part(block: Any, nonce: str, keep_blob: KeepBlob) -> AnyPart:
    match block.type:
        case "text":
            return Text(block.text.replace("\0", "\ufffd"))
        case "image":
            data = _bytes(block.data, IMAGE_BYTES_MAX)
            return Image(keep_blob(data), block.mime_type, len(data))
        case "resource_link":
            return Text(_link(block))
        case "resource":
            return _resource(block.resource, nonce, keep_blob)
        case kind:
            raise UsageError(
                f"a content block of type {kind!r} cannot be taken; text, images and resources can"
            )


def _link(block: Any) -> str:
    """Return the text for a link: of a file the path, which the model can read."""
    return f"[linked by the user: {escape_line(file_path(block.uri) or block.uri)}]"


def _resource(resource: Any, nonce: str, keep_blob: KeepBlob) -> AnyPart:
    name = escape_line(file_path(resource.uri) or resource.uri)
    text = getattr(resource, "text", None)
    if text is not None:
        more = (
            f"\n[{len(text) - RESOURCE_CHARS_MAX} more characters]"
            if len(text) > RESOURCE_CHARS_MAX
            else ""
        )
        quoted = quote_external(text[:RESOURCE_CHARS_MAX].replace("\0", "\ufffd"), nonce)
        return Text(f"{ATTACHED}{name}]\n{quoted}{more}\n[end of {name}]")
    data, media = (
        _bytes(resource.blob, IMAGE_BYTES_MAX),
        resource.mime_type or "application/octet-stream",
    )
    if media.startswith("image/"):
        return Image(keep_blob(data), media, len(data))
    if media == "application/pdf":
        return Document(keep_blob(data), media, len(data), name)
    return Text(
        f"{ATTACHED}{name}, {escape_line(media)}, {len(data)} bytes, which cannot be shown]"
    )


def file_path(uri: str) -> str:
    """Return the path of a `file:` URI, with `#L10` as `:10`; '' for any other."""
    found = urlsplit(uri) if uri.startswith("file:") else None
    if found is None:
        return ""
    line = found.fragment.removeprefix("L").partition(":")[0].partition("-")[0]
    return unquote(found.path) + (f":{line}" if line.isdigit() else "")


def _bytes(data: str, most: int) -> bytes:
    try:
        found = a2b_base64(data, strict_mode=True)
    except ValueError:
        raise UsageError("the data of an image or a resource is no base64") from None
    if len(found) > most:
        raise UsageError(f"an image or a resource is larger than {most >> 20} MB")
    return found
