"""The rows above the input that are redrawn while a turn or background work runs, and the
footer. Pure.
"""

from collections.abc import Sequence
from math import floor

import msgspec

from longrein.agent import BYPASS, PendingMessage, RetryPause, SubagentView
from longrein.frontends.localization import translate
from longrein.frontends.terminal import event_lines, task_rows
from longrein.frontends.terminal.call_lines import call_line
from longrein.frontends.terminal.event_lines import Line, cells, crop, fold, line, wrap_text
from longrein.frontends.terminal.view_model import EMPTY, ViewModel
from longrein.steps import human_text
from longrein.steps.human_text import escape_line, live_elapsed
from longrein.steps.turn_work import round_tokens
from longrein_context import State
from longrein_context.events import Todo

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_S = 0.2
LONG_S = 3.0
"""Seconds after which the state line offers Ctrl-B for a running command."""


class Figures(msgspec.Struct, frozen=True):
    """Figures of the footer."""

    model: str
    mode: str
    context_tokens: int
    """Size of the context."""
    context_percent: int
    """Share of the usable window in percent; negative when the window is unknown."""
    cache_percent: int
    """Cached share of the last request's input; negative before the first request."""
    usd: float
    queued: int
    background: str = ""
    """Counts of working tasks and subagents."""
    sandbox: str = ""
    """What commands lack of their sandbox; '' where it works as it should."""


def figures(
    state: State,
    model: str,
    window_tokens: int,
    queued: int,
    usd: float,
    background: str = "",
    sandbox: str = "",
) -> Figures:
    """Figures of `state`; `model` is used until the log names one."""
    last = state.last_usage
    return Figures(
        model=f"{state.prefix.provider}/{state.prefix.model}" if state.prefix else model,
        mode=state.mode,
        context_tokens=state.view_tokens,
        context_percent=round(100 * state.view_tokens / window_tokens) if window_tokens else -1,
        cache_percent=round(100 * last.cache_read_tokens / last.context_tokens)
        if last.context_tokens
        else -1,
        usd=usd,
        queued=queued,
        background=background,
        sandbox=sandbox,
    )


def _context_style(percent: int) -> str:
    if percent >= 90:
        return "bad"
    return "warn" if percent >= 75 else "dim"


def footer_line(figures: Figures, state: str, width: int) -> Line:
    """Footer of state, model, mode, context, cache, cost, sandbox, queue; a narrow terminal drops
    the part with the highest rank first, and shows the end of a long name of a model.

    State, model and a mode are never dropped. The mode `default` gets no words.
    """
    cache = figures.cache_percent
    parts = [
        (0, state, _WORD_STYLES.get(state, "run")),
        (0, escape_line(figures.model), "dim"),
        (0, figures.mode * (figures.mode != "default"), "bad" if figures.mode == BYPASS else "dim"),
        (1, _context_text(figures), _context_style(figures.context_percent)),
        (6, f"cache {cache}%" * (cache >= 0), "dim"),
        (2, human_text.money(figures.usd) if figures.usd else "", "dim"),
        (3, figures.sandbox, "warn"),
        (4, f"{figures.queued} queued" if figures.queued else "", "warn"),
        (5, figures.background, "run"),
    ]
    shown = [(rank, translate(text), style) for rank, text, style in parts if text]
    while any(rank for rank, _, _ in shown) and _footer_cells(shown) > width:
        shown.remove(max(shown))
    over = _footer_cells(shown) - width
    if over > 0 and len(shown) > 1:
        rank, model, style = shown[1]
        shown[1] = rank, _end_of(model, max(cells(model) - over, MODEL_CELLS_MIN)), style
    spans = [span for _, text, style in shown for span in (("dim", " · "), (style, text))]
    return crop(tuple(spans[1:]), width)


MODEL_CELLS_MIN = 8


def _footer_cells(parts: Sequence[tuple[int, str, str]]) -> int:
    return sum(cells(text) + 3 for _, text, _ in parts) - 3


def _end_of(text: str, width: int) -> str:
    """The end of `text` in `width` columns, which of a model's name says most."""
    cropped = text
    while cells(cropped) > width - 1:
        cropped = cropped[1:]
    return f"…{cropped}"


def _context_text(figures: Figures) -> str:
    if figures.context_percent < 0:
        return ""
    return f"context {round_tokens(figures.context_tokens)} ({figures.context_percent}%)"


_WORD_STYLES = {"idle": "dim", "waiting": "warn", "retrying": "warn"}


def state_line(view: ViewModel, now_s: float) -> Line:
    """Current phase, elapsed time and keys; empty when idle."""
    if not view.busy:
        return ()
    spin = SPINNER[int(now_s / FRAME_S) % len(SPINNER)]
    is_long = any(
        call.name == "Bash" and call.status == "running" and now_s - call.since_s > LONG_S
        for call in view.calls.values()
    )
    keys = translate("Esc interrupts") + translate(", Ctrl-B backgrounds") * is_long
    time = human_text.elapsed(now_s - view.turn_since_s)
    return line(
        ("run", f"{spin} {translate(_phase_text(view, now_s))}"),
        ("dim", f"  {human_text.joined(time, keys, by='  ')}"),
    )


def _phase_text(view: ViewModel, now_s: float) -> str:
    match view.phase:
        case "retrying" if view.pausing is not None:
            return event_lines.retry_text(view.pausing, view.pause_until_s - now_s)
        case "calling":
            return (
                f"writing a call of {escape_line(view.writing_call)}"
                if view.writing_call
                else "writing a call"
            )
        case "compacting":
            return "compacting: summarising what is old"
        case "waiting":
            return "waiting for your word"
        case phase:
            return "waiting for your word" if view.questions else phase


def state_word(view: ViewModel) -> str:
    """The state in one word."""
    if view.questions:
        return "waiting"
    return "running" if view.phase in ("calling", "writing") else view.phase


CALLS_SHOWN_MAX = 6
PENDING_SHOWN_MAX = 3
AGENTS_SHOWN_MAX = 8


class DrawContext(msgspec.Struct, frozen=True):
    """Time and size of a drawing."""

    mono_s: float
    wall_us: int
    width: int
    rows: int


def live_rows(view: ViewModel, agents: Sequence[SubagentView], now: DrawContext) -> list[Line]:
    """Rows of the unfinished reply, running calls, background work, and the state line."""
    calls, state = _calls(view, now.mono_s) if view.busy else [], state_line(view, now.mono_s)
    most = max(min(AGENTS_SHOWN_MAX, now.rows // 4), 1)
    background = [
        *task_rows.live_agents(agents, most, view.groups.has),
        *task_rows.live_tasks(view.activity.tasks, now.wall_us, now.width, now.mono_s),
    ]
    tail = _tail(view, now.width, now.rows - len(calls) - len(background) - 10)
    calls += user_command_rows(view, now.mono_s)
    trouble = trouble_rows(view, now.mono_s, now.width) if view.busy else []
    rows = [
        crop(row, now.width)
        for row in [*tail, *calls, *background, *trouble, *([state] if state else [])]
    ]
    has_gap = view.call_gap if calls and not tail else view.tail_gap
    return [EMPTY, *rows] if has_gap or not rows else rows


def user_command_rows(view: ViewModel, now_s: float) -> list[Line]:
    """Rows of the user's own commands that run, each with the last line of its output."""
    rows: list[Line] = []
    for row in view.user_commands.values():
        time = human_text.elapsed(now_s - row.since_s)
        how = f"running {time} Esc stops it" if time else "running  Esc stops it"
        rows.append(line(("you", f"! {escape_line(row.argument)}"), ("dim", f"  {translate(how)}")))
        rows += _last_output(row.output)
    return rows


def _last_output(output: bytes) -> list[Line]:
    """Row of the last line that a command has printed, if any."""
    text = output.decode("utf-8", "replace").rstrip()
    last = escape_line(text.rpartition("\n")[2].rpartition("\r")[2])
    return [line(("dim", f"  {last}"))] if last else []


def tick_s(
    view: ViewModel, agents: Sequence[SubagentView], wall_us: int, mono_s: float = 0.0
) -> float:
    """Seconds until background work is redrawn while the session is idle; 0 for no redraw."""
    if any(agent.state in task_rows.OPEN for agent in agents):
        return 1.0
    ages = [running.age_s(wall_us, mono_s) for running in view.activity.tasks.values()]
    if not ages:
        return 0.0
    if min(ages) < 60:
        return 1.0
    return 15.0


def waiting_rows(
    waiting: Sequence[PendingMessage], labels: dict[str, str], width: int
) -> list[Line]:
    """Rows of waiting messages with their time of delivery."""
    rows = [
        crop(
            line(
                ("warn", f"{task_rows.delivery_note(message, labels.get(message.to, ''))}: "),
                escape_line(message.text),
            ),
            width,
        )
        for message in waiting
        if message.to or message.how in ("queued", "steer")
    ]
    hint = translate("↑ takes the last one back") + (
        translate("; /queue lists all") if len(rows) > 1 else ""
    )
    return [*fold(rows, PENDING_SHOWN_MAX), *([line(("dim", hint))] if rows else [])]


TODOS_SHARE = 3
"""The pinned todo list takes at most this part of the rows above the input: a third."""


def pinned_todos(todos: Sequence[Todo], room: int, width: int) -> list[Line]:
    """Rows of the pinned todo list, what is in progress first where not all fit; none for an
    empty list.
    """
    if not todos or room < TODOS_SHARE:
        return []
    most = max(room // TODOS_SHARE, 1)
    rows = [crop(row, width) for row in event_lines.todo_lines(todos)]
    done = sum(todo.status == "completed" for todo in todos)
    if len(rows) <= most:
        return rows
    first = next((n for n, todo in enumerate(todos) if todo.status != "completed"), 0)
    shown = rows[first : first + most - 1] if most > 1 else []
    return [
        *shown,
        crop(
            line(("dim", translate(f"todos: {done} of {len(todos)} done; Ctrl-T unpins them"))),
            width,
        ),
    ]


def _tail(view: ViewModel, width: int, room: int) -> list[Line]:
    room = max(min(room, 12), 1)
    if text := view.tail(room):
        return [*wrap_text(text, min(width, 120))[-room:], EMPTY]
    if view.phase == "thinking" and (thought := view.thinking_line()):
        return [line(("dim", f"  {thought}"))]
    return []


def _calls(view: ViewModel, now_s: float) -> list[Line]:
    """Rows of reads and searches that ended last, and of calls; a subagent has a row of its own."""
    in_subagents = {known.started.call for known in view.activity.subagents.values()}
    calls = [row for call, row in view.calls.items() if call not in in_subagents]
    rows: list[Line] = []
    for row in calls:
        time = human_text.elapsed(now_s - row.since_s) if row.status == "running" else ""
        rows.append(call_line(row.name, row.argument, row.status, time, "○"))
    if len(rows) == 1:
        rows += _last_output(calls[0].output)
    return [*view.groups.lookup_rows(), *fold(rows, CALLS_SHOWN_MAX)]


SILENT_S = 5.0
"""Seconds without a byte after which the silence is shown."""
WORDS_ROWS_MAX = 3
"""Rows of the provider's words."""
ASKING = ("thinking", "writing", "calling", "compacting", "retrying")
"""Phases in which the provider has the word."""

STATES = {
    "rate": "the provider limits how often it is asked",
    "overload": "the provider is overloaded",
    "server": "the provider has an error of its own",
    "network": "the provider cannot be reached",
    "timeout": "the provider did not answer in time",
    "stalled": "the answer stopped in the middle",
    "truncated": "the answer was cut off in the middle",
    "empty": "the answer was empty",
    "lost": "longrein ended while it waited for the answer",
}
"""Kind of a failure -> what is wrong."""


def trouble_rows(view: ViewModel, now_s: float, width: int) -> list[Line]:
    """Rows above the state line while a request is retried or nothing comes; none while all is
    well.
    """
    rows = (
        _failure_rows(view.pausing, width)
        if view.pausing is not None and view.phase == "retrying"
        else []
    )
    silent = silence_text(view, now_s)
    return [*rows, line(("warn", f"  {translate(silent)}"))] if silent else rows


def _failure_rows(pausing: RetryPause, width: int) -> list[Line]:
    state = translate(STATES.get(pausing.kind, escape_line(pausing.kind)))
    status = f" (HTTP {pausing.status})" if pausing.status else ""
    words = escape_line(pausing.message)
    rows = wrap_text(words, max(width - 4, 20))[:WORDS_ROWS_MAX] if len(words) > width // 2 else []
    return [line(("warn", f"  {state}{status}")), *(line(("dim", "    "), *row) for row in rows)]


def silence_text(view: ViewModel, now_s: float) -> str:
    """Say for how long the provider has sent nothing; '' where it need not, or not yet."""
    silent_s = now_s - max(view.heard_s, view.pause_until_s if view.phase == "retrying" else 0.0)
    if view.phase not in ASKING or view.questions or silent_s < SILENT_S:
        return ""
    time = live_elapsed(floor(silent_s))
    return (
        f"stalled: nothing has come for {time}"
        if view.reply_began
        else f"no answer yet, asked {time} ago"
    )
