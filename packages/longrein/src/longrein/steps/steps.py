"""Steps: the closed union of what a session shows.

A step is frozen and complete in itself. It carries the event that it was read from, and what
earlier events say of the same call, request, question, task or subagent.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from longrein.agent import RetryPause
from longrein.models import CallDelta, TextDelta, ThinkingDelta
from longrein_context.events import (
    Asked,
    AskFailed,
    Cleared,
    FileChanged,
    Goal,
    HookAnswered,
    Opened,
    PermissionAnswered,
    PermissionAsked,
    PrefixSet,
    Recalled,
    Reminded,
    Replied,
    Restored,
    Rewound,
    SubagentEnded,
    SubagentStarted,
    Summarized,
    TaskEnded,
    TaskStarted,
    Todo,
    ToolCall,
    ToolEnded,
    ToolStarted,
    UserSpoke,
    unwrapped,
)
from longrein_context.events.events import Schedule


class Agent(msgspec.Struct, frozen=True):
    """The agent of a step: the session itself or a subagent below it."""

    session: str = ""
    """Session of the subagent; '' for the session itself."""
    label: str = ""
    """Label of the subagent, such as `a398` or `a398.a12`; '' for the session itself."""
    kind: str = ""
    """Subagent type."""


class Place(msgspec.Struct, frozen=True):
    """Place of a step in the log."""

    seq: int
    """Entry it was read from; 0 for a live update, which is not stored."""
    at: int
    """Time of that entry, microseconds UTC; 0 for a live update."""
    agent: Agent


class StepFields(Place, frozen=True, kw_only=True):
    """Fields of every step."""

    purpose: str = "turn"
    """Purpose of the request it belongs to: `turn` or `summary`."""
    usd: float = 0.0
    """US dollars that it says were spent."""

    @property
    def handle(self) -> str:
        """Handle of its content, such as `r412`; '' for a live update."""
        return f"r{self.seq}" if self.seq else ""


class PromptStep(StepFields, frozen=True):
    """A message of the user."""

    message: UserSpoke


class PartStep(StepFields, frozen=True):
    """Fields of a part of a reply."""

    number: int
    """Place of the part in its reply, from 1."""
    text: str

    @property
    def handle(self) -> str:
        """Handle of the part, such as `r412.2`."""
        return f"r{self.seq}.{self.number}"


class TextStep(PartStep, frozen=True):
    """Text of a reply."""


class ThinkingStep(PartStep, frozen=True):
    """Thinking of a reply."""


class StreamStep(StepFields, frozen=True):
    """More of a reply that still grows. Live, and replaced by the end of its request."""

    request: int
    """Seq of the `Asked`."""
    deltas: Sequence[TextDelta | ThinkingDelta | CallDelta]


class RequestStep(StepFields, frozen=True):
    """A request to the model: its start, or its end with `reply` or `failure`.

    The end follows the parts of the reply.
    """

    request: int
    """Seq of the `Asked`."""
    asked: Asked | None
    """None at the end of a request whose start was not read."""
    asked_at: int
    """Time of the start, microseconds UTC; that of the step where the start was not read."""
    reply: Replied | None = None
    failure: AskFailed | None = None

    @property
    def calls(self) -> list[ToolCall]:
        parts = self.reply.parts if self.reply else ()
        return [part for part in parts if isinstance(part, ToolCall)]


class CallFields(StepFields, frozen=True):
    """Fields of a step about a tool call."""

    made: ToolCall
    """The call as the model made it; without arguments where the reply was not read."""
    made_seq: int
    """Entry of the reply; 0 where it was not read."""

    @property
    def id(self) -> str:
        return self.made.id

    @property
    def call(self) -> ToolCall:
        """The call of the tool itself, also where it was made through `CallTool`."""
        return unwrapped(self.made)


class CallStep(CallFields, frozen=True):
    """A tool call in its life: `made` in a reply, or `cut` with it; then `started` and `ended`."""

    phase: Literal["made", "cut", "started", "output", "ended"]
    number: int = 0
    """Place of the call in its reply, from 1; 0 in later phases."""
    started: ToolStarted | None = None
    ended: ToolEnded | None = None
    asked: PermissionAsked | None = None
    """Question about the call, at its end."""
    output: bytes = b""
    """More output of the running call. Live."""
    kind: str = ""
    """Kind of the tool, from its start on; '' where the log states none."""

    @property
    def handle(self) -> str:
        """Handle of the arguments, such as `r412.2`, or of the result."""
        return f"r{self.seq}.{self.number}" if self.number else super().handle


class QuestionStep(CallFields, frozen=True):
    """A call that waits for permission, or the answer."""

    asked: PermissionAsked | None
    """None where the question was not read."""
    answer: PermissionAnswered | None = None


class TaskStep(StepFields, frozen=True):
    """Start or end of a background task."""

    task: str
    """Id of the task."""
    started: TaskStarted | None
    """Newest start; None at the end of a task whose start was not read."""
    is_known: bool = False
    """True for a start after an earlier one: the task was queued."""
    ended: TaskEnded | None = None
    """The end. A live step without a seq tells it early, and its entry follows."""


class SubagentStep(StepFields, frozen=True):
    """Start or end of a subagent."""

    session: str
    """Session of the subagent."""
    label: str
    """Label of the subagent, such as `a398`; '' where its start was not read."""
    started: SubagentStarted | None
    """Newest start; None where it was not read."""
    ended: SubagentEnded | None = None


class FileStep(StepFields, frozen=True):
    """A file that the model saw, or a change of one."""

    path: str
    """Absolute real path."""
    hash: str
    changed: FileChanged | None = None
    """None when the file was only seen."""


class SettingStep(StepFields, frozen=True):
    """A new value that holds from now on."""

    name: Literal["session", "mode", "cwd", "title", "pins", "schedules", "todos", "goal"]
    value: str = ""
    """Value of `mode`, `cwd` or `title`; the folder of `session`."""
    pins: tuple[str, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    todos: tuple[Todo, ...] = ()
    goal: Goal | None = None
    opened: Opened | None = None
    """For `session`: the first entry of a log."""


class NoticeStep(StepFields, frozen=True):
    """Something told: to the model, to the user or by a hook."""

    kind: Literal["reminder", "interrupt", "hook", "recall", "checkpoint", "longrein", "pause"]
    """`longrein`: a line for the user. `pause`: a wait before a request. Both are live."""
    text: str = ""
    reminder: Reminded | None = None
    hook: HookAnswered | None = None
    recalled: Recalled | None = None
    pause: RetryPause | None = None


class BreakStep(StepFields, frozen=True):
    """A new prefix of requests, or a rewind."""

    prefix: PrefixSet | None = None
    rewound: Rewound | None = None

    @property
    def cause(self) -> str:
        """Cause of sending anew what was sent: `prefix` or `rewound`."""
        return "prefix" if self.prefix else "rewound"

    @property
    def reason(self) -> str:
        """Reason of the new prefix; '' for a rewind."""
        return self.prefix.reason if self.prefix else ""


COMPACTION_REASONS = {
    "rent": "reading it again with each request had cost as much as the break",
    "cold": "the provider's cache had expired, so that it was free",
    "watermark": "the window was nearly full",
    "overflow": "the request did not fit the window",
    "memory": "the machine had little memory left",
    "request": "you asked for it",
    "tool_result_budget": "the results were larger than their budget",
}
"""Reason of a compaction -> what it says in words."""


class CompactionStep(StepFields, frozen=True):
    """Items cleared, a span summarised, or one of these undone."""

    cleared: Cleared | None = None
    summarized: Summarized | None = None
    restored: Restored | None = None

    @property
    def cause(self) -> str:
        """Cause of sending anew what was sent: `cleared`, `summarised` or `restored`."""
        if self.cleared:
            return "cleared"
        return "summarised" if self.summarized else "restored"

    @property
    def reason(self) -> str:
        """Reason of the clearing or summary; '' for an undoing."""
        made = self.cleared or self.summarized
        return made.reason if made else ""

    @property
    def why(self) -> str:
        """The reason in words."""
        return COMPACTION_REASONS.get(self.reason, self.reason)


class TurnEndStep(StepFields, frozen=True):
    """End of a turn."""

    reason: str
    """`done`, `interrupted`, `limit`, `budget`, `blocked` or `error`."""
    message: str = ""
    """One line for the user when the reason is not `done`."""


Step = (
    PromptStep
    | TextStep
    | ThinkingStep
    | StreamStep
    | RequestStep
    | CallStep
    | QuestionStep
    | TaskStep
    | SubagentStep
    | FileStep
    | SettingStep
    | NoticeStep
    | BreakStep
    | CompactionStep
    | TurnEndStep
)
