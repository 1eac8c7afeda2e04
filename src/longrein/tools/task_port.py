"""Commands and background tasks, as tools see them; `agent` implements it."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from longrein.workspace import Ended, Printout


class TaskView(msgspec.Struct, frozen=True):
    """One background task, now."""

    id: str
    """Such as `b3`; a subagent's `a398.b3`."""
    state: str
    """`queued`, `running`, `done`, `failed`, `timed_out`, `killed` or `lost`."""
    command: str
    elapsed_s: float = 0.0
    """Since it started; of one that is over, how long it took."""
    size_bytes: int = 0
    """Output so far, also what is not kept."""
    elided_bytes: int = 0
    """Output that is not kept: its middle."""
    silent_s: float = 0.0
    """Since it last printed something; 0 when it is not known."""
    code: int | None = None
    cause: str = ""
    """Why it ended so, or why it waits."""
    path: str = ""
    """File of the running task's output; '' once it lies behind `handle`."""
    handle: str = ""
    """`r<seq>` of its `TaskEnded`; '' while it runs."""
    policy: str = "keep"
    """`keep` or `stop`: what becomes of it when longrein is gone."""
    waits_for_input: str = ""
    """The line that looks like a question, when it prints nothing any more."""


class Kept(msgspec.Struct, frozen=True):
    """A command goes on, or waits for its turn, in the background."""

    task: TaskView
    why: str
    """`asked` (run_in_background), `timeout` or `user` (Ctrl-B)."""
    tail: str = ""
    """The end of what it has printed so far."""


class OutputSlice(msgspec.Struct, frozen=True):
    """Some of a task's output."""

    task: TaskView
    text: str
    first_byte: int = 0
    """Offset of the slice in all that was printed."""
    next_byte: int = 0
    """Where the next `since` goes on."""
    note: str = ""
    """What is not in it and why."""


class TaskPort(Protocol):
    """Commands of one session. Raises `ToolError` for an unknown id, naming those there are."""

    async def run(
        self, command: str, *, call: str, sink: Printout, timeout_s: float, background: bool, promote: bool
    ) -> Ended | Kept:
        """Run a command to its end. With `background` it is a task from the start; with `promote` it becomes one
        when `timeout_s` passes or the user says so (else it is ended then). Cancellation ends a foreground command.
        """
        ...

    def tasks(self) -> Sequence[TaskView]:
        """Those of this session: running and queued ones, then those that are over, newest first."""
        ...

    async def output(self, task: str, *, tail: int = 0, since: int = -1, grep: str = "") -> OutputSlice:
        """The last `tail` lines, or what came from byte `since` on, or the lines that match `grep` (a regular
        expression), with their numbers."""
        ...

    async def wait(self, task: str, timeout_s: float) -> TaskView:
        """Until it is over, or `timeout_s` has passed."""
        ...

    async def stop(self, task: str) -> TaskView:
        """End it and its whole tree: TERM, grace, KILL. One that is over stays as it is."""
        ...

    async def give(self, task: str, text: str, *, eof: bool = False) -> TaskView:
        """Write `text` to its standard input; with `eof` close it."""
        ...
