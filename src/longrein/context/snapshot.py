"""The folded state as bytes and back, the clearing policy's memory included.

A snapshot is a shortcut: what it holds follows from the log, and whoever reads one that cannot be understood folds the
log instead. Only values that the fold and the policy made are in it, in a format that can hold nothing else.
"""

import importlib

import msgspec

from longrein.context.state import State

CLEARING = "longrein.context.clearing"


class _Saved(msgspec.Struct, array_like=True):
    state: State
    memory: bytes
    """Of the clearing policy; empty where it remembers nothing."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Saved)


def encode_state(state: State) -> bytes:
    """`state` as bytes; b"" for one that holds what no log could."""
    memo = state.worth
    try:
        memory = importlib.import_module(CLEARING).encode_memory(state) if memo is not None else b""
        state.worth = None
        return _encoder.encode(_Saved(state, memory))
    except (OverflowError, RecursionError, TypeError, UnicodeError):
        return b""
    finally:
        state.worth = memo


def decode_state(data: bytes) -> State | None:
    """The state in `data`; None where it is of another form."""
    try:
        saved = _decoder.decode(data)
        if saved.memory:
            saved.state.worth = importlib.import_module(CLEARING).decode_memory(saved.state, saved.memory)
    except (msgspec.DecodeError, RecursionError, IndexError):
        return None
    return saved.state
