"""What a provider counted, in the many spellings of providers and of the libraries over them."""

from collections.abc import Mapping
from typing import Any

from longrein.events import Usage

_WRAPPED = ("usage", "usage_metadata")
_CACHED = ("prompt_tokens_details", "input_tokens_details", "input_token_details")


def usage_of(reply: Any) -> Usage | None:
    """The usage in `reply`: an answer that holds it, or the usage itself, as dict or object; None without."""
    for name in _WRAPPED:
        inner = _get(reply, name)
        if inner is not None and not isinstance(inner, int | str) and not callable(inner):
            return usage_of(inner)
    given = _number(reply, "prompt_tokens", "input_tokens")
    if given is None:
        return None
    output = _number(reply, "completion_tokens", "output_tokens") or 0
    apart = _number(reply, "cache_read_input_tokens")
    written = _number(reply, "cache_creation_input_tokens") or 0
    if apart is not None or written:  # Anthropic counts what was cached beside the input
        return Usage(given, apart or 0, written, output)
    details = next((found for name in _CACHED if (found := _get(reply, name)) is not None), reply)
    read = _number(details, "cached_tokens", "cache_read", "cache_read_tokens") or 0
    written = _number(details, "cache_creation", "cache_write_tokens") or 0
    return Usage(max(0, given - read - written), read, written, output)


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _number(value: Any, *names: str) -> int | None:
    for name in names:
        found = _get(value, name)
        if isinstance(found, int):
            return found
    return None
