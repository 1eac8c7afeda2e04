"""Protocol of a database for the log of one session."""

from collections.abc import Sequence
from typing import Protocol

from longrein.store.blobs import Blobs
from longrein.store.database import LogHash, Write


class LogDatabase(Protocol):
    """The database of a root session, for the writer thread. What brings a file to disk does
    nothing for a server.

    Errors are OSError, sqlite3.Error and `SessionError`.
    """

    blobs: Blobs
    root_hash: LogHash
    """Hash of the root's committed rows."""
    idle_s: float | None = None
    """Time after which `checkpoint` is due when nobody writes; None for never."""
    unflushed: bool = False
    """True if a commit is not on disk."""

    @property
    def has_idle_work(self) -> bool:
        """True if a flush or a checkpoint is due when nobody writes."""
        return False

    def last_key(self, number: int) -> int:
        """Return the key of the last entry of session `number`; 0 when there is none."""

    def commit(self, writes: Sequence[Write]) -> None:
        """Commit all of `writes` and every pending blob in one transaction, or nothing."""

    def close(self) -> None:
        """Close."""

    def check_files(self) -> None:
        """Raise `DatabaseMoved` when the database is no longer at its path."""
        return

    def make_durable(self) -> None:
        """Bring a new database to disk."""
        return

    def sync(self) -> None:
        """Bring every commit to disk."""
        return

    def checkpoint(self, *, idle: bool) -> None:
        """Do the work between commits that is due."""

    def empty_wal(self) -> None:
        """Let nothing deleted stay on the disk."""
        return
