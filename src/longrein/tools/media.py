"""What a file that is not text is: by its first bytes, never by its name."""

import msgspec

MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "ELF program"),
    (b"\xfe\xed\xfa", "Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (b"MZ", "Windows program"),
    (b"PK\x03\x04", "ZIP archive (also docx, xlsx, jar, whl)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf", "7-Zip archive"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\0asm", "WebAssembly"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"RIFF", "RIFF media"),
    (b"\0\0\0 ftyp", "MP4 media"),
    (b"BM", "BMP image"),
    (b"II*\0", "TIFF image"),
    (b"MM\0*", "TIFF image"),
    (b"\x80\x04\x95", "Python pickle"),
    (b"\x93NUMPY", "NumPy array"),
    (b"wOF", "web font"),
)


class Picture(msgspec.Struct, frozen=True):
    """An image a model can look at."""

    media: str
    """Media type."""
    width: int
    """Pixels; 0 when the header does not say."""
    height: int
    """Pixels; 0 when the header does not say."""


def binary_kind(data: bytes) -> str:
    """A word for binary content, `binary data` when its first bytes are unknown."""
    return next((kind for magic, kind in MAGIC if data.startswith(magic)), "binary data")


def is_pdf(data: bytes) -> bool:
    """Whether it is a PDF document."""
    return data.startswith(b"%PDF-")


def picture(data: bytes) -> Picture | None:
    """Type and size in pixels of a PNG, JPEG, GIF or WebP image, from its header; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return Picture("image/png", number(data, 16, 4), number(data, 20, 4))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return Picture("image/gif", little(data, 6, 2), little(data, 8, 2))
    if data.startswith(b"\xff\xd8\xff"):
        return Picture("image/jpeg", *jpeg_size(data))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return Picture("image/webp", *webp_size(data))
    return None


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height from the first frame header (SOF0 to SOF15 without DHT, JPG and DAC)."""
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        mark = data[at + 1]
        if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            return number(data, at + 7, 2), number(data, at + 5, 2)
        at += 1 if mark == 0xFF else 2 if mark == 1 or 0xD0 <= mark <= 0xD7 else 2 + number(data, at + 2, 2)
    return 0, 0


def webp_size(data: bytes) -> tuple[int, int]:
    """Width and height from a lossy, lossless or extended WebP header."""
    kind = data[12:16]
    if kind == b"VP8X":
        return little(data, 24, 3) + 1, little(data, 27, 3) + 1
    if kind == b"VP8L":
        bits = little(data, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return (little(data, 26, 2) & 0x3FFF, little(data, 28, 2) & 0x3FFF) if kind == b"VP8 " else (0, 0)


def number(data: bytes, at: int, size: int) -> int:
    """Big-endian number."""
    return int.from_bytes(data[at : at + size], "big")


def little(data: bytes, at: int, size: int) -> int:
    """Little-endian number."""
    return int.from_bytes(data[at : at + size], "little")
