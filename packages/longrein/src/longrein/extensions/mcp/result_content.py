"""Content of MCP servers as parts of a result: text, images, structured data, resources. Without
the SDK.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longrein.tools.text_encoding import clean_text
from longrein.tools.tool_port import Blobs, Outcome
from longrein_context.events import AnyPart, Document, Image, Text
from longrein_context.events.image_header import image_info

IMAGE_BYTES_MAX = 10 << 20
PARTS_MAX = 100
"""Parts of one result; more are counted."""

Data = Mapping[str, Any]


def outcome_of(result: Data, blobs: Blobs, chars_max: int) -> Outcome:
    """Return the outcome of a call from a `CallToolResult` as JSON data; longer texts are shown
    by their ends.
    """
    content = result.get("content") or ()
    parts = parts_of(content, blobs)
    structured = result.get("structuredContent")
    if structured is not None and not any(isinstance(part, Text) for part in parts):
        parts = (
            Text(clean_text(msgspec.json.encode(structured).decode("utf-8", "replace"))),
            *parts,
        )
    failed = result.get("isError") is True
    if not parts:
        parts = (
            Text("[the server reported an error without a text]" if failed else "[no content]"),
        )
    shown = tuple(
        _shortened(part, blobs, chars_max) if isinstance(part, Text) else part for part in parts
    )
    return Outcome(shown, (), "failed" if failed else "ok")


def _shortened(part: Text, blobs: Blobs, chars_max: int) -> AnyPart:
    """Move a long text into a blob, keeping its two ends."""
    text = part.text
    if len(text) <= chars_max:
        return part
    data = text.encode("utf-8", "replace")
    head = chars_max * 2 // 5
    tail = chars_max * 3 // 5
    lines = text.count("\n") + (not text.endswith("\n"))
    return Document(
        blobs.put_blob(data), "text/plain", len(data), "result", lines, text[:head], text[-tail:]
    )


def parts_of(content: Sequence[Data], blobs: Blobs) -> tuple[AnyPart, ...]:
    """Return the parts of content blocks; neighbouring texts stay apart, as the server sent
    them.
    """
    parts: list[AnyPart] = []
    for block in content[:PARTS_MAX]:
        parts += _block(block, blobs)
    if len(content) > PARTS_MAX:
        parts.append(Text(f"[{len(content) - PARTS_MAX} more parts are left out]"))
    return tuple(parts)


def _block(block: Data, blobs: Blobs) -> list[AnyPart]:
    kind = block.get("type")
    if kind == "text":
        return [Text(clean_text(str(block.get("text", ""))))]
    if kind in ("image", "audio"):
        return _binary(str(block.get("data", "")), str(block.get("mimeType", "")), str(kind), blobs)
    if kind == "resource":
        return resource_parts(block.get("resource") or {}, blobs)
    if kind == "resource_link":
        named = " ".join(str(block.get(key) or "") for key in ("name", "description")).strip()
        return [Text(clean_text(f"[resource {block.get('uri')}: {named}]"[:2_000]))]
    return [Text(f"[content of the unknown type {clean_text(str(kind))[:40]}]")]


def resource_parts(resource: Data, blobs: Blobs) -> list[AnyPart]:
    """Return the parts of the contents of one resource."""
    uri = clean_text(str(resource.get("uri", "")))[:500]
    if "text" in resource:
        return [Text(f"[resource {uri}]\n{clean_text(str(resource['text']))}")]
    media = str(resource.get("mimeType") or "application/octet-stream")
    return _binary(str(resource.get("blob", "")), media, f"resource {uri}", blobs)


def _binary(data: str, media: str, name: str, blobs: Blobs) -> list[AnyPart]:
    """Return an image as such, other binary content as a note with its handle."""
    try:
        found = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return [Text(f"[{name}: its data is no base64]")]
    media, info = clean_text(media)[:80], image_info(found)
    if info is None and found:
        blob = blobs.put_blob(found)
        return [Document(blob, media or "application/octet-stream", len(found), name)]
    problem = "empty"
    if info is not None:
        if info.is_whole and len(found) <= IMAGE_BYTES_MAX:
            return [Image(blobs.put_blob(found), info.media, len(found), info.width, info.height)]
        problem = "too large" if info.is_whole else "broken, its header has no width and height"
    return [Text(f"[{name}, {media}, {len(found):,} bytes: {problem}]")]


# --- What a server printed ------------------------------------------------------------------------

_ERROR = re.compile(
    r"(?:[\w.]+\.)?\w*(?:Error|Exception)\b(?: \[\w+\])?:|(?:npm )?(?:error|ERR!|fatal)\b"
)


def error_line(text: str) -> str:
    """Return the line of what a program printed that names its error, not the last one of its
    trace; '' for nothing printed.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _ERROR.match(line)]
    return next(iter([*reversed(named), *reversed(lines)]), "")
