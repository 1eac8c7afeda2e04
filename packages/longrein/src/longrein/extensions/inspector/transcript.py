"""Rows of the transcript: what was said and done, in order, with diffs of edits."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, assert_never

from longrein.extensions.inspector.page_data import DiffLine, TranscriptRow
from longrein.steps import (
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
from longrein.steps.human_text import counted, key_argument
from longrein.tools.diff import hunks_of
from longrein_context import arguments_text
from longrein_context.events import (
    AnyPart,
    Document,
    Image,
    PrefixSet,
    ToolCall,
    ToolEnded,
    text_of,
)
from longrein_context.events.escape import shortened

TITLE_CHARS_MAX = 120
DIFF_LINES_MAX = 400
"""Lines of a diff; more are counted in its last line."""
TODO_MARKS = {"completed": "[x]", "in_progress": "[>]"}


Values = tuple[str, ...]
"""kind, author, text, title, status."""


class TranscriptBuilder:
    """Makes the rows of one log."""

    def __init__(self, agent: str, rows_max: int) -> None:
        self.agent = agent
        self.rows: deque[TranscriptRow] = deque(maxlen=rows_max)
        """The newest rows."""
        self.count = 0
        """Number of rows, with those that were dropped."""

    def hear(self, step: Step) -> None:
        for row in self._rows(step):
            self.rows.append(row)
            self.count += 1

    def _rows(self, step: Step) -> Iterable[TranscriptRow]:
        match step:
            case PromptStep(message=message):
                count = len(message.parts)
                return [self._said(step, n, part, count) for n, part in enumerate(message.parts)]
            case TextStep(text=text):
                return [self._row(step, "text", "assistant", text, handle=step.handle)]
            case ThinkingStep(text=text):
                return [self._row(step, "thinking", "assistant", text, handle=step.handle)]
            case CallStep(ended=result) if result:
                return [self._result(step, result)]
            case CallStep(phase="made" | "cut"):
                return [self._call(step)]
            case BreakStep(prefix=prefix) if prefix:
                return self._prefix(step, prefix)
            case _:
                values = _row_values(step)
                return [] if values is None else [self._row(step, *values)]

    def _row(
        self,
        step: Step,
        kind: str,
        author: str,
        text: str,
        title: str = "",
        status: str = "",
        *,
        handle: str = "",
        **more: Any,
    ) -> TranscriptRow:
        handle = handle or (step.handle if kind in ("reminder", "summary") else "")
        title = shortened(title, TITLE_CHARS_MAX)
        return TranscriptRow(
            step.seq,
            step.at,
            kind,
            author,
            text,
            self.agent,
            handle,
            title,
            status=status,
            **more,
        )

    def _said(self, step: Step, n: int, part: AnyPart, count: int) -> TranscriptRow:
        handle = step.handle if count == 1 else f"{step.handle}.{n + 1}"
        title = part.media if isinstance(part, Image | Document) else ""
        return self._row(
            step, "user", "user", text_of((part,)), title, handle=handle, images=_pictures((part,))
        )

    def _call(self, step: CallStep) -> TranscriptRow:
        call = step.call
        title = f"{call.name} {key_argument(call.arguments)}".rstrip()
        diff = diff_of_call(call)
        text = _plain_arguments(call) if diff else arguments_text(step.made)
        return self._row(
            step, "call", "assistant", text, title, handle=step.handle, call=call.id, diff=diff
        )

    def _result(self, step: CallStep, result: ToolEnded) -> TranscriptRow:
        more: dict[str, Any] = {
            "call": step.id,
            "result_of": step.made_seq,
            "elapsed_ms": result.elapsed_ms,
        }
        hidden = sum(part.size_bytes for part in result.parts if isinstance(part, Document))
        text = text_of(result.parts)
        if hidden:
            more["left_out"] = max(0, hidden - len(text.encode()))
        return self._row(
            step,
            "result",
            "tool",
            text,
            result.name,
            result.status,
            handle=step.handle,
            images=_pictures(result.parts),
            **more,
        )

    def _prefix(self, step: Step, prefix: PrefixSet) -> Iterator[TranscriptRow]:
        title = f"{prefix.provider}/{prefix.model}, {counted(len(prefix.tools), 'tool')}"
        yield self._row(step, "prefix", "longrein", prefix.system, title, prefix.reason)
        for n, (text, path) in enumerate(zip(prefix.context, prefix.context_paths, strict=True), 1):
            title = path or _kind_of_context(text)
            yield self._row(step, "prefix", "longrein", text, title, handle=f"{step.handle}.{n}")


def _kind_of_context(text: str) -> str:
    """Return the kind that the mark before a static text names: `environment` or `skills`."""
    first = text.partition("\n")[0]
    is_marked = first.startswith("[longrein:") and first.endswith("]")
    return first[:-1].rpartition(" ")[2] if is_marked else "environment"


def _pictures(parts: Iterable[AnyPart]) -> int:
    return sum(isinstance(part, Image | Document) for part in parts)


def _row_values(step: Step) -> Values | None:  # noqa: C901, PLR0911, PLR0912 - a case for each step
    """Return the values of the row of a step with one row; None for one that is not shown."""
    match step:
        case NoticeStep():
            return _notice(step)
        case RequestStep(failure=failed) if failed:
            title = f"the request failed, attempt {failed.attempt}"
            return "failure", "longrein", failed.message, title, failed.kind
        case QuestionStep(answer=answer) if answer:
            title = f"{answer.verdict} by {answer.by}, {answer.scope}"
            text = answer.message or answer.rule
            return "permission", _person(answer.by), text, title, answer.verdict
        case QuestionStep(asked=asked) if asked:
            title = f"{asked.name}: {asked.reason}"
            return "permission", "longrein", asked.shown, title, "asked"
        case CompactionStep(cleared=cleared) if cleared:
            items = counted(len(cleared.forms), "item")
            title = f"{items} shortened, {cleared.gain_tokens:,} tokens less in each request"
            return "cleared", "longrein", step.why, title, cleared.reason
        case CompactionStep(summarized=span) if span:
            title = f"entries r{span.first} to r{span.last}"
            return "summary", "longrein", span.text, title, span.reason
        case CompactionStep(restored=restored) if restored:
            return "restored", "user", "", f"the compaction r{restored.undone} was undone"
        case BreakStep(rewound=rewound) if rewound:
            words = {True: "removed ", False: "restored "}
            lines = [(words[put.removed] if put.done else "") + put.path for put in rewound.files]
            return "rewound", "user", "\n".join(lines), f"the user went back to r{rewound.to}"
        case TaskStep(task=task, ended=end) if end:
            return "task", "tool", end.tail, f"background task {task} ended", end.state
        case TaskStep(task=task, started=start) if start:
            return "task", "assistant", start.command, f"background task {task}", start.state
        case SubagentStep(ended=report) if report:
            text = "\n".join(filter(None, (report.message, report.report)))
            return "subagent", "subagent", text, f"{_subagent(step)} ended", report.status
        case SubagentStep(started=subagent) if subagent:
            return "subagent", "assistant", subagent.task, _subagent(step), "started"
        case FileStep(changed=changed) if changed and changed.by != "agent":
            text = changed.diff or changed.note
            return "file", _person(changed.by), text, f"{step.path} was changed", changed.by
        case SettingStep():
            return _setting(step)
        case TurnEndStep(reason=reason, message=message):
            return "turn", "longrein", message, "end of the turn", reason
        case RequestStep() | CallStep() | PromptStep() | TextStep() | ThinkingStep():
            return None
        case FileStep() | BreakStep() | QuestionStep() | CompactionStep() | StreamStep():
            return None
        case TaskStep() | SubagentStep():
            return None
        case _:
            assert_never(step)


def _subagent(step: SubagentStep) -> str:
    known = step.started
    return f"{step.label} {known.kind}: {known.description}" if known else step.session


def _notice(step: NoticeStep) -> Values | None:
    match step:
        case NoticeStep(kind="interrupt"):
            return "reminder", "user", step.text, "interrupted"
        case NoticeStep(reminder=reminder) if reminder and step.text:
            return "reminder", "longrein", step.text, reminder.kind
        case NoticeStep(hook=hook) if hook:
            text = "\n".join(filter(None, (hook.text, hook.context, hook.message)))
            is_shown = text or hook.decision != "none"
            title = f"{hook.event}: {hook.hook}"
            return ("hook", "hook", text, title, hook.decision) if is_shown else None
        case NoticeStep(recalled=recalled) if recalled:
            wanted = recalled.handle or recalled.path or recalled.query
            title = f"{wanted} {recalled.lines}".rstrip()
            return "recall", "assistant" if recalled.call else "user", "", title
        case _:
            return None


def _setting(step: SettingStep) -> Values | None:
    match step.name:
        case "todos":
            lines = [f"{TODO_MARKS.get(todo.status, '[ ]')} {todo.content}" for todo in step.todos]
            return "todo", "assistant", "\n".join(lines), counted(len(lines), "todo")
        case "mode":
            return "setting", "user", "", f"permission mode {step.value}"
        case "pins":
            return "setting", "user", "\n".join(step.pins), counted(len(step.pins), "pin")
        case "goal" if goal := step.goal:
            return "todo", "assistant", goal.body, f"goal {goal.id}: {goal.title}", goal.status
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
