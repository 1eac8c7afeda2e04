"""The session log on disk: one database per root session, one writer thread, blobs beside it."""

from longrein.store.port import BlobWriter, Log, Message, SessionInfo

__all__ = ["BlobWriter", "Log", "Message", "SessionInfo"]
