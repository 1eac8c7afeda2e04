"""The log as a rewind reads it: ends of steps, contents of files, and checkpoints over time."""

from collections.abc import Callable, Iterable

import msgspec

from longrein_context.events import (
    AnyEvent,
    CheckpointTaken,
    Entry,
    FileChanged,
    FileSeen,
    Replied,
    Rewound,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    ToolCall,
    ToolEnded,
    TurnEnded,
    UserSpoke,
)

REWIND = "(rewind)"
"""Stands for a call while a rewind runs."""


PIECE = 256
"""Entries that `step_end` reads at first."""


def step_end(history: Callable[[int, int], Iterable[Entry]], to: int) -> int:
    """Return the last entry up to `to` at which no call is open: a turn's end, or the entry
    before a prompt. `history` returns the entries from one to another.
    """
    size = PIECE
    while size < to:
        entries = list(history(to - size + 1, to))
        ends = [at for at, entry in enumerate(entries) if isinstance(entry.event, TurnEnded)]
        if ends:  # no call is open there
            return _last_step_end(entries[ends[0] :])
        size *= 4
    return _last_step_end(history(1, to))


def _last_step_end(entries: Iterable[Entry]) -> int:
    last, waiting = 1, 0
    for entry in entries:
        event = entry.event
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


class FilesInLog:
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
        self._modes: dict[str, list[tuple[int, int]]] = {}
        """Path -> permissions that it had when the agent removed it."""
        for entry in entries:
            self._take(entry.seq, entry.event)

    def at(self, path: str, to: int) -> str:
        """Return the content of `path` at entry `to`; if not known then, what the agent's first
        change replaced.
        """
        known = (content for seq, content in reversed(self._past.get(path, ())) if seq <= to)
        replaced = (content for seq, content in self._replaced.get(path, ()) if seq > to)
        return next(known, next(replaced, ""))

    def mode_at(self, path: str, to: int) -> int | None:
        """Return the permissions that `path` had when the agent first removed it after entry `to`;
        None where it did not, or nobody knows.
        """
        return next((mode for seq, mode in self._modes.get(path, ()) if seq > to), None)

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
                    if event.mode is not None:
                        self._modes.setdefault(event.path, []).append((seq, event.mode))
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


# --- Checkpoints ----------------------------------------------------------------------------------


CUT = "a command that was cut"
"""Stands for a task where a kill ended the session during a call."""
UNKEPT = "a command without a checkpoint"
"""Stands for a task where the work tree could not be kept before a call."""


class Gap(msgspec.Struct):
    """Time between two checkpoints while no call of the session ran."""

    first: str
    """Name of the checkpoint at its beginning."""
    last: str
    """Name of the one at its end; '' for now."""
    edits: dict[str, list[FileChanged]]
    """Path -> changes by the agent's own edits meanwhile."""
    tasks: tuple[str, ...] = ()
    """Background tasks that ran meanwhile, `CUT` or `UNKEPT`: whose change it was is not known."""


def first_checkpoint(entries: Iterable[Entry], to: int) -> tuple[int, str]:
    """Return seq and name of the checkpoint from before the first change after entry `to`; (0,
    '') for none.
    """
    for entry in entries:
        event = entry.event
        if entry.seq <= to or not isinstance(event, CheckpointTaken):
            continue
        if event.checkpoint and event.when in ("before", "rewind"):
            return entry.seq, event.checkpoint
    return 0, ""


def gaps(entries: Iterable[Entry], since: int) -> list[Gap]:
    """Return the gaps from the checkpoint at entry `since` until now."""
    found: list[Gap] = []
    running: set[str] = set()  # calls
    over: set[str] = set()  # calls that have ended, perhaps in a crash
    beside: set[str] = set()  # subagents
    tasks: set[str] = set()
    unkept: set[str] = set()  # calls that run without a checkpoint from before
    last, busy = "", False
    meanwhile: set[str] = set()  # tasks that ran since the last checkpoint
    edits: dict[str, list[FileChanged]] = {}
    for entry in entries:
        match entry.event:
            case SubagentStarted(child=name):
                beside.add(name)
                busy = True
            case TaskStarted(task=name):
                tasks.add(name)
                meanwhile.add(name)
            case SubagentEnded(child=name) | TaskEnded(task=name):
                beside.discard(name)
                tasks.discard(name)
            case ToolEnded(call=call):
                over.add(call)
            case FileChanged(by="agent", path=path) as change:
                edits.setdefault(path, []).append(change)
            case CheckpointTaken("before", "", calls):
                unkept |= set(calls)
                meanwhile.add(UNKEPT)
            case CheckpointTaken(when, name, calls, traced=traced) if name:
                if when == "opened" and running:
                    busy = bool(beside)
                    meanwhile.add(CUT)
                # with a trace, `unclaimed` names what others changed
                busy = busy or (traced and UNKEPT in meanwhile)
                if last and not busy and name != last:
                    found.append(Gap(last, name, edits, tuple(sorted(meanwhile))))
                _follow(running, when, calls, over)
                last = name if entry.seq >= since else ""
                unkept -= over if when == "before" else set(calls)
                busy = bool(running or beside)
                meanwhile = {*tasks, UNKEPT} if unkept else {*tasks}
                edits = {}
            case _:
                pass
    if last and not busy:
        found.append(Gap(last, "", edits, tuple(sorted(meanwhile))))
    return found


def begun_rewind(entries: Iterable[Entry]) -> str:
    """Return the name of the first checkpoint of a rewind that a kill made begin again; '' for one
    that has begun once.
    """
    names: list[str] = []
    for entry in entries:
        match entry.event:
            case CheckpointTaken("rewind", taken):
                names.append(taken)
            case CheckpointTaken("before" | "after") | Rewound():
                names = []  # after "rewound" a kill can still make it begin again
            case _:
                pass
    return names[0] if len(names) > 1 else ""


def unclaimed_files(entries: Iterable[Entry], since: int) -> tuple[str, ...]:
    """Return what checkpoints after entry `since` name as changed while calls ran, and by none of
    them.
    """
    found: dict[str, None] = {}
    for entry in entries:
        if entry.seq > since and isinstance(entry.event, CheckpointTaken):
            found.update(dict.fromkeys(entry.event.unclaimed))
    return tuple(found)


def _follow(running: set[str], when: str, calls: Iterable[str], over: set[str]) -> None:
    """Update the calls that run after a checkpoint."""
    if when == "before":
        running -= {*over, REWIND}
        running |= set(calls)
    elif when in ("after", "opened"):
        running -= set(calls)
    elif when == "rewind":
        running.clear()  # nothing else runs
        running.add(REWIND)
    else:
        running.discard(REWIND)
