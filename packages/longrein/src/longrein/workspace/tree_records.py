"""Records of a work tree at one moment, and their form on disk."""

import json
from collections.abc import Mapping

import msgspec

UNREADABLE = "it cannot be read"
"""Why a file is left out."""
CLOSED = "the folder cannot be read"
"""Why all that is in a folder is left out. Files below it that were known count as unchanged."""


class CheckpointError(Exception):
    """The work tree cannot be kept; the text is for the user."""


class TreeRecord(msgspec.Struct, frozen=True):
    """A root at one moment. Paths are relative to the root; bytes that are not UTF-8 are
    `surrogateescape`.
    """

    tree: str
    """Git tree of all files."""
    umask: int
    """Permission bits that usual files do not have."""
    modes: dict[str, int] = {}
    """Permission bits of files with other than the usual ones."""
    folders: tuple[str, ...] = ()
    """Empty folders."""
    skipped: dict[str, str] = {}
    """Files and folders that were left out, with the reason; those that `.gitignore` excludes
    are not listed.
    """


class TreeFile(msgspec.Struct, frozen=True):
    """A file in a checkpoint."""

    kind: int
    """Git's mode: 0o100644, 0o100755 or 0o120000 for a symlink."""
    blob: str
    permissions: int
    """Permission bits; 0 for a symlink."""


def usual_mode(mode: int, umask: int) -> int:
    """Return the permission bits of a usual file, executable or not."""
    return (0o777 if mode & 0o100 else 0o666) & ~umask


def encode(value: object) -> str:
    """Return JSON; file names may have bytes that are not UTF-8, which `msgspec` refuses."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def decode(data: bytes) -> "list[object]":
    """Return what `encode` wrote. Raises ValueError."""
    found = json.loads(data)
    if not isinstance(found, list) or len(found) != 2:
        raise ValueError("not a record")
    return found


def encode_records(records: Mapping[str, TreeRecord]) -> bytes:
    """Return records by name, such as their root, as JSON; equal ones have equal bytes."""
    found = {name: msgspec.structs.asdict(record) for name, record in records.items()}
    return encode(["1", found]).encode()


def decode_records(data: bytes) -> dict[str, TreeRecord]:
    """Return what `encode_records` wrote. Raises ValueError."""
    try:
        return msgspec.convert(decode(data)[1], dict[str, TreeRecord])
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
