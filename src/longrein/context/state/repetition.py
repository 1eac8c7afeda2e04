"""The trail of the last steps: whether an agent goes round in a circle.

A step is known by its calls and what came of them. It is compared with the steps one to four before it, so a circle of
up to four steps is seen as it grows, whatever the length of the session. A poll whose answer changes is no circle.
"""

import re
from hashlib import blake2b

import msgspec

from longrein.events import AnyPart, Document, FileSeen, Image, Text, ToolCall, ToolEnded

PERIODS = (1, 2, 3, 4)
"""Lengths of circles that are looked for, in steps."""
POLLING_TOOLS = ("TaskOutput", "TaskList", "GoalList")
"""Tools that ask how something stands; so does a command that sleeps."""


class StepHistory(msgspec.Struct, frozen=True):
    """What is remembered of the last steps of a turn."""

    step: tuple[tuple[str, str], ...] = ()
    """(call id, digest) of the calls of the present step that are over."""
    waits: bool = True
    """Whether every one of them only looked how something stands."""
    last: tuple[str, ...] = ()
    """Digests of the last steps, newest last."""
    runs: tuple[int, ...] = (0,) * len(PERIODS)
    """For each period: how many steps in a row were as the one so many steps before."""
    patient: bool = False
    """Whether all steps of the run only looked how something stands."""
    told: int = 0
    """How often the model was told of it since it began."""
    told_seq: int = 0
    """Entry that told it last that nothing moves."""

    def times(self, period: int) -> int:
        """How often a circle of `period` steps has been gone round: 1 when it was not repeated."""
        return self.runs[PERIODS.index(period)] // period + 1


def add_result(
    history: StepHistory, call: ToolCall, event: ToolEnded, seen: tuple[FileSeen, ...], *, over: bool
) -> StepHistory:
    """`history` with one more result; `seen`: files it brought, `over`: whether it was the last of its step."""
    step = (*history.step, (event.call, _digest(call, event, seen)))
    waits = history.waits and _is_poll(call)
    if not over:
        return msgspec.structs.replace(history, step=step, waits=waits)
    digest = _hash("".join(one for _, one in sorted(step)))
    known = history.last
    same = [len(known) >= back and known[-back] == digest for back in PERIODS]
    runs = tuple(run + 1 if again else 0 for run, again in zip(history.runs, same, strict=True))
    circles = any(runs)
    return StepHistory(
        last=(*known, digest)[-max(PERIODS) :],
        runs=runs,
        patient=waits and (history.patient or not any(history.runs)),
        told=history.told if circles else 0,
    )


def _digest(call: ToolCall, event: ToolEnded, seen: tuple[FileSeen, ...]) -> str:
    """A call with what came of it. A reading is known by what was read: its second one only points at the first."""
    came = [f"{one.path} {one.hash} {one.first} {one.last}" for one in seen] or [
        _content_key(part) for part in event.parts
    ]
    return _hash("\0".join([call.name, call.received or repr(call.arguments), event.status, *came]))


def _content_key(part: AnyPart) -> str:
    match part:
        case Text(text):
            return text
        case Document(blob=blob) | Image(blob=blob):
            return blob
        case _:
            return ""


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _is_poll(call: ToolCall) -> bool:
    if call.name in POLLING_TOOLS:
        return True
    command = (call.arguments or {}).get("command", "")
    return isinstance(command, str) and "sleep" in command and bool(re.search(r"(^|[;&|(]|\bdo\b)\s*sleep\s", command))
