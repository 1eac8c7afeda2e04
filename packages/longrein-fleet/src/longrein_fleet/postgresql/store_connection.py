"""Read one session from the store: the queries of `store.reader` over the rows of that session."""

import itertools
import os
from collections.abc import Iterator

from longrein.atomic_file import replace_file
from longrein.store.blobs import INLINE_BYTES_MAX, blob_file
from longrein.store.reader import ReadConnection
from longrein.store.session_folder import make_folder, session_id
from longrein.store.snapshot import SNAPSHOT, snapshot_seq
from longrein_context.events import Parent
from longrein_fleet.postgresql.connection import Rows, StoreLink

TABLES = {
    "sessions": "number, session, created, cwd, title",
    "entries": "key, at, version, crc, body",
    "inbox": "id, body, number",
    "blobs": "hash, part, body",
    "snapshots": "part, seq, body",
    "roots": "messages",
}
"""Tables that queries about one session see -> their columns."""
HASH_QUERY = (
    "SELECT count(*), max(key), sum(version), string_agg((at + crc)::text, ',' ORDER BY key), NULL "
    "FROM entries WHERE key > ? AND key <= ?"
)


def tables_of(session: str) -> str:
    """Return the beginning of a query that makes it see the rows of root `session` alone."""
    root = f"root = '{session_id(session)}'::uuid"
    parts = [
        f"{name} AS (SELECT {columns} FROM {name} WHERE {root})" for name, columns in TABLES.items()
    ]
    return f"WITH {', '.join(parts)}, files AS (SELECT NULL::bytea AS hash LIMIT 0) "


class StoreConnection(ReadConnection):
    """Read-only connection to the rows of a session in the store, opened at the first query."""

    hash_query = HASH_QUERY
    in_file = "false"

    def __init__(self, folder: str, address: str, link: StoreLink | None = None) -> None:
        """`folder`: of the session on this machine. `link`: of another session of that store."""
        super().__init__(folder)
        self._link = link or StoreLink(address)
        self._tables = tables_of(self.session)

    def all(self, query: str, *values: object) -> Rows:
        return self._link.fetch(self._tables + query.replace("?", "%s"), values)

    def _original(self, shares: Parent) -> tuple[ReadConnection, int]:
        folder = os.path.join(os.path.dirname(self._folder), shares.session)
        return StoreConnection(folder, self._link.address, self._link), shares.seq

    def blob(self, blob: str) -> bytes | None:
        rows = self.all("SELECT body FROM blobs WHERE hash = ? ORDER BY part", bytes.fromhex(blob))
        return b"".join(body for (body,) in rows) if rows else None

    def fetch_file(self, blob: str) -> str:
        size = self.one(
            "SELECT sum(length(body))::bigint FROM blobs WHERE hash = ?", bytes.fromhex(blob)
        )
        if size is None or (size[0] or 0) <= INLINE_BYTES_MAX:
            return ""
        path = blob_file(self.folder, blob)
        make_folder(os.path.dirname(path))
        replace_file(path, self._parts_of(blob), durable=False)
        return path

    def _parts_of(self, blob: str) -> Iterator[bytes]:
        query = "SELECT body FROM blobs WHERE hash = ? AND part = ?"
        for part in itertools.count():
            rows = self.all(query, bytes.fromhex(blob), part)
            if not rows:
                return
            yield rows[0][0]

    def fetch_snapshot(self) -> None:
        """Write the snapshot of the store to the session's folder, if it is the newer one."""
        path = os.path.join(self.folder, SNAPSHOT)
        newest = self.one("SELECT max(seq) FROM snapshots")
        if newest is None or (newest[0] or 0) <= snapshot_seq(self.folder):
            return
        parts = self.all("SELECT body FROM snapshots ORDER BY part")
        replace_file(path, [body for (body,) in parts], durable=False)

    def close(self) -> None:
        self._link.close()
