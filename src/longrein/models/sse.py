"""Server-sent events from a byte stream, wherever the network cuts it.

Only `data` matters to the four wires, each of which repeats the event's name inside its JSON. One pass over each byte,
no decoding: the payloads go to a typed JSON decoder as they are.
"""

_BOM = b"\xef\xbb\xbf"
"""May stand before the first event; data never begins with it."""


class Splitter:
    """Takes bytes as they arrive and gives the payloads of the events that are complete."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Payloads of the events that end in `chunk`. Events without data (comments, pings) give none."""
        text = self._rest + chunk if self._rest else chunk
        held = b""
        if b"\r" in text:
            if text.endswith(b"\r"):  # half of a \r\n, or a whole line end: the next byte will tell
                text, held = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events = text.split(b"\n\n")
        self._rest = events.pop() + held
        return [payload for event in events if (payload := _data(event))]

    def flush(self) -> list[bytes]:
        """What an event that lacks only its last line end holds; at the end of the stream."""
        events, self._rest = self.feed(b"\n\n"), b""
        return events


def _data(event: bytes) -> bytes:
    """The data of one event, its lines joined. The common shapes are one `data:` line, or `event:` and then `data:`."""
    first, found, data = event.partition(b"data: ")
    plain = not first or (first.startswith(b"event: ") and first.find(b"\n") == len(first) - 1)
    if found and plain and b"\n" not in data:
        return data
    lines = [line[5:].removeprefix(b" ") for line in event.removeprefix(_BOM).split(b"\n") if line.startswith(b"data:")]
    return lines[0] if len(lines) == 1 else b"\n".join(lines)
