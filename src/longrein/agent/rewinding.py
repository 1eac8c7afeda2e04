"""Going back: the conversation is again as it was; files go back only if asked, and only where they are still ours."""

from longrein.agent.session import Session
from longrein.context import OpenCall, fold, window_of
from longrein.events import (
    Entry,
    FileChanged,
    FilePut,
    FileSeen,
    Replied,
    Restored,
    Rewound,
    Text,
    ToolCall,
    ToolEnded,
    TurnEnded,
    UserSpoke,
)


def rewind(session: Session, to: int, *, files: bool) -> None:
    """Append `Rewound`. `to` is moved back to the end of the step it lies in, so that every call has its result."""
    entries = list(session.crew.history(1, session.state.seq))
    to = step_end(entries, to)
    session.append(*(_left(open_call) for open_call in session.state.calls.values()))
    put = _put_back(session, entries, to) if files else ()
    before = session.state.prefix
    session.append(Rewound(to, put))
    if before is not session.state.prefix:
        session.append(session.crew.prefix(session.crew.model, "model"))


def uncompact(session: Session, seq: int) -> None:
    """Append `Restored` for the compaction at `seq`, the last one when 0; one line for the user when it cannot be."""
    state = session.state
    undone = seq or (state.compactions[-1] if state.compactions else 0)
    if undone not in state.compactions:
        known = ", ".join(f"r{n}" for n in state.compactions[-5:]) or "none"
        at = f" at r{undone}; those that can be undone: {known}" if undone else ""
        session.notice(f"there is no compaction to undo{at}")
        return
    before = fold([entry for entry in session.crew.history(1, state.seq) if entry.seq != undone])
    usable = window_of(session.state, session.crew.model.budget).usable_tokens
    if before.view_tokens > usable:
        session.notice(f"r{undone} stays: without it the context would have {before.view_tokens} of {usable} tokens")
        return
    session.append(Restored(undone))


def _left(open_call: OpenCall) -> ToolEnded:
    call = open_call.call
    status, what = ("interrupted", "interrupted; it may have run") if open_call.started else ("not_run", "not run")
    return ToolEnded(call.id, call.name, status, (Text(f"{what}: the user went back"),))


def step_end(entries: list[Entry], to: int) -> int:
    """The last entry up to `to` at which no call is open: the end of a turn, or right before the user spoke."""
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
            waiting = 0
        elif not waiting and isinstance(event, TurnEnded):
            last = entry.seq
        elif not waiting and isinstance(event, UserSpoke) and event.origin != "steer":
            last = entry.seq - 1
    return last


def _put_back(session: Session, entries: list[Entry], to: int) -> tuple[FilePut, ...]:
    """Put every file that this session changed after `to` back to what it was then."""
    then: dict[str, str] = {}
    now: dict[str, str] = {}
    merged: dict[str, None] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, FileSeen | FileChanged) and entry.seq <= to:
            then[event.path] = _kept(event) if event.hash else ""
        elif isinstance(event, FileChanged) and event.by == "agent":
            now[event.path] = event.hash
            if event.over:
                merged[event.path] = None
            then.setdefault(event.path, _content_before(entries, event))
    return tuple(
        FilePut(path, False, "somebody else's change was merged into it")
        if path in merged
        else _put(session, path, then[path], now[path])
        for path in sorted(now)
    )


def _content_before(entries: list[Entry], change: FileChanged) -> str:
    """Blob of what a change replaced: '' when the file was new."""
    if not change.before:
        return ""
    known = (e.event for e in entries if isinstance(e.event, FileSeen | FileChanged))
    return next((_kept(event) for event in known if event.hash == change.before and event.blob), "?")


def _kept(event: FileSeen | FileChanged) -> str:
    """Blob of the content; '?' when it is not the file's very bytes (too large to keep, or a secret was replaced)."""
    return event.blob if event.blob == event.hash else "?"


def _put(session: Session, path: str, blob: str, ours: str) -> FilePut:
    workspace = session.crew.workspace
    if blob == "?":
        return FilePut(path, False, "its old content was not kept")
    if workspace.hash(path) != ours:
        return FilePut(path, False, "it was changed since by somebody else")
    try:
        if blob:
            workspace.write(path, session.log.read_blob(blob), expect=ours)
        else:
            workspace.remove(path)
    except (OSError, KeyError) as error:
        return FilePut(path, False, str(error))
    return FilePut(path, True, removed=not blob)
