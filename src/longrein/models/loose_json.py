"""Reading JSON that is almost right: a provider's event with half a surrogate pair, bytes that are no UTF-8, counts
written as 12.0, or a usage that holds anything but counts."""

from typing import Any

import msgspec

from longrein.events import is_count

LOOSE_BYTES_MAX = 4 << 20
"""Longer ones are not tried: read without types they would take tens of times their size."""
NOT_READABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a typed decoder raises for bytes from outside."""


def loosened(payload: bytes) -> bytes | None:
    """`payload` as strict JSON: U+FFFD for what cannot be carried, 12 for 12.0, null for what is no count in a usage.

    None if it is no JSON at all.
    """
    import json

    if len(payload) > LOOSE_BYTES_MAX:
        return None
    try:
        value = _clean(json.loads(payload.decode("utf-8", "replace")))
        for holder in (value, *(value.get(name) for name in _HOLDERS)) if isinstance(value, dict) else ():
            for name in _USAGES:
                if isinstance(holder, dict) and name in holder:
                    holder[name] = _counts(holder[name])
        return msgspec.json.encode(value)
    except (ValueError, OverflowError, RecursionError):
        return None


_HOLDERS = ("message", "response")
"""Fields of an event beside the event itself that may hold a usage …"""
_USAGES = ("usage", "usageMetadata", "usage_metadata")
"""… under one of these names."""


def _counts(usage: Any) -> Any:
    """A usage with null for whatever is no count, and no table of details with counts."""
    if not isinstance(usage, dict):
        return None
    return {
        name: _counts(inner) if name.lower().endswith("details") else inner if is_count(inner) else None
        for name, inner in usage.items()
    }


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
