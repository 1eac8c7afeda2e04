"""Lanes of the time view: when the agents worked, when tools ran, when the user was waited for."""

import msgspec

from longrein.extensions.inspector.page_data import Lane, Span
from longrein.steps import (
    CallStep,
    NoticeStep,
    PromptStep,
    QuestionStep,
    RequestStep,
    Step,
    TaskStep,
    TurnEndStep,
)
from longrein.steps.human_text import first_line, key_argument
from longrein_context.events import ToolCall
from longrein_context.events.escape import shortened

LABEL_CHARS_MAX = 80
MAIN = "main"


class OpenSpan(msgspec.Struct):
    """An interval that may not have ended yet."""

    kind: str
    start_us: int
    seq: int
    label: str
    end_us: int = 0
    status: str = "open"

    def end(self, at_us: int, status: str) -> None:
        self.end_us, self.status = max(at_us, self.start_us), status

    def shown(self, now_us: int) -> Span:
        """Return the interval as the page gets it. `now_us`: time up to which an open one lasts."""
        end_us = self.end_us or max(now_us, self.start_us)
        return Span(self.kind, self.start_us, end_us, self.seq, self.label, self.status)  # type: ignore[arg-type]


class LaneBuilder:
    """Makes the lane of one agent and the lanes of its background tasks."""

    def __init__(self, agent: str, label: str, parent: str = "") -> None:
        self.agent = agent
        self.label = label
        self.parent = parent
        self.status = ""
        self._spans: list[OpenSpan] = []
        self._requests: dict[int, OpenSpan] = {}
        self._tools: dict[str, OpenSpan] = {}
        self._questions: dict[str, OpenSpan] = {}
        self._idle: OpenSpan | None = None
        self._tasks: dict[str, OpenSpan] = {}

    def hear(self, step: Step) -> None:
        at = step.at
        match step:
            case PromptStep():
                self._end_idle(at)
            case NoticeStep(reminder=reminder) if reminder and reminder.kind == "wake":
                self._end_idle(at)
            case RequestStep():
                self._request(step)
            case QuestionStep(id=call, answer=answer) if answer:
                self._end(self._questions.pop(call, None), at, answer.verdict)
            case QuestionStep(id=call, asked=asked) if asked:
                self._questions[call] = self._begin("wait", step, f"permission for {asked.name}")
            case CallStep():
                self._call(step)
            case TurnEndStep():
                self._end_turn(step)
            case TaskStep():
                self._task(step)

    def _request(self, step: RequestStep) -> None:
        if step.reply is not None:
            status = "interrupted" if step.reply.stop == "interrupted" else "ok"
            self._end(self._requests.pop(step.request, None), step.at, status, step.seq)
        elif step.failure is not None:
            kind = step.failure.kind
            self._end(self._requests.pop(step.request, None), step.at, kind, step.seq)
        else:
            self._end_idle(step.at)
            label = "request" if step.purpose == "turn" else step.purpose
            self._requests[step.seq] = self._begin("model", step, label)

    def _call(self, step: CallStep) -> None:
        if step.ended is not None:
            status = step.ended.status
            self._end(self._questions.pop(step.id, None), step.at, status)
            self._end(self._tools.pop(step.id, None), step.at, status, step.seq)
        elif step.started is not None:
            label = _title(step.made) if step.made_seq else step.started.name
            self._tools[step.id] = self._begin("tool", step, label)

    def _end_turn(self, step: TurnEndStep) -> None:
        for span in (*self._requests.values(), *self._tools.values(), *self._questions.values()):
            span.end(step.at, "interrupted")
        self._requests = {}
        self._tools = {}
        self._questions = {}
        if not self.agent:
            self._idle = self._begin("wait", step, "waits for the user")

    def _task(self, step: TaskStep) -> None:
        task = step.task
        start = step.started
        end = step.ended
        if end is not None:
            if task in self._tasks:
                self._tasks[task].end(step.at, "ok" if end.state == "done" else end.state)
        elif start is not None and (start.state == "running" or task not in self._tasks):
            label = shortened(first_line(start.command), LABEL_CHARS_MAX)
            self._tasks[task] = OpenSpan("run", step.at, step.seq, label)

    def lanes(self, now_us: int) -> list[Lane]:
        """Return the agent's lane and one for each of its background tasks."""
        name = self.agent or MAIN
        kind = "subagent" if self.agent else "main"
        spans = [span.shown(now_us) for span in self._spans]
        lanes = [Lane(name, kind, self.label, spans, self.parent, self.agent, self.status)]  # type: ignore[arg-type]
        for task, span in self._tasks.items():
            lanes.append(
                Lane(task, "task", span.label, [span.shown(now_us)], name, self.agent, span.status)
            )
        return lanes

    def _begin(self, kind: str, step: Step, label: str) -> OpenSpan:
        span = OpenSpan(kind, step.at, step.seq, label)
        self._spans.append(span)
        return span

    def _end(self, span: OpenSpan | None, at_us: int, status: str, seq: int = 0) -> None:
        """End a span. `seq`: entry that a click leads to from now on."""
        if span is not None:
            span.end(at_us, status)
            span.seq = seq or span.seq

    def _end_idle(self, at_us: int) -> None:
        if self._idle is not None:
            self._idle.end(at_us, "ok")
            self._idle = None


def _title(call: ToolCall) -> str:
    return shortened(f"{call.name} {key_argument(call.arguments)}".rstrip(), LABEL_CHARS_MAX)
