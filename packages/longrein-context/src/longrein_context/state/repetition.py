"""Detection of repeated steps.

A step is identified by its calls and their results, and compared with the steps one to four before
it. So cycles of up to four steps are detected, at a cost independent of the length of the session.
A poll whose answer changes is no repetition.
"""

import re
from hashlib import blake2b

import msgspec

from longrein_context.events import AnyPart, Document, FileSeen, Image, Text, ToolCall, ToolEnded

PERIODS = (1, 2, 3, 4)  # Lengths of the cycles that are detected, in steps


class StepHistory(msgspec.Struct, frozen=True):
    """Digests of the last steps of a turn."""

    step: tuple[
        tuple[str, str], ...
    ] = ()  # (call id, digest) of the ended calls of the present step
    waits: bool = True  # True if all calls of the present step are polls
    last: tuple[str, ...] = ()  # Digests of the last steps, newest last
    runs: tuple[int, ...] = (0,) * len(PERIODS)
    """For each period: number of consecutive steps equal to the one a period before."""
    patient: bool = False  # True if all steps of the repetition are polls
    told: int = 0  # Number of reminders since the repetition began
    told_seq: int = 0  # Entry of the last such reminder

    def times(self, period: int) -> int:
        """Return how often a cycle of `period` steps has run; 1 without repetition."""
        return self.runs[PERIODS.index(period)] // period + 1


def add_result(
    history: StepHistory,
    call: ToolCall,
    event: ToolEnded,
    seen: tuple[FileSeen, ...],
    *,
    polls: bool,
    over: bool,
) -> StepHistory:
    """Return `history` with one more result.

    `seen`: files that the call read. `polls`: whether the tool queries a status. `over`: whether
    this was the last result of its step.
    """
    step = (*history.step, (event.call, _digest(call, event, seen)))
    waits = history.waits and (polls or _sleeps(call))
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
    """Hash a call and its result.

    A reading is identified by the file content, since the second one may only be a pointer.
    """
    read = [f"{one.path} {one.hash} {one.first} {one.last}" for one in seen]
    came = read or [_content_key(part) for part in event.parts]
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


def _sleeps(call: ToolCall) -> bool:
    """Return True if a command sleeps, which counts as a poll."""
    command = (call.arguments or {}).get("command", "")
    return (
        isinstance(command, str)
        and "sleep" in command
        and bool(re.search(r"(^|[;&|(]|\bdo\b)\s*sleep\s", command))
    )
