"""The reporter of a headless run: updates as lines on stdout, and progress on stderr."""

from collections.abc import Callable, Iterable

from longrein.app import AppSession
from longrein.frontends.headless.partial_messages import PartialMessages, SubagentStreams
from longrein.frontends.headless.run_state import OutputOptions, RunState, Stop
from longrein.frontends.headless.stream_json_blocks import ERRORS, Line, encode, tail
from longrein.frontends.loop_streams import BufferedOutput
from longrein.steps import (
    MAIN,
    CallStep,
    NoticeStep,
    PromptStep,
    QuestionStep,
    RequestStep,
    Step,
    StreamStep,
    SubagentStep,
    TaskStep,
)
from longrein.steps.human_text import counted, key_argument
from longrein_context import Budget
from longrein_context.events.escape import shortened

# --- Reporter: stdout lines, and progress on stderr -----------------------------------------------


class RunReporter:
    """Writes updates as lines. Keeps no facts: those are in the run state."""

    def __init__(
        self,
        opened: AppSession,
        options: OutputOptions,
        out: BufferedOutput,
        start: int,
        note: Callable[[str], None],
    ) -> None:
        """`start` is the last entry before the run; `note` takes lines for stderr."""
        self._opened = opened
        self._session = opened.session.id
        self._own = (opened.model, opened.budget)
        """Model of the start, and its budget."""
        self._options = options
        self._out = out
        self._start = start
        self._note = note
        self._streams = options.output == "stream-json"
        self._count = 0
        self._state = ""

    def begin(self) -> None:
        if self._streams:
            from longrein.frontends.headless.stream_json import draw_init

            self._put([draw_init(self._opened, self._start)])

    def apply(self, step: Step, subagents: SubagentStreams) -> None:
        """Write a step of the session or a subagent, before the state of its run has it."""
        agent = step.agent
        for line in self._stderr_lines(step):
            self._note(f"{agent.label} {agent.kind}: {line}" if agent.session else line)
        if self._streams:
            partial = subagents.partial(agent)
            self._put(self._lines(step, subagents.run_state(agent), partial))

    def notice(self, text: str) -> None:
        """Write a line for the user."""
        step = NoticeStep(0, 0, MAIN, "longrein", text)
        for line in self._stderr_lines(step):
            self._note(line)
        if self._streams:
            self._put([self._notice_line(step)])

    def put_line(self, line: Line) -> None:
        self._put([line])

    def report_state(self, state: str, *, host_only: bool) -> None:
        """Write a line `session_state_changed`, unless that is the state reported last."""
        if state != self._state:
            self._state = state
            fields = {"state": state, **({"sdk_host_only": True} if host_only else {})}
            self._put([self._system("session_state_changed", fields)])

    def end(self, run_state: RunState, stop: Stop) -> None:
        from longrein.frontends.headless.result import draw_model_usage, draw_result

        if self._options.output != "text":
            model_usage = draw_model_usage(run_state, self._budget)
            self._put(
                [draw_result(self._session, run_state, stop, model_usage, self._key("result"))]
            )
        elif not (stop.signal or stop.error):
            self.print_answer(run_state)

    def _budget(self, model: str) -> Budget:
        own, budget = self._own
        return budget if model == own else self._opened.app.budget(model)

    def print_answer(self, run_state: RunState) -> None:
        """Print the answer of a successful turn in text mode, unless it was printed."""
        if (
            self._options.output == "text"
            and run_state.ended
            and run_state.ended.reason in ("done", "blocked")
        ):
            text = run_state.take_unprinted().encode("utf-8", "replace")
            self._out.put(text if text.endswith(b"\n") or not text else text + b"\n")

    def _stderr_lines(self, step: Step) -> list[str]:
        """Lines for stderr: all progress when verbose; else failed attempts and notices, unless
        they are on stdout.
        """
        is_told = self._options.verbose
        if not self._streams:
            is_told = is_told or _is_trouble(step)
        if not is_told:
            return []
        return progress(step)

    def _lines(self, step: Step, run_state: RunState, partial: PartialMessages) -> list[Line]:
        from longrein.frontends.headless.stream_json import draw, draw_hook, draw_replay

        options = self._options
        match step:
            case PromptStep(message=said) if options.replay and run_state.root is None:
                return draw_replay(step, said, run_state)
            case NoticeStep(hook=hook) if hook and hook.hook and options.hook_events:
                return draw_hook(step, hook, run_state)
            case NoticeStep(pause=pause) if pause:
                fields = {
                    "attempt": pause.attempt,
                    "max_retries": pause.attempts_max,
                    "retry_delay_ms": round(pause.delay_s * 1000),
                    "error_status": pause.status or None,
                    "error": ERRORS.get(pause.kind, "unknown"),
                }
                return [self._system("api_retry", fields)]
            case NoticeStep(kind="longrein"):
                return [self._notice_line(step)]
            case StreamStep():
                return partial.draw(step, run_state) if options.partial else []
            case RequestStep(reply=reply) if reply and options.partial:
                return partial.close(step, reply, run_state) + draw(step, run_state)
            case RequestStep(failure=failure) if failure:
                partial.forget()
        return draw(step, run_state) if step.seq else []

    def _notice_line(self, step: NoticeStep) -> Line:
        text = f"{step.agent.label}: {step.text}" if step.agent.session else step.text
        return self._system("informational", {"content": text, "level": "warning"})

    def _system(self, subtype: str, fields: Line) -> Line:
        return {
            "type": "system",
            "subtype": subtype,
            **fields,
            **tail(self._session, self._key(subtype)),
        }

    def _key(self, name: str) -> str:
        self._count += 1
        return f"{name}.{self._start}.{self._count}"

    def _put(self, lines: Iterable[Line]) -> None:
        if data := b"".join(map(encode, lines)):
            self._out.put(data)


def _is_trouble(step: Step) -> bool:
    """Return True for failed attempts and for what longrein tells its user."""
    match step:
        case NoticeStep():
            return step.pause is not None or step.kind == "longrein"
        case RequestStep(purpose="summary", failure=failure) if failure:
            return failure.kind not in ("cancelled", "lost")
        case _:
            return False


def progress(step: Step) -> list[str]:  # noqa: PLR0911 - a case for each step
    """Progress lines for stderr."""
    match step:
        case NoticeStep(pause=pause) if pause:
            if not pause.attempt:
                return [f"waiting {pause.delay_s:.1f} s for the provider: {pause.message}"]
            next_one = f"attempt {pause.attempt + 1} of {pause.attempts_max}"
            return [f"retrying in {pause.delay_s:.1f} s, {next_one}: {pause.message}"]
        case RequestStep(purpose="summary", failure=failure) if failure:
            why = (failure.message or failure.kind).removeprefix("no summary: ")
            return [f"the model wrote no summary: {why}"]
        case NoticeStep(kind="longrein", text=text):
            return [text]
        case CallStep(phase="made" | "cut", call=call):
            return [f"calls {call.name} {shortened(key_argument(call.arguments), 80)}"]
        case CallStep(ended=end) if end:
            from longrein.steps.call_results import result_figures

            figures = result_figures(end, step.call.arguments, step.kind)
            after = f"{end.name} {end.status} after {end.elapsed_ms / 1000:.1f} s"
            return [f"{after}: {figures}" if figures else after]
        case QuestionStep(asked=asked, answer=None) if asked:
            return [f"denied, for nobody is here to ask: {asked.name} ({asked.reason})"]
        case TaskStep(ended=over) if over:
            return [f"task {over.task} {over.state}"] if step.seq else []
        case TaskStep(started=task) if task:
            return [f"task {task.task} {task.state}: {_first_line(task.command)}"]
        case SubagentStep(ended=subagent) if subagent:
            took = f"{subagent.elapsed_ms / 1000:.1f} s, {counted(subagent.steps, 'step')}"
            return [f"subagent {subagent.status} after {took}"]
        case SubagentStep(started=new) if new:
            own_label = step.label.rpartition(".")[2]
            return [f"subagent {own_label} {new.kind} started: {_first_line(new.description)}"]
        case _:
            return []


def _first_line(text: str) -> str:
    return shortened((text.splitlines() or [""])[0], 80)
