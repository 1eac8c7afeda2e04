"""Limit on the nesting depth of JSON, so that recursive code cannot fail on a value.

Values from outside (arguments of calls, old logs) are checked once on entry. longrein itself needs
a few levels; the JSON library fails at about a thousand, fewer when it is called from deep code.
"""

import re
from typing import Any

import msgspec

DEPTH_MAX = 100  # Maximum levels of nested lists and objects
TOO_DEEP = f"it is nested deeper than {DEPTH_MAX} levels"  # Error for a deeper value
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_decode = msgspec.json.Decoder().decode


def is_too_deep(value: object) -> bool:
    """Return True if lists and objects in `value` are nested deeper than `DEPTH_MAX`. Not
    recursive.
    """
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(DEPTH_MAX):
        inner: list[Any] = []
        for one in level:
            values = one.values() if isinstance(one, dict) else one
            inner += [value for value in values if isinstance(value, list | dict)]
        if not inner:
            return False
        level = inner
    return True


def decode_json(text: str | bytes) -> Any:
    """Decode JSON. Raises `msgspec.DecodeError` for invalid text and for a value that is nested
    too deep.
    """
    try:
        value = _decode(text)
    except RecursionError:
        raise msgspec.DecodeError(TOO_DEEP) from None
    except UnicodeError as error:
        raise msgspec.DecodeError(str(error)) from None
    if is_too_deep(value):
        raise msgspec.DecodeError(TOO_DEEP)
    return value


def decode_object(text: str | bytes) -> dict[str, Any] | None:
    """Decode a JSON object; None for invalid text and for any other value."""
    try:
        value = decode_json(text)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def flattened(data: bytes, levels: int) -> bytes:
    """Replace each list and object below `levels` others in JSON `data` by its text, as a
    string.
    """
    out: list[bytes] = []
    depth = done = start = 0
    for token in _TOKEN.finditer(data):
        match data[token.start()]:
            case 0x5B | 0x7B:  # [ {
                depth += 1
                if depth == levels + 1:
                    start = token.start()
            case 0x5D | 0x7D:  # ] }
                depth -= 1
                if depth == levels:
                    text = data[start : token.end()].decode("utf-8", "replace")
                    out += [data[done:start], msgspec.json.encode(text)]
                    done = token.end()
    return b"".join([*out, data[done:]])
