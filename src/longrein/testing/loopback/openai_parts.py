"""What the two OpenAI wires agree on: pictures as data URLs, arguments as text, names."""

import re
from typing import Any

import msgspec

from longrein.testing.loopback.images import Picture, look_at, split_data_url

IMAGE_BYTES_MAX = 20 * 1024 * 1024
"""Of one picture, in base64."""
IMAGES_MAX = 500
EMPTY = "empty array. Expected an array with minimum length 1, but got an empty array instead."
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAME_PATTERN = (
    "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."  # its own words
)
_MEDIA = ("image/png", "image/jpeg", "image/gif", "image/webp")


def pictures(urls: list[Any]) -> tuple[Picture, ...]:
    """The pictures among data URLs."""
    return tuple(look_at(data) for url in urls if isinstance(url, str) and (data := split_data_url(url)[1]))


def image_problem(url: Any) -> str:
    """What is wrong with the picture at `url`; empty for nothing."""
    if not isinstance(url, str):
        return "Missing required parameter: '{at}.image_url'."
    media, data = split_data_url(url)
    if not data:
        wrong = "Invalid '{at}.image_url': expected a base64-encoded data URL or an address."
        return "" if url.startswith("https://") else wrong
    picture = look_at(data)
    if picture.base64_bytes > IMAGE_BYTES_MAX:
        return "Image size exceeds the limit of 20MB."
    if picture.media not in _MEDIA or picture.media != media:
        return (
            "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
            "['png', 'jpeg', 'gif', 'webp']."
        )
    return ""


def is_object(text: Any) -> bool:
    """Whether `text` is a string that holds a JSON object."""
    try:
        return isinstance(text, str) and isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False


def too_long(at: str, text: str, limit: int) -> str:
    """The refusal of a string above `limit` characters; empty when it is not."""
    if len(text) <= limit:
        return ""
    told = f"Expected a string with maximum length {limit}, but got a string with length {len(text)} instead."
    return f"Invalid '{at}': string too long. {told}"
