"""What works beside the conversation, as it is heard: background tasks, and what subagents below it do.

Folded from entries like everything on the screen. What a subagent does is heard as `FromSubagent`. Its replies are not
painted, its own log has them; its questions are, and what it was told, and its last acts are remembered.
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
from longrein.frontends import text_format as amounts
from longrein.frontends.terminal import event_lines as drawing
from longrein.frontends.terminal.approvals import Question
from longrein.frontends.terminal.event_lines import ONE, Line, fold, indented, line, status_word
from longrein.frontends.text_format import act_of, escape, escape_line, key_argument
from longrein.tools import TaskView

# ---------------------------------------------------------------------------------------------------------------------
#
# Tasks, subagents and waiting words as lines: committed when they begin and end, live while they work. Pure.


COMMAND_CHARS_MIN, COMMAND_CHARS_MAX = 8, 60
"""Of a command in the one line of all tasks."""
TASK_CELLS = 16
"""What else stands of a task there: its id, its time, what parts it from the next."""
TEXT_LINES_MAX = 12
"""Of a task that was given to a subagent, or of its report."""
OPEN = ("queued", "running", "asking")
"""States of what is not over."""

_PROMOTED = {"timeout": "passed its time and goes on", "user": "goes on"}


class Worker(msgspec.Struct, frozen=True):
    """A subagent as the log of its parent tells of it."""

    label: str
    started: ChildStarted


class Running(msgspec.Struct, frozen=True):
    """A background task that is not over."""

    started: TaskStarted
    """As it is now: `running` or `queued`."""
    at: int
    """Since when, microseconds UTC."""
    since_s: float | None = None
    """The same, monotonic; None for one that began before it was watched."""

    def age_s(self, now_us: int, now_s: float) -> float:
        """How long it has run."""
        return (now_us - self.at) / 1e6 if self.since_s is None else now_s - self.since_s


# --- when they begin and end -------------------------------------------------------------------------------------


def started_task(event: TaskStarted, *, waited: bool) -> Line:
    """A task began, waits for its turn, or was a command that went on in the background."""
    told, style = "started", "run"
    if event.state == "queued":
        told, style = "waits for its turn", "dim"
    elif event.promoted:
        told = f"{_PROMOTED.get(event.promoted, 'goes on')} in the background"
    elif waited:
        told = "began: its turn has come"
    return line(ONE, (style, f"task {escape_line(event.task)} {told}"), f"  {_first(event.command)}")


def ended_task(event: TaskEnded, started: TaskStarted | None) -> list[Line]:
    """A task is over: how, after what time, with how much output; of one that went wrong the last line it printed."""
    word, style = status_word(event.state)
    facts = [
        f"exit code {event.code}" if event.code else "",
        escape_line(event.cause) if event.cause and event.state != "done" else "",
        amounts.elapsed(event.elapsed_ms / 1000),
        amounts.size(event.size_bytes) if event.size_bytes else "",
    ]
    told = ", ".join(filter(None, facts))
    command = f"  {_first(started.command)}" if started else ""
    head = line(ONE, (style, f"task {escape_line(event.task)} {word}"), ("dim", f"  {told}" if told else ""), command)
    last = event.tail.rstrip().rpartition("\n")[2]
    return [head] if event.state == "done" or not last else [head, line(ONE, ("dim", f"  {escape_line(last)}"))]


def started_child(event: ChildStarted, label: str) -> list[Line]:
    """A subagent began, or was asked again; what was granted otherwise than asked for."""
    told = "is asked again" if event.again else "started"
    where = "  in the background" if event.background else ""
    head = line(
        ONE,
        ("run", f"{escape_line(label)} {escape_line(event.kind)} {told}"),
        f"  {_first(event.description)}",
        ("dim", where),
    )
    return [head, line(("dim", f"  {escape_line(event.note)}"))] if event.note else [head]


def ended_child(event: ChildEnded, worker: Worker | None) -> list[Line]:
    """A subagent is over: what it took, why it did not finish, what it left."""
    word, style = status_word(event.status)
    used = event.usage.context_tokens + event.usage.output_tokens
    facts = [
        amounts.elapsed(event.elapsed_ms / 1000),
        amounts.counted(event.steps, "step") if event.steps else "",
        f"{amounts.tokens(used)} tokens" if used else "",
        amounts.money(event.cost_usd) if event.cost_usd else "",
        f"{amounts.counted(len(event.files), 'file')} changed" if event.files else "",
    ]
    who, doing = "subagent", ""
    if worker:
        who = f"{escape_line(worker.label)} {escape_line(worker.started.kind)}"
        doing = f"  {_first(worker.started.description)}"
    told = ", ".join(filter(None, facts))
    head = line(ONE, (style, f"{who} {word}"), ("dim", f"  {told}" if told else ""), doing)
    more = [text for text in (event.message, event.worktree) if text]
    return [head, *(line(("dim", f"  {escape_line(text)}")) for text in more)]


# --- while they work ---------------------------------------------------------------------------------------------


def live_agents(agents: Sequence[SubagentView], most: int) -> list[Line]:
    """At most `most` lines of subagents that are not over; those that ask first, the rest counted."""
    here = [view for view in agents if view.state in OPEN]
    if len(here) <= most:
        return [agent_line(view) for view in here]
    shown = sorted(here, key=lambda view: OPEN.index(view.state), reverse=True)[: max(most - 1, 0)]
    rest = [view for view in here if view not in shown]
    counts = [(state, sum(view.state == state for view in rest)) for state in ("asking", "running", "queued")]
    told = ", ".join(f"{count} {status_word(state)[0]}" for state, count in counts if count)
    more = line(ONE, ("dim", f"… {amounts.counted(len(rest), 'more subagent')}: {told}; /agents lists them"))
    return [*(agent_line(view) for view in here if view in shown), more]


def agent_line(view: SubagentView, mark: str = "○") -> Line:
    """One subagent: state and time before what it does, so that a narrow terminal hides the least of it."""
    word, style = status_word(view.state)
    time = amounts.since(view.elapsed_s) if view.elapsed_s >= 1 else ""
    facts = [_first(view.description), escape_line(view.last) if view.last else "", _used(view)]
    return line(
        ONE,
        (style, f"{'  ' * max(view.depth - 1, 0)}{mark} "),
        ("name", f"{escape_line(view.label)} {escape_line(view.kind)}"),
        (style, f" {word}" + (f" {time}" if time else "")),
        ("", f"  {' · '.join(filter(None, facts))}"),
    )


def _used(view: SubagentView) -> str:
    facts = [
        amounts.counted(view.steps, "step") if view.steps else "",
        f"{amounts.tokens(view.tokens)} tokens" if view.tokens else "",
        amounts.money(view.cost_usd) if view.cost_usd else "",
    ]
    return ", ".join(filter(None, facts))


def live_tasks(tasks: Mapping[str, Running], now_us: int, width: int, now_s: float = 0.0) -> list[Line]:
    """One line for all background tasks, in which they share the width; none when there are none."""
    if not tasks:
        return []
    room = min(max(width // len(tasks) - TASK_CELLS, COMMAND_CHARS_MIN), COMMAND_CHARS_MAX)
    told = " · ".join(_task(running, running.age_s(now_us, now_s), room) for running in tasks.values())
    return [line(ONE, ("run", amounts.counted(len(tasks), "task")), f"  {told}")]


def _task(running: Running, age_s: float, room: int) -> str:
    started = running.started
    time = "queued" if started.state == "queued" else amounts.since(age_s)
    command = _first(started.command)
    shown = command if len(command) <= room else command[: room - 1] + "…"
    return f"{escape_line(started.task)} {shown} {time}"


def counts(tasks: int, agents: int) -> str:
    """`2 tasks, 3 agents` for the footer; '' when nothing works beside."""
    told = (amounts.counted(tasks, "task") if tasks else "", amounts.counted(agents, "agent") if agents else "")
    return ", ".join(filter(None, told))


# --- lists -------------------------------------------------------------------------------------------------------


def task_list(views: Sequence[TaskView]) -> list[Line]:
    """A line a task."""
    rows = [task_line(view) for view in views]
    return rows or [line(("dim", "  no background tasks; Ctrl-B sends a running command to the background"))]


def task_line(view: TaskView) -> Line:
    """One task with all that is known of it in a line."""
    word, style = status_word(view.state)
    facts = [
        f"exit code {view.code}" if view.code else "",
        escape_line(view.cause) if view.cause and view.state != "done" else "",
        amounts.elapsed(view.elapsed_s),
        amounts.size(view.size_bytes) if view.size_bytes else "",
        f"asks: {escape_line(view.waits_for_input)}" if view.waits_for_input else "",
        escape_line(view.handle),
    ]
    told = ", ".join(filter(None, facts))
    name, command = f"  {escape_line(view.id):<5}", f"  {_first(view.command)}"
    return line(ONE, ("name", name), (style, f" {word}"), ("dim", f"  {told}"), command)


def agent_list(views: Sequence[SubagentView]) -> list[Line]:
    """A line a subagent, each followed by its own."""
    rows = [agent_line(view, "○" if view.state in OPEN else "●") for view in views]
    return indented(rows) or [line(("dim", "  no subagents; the model starts them with its tool Agent"))]


def agent_page(view: SubagentView, task: str, report: str, acts: Sequence[str]) -> list[Line]:
    """One subagent: its task, what it did last, its report."""
    rows = [agent_line(view, "○" if view.state in OPEN else "●")]
    rows += [line(("dim", f"model {escape_line(view.model)}"))] if view.model else []
    for title, text in (("task", task), ("last acts", "\n".join(acts)), ("report", report)):
        if text:
            shown = [line(row) for row in escape(text).expandtabs(4).split("\n")]
            rows += [line(("dim", title)), *indented(fold(shown, TEXT_LINES_MAX))]
    return indented(rows)


# --- words that wait ---------------------------------------------------------------------------------------------


def waiting_word(pending: PendingMessage, label: str) -> str:
    """When a waiting message goes, and to whom."""
    if pending.to:
        return f"to {escape_line(label or 'a subagent')}, with its next request"
    return {"queued": "after this turn", "steer": "with the next request"}.get(pending.how, "at once")


def queue_list(numbered: Sequence[tuple[int, PendingMessage]], labels: Mapping[str, str]) -> list[Line]:
    """Waiting messages with their numbers."""
    rows = [
        line(("name", f"  {number} "), ("warn", f"{waiting_word(one, labels.get(one.to, ''))}: "), _first(one.text))
        for number, one in numbered
        if number
    ]
    if not rows:
        return [line(("dim", "  nothing waits: all that was said has been delivered"))]
    return [*rows, line(("dim", "  /queue NUMBER takes one back to be edited, /queue drop NUMBER throws it away"))]


def _first(text: str) -> str:
    first, newline, _ = text.strip().partition("\n")
    return escape_line(first[:500]) + (" …" if newline else "")


# --- beside ----------------------------------------------------------------------------------------------------------


ACTS_MAX = 12
"""Acts of one subagent that are remembered."""


class Beside:
    """See the module."""

    def __init__(self) -> None:
        self.tasks: dict[str, Running] = {}
        """Those that are not over, of this session and its subagents, in the order in which they began."""
        self.workers: dict[str, Worker] = {}
        """Subagents by their session, also those that are over."""
        self._shown: set[str] = set()
        """Tasks whose end was shown before its entry came."""
        self.acts: dict[str, deque[str]] = {}
        """What each subagent did last, newest last, escaped lines."""
        self.questions: dict[tuple[str, str], Question] = {}
        """Calls of subagents that wait for the user's word, in order."""
        self._calls: dict[tuple[str, str], dict[str, Any] | None] = {}
        self._began: dict[tuple[str, str], tuple[int, float | None]] = {}
        """When calls that run began, as `Running` has it, by session ('' for this one) and call."""
        self.now_s: float | None = None
        """When what comes is heard, monotonic; None while an old log is read."""

    # --- of this session -------------------------------------------------------------------------------------

    def heard(self, entry: Entry) -> list[Line]:
        """Lines for a task or subagent that began or is over."""
        match entry.event:
            case TaskStarted() as task:
                waited = task.task in self.tasks
                self._runs(task, "", entry.at)
                return [started_task(task, waited=waited)]
            case TaskEnded() as task:
                return self._ends(task)
            case ChildStarted() as child:
                return started_child(child, self._join(child, entry.seq).label)
            case ChildEnded() as child:
                return ended_child(child, self._leave(child.child))
            case _:
                self._clock(entry, "")
                return []

    def _clock(self, entry: Entry, session: str) -> None:
        """Keep when a call began as long as it runs."""
        match entry.event:
            case ToolStarted(call=call):
                self._began[session, call] = entry.at, self.now_s
            case ToolEnded(call=call):
                self._began.pop((session, call), None)
            case _:
                pass

    def over(self, ended: TaskEnded) -> list[Line]:
        """Lines for a task that has ended and whose entry is yet to come."""
        if ended.task not in self.tasks:
            return []
        self._shown.add(ended.task)
        return ended_task(ended, self.tasks.pop(ended.task).started)

    def _ends(self, ended: TaskEnded) -> list[Line]:
        if ended.task in self._shown:
            self._shown.remove(ended.task)
            return []
        was = self.tasks.pop(ended.task, None)
        return ended_task(ended, was.started if was else None)

    def _runs(self, task: TaskStarted, session: str, at: int) -> None:
        """A task began: one that was a command before it went on in the background began as that."""
        now = at, self.now_s
        self.tasks[task.task] = Running(task, *(self._began.get((session, task.call), now) if task.promoted else now))

    def _join(self, event: ChildStarted, seq: int, above: str = "") -> Worker:
        """A subagent began in the log of the one labelled `above` ('' for this session)."""
        label = f"a{event.again or seq}"
        self.workers[event.child] = Worker(f"{above}.{label}" if above else label, event)
        return self.workers[event.child]

    def _leave(self, child: str) -> Worker | None:
        """A subagent is over, and what is below it: nobody waits for an answer there any more."""
        worker = self.workers.get(child)
        below = f"{worker.label}." if worker else "."
        gone = {child, *(session for session, one in self.workers.items() if one.label.startswith(below))}
        self.questions = {key: one for key, one in self.questions.items() if key[0] not in gone}
        self._calls = {key: value for key, value in self._calls.items() if key[0] not in gone}
        return worker

    # --- of subagents ----------------------------------------------------------------------------------------

    def of_child(self, of: FromSubagent) -> list[Line]:
        """Lines for what a subagent made heard; none for most of it."""
        if isinstance(of.heard, RetryPause):
            self._did(of.child, drawing.retry_text(of.heard, 0))
        if isinstance(of.heard, UserNotice):
            return [drawing.notice_line(f"{of.label}: {of.heard.text}")]
        if isinstance(of.heard, TaskOver):
            self.tasks.pop(of.heard.ended.task, None)
        if not isinstance(of.heard, Entry):
            return []
        self._fold(of, of.heard)
        return self._told(of, of.heard, f"{escape_line(of.label)} {escape_line(of.kind)}".rstrip())

    def _fold(self, of: FromSubagent, entry: Entry) -> None:
        match entry.event:
            case Replied(parts=parts):
                calls = (unwrapped(part) for part in parts if isinstance(part, ToolCall))
                self._calls.update({(of.child, call.id): call.arguments for call in calls})
            case ToolStarted(call=call, name=name):
                self._did(of.child, f"{escape_line(name)} {key_argument(self._calls.get((of.child, call)))}".rstrip())
            case TaskStarted() as task:
                self._runs(task, of.child, entry.at)
            case TaskEnded(task=task_id):
                self.tasks.pop(task_id, None)
            case ChildStarted() as child:
                self._join(child, entry.seq, of.label)
            case ChildEnded(child=session):
                self._leave(session)
            case _:
                pass
        self._clock(entry, of.child)
        self._did(of.child, act_of(entry.event))

    def _did(self, child: str, act: str) -> None:
        """Remember an act; the same twice in a row, such as a call and its start, is one."""
        acts = self.acts.setdefault(child, deque(maxlen=ACTS_MAX))
        if act and (not acts or acts[-1] != act):
            acts.append(act)

    def _told(self, of: FromSubagent, entry: Entry, who: str) -> list[Line]:
        match entry.event:
            case PermissionAsked() as asked:
                question = Question(asked, self._calls.get((of.child, asked.call)), of.child, who)
                self.questions[question.key] = question
            case PermissionAnswered() as answer:
                self.questions.pop((of.child, answer.call), None)
                rows = drawing.answered_lines(answer, "")
                return [line(("dim", f"{who}: "), *row) for row in rows]
            case ToolEnded(call=call):
                self.questions.pop((of.child, call), None)
                self._calls.pop((of.child, call), None)
            case UserSpoke(origin="steer" | "queued") as spoke:
                return drawing.user_lines(spoke, f"delivered to {who}")
            case _:
                pass
        return []
