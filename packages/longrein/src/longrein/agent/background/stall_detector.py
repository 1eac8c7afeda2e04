"""Detect stalled tasks: silent ones that seem to ask for input.

The model is told once for each silence and may answer. A task is checked when its silence could
have become long enough, so a task that keeps printing costs one check in that span.
"""

import asyncio
import re
from typing import TYPE_CHECKING

import msgspec

from longrein.tools import clean
from longrein.workspace import SpooledTask
from longrein_context import external_event
from longrein_context.events import Reminded

if TYPE_CHECKING:
    from longrein.agent.background.session_tasks import SessionTasks

TAIL_BYTES = 1_000
"""End of the output that is searched for a question and told."""
LINES_TOLD = 8
"""Lines of it that are told."""
JUMP_S = 2.0
"""Allowed drift of wall against monotonic clock between two checks; more means a clock change or
suspend.
"""
ASKING = (
    r"\(y/n\)|\[y/n\]|\(yes/no\)|\[yes/no|password|passphrase|press (?:any key|enter|return)|"
    r"continue\?|proceed\?|overwrite|are you sure"
)
"""Words of a question, anywhere in the last line."""
QUESTION_CHARS_MAX = 300
"""A longer last line is no question."""


class LastCheck(msgspec.Struct):
    """Time and result of the last check of a task."""

    wall_us: int
    mono_s: float
    due_s: float
    """Monotonic time of the next check."""
    told_size: int = -1
    """Output size at the silence that was told; -1 for none."""


class StallDetector:
    """Watch the running tasks of one session."""

    def __init__(self, tasks: "SessionTasks") -> None:
        self._tasks = tasks
        self._looks: dict[str, LastCheck] = {}
        self._round: asyncio.Task[None] | None = None
        self.news: list[Reminded] = []
        """Notices to append."""

    def watch(self, task: str) -> None:
        """Start to watch a task."""
        deps = self._tasks.host.deps
        silence = deps.task_options.stall_s
        if silence <= 0:
            return
        now = deps.clock.mono_s()
        self._looks[task] = LastCheck(deps.clock.wall_us(), now, now + silence)
        if self._round is None or self._round.done():
            self._round = asyncio.ensure_future(self._rounds())

    def heard(self, task: str) -> None:
        """Start a new silence: the task was answered."""
        look = self._looks.get(task)
        if look is not None:
            look.told_size = -1
            look.due_s = (
                self._tasks.host.deps.clock.mono_s() + self._tasks.host.deps.task_options.stall_s
            )

    def take(self) -> list[Reminded]:
        """Return and clear the notices to append."""
        taken, self.news = self.news, []
        return taken

    def stop(self) -> None:
        """Stop watching."""
        if self._round is not None:
            self._round.cancel()

    async def _rounds(self) -> None:
        clock = self._tasks.host.deps.clock
        while self._looks:
            await clock.sleep(
                max(0.0, min(look.due_s for look in self._looks.values()) - clock.mono_s())
            )
            now = clock.mono_s()
            for task in [task for task, look in self._looks.items() if look.due_s <= now]:
                self._look(task, self._looks[task])

    def _look(self, task: str, look: LastCheck) -> None:
        deps, supervision = self._tasks.host.deps, self._tasks.pool.supervision
        found = (
            None
            if self._tasks.ended(task) or task in self._tasks.carried
            else supervision.spooled(task)
        )
        if found is None or found.state != "running":
            del self._looks[task]
            return
        wall_us = deps.clock.wall_us()
        mono_s = deps.clock.mono_s()
        silence = deps.task_options.stall_s
        jumped = abs((wall_us - look.wall_us) / 1e6 - (mono_s - look.mono_s)) > JUMP_S
        look.wall_us, look.mono_s = wall_us, mono_s
        silent_s = 0.0 if jumped else (wall_us - max(found.written_at, found.started_at)) / 1e6
        look.due_s = mono_s + (
            silence if silent_s >= silence else max(0.05, silence - max(0.0, silent_s))
        )
        if silent_s < silence or look.told_size == found.size_bytes:
            return
        question = self.question(found)
        if question:
            look.told_size = found.size_bytes
            self._tell(found, silent_s)

    def _tell(self, found: SpooledTask, silent_s: float) -> None:
        host, after = self._tasks.host, f"after {found.size_bytes} bytes of output"
        told = (one.line for one in host.state.notices if one.kind == "bg_stalled")
        if any(line.startswith(f"{found.task}:") and after in line for line in told):
            return  # told before a restart
        how = (
            "it waits for input: answer with TaskInput"
            if found.reads_input
            else "if it asks, answer with TaskInput"
        )
        text = "\n".join(self._last(found).rstrip("\n").split("\n")[-LINES_TOLD:])
        line = f"{found.task}: silent for {silent_s:.0f} s {after}; {how}"
        self.news += external_event("bg_stalled", line, host.deps.redact(text))
        host.poke()

    def question(self, found: SpooledTask) -> str:
        """Return the question that a running task seems to ask; '' for none."""
        last = self._last(found)
        line = last.rstrip("\n").rpartition("\n")[2].strip()
        if found.reads_input:
            return line or "(it reads its standard input)"
        if not line or len(line) > QUESTION_CHARS_MAX:
            return ""
        open_ended = not last.endswith("\n") and line.endswith(("?", ":", ">", "]", ")"))
        return line if open_ended or re.search(ASKING, line, re.IGNORECASE) else ""

    def _last(self, found: SpooledTask) -> str:
        if not found.size_bytes:
            return ""
        start = max(0, found.size_bytes - TAIL_BYTES)
        return clean(self._tasks.pool.supervision.read(found.task, start, TAIL_BYTES)[1])
