"""The two lines that say where we are: what goes on now, and the session's figures."""

import msgspec

from longrein.context import State
from longrein.frontends import amounts
from longrein.frontends.safe import escape_line
from longrein.frontends.terminal import drawing
from longrein.frontends.terminal.lines import Line, crop, line
from longrein.frontends.terminal.scene import Scene

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
