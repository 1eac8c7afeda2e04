"""Rewind of the work tree from checkpoints, and the preview of a rewind.

The log holds checkpoints of the work tree from before and after each call that may change files. A
rewind to an entry wants the tree of the first checkpoint after it, without the edits made between
the two. What changed while calls of the session ran is the session's own. What changed in between
is somebody else's, unless the log holds the edit; such files are kept.
"""

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256

import msgspec

from longrein.agent.messages import Rewind, RewindPreview
from longrein.agent.rewind import (
    CHANGED_SINCE,
    PERHAPS,
    RestoredTrees,
    doubtful_first,
    file_entries,
    put_back,
)
from longrein.agent.rewind_log import (
    FilesInLog,
    Gap,
    begun_rewind,
    first_checkpoint,
    gaps,
    step_end,
    unclaimed_files,
)
from longrein.agent.session import Session
from longrein.agent.session_part import Checkpoints
from longrein.agent.shared_files import first_words
from longrein.models import ReadBlob
from longrein.workspace.atomic_write import recover_temp_files
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.shadow_repository import ShadowRepository
from longrein.workspace.supervisor.openat import open_folder
from longrein.workspace.tree_records import (
    CLOSED,
    UNREADABLE,
    CheckpointError,
    TreeFile,
    TreeRecord,
    usual_mode,
)
from longrein.workspace.tree_restore import (
    FileTarget,
    put_files,
    remove_empty_folders,
    remove_files,
)
from longrein_context import State
from longrein_context.events import CheckpointTaken, Entry, FilePut, Replied, ToolCall
from longrein_context.events.escape import valid_text

NOT_KEPT = "its old content was not kept"
NOT_COMPARED = "it was not compared"
UNREAD = f"{PERHAPS} it could not be read, perhaps by you"
UNTRACED = (
    "what you changed while a command ran outside the sandbox cannot be told from what it changed"
)
IGNORED = "`.gitignore` excluded it then, so it may be older"


# --- Plan -----------------------------------------------------------------------------------------


class OldContent(msgspec.Struct, frozen=True):
    """Content of an edited file at the entry that a rewind goes back to, where the checkpoint is
    younger.
    """

    hash: str
    """Hash of the content to restore; '' for no file."""
    replaced: str
    """Hash of the content that the edits left."""
    read: Callable[[], bytes] | None = None
    """Reads the content; None where it was not kept."""
    mode: int | None = None
    """Permissions of a file that the agent removed; None where unknown."""


class RootPlan(msgspec.Struct):
    """Plan for the files of one root."""

    root: str
    repository: ShadowRepository
    targets: list[FileTarget] = []
    kept: dict[str, str] = {}
    """Path -> why it stays as it is."""
    folders: list[str] = []
    """Empty folders to be made."""
    extra_folders: list[str] = []
    """Empty folders that did not exist then."""
    keep_folders: set[str] = set()
    """Folders that existed then."""
    covered: set[str] = set()
    """Files of both checkpoints."""


def make_plan(
    store: CheckpointStore,
    name: str,
    now: Mapping[str, TreeRecord],
    between: Sequence[Gap],
    older: Mapping[str, OldContent],
    *,
    unclaimed: Sequence[str] = (),
    overwrite: bool = False,
) -> list[RootPlan]:
    """Plan the way from the tree `now` to the checkpoint `name`. Raises `CheckpointError`, OSError.

    `unclaimed`: see `unclaimed_files`. `older`: files that are to become older than the checkpoint.
    `overwrite`: also those that others have changed.
    """
    then = store.load(name)
    plans = []
    for root, record in then.items():
        if root in now:
            repository = store.repository(root)
            foreign: dict[str, str] = {}
            if not overwrite:
                foreign = _foreign(store, repository, root, now[root], between, unclaimed)
            plans.append(_plan_root(repository, root, (record, now[root]), foreign, older))
    return plans


def _foreign(
    store: CheckpointStore,
    repository: ShadowRepository,
    root: str,
    now: TreeRecord,
    between: Sequence[Gap],
    unclaimed: Sequence[str],
) -> dict[str, str]:
    """Return path -> why of the files that somebody else has changed, or may have; '' stands for
    all. A file that a call has removed since is not among them.
    """
    found: dict[str, str] = {}
    names = repository.files(now)
    left = {*names, *map(valid_text, names), ""}  # an event holds the second form
    for gap in between:
        first = store.load(gap.first).get(root)
        last = store.load(gap.last).get(root) if gap.last else now
        if first is None or last is None:
            continue
        changed = repository.changed(first, last)
        edited = {
            path: gap.edits[full]
            for path in changed
            if (full := os.path.join(root, path)) in gap.edits
        }
        blobs = {blob for path in edited for blob in changed[path] if blob not in ("", "?")}
        hashes = {
            blob: sha256(data or b"").hexdigest() for blob, data in repository.contents(blobs)
        } | {"": ""}
        for path, (before, after) in changed.items():
            edits = edited.get(path)
            own = edits is not None and not any(one.over for one in edits)
            if not (
                own
                and edits
                and hashes.get(before) == edits[0].before
                and hashes.get(after) == edits[-1].hash
            ):
                found.setdefault(path, _unread(path, first, last) or _meanwhile(gap.tasks))
                if not after:
                    left.add(path)
    top = f"{root.rstrip('/')}/"
    below = (path.removeprefix(top) for path in unclaimed if path.startswith(top))
    found |= dict.fromkeys(below, _meanwhile(["a command"]))
    return {path: why for path, why in found.items() if path in left}


def _unread(path: str, *records: TreeRecord) -> str:
    """Return why a file stays that one of the records could not look at; '' for another one."""
    is_unread = any(_left_out(path, one) in (CLOSED, UNREADABLE) for one in records)
    return UNREAD if is_unread else ""


def _meanwhile(tasks: Sequence[str]) -> str:
    """Return why a file that changed while `tasks` ran stays as it is."""
    if not tasks:
        return CHANGED_SINCE
    verb = "was running" if len(tasks) == 1 else "were running"
    return f"{PERHAPS} {' and '.join(tasks)} {verb}, perhaps by you"


def _plan_root(
    repository: ShadowRepository,
    root: str,
    records: tuple[TreeRecord, TreeRecord],
    foreign: Mapping[str, str],
    older: Mapping[str, OldContent],
) -> RootPlan:
    """`foreign`: path -> why it stays; '' stands for all paths."""
    was, now = records
    plan = RootPlan(root, repository)
    then_files, now_files = repository.files(was), repository.files(now)
    plan.covered = {os.path.join(root, path) for path in {*then_files, *now_files}}
    wanted: dict[str, TreeFile] = dict(then_files)
    for full, content in older.items():
        if full in plan.covered:
            _older(plan, wanted, os.path.relpath(full, root), content, was.umask)
    added = now_files.keys() - then_files.keys() - wanted.keys()
    ignored = repository.ignored(added, then_files, now_files)
    for path in sorted({*wanted, *now_files}):
        full = os.path.join(root, path)
        present = now_files.get(path)
        target = wanted.get(path)
        if present == target or full in plan.kept:
            continue
        why = _left_out(path, was) or _left_out(path, now)
        others = foreign.get(path) or foreign.get(valid_text(path)) or foreign.get("")
        if others:
            plan.kept[full] = others
        elif why:
            plan.kept[full] = f"{NOT_KEPT}: {why}"
        elif path in ignored:
            plan.kept[full] = IGNORED
        else:
            plan.targets.append(FileTarget(full, present, target))
    for path, why in was.skipped.items():
        if not os.path.lexists(os.path.join(root, path)):
            plan.kept[os.path.join(root, path)] = f"{NOT_KEPT}: {why}"
    for path, why in now.skipped.items():
        if why == CLOSED and was.skipped.get(path) != CLOSED:
            plan.kept[os.path.join(root, path)] = f"{NOT_COMPARED}: {why}"
    _plan_folders(plan, was, now, wanted)
    return plan


def _older(
    plan: RootPlan, wanted: dict[str, TreeFile], path: str, content: OldContent, umask: int
) -> None:
    """Replace the content of the checkpoint by an older one."""
    full, known = os.path.join(plan.root, path), wanted.get(path)
    blobs = [known.blob] if known is not None else []
    left = next(
        (sha256(data or b"").hexdigest() for _, data in plan.repository.contents(blobs)), ""
    )
    if left != content.replaced:
        plan.kept[full] = CHANGED_SINCE
    elif not content.hash:
        wanted.pop(path, None)
    elif content.read is None:
        plan.kept[full] = NOT_KEPT
    else:
        if known is None:
            mode = usual_mode(0o644, umask) if content.mode is None else content.mode
            known = TreeFile(stat.S_IFREG | (0o755 if mode & 0o100 else 0o644), "", mode)
        blob = plan.repository.store(content.read())
        wanted[path] = msgspec.structs.replace(known, blob=blob)


def _left_out(path: str, record: TreeRecord) -> str:
    """Return why a checkpoint has no content of a file, or of a folder above it; '' where it
    has.
    """
    while path:
        if path in record.skipped:
            return record.skipped[path]
        path = os.path.dirname(path)
    return ""


def _plan_folders(plan: RootPlan, was: TreeRecord, now: TreeRecord, wanted: Iterable[str]) -> None:
    for path in [*wanted, *(f"{folder}/." for folder in was.folders), *was.skipped]:
        above = os.path.dirname(path)
        while above and os.path.join(plan.root, above) not in plan.keep_folders:
            plan.keep_folders.add(os.path.join(plan.root, above))
            above = os.path.dirname(above)
    plan.folders = [os.path.join(plan.root, path) for path in was.folders]
    extra = (os.path.join(plan.root, path) for path in now.folders)
    plan.extra_folders = [path for path in extra if path not in plan.keep_folders]


# --- Carrying out ---------------------------------------------------------------------------------


def printable(path: str) -> str:
    """Return a path for the log and the screen: bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def carry_out(plan: RootPlan) -> list[FilePut]:
    """Restore the files of one root; return what was done."""
    recover_temp_files(
        {os.path.dirname(target.path) for target in plan.targets}
    )  # of a restore that was killed
    failed = plan.kept | _restore(plan)
    for folder in plan.folders:
        try:
            open_folder(folder, make=True).close()
        except OSError:
            failed[folder] = "a file is in its place"
    done = [target for target in plan.targets if target.path not in failed]
    puts = [FilePut(printable(target.path), True, removed=target.then is None) for target in done]
    return [*puts, *(FilePut(printable(path), False, why) for path, why in sorted(failed.items()))]


def _restore(plan: RootPlan) -> dict[str, str]:
    gone = [target for target in plan.targets if target.then is None]
    failed = remove_files(gone, plan.root, plan.keep_folders)
    for folder in plan.extra_folders:
        remove_empty_folders(folder, plan.root, plan.keep_folders)
    by_blob: dict[str, list[FileTarget]] = {}
    for target in plan.targets:
        if target.then is not None:
            by_blob.setdefault(target.then.blob, []).append(target)
    return failed | put_files(by_blob, plan.repository.contents)


# --- Rewind of a session --------------------------------------------------------------------------


def _done_before(
    entries: list[Entry], to: int, now: Mapping[str, TreeRecord], store: CheckpointStore
) -> list[FilePut]:
    """Return what this rewind has restored before a kill: it differs from the first of its own
    checkpoints, and is as wanted. `now`: the tree when it began again.
    """
    begun, (_, name) = begun_rewind(entries), first_checkpoint(entries, to)
    found: list[FilePut] = []
    if not begun or not name:
        return found
    was, then = store.load(begun), store.load(name)
    for root, present in now.items():
        if root not in was or root not in then or was[root] == present:
            continue
        repository = store.repository(root)
        wanted, files = repository.files(then[root]), repository.files(present)
        for path in repository.changed(was[root], present):
            if files.get(path) == wanted.get(path):
                full = printable(os.path.join(root, path))
                found.append(FilePut(full, True, removed=path not in files))
    return found


CHANGES = ("FileChanged", "CheckpointTaken")
"""Stored types of the entries that say that files were changed, or kept in a checkpoint."""
TREE_KINDS = (
    "ChildEnded",
    "ChildStarted",
    "CheckpointTaken",
    "FileChanged",
    "FileSeen",
    "Rewound",
    "TaskEnded",
    "TaskStarted",
    "ToolEnded",
)
"""Stored types of the entries that a plan is made from."""


async def restore_trees(session: Session, message: Rewind) -> RestoredTrees | None:
    """Restore the work tree for a rewind; None where no checkpoint is from after that moment.

    The present tree is kept first, and the message stays in the inbox until the caller has taken
    it: after a kill the next open carries on.
    """
    kept = session.open(Checkpoints)
    to = step_end(session.history, message.to) if message.conversation else message.to
    if kept is None or not session.entries_of(*CHANGES, after=to):
        return None
    now = await kept.keep("rewind")
    await session.commit(flush=True)
    if not now:
        return None
    entries = session.entries_of(*TREE_KINDS)
    try:
        plans = await kept.run(partial(_plans, session, entries, to, now, message.overwrite, ""))
        puts = await kept.run(lambda _: [put for plan in plans for put in carry_out(plan)])
        puts += await kept.run(partial(_done_before, entries, to, now))
    except (CheckpointError, OSError) as error:
        session.notice(f"what commands changed was not restored: {error}")
        return None
    await kept.keep("rewound")
    await session.commit(flush=True)
    covered = frozenset().union(*(plan.covered for plan in plans))
    return RestoredTrees(tuple(puts), covered)


async def preview_rewind(
    session: Session, to: int, *, overwrite: bool, conversation: bool
) -> RewindPreview:
    """Return what `restore_trees` and `rewind` would do to the files now. Changes none."""
    kept = session.open(Checkpoints)
    to = step_end(session.history, to) if conversation else to
    checkpoints = session.entries_of("CheckpointTaken", after=to)
    plans = list[RootPlan]()
    missing = _missing_checkpoints(checkpoints, partial(session.entries_of, "Replied", after=to))
    entries = list[Entry]()
    if session.entries_of(*CHANGES, after=to):
        entries = session.entries_of(*TREE_KINDS)
    if kept is not None and entries:
        name, now, problem = await kept.copy_tree()
        try:
            plans = (
                await kept.run(partial(_plans, session, entries, to, now, overwrite, name))
                if now
                else []
            )
        except (CheckpointError, OSError) as error:
            problem = str(error)
        if problem:
            missing.append(f"what commands changed is not restored: {problem}")
    covered = frozenset().union(*(plan.covered for plan in plans))
    covering = RestoredTrees((), covered)
    workspace, read_blob = session.deps.workspace, session.log.read_blob
    puts = put_back(
        workspace, read_blob, file_entries(session.entries_of, to), to, covering, dry=True
    )
    restored = [put.path for put in puts if put.done and not put.removed]
    removed = [put.path for put in puts if put.removed]
    kept_files = [put for put in puts if not put.done]
    for plan in plans:
        for target in plan.targets:
            (removed if target.then is None else restored).append(printable(target.path))
        kept_files += [FilePut(printable(path), False, why) for path, why in plan.kept.items()]
    kept_files.sort(key=doubtful_first)
    notes = [*missing, *_notes(session.state, checkpoints)]
    return RewindPreview(
        tuple(sorted(restored)),
        tuple(sorted(removed)),
        tuple(kept_files),
        tuple(notes),
        tuple(missing),
    )


COMMANDS_MAX = 3
"""Commands without a checkpoint that are named for each reason."""


def _missing_checkpoints(
    checkpoints: Iterable[Entry], replies: Callable[[], list[Entry]]
) -> list[str]:
    """Return a line for each reason why one of the `checkpoints` is missing, with the commands.
    `replies` returns the replies that made them.
    """
    events = (entry.event for entry in checkpoints)
    failed = [event for event in events if isinstance(event, CheckpointTaken) and event.problem]
    words = {
        part.id: first_words(str((part.arguments or {}).get("command", "")) or part.name)
        for entry in (replies() if failed else ())
        if isinstance(entry.event, Replied)
        for part in entry.event.parts
        if isinstance(part, ToolCall)
    }
    found: dict[str, dict[str, None]] = {}
    for event in failed:
        named = (words[call] for call in event.calls if call in words)
        found.setdefault(event.problem, {}).update(dict.fromkeys(named))
    return [
        f"{_listed(list(commands)) or 'a rewind'} ran without a checkpoint: {problem}"
        for problem, commands in sorted(found.items())
    ]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - COMMANDS_MAX} more" if len(names) > COMMANDS_MAX else ""
    return ", ".join(names[:COMMANDS_MAX]) + more


def _notes(state: State, checkpoints: Iterable[Entry]) -> list[str]:
    """Return what else the user should know."""
    events = [entry.event for entry in checkpoints]
    notes = []
    if any(
        isinstance(event, CheckpointTaken)
        and event.when == "after"
        and not event.problem
        and not event.traced
        for event in events
    ):
        notes.append(UNTRACED)
    running = [name for name, task in state.tasks.items() if task.ended is None]
    if running:
        notes.append(f"{', '.join(running)} still runs and may change files again")
    return notes


def _plans(
    session: Session,
    entries: list[Entry],
    to: int,
    now: Mapping[str, TreeRecord],
    overwrite: bool,
    present: str,
    store: CheckpointStore,
) -> list[RootPlan]:
    """Plan the way back to entry `to`; `present` is the name of the checkpoint `now` where the
    log has none of it.
    """
    seq, name = first_checkpoint(entries, to)
    if not name:
        seq, name = session.state.seq, present
    roots = session.deps.workspace.roots
    between, unclaimed = gaps(entries, seq), unclaimed_files(entries, seq)
    earlier = [entry for entry in entries if entry.seq <= seq]
    older = _older_contents(session.log.read_blob, earlier, to)
    return make_plan(
        store,
        name,
        {root: now[root] for root in now if root in roots},
        between,
        older,
        unclaimed=unclaimed,
        overwrite=overwrite,
    )


def _older_contents(read_blob: ReadBlob, entries: list[Entry], to: int) -> dict[str, OldContent]:
    """Return the files that the agent edited after `to`, as far as `entries` go."""
    files = FilesInLog(entries)
    found = {}
    for path, (seq, ours) in files.ours.items():
        if seq > to and (wanted := files.at(path, to)) != ours:
            blob = files.kept.get(wanted, "")
            merged = files.merged.get(path, 0) > to
            replaced = (
                "merged" if merged else ours
            )  # equals no hash: somebody else's change is in it
            read = partial(read_blob, blob) if blob else None
            found[path] = OldContent(wanted, replaced, read, files.mode_at(path, to))
    return found
