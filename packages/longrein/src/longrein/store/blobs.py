"""Blobs, named by the SHA-256 of their bytes.

Blobs up to 64 kB go into the database with the next commit; larger ones are files
`blobs/ab/<hash>`.
"""

import contextlib
import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from longrein.atomic_file import flush, flush_path, replace_file, write_all, write_file
from longrein.store.session_folder import BLOBS, make_folder, new_file
from longrein_context.events import StoreDamaged

INLINE_BYTES_MAX = 64 * 1024
"""Blobs up to this size go into the database, which saves a flush."""
PIECE_BYTES = 256 * 1024


def blob_file(folder: str, blob: str) -> str:
    """Return the path of a blob's file in a session's folder, whether or not it exists."""
    return os.path.join(folder, BLOBS, blob[:2], blob)


def blob_hash(data: bytes) -> str:
    """Return the hash that names `data`."""
    return hashlib.sha256(data).hexdigest()


def is_hash(text: str) -> bool:
    """Return True if `text` has the form of a blob's hash."""
    return len(text) == 64 and all(sign in "0123456789abcdef" for sign in text)


class BlobDamaged(StoreDamaged, KeyError):
    """The bytes of a blob do not match its hash. Also a `KeyError`, for callers that only ask
    for the bytes.
    """

    __str__ = Exception.__str__  # a KeyError shows the repr


def verify_blob(data: object, blob: str, place: str) -> bytes:
    """Return `data`, found at `place`, if it matches the hash. Raises `BlobDamaged`."""
    if isinstance(data, bytes) and blob_hash(data) == blob:
        return data
    raise BlobDamaged(f"blob {blob[:12]} in {place} is not what was written")


def read_blob_file(folder: str, blob: str) -> bytes:
    """Return the verified bytes of a blob file. Raises `KeyError` when it does not exist,
    `BlobDamaged`.
    """
    path = blob_file(folder, blob)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        if error.errno == errno.EIO:
            raise BlobDamaged(f"{path} cannot be read: {error.strerror}") from None
        raise KeyError(blob) from None
    return verify_blob(data, blob, path)


class BlobBatch(msgspec.Struct):
    """Blobs of one commit: hash -> bytes of those that go into the database, and hashes of files
    that are on disk.
    """

    bodies: dict[str, bytes] = {}
    files: list[str] = []


class Blobs:
    """Blobs that wait for a commit of one session's log. The loop's thread adds, the writer
    thread commits.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.pending: dict[str, bytes | None] = {}
        """Hash -> bytes of a blob that waits for a commit; None for a finished file whose data
        is not flushed.
        """
        self._flushed: set[str] = set()
        self._numbers = itertools.count(1)

    def put(self, data: bytes) -> str:
        """Keep `data` with the next commit; return its hash."""
        blob = blob_hash(data)
        if len(data) <= INLINE_BYTES_MAX or not os.path.exists(blob_file(self.folder, blob)):
            self.pending.setdefault(blob, bytes(data))
        return blob

    def copy_for_adoption(self, path: str) -> tuple[str, bytes | str]:
        """Return (hash, bytes) of a small file, else (hash, path of a link or copy, for `adopt`).

        For any thread. The original stays, and nobody may write to it any more. Raises OSError,
        also when it is not a regular file.
        """
        with open(
            os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb"
        ) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a plain file", path)
            start = file.read(INLINE_BYTES_MAX + 1)
            if len(start) <= INLINE_BYTES_MAX:
                return blob_hash(start), start
            temporary = self.temporary_path()
            file.seek(0)
            try:
                os.link(path, temporary)
            except OSError:  # links are not possible here
                write_file(temporary, _pieces(file), durable=True)
            else:
                os.chmod(temporary, 0o600)
                flush(file.fileno())
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest(), temporary

    def adopt(self, blob: str, path: str) -> None:
        """Move the finished file `path` to its place as `blob`. It is flushed before the next
        commit.
        """
        target = blob_file(self.folder, blob)
        if os.path.exists(target):
            os.unlink(path)
            return
        make_folder(os.path.dirname(target))
        os.rename(path, target)
        self.pending[blob] = None

    def temporary_path(self) -> str:
        """Return a path for a new file in the blobs folder. The next open removes files that
        nobody adopted.
        """
        make_folder(os.path.join(self.folder, BLOBS))
        paths = (os.path.join(self.folder, BLOBS, f"tmp-{number}") for number in self._numbers)
        return next(path for path in paths if not os.path.lexists(path))

    def prepare_commit(self) -> BlobBatch:
        """Return all pending blobs; large ones are on disk as files on return. Raises OSError."""
        batch = BlobBatch()
        for blob in list(self.pending):
            data = self.pending[blob]
            if data is not None and len(data) <= INLINE_BYTES_MAX:
                batch.bodies[blob] = data
            else:
                self._flush_to_file(blob, data)
                batch.files.append(blob)
        return batch

    def flush_files(self) -> None:
        """Bring finished files to disk ahead of the commit that names them. Raises OSError."""
        for blob in [blob for blob in list(self.pending) if self.pending[blob] is None]:
            self._flush_to_file(blob, None)

    def mark_committed(self, batch: BlobBatch) -> None:
        """Drop the blobs of a committed batch from the pending ones."""
        for blob in (*batch.bodies, *batch.files):
            del self.pending[blob]
            self._flushed.discard(blob)

    def _flush_to_file(self, blob: str, data: bytes | None) -> None:
        """Bring a blob to disk as a file: `data`, or the content that the file has already."""
        if blob in self._flushed:
            return
        path = blob_file(self.folder, blob)
        if data is None:
            flush_path(path)
            flush_path(os.path.dirname(path))
        else:
            make_folder(os.path.dirname(path))
            replace_file(path, (data,), durable=True, temporary=self.temporary_path())
        flush_path(os.path.join(self.folder, BLOBS))
        flush_path(self.folder)
        self._flushed.add(blob)

    def remove_unnamed(self, named: Callable[[], set[str]]) -> None:
        """Remove files that no commit named, which a crash leaves behind."""
        files = list(blob_files(self.folder))
        names = named() if files else set()
        for path, blob in files:
            if blob not in names:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def blob_files(folder: str) -> Iterator[tuple[str, str]]:
    """Iterate (path, name) of every file in the blobs folder of the session in `folder`,
    temporary ones included.
    """
    try:
        found = list(os.scandir(os.path.join(folder, BLOBS)))
    except OSError:
        return
    for item in found:
        if item.is_dir(follow_symlinks=False):
            yield from ((inner.path, inner.name) for inner in os.scandir(item.path))
        else:
            yield item.path, item.name


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


class GrowingBlob:
    """A blob written piece by piece (`port.BlobWriter`): in memory up to 64 kB, then in a file."""

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
        """Path of the file, readable while it grows. The first access creates it. Raises
        OSError.
        """
        if not self._path:
            self._spill()
        return self._path

    def write(self, data: bytes) -> None:
        """Append `data`. Raises OSError, such as for a full disk."""
        if self._descriptor < 0 and len(self._start) + len(data) > INLINE_BYTES_MAX:
            self._spill()
        if self._descriptor >= 0:
            write_all(self._descriptor, data)
        else:
            self._start += data
        self._hash.update(data)
        self.size_bytes += len(data)

    def pieces(self) -> Iterator[bytes]:
        """Iterate everything written so far, in order. Raises OSError."""
        if self._descriptor < 0:
            yield bytes(self._start)
            return
        with open(self._path, "rb") as file:
            yield from _pieces(file)

    def finish(self) -> str:
        """Complete the blob; return its hash. Raises OSError."""
        blob = self._hash.hexdigest()
        if self._descriptor < 0:
            return self._blobs.put(bytes(self._start))
        self._close()
        self._blobs.adopt(blob, self._path)
        self._finished()
        return blob

    def discard(self) -> None:
        """Drop the blob."""
        self._start.clear()
        if self._descriptor >= 0:
            self._close()
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def _spill(self) -> None:
        path = self._blobs.temporary_path()
        self._descriptor = new_file(path)
        self._path = path
        write_all(self._descriptor, self._start)
        self._start = bytearray()

    def _close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
