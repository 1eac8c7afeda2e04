"""What a picture really is, from the first bytes of its base64: kind and size, without decoding it whole."""

import struct
from base64 import b64decode
from binascii import Error

import msgspec

HEAD_CHARS = 400_000
"""Base64 characters that are looked at: a JPEG may carry a long preview before its size."""


class Picture(msgspec.Struct, frozen=True):
    """One picture of a request."""

    media: str
    """As its bytes say; empty: no picture at all."""
    width: int
    """Pixels; 0: unknown."""
    height: int
    """Pixels; 0: unknown."""
    base64_bytes: int
    """Length of its base64, which is what providers count."""


def look_at(data: str) -> Picture:
    """The picture in base64 `data`."""
    try:
        head = b64decode(data[: HEAD_CHARS // 4 * 4] if len(data) > HEAD_CHARS else data, validate=True)
    except (Error, ValueError):
        return Picture("", 0, 0, len(data))
    media, width, height = _sniff(head)
    return Picture(media, width, height, len(data))


def _sniff(head: bytes) -> tuple[str, int, int]:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR" and len(head) >= 24:
        return ("image/png", *struct.unpack(">II", head[16:24]))
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return ("image/gif", *struct.unpack("<HH", head[6:10]))
    if head[:2] == b"\xff\xd8":
        return ("image/jpeg", *_jpeg(head))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return ("image/webp", *_webp(head))
    return ("", 0, 0)


def _jpeg(head: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 2 + length
    return 0, 0


def _webp(head: bytes) -> tuple[int, int]:
    if head[12:16] == b"VP8X" and len(head) >= 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if head[12:16] == b"VP8L" and len(head) >= 25:
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if head[12:16] == b"VP8 " and len(head) >= 30:
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def split_data_url(url: str) -> tuple[str, str]:
    """(media type, base64) of a `data:` URL; ('', '') for another."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return "", ""
    return head[5:-7], data
