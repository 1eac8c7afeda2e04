"""Session updates as the protocol spells them: a fold over entries and news of a session. Pure."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import assert_never
from uuid import UUID, uuid5

import msgspec

from longrein.extensions.acp.tool_calls import (
    CallView,
    FileText,
    ReadBlob,
    Update,
    announce,
    ended,
    fence,
    image_block,
    in_terminal,
    output_so_far,
    part_text,
    started,
    text_content,
    view_of,
)
from longrein.models import CallDelta, TextDelta, ThinkingDelta
from longrein.steps import (
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
from longrein.steps.human_text import escape_line, first_line
from longrein_context import State
from longrein_context.events import (
    AnyPart,
    Image,
    Replied,
    Text,
    Thinking,
    ToolTraits,
    entry_uuid,
    unwrapped,
)
from longrein_context.events.escape import shortened
from longrein_context.state.tool_traits import UNSTATED, with_traits

Delta = TextDelta | ThinkingDelta | CallDelta

HIDDEN_CALLS = ("TodoWrite",)
"""Calls that are shown in another way: the todo list is the plan."""
OUTPUT_CHARS_MAX = 4_000
"""Newest output of a running command that is shown."""
TITLE_CHARS_MAX = 80
TASK_STATUS = {"queued": "pending", "running": "in_progress", "done": "completed"}
SILENT_CLEARING = ("micro_compact", "rent", "cold")
"""Reasons of clearings that nobody waits for."""


class StreamSource(msgspec.Struct, frozen=True):
    """Data for updates that is not in the events."""

    session: str
    file_text: FileText
    read_blob: ReadBlob
    window_tokens: Callable[[], int]
    spent_usd: Callable[[], float]


class UpdateStream:
    """Makes the updates of one session, or of one subagent within it."""

    def __init__(self, source: StreamSource, label: str = "", who: str = "") -> None:
        """`label` and `who` (such as `a398` and `explore`) are those of a subagent: of it only
        calls are shown.
        """
        self._source = source
        self._label = label
        self._who = who
        self.replaying = False
        """True while past entries are shown again: with the user's messages, without live
        figures.
        """
        self.terminals: dict[str, str] = {}
        """Call -> terminal of the editor that runs it."""
        self._cwd = "/"
        self._traits: dict[str, ToolTraits] = dict(UNSTATED)
        self._calls: dict[str, CallView] = {}
        self._output: dict[str, str] = {}
        self._streamed: set[int] = set()
        """Requests whose reply was shown while it grew."""
        self._children: dict[str, UpdateStream] = {}
        self._has_title = False

    def prime(self, state: State) -> None:
        """Begin after the past of a session that is not shown again."""
        self._cwd, self._has_title = state.cwd, True
        self._traits = (
            with_traits(self._traits, state.prefix) if state.prefix is not None else self._traits
        )
        for opened in state.calls.values():
            call = unwrapped(opened.call)
            traits = self._traits.get(call.name)
            self._calls[call.id] = view_of(
                call, self.qualified(call.id), traits, self._cwd, self._source.file_text
            )

    def apply(self, step: Step) -> list[Update]:
        return self.of(step.agent)._draw(step)

    def of(self, agent: Agent) -> "UpdateStream":
        if not agent.session:
            return self
        if agent.session not in self._children:
            stream = UpdateStream(self._source, agent.label, agent.kind)
            stream._cwd, stream._traits = self._cwd, self._traits
            self._children[agent.session] = stream
        return self._children[agent.session]

    def live_output(self) -> list[Update]:
        """Return updates with the output of running commands that came since the last time."""
        taken, self._output = self._output, {}
        shown = [
            output_so_far(self._calls[c], text)
            for c, text in taken.items()
            if c not in self.terminals
        ]
        return [
            *shown,
            *(update for subagent in self._children.values() for update in subagent.live_output()),
        ]

    def terminal_update(self, call: str, command: str, terminal: str) -> Update | None:
        """Return the update of a call that runs in a terminal of the editor; None when the call is
        not known.

        A call of a subagent may have the same id, so the command is compared.
        """
        view = self._calls.get(call)
        if view is not None and (view.call.arguments or {}).get("command") == command:
            self.terminals[call] = terminal
            return in_terminal(view, terminal)
        found = (
            subagent.terminal_update(call, command, terminal)
            for subagent in self._children.values()
        )
        return next((update for update in found if update is not None), None)

    def call_view(self, call: str) -> CallView | None:
        return self._calls.get(call)

    def qualified(self, call: str) -> str:
        """Return the id of a call in the protocol; ids of calls are unique only within a
        session.
        """
        return f"{self._label}.{call}" if self._label else call

    # --- steps ------------------------------------------------------------------------------------

    def _draw(self, step: Step) -> list[Update]:
        """Return the updates of a step; of a subagent only those of its calls and notices."""
        match step:
            case SettingStep(name="session" | "cwd", value=cwd):
                self._cwd = cwd
            case BreakStep(prefix=prefix) if prefix:
                self._traits = with_traits(self._traits, prefix)
            case CallStep():
                return self._call(step)
            case TaskStep():
                return self._task(step)
            case SubagentStep():
                return self._subagent(step)
            case RequestStep(reply=reply, purpose="turn") if reply:
                return [*self._prose(reply), *self._announce(step, reply), *self._usage(reply)]
            case NoticeStep(kind="longrein", text=text):
                return [notice(f"{self._label} {self._who}: {text}" if self._label else text)]
            case _ if not self._label:
                return self._conversation(step)
        return []

    def _call(self, step: CallStep) -> list[Update]:
        call = step.id
        if call not in self._calls:
            return []
        if step.ended is not None:
            self._output.pop(call, None)
            view, terminal = self._calls.pop(call), self.terminals.pop(call, "")
            return [ended(view, step.ended, self._source.read_blob, terminal)]
        if step.output:
            text = self._output.get(call, "") + step.output.decode("utf-8", "replace")
            self._output[call] = text[-OUTPUT_CHARS_MAX:]
        return [started(self._calls[call], step.started.arguments)] if step.started else []

    def _conversation(self, step: Step) -> list[Update]:  # noqa: PLR0911 - a case for each step
        match step:
            case PromptStep(message=said):
                user = self._user(said.parts, step.seq) if self.replaying else ()
                return [*self._title(said.parts), *user]
            case StreamStep(purpose="turn", request=request, deltas=deltas):
                self._streamed.add(request)
                return list(self._chunks(request, deltas))
            case NoticeStep(pause=pause) if pause:
                again = f"{pause.message}: trying again in {pause.delay_s:.1f} s\n"
                return [chunk("agent_thought_chunk", again)]
            case SettingStep(name="todos", todos=todos):
                entries = [
                    {"content": t.content, "priority": "medium", "status": t.status} for t in todos
                ]
                return [{"sessionUpdate": "plan", "entries": entries}]
            case CompactionStep(cleared=cleared) if cleared:
                if cleared.reason in SILENT_CLEARING:
                    return []
                what = f"{len(cleared.forms)} earlier results are shown shorter."
                return [notice(f"Context compacted: {what}", "compaction")]
            case CompactionStep(summarized=summary) if summary:
                what = "the conversation so far was summarised."
                return [notice(f"Context compacted: {what}", "compaction")]
            case TurnEndStep(reason=reason, message=text):
                is_told = text and reason not in ("done", "interrupted")
                is_new = reason != "error" or self.replaying
                return [notice(text, "turn_ended")] if is_told and is_new else []
            case NoticeStep() | StreamStep() | SettingStep() | CompactionStep() | BreakStep():
                return []
            case TextStep() | ThinkingStep() | CallStep() | RequestStep() | QuestionStep():
                return []
            case TaskStep() | SubagentStep() | FileStep():
                return []
            case _:
                assert_never(step)

    def _title(self, parts: Sequence[AnyPart]) -> list[Update]:
        text = next(
            (part.text for part in parts if isinstance(part, Text) and part.text.strip()), ""
        )
        if self._has_title or not text:
            return []
        self._has_title = True
        return [
            {
                "sessionUpdate": "session_info_update",
                "title": shortened(first_line(text), TITLE_CHARS_MAX),
            }
        ]

    def _user(self, parts: Sequence[AnyPart], seq: int) -> list[Update]:
        message = entry_uuid(self._source.session, seq)
        blocks = [
            (image_block(part, self._source.read_blob) if isinstance(part, Image) else None)
            or {"type": "text", "text": part_text(part)}
            for part in parts
        ]
        return [
            {"sessionUpdate": "user_message_chunk", "content": block, "messageId": message}
            for block in blocks
        ]

    # --- replies ----------------------------------------------------------------------------------

    def _chunks(self, asked: int, deltas: Iterable[Delta]) -> Iterable[Update]:
        """Yield one chunk for adjacent deltas of one kind."""
        for kind, group in groupby(deltas, type):
            text = "".join(delta.text for delta in group if not isinstance(delta, CallDelta))
            if text:
                name = "agent_message_chunk" if kind is TextDelta else "agent_thought_chunk"
                yield chunk(name, text) | {"messageId": self._message_id(name, asked)}

    def _message_id(self, name: str, asked: int) -> str:
        return str(uuid5(UUID(self._source.session), f"{name}.{asked}"))

    def _prose(self, reply: Replied) -> list[Update]:
        """Return text and thinking of a reply that was not shown while it grew."""
        if self._label or reply.asked in self._streamed:
            self._streamed.discard(reply.asked)
            return []
        deltas: list[Delta] = []
        for part in reply.parts:
            if isinstance(part, Text):
                deltas.append(TextDelta(part.text))
            elif isinstance(part, Thinking):
                deltas.append(ThinkingDelta(part.text))
        return list(self._chunks(reply.asked, deltas))

    def _announce(self, step: RequestStep, reply: Replied) -> list[Update]:
        found = []
        calls = [unwrapped(call) for call in step.calls] if reply.stop != "interrupted" else []
        who = f"{self._label} {self._who}" if self._label else ""
        file_text = (lambda _path: None) if self.replaying else self._source.file_text
        for call in calls:
            if call.name in HIDDEN_CALLS:
                continue
            name, traits = self.qualified(call.id), self._traits.get(call.name)
            view = view_of(call, name, traits, self._cwd, file_text, who)
            self._calls[call.id] = view
            found.append(announce(view, self._cwd, file_text))
        return found

    def _usage(self, reply: Replied) -> list[Update]:
        size = self._source.window_tokens()
        if self._label or self.replaying or not size:
            return []
        cost = {"amount": self._source.spent_usd(), "currency": "USD"}
        used = reply.usage.total_tokens
        return [{"sessionUpdate": "usage_update", "used": used, "size": size, "cost": cost}]

    # --- background work: long-lived calls, one for each task and each subagent -------------------

    def _task(self, step: TaskStep) -> list[Update]:
        task = step.task
        start = step.started
        end = step.ended
        if end is not None:
            if not step.seq:
                return []
            content = [text_content(fence(end.tail))] if end.tail else None
            return [background_update(task, TASK_STATUS.get(end.state, "failed"), content)]
        if start is None:
            return []
        status = TASK_STATUS.get(start.state, "in_progress")
        if step.is_known:
            return [background_update(task, status)]
        title = f"Background task {task}: {escape_line(start.command)}"
        return [background_call(task, title, "execute", status, {"command": start.command})]

    def _subagent(self, step: SubagentStep) -> list[Update]:
        label = step.label
        start = step.started
        end = step.ended
        if start is None:
            return []
        if end is not None:
            content = [text_content(end.report or end.message)]
            status = "completed" if end.status == "done" else "failed"
            return [background_update(label, status, content)]
        title = f"Subagent {label} {start.kind}: {escape_line(start.description)}"
        arguments = {"type": start.kind, "task": start.task}
        return [background_call(label, title, "think", "in_progress", arguments)]


def chunk(name: str, text: str) -> Update:
    """Return a piece of a message; `name` says whose."""
    return {"sessionUpdate": name, "content": {"type": "text", "text": text}}


def notice(text: str, kind: str = "notice") -> Update:
    """Return a line of longrein to the user, which `_meta` tells from the words of the model."""
    return chunk("agent_message_chunk", f"\n[longrein: {escape_line(text)}]\n") | {
        "_meta": {"longrein": {"kind": kind}}
    }


def background_call(call: str, title: str, kind: str, status: str, arguments: Update) -> Update:
    """Return the long-lived call of a background task or a subagent."""
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": call,
        "title": shortened(title, 200),
        "kind": kind,
        "status": status,
        "rawInput": arguments,
        "_meta": {"longrein": {"background": True}},
    }


def background_update(call: str, status: str, content: list[Update] | None = None) -> Update:
    """Return a new status of such a call."""
    update: Update = {"sessionUpdate": "tool_call_update", "toolCallId": call, "status": status}
    return update if content is None else update | {"content": content}
