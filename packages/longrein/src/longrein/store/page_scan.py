"""Salvage rows from the pages of a damaged database and its WAL, without SQLite's trees.

SQLite gives up on a file that was cut short, and ends a WAL silently at the first frame with a
wrong bit. This module reads every page by itself and takes a row only when its checksum or hash is
right. Entries and blobs are never changed or deleted, so old copies of a page hold nothing
outdated.

Formats: https://sqlite.org/fileformat2.html. Nothing here writes.
"""

import contextlib
import os
import struct
from collections.abc import Iterator
from typing import Any

from longrein.store.blobs import INLINE_BYTES_MAX, blob_hash
from longrein.store.database import Row, is_sound_row

PAGE_BYTES = 4096
"""Page size of every database that longrein makes."""
PAYLOAD_BYTES_MAX = INLINE_BYTES_MAX + 1024
"""Size limit of rows of `entries` and `blobs`."""
_LEAF = b"\x0d"
"""First byte of a leaf page of a table."""
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_FRAME_BYTES = _FRAME_HEADER_BYTES + PAGE_BYTES
_LOCAL_MAX = PAGE_BYTES - 35
"""A larger payload continues in a chain of overflow pages."""
_LOCAL_MIN = (PAGE_BYTES - 12) * 32 // 255 - 23
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Serial type of an integer -> its size."""


_Copy = tuple[int, int]
"""(descriptor of a file, offset of a page in it)."""


class PageScan:
    """Pages of one database that nobody has open."""

    def __init__(self, path: str) -> None:
        self._main, main_bytes = _open_file(path)
        self._wal, wal_bytes = _open_file(path + "-wal")
        frames, newest = self._committed(
            (wal_bytes - _WAL_HEADER_BYTES + PAGE_BYTES - 1) // _FRAME_BYTES
        )
        main = [(self._main, at) for at in range(0, main_bytes, PAGE_BYTES)]
        self._copies = [*reversed(frames), *main[1:]]
        """Every copy of every page but the first: those of the WAL from the newest on, then those
        of the main file."""
        self._newest = {**dict(enumerate(main, 1)), **newest}
        """Page, counted from 1 -> its newest copy."""

    def _committed(self, count: int) -> tuple[list[_Copy], dict[int, _Copy]]:
        """Return the frames of the WAL without those of an unfinished transaction, oldest first,
        and page -> its newest frame.

        The header of a frame holds page number, database size after a commit (else 0), two salts
        and two checksums. SQLite writes the WAL from its start again and again, each time with new
        salts, so the first frame belongs to the newest round.
        """
        starts = [_WAL_HEADER_BYTES + number * _FRAME_BYTES for number in range(count)]
        headers = [
            struct.unpack(">IIII", _read(self._wal, at, 16).ljust(16, b"\0")) for at in starts
        ]
        salts = headers[0][2:] if headers else ()
        last = max(
            (number for number, header in enumerate(headers) if header[1] and header[2:] == salts),
            default=-1,
        )
        older = [number for number in range(last + 1, count) if headers[number][2:] != salts]
        copies = [(self._wal, at + _FRAME_HEADER_BYTES) for at in starts]
        frames = [copies[number] for number in (*older, *range(last + 1))]
        return frames, {headers[number][0]: copies[number] for number in range(last + 1)}

    def entries(self) -> Iterator[Row]:
        """Iterate the rows of `entries` with a right checksum, unordered, with duplicates."""
        for key, values in self._rows(columns=5, key_type=0):
            row = (key, *values[1:])
            if is_sound_row(row):
                yield row

    def blobs(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate (hash, body) of the rows of `blobs` with a right hash, unordered, with
        duplicates.
        """
        for _, values in self._rows(columns=2, key_type=2 * 32 + 12):
            name, body = values
            if isinstance(body, bytes) and blob_hash(body) == name.hex():
                yield name, body

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self._main, self._wal):
            if descriptor >= 0:
                os.close(descriptor)

    def _rows(self, columns: int, key_type: int) -> Iterator[tuple[int, list[Any]]]:
        """Iterate (rowid, values) of rows with that many columns, the first of serial type
        `key_type`.
        """
        for copy in self._copies:
            page = _read(*copy)
            for at in _cells(page) if page[:1] == _LEAF else ():
                with contextlib.suppress(IndexError, ValueError, struct.error):
                    rowid, payload = self._payload(page, at)
                    values = _values(payload, columns, key_type)
                    if values is not None:
                        yield rowid, values

    def _payload(self, page: bytes, at: int) -> tuple[int, bytes]:
        """Return (rowid, payload) of the cell at offset `at`. Raises `ValueError` or
        `IndexError` if invalid.
        """
        size, at = _varint(page, at)
        if not 0 < size <= PAYLOAD_BYTES_MAX:
            raise ValueError(size)
        rowid, at = _varint(page, at)
        local = _local(size)
        payload = page[at : at + local]
        if local == size:
            return rowid, payload
        (following,) = struct.unpack_from(">I", page, at + local)
        pieces = [payload]
        for _ in range(-(-(size - local) // (PAGE_BYTES - 4))):
            overflow = _read(*self._newest.get(following, (-1, 0)))
            pieces.append(overflow[4:])
            (following,) = struct.unpack_from(">I", overflow)
        return rowid, b"".join(pieces)[:size]


def _open_file(path: str) -> tuple[int, int]:
    """Return (descriptor, size in bytes) of a file; (-1, 0) where it cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1, 0
    return descriptor, os.fstat(descriptor).st_size


def _read(descriptor: int, at: int, size: int = PAGE_BYTES) -> bytes:
    """Return the bytes at offset `at`; none of an unreadable sector and behind the end."""
    with contextlib.suppress(OSError):
        return os.pread(descriptor, size, at)
    return b""


def _cells(page: bytes) -> list[int]:
    """Return the plausible cell offsets of a leaf page."""
    if len(page) < 8:
        return []
    count = min(struct.unpack_from(">H", page, 3)[0], (len(page) - 8) // 2)
    return [at for at in struct.unpack_from(f">{count}H", page, 8) if 8 <= at < len(page)]


def _local(size: int) -> int:
    """Return how many of `size` payload bytes lie in the leaf page itself."""
    if size <= _LOCAL_MAX:
        return size
    wanted = _LOCAL_MIN + (size - _LOCAL_MIN) % (PAGE_BYTES - 4)
    return wanted if wanted <= _LOCAL_MAX else _LOCAL_MIN


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, offset behind it) of the variable-length integer at `at`. Raises
    `IndexError`.
    """
    value = 0
    for offset in range(at, at + 8):
        byte = data[offset]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, offset + 1
    return value << 8 | data[at + 8], at + 9


def _values(payload: bytes, columns: int, key_type: int) -> list[Any] | None:
    """Return the values of a record; None when its number of columns or first type differs.

    Raises `IndexError`, `ValueError`.
    """
    end, at = _varint(payload, 0)
    types: list[int] = []
    while at < end and len(types) <= columns:
        kind, at = _varint(payload, at)
        types.append(kind)
    if len(types) != columns or types[0] != key_type:
        return None
    values = []
    for kind in types:
        value, at = _value(payload, at, kind)
        values.append(value)
    return values


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    """Return (value, offset behind it) of the value of serial type `kind`. Raises `ValueError`."""
    if kind >= 12:
        end = at + (kind - 12) // 2
        if end > len(payload):
            raise ValueError(kind)
        return (payload[at:end] if kind % 2 == 0 else payload[at:end].decode()), end
    if kind in _INTEGER_BYTES:
        end = at + _INTEGER_BYTES[kind]
        return int.from_bytes(payload[at:end], "big", signed=True), end
    return {8: 0, 9: 1}.get(kind), at
