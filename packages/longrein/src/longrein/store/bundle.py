"""Bundles: one zip file that moves a whole session, with its subagents and blobs, to another
machine.

    bundle.json                 format, versions, the sessions with their numbers, and the hash of
    each log sessions/<number>.jsonl     own entries of one session:
    {"seq":…,"at":…,"version":…,"event":{…}} blobs/<hash>                content of a blob

Nothing in a bundle is believed: hashes, seqs, sizes and every entry are checked, and the imported
session works in the folders that the importer names, not in those of the bundle.
"""

import contextlib
import hashlib
import os
import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from longrein.atomic_file import flush_path, move_into_place
from longrein.folder_trees import remove_tree
from longrein.store.blobs import INLINE_BYTES_MAX, PIECE_BYTES, Blobs, GrowingBlob, is_hash
from longrein.store.database import (
    INSERT_ENTRY,
    REPLACE_SESSION,
    ROOT,
    SEQ_MAX,
    entry_key,
    entry_seq,
    new_database,
    row_checksum,
)
from longrein.store.disk_errors import store_failure
from longrein.store.reader import ReadConnection, Reader, stored_body
from longrein.store.session_folder import BLOBS, DATABASE, make_session_folder, session_id
from longrein_context.events import (
    AT_MAX,
    SCHEMA_VERSION,
    AnyEvent,
    CwdSet,
    Opened,
    SessionError,
    SessionReadOnly,
    decode_event,
    encode_event,
)

if TYPE_CHECKING:
    from zipfile import ZipFile

FORMAT = 1
"""Version of the layout of a bundle."""
MANIFEST = "bundle.json"
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 256 * 1024 * 1024
"""Longest line of a log in a bundle."""
SESSIONS_MAX = 100_000
NUMBER_MAX = 1 << 20
"""Highest number of a session in its database."""


class BundledSession(msgspec.Struct, frozen=True):
    """Session in a bundle: its number in the database, its row in the list, its log."""

    number: int
    session: str
    created: int
    title: str
    entries: int
    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, tag="session", tag_field="longrein"):
    """Content of `bundle.json`."""

    format: int
    schema: int
    version: str
    session: str
    cwd: str
    sessions: tuple[BundledSession, ...]
    blobs: dict[str, int]
    """Hash -> size in bytes."""


class BundleLine(msgspec.Struct):
    """A line of a log in a bundle."""

    seq: int
    at: int
    version: int
    event: msgspec.Raw


class BundleReport(msgspec.Struct, frozen=True):
    """Report of a bundle that was written or read."""

    session: str
    cwd: str
    """Folder in which the session was started."""
    entries: int
    subagents: int
    blobs: int
    missing: int = 0
    """Blobs that the log names and the disk no longer has."""


# --- Export ---------------------------------------------------------------------------------------


def write_bundle(state_dir: str, session: str, out: BinaryIO, version: str) -> BundleReport:
    """Write the session, its subagents and all blobs to `out`; `version` is that of longrein.

    The session may be open elsewhere. Raises `StoreDamaged` for an unreadable entry, OSError.
    """
    import zipfile

    with (
        contextlib.closing(Reader(state_dir, session)) as reader,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive,
    ):
        rows = _session_rows(reader.source)
        sessions = [_write_log(archive, reader, *row) for row in rows]
        blobs, missing = _write_blobs(archive, reader)
        cwd = reader.about()[1]
        manifest = Manifest(FORMAT, SCHEMA_VERSION, version, session, cwd, tuple(sessions), blobs)
        archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    entries = sum(one.entries for one in sessions)
    return BundleReport(session, cwd, entries, len(sessions) - 1, len(blobs), missing)


def _session_rows(source: ReadConnection) -> list[tuple[int, str, int, str]]:
    return source.all("SELECT number, session, created, title FROM sessions ORDER BY number")


def _write_log(
    archive: "ZipFile", reader: Reader, number: int, session: str, created: int, title: str
) -> BundledSession:
    digest = hashlib.sha256()
    size = 0
    count = 0
    folders = reader.folders
    with archive.open(f"sessions/{number}.jsonl", "w", force_zip64=True) as file:
        for row in reader.rows_of(number, 0, SEQ_MAX):
            head = b'{"seq":%d,"at":%d,"version":%d,"event":' % (entry_seq(row[0]), row[1], row[2])
            line = head + stored_body(folders, row) + b"}\n"
            digest.update(line)
            file.write(line)
            size, count = size + len(line), count + 1
    return BundledSession(number, session, created, title, count, size, digest.hexdigest())


def _write_blobs(archive: "ZipFile", reader: Reader) -> tuple[dict[str, int], int]:
    """Write every stored blob, also those of a fork's original; return hash -> size, and the
    number of those that are gone.
    """
    found: dict[str, int] = {}
    missing = 0
    query = "SELECT hash FROM blobs UNION SELECT hash FROM files"
    names = {row[0].hex() for source in reader.source.sources() for row in source.all(query)}
    for blob in sorted(names):
        digest, size = hashlib.sha256(), 0
        try:
            with archive.open(f"blobs/{blob}", "w", force_zip64=True) as file:
                for piece in reader.pieces(blob):
                    digest.update(piece)
                    file.write(piece)
                    size += len(piece)
        except KeyError:
            pass
        if digest.hexdigest() == blob:
            found[blob] = size
        else:  # gone or damaged
            missing += 1
    return found, missing


# --- Import ---------------------------------------------------------------------------------------


class BundleError(SessionError):
    """The file is no bundle, or is damaged."""


def read_bundle(state_dir: str, path: str, roots: Sequence[str]) -> BundleReport:
    """Create the session that the bundle at `path` holds; it works in `roots`, the first of which
    is its folder.

    On return it is complete on disk; after an error it does not exist. A stored session is never
    changed.

    Raises `BundleError`, `SessionReadOnly` for a bundle of a newer longrein, `SessionError`,
    `StoreFull`.
    """
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _manifest(archive, path)
            _check_room(state_dir, archive, path)
            return _create(state_dir, archive, manifest, roots)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise BundleError(f"{path} is damaged ({error}); export the session again") from None


def _manifest(archive: "ZipFile", path: str) -> Manifest:
    try:
        info = archive.getinfo(MANIFEST)
        if info.file_size > MANIFEST_BYTES_MAX:
            raise BundleError(f"{path} is no bundle of longrein: its {MANIFEST} is too large")
        manifest = msgspec.json.decode(archive.read(info), type=Manifest)
    except (KeyError, msgspec.DecodeError, UnicodeError, RecursionError, OSError):
        raise BundleError(
            f"{path} is no bundle of longrein; `longrein export ID --whole` writes one"
        ) from None
    if manifest.format > FORMAT or manifest.schema > SCHEMA_VERSION:
        raise SessionReadOnly(
            f"{path} was written by a newer longrein ({manifest.version}); upgrade this one"
        )
    numbers = {one.number for one in manifest.sessions}
    names = {session_id(one.session) for one in manifest.sessions}
    if (
        len(numbers) != len(manifest.sessions)
        or len(names) != len(manifest.sessions)
        or not all(0 < number <= NUMBER_MAX for number in numbers)
        or not all(0 <= one.created <= AT_MAX for one in manifest.sessions)
        or manifest.session.lower()
        not in {one.session.lower() for one in manifest.sessions if one.number == ROOT}
        or len(numbers) > SESSIONS_MAX
        or not all(map(is_hash, manifest.blobs))
    ):
        raise BundleError(
            f"{path} is damaged: its {MANIFEST} contradicts itself; export the session again"
        )
    return manifest


def _check_room(state_dir: str, archive: "ZipFile", path: str) -> None:
    """Refuse a bundle that would fill the disk, such as a zip bomb."""
    folder = state_dir
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    size, free = sum(info.file_size for info in archive.infolist()), shutil.disk_usage(folder).free
    if size > free:
        raise BundleError(
            f"{path} needs {size:,} bytes, and {free:,} are free in {folder}; free some room"
        )


def _create(
    state_dir: str, archive: "ZipFile", manifest: Manifest, roots: Sequence[str]
) -> BundleReport:
    session = session_id(manifest.session)
    folder, fresh = make_session_folder(state_dir, session)
    building = os.path.join(folder, DATABASE + ".new")
    if not fresh and not _is_abandoned(folder, building):
        raise SessionError(
            f"there is already a session {session}; go on with `longrein -r {session}`"
        )
    try:
        with contextlib.closing(new_database(building)) as target:
            blobs = Blobs(folder)
            entries = sum(
                _import_log(archive, target, blobs, one, roots) for one in manifest.sessions
            )
            for blob, size in manifest.blobs.items():
                _import_blob(archive, target, blobs, blob, size)
            _store_blobs(target, blobs)
            target.execute("COMMIT")
        move_into_place(building, os.path.join(folder, DATABASE))
        flush_path(os.path.dirname(folder))
    except BaseException as error:
        remove_tree(folder, ignore_errors=True)
        if isinstance(error, OSError | sqlite3.Error):
            raise store_failure(error, folder) from None
        raise
    return BundleReport(
        session, manifest.cwd, entries, len(manifest.sessions) - 1, len(manifest.blobs)
    )


def _is_abandoned(folder: str, building: str) -> bool:
    """Return True for a session that a killed import has begun; False while an import runs."""
    if not set(os.listdir(folder)) <= {os.path.basename(building), BLOBS}:
        return False
    try:
        with contextlib.closing(sqlite3.connect(building, timeout=0)) as unfinished:
            unfinished.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:  # locked by the import that writes it
        return False
    except sqlite3.DatabaseError:  # half written
        return True
    return True


def _import_log(
    archive: "ZipFile",
    target: sqlite3.Connection,
    blobs: Blobs,
    one: BundledSession,
    roots: Sequence[str],
) -> int:
    """Insert the entries of one session; return their number."""
    name, expected = f"sessions/{one.number}.jsonl", 0
    for line in _checked_lines(archive, name, one):
        event = _decoded(line, name)
        if expected == 0:
            _check_opening(one, line, event, name)
        elif line.seq != expected:
            raise BundleError(
                f"the bundle is damaged: entry {expected} of {name} is missing; export the "
                "session again"
            )
        expected = line.seq + 1
        data = _moved_body(event, line, roots)
        body = data if len(data) <= INLINE_BYTES_MAX else blobs.put(data)
        _store_blobs(target, blobs)
        key = entry_key(one.number, line.seq)
        row = (key, line.at, line.version, row_checksum(key, line.at, line.version, body), body)
        target.execute(INSERT_ENTRY, row)
    if not expected and one.number == ROOT:
        raise BundleError("the bundle holds no entries; export the session again")
    target.execute(
        REPLACE_SESSION, (one.number, one.session.lower(), one.created, roots[0], one.title)
    )
    return one.entries


def _checked_lines(archive: "ZipFile", name: str, one: BundledSession) -> Iterator[BundleLine]:
    """Iterate the lines of a log. Raises `BundleError` where they are not what the manifest
    says.
    """
    digest = hashlib.sha256()
    count = 0
    size = 0
    damaged = BundleError(
        f"the bundle is damaged: {name} is not what was exported; export the session again"
    )
    try:
        with archive.open(name) as file:
            while raw := file.readline(LINE_BYTES_MAX):
                digest.update(raw)
                count, size = count + 1, size + len(raw)
                if size > one.size_bytes:
                    raise damaged
                yield msgspec.json.decode(raw, type=BundleLine)
    except (KeyError, msgspec.DecodeError, RecursionError, UnicodeError):
        raise damaged from None
    if (digest.hexdigest(), count, size) != (one.sha256, one.entries, one.size_bytes):
        raise damaged


def _decoded(line: BundleLine, name: str) -> AnyEvent:
    if not 0 <= line.at <= AT_MAX or not 0 < line.seq <= SEQ_MAX or line.version < 1:
        raise BundleError(
            f"the bundle is damaged: entry {line.seq} of {name} has impossible numbers"
        )
    try:
        return decode_event(bytes(line.event), line.version)
    except (msgspec.DecodeError, KeyError, UnicodeError) as error:
        raise BundleError(
            f"the bundle is damaged: entry {line.seq} of {name} cannot be read ({error})"
        ) from None


def _check_opening(one: BundledSession, line: BundleLine, event: AnyEvent, name: str) -> None:
    """Check the first entry of a log: an `Opened` with the session's id; a forked subagent's
    comes after seq 1.
    """
    session = event.session.lower() if isinstance(event, Opened) else ""
    if session != one.session.lower() or (one.number == ROOT and line.seq != 1):
        raise BundleError(
            f"the bundle is damaged: {name} does not begin as a session does; export the session "
            "again"
        )


def _moved_body(event: AnyEvent, line: BundleLine, roots: Sequence[str]) -> bytes:
    """Return the event's bytes, with the folders of this machine in place of those of the
    bundle.
    """
    match event:
        case Opened():
            event = msgspec.structs.replace(event, roots=tuple(roots), cwd=roots[0])
        case CwdSet():
            event = CwdSet(roots[0])
        case _:
            return bytes(line.event)
    line.version = SCHEMA_VERSION  # decoded events have the present schema
    return encode_event(event)


def _import_blob(
    archive: "ZipFile", target: sqlite3.Connection, blobs: Blobs, blob: str, size: int
) -> None:
    damaged = BundleError(
        f"the bundle is damaged: blob {blob[:12]} is not what was exported; export the session "
        "again"
    )
    try:
        info = archive.getinfo(f"blobs/{blob}")
    except KeyError:
        raise damaged from None
    if info.file_size != size:
        raise damaged
    growing = GrowingBlob(blobs, lambda: None)
    with archive.open(info) as file:
        while piece := file.read(PIECE_BYTES):
            growing.write(piece)
    if growing.finish() != blob:
        raise damaged
    _store_blobs(target, blobs)


def _store_blobs(target: sqlite3.Connection, blobs: Blobs) -> None:
    """Store pending blobs in the database, or as files that are on disk on return."""
    batch = blobs.prepare_commit()
    bodies = [(bytes.fromhex(name), body) for name, body in batch.bodies.items()]
    target.executemany("INSERT OR IGNORE INTO blobs(hash, body) VALUES(?, ?)", bodies)
    files = [(bytes.fromhex(name),) for name in batch.files]
    target.executemany("INSERT OR IGNORE INTO files(hash) VALUES(?)", files)
    blobs.mark_committed(batch)


def is_bundle(path: str) -> bool:
    """Return True if the file at `path` is a zip file. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"
