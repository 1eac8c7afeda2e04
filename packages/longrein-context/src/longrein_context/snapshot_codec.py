"""Snapshot encoding: the folded state with the clearing policy's memory, as bytes.

A snapshot only saves time. A reader that cannot decode it folds the log instead. The format holds
only values that the fold and the policy made.
"""

import msgspec

from longrein_context.state.state import State

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)
LENGTH_BYTES = 8
"""Size of the length field. Layout: length of the memory, memory, state, in one buffer, since
both may be megabytes.
"""


def encode_state(state: State) -> bytearray:
    """Encode `state`; empty if it holds values that no log can have."""
    memo, data = state.worth, bytearray(LENGTH_BYTES)
    try:
        if memo is not None:
            from longrein_context.clear_items import encode_memory

            encode_memory(state, data)
        data[:LENGTH_BYTES] = (len(data) - LENGTH_BYTES).to_bytes(LENGTH_BYTES)
        state.worth = None
        _encoder.encode_into(state, data, -1)
    except (OverflowError, RecursionError, TypeError, UnicodeError):
        return bytearray()
    finally:
        state.worth = memo
    return data


def decode_state(data: bytes | bytearray) -> State | None:
    """Decode a state; None if the format differs."""
    start = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES])
    view = memoryview(data)
    try:
        state = _decoder.decode(view[start:])
        if start > LENGTH_BYTES:
            from longrein_context.clear_items import decode_memory

            state.worth = decode_memory(state, view[LENGTH_BYTES:start])
    except (msgspec.DecodeError, RecursionError, IndexError):
        return None
    return state
