"""Lanes of the time view: when the agents worked, when tools ran, when the user was waited for."""

import msgspec

from longrein.events import (
    Asked,
    AskFailed,
    ChildStarted,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    Reminded,
    Replied,
    TaskEnded,
    TaskStarted,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UserSpoke,
)
from longrein.events.escape import shortened
from longrein.extensions.inspector.page_data import Lane, Span
from longrein.frontends.human_text import first_line, key_argument

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
        """End the interval."""
        self.end_us, self.status = max(at_us, self.start_us), status

    def shown(self, now_us: int) -> Span:
        """Return the interval as the page gets it. `now_us`: time up to which an open one lasts."""
        end_us = self.end_us or max(now_us, self.start_us)
        return Span(self.kind, self.start_us, end_us, self.seq, self.label, self.status)  # type: ignore[arg-type]


class LaneBuilder:
    """Makes the lane of one agent and the lanes of its background tasks."""

    def __init__(self, agent: str, label: str, parent: str = "") -> None:
        self.agent, self.label, self.parent = agent, label, parent
        self.status = ""
        self._spans: list[OpenSpan] = []
        self._requests: dict[int, OpenSpan] = {}
        self._tools: dict[str, OpenSpan] = {}
        self._questions: dict[str, OpenSpan] = {}
        self._idle: OpenSpan | None = None
        self._titles: dict[str, str] = {}
        self._tasks: dict[str, OpenSpan] = {}

    def hear(self, entry: Entry) -> None:  # noqa: C901, PLR0912 - a few lines for each event
        """Take in an entry of the agent's log."""
        at, seq = entry.at, entry.seq
        match entry.event:
            case UserSpoke() | Reminded(kind="wake"):
                self._end_idle(at)
            case Asked(purpose=purpose):
                self._end_idle(at)
                self._requests[seq] = self._begin(
                    "model", entry, "request" if purpose == "turn" else purpose
                )
            case Replied(asked=asked, stop=stop) as reply:
                self._titles.update(
                    (call.id, _title(call)) for call in reply.parts if isinstance(call, ToolCall)
                )
                self._end(
                    self._requests.pop(asked, None),
                    at,
                    "interrupted" if stop == "interrupted" else "ok",
                    seq,
                )
            case AskFailed(asked=asked, kind=kind):
                self._end(self._requests.pop(asked, None), at, kind, seq)
            case PermissionAsked(call=call, name=name):
                self._questions[call] = self._begin("wait", entry, f"permission for {name}")
            case PermissionAnswered(call=call, verdict=verdict):
                self._end(self._questions.pop(call, None), at, verdict)
            case ToolStarted(call=call, name=name):
                self._tools[call] = self._begin("tool", entry, self._titles.pop(call, name))
            case ToolEnded(call=call, status=status):
                self._end(self._questions.pop(call, None), at, status)
                self._end(self._tools.pop(call, None), at, status, seq)
            case TurnEnded():
                for span in (
                    *self._requests.values(),
                    *self._tools.values(),
                    *self._questions.values(),
                ):
                    span.end(at, "interrupted")
                self._requests, self._tools, self._questions = {}, {}, {}
                if not self.agent:
                    self._idle = self._begin("wait", entry, "waits for the user")
            case TaskStarted(task=task, command=command, state=state):
                label = shortened(first_line(command), LABEL_CHARS_MAX)
                if state == "running" or task not in self._tasks:
                    self._tasks[task] = OpenSpan("run", at, seq, label)
            case TaskEnded(task=task, state=state) if task in self._tasks:
                self._tasks[task].end(at, "ok" if state == "done" else state)
            case _:
                pass

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

    def _begin(self, kind: str, entry: Entry, label: str) -> OpenSpan:
        span = OpenSpan(kind, entry.at, entry.seq, label)
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


def child_label(entry: Entry, event: ChildStarted, parent: str) -> str:
    """Return the label of a subagent, such as `a398` or `a398.a12`."""
    own = f"a{event.again or entry.seq}"
    return f"{parent}.{own}" if parent else own
