"""What works beside the conversation, as it is heard: background tasks, and what subagents below it do.

Folded from entries like everything on the screen. What a subagent does is heard as `OfChild`. Its replies are not
painted, its own log has them; its questions are, and what it was told, and its last acts are remembered.
"""

from collections import deque
from typing import Any

from longrein.agent import Noticed, OfChild, Pausing, TaskOver
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
from longrein.frontends.acts import act_of, key_argument
from longrein.frontends.safe import escape_line
from longrein.frontends.terminal import beside_rows, drawing
from longrein.frontends.terminal.approvals import Question
from longrein.frontends.terminal.beside_rows import Running, Worker
from longrein.frontends.terminal.lines import Line, line

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
                return [beside_rows.started_task(task, waited=waited)]
            case TaskEnded() as task:
                return self._ends(task)
            case ChildStarted() as child:
                return beside_rows.started_child(child, self._join(child, entry.seq).label)
            case ChildEnded() as child:
                return beside_rows.ended_child(child, self._leave(child.child))
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
        return beside_rows.ended_task(ended, self.tasks.pop(ended.task).started)

    def _ends(self, ended: TaskEnded) -> list[Line]:
        if ended.task in self._shown:
            self._shown.remove(ended.task)
            return []
        was = self.tasks.pop(ended.task, None)
        return beside_rows.ended_task(ended, was.started if was else None)

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

    def of_child(self, of: OfChild) -> list[Line]:
        """Lines for what a subagent made heard; none for most of it."""
        if isinstance(of.heard, Pausing):
            self._did(of.child, drawing.retry_text(of.heard, 0))
        if isinstance(of.heard, Noticed):
            return [drawing.notice_line(f"{of.label}: {of.heard.text}")]
        if isinstance(of.heard, TaskOver):
            self.tasks.pop(of.heard.ended.task, None)
        if not isinstance(of.heard, Entry):
            return []
        self._fold(of, of.heard)
        return self._told(of, of.heard, f"{escape_line(of.label)} {escape_line(of.kind)}".rstrip())

    def _fold(self, of: OfChild, entry: Entry) -> None:
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

    def _told(self, of: OfChild, entry: Entry, who: str) -> list[Line]:
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
