"""Protocols of a database for the log of one session, and of a store for the sessions of many
machines.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from longrein.store.blobs import Blobs
from longrein.store.database import LogHash, Write
from longrein.store.store_port import SessionInfo
from longrein_context.events import Opened


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


class SessionStore(Protocol):
    """A store in which sessions are that have no database file. Every method raises
    `SessionError` when the store cannot be used.
    """

    name: str
    """Name for people of the place of the sessions, without a password."""
    log_class: Any
    """Subclass of `log.SessionLog` for sessions of the store."""

    def has_session(self, session: str) -> bool:
        """Return True if the store has the session."""

    def is_open(self, session: str, folder: str) -> bool:
        """Return True if a process has the session open, whose folder here is `folder`."""

    def infos(self, state_dir: str, session: str = "") -> Iterator[SessionInfo]:
        """Iterate the summaries of sessions with entries, latest first; of one with `session`."""

    def ids_from(self, start: str) -> list[str]:
        """Return the first ids in order that begin with `start`, or a few."""

    def leave_message(self, session: str, body: bytes, most: int) -> None:
        """Leave a message for the process that has the session open, or opens it next. Raises
        `SessionError` if `most` wait already.
        """

    def remove_session(self, session: str, folder: str, *, with_letters: bool = True) -> None:
        """Delete the session whose folder this process has locked, but for the entries and blobs
        that its forks read; without `with_letters` only if no message waits. Raises
        `SessionUnknown`, `SessionBusy`.
        """

    def create_fork(self, folder: str, opened: Opened, at: int, title: str) -> None:
        """Create the session that `opened` opens, whose log begins with entries of its parent.
        Raises `SessionUnknown`.
        """

    def change_shared(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Replace the value `name`, which all processes see, by what `change` makes of it: b'' is
        none. `change` may be called several times. Waits hardly for a lost connection.
        """

    def remove_shared(self, name: str) -> None:
        """Remove the value `name`, if there is one."""

    def read_connection(self, folder: str) -> Any:
        """Return a `reader.ReadConnection` to the session of a folder."""

    def open_database(self, folder: str, blobs: Blobs, *, create: bool) -> Any:
        """Open the session of a folder for writing; return its `LogDatabase` and `LogSummary`.
        Raises what `log.open_log` raises.
        """
