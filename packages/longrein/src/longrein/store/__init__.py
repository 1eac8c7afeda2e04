"""The session log: one SQLite database per root session, or rows of a shared PostgreSQL database;
one writer thread, blob files.
"""

from typing import TYPE_CHECKING

from longrein.store.entry_parts import Content, contents_of, encoding_of, title_of
from longrein.store.goals_file import Goals, owner_of, project_key
from longrein.store.history import HistoryReader
from longrein.store.log import SessionLog, leave_message, open_log
from longrein.store.reader import Reader, read_entries
from longrein.store.session_folder import HookFiles
from longrein.store.store_port import (
    USER,
    BlobWriter,
    Log,
    Message,
    SearchHit,
    SearchResult,
    SessionInfo,
    Snapshot,
)
from longrein.store.stored_sessions import (
    chosen_session,
    discard_empty,
    find_session,
    is_open,
    latest_session,
    list_sessions,
    session_info,
)
from longrein_context.lazy_names import names_at_first_use

if TYPE_CHECKING:
    from longrein.store.bundle import BundleReport, is_bundle, read_bundle, write_bundle
    from longrein.store.deletion import delete_session, freed_bytes
    from longrein.store.export import export_jsonl, write_transcript
    from longrein.store.fork import fork_log
    from longrein.store.log_search import scan
    from longrein.store.session_history import SessionHistory

__getattr__ = names_at_first_use(
    __name__,
    {
        "bundle": "BundleReport is_bundle read_bundle write_bundle",
        "deletion": "delete_session freed_bytes",
        "export": "export_jsonl write_transcript",
        "fork": "fork_log",
        "log_search": "scan",
        "session_history": "SessionHistory",
    },
)

__all__ = [
    "USER",
    "BlobWriter",
    "BundleReport",
    "Content",
    "Goals",
    "HistoryReader",
    "HookFiles",
    "Log",
    "Message",
    "Reader",
    "SearchHit",
    "SearchResult",
    "SessionHistory",
    "SessionInfo",
    "SessionLog",
    "Snapshot",
    "chosen_session",
    "contents_of",
    "delete_session",
    "discard_empty",
    "encoding_of",
    "export_jsonl",
    "find_session",
    "fork_log",
    "freed_bytes",
    "is_bundle",
    "is_open",
    "latest_session",
    "leave_message",
    "list_sessions",
    "open_log",
    "owner_of",
    "project_key",
    "read_bundle",
    "read_entries",
    "scan",
    "session_info",
    "title_of",
    "write_bundle",
    "write_transcript",
]
