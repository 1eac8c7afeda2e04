"""R025: type and size of an image from the first bytes of its base64."""

import struct
from base64 import b64encode

import pytest

from longrein.testing.loopback.validation import ImageInfo, inspect_image, split_data_url
from tests.testing.http_client import png

JPEG_START = b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + b"\0" * 9
SIZE = struct.pack(">HBHH", 17, 8, 480, 640)
PREVIEW = b"\xff\xe1" + struct.pack(">H", 65_000) + b"\0" * 64_998
VP8X = (
    b"RIFF\0\0\0\0WEBPVP8X"
    + struct.pack("<I", 10)
    + b"\0" * 4
    + (639).to_bytes(3, "little")
    + (479).to_bytes(3, "little")
)
VP8L = b"RIFF\0\0\0\0WEBPVP8L" + struct.pack("<I", 5) + b"\x2f" + struct.pack("<I", 639 | 479 << 14)
VP8 = b"RIFF\0\0\0\0WEBPVP8 " + struct.pack("<I", 9) + b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 640, 480)


@pytest.mark.parametrize(
    ("data", "media", "size"),
    [
        (b"GIF89a" + struct.pack("<HH", 640, 480), "image/gif", (640, 480)),
        (JPEG_START + b"\xff\xc0" + SIZE, "image/jpeg", (640, 480)),
        (JPEG_START + PREVIEW + b"\xff\xc2" + SIZE, "image/jpeg", (640, 480)),
        (JPEG_START, "image/jpeg", (0, 0)),
        (VP8X, "image/webp", (640, 480)),
        (VP8L, "image/webp", (640, 480)),
        (VP8, "image/webp", (640, 480)),
        (VP8[:20], "image/webp", (0, 0)),
        (b"<svg/>", "", (0, 0)),
        (b"", "", (0, 0)),
    ],
)
def test_kind_and_size(data: bytes, media: str, size: tuple[int, int]) -> None:
    text = b64encode(data).decode()
    assert inspect_image(text) == ImageInfo(media, *size, len(text))


def test_only_the_start_of_a_large_one_is_decoded() -> None:
    assert inspect_image(png(640, 480, 3_000_000)) == ImageInfo("image/png", 640, 480, 4_000_044)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("data:image/png;base64,aGk=", ("image/png", "aGk=")),
        ("data:image/png,aGk=", ("", "")),
        ("https://x/y.png;base64,aGk=", ("", "")),
        ("data:image/png;base64", ("", "")),
    ],
)
def test_a_data_url_and_what_is_none(url: str, parts: tuple[str, str]) -> None:
    assert split_data_url(url) == parts
