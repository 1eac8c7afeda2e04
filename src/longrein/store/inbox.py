"""Words from other processes: each is a file in the session's `inbox/`, taken into the database once."""

import itertools
import os

from longrein.events import SessionError
from longrein.store.faults import store_failure
from longrein.store.folder import INBOX, existing_folder, flush_path, make_folder, write_file

MESSAGE_BYTES_MAX = 1024 * 1024
"""Of one message from another process."""
MESSAGES_MAX = 256
"""Taken in at once, and at most so many may lie there."""

_numbers = itertools.count(1)


def leave_message(state_dir: str, session: str, body: bytes) -> None:
    """Leave `body` for the process that has `session` open, or opens it next. On disk when this returns.

    Raises `SessionUnknown`, `StoreFull`, `SessionError`.
    """
    folder = existing_folder(state_dir, session)
    inbox = os.path.join(folder, INBOX)
    if len(body) > MESSAGE_BYTES_MAX:
        raise SessionError(f"a message of {len(body)} bytes is too long; {MESSAGE_BYTES_MAX} is the limit")
    if len(waiting_files(folder)) >= MESSAGES_MAX:
        raise SessionError(f"{MESSAGES_MAX} messages wait in {inbox} already; open the session to take them in")
    number = next(_numbers)
    temporary = os.path.join(inbox, f".{os.getpid()}-{number}")
    try:
        make_folder(inbox)
        write_file(temporary, (body,))
        # the kernel's time orders senders, pid and number tell apart what it does not: a name is never used twice
        name = f"{os.stat(temporary).st_mtime_ns:020d}-{os.getpid()}-{number:06d}"
        os.rename(temporary, os.path.join(inbox, name))
        flush_path(inbox)
    except OSError as error:
        raise store_failure(error, folder) from None


def waiting_files(folder: str) -> list[str]:
    """Names of messages that lie in the inbox of the session in `folder`, oldest first."""
    try:
        return sorted(name for name in os.listdir(os.path.join(folder, INBOX)) if name[0] != ".")[:MESSAGES_MAX]
    except FileNotFoundError:
        return []


def read_message(folder: str, name: str) -> bytes:
    """Body of one; empty when it is gone."""
    try:
        with open(os.path.join(folder, INBOX, name), "rb") as file:
            return file.read(MESSAGE_BYTES_MAX)
    except OSError:
        return b""


def remove_message(folder: str, name: str) -> None:
    """Remove one that is stored; a missing one is fine."""
    try:
        os.unlink(os.path.join(folder, INBOX, name))
    except OSError:
        return
