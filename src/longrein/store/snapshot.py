"""The snapshot of a session: its folded state in a file beside the log, so that a resume reads only what came after.

It is disposable. It counts only for the very log it was made from (a hash of every row up to its entry) and for the
very code that made it; one that is torn, foreign or of another version is passed over and the log is folded. So it is
written without a flush, and nothing is lost when it is not written at all.
"""

import contextlib
import os
import sqlite3
import sys
from functools import cache
from hashlib import blake2b

import msgspec

from longrein.store.database import LogHash
from longrein.store.port import Snapshot
from longrein.store.session_folder import new_file

SNAPSHOT = "state.snapshot"
"""The file in a session's folder."""
HASH_BYTES = 16
HEAD_LENGTH_BYTES = 2
FOLDING_PACKAGES = ("context", "events")
"""Packages whose code makes the state."""


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """Stands before the state in the file, after the checksum of both and its own length."""

    code: bytes
    session: str
    seq: int
    log: bytes
    """`LogHash` up to `seq`."""


@cache
def code_version() -> bytes:
    """Hash of the code that folds, and of what it stands on; b"" where it cannot be read as files."""
    found = blake2b(f"{sys.version} {msgspec.__version__}".encode(), digest_size=HASH_BYTES)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        for path in _source_files(package):
            with open(path, "rb") as file:
                found.update(b"%b %b" % (os.path.basename(path).encode(), file.read()))
    except OSError:
        return b""
    return found.digest()


def _source_files(package: str) -> list[str]:
    """Every file of code that folds. Raises OSError where there is none."""
    walks = [os.walk(os.path.join(package, room)) for room in FOLDING_PACKAGES]
    found = [f"{folder}/{name}" for walk in walks for folder, _, names in walk for name in names if name[-3:] == ".py"]
    if not found:
        raise FileNotFoundError(package)
    return sorted(found)


def write_snapshot(folder: str, session: str, snapshot: Snapshot, log: bytes) -> bool:
    """Put `snapshot` in the place of the last one; `log` is the hash up to its entry. Whether that could be done."""
    code, path = code_version(), os.path.join(folder, SNAPSHOT)
    if not code:
        return False
    head = msgspec.msgpack.encode(_Head(code, session, snapshot.seq, log))
    head = len(head).to_bytes(HEAD_LENGTH_BYTES) + head
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + ".new")  # of one that was killed
        with open(new_file(path + ".new"), "wb") as file:
            file.write(_checksum(head, snapshot.state))
            file.write(head)
            file.write(snapshot.state)
        os.rename(path + ".new", path)
        return True
    return False


def read_snapshot(folder: str, session: str, connection: sqlite3.Connection) -> tuple[Snapshot, LogHash] | None:
    """The snapshot that fits the log behind `connection`, with the hash of that log so far; None for any other.

    Only the heads of the rows are read.
    """
    head, state = _read_file(folder)
    if head is None or head.session != session or head.code != code_version():
        return None
    log = LogHash()
    with contextlib.suppress(sqlite3.Error):  # whoever looks through the rows next finds what is wrong with them
        log.take(connection, head.seq)
    if log.seq != head.seq or log.digest() != head.log:
        return None
    return Snapshot(head.seq, state), log


def _read_file(folder: str) -> tuple[_Head | None, bytes]:
    try:
        with open(os.path.join(folder, SNAPSHOT), "rb") as file:
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
