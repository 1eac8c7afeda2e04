"""The snapshot of a session: its folded state in a file, so that a resume reads only later entries.

A snapshot is disposable. It is valid only for the log it was made from (by a hash of every row up
to its entry) and the code that made it. Otherwise, or when it is torn, the log is folded instead.
It is written without a flush, and a failed write loses nothing.
"""

import os
import sys
from collections.abc import Callable
from functools import cache
from hashlib import blake2b

import msgspec

import longrein_context
from longrein.atomic_file import replace_file
from longrein.store.database import LogHash
from longrein.store.store_port import Snapshot
from longrein_context.events.escape import whole_number

SNAPSHOT = "state.snapshot"
EARLIER = "state-{}.snapshot"
"""Name of an earlier snapshot, for a rewind, by its entry."""
EARLIER_ENTRIES = 1_000
"""Unit of the distances at which earlier snapshots are kept."""
EARLIER_BYTES_MAX = 64 * 1024 * 1024
"""Limit of the size of all earlier snapshots."""
HASH_BYTES = 16
HEAD_LENGTH_BYTES = 2


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """Header of the file, between its own length and the state. A checksum of header and state
    comes first.
    """

    code: bytes
    session: str
    seq: int
    log: bytes
    """`LogHash` up to `seq`."""


@cache
def code_version() -> bytes:
    """Return a hash of the folding code, Python and msgspec versions; b'' where the code cannot
    be read as files.
    """
    found = blake2b(f"{sys.version} {msgspec.__version__}".encode(), digest_size=HASH_BYTES)
    package = os.path.dirname(os.path.abspath(longrein_context.__file__))
    try:
        for path in _source_files(package):
            with open(path, "rb") as file:
                found.update(b"%b %b" % (os.path.basename(path).encode(), file.read()))
    except OSError:
        return b""
    return found.digest()


def _source_files(package: str) -> list[str]:
    """Return the source files of the folding package. Raises OSError when there are none."""
    found = [
        f"{folder}/{name}"
        for folder, _, names in os.walk(package)
        for name in names
        if name[-3:] == ".py"
    ]
    if not found:
        raise FileNotFoundError(package)
    return sorted(found)


def snapshot_seq(folder: str) -> int:
    """Return the entry of the last snapshot in a session's folder; 0 without one."""
    head = _read_head(os.path.join(folder, SNAPSHOT))
    return head.seq if head is not None else 0


def write_snapshot(folder: str, session: str, snapshot: Snapshot, log: bytes) -> bool:
    """Replace the snapshot of a session; return whether that succeeded.

    `log`: hash of the log up to the snapshot's entry.
    """
    code, path = code_version(), os.path.join(folder, SNAPSHOT)
    if not code:
        return False
    head = msgspec.msgpack.encode(_Head(code, session, snapshot.seq, log))
    head = len(head).to_bytes(HEAD_LENGTH_BYTES) + head
    try:
        _keep_earlier(folder, snapshot.seq)
        replace_file(path, (_checksum(head, snapshot.state), head, snapshot.state), durable=False)
    except OSError:
        return False
    return True


def _keep_earlier(folder: str, seq: int) -> None:
    """Keep some earlier snapshots beside the one of entry `seq` that is about to be written: four
    for each doubling of the distance from it, so a rewind folds about a quarter of what it goes
    back. Raises OSError.
    """
    last = _read_head(os.path.join(folder, SNAPSHOT))
    known = _earlier(folder)
    if last is None or last.code != code_version():  # then the others are of no use either
        for path in known.values():
            os.unlink(path)
        return
    known[last.seq] = os.path.join(folder, EARLIER.format(last.seq))
    os.rename(os.path.join(folder, SNAPSHOT), known[last.seq])
    oldest: dict[tuple[int, int], int] = {}
    for one in sorted(known):
        distance = max(seq - one, 0) // EARLIER_ENTRIES
        bits = distance.bit_length()
        oldest.setdefault((bits, distance >> max(bits - 3, 0)), one)
    kept = set(oldest.values())
    room = EARLIER_BYTES_MAX
    for one in sorted(known, reverse=True):
        room -= os.path.getsize(known[one]) if one in kept else 0
        if one not in kept or one >= seq or room < 0:
            os.unlink(known[one])


def _earlier(folder: str) -> dict[int, str]:
    """Return entry -> path of the earlier snapshots."""
    start, end = EARLIER.split("{}")
    names = [name for name in os.listdir(folder) if name.startswith(start) and name.endswith(end)]
    found = {name[len(start) : -len(end)]: name for name in names}
    return {
        seq: os.path.join(folder, name) for n, name in found.items() if (seq := whole_number(n))
    }


def read_snapshot(
    folder: str, session: str, log_hash: Callable[[int], LogHash], most: int = sys.maxsize
) -> tuple[Snapshot, LogHash] | None:
    """Return the newest snapshot up to entry `most` that fits the log, with the hash of the log so
    far; else None.

    `log_hash` returns the hash of the log up to an entry.
    """
    try:
        earlier = _earlier(folder)
    except OSError:
        return None
    paths = [earlier[seq] for seq in sorted(earlier, reverse=True) if seq <= most]
    for path in (os.path.join(folder, SNAPSHOT), *paths):
        head = _read_head(path)
        if head is None or head.session != session or head.code != code_version():
            continue
        if head.seq <= most and (found := _read_fitting(path, head, log_hash)) is not None:
            return found
    return None


def _read_fitting(
    path: str, head: _Head, log_hash: Callable[[int], LogHash]
) -> tuple[Snapshot, LogHash] | None:
    now, state = _read_file(path)
    if now != head:
        return None
    log = log_hash(head.seq)
    if log.seq != head.seq or log.digest() != head.log:
        return None
    return Snapshot(head.seq, state), log


def _read_head(path: str) -> _Head | None:
    """Return the header of a snapshot, whose checksum is not compared."""
    try:
        with open(path, "rb") as file:
            file.seek(HASH_BYTES)
            length = int.from_bytes(file.read(HEAD_LENGTH_BYTES))
            return msgspec.msgpack.decode(file.read(length), type=_Head)
    except (OSError, msgspec.DecodeError):
        return None


def _read_file(path: str) -> tuple[_Head | None, bytes]:
    try:
        with open(path, "rb") as file:
            checksum, length = file.read(HASH_BYTES), file.read(HEAD_LENGTH_BYTES)
            head = length + file.read(int.from_bytes(length))
            state = file.read()
        if checksum != _checksum(head, state):
            return None, b""
        return msgspec.msgpack.decode(head[HEAD_LENGTH_BYTES:], type=_Head), state
    except (OSError, msgspec.DecodeError):
        return None, b""


def _checksum(head: bytes, state: bytes | bytearray) -> bytes:
    found = blake2b(head, digest_size=HASH_BYTES)
    found.update(state)
    return found.digest()
