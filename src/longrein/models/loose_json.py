"""Reading JSON that is almost right: a provider's event with half a surrogate pair, bytes that are no UTF-8, or counts
written as 12.0."""

from typing import Any

import msgspec

LOOSE_BYTES_MAX = 4 << 20
"""Longer ones are not tried: read without types they would take tens of times their size."""
NOT_READABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a typed decoder raises for bytes from outside."""


def loosened(payload: bytes) -> bytes | None:
    """`payload` as strict JSON: U+FFFD for what cannot be carried, 12 for 12.0. None if it is no JSON at all."""
    import json

    if len(payload) > LOOSE_BYTES_MAX:
        return None
    try:
        value = json.loads(payload.decode("utf-8", "replace"))
        return msgspec.json.encode(_clean(value))
    except (ValueError, RecursionError):
        return None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
