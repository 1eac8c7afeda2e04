"""Rows about a provider that fails or falls silent: what is wrong, its words, and how long
nothing has come. Pure.
"""

from math import floor

from longrein.agent import RetryPause
from longrein.frontends.terminal.event_lines import Line, line, wrap_text
from longrein.frontends.terminal.view_model import ViewModel
from longrein.steps.human_text import escape_line, live_elapsed

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
    return [*rows, line(("warn", f"  {silent}"))] if silent else rows


def _failure_rows(pausing: RetryPause, width: int) -> list[Line]:
    state = STATES.get(pausing.kind, escape_line(pausing.kind))
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
