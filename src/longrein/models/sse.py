"""Server-sent events from a byte stream, wherever the network cuts it.

Only `data` matters to the four wires, each of which repeats the event's name inside its JSON. One pass over each byte,
no decoding: the payloads go to a typed JSON decoder as they are.
"""

EVENT_BYTES_MAX = 32 << 20
"""One event: a picture in base64, or a whole response said once more at its end, is the longest that is known."""
_BOM = b"\xef\xbb\xbf"
"""May stand before the first event; data never begins with it."""


class EventTooLong(ValueError):
    """More than `EVENT_BYTES_MAX` came without the end of an event."""


class Splitter:
    """Takes bytes as they arrive and gives the payloads of the events that are complete."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        """Of the event that is not complete: all but its last byte, if that may be half of an end."""
        self._held_bytes = 0
        self._edge = b""
        """That byte, with a line end of which only half has come."""

    @property
    def rest(self) -> bytes:
        """What has come of the event that is not complete."""
        return b"".join((*self._held, self._edge))

    def feed(self, chunk: bytes) -> list[bytes]:
        """Payloads of the events that end in `chunk`. Events without data (comments, pings) give none.

        Raises `EventTooLong`.
        """
        text = self._edge + chunk if self._edge else chunk
        half = b""
        if b"\r" in text:
            if text.endswith(b"\r"):  # half of a \r\n, or a whole line end: the next byte will tell
                text, half = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events = text.split(b"\n\n")
        rest = events.pop()
        if events and self._held:
            events[0] = b"".join((*self._held, events[0]))
            self._held, self._held_bytes = [], 0
        self._hold(rest, half)
        return [payload for event in events if (payload := _data(event))]

    def _hold(self, rest: bytes, half: bytes) -> None:
        self._edge = b"\n" + half if rest.endswith(b"\n") else half
        if kept := rest.removesuffix(b"\n"):
            self._held.append(kept)
            self._held_bytes += len(kept)
            if self._held_bytes > EVENT_BYTES_MAX:
                raise EventTooLong

    def flush(self) -> list[bytes]:
        """What an event that lacks only its last line end holds; at the end of the stream."""
        events = self.feed(b"\n\n")
        self._held, self._held_bytes, self._edge = [], 0, b""
        return events


def _data(event: bytes) -> bytes:
    """The data of one event, its lines joined. The common shapes are one `data:` line, or `event:` and then `data:`."""
    first, found, data = event.partition(b"data: ")
    plain = not first or (first.startswith(b"event: ") and first.find(b"\n") == len(first) - 1)
    if found and plain and b"\n" not in data:
        return data
    lines = [line[5:].removeprefix(b" ") for line in event.removeprefix(_BOM).split(b"\n") if line.startswith(b"data:")]
    return lines[0] if len(lines) == 1 else b"\n".join(lines)
