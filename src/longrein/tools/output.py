"""A command's output while it runs: kept whole in a blob when it grows, both ends in memory, memory flat."""

from collections.abc import Callable, Iterator

from longrein.events import AnyPart, Document, Text
from longrein.store import BlobWriter
from longrein.tools.port import Hands
from longrein.tools.text import clean, cut_head, cut_tail

SLACK = 4
"""The tail may grow to this many times its size before it is cut, so that cutting costs little."""


class Output:
    """A sink for one command (`workspace.Printout`). `parts` ends it."""

    def __init__(self, hands: Hands) -> None:
        self.size_bytes = 0
        self.lines = 0
        self._options = hands.options
        self._note: Callable[[bytes], None] = hands.note
        self._new_blob = hands.blobs.new_blob
        self._start = bytearray()
        self._tail = bytearray()
        self._writer: BlobWriter | None = None
        self._spilled = False
        self._lost: OSError | None = None

    def write(self, data: bytes) -> None:
        """Take more output. Never raises: what cannot be kept is counted and said."""
        self.size_bytes += len(data)
        if not self._spilled and self.size_bytes <= self._options.output_inline_bytes:
            self._start += data
        else:
            self._spill(data)
        self._note(data)

    def _spill(self, data: bytes) -> None:
        if not self._spilled:
            self._spilled = True
            data = bytes(self._start) + data
            self._start = bytearray(data[: self._options.head_bytes + 1])
        self.lines += data.count(b"\n")
        self._keep_tail(data)
        try:
            self._keep(data)
        except OSError as error:
            self._lost = error

    @property
    def lost(self) -> str:
        """Why the rest of the output could not be kept (a full disk); '' when all was."""
        return "" if self._lost is None else self._lost.strerror or str(self._lost)

    def _keep(self, data: bytes) -> None:
        if self._lost is not None:
            return
        if self._writer is None:
            self._writer = self._new_blob()
        self._writer.write(data)

    def _keep_tail(self, data: bytes) -> None:
        most = self._options.tail_bytes + 1
        self._tail += data[-most:]
        if len(self._tail) > SLACK * most:
            del self._tail[:-most]

    def parts(self, name: str, note: str) -> tuple[AnyPart, ...]:
        """The output as content, with `note` (how the command ended; may be empty) after it."""
        if not self._spilled:
            return (Text("\n".join(filter(None, (self._text(), note))) or "(no output)"),)
        head = clean(cut_head(bytes(self._start), self._options.head_bytes))
        tail = clean(cut_tail(bytes(self._tail), self._options.tail_bytes))
        blob = self._finish()
        if self.lost:
            note = "\n".join(filter(None, (f"[the output was not kept whole: {self.lost}]", note)))
        if not blob:
            return (Text(f"{head}\n[…]\n{tail}\n{note}"),)
        lines = self.lines + (0 if self._tail.endswith(b"\n") else 1)
        document = Document(blob, "text/plain", self.size_bytes, name, lines, head, tail)
        return (document, Text(note)) if note else (document,)

    @property
    def raw(self) -> bytes:
        """The output byte for byte, where `parts` gives less: of what fits into one text, and is cleaned for it."""
        raw = b"" if self._spilled else bytes(self._start)
        return b"" if raw == self._text().encode() else raw

    def _text(self) -> str:
        """What did not spill, as safe text."""
        return clean(bytes(self._start)).rstrip("\n")

    def pieces(self) -> Iterator[bytes]:
        """See `workspace.Printout`: for a command that goes on elsewhere."""
        if self._writer is not None:
            yield from self._writer.pieces()
        elif not self._spilled:
            yield bytes(self._start)
        if self._lost is not None:
            raise self._lost

    def so_far(self) -> str:
        """What has come, or its end, of a command that goes on elsewhere: there all of it is kept, so not here."""
        if self._writer is not None:
            self._writer.discard()
            self._writer = None
        kept = cut_tail(bytes(self._tail), self._options.tail_bytes) if self._spilled else bytes(self._start)
        text = clean(kept).rstrip("\n")
        return f"[its end so far; TaskOutput shows more]\n{text}" if self._spilled else text

    def _finish(self) -> str:
        if self._writer is None:
            return ""
        try:
            return self._writer.finish()
        except OSError as error:
            self._lost = error
            return ""
