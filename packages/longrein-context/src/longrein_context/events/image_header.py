"""Type and sides of an image, from its header. Pure.

A picture whose header cannot be read is never sent: a provider would refuse the request.
"""

import msgspec


class ImageInfo(msgspec.Struct, frozen=True):
    """Type and size of an image that a model can view."""

    media: str
    """Media type."""
    width: int
    """Pixels; 0 when the header is broken."""
    height: int
    """Pixels; 0 when the header is broken."""

    @property
    def is_whole(self) -> bool:
        """True if the header says both sides."""
        return self.width > 0 and self.height > 0


def image_info(data: bytes) -> ImageInfo | None:
    """Return type and pixel size of a PNG, JPEG, GIF or WebP image, from its header; None for
    anything else.
    """
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        has_header = data[12:16] == b"IHDR"
        sides = (big_endian(data, 16, 4), big_endian(data, 20, 4)) if has_header else (0, 0)
        return ImageInfo("image/png", *sides)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return ImageInfo("image/gif", little_endian(data, 6, 2), little_endian(data, 8, 2))
    if data.startswith(b"\xff\xd8\xff"):
        return ImageInfo("image/jpeg", *jpeg_size(data))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return ImageInfo("image/webp", *webp_size(data))
    return None


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Return width and height from the first frame header (SOF0 to SOF15 without DHT, JPG and
    DAC).
    """
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        mark = data[at + 1]
        if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            return big_endian(data, at + 7, 2), big_endian(data, at + 5, 2)
        if mark == 0xFF:
            at += 1
        elif mark == 1 or 0xD0 <= mark <= 0xD7:
            at += 2
        else:
            at += 2 + big_endian(data, at + 2, 2)
    return 0, 0


def webp_size(data: bytes) -> tuple[int, int]:
    """Return width and height from a lossy, lossless or extended WebP header."""
    kind = data[12:16]
    if len(data) < (25 if kind == b"VP8L" else 30):
        return 0, 0
    if kind == b"VP8X":
        return little_endian(data, 24, 3) + 1, little_endian(data, 27, 3) + 1
    if kind == b"VP8L":
        bits = little_endian(data, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return (
        (little_endian(data, 26, 2) & 0x3FFF, little_endian(data, 28, 2) & 0x3FFF)
        if kind == b"VP8 "
        else (0, 0)
    )


def big_endian(data: bytes, at: int, size: int) -> int:
    """Return a big-endian number; 0 behind the end."""
    return int.from_bytes(data[at : at + size], "big") if at + size <= len(data) else 0


def little_endian(data: bytes, at: int, size: int) -> int:
    """Return a little-endian number; 0 behind the end."""
    return int.from_bytes(data[at : at + size], "little") if at + size <= len(data) else 0
