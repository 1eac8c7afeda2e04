"""State of a headless run, folded from entries: what output lines and the result need to know of
earlier ones.
"""

from typing import Literal

import msgspec

from longrein.agent import OpenSession, UserMessage
from longrein.frontends.headless.stream_json_blocks import Line, tail
from longrein.steps import (
    BreakStep,
    CallStep,
    NoticeStep,
    QuestionStep,
    RequestStep,
    Step,
    SubagentStep,
    TaskStep,
    TurnEndStep,
)
from longrein.tools import EXIT_PLAN_MODE, STRUCTURED_OUTPUT
from longrein_context.events import (
    AskFailed,
    HookAnswered,
    LongreinError,
    PermissionAsked,
    Replied,
    SubagentStarted,
    Text,
    ToolCall,
    ToolEnded,
    TurnEnded,
    Usage,
)

PROGRAM = "the program that runs longrein"
"""Source of the hooks that are functions of it."""


class DeniedCall(msgspec.Struct, frozen=True):
    """A call that was denied."""

    call: ToolCall
    asked: PermissionAsked | None
    """The question; None when a rule or the mode denied the call."""
    agent: str = ""
    """Label of the subagent that made the call, such as `a398`; '' for the session itself."""
    is_unanswered: bool = False
    """True if somebody should have approved the call, and nobody was there to be asked."""


class Subagent(msgspec.Struct, frozen=True):
    """A subagent, from the log of its parent."""

    label: str
    """Label, such as `a398`; `a398.a12` for a subagent of a subagent."""
    call: str
    """Qualified id of the `Agent` call that started it; '' when unknown."""
    started: SubagentStarted


class RunState:
    """Fold of the entries of one run. A line is a function of an entry and the state before it.

    Each subagent has its own state; its costs and denials count in the state of the session, too.
    """

    def __init__(
        self,
        session: str,
        model: str,
        root: "RunState | None" = None,
        subagent: Subagent | None = None,
    ) -> None:
        """`root` (the state of the session itself) and `subagent` are given for a subagent."""
        self.session = session
        self.root, self.subagent = root, subagent
        self.label = subagent.label if subagent else ""
        self.parent = subagent.call or None if subagent else None
        """The call that started the subagent; None for the session itself."""
        self.children: dict[str, Subagent] = {}
        """Subagents that this session started, by session id."""
        self.call_count = 0
        self.model = model
        """`provider/model` of the next reply."""
        self.decided: set[str] = set()
        """Calls that the program that runs longrein was asked about, or that a hook has denied."""
        self.spent: dict[str, tuple[Usage, float]] = {}
        """Usage and cost by model, in the whole run."""
        self.tasks: dict[str, None] = {}
        """Background tasks that have a `task_started` line; a queued task has two start events."""
        self.reset_turn()

    def reset_turn(self) -> None:
        self.first_at = self.last_at = 0
        self.asking_us = 0
        """Time of requests, microseconds."""
        self.replies = 0
        """Number of replies of purpose `turn`."""
        self.usage = Usage()
        self.reply: Replied | None = None
        """The last of them."""
        self.failure: tuple[int, AskFailed] | None = None
        """Seq and event of the last request if it failed."""
        self.denials: list[DeniedCall] = []
        self.unapproved: DeniedCall | None = None
        """The last call of the session itself that nobody could approve; None once a later call
        succeeded.
        """
        self.ended: TurnEnded | None = None
        self.structured: Line | None = None
        """Arguments of the last call of `StructuredOutput` that was taken."""
        self.unstructured = False
        """True if the turn ended without the structured answer that was asked for."""
        self._answers: list[str] = []
        self._plan = ""
        """The last plan that was presented where nobody could judge it."""
        self._printed_chars = 0

    @property
    def text(self) -> str:
        """Text of the last reply, after the answers of earlier turns that a wake has continued and
        the plan that was presented.
        """
        return "\n\n".join(filter(None, (*self._answers, self._plan, self._last_text)))

    def answer(self, ended: TurnEnded) -> None:
        """End a turn in which nobody asked the model: the message of `ended` is the answer, or
        the error.
        """
        self._answers.append(ended.message if ended.reason == "done" else "")
        self.ended = msgspec.structs.replace(ended, message="") if ended.reason == "done" else ended

    def take_unprinted(self) -> str:
        """The part of `text` that was not printed; it counts as printed from now on."""
        printed, self._printed_chars = self._printed_chars, len(self.text)
        return self.text[printed:].removeprefix("\n") if printed else self.text

    @property
    def _last_text(self) -> str:
        return (
            "".join(p.text for p in self.reply.parts if isinstance(p, Text)) if self.reply else ""
        )

    def qualified_id(self, call: str) -> str:
        """Call id in the output: with the label of a subagent, as ids are unique only within a
        session.
        """
        return f"{self.label}.{call}" if self.label and call else call

    def tail(self, key: int | str) -> Line:
        """Last fields of a line: its id and the session of the run."""
        line = tail(self.session, key)
        return line | {"session_id": self.root.session} if self.root else line

    def subagent_of(self, step: SubagentStep) -> Subagent:
        """Return the subagent of a step, as its parent knows it."""
        started = step.started or SubagentStarted(step.session, "")
        label = step.label or step.session
        return Subagent(label, self.qualified_id(started.call), started)

    def step(self, step: Step) -> None:
        self.last_at = step.at
        self.first_at = self.first_at or step.at
        match step:
            case RequestStep(reply=reply) if reply:
                self._replied(step, reply)
            case RequestStep(failure=failure) if failure:
                self.asking_us += step.at - step.asked_at
                self.failure = (step.seq, failure)
                if failure.assumed_usd:
                    self._spend(Usage(), failure.assumed_usd)
            case CallStep(ended=end) if end:
                self._tool_ended(step, end)
            case BreakStep(prefix=prefix) if prefix:
                self.model = f"{prefix.provider}/{prefix.model}"
            case NoticeStep(hook=hook) if hook:
                self._hook_answered(hook)
            case NoticeStep(reminder=reminder) if reminder and reminder.kind == "wake":
                self._answers.append(self._last_text)
                self.reply = None
            case TurnEndStep(reason=reason, message=message):
                self.ended = TurnEnded(reason, message)
            case SubagentStep(session=session, ended=None):
                self.children[session] = self.subagent_of(step)
            case TaskStep(task=task, ended=None):
                self.tasks[task] = None

    def _hook_answered(self, answer: HookAnswered) -> None:
        if answer.decision in ("deny", "block"):
            self.decided.add(answer.call)
        if answer.cost_usd or answer.usage != Usage():
            self._spend(answer.usage, answer.cost_usd)

    def _replied(self, step: RequestStep, reply: Replied) -> None:
        if step.purpose == "turn":
            self.reply = reply
            self.replies += 1
            self.failure = None
            self.call_count += sum(isinstance(part, ToolCall) for part in reply.parts)
        self.asking_us += step.at - step.asked_at
        self._spend(reply.usage, reply.cost_usd)

    def _spend(self, usage: Usage, cost_usd: float, model: str = "") -> None:
        model = model or self.model
        before, cost = self.spent.get(model, (Usage(), 0.0))
        self.spent[model] = (before + usage, cost + cost_usd)
        self.usage += usage
        if self.root is not None:
            self.root._spend(usage, cost_usd, model)

    def _tool_ended(self, step: CallStep, end: ToolEnded) -> None:
        call, question = call_of(step), step.asked
        if self._is_plan_for_user(end, question):
            self._plan = str((call.arguments or {}).get("plan", ""))
            return
        if end.name == STRUCTURED_OUTPUT and end.status == "ok" and self.root is None:
            self.structured = call.arguments
        if end.status == "denied":
            call = msgspec.structs.replace(call, id=self.qualified_id(call.id))
            is_unanswered = question is not None and end.call not in self.decided
            denied = DeniedCall(call, question, self.label, is_unanswered)
            (self.root or self).denials.append(denied)
            self.unapproved = denied if denied.is_unanswered else self.unapproved
        elif end.status == "ok":
            self.unapproved = None

    def _is_plan_for_user(self, end: ToolEnded, question: PermissionAsked | None) -> bool:
        """Return True for a plan that nobody could judge: it is the answer of the run."""
        is_plan = end.name == EXIT_PLAN_MODE.spec.name and self.root is None
        return is_plan and question is not None and end.call not in self.decided


def call_of(step: CallStep | QuestionStep) -> ToolCall:
    """Return the call of a step, with empty arguments where its reply was not read."""
    is_unread = step.made.arguments is None and not step.made.received
    return msgspec.structs.replace(step.made, arguments={}) if is_unread else step.call


class Stop(msgspec.Struct, frozen=True):
    """External cause of the end of a run; all fields are empty without one."""

    signal: int = 0
    error: LongreinError | None = None
    write_error: str = ""
    """Reason why stdout failed; `closed` when its reader left."""


class OutputOptions(msgspec.Struct, frozen=True):
    """Output options of a run."""

    output: Literal["text", "json", "stream-json"] = "text"
    partial: bool = False
    """`stream-json`: whether partial messages are written."""
    background: str = "exit"
    """Background work after the answer: `exit` leaves it, `drain` waits for its end, `steer`
    lets each end begin a turn.
    """
    background_s: float = 600.0
    """Longest wait for it."""
    verbose: bool = False
    structured: bool = False
    """True if the answer must be an object given by `StructuredOutput`."""
    hook_events: bool = False
    """`stream-json`: whether runs of hooks are written too."""
    replay: bool = False
    """`stream-json`: whether messages of the user are written too."""
    waits_for_promoted: bool = False
    """True if commands that went to the background by their time limit are waited for, too; they
    are ended otherwise.
    """


RETRIES_MAX = 5
"""Messages to the model after an answer without the object, for one prompt."""
AGAIN = (
    f"Your answer counts only as a call of {STRUCTURED_OUTPUT}: call it now with an object "
    "that fits its schema."
)


class StructuredRetries:
    """Retries of one run."""

    def __init__(self, session: OpenSession) -> None:
        self._session = session
        self._count = 0

    async def wants_another(self, run_state: RunState) -> bool:
        """Judge the end of a turn; True if the model was asked again."""
        ended = run_state.ended
        answered = (
            ended is not None and ended.reason in ("done", "blocked") and not ended.message
        )  # no hook stopped it
        missing = answered and run_state.structured is None
        again = missing and self._count < RETRIES_MAX
        if again:
            self._count += 1
            run_state.ended = None
            await self._session.tell(UserMessage((Text(AGAIN),)))
        else:
            self._count = 0
            run_state.unstructured = missing
        return again
