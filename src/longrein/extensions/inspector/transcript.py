"""Rows of the transcript: what was said and done, in order, with diffs of edits."""

from collections.abc import Iterable, Iterator
from typing import Any

from longrein.context import arguments_text
from longrein.events import (
    AnyEvent,
    AnyPart,
    AskFailed,
    ChildEnded,
    ChildStarted,
    Cleared,
    Document,
    Entry,
    FileChanged,
    GoalChanged,
    HookAnswered,
    Image,
    Interrupted,
    ModeSet,
    PermissionAnswered,
    PermissionAsked,
    PinsSet,
    PrefixSet,
    Recalled,
    Reminded,
    Replied,
    Restored,
    Rewound,
    Summarized,
    TaskEnded,
    TaskStarted,
    Text,
    Thinking,
    TodoSet,
    ToolCall,
    ToolEnded,
    TurnEnded,
    UserSpoke,
    text_of,
    unwrapped,
)
from longrein.events.escape import shortened
from longrein.extensions.inspector.items import in_words
from longrein.extensions.inspector.page_data import DiffLine, TranscriptRow
from longrein.frontends.human_text import counted, key_argument
from longrein.tools.diff import hunks_of

TITLE_CHARS_MAX = 120
DIFF_LINES_MAX = 400
"""Lines of a diff; more are counted in its last line."""
TODO_MARKS = {"completed": "[x]", "in_progress": "[>]"}


class TranscriptBuilder:
    """Makes the rows of one log."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.rows: list[TranscriptRow] = []
        self._calls: dict[str, int] = {}
        self._children: dict[str, str] = {}

    def hear(self, entry: Entry) -> None:
        """Append the rows of an entry."""
        self.rows += self._rows(entry)

    def _rows(self, entry: Entry) -> Iterable[TranscriptRow]:
        match entry.event:
            case UserSpoke(parts=parts):
                return [self._said(entry, n, part, len(parts)) for n, part in enumerate(parts)]
            case Replied(parts=parts):
                return [
                    row
                    for n, part in enumerate(parts)
                    if (row := self._reply_part(entry, n, part)) is not None
                ]
            case ToolEnded() as event:
                return [self._result(entry, event)]
            case PrefixSet() as event:
                return self._prefix(entry, event)
            case ChildStarted(child=child, again=again) as event:
                label = f"a{again or entry.seq} {event.kind}: {event.description}"
                self._children[child] = label
                return [self._row(entry, "subagent", "assistant", event.task, label, "started")]
            case ChildEnded(child=child, report=report, message=message, status=status):
                label = f"{self._children.get(child, child)} ended"
                text = "\n".join(filter(None, (message, report)))
                return [self._row(entry, "subagent", "subagent", text, label, status)]
            case _:
                values = _row_values(entry.event)
                return [] if values is None else [self._row(entry, *values)]

    def _row(
        self,
        entry: Entry,
        kind: str,
        author: str,
        text: str,
        title: str = "",
        status: str = "",
        *,
        handle: str = "",
        **more: Any,
    ) -> TranscriptRow:
        handle = handle or (f"r{entry.seq}" if kind in ("reminder", "summary") else "")
        title = shortened(title, TITLE_CHARS_MAX)
        return TranscriptRow(
            entry.seq,
            entry.at,
            kind,
            author,
            text,
            self.agent,
            handle,
            title,
            status=status,
            **more,
        )

    def _said(self, entry: Entry, n: int, part: AnyPart, count: int) -> TranscriptRow:
        handle = f"r{entry.seq}" if count == 1 else f"r{entry.seq}.{n + 1}"
        title = part.media if isinstance(part, Image | Document) else ""
        return self._row(
            entry, "user", "user", text_of((part,)), title, handle=handle, images=_pictures((part,))
        )

    def _reply_part(self, entry: Entry, n: int, part: AnyPart) -> TranscriptRow | None:
        handle = f"r{entry.seq}.{n + 1}"
        match part:
            case Text(text):
                return self._row(entry, "text", "assistant", text, handle=handle)
            case Thinking(text):
                return self._row(entry, "thinking", "assistant", text, handle=handle)
            case ToolCall():
                call = unwrapped(part)
                self._calls[call.id] = entry.seq
                title = f"{call.name} {key_argument(call.arguments)}".rstrip()
                diff = diff_of_call(call)
                text = _plain_arguments(call) if diff else arguments_text(part)
                return self._row(
                    entry, "call", "assistant", text, title, handle=handle, call=call.id, diff=diff
                )
            case _:
                return None

    def _result(self, entry: Entry, event: ToolEnded) -> TranscriptRow:
        more: dict[str, Any] = {
            "call": event.call,
            "result_of": self._calls.pop(event.call, 0),
            "elapsed_ms": event.elapsed_ms,
        }
        hidden = sum(part.size_bytes for part in event.parts if isinstance(part, Document))
        text = text_of(event.parts)
        if hidden:
            more["left_out"] = max(0, hidden - len(text.encode()))
        return self._row(
            entry,
            "result",
            "tool",
            text,
            event.name,
            event.status,
            handle=f"r{entry.seq}",
            images=_pictures(event.parts),
            **more,
        )

    def _prefix(self, entry: Entry, event: PrefixSet) -> Iterator[TranscriptRow]:
        title = f"{event.provider}/{event.model}, {counted(len(event.tools), 'tool')}"
        yield self._row(entry, "prefix", "longrein", event.system, title, event.reason)
        for n, text in enumerate(event.context):
            source = event.sources[n].path if n < len(event.sources) else "instructions"
            yield self._row(
                entry, "prefix", "longrein", text, source, handle=f"r{entry.seq}.{n + 1}"
            )


def _pictures(parts: Iterable[AnyPart]) -> int:
    return sum(isinstance(part, Image | Document) for part in parts)


Values = tuple[str, ...]
"""kind, author, text, title, status."""


def _row_values(event: AnyEvent) -> Values | None:  # noqa: C901, PLR0911, PLR0912 - a line for each event
    """Return the values of the row of an event with one row; None for one that is not shown."""
    match event:
        case Reminded(kind=kind, text=text):
            return ("reminder", "longrein", text, kind) if text else None
        case Interrupted(text=text):
            return "reminder", "user", text, "interrupted"
        case AskFailed(kind=kind, message=message, attempt=attempt):
            return "failure", "longrein", message, f"the request failed, attempt {attempt}", kind
        case PermissionAsked(shown=shown, reason=reason, name=name):
            return "permission", "longrein", shown, f"{name}: {reason}", "asked"
        case PermissionAnswered(verdict=verdict, by=by, scope=scope, message=message, rule=rule):
            return (
                "permission",
                _person(by),
                message or rule,
                f"{verdict} by {by}, {scope}",
                verdict,
            )
        case HookAnswered(hook=hook, event=name, decision=decision) as answer:
            text = "\n".join(filter(None, (answer.text, answer.context, answer.message)))
            return (
                ("hook", "hook", text, f"{name}: {hook}", decision)
                if text or decision != "none"
                else None
            )
        case Cleared(forms=forms, reason=reason, gain_tokens=gain):
            title = f"{counted(len(forms), 'item')} shortened, {gain:,} tokens less in each request"
            return "cleared", "longrein", in_words(reason), title, reason
        case Summarized(text=text, first=first, last=last, reason=reason):
            return "summary", "longrein", text, f"entries r{first} to r{last}", reason
        case Restored(undone=undone):
            return "restored", "user", "", f"the compaction r{undone} was undone"
        case Rewound(to=to, files=files):
            lines = [
                f"{'removed' if f.removed else 'restored'} {f.path}" if f.done else f.path
                for f in files
            ]
            return "rewound", "user", "\n".join(lines), f"the user went back to r{to}"
        case Recalled() as asked:
            wanted = asked.handle or asked.path or asked.query
            return (
                "recall",
                "assistant" if asked.call else "user",
                "",
                f"{wanted} {asked.lines}".rstrip(),
            )
        case TaskStarted(task=task, command=command, state=state):
            return "task", "assistant", command, f"background task {task}", state
        case TaskEnded(task=task, tail=tail, state=state):
            return "task", "tool", tail, f"background task {task} ended", state
        case FileChanged(by=by, path=path, diff=diff, note=note) if by != "agent":
            return "file", _person(by), diff or note, f"{path} was changed", by
        case TodoSet(todos=todos):
            lines = [f"{TODO_MARKS.get(todo.status, '[ ]')} {todo.content}" for todo in todos]
            return "todo", "assistant", "\n".join(lines), counted(len(todos), "todo")
        case ModeSet(mode=mode):
            return "setting", "user", "", f"permission mode {mode}"
        case PinsSet(pins=pins):
            return "setting", "user", "\n".join(pins), counted(len(pins), "pin")
        case GoalChanged(goal=goal):
            return "todo", "assistant", goal.body, f"goal {goal.id}: {goal.title}", goal.status
        case TurnEnded(reason=reason, message=message):
            return "turn", "longrein", message, "end of the turn", reason
        case _:
            return None


def _person(by: str) -> str:
    return by if by in ("user", "hook", "subagent") else "longrein"


# --- Diffs of edits -------------------------------------------------------------------------------


def diff_of_call(call: ToolCall) -> list[DiffLine]:
    """Return the change that an edit or write asks for; [] for other calls and arguments that do
    not fit.
    """
    arguments = call.arguments or {}
    edits = arguments.get("edits")
    pairs = [arguments, *(edits if isinstance(edits, list) else ())]
    lines: list[DiffLine] = []
    for pair in pairs:
        if not isinstance(pair, dict):
            continue
        old, new = pair.get("old_string"), pair.get("new_string")
        if isinstance(old, str) and isinstance(new, str):
            lines += [DiffLine("@", "")] if lines else []
            lines += _line_diff(old.split("\n"), new.split("\n"))
    content = arguments.get("content")
    if not lines and isinstance(content, str) and isinstance(arguments.get("file_path"), str):
        lines = [DiffLine("+", line) for line in content.split("\n")]
    if len(lines) > DIFF_LINES_MAX:
        lines[DIFF_LINES_MAX:] = [
            DiffLine("@", f"{counted(len(lines) - DIFF_LINES_MAX, 'line')} left out")
        ]
    return lines


def _line_diff(old: list[str], new: list[str]) -> Iterator[DiffLine]:
    at = 0
    for first, last, other, end in hunks_of(old, new):
        yield from (DiffLine(" ", line) for line in old[at:first])
        yield from (DiffLine("-", line) for line in old[first:last])
        yield from (DiffLine("+", line) for line in new[other:end])
        at = last
    yield from (DiffLine(" ", line) for line in old[at:])


def _plain_arguments(call: ToolCall) -> str:
    """Return the arguments that the diff does not show."""
    shown = ("old_string", "new_string", "content", "edits")
    rest = {name: value for name, value in (call.arguments or {}).items() if name not in shown}
    return arguments_text(ToolCall(call.id, call.name, rest))
