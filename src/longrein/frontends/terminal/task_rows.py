"""Background tasks, subagents and waiting messages: their state (`BackgroundActivity`) and their lines.

The state is a fold of entries. Updates of a subagent arrive as `FromSubagent`: its questions and the messages to it are
shown and its last acts kept, but not its replies, which are in its own log.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longrein.agent import FromSubagent, PendingMessage, RetryPause, SubagentView, TaskOver, UserNotice
from longrein.events import (
    ChildEnded,
    ChildStarted,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    TaskEnded,
    TaskStarted,
    ToolCall,
    ToolEnded,
    ToolStarted,
    UserSpoke,
    unwrapped,
)
from longrein.frontends import text_format
from longrein.frontends.terminal import event_lines
from longrein.frontends.terminal.approvals import Question
from longrein.frontends.terminal.event_lines import NO_WRAP, Line, fold, indented, line, status_word
from longrein.frontends.text_format import activity_text, escape, escape_line, key_argument
from longrein.tools import TaskView

# --- Data ------------------------------------------------------------------------------------------------------------


COMMAND_CHARS_MIN, COMMAND_CHARS_MAX = 8, 60
"""Characters of a command in the line of all tasks."""
TASK_CELLS = 16
"""Cells of a task in that line beside its command: id, time, separator."""
TEXT_LINES_MAX = 12
"""Lines shown of a subagent's task or report."""
OPEN = ("queued", "running", "asking")
"""States of tasks and subagents that have not ended."""

_PROMOTED = {"timeout": "passed its time and goes on", "user": "goes on"}


class KnownSubagent(msgspec.Struct, frozen=True):
    """A subagent, from the log of its parent."""

    label: str
    started: ChildStarted


class RunningTask(msgspec.Struct, frozen=True):
    """A background task that has not ended."""

    started: TaskStarted
    """Newest start event; its state is `running` or `queued`."""
    at: int
    """Start, microseconds UTC."""
    since_s: float | None = None
    """Start in monotonic seconds; None when it began before the terminal was opened."""

    def age_s(self, now_us: int, now_s: float) -> float:
        """Running time in seconds."""
        return (now_us - self.at) / 1e6 if self.since_s is None else now_s - self.since_s


# --- Lines of starts and ends ----------------------------------------------------------------------------------------


def started_task(event: TaskStarted, *, waited: bool) -> Line:
    """Line of a task that was queued, started, or moved to the background."""
    details, style = "started", "run"
    if event.state == "queued":
        details, style = "waits for its turn", "dim"
    elif event.promoted:
        details = f"{_PROMOTED.get(event.promoted, 'goes on')} in the background"
    elif waited:
        details = "began: its turn has come"
    return line(NO_WRAP, (style, f"task {escape_line(event.task)} {details}"), f"  {_first_line(event.command)}")


def ended_task(event: TaskEnded, started: TaskStarted | None) -> list[Line]:
    """Lines of a task that ended; a failure shows its last line of output."""
    word, style = status_word(event.state)
    facts = [
        f"exit code {event.code}" if event.code else "",
        escape_line(event.cause) if event.cause and event.state != "done" else "",
        text_format.elapsed(event.elapsed_ms / 1000),
        text_format.size(event.size_bytes) if event.size_bytes else "",
    ]
    details = ", ".join(filter(None, facts))
    command = f"  {_first_line(started.command)}" if started else ""
    head = line(
        NO_WRAP, (style, f"task {escape_line(event.task)} {word}"), ("dim", f"  {details}" if details else ""), command
    )
    last = event.tail.rstrip().rpartition("\n")[2]
    return [head] if event.state == "done" or not last else [head, line(NO_WRAP, ("dim", f"  {escape_line(last)}"))]


def started_child(event: ChildStarted, label: str) -> list[Line]:
    """Lines of a subagent that was started or resumed, with a note when it got other limits than requested."""
    details = "is asked again" if event.again else "started"
    where = "  in the background" if event.background else ""
    head = line(
        NO_WRAP,
        ("run", f"{escape_line(label)} {escape_line(event.kind)} {details}"),
        f"  {_first_line(event.description)}",
        ("dim", where),
    )
    return [head, line(("dim", f"  {escape_line(event.note)}"))] if event.note else [head]


def ended_child(event: ChildEnded, subagent: KnownSubagent | None) -> list[Line]:
    """Lines of a subagent that ended: usage, reason of a failure, worktree."""
    word, style = status_word(event.status)
    used = event.usage.context_tokens + event.usage.output_tokens
    facts = [
        text_format.elapsed(event.elapsed_ms / 1000),
        text_format.counted(event.steps, "step") if event.steps else "",
        f"{text_format.tokens(used)} tokens" if used else "",
        text_format.money(event.cost_usd) if event.cost_usd else "",
        f"{text_format.counted(len(event.files), 'file')} changed" if event.files else "",
    ]
    who, doing = "subagent", ""
    if subagent:
        who = f"{escape_line(subagent.label)} {escape_line(subagent.started.kind)}"
        doing = f"  {_first_line(subagent.started.description)}"
    details = ", ".join(filter(None, facts))
    head = line(NO_WRAP, (style, f"{who} {word}"), ("dim", f"  {details}" if details else ""), doing)
    more = [text for text in (event.message, event.worktree) if text]
    return [head, *(line(("dim", f"  {escape_line(text)}")) for text in more)]


# --- Live lines ------------------------------------------------------------------------------------------------------


def live_agents(agents: Sequence[SubagentView], most: int) -> list[Line]:
    """At most `most` lines of working subagents, those with a question first; the rest are counted."""
    here = [view for view in agents if view.state in OPEN]
    if len(here) <= most:
        return [agent_line(view) for view in here]
    shown = sorted(here, key=lambda view: OPEN.index(view.state), reverse=True)[: max(most - 1, 0)]
    rest = [view for view in here if view not in shown]
    counts = [(state, sum(view.state == state for view in rest)) for state in ("asking", "running", "queued")]
    details = ", ".join(f"{count} {status_word(state)[0]}" for state, count in counts if count)
    more = line(NO_WRAP, ("dim", f"… {text_format.counted(len(rest), 'more subagent')}: {details}; /agents lists them"))
    return [*(agent_line(view) for view in here if view in shown), more]


def agent_line(view: SubagentView, mark: str = "○") -> Line:
    """Line of one subagent. State and time come first, so that a narrow terminal does not hide them."""
    word, style = status_word(view.state)
    time = text_format.live_elapsed(view.elapsed_s) if view.elapsed_s >= 1 else ""
    facts = [_first_line(view.description), escape_line(view.last) if view.last else "", _usage_text(view)]
    return line(
        NO_WRAP,
        (style, f"{'  ' * max(view.depth - 1, 0)}{mark} "),
        ("name", f"{escape_line(view.label)} {escape_line(view.kind)}"),
        (style, f" {word}" + (f" {time}" if time else "")),
        ("", f"  {' · '.join(filter(None, facts))}"),
    )


def _usage_text(view: SubagentView) -> str:
    facts = [
        text_format.counted(view.steps, "step") if view.steps else "",
        f"{text_format.tokens(view.tokens)} tokens" if view.tokens else "",
        text_format.money(view.cost_usd) if view.cost_usd else "",
    ]
    return ", ".join(filter(None, facts))


def live_tasks(tasks: Mapping[str, RunningTask], now_us: int, width: int, now_s: float = 0.0) -> list[Line]:
    """One line for all background tasks; no line when there are none."""
    if not tasks:
        return []
    room = min(max(width // len(tasks) - TASK_CELLS, COMMAND_CHARS_MIN), COMMAND_CHARS_MAX)
    details = " · ".join(_task_text(running, running.age_s(now_us, now_s), room) for running in tasks.values())
    return [line(NO_WRAP, ("run", text_format.counted(len(tasks), "task")), f"  {details}")]


def _task_text(running: RunningTask, age_s: float, room: int) -> str:
    started = running.started
    time = "queued" if started.state == "queued" else text_format.live_elapsed(age_s)
    command = _first_line(started.command)
    shown = command if len(command) <= room else command[: room - 1] + "…"
    return f"{escape_line(started.task)} {shown} {time}"


def counts(tasks: int, agents: int) -> str:
    """`2 tasks, 3 agents` for the footer; '' when there are none."""
    details = (
        text_format.counted(tasks, "task") if tasks else "",
        text_format.counted(agents, "agent") if agents else "",
    )
    return ", ".join(filter(None, details))


# --- Lists and pages -------------------------------------------------------------------------------------------------


def task_list(views: Sequence[TaskView]) -> list[Line]:
    """One line for each task."""
    rows = [task_line(view) for view in views]
    return rows or [line(("dim", "  no background tasks; Ctrl-B sends a running command to the background"))]


def task_line(view: TaskView) -> Line:
    """Line of one task: id, state, facts, command."""
    word, style = status_word(view.state)
    facts = [
        f"exit code {view.code}" if view.code else "",
        escape_line(view.cause) if view.cause and view.state != "done" else "",
        text_format.elapsed(view.elapsed_s),
        text_format.size(view.size_bytes) if view.size_bytes else "",
        f"asks: {escape_line(view.waits_for_input)}" if view.waits_for_input else "",
        escape_line(view.handle),
    ]
    details = ", ".join(filter(None, facts))
    name, command = f"  {escape_line(view.id):<5}", f"  {_first_line(view.command)}"
    return line(NO_WRAP, ("name", name), (style, f" {word}"), ("dim", f"  {details}"), command)


def agent_list(views: Sequence[SubagentView]) -> list[Line]:
    """One line for each subagent, followed by its own subagents."""
    rows = [agent_line(view, "○" if view.state in OPEN else "●") for view in views]
    return indented(rows) or [line(("dim", "  no subagents; the model starts them with its tool Agent"))]


def agent_page(view: SubagentView, task: str, report: str, acts: Sequence[str]) -> list[Line]:
    """Page of one subagent: task, last acts, report."""
    rows = [agent_line(view, "○" if view.state in OPEN else "●")]
    rows += [line(("dim", f"model {escape_line(view.model)}"))] if view.model else []
    for title, text in (("task", task), ("last acts", "\n".join(acts)), ("report", report)):
        if text:
            shown = [line(row) for row in escape(text).expandtabs(4).split("\n")]
            rows += [line(("dim", title)), *indented(fold(shown, TEXT_LINES_MAX))]
    return indented(rows)


# --- Waiting messages ------------------------------------------------------------------------------------------------


def delivery_note(pending: PendingMessage, label: str) -> str:
    """Time of delivery and recipient of a waiting message, in words."""
    if pending.to:
        return f"to {escape_line(label or 'a subagent')}, with its next request"
    return {"queued": "after this turn", "steer": "with the next request"}.get(pending.how, "at once")


def queue_list(numbered: Sequence[tuple[int, PendingMessage]], labels: Mapping[str, str]) -> list[Line]:
    """Numbered lines of waiting messages, with a hint."""
    rows = [
        line(
            ("name", f"  {number} "), ("warn", f"{delivery_note(one, labels.get(one.to, ''))}: "), _first_line(one.text)
        )
        for number, one in numbered
        if number
    ]
    if not rows:
        return [line(("dim", "  nothing waits: all that was said has been delivered"))]
    return [*rows, line(("dim", "  /queue NUMBER takes one back to be edited, /queue drop NUMBER throws it away"))]


def _first_line(text: str) -> str:
    first, newline, _ = text.strip().partition("\n")
    return escape_line(first[:500]) + (" …" if newline else "")


# --- State -----------------------------------------------------------------------------------------------------------


ACTS_MAX = 12
"""Acts kept for each subagent."""


class BackgroundActivity:
    """State of background tasks and subagents, folded from updates."""

    def __init__(self) -> None:
        self.tasks: dict[str, RunningTask] = {}
        """Unfinished tasks of this session and its subagents, in order of their start."""
        self.subagents: dict[str, KnownSubagent] = {}
        """All subagents by session id, ended ones too."""
        self._ended_early: set[str] = set()
        """Tasks whose end was shown before its entry arrived."""
        self.acts: dict[str, deque[str]] = {}
        """Last acts of each subagent, newest last, escaped."""
        self.questions: dict[tuple[str, str], Question] = {}
        """Calls of subagents that wait for permission, in order."""
        self._calls: dict[tuple[str, str], dict[str, Any] | None] = {}
        self._call_starts: dict[tuple[str, str], tuple[int, float | None]] = {}
        """Start of running calls (wall µs, monotonic s), by session ('' for this one) and call."""
        self.now_s: float | None = None
        """Time of the current update, monotonic; None while an old log is replayed."""

    # --- Updates of this session -------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> list[Line]:
        """Apply an entry; return lines for a task or subagent that started or ended."""
        match entry.event:
            case TaskStarted() as task:
                waited = task.task in self.tasks
                self._add_task(task, "", entry.at)
                return [started_task(task, waited=waited)]
            case TaskEnded() as task:
                return self._end_logged_task(task)
            case ChildStarted() as child:
                return started_child(child, self._add_subagent(child, entry.seq).label)
            case ChildEnded() as child:
                return ended_child(child, self._end_subagent(child.child))
            case _:
                self._track_call(entry, "")
                return []

    def _track_call(self, entry: Entry, session: str) -> None:
        """Remember the start of a running call."""
        match entry.event:
            case ToolStarted(call=call):
                self._call_starts[session, call] = entry.at, self.now_s
            case ToolEnded(call=call):
                self._call_starts.pop((session, call), None)
            case _:
                pass

    def end_task(self, ended: TaskEnded) -> list[Line]:
        """Return lines for a task that ended and whose entry has not arrived yet."""
        if ended.task not in self.tasks:
            return []
        self._ended_early.add(ended.task)
        return ended_task(ended, self.tasks.pop(ended.task).started)

    def _end_logged_task(self, ended: TaskEnded) -> list[Line]:
        if ended.task in self._ended_early:
            self._ended_early.remove(ended.task)
            return []
        running = self.tasks.pop(ended.task, None)
        return ended_task(ended, running.started if running else None)

    def _add_task(self, task: TaskStarted, session: str, at: int) -> None:
        """Add a task. A promoted command keeps the start of its call."""
        now = at, self.now_s
        self.tasks[task.task] = RunningTask(
            task, *(self._call_starts.get((session, task.call), now) if task.promoted else now)
        )

    def _add_subagent(self, event: ChildStarted, seq: int, parent_label: str = "") -> KnownSubagent:
        """Add a subagent; `parent_label` is the label of its parent ('' for this session)."""
        label = f"a{event.again or seq}"
        self.subagents[event.child] = KnownSubagent(f"{parent_label}.{label}" if parent_label else label, event)
        return self.subagents[event.child]

    def _end_subagent(self, child: str) -> KnownSubagent | None:
        """Drop the questions of an ended subagent and of its own subagents."""
        subagent = self.subagents.get(child)
        below = f"{subagent.label}." if subagent else "."
        ended = {child, *(session for session, one in self.subagents.items() if one.label.startswith(below))}
        self.questions = {key: one for key, one in self.questions.items() if key[0] not in ended}
        self._calls = {key: value for key, value in self._calls.items() if key[0] not in ended}
        return subagent

    # --- Updates of subagents ----------------------------------------------------------------------------------------

    def apply_subagent(self, update: FromSubagent) -> list[Line]:
        """Apply an update of a subagent; most give no lines."""
        if isinstance(update.heard, RetryPause):
            self._remember_act(update.child, event_lines.retry_text(update.heard, 0))
        if isinstance(update.heard, UserNotice):
            return [event_lines.notice_line(f"{update.label}: {update.heard.text}")]
        if isinstance(update.heard, TaskOver):
            self.tasks.pop(update.heard.ended.task, None)
        if not isinstance(update.heard, Entry):
            return []
        self._update(update, update.heard)
        return self._subagent_lines(
            update, update.heard, f"{escape_line(update.label)} {escape_line(update.kind)}".rstrip()
        )

    def _update(self, update: FromSubagent, entry: Entry) -> None:
        match entry.event:
            case Replied(parts=parts):
                calls = (unwrapped(part) for part in parts if isinstance(part, ToolCall))
                self._calls.update({(update.child, call.id): call.arguments for call in calls})
            case ToolStarted(call=call, name=name):
                self._remember_act(
                    update.child, f"{escape_line(name)} {key_argument(self._calls.get((update.child, call)))}".rstrip()
                )
            case TaskStarted() as task:
                self._add_task(task, update.child, entry.at)
            case TaskEnded(task=task_id):
                self.tasks.pop(task_id, None)
            case ChildStarted() as child:
                self._add_subagent(child, entry.seq, update.label)
            case ChildEnded(child=session):
                self._end_subagent(session)
            case _:
                pass
        self._track_call(entry, update.child)
        self._remember_act(update.child, activity_text(entry.event))

    def _remember_act(self, child: str, act: str) -> None:
        """Remember an act; repeats, such as a call and its start, count once."""
        acts = self.acts.setdefault(child, deque(maxlen=ACTS_MAX))
        if act and (not acts or acts[-1] != act):
            acts.append(act)

    def _subagent_lines(self, update: FromSubagent, entry: Entry, who: str) -> list[Line]:
        match entry.event:
            case PermissionAsked() as asked:
                question = Question(asked, self._calls.get((update.child, asked.call)), update.child, who)
                self.questions[question.key] = question
            case PermissionAnswered() as answer:
                self.questions.pop((update.child, answer.call), None)
                rows = event_lines.answered_lines(answer, "")
                return [line(("dim", f"{who}: "), *row) for row in rows]
            case ToolEnded(call=call):
                self.questions.pop((update.child, call), None)
                self._calls.pop((update.child, call), None)
            case UserSpoke(origin="steer" | "queued") as spoke:
                return event_lines.user_lines(spoke, f"delivered to {who}")
            case _:
                pass
        return []
