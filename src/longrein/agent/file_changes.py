"""Before each request, and around each command, the session looks: what became of the files that the model knows?

It appends facts only. What of them the model is told, and how, `context.due` decides from the log. A change is put down
to an agent of the tree or a command of one where the content is known to be theirs; to the command that ran between two
looks; to what ran beside; else to the user.
"""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from longrein.agent.session import Session
from longrein.agent.shared_files import Writer, first_words
from longrein.context import State
from longrein.events import AnyEvent, FileChanged, FileSeen, Reminded, ToolCall, marker
from longrein.tools import Tool, is_read_only


async def look_around(session: Session) -> None:
    """Append a `FileChanged` for each known file that changed; once for a request, so that a busy file stops nobody."""
    state, watch, crew = session.state, session.watch, session.crew
    moment = (state.asks, session.rested, state.breaks)
    if session.paused or watch.looked == moment or not _asks_next(state):
        return
    watch.looked, since_us, watch.since_us = moment, watch.since_us, 0
    found: list[AnyEvent] = list(await _changes(session, _beside(session)))
    if found and since_us:
        gap_s = max(0, crew.clock.wall_us() - since_us) // 1_000_000
        found.insert(0, Reminded("resumed", "", "files", str(gap_s)))
    session.append(*found)


def _asks_next(state: State) -> bool:
    """Whether a request comes next, as far as the log alone can tell."""
    waits = bool(state.calls) or state.asked is not None or state.interrupted
    return state.turn_open and state.owes_reply and not waits


def may_change(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Whether a call runs a command that may change any file: known ones are compared before and after it."""
    command = arguments.get("command")
    reads = is_read_only(command) if isinstance(command, str) else tool.together(arguments)
    return tool.access == "command" and not reads


async def before_command(session: Session) -> list[FileChanged]:
    """What changed before a command runs, so that it is not put down to that."""
    return await _changes(session, _beside(session))


async def after_command(session: Session, arguments: Mapping[str, Any]) -> list[FileChanged]:
    """What changed while a command ran; other agents hear whose it is."""
    writers, writer = session.crew.writers, writer_of(session, arguments)
    changes = await _changes(session, ("command", writer.command))
    for change in changes:
        if change.by == "command":
            writers.note(change.path, change.hash, writer)
    return changes


def note_written(session: Session, facts: Iterable[AnyEvent]) -> None:
    """What a tool of this agent wrote: other agents of the tree hear whose it is."""
    for fact in facts:
        if isinstance(fact, FileChanged) and fact.by == "agent":
            session.crew.writers.note(fact.path, fact.hash, Writer(session.state.label))


def writer_of(session: Session, arguments: Mapping[str, Any]) -> Writer:
    """Who a call of this session is: the agent itself, or the command it runs."""
    return Writer(session.state.label, first_words(str(arguments.get("command", ""))))


def writer_words(session: Session, path: str, digest: str) -> str:
    """Who wrote this content, in words for this session; '' when it is not known."""
    writer = session.crew.writers.of(path, digest)
    return "" if writer is None else writer.words(session.state.label)


async def _changes(session: Session, otherwise: tuple[str, str]) -> list[FileChanged]:
    """A fact for each known file that changed; `otherwise`: whose it is when nobody of the tree is known to have."""
    crew, label = session.crew, session.state.label

    def whose(path: str, digest: str) -> tuple[str, str]:
        writer = crew.writers.of(path, digest)
        by, who = writer.seen_by(label) if writer is not None else otherwise
        return ("user", "") if by == "agent" else (by, who)  # a content of ours that somebody brought back

    return await session.watch.changes(
        session.state, crew.workspace, session.blobs, crew.redact, whose=whose, keep=crew.options.keep_bytes_max
    )


def _beside(session: Session) -> tuple[str, str]:
    """Whose a change most probably is that no command of ours ran for: `by` and `who`."""
    tasks = [
        name for name, task in session.state.tasks.items() if task.ended is None and task.started.state != "queued"
    ]
    if tasks:
        return "command", tasks[0] if len(tasks) == 1 else "a command"
    others = session.crew.writers.running(session.state.label)
    if others:
        label = session.state.label
        return others[0].seen_by(label) if len(others) == 1 else ("subagent", "")
    return "user", ""


# ---------------------------------------------------------------------------------------------------------------------
#
# Instruction files of sub-folders: read when a tool first touches the folder, told once, frozen in the log.


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
