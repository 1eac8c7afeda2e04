"""Pages of stored content for `Recall`: lines by number, or characters of one line, with the range
of the next page.

The content may be larger than memory: it is read in pieces, and only the text of the page is kept
and decoded.
"""

import codecs
import itertools
import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from longrein.store import Content, SessionHistory, encoding_of
from longrein.tools.text_encoding import clean_text, counted, cut_head, size_words, visible
from longrein_context import ESCAPED_ENDS_MAX, is_escaped_line, unescape_lines
from longrein_context.events import ToolError

PAGE_LINES_MAX = 2_000
"""Lines of one page."""
ESCAPED_NOTE = ', split at the line ends that it escapes; as it is: lines="1:1-"'
PICTURES = {code: 0x2400 + code for code in (*range(9), 11, 12, *range(14, 32))} | {127: 0x2421}
"""Control characters and their visible replacements; line ends are kept."""


class PageRange(msgspec.Struct, frozen=True):
    """Requested lines or, with `char`, characters of one line. 1-based and inclusive; 0 is an
    open end.
    """

    first: int = 1
    last: int = 0
    char: int = 0
    char_last: int = 0


class Page(msgspec.Struct, frozen=True):
    """A page."""

    text: str
    """The lines."""
    span: str
    """Their range, in the form of the argument `lines`."""
    whole: str
    """Range and total, in words."""
    following: str
    """`lines` of the next page; '' at the end."""


def parse_range(text: str) -> PageRange:
    """Parse `100-200`, `100-`, `100` or `7:4001-8000`; '' is everything. Raises `ToolError`."""
    match = re.fullmatch(
        r"(?:(\d{1,9}):)?(\d{1,9})?(?:-(\d{1,9})?)?", text.strip().replace(" ", "")
    )
    if match is None or (match[1] and not match[2]):
        raise ToolError(
            '[bad-range] lines must look like "100-200", "100-" or "7:4001-8000", not '
            f"{text[:40]!r}."
        )
    line, first, last = (int(group or 0) for group in match.groups())
    if not text.strip():
        return PageRange()
    if "-" not in text:
        last = first
    if (last and last < first) or (match[2] and not first):
        raise ToolError("[bad-range] lines count from 1 and a range goes upwards.")
    return PageRange(line, line, first, last) if line else PageRange(max(first, 1), last)


def read_page(
    past: SessionHistory, contents: list[Content], wanted: PageRange, name: str, limit_bytes: int
) -> Page:
    """Return the page of `contents` that starts at `wanted`, at most `limit_bytes` long. `name` is
    for messages.

    Several contents follow each other, each under its title. One long line of JSON is shown by the
    line ends that it escapes; its characters are as they were stored. Raises `ToolError` when the
    line does not exist or the content is gone.
    """
    if wanted.char:
        return _page_of_line(_pieces(past, contents), wanted, name, limit_bytes)
    size_min = limit_bytes if wanted == PageRange() else 0
    escaped = len(contents) == 1 and _is_escaped_line(past, contents[0], size_min)
    lines = _LineCollector(wanted.first, wanted.last, limit_bytes)
    for piece, show in _pieces(past, contents, escaped):
        lines.feed(piece, show)
    total = lines.end()
    if wanted.first > total:
        raise ToolError(
            f"[past-end] {name} has only {counted(total, 'line')}: lines must begin at one of them."
        )
    if not lines.kept:
        start = PageRange(wanted.first, wanted.first, 1, 0)
        page = _page_of_line(_pieces(past, contents, escaped), start, name, limit_bytes)
        if not escaped:
            return page
        following = f"{wanted.first + 1}-" if wanted.first < total else ""
        return msgspec.structs.replace(page, whole=page.whole + ESCAPED_NOTE, following=following)
    end = wanted.first + len(lines.kept) - 1
    span, following = f"{wanted.first}-{end}", f"{end + 1}-" if end < total else ""
    whole = (
        f"lines {span} of {total}"
        if (wanted.first, end) != (1, total)
        else f"all of it: {counted(total, 'line')}"
    )
    return Page("\n".join(lines.kept), span, whole + ESCAPED_NOTE * escaped, following)


Show = Callable[[str], str]


def _control_pictures(text: str) -> str:
    return text.translate(PICTURES).removeprefix("\ufeff")


def _is_escaped_line(past: SessionHistory, content: Content, size_min: int) -> bool:
    size = ends = escaped = 0
    for piece in _bytes_of(past, content):
        size = size + len(piece)
        ends = ends + piece.count(b"\n")
        escaped = escaped + piece.count(b"\\n")
        if ends > ESCAPED_ENDS_MAX:
            return False
    return size > size_min and is_escaped_line(ends, escaped)


def _unescaped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces with their escaped line ends as line ends. An escape may be split over
    two pieces.
    """
    rest = b""
    for piece in pieces:
        whole = rest + piece
        odd = (len(whole) - len(whole.rstrip(b"\\"))) % 2
        rest = whole[len(whole) - odd :]
        yield unescape_lines(whole[: len(whole) - odd].decode("latin-1")).encode("latin-1")
    yield rest


def _pieces(
    past: SessionHistory, contents: list[Content], escaped: bool = False
) -> Iterator[tuple[bytes, Show]]:
    """Yield the text of `contents` in pieces, each with the function that makes its lines
    printable.

    `escaped`: escaped line ends become line ends.
    """
    for content in contents:
        if len(contents) > 1:
            yield f"--- {content.title} ---\n".encode(), str
        show = _display_of(content)
        piece = b""
        stored = _bytes_of(past, content)
        for piece in _unescaped(stored) if escaped else stored:
            yield piece, show
        if len(contents) > 1 and not piece.endswith(b"\n"):
            yield b"\n", show


def _display_of(content: Content) -> Show:
    if content.raw:
        return visible
    if not content.blob:
        return str
    if content.title == "content":
        return _control_pictures
    return clean_text


def _bytes_of(past: SessionHistory, content: Content) -> Iterator[bytes]:
    if not content.blob:
        yield content.text.encode("utf-8", "replace")
        return
    try:
        pieces = past.pieces(content.blob)
        first = next(pieces, b"")
    except KeyError:
        raise ToolError(
            f"[lost] The blob {content.blob[:12]} is not in this session's folder any more. "
            "Read its source again."
        ) from None
    encoding = encoding_of(first)
    every = itertools.chain((first,), pieces)
    yield from every if encoding == "utf-8" else _as_utf8(every, encoding)


def _as_utf8(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


class _LineCollector:
    """Collector of the wanted lines from pieces, as many as fit."""

    def __init__(self, first: int, last: int, limit_bytes: int) -> None:
        self.kept: list[str] = []
        """Collected lines, from `first` on."""
        self._first, self._last = first, last
        self._room = limit_bytes + 1
        self._number = 1
        self._open = bytearray()
        self._show: Show = str
        self._ended = True
        self._full = False

    def feed(self, piece: bytes, show: Show) -> None:
        """Add the next piece."""
        ends = piece.count(b"\n")
        if piece:
            self._ended = piece.endswith(b"\n")
        if not self._wanting() or self._number + ends < self._first:
            self._number += ends
            return
        start = 0
        while (end := piece.find(b"\n", start)) >= 0 and not self._full:
            self._add(piece, start, end)
            self._close(show)
            self._number += 1
            start = end + 1
        if end < 0:
            self._add(piece, start, len(piece))
            self._show = show
        else:
            self._number += piece.count(b"\n", start)

    def end(self) -> int:
        """Finish and return the number of lines."""
        if self._ended and self._number > 1:
            return self._number - 1
        if self._wanting():
            self._close(self._show)
        return self._number

    def _wanting(self) -> bool:
        return not self._full and (not self._last or self._number <= self._last)

    def _add(self, piece: bytes, start: int, end: int) -> None:
        if self._number >= self._first and self._wanting():
            self._open += piece[start : min(end, start + max(0, self._room + 4 - len(self._open)))]

    def _close(self, show: Show) -> None:
        if self._number < self._first or not self._wanting():
            return
        self._room -= len(self._open) + 1
        if self._room < 0 or len(self.kept) >= PAGE_LINES_MAX:
            self._full = True
        else:
            self.kept.append(show(self._open.decode("utf-8", "replace")))
        self._open.clear()


def _page_of_line(
    pieces: Iterable[tuple[bytes, Show]], wanted: PageRange, name: str, limit_bytes: int
) -> Page:
    """Return a page of one line that is longer than a page."""
    line = _CharCollector(
        wanted.first, wanted.char, min(limit_bytes, (wanted.char_last or 1 << 62) - wanted.char + 1)
    )
    for piece, show in pieces:
        line.feed(piece, show)
    total = line.end()
    if total < 0:
        raise ToolError(
            f"[past-end] {name} has only {counted(line.number, 'line')}: lines must begin "
            "at one of them."
        )
    if wanted.char > max(total, 1):
        raise ToolError(
            f"[past-end] line {wanted.first} of {name} has only "
            f"{counted(total, 'character')}: begin "
            "at one of them."
        )
    raw = cut_head(line.kept.encode("utf-8", "replace"), limit_bytes).decode("utf-8", "replace")
    end = wanted.char + len(raw) - 1
    size = size_words(len(raw.encode("utf-8", "replace")))
    whole = f"characters {wanted.char}-{end} of {total} of line {wanted.first} ({size})"
    if end < total:
        following = f"{wanted.first}:{end + 1}-"
    elif line.more:
        following = f"{wanted.first + 1}-"
    else:
        following = ""
    return Page(line.show(raw), f"{wanted.first}:{wanted.char}-{end}", whole, following)


class _CharCollector:
    """Collector of characters of one line from pieces."""

    def __init__(self, wanted: int, first: int, most: int) -> None:
        self.number = 1
        """Lines begun so far; after `end`, the number of lines."""
        self.more = False
        """True if another line follows."""
        self._ended = True
        self.show: Show = str
        self._kept: list[str] = []
        self._wanted = wanted
        self._skip = first - 1
        self._most = most
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._chars = 0

    @property
    def kept(self) -> str:
        """Collected characters."""
        return "".join(self._kept)

    def feed(self, piece: bytes, show: Show) -> None:
        """Add the next piece."""
        ends, start = piece.count(b"\n"), 0
        if piece:
            self._ended = piece.endswith(b"\n")
        if self.number <= self._wanted <= self.number + ends:
            self.show = show
            for _ in range(self._wanted - self.number):
                start = piece.find(b"\n", start) + 1
            end = piece.find(b"\n", start)
            self._take(self._decoder.decode(piece[start : end if end >= 0 else len(piece)]))
            start = end + 1 if end >= 0 else len(piece)
        self.number += ends
        if self.number > self._wanted and start < len(piece):
            self.more = True

    def end(self) -> int:
        """Finish and return the length of the line in characters; -1 when there is no such line."""
        self._take(self._decoder.decode(b"", final=True))
        self.number -= self._ended and self.number > 1
        return self._chars if self.number >= self._wanted else -1

    def _take(self, text: str) -> None:
        room = self._most - sum(map(len, self._kept))
        start = max(0, self._skip - self._chars)
        if room > 0 and start < len(text):
            self._kept.append(text[start : start + room])
        self._chars += len(text)
