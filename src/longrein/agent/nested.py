"""Instruction files of sub-folders: read when a tool first touches the folder, told once, frozen in the log."""

import posixpath
from collections.abc import Sequence
from hashlib import sha256

from longrein.agent.session import Session
from longrein.events import FileSeen, Reminded, ToolCall, marker


def tell_nested(session: Session, calls: Sequence[ToolCall]) -> None:
    """Append a `Reminded` for each instruction file that governs what `calls` touched and was not told yet."""
    for folder in _folders(session, calls):
        told = [*(source.path for source in session.prefix_sources), *session.state.told]
        for path, text in session.crew.nested(folder, told):
            head = marker(session.state.nonce, "instructions", f"{path}, for the files of its folder and below")
            session.append(Reminded("nested_memory", f"{head}\n{text}", folder, path), *_seen(session, path))


def _seen(session: Session, path: str) -> tuple[FileSeen, ...]:
    """So that a change of it is told like one of any file that the model knows."""
    try:
        data = session.crew.workspace.read(path)
    except OSError:
        return ()
    return (FileSeen(path, sha256(data).hexdigest(), session.blobs.put_blob(data), whole=False),)


def _folders(session: Session, calls: Sequence[ToolCall]) -> list[str]:
    """Folders inside the roots that are touched for the first time since the session was opened here."""
    found: dict[str, None] = {}
    for call in calls:
        tool = session.crew.tools.get(call.name)
        for path, _ in tool.paths(call.arguments or {}) if tool else ():
            place = session.crew.workspace.look(path, session.state.cwd)
            folder = place.real if place.kind == "folder" else posixpath.dirname(place.real)
            seen = (folder, session.state.settled_seq)  # a compaction may have taken the text away
            if place.inside and seen not in session.folders_seen:
                session.folders_seen[seen] = found[folder] = None
    return list(found)
