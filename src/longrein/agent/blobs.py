"""The session's blobs with secrets replaced at the door, as in every text of the log (law 4)."""

from collections.abc import Callable, Iterator, Sequence

from longrein.store import BlobWriter, Log

SHAPES_BYTES_MAX = 1024 * 1024
"""In longer content only known secrets are looked for: scanning for the shapes of tokens costs 4 ms a MB and more."""
LINE_BYTES_MAX = 64 * 1024
"""A longer line is scanned in pieces."""
_OF_TOKENS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_KEY, _KEY_END = b"-----BEGIN ", b"-----END "


class CleanBlobs:
    """What tools get in place of the log's own blobs."""

    def __init__(self, log: Log, redact: Callable[[str], str], secrets: Sequence[str]) -> None:
        self._log = log
        self._redact = redact
        self._known = [(secret.encode(), redact(secret).encode()) for secret in secrets if redact(secret) != secret]

    def put_blob(self, data: bytes) -> str:
        """Keep `data` without its secrets. The hash is of what was kept, so it tells whether anything was replaced."""
        clean = replaced(data, self._known)
        return self._log.put_blob(self._scanned(clean) if len(clean) <= SHAPES_BYTES_MAX else clean)

    def _scanned(self, data: bytes) -> bytes:
        """`data` without anything that has the shape of a secret; the same object when there is nothing."""
        text = data.decode("utf-8", "surrogateescape")
        safe = self._redact(text)
        return data if safe is text else safe.encode("utf-8", "surrogateescape")

    def read_blob(self, blob: str) -> bytes:
        """See `store.Log`."""
        return self._log.read_blob(blob)

    def blob_path(self, blob: str) -> str:
        """See `store.Log`."""
        return self._log.blob_path(blob)

    def new_blob(self) -> BlobWriter:
        """A blob that grows; secrets are replaced on the way, also where they come in two pieces."""
        return CleanWriter(self._log.new_blob(), self._known, self._scanned)


def replaced(data: bytes, known: Sequence[tuple[bytes, bytes]]) -> bytes:
    """`data` with each known secret replaced by its marker."""
    for secret, mark in known:
        if secret in data:
            data = data.replace(secret, mark)
    return data


class CleanWriter:
    """A growing blob; what could still become a secret with the next bytes is held back.

    The first MB is scanned line by line like any text; of what follows only known secrets are replaced.
    """

    def __init__(
        self, writer: BlobWriter, known: Sequence[tuple[bytes, bytes]], clean: Callable[[bytes], bytes]
    ) -> None:
        self._writer = writer
        self._known = known
        self._clean = clean
        self._held_bytes = max((len(secret) for secret, _ in known), default=1) - 1
        self._held = b""
        self._unscanned = SHAPES_BYTES_MAX

    @property
    def path(self) -> str:
        """See `store.BlobWriter`."""
        return self._writer.path

    @property
    def size_bytes(self) -> int:
        """Bytes so far."""
        return self._writer.size_bytes + len(self._held)

    def write(self, data: bytes) -> None:
        """Append; raises OSError (full disk)."""
        data = self._held + data if self._held else data
        if self._unscanned > 0:
            cut = _scannable(data)
            self._unscanned -= cut
            self._writer.write(self._clean(replaced(data[:cut], self._known)))
        else:
            data = replaced(data, self._known)
            cut = max(0, len(data) - self._held_bytes)
            self._writer.write(data[:cut])
        self._held = data[cut:]

    def pieces(self) -> Iterator[bytes]:
        """See `store.BlobWriter`. What is held back comes last, as it is."""
        yield from self._writer.pieces()
        yield self._held

    def finish(self) -> str:
        """Name it by its hash."""
        if self._held:
            self._writer.write(self._clean(replaced(self._held, self._known)))
        return self._writer.finish()

    def discard(self) -> None:
        """Forget it."""
        self._writer.discard()


def _scannable(data: bytes) -> int:
    """Where a part ends that cuts no secret in two: whole lines, and no key that has only begun.

    A very long line is cut at the end of a word, one that is all one word anywhere.
    """
    cut = data.rfind(b"\n") + 1
    key = data.rfind(_KEY, 0, cut)
    if key >= 0 and data.find(_KEY_END, key, cut) < 0:
        cut = key
    if len(data) - cut <= LINE_BYTES_MAX:
        return cut
    word = len(data.rstrip(_OF_TOKENS))
    return word if len(data) - word <= LINE_BYTES_MAX else len(data)
