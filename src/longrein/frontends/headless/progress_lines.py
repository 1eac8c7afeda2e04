"""Progress of a headless run as lines for stderr."""

from longrein.events import ToolCall
from longrein.events.escape import shortened
from longrein.steps import (
    CallStep,
    NoticeStep,
    QuestionStep,
    Step,
    SubagentStep,
    TaskStep,
)


def progress(step: Step) -> list[str]:  # noqa: PLR0911 - a case for each step
    """Progress lines for stderr."""
    match step:
        case NoticeStep(pause=pause) if pause:
            count = f"attempt {pause.attempt} of {pause.attempts_max} in"
            what = count if pause.attempt else "the next request waits"
            return [f"{pause.message}: {what} {pause.delay_s:.1f} s"]
        case NoticeStep(kind="longrein", text=text):
            return [text]
        case CallStep(phase="made" | "cut", call=call):
            return [f"calls {call.name} {_first_argument(call)}"]
        case CallStep(ended=end) if end:
            return [f"{end.name} {end.status} after {end.elapsed_ms / 1000:.1f} s"]
        case QuestionStep(asked=asked, answer=None) if asked:
            return [f"denied, for nobody is here to ask: {asked.name} ({asked.reason})"]
        case TaskStep(ended=over) if over:
            return [f"task {over.task} {over.state}"] if step.seq else []
        case TaskStep(started=task) if task:
            return [f"task {task.task} {task.state}: {_first_line(task.command)}"]
        case SubagentStep(ended=child) if child:
            took = f"{child.elapsed_ms / 1000:.1f} s, {child.steps} steps"
            return [f"subagent {child.status} after {took}"]
        case SubagentStep(started=new) if new:
            own_label = step.label.rpartition(".")[2]
            return [f"subagent {own_label} {new.kind} started: {_first_line(new.description)}"]
        case _:
            return []


def _first_argument(call: ToolCall) -> str:
    found = (value for value in (call.arguments or {}).values() if isinstance(value, str) and value)
    return _first_line(next(found, ""))


def _first_line(text: str) -> str:
    return shortened((text.splitlines() or [""])[0], 80)
