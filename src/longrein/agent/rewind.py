"""Rewind of the conversation and its files, and undoing a compaction.

Files are restored only on request, and only where nobody else has changed them since. What commands changed is restored
from checkpoints (`agent.rewind_plan`); what the log alone holds, such as edits of ignored files, from its blobs.
"""

from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from longrein.agent.messages import Rewind, RewindPreview
from longrein.agent.moves import call_ended
from longrein.agent.rewind_plan import OldContent, RootPlan, carry_out, first_checkpoint, gaps, make_plan, printable
from longrein.agent.session import Session
from longrein.context import OpenCall, fold, window_of
from longrein.events import (
    AnyEvent,
    CheckpointTaken,
    Entry,
    FileChanged,
    FilePut,
    FileSeen,
    Replied,
    Restored,
    Rewound,
    ToolCall,
    ToolEnded,
    TurnEnded,
    UserSpoke,
)
from longrein.workspace.checkpoints import CheckpointStore
from longrein.workspace.shadow_repository import CheckpointError, TreeRecord

PUTS_MAX = 500
"""Restored files that `Rewound` names; those that stayed, and those that the model knows, are always named."""


class RestoredTrees(msgspec.Struct, frozen=True):
    """What was restored from checkpoints."""

    files: tuple[FilePut, ...]
    covered: frozenset[str]
    """Paths for which the log's own contents are not asked."""


def rewind(session: Session, to: int, *, files: bool, trees: RestoredTrees | None = None) -> None:
    """Append `Rewound`. `to` moves back to the end of its step, so that every call has its result.

    `trees`: what `restore_trees` has restored.
    """
    entries = list(session.deps.history(1, session.state.seq))
    to = step_end(entries, to)
    session.append(*(_left(open_call) for open_call in session.state.calls.values()))
    put = _all_put(session, _put_back(session, entries, to, trees), trees) if files else ()
    before = session.state.prefix
    session.append(Rewound(to, put))
    if before is not session.state.prefix:
        session.append(session.deps.prefix(session.deps.model, "model"))


def restore_files(session: Session, to: int, trees: RestoredTrees | None = None) -> None:
    """Restore the files as of entry `to` and keep the conversation; tell the user which could not be restored.

    The model is told of the changes like of anybody else's.
    """
    puts = _put_back(session, list(session.deps.history(1, session.state.seq)), to, trees)
    for put in _all_put(session, puts, trees):
        if not put.done:
            session.notice(f"{put.path} was not restored: {put.why}")


def _all_put(session: Session, puts: tuple[FilePut, ...], trees: RestoredTrees | None) -> tuple[FilePut, ...]:
    """Return what was restored from the log and from checkpoints, shortened where it is much."""
    if trees is None:
        return puts
    known = session.state.files
    important = [put for put in trees.files if not put.done or put.path in known]
    others = [put for put in trees.files if put.done and put.path not in known]
    left = len(others) - PUTS_MAX
    if left > 0:
        session.notice(f"{left} more files were restored or removed; the list is shortened")
    return tuple(sorted([*puts, *important, *others[:PUTS_MAX]], key=lambda put: put.path))


# --- Files from checkpoints ------------------------------------------------------------------------------------------


async def restore_trees(session: Session, word: Rewind) -> RestoredTrees | None:
    """Restore the work tree for a rewind; None where no checkpoint is from after that moment.

    The present tree is kept first, and the message stays in the inbox until the caller has taken it: after a kill the
    next open carries on.
    """
    kept, entries = session.open_checkpoints(), session.entries_from(1)
    to = step_end(entries, word.to) if word.conversation else word.to
    if kept is None or not any(
        isinstance(entry.event, FileChanged | CheckpointTaken) for entry in entries if entry.seq > to
    ):
        return None
    now = await kept.keep("rewind")
    await session.commit(flush=True)
    if not now:
        return None
    entries = session.entries_from(1)
    try:
        plans = await kept.run(partial(_plans, session, entries, to, now, word.overwrite, ""))
        puts = await kept.run(lambda _: [put for plan in plans for put in carry_out(plan)])
    except (CheckpointError, OSError) as error:
        session.notice(f"what commands changed was not restored: {error}")
        return None
    await kept.keep("rewound")
    await session.commit(flush=True)
    covered = frozenset().union(*(plan.covered for plan in plans))
    return RestoredTrees(tuple(puts), covered)


async def preview_rewind(session: Session, to: int, *, overwrite: bool, conversation: bool) -> RewindPreview:
    """Return what `restore_trees` and `rewind` would do to the files now. Changes none."""
    kept, entries = session.open_checkpoints(), session.entries_from(1)
    to = step_end(entries, to) if conversation else to
    notes, plans = _notes(session, entries, to), list[RootPlan]()
    if kept is not None and any(
        isinstance(one.event, FileChanged | CheckpointTaken) for one in entries if one.seq > to
    ):
        name, now, problem = await kept.take()
        try:
            plans = await kept.run(partial(_plans, session, entries, to, now, overwrite, name)) if now else []
        except (CheckpointError, OSError) as error:
            problem = str(error)
        if problem:
            notes.append(f"what commands changed is not restored: {problem}")
    covered = frozenset().union(*(plan.covered for plan in plans))
    targets = [target for plan in plans for target in plan.targets]
    puts = _put_back(session, entries, to, RestoredTrees((), covered), dry=True)
    stays = [FilePut(printable(path), False, why) for plan in plans for path, why in plan.kept.items()]
    return RewindPreview(
        tuple(
            sorted(
                [
                    *(printable(one.path) for one in targets if one.then),
                    *(p.path for p in puts if p.done and not p.removed),
                ]
            )
        ),
        tuple(
            sorted([*(printable(one.path) for one in targets if not one.then), *(p.path for p in puts if p.removed)])
        ),
        tuple(sorted([*stays, *(put for put in puts if not put.done)], key=lambda put: put.path)),
        tuple(notes),
    )


def _notes(session: Session, entries: Iterable[Entry], to: int) -> list[str]:
    """Return what else the user should know."""
    later = [entry.event for entry in entries if entry.seq > to]
    missing = {event.problem for event in later if isinstance(event, CheckpointTaken) and event.problem}
    notes = [f"some commands ran without a checkpoint: {problem}" for problem in sorted(missing)]
    running = [name for name, task in session.state.tasks.items() if task.ended is None]
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
    """Plan the way back to entry `to`; `present` is the name of the checkpoint `now` where the log has none of it."""
    seq, name = first_checkpoint(entries, to)
    if not name:
        seq, name = session.state.seq, present
    roots = session.deps.workspace.roots
    between = gaps(entries, seq)
    older = _older_contents(session, [entry for entry in entries if entry.seq <= seq], to)
    return make_plan(
        store, name, {root: now[root] for root in now if root in roots}, between, older, overwrite=overwrite
    )


def _older_contents(session: Session, entries: list[Entry], to: int) -> dict[str, OldContent]:
    """Return the files that the agent edited after `to`, as far as `entries` go."""
    files = _Files(entries)
    found = {}
    for path, (seq, ours) in files.ours.items():
        if seq > to and (wanted := files.at(path, to)) != ours:
            blob = files.kept.get(wanted, "")
            merged = files.merged.get(path, 0) > to
            replaced = "merged" if merged else ours  # equals no hash: somebody else's change is in it
            found[path] = OldContent(wanted, replaced, partial(session.log.read_blob, blob) if blob else None)
    return found


def uncompact(session: Session, seq: int) -> None:
    """Append `Restored` for the compaction at `seq`, the last one for 0; tell the user when it is impossible."""
    state = session.state
    undone = seq or (state.compactions[-1] if state.compactions else 0)
    if undone not in state.compactions:
        known = ", ".join(f"r{n}" for n in state.compactions[-5:]) or "none"
        at = f" at r{undone}; those that can be undone: {known}" if undone else ""
        session.notice(f"there is no compaction to undo{at}")
        return
    before = fold([entry for entry in session.deps.history(1, state.seq) if entry.seq != undone])
    usable = window_of(session.state, session.deps.model.budget).usable_tokens
    if before.view_tokens > usable:
        session.notice(f"r{undone} stays: without it the context would have {before.view_tokens} of {usable} tokens")
        return
    session.append(Restored(undone))


def _left(call: OpenCall) -> ToolEnded:
    status, what = ("interrupted", "interrupted; it may have run") if call.started else ("not_run", "not run")
    return call_ended(call, status, f"{what}: the user went back")


def step_end(entries: list[Entry], to: int) -> int:
    """Return the last entry up to `to` at which no call is open: a turn's end, or the entry before a prompt."""
    last, waiting = 1, 0
    for entry in entries:
        event = entry.event
        if entry.seq > to:
            break
        if isinstance(event, Replied) and event.stop != "interrupted":
            waiting += sum(isinstance(part, ToolCall) for part in event.parts)
        elif isinstance(event, ToolEnded):
            waiting -= 1
        elif isinstance(event, Rewound):
            last, waiting = entry.seq, 0
        elif not waiting and isinstance(event, TurnEnded):
            last = entry.seq
        elif not waiting and isinstance(event, UserSpoke) and event.origin != "steer":
            last = entry.seq - 1
    return last


class _Files:
    """Contents of files over time, as a log records them.

    A content is named by its hash; '' stands for no file.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.ours: dict[str, tuple[int, str]] = {}
        """Path -> last entry at which the agent or a rewind wrote it, and the hash."""
        self.merged: dict[str, int] = {}
        """Path -> last entry at which another's change was merged into the agent's."""
        self.kept: dict[str, str] = {}
        """Hash -> blob, for contents stored byte for byte: not too large and without secrets."""
        self._past: dict[str, list[tuple[int, str]]] = {}
        self._replaced: dict[str, list[tuple[int, str]]] = {}
        """Path -> contents that the agent's changes replaced."""
        for entry in entries:
            self._take(entry.seq, entry.event)

    def at(self, path: str, to: int) -> str:
        """Return the content of `path` at entry `to`; if not known then, what the agent's first change replaced."""
        known = (content for seq, content in reversed(self._past.get(path, ())) if seq <= to)
        replaced = (content for seq, content in self._replaced.get(path, ()) if seq > to)
        return next(known, next(replaced, ""))

    def _is_known(self, path: str) -> bool:
        """Return True for a file of which the log has contents."""
        return path in self._past or path in self._replaced

    def _take(self, seq: int, event: AnyEvent) -> None:
        match event:
            case FileSeen() | FileChanged():
                if event.hash and event.blob == event.hash:
                    self.kept[event.hash] = event.blob
                if isinstance(event, FileChanged) and event.by == "agent":
                    self._replaced.setdefault(event.path, []).append((seq, event.before))
                    self.ours[event.path] = (seq, event.hash)
                    if event.over:
                        self.merged[event.path] = seq
                self._past.setdefault(event.path, []).append((seq, event.hash))
            case Rewound(to, files):
                for path in (put.path for put in files if put.done and self._is_known(put.path)):
                    content = self.at(path, to)
                    self.ours[path] = (seq, content)
                    self._past.setdefault(path, []).append((seq, content))
            case _:
                pass


def _put_back(
    session: Session, entries: list[Entry], to: int, trees: RestoredTrees | None = None, *, dry: bool = False
) -> tuple[FilePut, ...]:
    """Restore every file that this session changed after `to` and that `trees` do not cover. `dry`: only tell."""
    files = _Files(entries)
    put = []
    for path, (seq, ours) in sorted(files.ours.items()):
        wanted = files.at(path, to)
        if seq <= to or wanted == ours or (trees is not None and path in trees.covered):
            continue
        if files.merged.get(path, 0) > to:
            put.append(FilePut(path, False, "somebody else's change was merged into it"))
        else:
            put.append(_put(session, path, wanted, ours, files.kept.get(wanted, ""), dry=dry))
    return tuple(put)


def _put(session: Session, path: str, wanted: str, ours: str, blob: str, *, dry: bool = False) -> FilePut:
    """Replace content `ours` by `wanted`, which is stored as `blob`."""
    workspace = session.deps.workspace
    found = workspace.hash(path) or ("" if workspace.resolve(path, "/").kind == "" else "unreadable")
    if found == wanted:  # restored before a crash, or by somebody else
        return FilePut(path, True, removed=not wanted)
    if wanted and not blob:
        return FilePut(path, False, "its old content was not kept")
    if found != ours:
        return FilePut(path, False, "it was changed since by somebody else")
    try:
        if dry:
            pass
        elif wanted:
            workspace.write(path, session.log.read_blob(blob), expect=ours)
        else:
            workspace.remove(path)
    except (OSError, KeyError) as error:
        return FilePut(path, False, str(error))
    return FilePut(path, True, removed=not wanted)
