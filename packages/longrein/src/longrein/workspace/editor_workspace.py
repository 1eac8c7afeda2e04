"""Workspace whose files may be open in the user's editor, with changes that are not saved yet.

The editor is asked for a file right before a tool uses it (`refresh`). Text that is not saved is
kept as the content of the file until the file on disk changes or the editor is asked again. Writes
go through the editor, so that its buffer and its undo history follow; what stands on disk
afterwards is compared.
"""

import asyncio
import errno
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from hashlib import sha256
from typing import Protocol

import msgspec

from longrein.workspace.local_workspace import PlainWorkspace
from longrein.workspace.workspace_port import (
    FileStamp,
    Merge,
    ReplaceResult,
    SharedFolders,
    Spawner,
)

BUFFER_BYTES_MAX = 5 * 1024 * 1024
"""Largest file that is read or written through the editor."""
WRITE_S = 30.0
"""Seconds that the editor has for a write."""
UNSAVED = "the editor holds changes of it that are not saved; ask the user to save it"


class EditorFiles(Protocol):
    """Files in the editor. The methods are called in the event loop."""

    can_read: bool
    can_write: bool

    async def read(self, path: str) -> str | None:
        """Return the text of a file as the editor has it; None when the editor gives none."""
        ...

    async def write(self, path: str, text: str) -> bool:
        """Set the text of a file; False when the editor refuses."""
        ...


class Buffer(msgspec.Struct, frozen=True):
    """Text in the editor that is not saved."""

    data: bytes
    disk: FileStamp
    """The file on disk at that time."""
    stamp: FileStamp
    """The same stamp with the hash of `data`."""


class EditorWorkspace(PlainWorkspace):
    """See `Workspace`; files may have unsaved text in the editor."""

    def __init__(
        self,
        roots: Sequence[str],
        spawner: Spawner,
        environment: Mapping[str, str],
        keep_env: Sequence[str],
        editor: EditorFiles,
        shared: Callable[[], SharedFolders] = SharedFolders,
    ) -> None:
        super().__init__(roots, spawner, environment, keep_env, shared)
        self._editor = editor
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._buffers: dict[str, Buffer] = {}

    async def refresh(self, path: str) -> None:
        """Ask the editor for a file (a real path) and keep its text if that is not saved."""
        self._buffers.pop(path, None)
        disk = super().stamp(path)
        if not self._editor.can_read or not disk.hash or disk.size_bytes > BUFFER_BYTES_MAX:
            return
        text = await self._editor.read(path)
        saved = None if text is None else _text(super().read(path))
        if text is None or saved is None or len(text) > BUFFER_BYTES_MAX:
            return
        if _unix(text) == _unix(saved):
            return
        data = _as_saved(text, saved)
        self._keep(path, data, super().stamp(path, disk))

    def _keep(self, path: str, data: bytes, disk: FileStamp) -> None:
        stamp = FileStamp(
            disk.inode, disk.size_bytes, disk.mtime_ns, disk.ctime_ns, sha256(data).hexdigest()
        )
        self._buffers[path] = Buffer(data, disk, stamp)

    def read(self, path: str, limit_bytes: int = 0) -> bytes:
        buffer = self._buffers.get(path)
        if buffer is None:
            return super().read(path, limit_bytes)
        return buffer.data[:limit_bytes] if limit_bytes else buffer.data

    def hash(self, path: str) -> str:
        return self.stamp(path).hash if path in self._buffers else super().hash(path)

    def stamp(self, path: str, then: FileStamp | None = None) -> FileStamp:
        buffer = self._buffers.get(path)
        if buffer is None:
            return super().stamp(path, then)
        disk = super().stamp(path, buffer.disk)
        if disk.hash == buffer.disk.hash:
            return then if then == buffer.stamp and then is not None else buffer.stamp
        del self._buffers[path]  # saved, or changed by another program
        return disk

    def replace(
        self,
        path: str,
        data: bytes,
        *,
        expect: str,
        base: bytes | None = None,
        merge: Merge | None = None,
        like: str = "",
        mode: int | None = None,
    ) -> ReplaceResult:
        """See `Workspace.replace`. In a thread other than the event loop's, the editor writes
        the file.
        """
        text = _text(data)
        in_thread = threading.get_ident() != self._loop_thread
        if not (
            self._editor.can_write
            and in_thread
            and text is not None
            and len(data) <= BUFFER_BYTES_MAX
        ):
            self._refuse_unsaved(path)
            return super().replace(
                path, data, expect=expect, base=base, merge=merge, like=like, mode=mode
            )
        if not expect:  # the editor opens the file that stands there now
            return super().replace(
                path, data, expect=expect, base=base, merge=merge, like=like, mode=mode
            )
        if self.resolve(path, "/").real != path:
            raise OSError(errno.ELOOP, "a link has come in its place", path)
        present = self.read(path)
        taken: tuple[bytes, ...] = ()
        if sha256(present).hexdigest() != expect:
            merged = merge(base, data, present) if merge is not None and base is not None else None
            if merged is None or _text(merged) is None:
                return ReplaceResult(None, (present,))
            data, taken = merged, (present,)
        disk = super().stamp(path)
        if not self._write(path, data.decode()):
            self._refuse_unsaved(path)
            return super().replace(
                path, data, expect=sha256(present).hexdigest(), base=base, merge=merge
            )
        self._look_after_write(path, data, disk)
        return ReplaceResult(data, taken)

    def remove(self, path: str) -> int:
        """See `Workspace.remove`. A file with unsaved text stays."""
        self._refuse_unsaved(path)
        return super().remove(path)

    def _write(self, path: str, text: str) -> bool:
        """Let the editor write, and wait for it; False when it refuses or does not answer."""
        writing = asyncio.run_coroutine_threadsafe(self._editor.write(path, text), self._loop)
        try:
            return writing.result(WRITE_S)
        except FutureTimeout:
            writing.cancel()
            return False

    def _look_after_write(self, path: str, data: bytes, before: FileStamp) -> None:
        """Keep `data` as unsaved text where the editor has not saved it; what it saved
        differently stands.
        """
        self._buffers.pop(path, None)
        disk = super().stamp(path)
        if disk.hash == before.hash != sha256(data).hexdigest():
            self._keep(path, data, disk)

    def _refuse_unsaved(self, path: str) -> None:
        if path in self._buffers:
            self.stamp(path)
        if path in self._buffers:
            raise OSError(errno.EBUSY, UNSAVED, path)


def _text(data: bytes) -> str | None:
    """Return UTF-8 text; None for anything else, which an editor would change."""
    try:
        return data.decode() if b"\0" not in data else None
    except UnicodeDecodeError:
        return None


def _unix(text: str) -> str:
    """Return text as editors hold it: without a byte order mark, with plain newlines."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _as_saved(text: str, saved: str) -> bytes:
    """Return the text of a buffer as it would be saved: with the mark and the line ends of the
    file.
    """
    plain = _unix(text)
    ends = (
        plain.replace("\n", "\r\n")
        if "\r\n" in saved and "\n" not in saved.replace("\r\n", "")
        else plain
    )
    return (("\ufeff" if saved.startswith("\ufeff") else "") + ends).encode()
