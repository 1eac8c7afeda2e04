"""Tasks, subagents and waiting words as lines: committed when they begin and end, live while they work. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from longrein.agent import AgentView, Pending
from longrein.events import ChildEnded, ChildStarted, TaskEnded, TaskStarted
from longrein.frontends import amounts
from longrein.frontends.safe import escape, escape_line
from longrein.frontends.terminal.drawing import status_word
from longrein.frontends.terminal.lines import ONE, Line, fold, indented, line
from longrein.tools import TaskView

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


def live_agents(agents: Sequence[AgentView], most: int) -> list[Line]:
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


def agent_line(view: AgentView, mark: str = "○") -> Line:
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


def _used(view: AgentView) -> str:
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


def agent_list(views: Sequence[AgentView]) -> list[Line]:
    """A line a subagent, each followed by its own."""
    rows = [agent_line(view, "○" if view.state in OPEN else "●") for view in views]
    return indented(rows) or [line(("dim", "  no subagents; the model starts them with its tool Agent"))]


def agent_page(view: AgentView, task: str, report: str, acts: Sequence[str]) -> list[Line]:
    """One subagent: its task, what it did last, its report."""
    rows = [agent_line(view, "○" if view.state in OPEN else "●")]
    rows += [line(("dim", f"model {escape_line(view.model)}"))] if view.model else []
    for title, text in (("task", task), ("last acts", "\n".join(acts)), ("report", report)):
        if text:
            shown = [line(row) for row in escape(text).expandtabs(4).split("\n")]
            rows += [line(("dim", title)), *indented(fold(shown, TEXT_LINES_MAX))]
    return indented(rows)


# --- words that wait ---------------------------------------------------------------------------------------------


def waiting_word(pending: Pending, label: str) -> str:
    """When a waiting message goes, and to whom."""
    if pending.to:
        return f"to {escape_line(label or 'a subagent')}, with its next request"
    return {"queued": "after this turn", "steer": "with the next request"}.get(pending.how, "at once")


def queue_list(numbered: Sequence[tuple[int, Pending]], labels: Mapping[str, str]) -> list[Line]:
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
