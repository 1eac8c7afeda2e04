"""The store that keeps the sessions of many machines, and where a session is.

A session with a database file is in that file. All others are in the store of their state folder,
if it has one; their folders hold copies of large blobs, checkpoints and temporary files.
"""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from longrein.store.blobs import Blobs
from longrein.store.session_folder import DATABASE, make_folder, session_folder, session_id
from longrein.store.store_port import SessionInfo
from longrein_context.events import Opened, SessionUnknown

if TYPE_CHECKING:
    from longrein.store.log_database import LogDatabase
    from longrein.store.reader import ReadConnection
    from longrein.store.repair import LogSummary


class SessionStore(Protocol):
    """A store in which sessions are that have no database file. Every method raises
    `SessionError` when the store cannot be used.
    """

    name: str
    """Name for people of the place of the sessions, without a password."""
    log_class: Any  # a type of `log` would tie this module to all that opens a log
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

    def read_connection(self, folder: str) -> "ReadConnection":
        """Return a connection to the session of a folder."""

    def open_database(
        self, folder: str, blobs: Blobs, *, create: bool
    ) -> "tuple[LogDatabase, LogSummary]":
        """Open the session of a folder for writing; return its database and what its log holds.
        Raises what `log.open_log` raises.
        """


_stores: dict[str, SessionStore] = {}


def use_store(state_dir: str, store: SessionStore | None) -> None:
    """Keep the new sessions of `state_dir` in `store`; None: in files."""
    if store is None:
        _stores.pop(os.path.abspath(state_dir), None)
    else:
        _stores[os.path.abspath(state_dir)] = store


def store_of(state_dir: str) -> SessionStore | None:
    """Return the store of `state_dir`; None where sessions are files."""
    return _stores.get(os.path.abspath(state_dir))


def store_with(folder: str) -> SessionStore | None:
    """Return the store that has the session in `folder`; None for one in files."""
    if not _stores or os.path.exists(os.path.join(folder, DATABASE)):
        return None
    return store_of(os.path.dirname(os.path.dirname(folder)))


def passwords_in(address: str) -> list[str]:
    """Return the password in the address of a store, as it is written and as it is meant; empty
    for none.
    """
    try:
        written = urlsplit(address).password or ""
    except ValueError:
        return []
    return [text for text in (written, unquote(written)) if text]


def existing_folder(state_dir: str, session: str) -> str:
    """Return the folder of an existing session. Raises `SessionUnknown`."""
    folder = session_folder(state_dir, session)
    if os.path.isdir(folder):
        return folder
    store = store_with(folder)
    if store and store.has_session(session_id(session)):
        make_folder(folder)
        return folder
    raise SessionUnknown(f"there is no session {session}; `longrein sessions` lists them")
