"""The rows above the input that are drawn again while something goes on. Pure."""

from collections.abc import Sequence

import msgspec

from longrein.agent import PendingMessage, SubagentView
from longrein.context import State
from longrein.frontends import text_format as amounts
from longrein.frontends.terminal import event_lines as drawing
from longrein.frontends.terminal import task_rows as beside_rows
from longrein.frontends.terminal.event_lines import Line, crop, fold, line, wrap_text
from longrein.frontends.terminal.view_model import EMPTY, Scene
from longrein.frontends.text_format import escape_line

# --- The two lines that say where we are: what goes on now, and the session's figures --------------------------------


SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_S = 0.2
LONG_S = 3.0
"""A command that has run so long may be sent to the background: the line says so then."""


class Figures(msgspec.Struct, frozen=True):
    """What the footer shows."""

    model: str
    mode: str
    context_percent: int
    """Negative when the window is unknown."""
    cache_percent: int
    """Of the last request's input; negative before there was one."""
    usd: float
    queued: int
    company: str = ""
    """Tasks and subagents that work beside, counted."""


def figures(state: State, model: str, window_tokens: int, queued: int, company: str = "") -> Figures:
    """The figures of `state`; `model` stands in until the log names one."""
    last = state.last_usage
    named = f"{state.prefix.provider}/{state.prefix.model}" if state.prefix else model
    return Figures(
        model=named,
        mode=state.mode,
        context_percent=round(100 * state.view_tokens / window_tokens) if window_tokens else -1,
        cache_percent=round(100 * last.cache_read_tokens / last.context_tokens) if last.context_tokens else -1,
        usd=drawing.spent_usd(state),
        queued=queued,
        company=company,
    )


def footer_line(of: Figures, word: str, width: int) -> Line:
    """State, model, mode, context, cache, cost, queue; in a narrow terminal the least urgent go first."""
    parts = [
        (0, word, _WORD_STYLES.get(word, "run")),
        (5, escape_line(of.model), "dim"),
        (1, of.mode, "warn" if of.mode == "bypassPermissions" else "dim"),
        (2, f"context {of.context_percent}%" if of.context_percent >= 0 else "", _fullness(of.context_percent)),
        (6, f"cache {of.cache_percent}%" if of.cache_percent >= 0 else "", "dim"),
        (3, amounts.money(of.usd) if of.usd else "", "dim"),
        (4, f"{of.queued} queued" if of.queued else "", "warn"),
        (4, of.company, "run"),
    ]
    shown = [part for part in parts if part[1]]
    while len(shown) > 1 and sum(len(text) + 3 for _, text, _ in shown) - 3 > width:
        shown.remove(max(shown))
    spans: list[tuple[str, str]] = []
    for _, text, style in shown:
        spans += [("dim", " · "), (style, text)] if spans else [(style, text)]
    return crop(tuple(spans), width)


_WORD_STYLES = {"idle": "dim", "waiting": "warn", "retrying": "warn"}


def _fullness(percent: int) -> str:
    return "bad" if percent >= 90 else "warn" if percent >= 75 else "dim"


def state_line(scene: Scene, now_s: float) -> Line:
    """What goes on, how long, and how to stop it; empty when idle."""
    if not scene.busy:
        return ()
    spin = SPINNER[int(now_s / FRAME_S) % len(SPINNER)]
    time = amounts.elapsed(now_s - scene.turn_since_s)
    told = _told(scene, now_s)
    keys = "Esc interrupts" + (", Ctrl-B backgrounds" if _lasts(scene, now_s) else "")
    return line(("run", f"{spin} {told}"), ("dim", f"  {time}  {keys}" if time else f"  {keys}"))


def _lasts(scene: Scene, now_s: float) -> bool:
    """Whether a command runs long enough that one would rather go on without it."""
    rows = scene.calls.values()
    return any(row.name == "Bash" and row.status == "running" and now_s - row.since_s > LONG_S for row in rows)


def _told(scene: Scene, now_s: float) -> str:
    match scene.phase:
        case "retrying" if scene.pausing is not None:
            return drawing.retry_text(scene.pausing, scene.pause_until_s - now_s)
        case "calling":
            return f"writing a call of {escape_line(scene.writing_call)}" if scene.writing_call else "writing a call"
        case "compacting":
            return "compacting: summarising what is old"
        case "waiting":
            return "waiting for your word"
        case phase:
            return "waiting for your word" if scene.questions else phase


def word(scene: Scene) -> str:
    """The state in one word."""
    if scene.questions:
        return "waiting"
    return "running" if scene.phase in ("calling", "writing") else scene.phase


# --- live ------------------------------------------------------------------------------------------------------------


CALLS_SHOWN_MAX = 6
PENDING_SHOWN_MAX = 3
AGENTS_SHOWN_MAX = 8


class Now(msgspec.Struct, frozen=True):
    """When and where it is drawn."""

    mono_s: float
    wall_us: int
    width: int
    rows: int
    """Of the terminal."""


def live_rows(scene: Scene, agents: Sequence[SubagentView], now: Now) -> list[Line]:
    """What is being written, what runs, what works beside, and what goes on at all."""
    calls, state = _calls(scene, now.mono_s) if scene.busy else [], state_line(scene, now.mono_s)
    most = max(min(AGENTS_SHOWN_MAX, now.rows // 4), 1)
    company = [
        *beside_rows.live_agents(agents, most),
        *beside_rows.live_tasks(scene.beside.tasks, now.wall_us, now.width, now.mono_s),
    ]
    tail = _tail(scene, now.width, now.rows - len(calls) - len(company) - 10)
    rows = [crop(row, now.width) for row in [*tail, *calls, *company, *([state] if state else [])]]
    return [EMPTY, *rows] if scene.tail_gap or not rows else rows


def tick_s(scene: Scene, agents: Sequence[SubagentView], wall_us: int, mono_s: float = 0.0) -> float:
    """How soon what works beside an idle conversation is drawn again; 0 for not before there is news."""
    if any(view.state in beside_rows.OPEN for view in agents):
        return 1.0
    ages = [running.age_s(wall_us, mono_s) for running in scene.beside.tasks.values()]
    return 0.0 if not ages else 1.0 if min(ages) < 60 else 15.0


def waiting_rows(waiting: Sequence[PendingMessage], labels: dict[str, str], width: int) -> list[Line]:
    """Messages that were said and not delivered yet, and when they go."""
    shown = [one for one in waiting if one.to or one.how in ("queued", "steer")]
    words = [(beside_rows.waiting_word(one, labels.get(one.to, "")), one.text) for one in shown]
    rows = [crop(line(("warn", f"{when}: "), escape_line(text)), width) for when, text in words]
    hint = "↑ takes the last one back" + ("; /queue lists all" if len(rows) > 1 else "")
    return [*fold(rows, PENDING_SHOWN_MAX), *([line(("dim", hint))] if rows else [])]


def _tail(scene: Scene, width: int, room: int) -> list[Line]:
    room = max(min(room, 12), 1)
    if text := scene.tail(room):
        return [*wrap_text(text, min(width, 120))[-room:], EMPTY]
    if scene.phase == "thinking" and (thought := scene.thinking_line()):
        return [crop(line(("dim", f"  {thought}")), width)]
    return []


def _calls(scene: Scene, now_s: float) -> list[Line]:
    rows: list[Line] = []
    for row in scene.calls.values():
        time = amounts.elapsed(now_s - row.since_s) if row.status == "running" else ""
        rows.append(drawing.call_line(row.name, row.argument, row.status, time, "○"))
    shown = fold(rows, CALLS_SHOWN_MAX)
    last = _output(scene) if len(rows) == 1 else ""
    return [*shown, line(("dim", f"  {last}"))] if last else shown


def _output(scene: Scene) -> str:
    """The last line that the one running call has printed."""
    output = next(iter(scene.calls.values())).output.decode("utf-8", "replace").rstrip()
    return escape_line(output.rpartition("\n")[2].rpartition("\r")[2])
