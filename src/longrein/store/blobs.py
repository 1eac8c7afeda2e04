"""Blobs by the SHA-256 of their bytes: small ones wait in memory for the next commit, large ones are files."""

import contextlib
import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO

from longrein.events import StoreDamaged
from longrein.store.session_folder import BLOBS, flush, flush_path, make_folder, new_file, write_file

INLINE_BYTES_MAX = 64 * 1024
"""Content up to this size lies in the database and so costs no flush of its own."""
PIECE_BYTES = 256 * 1024
"""Read and written at once."""


def blob_file(folder: str, blob: str) -> str:
    """Path of a blob's file in a session's folder, there or not."""
    return os.path.join(folder, BLOBS, blob[:2], blob)


def blob_hash(data: bytes) -> str:
    """The name of `data`."""
    return hashlib.sha256(data).hexdigest()


def is_hash(text: str) -> bool:
    """Whether `text` can name a blob."""
    return len(text) == 64 and all(sign in "0123456789abcdef" for sign in text)


class BlobDamaged(StoreDamaged, KeyError):
    """The bytes of a blob are not what was kept; for those who only want the bytes they are gone."""

    __str__ = Exception.__str__  # a KeyError shows the repr


def verify_blob(data: object, blob: str, place: str) -> bytes:
    """`data`, which lies at `place`, as the bytes of `blob`. Raises `BlobDamaged` when they are not."""
    if isinstance(data, bytes) and blob_hash(data) == blob:
        return data
    raise BlobDamaged(f"blob {blob[:12]} in {place} is not what was written")


def read_blob_file(folder: str, blob: str) -> bytes:
    """Bytes of a blob file, checked. Raises `KeyError` when there is none, `BlobDamaged`."""
    path = blob_file(folder, blob)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        if error.errno == errno.EIO:
            raise BlobDamaged(f"{path} cannot be read: {error.strerror}") from None
        raise KeyError(blob) from None
    return verify_blob(data, blob, path)


class BlobBatch:
    """What one commit keeps."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        """Blobs that go into the database, by hash."""
        self.files: list[str] = []
        """Hashes of blob files, all of them on disk."""


class Blobs:
    """Blobs on their way into the log of one session. The loop's thread puts, the writer thread settles."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._pending: dict[str, bytes | None] = {}  # None: a finished file whose data is not flushed
        self._flushed: set[str] = set()
        self._numbers = itertools.count(1)

    def put(self, data: bytes) -> str:
        """Keep `data` with the next commit; gives its hash."""
        blob = blob_hash(data)
        if len(data) <= INLINE_BYTES_MAX or not os.path.exists(blob_file(self.folder, blob)):
            self._pending.setdefault(blob, bytes(data))
        return blob

    def copy_for_adoption(self, path: str) -> tuple[str, bytes | str]:
        """(hash, content or path): a small file's bytes, of a large one a link or copy on disk in the folder of blobs,
        ready to be adopted.

        For any thread. Nobody may write the file any more; it stays. Raises OSError, also when it is no plain file.
        """
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a plain file", path)
            start = file.read(INLINE_BYTES_MAX + 1)
            if len(start) <= INLINE_BYTES_MAX:
                return blob_hash(start), start
            temporary = self.temporary_path()
            if _try_link(path, temporary):
                flush(file.fileno())
                file.seek(0)
                return hashlib.file_digest(file, "sha256").hexdigest(), temporary
            file.seek(0)
            return _copy_file(file, temporary), temporary

    def adopt(self, blob: str, path: str) -> None:
        """Take the finished file `path` as `blob`: it has its name now and is flushed before the next commit."""
        target = blob_file(self.folder, blob)
        if os.path.exists(target):
            os.unlink(path)
            return
        make_folder(os.path.dirname(target))
        os.rename(path, target)
        self._pending[blob] = None

    def pending_bytes(self, blob: str) -> bytes | None:
        """Bytes of a blob that no commit holds yet; None when it is not here."""
        return self._pending.get(blob)

    def has_pending(self) -> bool:
        """Whether a blob waits for a commit."""
        return bool(self._pending)

    def temporary_path(self) -> str:
        """Path for a new file in the folder of blobs; removed at the next open when nobody adopts it."""
        make_folder(os.path.join(self.folder, BLOBS))
        return os.path.join(self.folder, BLOBS, f"tmp-{next(self._numbers)}")

    def prepare_commit(self) -> BlobBatch:
        """Everything that waits: large content is on disk under its name when this returns. Raises OSError."""
        batch = BlobBatch()
        for blob in list(self._pending):
            data = self._pending[blob]
            if data is not None and len(data) <= INLINE_BYTES_MAX:
                batch.bodies[blob] = data
            else:
                if blob not in self._flushed:
                    self._flush_to_file(blob, data)
                    self._flushed.add(blob)
                batch.files.append(blob)
        return batch

    def flush_files(self) -> None:
        """Bring finished files to disk ahead of the commit that names them. Raises OSError."""
        for blob in [blob for blob in list(self._pending) if self._pending[blob] is None and blob not in self._flushed]:
            self._flush_to_file(blob, None)
            self._flushed.add(blob)

    def mark_committed(self, batch: BlobBatch) -> None:
        """`kept` is committed."""
        for blob in (*batch.bodies, *batch.files):
            del self._pending[blob]
            self._flushed.discard(blob)

    def _flush_to_file(self, blob: str, data: bytes | None) -> None:
        path = blob_file(self.folder, blob)
        if data is None:
            flush_path(path)
        else:
            temporary = self.temporary_path()
            write_file(temporary, (data,))
            make_folder(os.path.dirname(path))
            os.rename(temporary, path)
        flush_path(os.path.dirname(path))
        flush_path(os.path.join(self.folder, BLOBS))
        flush_path(self.folder)

    def remove_unnamed(self, named: Callable[[], set[str]]) -> int:
        """Remove files that no commit named, as a crash leaves them; how many."""
        removed = 0
        names: set[str] | None = None
        for path, blob in blob_files(self.folder):
            names = named() if names is None else names
            if blob not in names:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                    removed += 1
        return removed


def blob_files(folder: str) -> Iterator[tuple[str, str]]:
    """(path, name) of every file among the blobs of the session in `folder`, temporary ones too."""
    try:
        found = list(os.scandir(os.path.join(folder, BLOBS)))
    except OSError:
        return
    for item in found:
        if item.is_dir(follow_symlinks=False):
            yield from ((inner.path, inner.name) for inner in os.scandir(item.path))
        else:
            yield item.path, item.name


def _try_link(path: str, target: str) -> bool:
    """Whether `target` is now a second name of `path`; False on another file system or one without links."""
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    os.chmod(target, 0o600)
    return True


def _copy_file(file: BinaryIO, target: str) -> str:
    """Copy `file` to the new file `target`, on disk; the hash. Leaves nothing when it fails."""
    digest = hashlib.sha256()

    def pieces() -> Iterator[bytes]:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            yield piece

    write_file(target, pieces())
    return digest.hexdigest()


class GrowingBlob:
    """A blob written piece by piece (`port.BlobWriter`). In memory up to 64 kB, then in a file."""

    def __init__(self, blobs: Blobs, finished: Callable[[], object]) -> None:
        """`finished` is called when a file waits to be flushed."""
        self.size_bytes = 0
        self._blobs = blobs
        self._finished = finished
        self._hash = hashlib.sha256()
        self._start = bytearray()
        self._path = ""
        self._descriptor = -1

    @property
    def path(self) -> str:
        """The file, readable while it grows. Asking for it makes it. Raises OSError."""
        if not self._path:
            self._spill()
        return self._path

    def write(self, data: bytes) -> None:
        """Append. Raises OSError (full disk)."""
        if self._descriptor < 0 and len(self._start) + len(data) > INLINE_BYTES_MAX:
            self._spill()
        if self._descriptor >= 0:
            self._write(data)
        else:
            self._start += data
        self._hash.update(data)
        self.size_bytes += len(data)

    def pieces(self) -> Iterator[bytes]:
        """All that was written so far, in order. Raises OSError."""
        if self._descriptor < 0:
            yield bytes(self._start)
            return
        with open(self._path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def finish(self) -> str:
        """Name it by its hash; gives the hash. Raises OSError."""
        blob = self._hash.hexdigest()
        if self._descriptor < 0:
            return self._blobs.put(bytes(self._start))
        self._close()
        self._blobs.adopt(blob, self._path)
        self._finished()
        return blob

    def discard(self) -> None:
        """Forget it."""
        self._start.clear()
        if self._descriptor >= 0:
            self._close()
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _spill(self) -> None:
        path = self._blobs.temporary_path()
        self._descriptor = new_file(path)
        self._path = path
        self._write(self._start)
        self._start = bytearray()

    def _write(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
