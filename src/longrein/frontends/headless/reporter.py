"""The reporter of a headless run: updates as lines on stdout, and progress on stderr."""

from collections.abc import Callable, Iterable

from longrein.agent import FromSubagent, ReplyDelta, RetryPause, SessionUpdate, UserNotice
from longrein.events import (
    AskFailed,
    ChildEnded,
    ChildStarted,
    Entry,
    HookAnswered,
    PermissionAsked,
    Replied,
    TaskEnded,
    TaskStarted,
    ToolCall,
    ToolEnded,
    UserSpoke,
    unwrapped,
)
from longrein.events.escape import shortened
from longrein.frontends.buffered_output import BufferedOutput
from longrein.frontends.headless.partial_messages import PartialMessages, SubagentStreams
from longrein.frontends.headless.result import Stop, draw_result
from longrein.frontends.headless.run_state import OutputOptions, RunState, SessionFacts
from longrein.frontends.headless.stream_json_blocks import ERRORS, Line, encode, tail

# --- Reporter: stdout lines, and progress on stderr -----------------------------------------------


PAUSE_SAID_S = 2.0
"""Seconds above which a pause is reported on stderr, so that the run does not look hung."""


class RunReporter:
    """Writes updates as lines. Keeps no facts: those are in the run state."""

    def __init__(
        self,
        facts: SessionFacts,
        options: OutputOptions,
        out: BufferedOutput,
        start: int,
        note: Callable[[str], None],
    ) -> None:
        """`start` is the last entry before the run; `note` takes lines for stderr."""
        self._facts, self._options, self._out, self._start, self._note = (
            facts,
            options,
            out,
            start,
            note,
        )
        self._partial = PartialMessages()
        self._streams = options.output == "stream-json"
        self._count = 0
        self._state = ""

    def begin(self) -> None:
        from longrein.frontends.headless.stream_json import draw_init

        if self._streams:
            self._put([draw_init(self._facts, self._start)])

    def apply(self, heard: SessionUpdate, run_state: RunState) -> None:
        """Write one update; `run_state` is the state before it."""
        for line in self._stderr_lines(heard):
            self._note(line)
        if self._streams:
            self._put(self._lines(heard, run_state, self._partial))

    def apply_subagent(self, update: FromSubagent, subagents: SubagentStreams) -> None:
        """Write an update of a subagent, before its state has it."""
        heard = update.heard
        for line in self._stderr_lines(heard):
            self._note(f"{update.label} {update.kind}: {line}")
        if self._streams:
            if isinstance(heard, UserNotice):
                heard = UserNotice(f"{update.label}: {heard.text}")
            self._put(self._lines(heard, subagents.run_state(update), subagents.partial(update)))

    def put_line(self, line: Line) -> None:
        """Write a line of the control protocol."""
        self._put([line])

    def report_state(self, state: str, *, host_only: bool) -> None:
        """Write a line `session_state_changed`, unless that is the state reported last."""
        if state != self._state:
            self._state = state
            fields = {"state": state, **({"sdk_host_only": True} if host_only else {})}
            self._put([self._system("session_state_changed", fields)])

    def end(self, run_state: RunState, stop: Stop) -> None:
        if self._options.output != "text":
            self._put([draw_result(self._facts, run_state, stop, self._key("result"))])
        elif not (stop.signal or stop.error):
            self.print_answer(run_state)

    def print_answer(self, run_state: RunState) -> None:
        """Print the answer of a successful turn in text mode, unless it was printed."""
        if (
            self._options.output == "text"
            and run_state.ended
            and run_state.ended.reason in ("done", "blocked")
        ):
            text = run_state.take_unprinted().encode("utf-8", "replace")
            self._out.put(text if text.endswith(b"\n") or not text else text + b"\n")

    def _stderr_lines(self, heard: SessionUpdate) -> list[str]:
        """Lines for stderr: all progress when verbose; else long pauses and notices, unless they
        are on stdout.
        """
        match heard:
            case _ if self._options.verbose:
                return progress(heard)
            case UserNotice() if not self._streams:
                return progress(heard)
            case RetryPause(delay_s=delay_s) if delay_s > PAUSE_SAID_S and not self._streams:
                return progress(heard)
            case _:
                return []

    def _lines(
        self, heard: SessionUpdate, run_state: RunState, partial: PartialMessages
    ) -> list[Line]:
        from longrein.frontends.headless.stream_json import draw, draw_hook, draw_replay

        match heard:
            case Entry(event=UserSpoke()) if self._options.replay and run_state.root is None:
                return draw_replay(heard, run_state)
            case Entry(event=HookAnswered() as hook) if self._options.hook_events and hook.hook:
                return draw_hook(heard, hook, run_state)
            case Entry():
                return self._partial_lines(heard, run_state, partial) + draw(heard, run_state)
            case ReplyDelta() if self._options.partial:
                return partial.draw(heard, run_state)
            case RetryPause() as pause:
                fields = {
                    "attempt": pause.attempt,
                    "max_retries": pause.attempts_max,
                    "retry_delay_ms": round(pause.delay_s * 1000),
                    "error_status": pause.status or None,
                    "error": ERRORS.get(pause.kind, "unknown"),
                }
                return [self._system("api_retry", fields)]
            case UserNotice(text=text):
                return [self._system("informational", {"content": text, "level": "warning"})]
            case _:
                return []

    def _partial_lines(
        self, entry: Entry, run_state: RunState, partial: PartialMessages
    ) -> list[Line]:
        match entry.event:
            case Replied() as reply if self._options.partial:
                return partial.close(reply, run_state)
            case AskFailed():
                partial.forget()
        return []

    def _system(self, subtype: str, fields: Line) -> Line:
        return {
            "type": "system",
            "subtype": subtype,
            **fields,
            **tail(self._facts.session, self._key(subtype)),
        }

    def _key(self, name: str) -> str:
        self._count += 1
        return f"{name}.{self._start}.{self._count}"

    def _put(self, lines: Iterable[Line]) -> None:
        if data := b"".join(map(encode, lines)):
            self._out.put(data)


def progress(heard: SessionUpdate) -> list[str]:
    """Progress lines for stderr."""
    match heard:
        case Entry():
            return _entry_progress(heard)
        case RetryPause():
            what = (
                f"attempt {heard.attempt} of {heard.attempts_max} in"
                if heard.attempt
                else "the next request waits"
            )
            return [f"{heard.message}: {what} {heard.delay_s:.1f} s"]
        case UserNotice(text=text):
            return [text]
        case _:
            return []


def _entry_progress(entry: Entry) -> list[str]:
    match entry.event:
        case Replied(parts=parts):
            calls = [unwrapped(part) for part in parts if isinstance(part, ToolCall)]
            return [f"calls {call.name} {_first_argument(call)}" for call in calls]
        case PermissionAsked(name=name, reason=reason):
            return [f"denied, for nobody is here to ask: {name} ({reason})"]
        case ToolEnded(name=name, status=status, elapsed_ms=elapsed_ms):
            return [f"{name} {status} after {elapsed_ms / 1000:.1f} s"]
        case TaskStarted(task=task, state=state, command=command):
            return [f"task {task} {state}: {_first_line(command)}"]
        case TaskEnded(task=task, state=state):
            return [f"task {task} {state}"]
        case ChildStarted() as child:
            return [
                (
                    f"subagent a{child.again or entry.seq} {child.kind} started: "
                    f"{_first_line(child.description)}"
                )
            ]
        case ChildEnded() as child:
            return [
                (
                    f"subagent {child.status} after {child.elapsed_ms / 1000:.1f} s, {child.steps} "
                    "steps"
                )
            ]
        case _:
            return []


def _first_argument(call: ToolCall) -> str:
    found = (value for value in (call.arguments or {}).values() if isinstance(value, str) and value)
    return _first_line(next(found, ""))


def _first_line(text: str) -> str:
    return shortened((text.splitlines() or [""])[0], 80)
