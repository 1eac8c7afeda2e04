"""Rewind of the work tree from checkpoints, and the preview of a rewind."""

from collections.abc import Iterable, Mapping
from functools import partial

from longrein.agent.messages import Rewind, RewindPreview
from longrein.agent.rewind import FilesInLog, RestoredTrees, put_back, step_end
from longrein.agent.rewind_plan import (
    OldContent,
    RootPlan,
    carry_out,
    first_checkpoint,
    gaps,
    make_plan,
    printable,
)
from longrein.agent.session import Session
from longrein.agent.session_part import Checkpoints
from longrein.context import State
from longrein.events import CheckpointTaken, Entry, FileChanged, FilePut
from longrein.models import ReadBlob
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.tree_records import CheckpointError, TreeRecord


async def restore_trees(session: Session, message: Rewind) -> RestoredTrees | None:
    """Restore the work tree for a rewind; None where no checkpoint is from after that moment.

    The present tree is kept first, and the message stays in the inbox until the caller has taken
    it: after a kill the next open carries on.
    """
    kept, entries = session.open(Checkpoints), session.entries_from(1)
    to = step_end(entries, message.to) if message.conversation else message.to
    if kept is None or not any(
        isinstance(entry.event, FileChanged | CheckpointTaken)
        for entry in entries
        if entry.seq > to
    ):
        return None
    now = await kept.keep("rewind")
    await session.commit(flush=True)
    if not now:
        return None
    entries = session.entries_from(1)
    try:
        plans = await kept.run(partial(_plans, session, entries, to, now, message.overwrite, ""))
        puts = await kept.run(lambda _: [put for plan in plans for put in carry_out(plan)])
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
    kept, entries = session.open(Checkpoints), session.entries_from(1)
    to = step_end(entries, to) if conversation else to
    notes, plans = _notes(session.state, entries, to), list[RootPlan]()
    if kept is not None and any(
        isinstance(one.event, FileChanged | CheckpointTaken) for one in entries if one.seq > to
    ):
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
            notes.append(f"what commands changed is not restored: {problem}")
    covered = frozenset().union(*(plan.covered for plan in plans))
    covering = RestoredTrees((), covered)
    workspace, read_blob = session.deps.workspace, session.log.read_blob
    puts = put_back(workspace, read_blob, entries, to, covering, dry=True)
    restored = [put.path for put in puts if put.done and not put.removed]
    removed = [put.path for put in puts if put.removed]
    kept_files = [put for put in puts if not put.done]
    for plan in plans:
        for target in plan.targets:
            (removed if target.then is None else restored).append(printable(target.path))
        kept_files += [FilePut(printable(path), False, why) for path, why in plan.kept.items()]
    kept_files.sort(key=lambda put: put.path)
    return RewindPreview(
        tuple(sorted(restored)), tuple(sorted(removed)), tuple(kept_files), tuple(notes)
    )


def _notes(state: State, entries: Iterable[Entry], to: int) -> list[str]:
    """Return what else the user should know."""
    later = [entry.event for entry in entries if entry.seq > to]
    missing = {
        event.problem for event in later if isinstance(event, CheckpointTaken) and event.problem
    }
    notes = [f"some commands ran without a checkpoint: {problem}" for problem in sorted(missing)]
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
    between = gaps(entries, seq)
    earlier = [entry for entry in entries if entry.seq <= seq]
    older = _older_contents(session.log.read_blob, earlier, to)
    return make_plan(
        store,
        name,
        {root: now[root] for root in now if root in roots},
        between,
        older,
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
            found[path] = OldContent(wanted, replaced, partial(read_blob, blob) if blob else None)
    return found
