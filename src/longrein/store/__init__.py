"""The session log on disk: one database per root session, one writer thread, blobs beside it."""

from longrein.store.inbox import leave_message
from longrein.store.log import SessionLog, open_log
from longrein.store.port import BlobWriter, Log, Message, SessionInfo
from longrein.store.reading import Reader, read_entries

__all__ = [
    "BlobWriter",
    "Log",
    "Message",
    "Reader",
    "SessionInfo",
    "SessionLog",
    "leave_message",
    "open_log",
    "read_entries",
]
