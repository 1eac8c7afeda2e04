"""From events to writes on the socket, with what goes wrong on the way."""

import msgspec

from longrein.testing.loopback.script import Fault, Turn

GARBAGE = "data: {this is not JSON\n\n"


class Delivery(msgspec.Struct):
    """Writes, then how it ends."""

    writes: list[bytes]
    """Parts of the body, each written by itself."""
    ending: str = "end"
    """`end` (a proper end of the body), `reset`, `close` or `stall`."""
    rest: list[bytes] = []
    """`stall`: what comes after the silence; then the body ends properly."""
    whole: bool = True
    """Whether the client gets every word, if it is patient."""


def deliver(turn: Turn, fault: Fault | None, events: list[bytes], error: bytes) -> Delivery:
    """How `events` reach the client. `error` is an error event of the wire, for a fault of that kind."""
    kind = fault.kind if fault is not None else ""
    match fault:
        case Fault(kind="garbage"):
            line = GARBAGE if fault.body is None else fault.body
            events = [*events[: fault.at], line.encode("utf-8", "surrogateescape"), *events[fault.at :]]
        case Fault(kind="error"):
            events = [*events[: fault.at], error]
        case Fault(kind="no_end"):
            events = events[:-1]
        case Fault(kind="drip"):
            return Delivery(_sliced(b"".join(events), fault.bytes))
    writes = _batched(events, turn.batch)
    if fault is None or kind not in ("cut", "stall"):
        return Delivery(writes, whole=kind not in ("error", "empty"))
    before, rest = _split(writes, fault.at)
    if kind == "stall":
        return Delivery(before, "stall", rest)
    return Delivery(before, fault.how, whole=not rest)


def _sliced(data: bytes, size: int) -> list[bytes]:
    size = max(1, size)
    return [data[at : at + size] for at in range(0, len(data), size)]


def _batched(events: list[bytes], batch: int) -> list[bytes]:
    if batch == 1:
        return events
    size = batch or len(events) or 1
    return [b"".join(events[at : at + size]) for at in range(0, len(events), size)]


def _split(writes: list[bytes], at: int) -> tuple[list[bytes], list[bytes]]:
    """`writes` up to byte `at` and from there on."""
    before: list[bytes] = []
    for n, data in enumerate(writes):
        if at < len(data):
            return [*before, data[:at]] if at else before, [data[at:], *writes[n + 1 :]]
        before.append(data)
        at -= len(data)
    return before, []
