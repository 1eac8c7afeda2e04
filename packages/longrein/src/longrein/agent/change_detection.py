"""Detect and attribute changes of files that the model knows.

Before each request and around each command the known files are compared with the disk, and each
change becomes a `FileChanged`. `context.due` decides from the log what the model is told. A change
is attributed to an agent of the tree or its command when that is known to have written the content;
else to the command that ran meanwhile; else to background work; else to the user.
"""

import asyncio
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from longrein.agent.dependencies import Dependencies
from longrein.agent.git_metadata import find_git_folder
from longrein.agent.redaction import RedactingBlobs
from longrein.agent.session import Session
from longrein.agent.session_part import SessionPart
from longrein.agent.shared_files import FileWriter, FileWriters, first_words
from longrein.choices import is_small
from longrein.tools import Tool
from longrein.workspace import ResolvedPath, Workspace
from longrein_context import State, estimate_text, neutralize_markers
from longrein_context.events import (
    AnyEvent,
    FileChanged,
    FileSeen,
    Reminded,
    ToolCall,
    framed,
    marker,
    without_sign,
)
from longrein_context.events.escape import shortened

if TYPE_CHECKING:
    from longrein.agent.current_rules import CurrentRules


async def record_file_changes(session: Session) -> None:
    """Append a `FileChanged` for each known file that changed; at most once for a request."""
    state = session.state
    watch = session.file_watcher
    deps = session.deps
    moment = (state.asks, session.paused_failures, state.breaks)
    waits = bool(state.calls) or state.asked is not None or state.interrupted
    asks_next = state.turn_open and state.owes_reply and not waits  # as far as the log alone shows
    if session.paused or watch.looked == moment or not asks_next:
        return
    watch.looked = moment
    since_us = watch.since_us
    watch.since_us = 0
    found: list[AnyEvent] = list(await changed_files(session, presumed_author(state, deps.writers)))
    if found and since_us:
        gap_s = max(0, deps.clock.wall_us() - since_us) // 1_000_000
        found.insert(0, Reminded("resumed", "", "files", str(gap_s)))
    session.append(*found, *watch.branch.change(state))
    await tell_project(session)
    for part in session.parts_with(SessionPart.reminders):
        session.append(*part.reminders())


def may_change(now: "CurrentRules", tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Return True if a call runs a command that may change any file."""
    from longrein.agent.call_footprint import footprint_of

    if tool.access != "command":
        return False
    return not footprint_of(now, tool, arguments, resolves=False).reads_only


def note_written(writers: FileWriters, label: str, facts: Iterable[AnyEvent]) -> None:
    """Note this agent as the writer of the files that a tool changed."""
    for fact in facts:
        if isinstance(fact, FileChanged) and fact.by == "agent":
            writers.note(fact.path, fact.hash, FileWriter(label))


def writer_of(label: str, arguments: Mapping[str, Any]) -> FileWriter:
    """Return the writer that a call stands for: the agent, or the command it runs."""
    return FileWriter(label, first_words(str(arguments.get("command", ""))))


def describe_writer(writers: FileWriters, label: str, path: str, digest: str) -> str:
    """Describe the writer of this content for the model; '' when unknown."""
    writer = writers.of(path, digest)
    return "" if writer is None else writer.words(label)


async def changed_files(session: Session, otherwise: tuple[str, str]) -> list[FileChanged]:
    """Return the changes of known files; `otherwise` is (`by`, `who`) where no agent of the tree
    wrote them.
    """
    deps, label = session.deps, session.state.label

    def whose(path: str, digest: str) -> tuple[str, str]:
        writer = deps.writers.of(path, digest)
        by, who = writer.seen_by(label) if writer is not None else otherwise
        return (
            ("user", "") if by == "agent" else (by, who)
        )  # the agent's old content, restored by somebody else

    return await session.file_watcher.changes(session.state, whose)


def presumed_author(state: State, writers: FileWriters) -> tuple[str, str]:
    """Return (`by`, `who`) of a change that happened while no command of this session ran."""
    tasks = [
        name
        for name, task in state.tasks.items()
        if task.ended is None and task.started.state != "queued"
    ]
    if tasks:
        return "command", tasks[0] if len(tasks) == 1 else "a command"
    others = writers.running(state.label)
    if others:
        return others[0].seen_by(state.label) if len(others) == 1 else ("subagent", "")
    return "user", ""


# --- Nested instruction files ---------------------------------------------------------------------
#
# Instruction files of a sub-folder are read when a tool first touches the folder, told once, and
# kept in the log.


def tell_nested_instructions(session: Session, calls: Sequence[ToolCall]) -> None:
    """Append a `Reminded` for each untold instruction file of the folders that `calls` touched."""
    for folder in _new_folders(
        session.folders_seen,
        session.state.settled_seq,
        touched_places(session.deps, session.state.cwd, calls),
    ):
        sources = session.state.prefix.sources if session.state.prefix else ()
        told = [*(source.path for source in sources), *session.state.told]
        for path, text in session.deps.nested(folder, told):
            head = marker(
                session.state.nonce,
                "instructions",
                f"{path}, for the files of its folder and below",
            )
            said = without_sign(text, session.state.nonce)
            session.append(
                Reminded("nested_memory", f"{head}\n{said}", folder, path),
                *_seen(session.deps.workspace, session.blobs, path),
            )


def _seen(workspace: Workspace, blobs: RedactingBlobs, path: str) -> tuple[FileSeen, ...]:
    """Return a `FileSeen`, so that a change of the file is noticed like that of any known file."""
    try:
        data = workspace.read(path)
    except OSError:
        return ()
    return (FileSeen(path, sha256(data).hexdigest(), blobs.put_blob(data), whole=False),)


def touched_places(
    deps: Dependencies, cwd: str, calls: Sequence[ToolCall]
) -> Iterator[ResolvedPath]:
    """Yield the places inside the roots that `calls` name."""
    for call in calls:
        tool = deps.tools.get(call.name)
        for path, _ in tool.paths(call.arguments or {}) if tool else ():
            place = deps.workspace.resolve(path, cwd)
            if place.inside:
                yield place


def _new_folders(
    known: dict[tuple[str, int], None], settled_seq: int, places: Iterable[ResolvedPath]
) -> list[str]:
    """Return the folders that are touched for the first time since the session was opened."""
    found: dict[str, None] = {}
    for place in places:
        folder = place.real if place.kind == "folder" else posixpath.dirname(place.real)
        seen = (folder, settled_seq)  # a compaction may have removed the text
        if seen not in known:
            known[seen] = found[folder] = None
    return list(found)


# --- The start of a project -----------------------------------------------------------------------
#
# Tell the model where it is once, before the first request of a session: the files of the
# repository, its status, its newest commits.
#
# The text stands before the user's first words and stays as it is. Changes are told as they happen
# (`file_watcher.BranchWatcher`, `record_file_changes`).

GIT_TIMEOUT_S = 1.0
"""Longest wait for git. What it has not said by then is left out."""
STATUS_LINES_MAX = 20
COMMITS_MAX = 5
LINE_CHARS_MAX = 100
IGNORED_MAX = 12
TREE_TOKENS, SMALL_TREE_TOKENS = 1_200, 400
"""Tokens for the files, and those in the profile `small`."""
LOOK_FIRST = (
    "no file has been read yet. Call Read on the files that this is about before you answer or "
    "change them"
)
"""Note behind the first words in the profile `small`: a small model answers and edits from the
names of files. In the system text it does not heed this."""


async def tell_project(session: Session) -> None:
    """Append files, status and newest commits of the repository before the first request, where
    there is one.
    """
    state, deps = session.state, session.deps
    if (
        not deps.tells_project
        or state.asks
        or deps.parent_policy is not None
        or state.profile.startswith("seed")
    ):
        return
    folder = deps.workspace.roots[0]
    git_folder = (
        find_git_folder(deps.workspace, folder) if any(map(_reads, deps.tools.values())) else ""
    )
    if not git_folder or not deps.workspace.resolve(f"{git_folder}/index", "/").kind:
        return
    session.commit(flush=False)
    git_lines = partial(_lines, deps.workspace, session.process_session)
    status, files, commits = await asyncio.gather(
        git_lines("status", "--porcelain=v1", "--branch", "--no-renames", "--ignored", "-z"),
        git_lines("ls-files", "-z"),
        git_lines("log", "-z", f"-{COMMITS_MAX}", "--format=%h %s"),
    )
    small = is_small(state.profile, deps.model.budget.window_tokens)
    told = project_lines(status, files, commits, SMALL_TREE_TOKENS if small else TREE_TOKENS)
    if told:
        text = "\n".join(neutralize_markers(line, state.nonce) for line in told)
        session.append(Reminded("project", framed(state.nonce, "project", text), "git"))
    if small and files and "Read" in deps.tools:
        session.append(Reminded("look_first", marker(state.nonce, "project", LOOK_FIRST), "git"))


def _reads(tool: Tool) -> bool:
    return tool.access in ("read", "command")


async def _lines(workspace: Workspace, process_session: str, *arguments: str) -> list[str]:
    """Return the NUL-separated output of git as one-line texts; [] when it fails or takes too
    long.
    """
    from longrein.workspace.git import run_git

    code, output = await run_git(
        workspace, arguments, workspace.roots[0], process_session, timeout_s=GIT_TIMEOUT_S
    )
    texts = os.fsdecode(output).split("\0") if code == 0 else []
    return [text.replace("\n", "\\n") for text in texts if text]


def project_lines(
    status: Sequence[str], files: Sequence[str], commits: Sequence[str], room_tokens: int
) -> list[str]:
    """Describe a repository. `status`: lines of git, the branch first; `files`: sorted paths."""
    ignored = [line[3:] for line in status if line.startswith("!! ")]
    changed = [line for line in status[1:] if not line.startswith("!! ")]
    told = []
    if files:
        told += [f"Files of the project, as git knows them ({len(files)}):"]
        told += file_lines(files, room_tokens)
    if ignored:
        more = f" and {len(ignored) - IGNORED_MAX} more" if len(ignored) > IGNORED_MAX else ""
        names = ", ".join(shortened(name, LINE_CHARS_MAX) for name in ignored[:IGNORED_MAX])
        told.append(f"Ignored by git: {names}{more}")
    if status:
        head = shortened(status[0].removeprefix("## "), LINE_CHARS_MAX)
        told.append(f"Branch and git status: {head}, {len(changed) or 'nothing'} changed")
        told += [shortened(line, LINE_CHARS_MAX) for line in changed[:STATUS_LINES_MAX]]
        if len(changed) > STATUS_LINES_MAX:
            told.append(f"… and {len(changed) - STATUS_LINES_MAX} more")
    if status and commits:
        told += ["Newest commits:", *(shortened(line, LINE_CHARS_MAX) for line in commits)]
    return told


def file_lines(files: Sequence[str], room_tokens: int) -> list[str]:
    """Return lines of at most `room_tokens` for the sorted paths: files, and folders that do not
    fit with the number of files below.

    What lies higher is opened first; of folders beside each other the smaller one.
    """
    shown = _entries("", files)
    room = room_tokens - sum(map(_tokens, shown))
    kept: set[str] = set()
    while closed := [name for name in shown if name.endswith("/") and name not in kept]:
        name = min(closed, key=lambda name: (name.count("/"), len(_entries(name, shown[name]))))
        opened = _entries(name, shown[name])
        needed = sum(map(_tokens, opened)) - _tokens(name)
        if needed > room:
            kept.add(name)
            continue
        room -= needed
        del shown[name]
        shown |= opened
    lines = [
        shortened(name, LINE_CHARS_MAX) + (f" ({len(below)} files)" if name in kept else "")
        for name, below in sorted(shown.items())
    ]
    while lines and sum(map(_tokens, lines)) > room_tokens:  # a folder with thousands of files
        del lines[len(lines) * 7 // 8 or 1 :]
    more = len(shown) - len(lines)
    return [*lines, *([f"… and {more} more entries"] if more else [])]


def _tokens(line: str) -> int:
    return estimate_text(shortened(line, LINE_CHARS_MAX)) + 1


def _entries(folder: str, files: Sequence[str]) -> dict[str, list[str]]:
    """Return the entries of `folder`: each file, and each folder with the files below it."""
    found: dict[str, list[str]] = {}
    for path in files:
        name, slash, _ = path[len(folder) :].partition("/")
        found.setdefault(f"{folder}{name}{slash}", []).append(path)
    return found
