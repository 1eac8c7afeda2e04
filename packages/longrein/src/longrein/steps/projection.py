"""The reader of the log: entries and live updates in, steps out.

It keeps what pairs the steps of one thing: calls with their results, requests with their answers,
questions, tasks and subagents with their ends.
"""

from collections.abc import Iterable, Iterator
from typing import assert_never

from longrein.agent import (
    FromSubagent,
    Output,
    ReplyDelta,
    RetryPause,
    SessionUpdate,
    TaskOver,
    UserNotice,
)
from longrein.steps.steps import (
    Agent,
    BreakStep,
    CallStep,
    CompactionStep,
    FileStep,
    NoticeStep,
    PromptStep,
    QuestionStep,
    RequestStep,
    SettingStep,
    Step,
    StreamStep,
    SubagentStep,
    TaskStep,
    TextStep,
    ThinkingStep,
    TurnEndStep,
)
from longrein_context import State
from longrein_context.events import (
    Asked,
    AskFailed,
    CheckpointTaken,
    Cleared,
    CwdSet,
    Entry,
    FileChanged,
    FileSeen,
    GoalChanged,
    HookAnswered,
    Interrupted,
    ModeSet,
    Opened,
    PermissionAnswered,
    PermissionAsked,
    PinsSet,
    PrefixSet,
    Recalled,
    Reminded,
    Replied,
    Restored,
    Rewound,
    SchedulesSet,
    SubagentEnded,
    SubagentStarted,
    Summarized,
    TaskEnded,
    TaskStarted,
    Text,
    Thinking,
    TitleSet,
    TodoSet,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UserSpoke,
    usd_of,
)

Here = tuple[int, int, Agent]
"""Seq, time and agent of the steps of one entry."""
MAIN = Agent()


class Projection:
    """Makes the steps of one session, and of the subagents below it."""

    def __init__(self, agent: Agent = MAIN) -> None:
        self.agent = agent
        self._kinds: dict[str, str] = {}
        """Name of each tool -> kind, as the prefixes state it."""
        self._requests: dict[int, tuple[int, Asked]] = {}
        """Seq of each request without an answer -> time and event."""
        self._calls: dict[str, tuple[ToolCall, int]] = {}
        """Id of each call without a result -> the call and the seq of its reply."""
        self._starts: dict[str, ToolStarted] = {}
        self._questions: dict[str, PermissionAsked] = {}
        """Question about each call without a result."""
        self._answered: set[str] = set()
        self._tasks: dict[str, TaskStarted] = {}
        self._subagents: dict[str, tuple[str, SubagentStarted]] = {}
        """Session of each subagent -> its label and newest start."""
        self._below: dict[str, Projection] = {}

    def prime(self, state: State) -> None:
        """Begin after the past of a log, with the calls, questions, tasks and subagents of
        `state`.
        """
        if state.prefix is not None:
            self.learn_tools(state.prefix)
        for id_, opened in state.calls.items():
            self._calls[id_] = (opened.call, 0)
            if opened.asked is not None and opened.answer is None:
                self._questions[id_] = opened.asked
        self._tasks = {
            task: known.started for task, known in state.tasks.items() if known.ended is None
        }
        for session, known in state.children.items():
            self._subagents[session] = (self._label(known.seq), known.started)

    def learn_tools(self, prefix: PrefixSet) -> None:
        """Take the kinds of tools that `prefix` states."""
        for spec in prefix.callable_tools:
            if spec.traits is not None:
                self._kinds[spec.name] = spec.traits.kind

    def read(self, update: SessionUpdate) -> list[Step]:
        """Return the steps of an entry or a live update."""
        live = (0, 0, self.agent)
        match update:
            case Entry():
                return list(self._entry(update))
            case FromSubagent():
                return self._subagent(update).read(update.heard)
            case ReplyDelta(asked=asked, deltas=deltas, purpose=purpose):
                return [StreamStep(*live, asked, deltas, purpose=purpose)]
            case Output(call=call, data=data):
                made, seq = self._made(call, "")
                return [CallStep(*live, made, seq, "output", output=data)]
            case RetryPause():
                return [NoticeStep(*live, "pause", update.message, pause=update)]
            case UserNotice(text=text):
                return [NoticeStep(*live, "longrein", text)]
            case TaskOver(ended=ended):
                return [TaskStep(*live, ended.task, self._tasks.get(ended.task), ended=ended)]

    def open_questions(self) -> list[QuestionStep]:
        """Return the questions that have no answer yet, such as those from before a crash."""
        live = (0, 0, self.agent)
        return [
            QuestionStep(*live, *self._made(call, asked.name), asked)
            for call, asked in self._questions.items()
            if call not in self._answered
        ]

    def _subagent(self, update: FromSubagent) -> "Projection":
        if update.child not in self._below:
            agent = Agent(update.child, update.label, update.kind)
            self._below[update.child] = Projection(agent)
        return self._below[update.child]

    def _entry(self, entry: Entry) -> Iterator[Step]:  # noqa: C901, PLR0912 - a case for each event
        here = entry.seq, entry.at, self.agent
        match entry.event:
            case UserSpoke() as message:
                yield PromptStep(*here, message)
            case Asked() as asked:
                self._requests[entry.seq] = entry.at, asked
                yield RequestStep(*here, entry.seq, asked, entry.at, purpose=asked.purpose)
            case Replied() as reply:
                yield from self._reply(here, reply)
            case AskFailed() as failure:
                yield self._request_end(here, failure.asked, failure=failure)
            case PrefixSet() as prefix:
                self.learn_tools(prefix)
                yield BreakStep(*here, prefix)
            case ToolStarted() as started:
                self._starts[started.call] = started
                made, seq = self._made(started.call, started.name)
                kind = self._kinds.get(started.name, "")
                yield CallStep(*here, made, seq, "started", started=started, kind=kind)
            case ToolEnded() as result:
                yield self._call_end(here, result)
            case PermissionAsked() as question:
                self._questions[question.call] = question
                yield QuestionStep(*here, *self._made(question.call, question.name), question)
            case PermissionAnswered(call=call) as answer:
                asked_before = self._questions.get(call)
                name = asked_before.name if asked_before else ""
                if call in self._calls:
                    self._answered.add(call)
                else:
                    self._questions.pop(call, None)
                yield QuestionStep(*here, *self._made(call, name), asked_before, answer)
            case TaskStarted(task=task) as task_start:
                is_known = task in self._tasks
                self._tasks[task] = task_start
                yield TaskStep(*here, task, task_start, is_known)
            case TaskEnded(task=task) as task_end:
                yield TaskStep(*here, task, self._tasks.pop(task, None), ended=task_end)
            case SubagentStarted(child=subagent) as start_event:
                label = self._label(start_event.again or entry.seq)
                self._subagents[subagent] = label, start_event
                yield SubagentStep(*here, subagent, label, start_event)
            case SubagentEnded(child=subagent) as end_event:
                label, known = self._subagents.get(subagent, ("", None))
                usd = usd_of(end_event)
                yield SubagentStep(*here, subagent, label, known, end_event, usd=usd)
            case _:
                yield _single(here, entry.event)

    def _reply(self, here: Here, reply: Replied) -> Iterator[Step]:
        """Yield the parts of a reply and the end of its request."""
        end = self._request_end(here, reply.asked, reply=reply)
        purpose = end.purpose
        for number, part in enumerate(reply.parts, 1):
            match part:
                case Text(text):
                    yield TextStep(*here, number, text, purpose=purpose)
                case Thinking(text):
                    yield ThinkingStep(*here, number, text, purpose=purpose)
                case ToolCall() if reply.stop == "interrupted":
                    yield CallStep(*here, part, here[0], "cut", number, purpose=purpose)
                case ToolCall():
                    self._calls[part.id] = part, here[0]
                    yield CallStep(*here, part, here[0], "made", number, purpose=purpose)
        yield end

    def _request_end(
        self,
        here: Here,
        request: int,
        *,
        reply: Replied | None = None,
        failure: AskFailed | None = None,
    ) -> RequestStep:
        asked_at, asked = self._requests.pop(request, (here[1], None))
        answer = reply or failure
        return RequestStep(
            *here,
            request,
            asked,
            asked_at,
            reply,
            failure,
            purpose=asked.purpose if asked else "turn",
            usd=usd_of(answer) if answer else 0.0,
        )

    def _call_end(self, here: Here, result: ToolEnded) -> CallStep:
        made, seq = self._made(result.call, result.name)
        started = self._starts.pop(result.call, None)
        asked = self._questions.pop(result.call, None)
        self._calls.pop(result.call, None)
        self._answered.discard(result.call)
        kind = self._kinds.get(result.name, "")
        return CallStep(*here, made, seq, "ended", 0, started, result, asked, kind=kind)

    def _made(self, call: str, name: str) -> tuple[ToolCall, int]:
        """Return a call and the seq of the reply that made it."""
        return self._calls.get(call) or (ToolCall(call, name, None), 0)

    def _label(self, number: int) -> str:
        """Return the label of a subagent whose first start is entry `number`."""
        return f"{self.agent.label}.a{number}" if self.agent.label else f"a{number}"


SingleEvent = (
    FileSeen
    | FileChanged
    | Opened
    | ModeSet
    | CwdSet
    | TitleSet
    | PinsSet
    | SchedulesSet
    | TodoSet
    | GoalChanged
    | Reminded
    | Interrupted
    | HookAnswered
    | Recalled
    | CheckpointTaken
    | Rewound
    | Cleared
    | Summarized
    | Restored
    | TurnEnded
)
"""Events whose step depends on no other."""


def _single(here: Here, event: SingleEvent) -> Step:  # noqa: C901, PLR0911, PLR0912 - as many events
    match event:
        case FileSeen():
            return FileStep(*here, event.path, event.hash)
        case FileChanged():
            return FileStep(*here, event.path, event.hash, event)
        case Opened():
            return SettingStep(*here, "session", event.cwd, opened=event)
        case ModeSet():
            return SettingStep(*here, "mode", event.mode)
        case CwdSet():
            return SettingStep(*here, "cwd", event.cwd)
        case TitleSet():
            return SettingStep(*here, "title", event.title)
        case PinsSet():
            return SettingStep(*here, "pins", pins=event.pins)
        case SchedulesSet():
            return SettingStep(*here, "schedules", schedules=event.schedules)
        case TodoSet():
            return SettingStep(*here, "todos", todos=event.todos)
        case GoalChanged():
            return SettingStep(*here, "goal", goal=event.goal)
        case Reminded():
            return NoticeStep(*here, "reminder", event.text, event)
        case Interrupted():
            return NoticeStep(*here, "interrupt", event.text)
        case HookAnswered():
            return NoticeStep(*here, "hook", event.text, hook=event, usd=usd_of(event))
        case Recalled():
            return NoticeStep(*here, "recall", recalled=event)
        case CheckpointTaken():
            return NoticeStep(*here, "checkpoint", event.problem)
        case Rewound():
            return BreakStep(*here, rewound=event)
        case Cleared():
            return CompactionStep(*here, event)
        case Summarized():
            return CompactionStep(*here, summarized=event)
        case Restored():
            return CompactionStep(*here, restored=event)
        case TurnEnded():
            return TurnEndStep(*here, event.reason, event.message)
        case _:
            assert_never(event)


def steps_of(entries: Iterable[Entry]) -> Iterator[Step]:
    """Return the steps of a whole log."""
    projection = Projection()
    for entry in entries:
        yield from projection.read(entry)
