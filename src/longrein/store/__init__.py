"""The session log on disk: one database per root session, one writer thread, blobs beside it."""

import importlib
from typing import Any

from longrein.store.fork import fork_log
from longrein.store.goals import Goals, owner_of, project_key
from longrein.store.inbox import leave_message
from longrein.store.log import SessionLog, open_log
from longrein.store.past import Archive, Past
from longrein.store.port import USER, BlobWriter, Found, Hit, Log, Message, SessionInfo, Snapshot
from longrein.store.reading import Reader, read_entries
from longrein.store.sessions import find_session, is_open, latest_session, list_sessions, session_info

__all__ = [
    "USER",
    "Archive",
    "BlobWriter",
    "Content",
    "Found",
    "Goals",
    "Hit",
    "Log",
    "Message",
    "Past",
    "Reader",
    "SessionInfo",
    "SessionLog",
    "Snapshot",
    "contents_of",
    "discard_empty",
    "encoding_of",
    "export_jsonl",
    "find_session",
    "fork_log",
    "import_jsonl",
    "is_open",
    "kind_of",
    "latest_session",
    "leave_message",
    "list_sessions",
    "open_log",
    "owner_of",
    "project_key",
    "read_entries",
    "session_info",
    "title_of",
    "write_transcript",
]


_LATER = {
    "Content": "contents",
    "contents_of": "contents",
    "discard_empty": "empty",
    "encoding_of": "contents",
    "export_jsonl": "export",
    "import_jsonl": "export",
    "kind_of": "contents",
    "title_of": "contents",
    "write_transcript": "export",
}
"""Public name -> where it stands, for what most starts never need."""


def __getattr__(name: str) -> Any:
    """Names of `_LATER`, imported at first use."""
    if name in _LATER:
        return getattr(importlib.import_module(f"longrein.store.{_LATER[name]}"), name)
    raise AttributeError(f"longrein.store has no public name {name!r}")
