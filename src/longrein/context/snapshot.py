"""The folded state as bytes and back, the clearing policy's memory included.

A snapshot is a shortcut: what it holds follows from the log, and whoever reads one that cannot be understood folds the
log instead. Only values that the fold and the policy made are in it, in a format that can hold nothing else.
"""

import msgspec

from longrein.context.clear_items import decode_memory, encode_memory
from longrein.context.state.state import State

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)
LENGTH_BYTES = 8
"""The length of the policy's memory stands first, then the memory, then the state: written into one buffer, since
there may be megabytes of each."""


def encode_state(state: State) -> bytearray:
    """`state` as bytes; none for one that holds what no log could."""
    memo, data = state.worth, bytearray(LENGTH_BYTES)
    try:
        if memo is not None:
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
    """The state in `data`; None where it is of another form."""
    start = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES])
    view = memoryview(data)
    try:
        state = _decoder.decode(view[start:])
        if start > LENGTH_BYTES:
            state.worth = decode_memory(state, view[LENGTH_BYTES:start])
    except (msgspec.DecodeError, RecursionError, IndexError):
        return None
    return state
