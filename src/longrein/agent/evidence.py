"""What a report rests on, found by code: the readings and runs of a subagent's own log that its report speaks of.

A model does not know the handles of its results, so it could only invent them. It names files and commands, and those
are looked up here. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from longrein.events import Entry, Replied, ToolCall, ToolEnded, unwrapped

EVIDENCE_MAX = 12
"""Places named for one report."""
SUBJECT_CHARS_MAX = 80
SUBJECTS = ("file_path", "command", "pattern", "url", "query")
"""Arguments that say what a call was about, the first that is there."""
NAME_CHARS_MIN = 4
"""A shorter name stands in too many words."""


def evidence(label: str, entries: Iterable[Entry], report: str) -> tuple[str, ...]:
    """Such as `a398/r12 Read src/parse.py`: of each thing that `report` names the latest call, in the order named.

    `entries`: of the subagent `label`, for its present task.
    """
    calls: dict[str, ToolCall] = {}
    found: dict[str, tuple[int, str]] = {}
    for entry in entries:
        match entry.event:
            case Replied(parts=parts):
                calls |= {part.id: unwrapped(part) for part in parts if isinstance(part, ToolCall)}
            case ToolEnded(call=call, status="ok" | "failed") if call in calls:
                subject = subject_of(calls[call].arguments or {})
                at = place(subject, report)
                if at >= 0:
                    said = " ".join(subject.split())[:SUBJECT_CHARS_MAX]
                    found[subject] = at, f"{label}/r{entry.seq} {calls[call].name} {said}"
    return tuple(line for _, line in sorted(found.values())[:EVIDENCE_MAX])


def subject_of(arguments: Mapping[str, Any]) -> str:
    """What a call was about; '' when it does not say."""
    return next((str(arguments[name]) for name in SUBJECTS if arguments.get(name)), "")


def place(subject: str, report: str) -> int:
    """Where `report` first speaks of `subject`: as it is, or a path by its end or its name; -1 when it does not."""
    if len(subject) < NAME_CHARS_MIN:
        return -1
    at = report.find(subject)
    pieces = subject.split("/")
    if at >= 0 or len(pieces) < 2 or " " in subject:
        return at
    ends = ("/".join(pieces[n:]) for n in range(1, len(pieces)))
    return next((found for end in ends if len(end) >= NAME_CHARS_MIN and (found := report.find(end)) >= 0), -1)
