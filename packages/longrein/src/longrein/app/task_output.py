"""Background tasks of a stored session, and the end of the output of one."""

import os
from collections import deque
from collections.abc import Iterable
from itertools import takewhile

from longrein.store import SessionHistory
from longrein.workspace import SPOOL, read_output, spooled_tasks
from longrein_context.events import Entry, SubagentStarted, TaskEnded, TaskStarted

TAIL_LINES = 20
TAIL_BYTES = 256 * 1024
"""Bytes read from the end of an output for its last lines."""


def tasks_in_log(past: SessionHistory) -> dict[str, tuple[Entry, TaskEnded | None]]:
    """Tasks of a session and its subagents by id: the entry of the `TaskStarted`, and the end."""
    found: dict[str, tuple[Entry, TaskEnded | None]] = {}
    children: dict[str, None] = {}
    for entry in own_entries(past, "TaskStarted", "TaskEnded", "ChildStarted"):
        match entry.event:
            case TaskStarted(task=task):
                found[task] = (entry, None)
            case TaskEnded(task=task) as ended if task in found:
                found[task] = (found[task][0], ended)
            case SubagentStarted(child=child):
                children[child] = None
            case _:
                pass
    for child in children:
        if (below := past.child(child)) is not None:
            found |= tasks_in_log(below)
    return found


def own_entries(past: SessionHistory, *kinds: str) -> list[Entry]:
    """Entries of these kinds in order, without those that a fork shares with its original."""
    first = next((entry.seq for entry in past.of_kind("Opened")), 1)
    return [*takewhile(lambda entry: entry.seq >= first, past.of_kind(*kinds))][::-1]


def output_tail(past: SessionHistory, folder: str, task: str, lines: int = TAIL_LINES) -> str:
    """Last `lines` of the output of a task of the session stored in `folder`; '' without output."""
    spooled = next((found for found in spooled_tasks(folder) if found.task == task), None)
    if spooled is not None:
        return _last([_spooled_end(os.path.join(folder, SPOOL), task, spooled.size_bytes)], lines)
    _, ended = tasks_in_log(past).get(task, (None, None))
    return _last(past.pieces(ended.output), lines) if ended and ended.output else ""


def _spooled_end(spool: str, task: str, size_bytes: int) -> bytes:
    """The last whole lines of an output of `size_bytes` that may still grow, after any gap in
    it.
    """
    at = start = max(0, size_bytes - TAIL_BYTES)
    kept = b""
    while True:
        begin, data = read_output(spool, task, at, TAIL_BYTES)
        if not data:
            return kept.partition(b"\n")[2] if start else kept
        kept = (kept + data if begin == at else data)[-TAIL_BYTES:]
        at = begin + len(data)


def _last(pieces: Iterable[bytes], lines: int) -> str:
    kept: deque[bytes] = deque(maxlen=lines)
    held = b""
    for piece in pieces:
        *whole, held = (held + piece).split(b"\n")
        kept.extend(whole)
        held = held[-TAIL_BYTES:]
    if held:
        kept.append(held)
    return b"\n".join(kept).decode("utf-8", "replace")
