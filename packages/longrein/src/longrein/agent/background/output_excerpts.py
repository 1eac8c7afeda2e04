"""Excerpts of a task's output: its end, the new part, or matching lines.

Memory use does not grow with the output.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from longrein.tools import clean
from longrein_context.events import ToolError
from longrein_context.events.escape import regular_expression

PIECE_BYTES = 256 * 1024
"""Bytes read at once."""
LINE_BYTES_MAX = 1_000
"""Bytes of one line that are searched or shown."""
PATTERN_CHARS_MAX = 500
"""A longer pattern is refused."""
REPEATS_MAX = 4
"""Open-ended repetitions in one pattern; more could take minutes on a long line."""

Pieces = Iterator[tuple[int, bytes]]
"""(offset in the whole output, bytes), in order; a gap was not kept."""


class Slice(msgspec.Struct, frozen=True):
    """An excerpt of an output."""

    text: str
    first_byte: int
    next_byte: int
    note: str = ""


def pieces(read: Callable[[int, int], tuple[int, bytes]], start: int) -> Pieces:
    """Yield the output from byte `start`, as `read(start, size)` gives it."""
    while True:
        at, data = read(start, PIECE_BYTES)
        if not data:
            return
        yield at, data
        start = at + len(data)


def last_lines(
    read: Callable[[int, int], tuple[int, bytes]], size: int, lines: int, most_bytes: int
) -> Slice:
    """Return the last `lines` of `size` printed bytes, at most about `most_bytes`."""
    start = max(0, size - most_bytes)
    kept = b""
    first = start
    end = start
    for at, data in pieces(read, start):
        if at > end and kept:
            kept = b""  # after a gap, drop what came before
        first = at if not kept else first
        kept += data
        end = at + len(data)
    shown, left_out = _tail(kept, lines, whole=first == 0)
    note = "earlier output is not shown" if left_out or first else ""
    return Slice(clean(shown), end - len(shown), end, note)


def _tail(data: bytes, lines: int, *, whole: bool) -> tuple[bytes, bool]:
    """Return the last `lines` of `data`, and True if some is left out. Without `whole` it begins
    inside a line.
    """
    end = len(data) - 1 if data.endswith(b"\n") else len(data)
    at = end
    for _ in range(lines):
        at = data.rfind(b"\n", 0, max(at, 0))
        if at < 0:
            break
    if at >= 0:
        return data[at + 1 :], True
    cut = 0 if whole else data.find(b"\n", 0, max(len(data) - 1, 0)) + 1
    return data[cut:], cut > 0


def since(read: Callable[[int, int], tuple[int, bytes]], start: int, most_bytes: int) -> Slice:
    """Return the output from byte `start`, at most `most_bytes`; whole lines where possible."""
    at, data = read(start, most_bytes)
    if not data:
        return Slice("", start, start, "nothing new")
    if len(data) == most_bytes:
        data = data[: data.rfind(b"\n") + 1] or data
    gap = f"bytes {start} to {at} were not kept" if at > start else ""
    return Slice(clean(data), at, at + len(data), gap)


async def matching(found: Pieces, pattern: str, most_bytes: int) -> Slice:
    """Return the newest lines that match `pattern`, with their numbers and count.

    Yields to the event loop after each piece. Raises `ToolError` for an invalid or possibly endless
    pattern.
    """
    wanted, reader = compile_pattern(pattern), LineReader()
    shown: deque[str] = deque()
    size = count = 0

    def look(lines: Iterator[tuple[int, bytes]]) -> None:
        nonlocal size, count
        for number, line in lines:
            text = clean(line)
            if wanted.search(text) is None:
                continue
            count += 1
            shown.append(f"{number}: {text}")
            size += len(shown[-1]) + 1
            while size > most_bytes and len(shown) > 1:
                size -= len(shown.popleft()) + 1

    for at, data in found:
        look(reader.feed(at, data))
        await asyncio.sleep(0)
    look(reader.rest())
    words = [f"the newest {len(shown)} of {count} matching lines"] * (len(shown) < count)
    words += ["line numbers leave out what was not kept"] * reader.gap
    return Slice("\n".join(shown), 0, reader.end, "; ".join(words) if count else "no line matches")


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern. Raises `ToolError` when it is invalid or could take too long."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise ToolError(
            f"[bad-pattern] The pattern has {len(pattern)} characters, at most "
            f"{PATTERN_CHARS_MAX} work: search for a part of it."
        )
    plain = re.sub(r"\\.|\[[^\]]*\]", "x", pattern)
    if re.search(r"\)[*+{]|[*+}][*+{]", plain) or len(re.findall(r"[*+]|,\}", plain)) > REPEATS_MAX:
        raise ToolError(
            f"[bad-pattern] A repeated group, or more than {REPEATS_MAX} repetitions, might take "
            "for ever: "
            "search for the words themselves."
        )
    try:
        return regular_expression(pattern)
    except re.error as error:
        raise ToolError(
            f"[bad-pattern] {pattern!r} is no regular expression: {error}. Correct the pattern."
        ) from None


class LineReader:
    """Split an output that comes in pieces into lines. The rest of a very long line is dropped."""

    def __init__(self) -> None:
        self.end = 0
        """Offset after the last byte that was fed."""
        self.gap = False
        """True if bytes between two pieces were not kept."""
        self._held, self._number = b"", 1

    def feed(self, at: int, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (number, line) of the lines that are complete now."""
        self.gap = self.gap or at > self.end
        self.end = at + len(data)
        first, *more = data.split(b"\n")
        self._held = (self._held + first)[:LINE_BYTES_MAX]
        for line in more:
            yield self._number, self._held
            self._number, self._held = self._number + 1, line[:LINE_BYTES_MAX]

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """Yield the last line if it has no line end."""
        if self._held:
            yield self._number, self._held
