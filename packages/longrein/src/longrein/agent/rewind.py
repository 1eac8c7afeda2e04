"""Rewind of the conversation and its files, and undoing a compaction.

Files are restored only on request, and only where nobody else has changed them since. What commands
changed is restored from checkpoints (`agent.rewind_trees`); what the log alone holds, such as edits
of ignored files, from its blobs.
"""

from collections.abc import Callable

import msgspec

from longrein.agent.moves import call_ended
from longrein.agent.rewind_log import FilesInLog, step_end
from longrein.agent.session import Session
from longrein.models import ReadBlob
from longrein.workspace import Workspace
from longrein_context import OpenCall, state_at, window_of
from longrein_context.events import Entry, FilePut, Restored, Rewound, ToolEnded

CHANGED_SINCE = "it was changed since by somebody else"
PERHAPS = "it changed while"
"""Begins why a file stays of which nobody knows whose change it was."""
PUTS_MAX = 500
"""Restored files that `Rewound` names; those that stayed, and those that the model knows, are
always named.
"""


class RestoredTrees(msgspec.Struct, frozen=True):
    """Result of a restore from checkpoints."""

    files: tuple[FilePut, ...]
    covered: frozenset[str]
    """Paths for which the log's own contents are not asked."""


def rewind(session: Session, to: int, *, files: bool, trees: RestoredTrees | None) -> None:
    """Append `Rewound`. `to` moves back to the end of its step, so that every call has its result.

    `trees`: what `restore_trees` has restored.
    """
    to = step_end(session.history, to)
    session.append(*(_left(open_call) for open_call in session.state.calls.values()))
    put = restore_files(session, to, trees) if files else ()
    session.append(Rewound(to, put))


def restore_files(session: Session, to: int, trees: RestoredTrees | None) -> tuple[FilePut, ...]:
    """Restore the files as of entry `to` from the log; return them with those from checkpoints,
    shortened where it is much.

    Where the conversation stays, the model is told of the changes like of anybody else's.
    """
    entries = file_entries(session.entries_of, to)
    puts = put_back(session.deps.workspace, session.log.read_blob, entries, to, trees)
    if trees is None:
        return puts
    known = session.state.files
    important = [put for put in trees.files if not put.done or put.path in known]
    others = [put for put in trees.files if put.done and put.path not in known]
    left = len(others) - PUTS_MAX
    if left > 0:
        session.notice(f"{left} more files were restored or removed; the list is shortened")
    return tuple(sorted([*puts, *important, *others[:PUTS_MAX]], key=doubtful_first))


def file_entries(entries_of: Callable[..., list[Entry]], to: int) -> list[Entry]:
    """Return the entries from which the files' contents at entry `to` are known; none where no
    file was changed since. `entries_of`: that of a session.
    """
    if not entries_of("FileChanged", "Rewound", after=to):
        return []
    return entries_of("FileSeen", "FileChanged", "Rewound")


def doubtful_first(put: FilePut) -> tuple[bool, str]:
    """Order files by path, first those that stayed because nobody knows whose change it was."""
    return not put.why.startswith(PERHAPS), put.path


def uncompact(session: Session, seq: int) -> None:
    """Append `Restored` for the compaction at `seq`, the last one for 0; tell the user when it
    is impossible.
    """
    state = session.state
    undone = seq or (state.compactions[-1] if state.compactions else 0)
    if undone not in state.compactions:
        known = ", ".join(f"r{n}" for n in state.compactions[-5:]) or "none"
        at = f" at r{undone}; those that can be undone: {known}" if undone else ""
        session.notice(f"there is no compaction to undo{at}")
        return
    before = state_at(session, state.seq, without=undone)
    usable = window_of(session.state, session.deps.model.budget).usable_tokens
    if before.view_tokens > usable:
        session.notice(
            f"r{undone} stays: without it the context would have {before.view_tokens} of {usable} "
            "tokens"
        )
        return
    session.append(Restored(undone))


def _left(call: OpenCall) -> ToolEnded:
    status, what = (
        ("interrupted", "interrupted; it may have run") if call.started else ("not_run", "not run")
    )
    return call_ended(call, status, f"{what}: the user went back")


def put_back(
    workspace: Workspace,
    read_blob: ReadBlob,
    entries: list[Entry],
    to: int,
    trees: RestoredTrees | None = None,
    *,
    dry: bool = False,
) -> tuple[FilePut, ...]:
    """Restore every file that this session changed after `to` and that `trees` do not cover.
    `dry`: only tell.
    """
    files = FilesInLog(entries)
    put = []
    for path, (seq, ours) in sorted(files.ours.items()):
        wanted = files.at(path, to)
        if seq <= to or wanted == ours or (trees is not None and path in trees.covered):
            continue
        if files.merged.get(path, 0) > to:
            put.append(FilePut(path, False, "somebody else's change was merged into it"))
        else:
            old = (wanted, files.kept.get(wanted, ""), files.mode_at(path, to))
            put.append(_put(workspace, read_blob, path, old, ours, dry=dry))
    return tuple(put)


def _put(
    workspace: Workspace,
    read_blob: ReadBlob,
    path: str,
    old: tuple[str, str, int | None],
    ours: str,
    *,
    dry: bool,
) -> FilePut:
    """Replace content `ours` by the `old` one: its hash, the blob that has it, and the permissions
    where the file is gone.
    """
    wanted, blob, mode = old
    found = workspace.hash(path) or (
        "" if workspace.resolve(path, "/").kind == "" else "unreadable"
    )
    if found == wanted:  # restored before a crash, or by somebody else
        return FilePut(path, True, removed=not wanted)
    if wanted and not blob:
        return FilePut(path, False, "its old content was not kept")
    if found != ours:
        return FilePut(path, False, CHANGED_SINCE)
    try:
        if dry:
            pass
        elif wanted:
            replaced = workspace.replace(path, read_blob(blob), expect=ours, mode=mode)
            if replaced.data is None:
                return FilePut(path, False, CHANGED_SINCE)
        else:
            workspace.remove(path)
    except (OSError, KeyError) as error:
        return FilePut(path, False, str(error))
    return FilePut(path, True, removed=not wanted)
