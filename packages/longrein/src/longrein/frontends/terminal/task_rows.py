"""Background tasks, subagents and waiting messages: their state (`BackgroundActivity`) and their
lines.

The state is a fold of entries. Updates of a subagent arrive as `FromSubagent`: its questions and
the messages to it are shown and its last acts kept, but not its replies, which are in its own log.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from longrein.agent import PendingMessage, SubagentView
from longrein.frontends.localization import translate
from longrein.frontends.terminal import event_lines
from longrein.frontends.terminal.approvals import Question
from longrein.frontends.terminal.event_lines import NO_WRAP, Line, fold, indented, line, status_word
from longrein.steps import (
    CallStep,
    NoticeStep,
    PromptStep,
    QuestionStep,
    Step,
    SubagentStep,
    TaskStep,
    human_text,
)
from longrein.steps.human_text import (
    activity_text,
    escape,
    escape_line,
    first_line,
    joined,
    key_argument,
)
from longrein.tools import TaskView
from longrein_context.events import SubagentEnded, SubagentStarted, TaskEnded, TaskStarted
from longrein_context.events.escape import shortened

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
    started: SubagentStarted


class RunningTask(msgspec.Struct, frozen=True):
    """A background task that has not ended."""

    started: TaskStarted
    """Newest start event; its state is `running` or `queued`."""
    at: int
    """Start, microseconds UTC."""
    since_s: float | None = None
    """Start in monotonic seconds; None when it began before the terminal was opened."""

    def age_s(self, now_us: int, now_s: float) -> float:
        return (now_us - self.at) / 1e6 if self.since_s is None else now_s - self.since_s


# --- Lines of starts and ends ---------------------------------------------------------------------


def started_task(event: TaskStarted, *, waited: bool) -> Line:
    """Line of a task that was queued, started, or moved to the background."""
    details, style = "started", "run"
    if event.state == "queued":
        details, style = "waits for its turn", "dim"
    elif event.promoted:
        details = f"{_PROMOTED.get(event.promoted, 'goes on')} in the background"
    elif waited:
        details = "began: its turn has come"
    return line(
        NO_WRAP,
        (style, translate(f"task {escape_line(event.task)} {details}")),
        f"  {first_line(event.command)}",
    )


def ended_task(event: TaskEnded, started: TaskStarted | None) -> list[Line]:
    """Lines of a task that ended; a failure shows its last line of output."""
    word, style = status_word(event.state)
    details = _task_facts(event, event.elapsed_ms / 1000)
    head = line(
        NO_WRAP,
        (style, translate(f"task {escape_line(event.task)} {word}")),
        ("dim", f"  {details}" if details else ""),
        f"  {first_line(started.command)}" if started else "",
    )
    last = event.tail.rstrip().rpartition("\n")[2]
    return (
        [head]
        if event.state == "done" or not last
        else [head, line(NO_WRAP, ("dim", f"  {escape_line(last)}"))]
    )


def _task_facts(task: TaskEnded | TaskView, elapsed_s: float, *more: str) -> str:
    return joined(
        translate(f"exit code {task.code}") if task.code else "",
        escape_line(translate(task.cause)),
        human_text.elapsed(elapsed_s),
        human_text.size(task.size_bytes) if task.size_bytes else "",
        *more,
    )


def started_subagent(event: SubagentStarted, label: str) -> list[Line]:
    """Lines of a subagent that was started or resumed, with a note when it got other limits than
    requested.
    """
    details = "is asked again" if event.again else "started"
    head = line(
        NO_WRAP,
        ("run", f"{escape_line(label)} {escape_line(event.kind)} {translate(details)}"),
        f"  {first_line(event.description)}",
        ("dim", translate("  in the background") if event.background else ""),
    )
    return [head, line(("dim", f"  {escape_line(event.note)}"))] if event.note else [head]


def ended_subagent(event: SubagentEnded, subagent: KnownSubagent | None) -> list[Line]:
    """Lines of a subagent that ended: usage, reason of a failure, worktree."""
    word, style = status_word(event.status)
    details = joined(
        human_text.elapsed(event.elapsed_ms / 1000),
        human_text.usage(event.steps, event.usage.total_tokens, event.cost_usd),
        translate(f"{human_text.counted(len(event.files), 'file')} changed") if event.files else "",
    )
    name = (
        f"{escape_line(subagent.label)} {escape_line(subagent.started.kind)}"
        if subagent
        else translate("subagent")
    )
    head = line(
        NO_WRAP,
        (style, f"{name} {word}"),
        ("dim", f"  {details}" if details else ""),
        f"  {first_line(subagent.started.description)}" if subagent else "",
    )
    return [
        head,
        *(
            line(("dim", f"  {escape_line(text)}"))
            for text in (event.message, event.worktree)
            if text
        ),
    ]


def ended_subagents(ended: "Sequence[tuple[SubagentEnded, KnownSubagent]]") -> list[Line]:
    """Lines of subagents that worked side by side and are done: one for all of them."""
    if len(ended) < 2:
        return [row for end, known in ended for row in ended_subagent(end, known)]
    tokens = sum(end.usage.total_tokens for end, _ in ended)
    usd = sum(end.cost_usd for end, _ in ended)
    word, style = status_word("done")
    details = joined(
        human_text.elapsed(max(end.elapsed_ms for end, _ in ended) / 1000),
        human_text.usage(sum(end.steps for end, _ in ended), tokens, usd),
    )
    tasks = [f"{known.label} {first_line(known.started.description)}" for _, known in ended]
    count = f"{len(ended)} subagents"
    return [
        line(
            NO_WRAP,
            (style, f"{translate(count)} {word}"),
            ("dim", f"  {details}" if details else ""),
            f"  {', '.join(tasks)}",
        )
    ]


def live_agents(
    agents: Sequence[SubagentView], most: int, is_told: Callable[[str], bool] = lambda _: False
) -> list[Line]:
    """At most `most` lines of working subagents, those with a question first; the rest are
    counted.

    `is_told`: True for the session of a subagent that is done and still shown beside the others.
    """
    here = [view for view in agents if view.state in OPEN or is_told(view.child)]
    if len(here) <= most:
        return [agent_line(view) for view in here]
    ranks = {state: rank for rank, state in enumerate(OPEN, 1)}
    shown = sorted(here, key=lambda view: ranks.get(view.state, 0), reverse=True)[
        : max(most - 1, 0)
    ]
    rest = [view for view in here if view not in shown]
    counts = [
        (state, sum(view.state == state for view in rest))
        for state in ("asking", "running", "queued", "done")
    ]
    details = ", ".join(f"{count} {status_word(state)[0]}" for state, count in counts if count)
    more = line(
        NO_WRAP,
        (
            "dim",
            translate(
                f"… {human_text.counted(len(rest), 'more subagent')}: {details}; /agents lists them"
            ),
        ),
    )
    return [*(agent_line(view) for view in here if view in shown), more]


def agent_line(view: SubagentView) -> Line:
    """Line of one subagent. State and time come first, so that a narrow terminal does not hide
    them.
    """
    word, style = status_word(view.state)
    time = f" {human_text.live_elapsed(view.elapsed_s)}" if view.elapsed_s >= 1 else ""
    usage = human_text.usage(view.steps, view.tokens, view.cost_usd)
    return line(
        NO_WRAP,
        (style, f"{'  ' * max(view.depth - 1, 0)}{'○' if view.state in OPEN else '●'} "),
        ("name", f"{escape_line(view.label)} {escape_line(view.kind)}"),
        (style, f" {word}{time}"),
        f"  {joined(first_line(view.description), escape_line(view.last), usage, by=' · ')}",
    )


def live_tasks(
    tasks: Mapping[str, RunningTask], now_us: int, width: int, now_s: float = 0.0
) -> list[Line]:
    """A line for all background tasks; no line when there are none."""
    if not tasks:
        return []
    room = min(max(width // len(tasks) - TASK_CELLS, COMMAND_CHARS_MIN), COMMAND_CHARS_MAX)
    details = " · ".join(
        _task_text(running, running.age_s(now_us, now_s), room) for running in tasks.values()
    )
    count = translate(human_text.counted(len(tasks), "task"))
    return [line(NO_WRAP, ("run", count), f"  {details}")]


def _task_text(running: RunningTask, age_s: float, room: int) -> str:
    started = running.started
    time = translate("queued") if started.state == "queued" else human_text.live_elapsed(age_s)
    return f"{escape_line(started.task)} {shortened(first_line(started.command), room)} {time}"


def counts(tasks: int, agents: int) -> str:
    """`2 tasks, 3 agents` for the footer; '' when there are none."""
    return joined(
        translate(human_text.counted(tasks, "task")) if tasks else "",
        translate(human_text.counted(agents, "agent")) if agents else "",
    )


# --- Lists and pages ------------------------------------------------------------------------------


def task_list(views: Sequence[TaskView]) -> list[Line]:
    """A line for each task."""
    rows = [task_line(view) for view in views]
    return rows or [
        line(
            (
                "dim",
                translate(
                    "  no background tasks; Ctrl-B sends a running command to the background"
                ),
            )
        )
    ]


def task_line(view: TaskView) -> Line:
    """Line of one task: id, state, facts, command."""
    word, style = status_word(view.state)
    asks = translate(f"asks: {escape_line(view.waits_for_input)}") if view.waits_for_input else ""
    return line(
        NO_WRAP,
        ("name", f"  {escape_line(view.id):<5}"),
        (style, f" {word}"),
        ("dim", f"  {_task_facts(view, view.elapsed_s, asks, escape_line(view.handle))}"),
        f"  {first_line(view.command)}",
    )


def agent_list(views: Sequence[SubagentView]) -> list[Line]:
    """A line for each subagent, followed by its own subagents."""
    rows = indented(map(agent_line, views))
    return rows or [
        line(("dim", translate("  no subagents; the model starts them with its tool Agent")))
    ]


def agent_page(view: SubagentView, task: str, report: str, acts: Sequence[str]) -> list[Line]:
    """Page of one subagent: task, last acts, report."""
    rows = [agent_line(view)]
    rows += [line(("dim", f"{translate('model')} {escape_line(view.model)}"))] if view.model else []
    for title, text in (("task", task), ("last acts", "\n".join(acts)), ("report", report)):
        if text:
            shown = [line(row) for row in escape(text).expandtabs(4).split("\n")]
            rows += [line(("dim", translate(title))), *indented(fold(shown, TEXT_LINES_MAX))]
    return indented(rows)


# --- Waiting messages -----------------------------------------------------------------------------


def delivery_note(pending: PendingMessage, label: str) -> str:
    """Time of delivery and recipient of a waiting message, in words."""
    if pending.to:
        to = escape_line(label) or translate("a subagent")
        return translate(f"to {to}, with its next request")
    known = {"queued": "after this turn", "steer": "with the next request"}
    return translate(known.get(pending.how, "at once"))


def queue_list(
    numbered: Sequence[tuple[int, PendingMessage]], labels: Mapping[str, str]
) -> list[Line]:
    """Numbered lines of waiting messages, with a hint."""
    rows = [
        line(
            ("name", f"  {n} "),
            ("warn", f"{delivery_note(message, labels.get(message.to, ''))}: "),
            first_line(message.text),
        )
        for n, message in numbered
        if n
    ]
    if not rows:
        return [line(("dim", translate("  nothing waits: all that was said has been delivered")))]
    return [
        *rows,
        line(
            (
                "dim",
                translate(
                    "  /queue NUMBER takes one back to be edited, /queue drop NUMBER throws it away"
                ),
            )
        ),
    ]


# --- State ----------------------------------------------------------------------------------------


ACTS_MAX = 12


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
        self._call_starts: dict[tuple[str, str], tuple[int, float | None]] = {}
        """Start of running calls (wall µs, monotonic s), by session ('' for this one) and call."""
        self.now_s: float | None = None
        """Time of the current update, monotonic; None while an old log is replayed."""

    def apply(self, step: Step) -> list[Line]:
        """Apply a step; return lines for a task or subagent of this session that started or ended,
        and for some steps of a subagent.
        """
        session = step.agent.session
        if session:
            self._remember_act(session, _act(step))
        lines: list[Line] = []
        match step:
            case TaskStep():
                lines = self._task(step)
            case SubagentStep(ended=end) if end:
                lines = ended_subagent(end, self._end_subagent(step.session))
            case SubagentStep(started=start) if start:
                self.subagents[step.session] = KnownSubagent(step.label, start)
                lines = started_subagent(start, step.label)
            case CallStep(phase="started", id=call):
                self._call_starts[session, call] = step.at, self.now_s
            case CallStep(phase="ended", id=call):
                self._call_starts.pop((session, call), None)
        return self._subagent_lines(step) if session else lines

    def _task(self, step: TaskStep) -> list[Line]:
        """Add or remove a task. A promoted command keeps the start of its call. An end that is
        told early is told once.
        """
        task = step.task
        start = step.started
        end = step.ended
        if end is None:
            if start is None:
                return []
            waited, now = task in self.tasks, (step.at, self.now_s)
            key = step.agent.session, start.call
            began = self._call_starts.get(key, now) if start.promoted else now
            self.tasks[task] = RunningTask(start, *began)
            return [started_task(start, waited=waited)]
        running = self.tasks.pop(task, None)
        if step.seq and task in self._ended_early:
            self._ended_early.remove(task)
            return []
        if not step.seq:
            if running is None:
                return []
            if not step.agent.session:
                self._ended_early.add(task)
        return ended_task(end, running.started if running else None)

    def _end_subagent(self, session: str) -> KnownSubagent | None:
        """Drop the questions of an ended subagent and of its own subagents."""
        subagent = self.subagents.get(session)
        below = f"{subagent.label}." if subagent else "."
        ended = {
            session,
            *(other for other, known in self.subagents.items() if known.label.startswith(below)),
        }
        self.questions = {
            key: question for key, question in self.questions.items() if key[0] not in ended
        }
        return subagent

    def _remember_act(self, subagent: str, act: str) -> None:
        """Remember an act; repeats, such as a call and its start, count once."""
        acts = self.acts.setdefault(subagent, deque(maxlen=ACTS_MAX))
        if act and (not acts or acts[-1] != act):
            acts.append(act)

    def _subagent_lines(self, step: Step) -> list[Line]:
        agent = step.agent
        name = f"{escape_line(agent.label)} {escape_line(agent.kind)}".rstrip()
        match step:
            case NoticeStep(kind="longrein", text=text):
                return [event_lines.notice_line(f"{agent.label}: {text}")]
            case QuestionStep(answer=answer, id=call) if answer:
                self.questions.pop((agent.session, call), None)
                rows = event_lines.answered_lines(answer, "", removable=False)
                return [line(("dim", f"{name}: "), *row) for row in rows]
            case QuestionStep(asked=asked) if asked:
                question = Question(asked, step.call.arguments, agent.session, name)
                self.questions[question.key] = question
            case CallStep(phase="ended", id=call):
                self.questions.pop((agent.session, call), None)
            case PromptStep(message=said) if said.origin in ("steer", "queued"):
                return event_lines.user_lines(said, translate(f"delivered to {name}"))
        return []


def _act(step: Step) -> str:
    """The act of a subagent that a step tells; '' for none."""
    match step:
        case NoticeStep(pause=pause) if pause:
            return event_lines.retry_text(pause, 0)
        case CallStep(started=started, ended=None) if started:
            return f"{escape_line(started.name)} {key_argument(step.call.arguments)}".rstrip()
        case _:
            return activity_text(step)
