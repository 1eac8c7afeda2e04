"""Reminders to append before the next request, as a pure function of the state.

A reminder is an entry, so it comes after the results, is never reworded, and is sent again with a
retried request. It is told exactly once, because the telling is folded too: right after its own
reminders `due_reminders` returns nothing.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from longrein_context.events import Reminded, marker
from longrein_context.events.escape import shortened, whole_number
from longrein_context.fold_notices import DAY_US, todo_state
from longrein_context.state.quoting import neutralize_markers, quote_external
from longrein_context.state.reminder_kinds import KINDS, Notice, ReminderKind
from longrein_context.state.request_types import Budget
from longrein_context.state.state import State
from longrein_context.state.token_estimate import estimate_text

ROOM_TOKENS = 2_000  # Tokens for all reminders of one request
ROOM_SHARE_MAX = 0.2  # Largest share of the usable window for them
TODO_STEPS = (
    25  # Steps of one turn without a change of the todo list before the model is reminded of it
)
REREAD_TIMES = 3  # Readings of the same lines after which the model is told
CONTEXT_LEVELS = (70, 90)  # Percentages of the usable window that are told when they are crossed
CONTEXT_TOKENS_MIN = (
    32_000  # Smaller windows are compacted so often that telling it would only cost tokens
)
COST_LEVELS = (50, 80, 95)  # Percentages of the money limit that are told when they are crossed
LINE_CHARS_MAX = 300  # Limit of one line
LINES_SHARE_MAX = 0.5  # Share of the budget for lines if there are many; the rest is for the bodies
LINE_TOKENS = 10  # Tokens for the hint at the end of a line
COUNT_TOKENS = 30  # Tokens for the line that counts the notices left out
NAMES_CHARS_MAX = 8_000  # Limit of the names of ended tasks without a line of their own
SOURCES_MAX = 20  # Limit of handles that a reminder names as its source

MODES = {
    "plan": "plan mode is on: only look and think. Calls that write files or run changing "
    "commands are refused, by "
    "whatever way",
    "acceptEdits": "edits of files in the session's folders are now allowed without asking",
    "auto": "edits in the session's folders and commands that the sandbox confines now run "
    "without asking",
    "dontAsk": "nobody is asked: calls that no rule allows are refused; do what you can without "
    "them",
    "bypassPermissions": "calls now run without asking the user; all the more, keep to what was "
    "asked",
    "default": "calls that change something now ask the user first, as far as no rule allows them",
}
"""Meaning of a permission mode for the model."""
PLAN_TOOL = "ExitPlanMode"
PLAN_CALL = (
    f". When the plan stands, call {PLAN_TOOL} with it: the user judges it and ends plan mode"
)
PLAN_ANSWER = ". Answer with a plan that the user can judge; they end plan mode"
"""Addition for an agent that speaks with the user; a subagent has a task of its own."""


_ORDER = {kind: n for n, kind in enumerate(KINDS)}


class ReminderDraft(msgspec.Struct, frozen=True):
    """Reminder before it is fitted into its budget."""

    kind: ReminderKind
    head: str  # The harness's own words
    notices: Sequence[Notice] = ()  # Notices to list; empty for a state told in one line
    state: str = ""  # Value of such a state
    source: str = ""  # Handle of the event behind it


def due_reminders(
    state: State, budget: Budget, now_us: int, usd_max: float = 0.0
) -> tuple[Reminded, ...]:
    """Return the reminders to append before the next request, most important first; () without
    news.

    `now_us`: microseconds UTC, of which only the day counts. `usd_max`: the money limit, 0 for
    none.
    """
    drafts = [*_notice_drafts(state), *_state_drafts(state, budget, now_us, usd_max)]
    if not drafts:
        return ()
    room = min(
        ROOM_TOKENS, round(budget.usable_tokens * ROOM_SHARE_MAX)
    )  # counts are told even beyond it
    left, told = room, []
    for draft in sorted(drafts, key=lambda draft: _ORDER[draft.kind.name]):
        reminder = fit_reminder(draft, state, min(left, round(room * draft.kind.share)))
        left = max(0, left - _tokens(state, reminder.text))
        told.append(reminder)
    return tuple(told)


# --- Reminders of notices -------------------------------------------------------------------------


def _notice_drafts(state: State) -> Iterator[ReminderDraft]:
    waiting: dict[str, list[Notice]] = {}
    for one in pending_notices(state):
        waiting.setdefault(_reminder_kind(state, one), []).append(one)
    for kind, notices in waiting.items():
        row = KINDS[kind]
        if row.nature == "state":
            news = _latest_states(state, notices)
        else:
            news = [one for one in notices if _is_still_news(state, one)]
        if news:
            yield _draft(state, row, news)


def pending_notices(state: State) -> list[Notice]:
    """Return the notices after the last reminder of their kind, oldest first."""
    told = {kind: last.seq for kind, last in state.reminded.items()}
    told["file_changed"] = max(told.get("file_changed", 0), told.get("session_resumed", 0))
    return [one for one in state.notices if one.seq > told.get(one.kind, 0)]


def _reminder_kind(state: State, one: Notice) -> str:
    """Return the kind of the reminder. File changes before a resume are told as
    `session_resumed`.
    """
    away = one.kind == "file_changed" and 0 < state.resumed_seq < one.seq
    told = state.reminded.get("session_resumed")
    return (
        "session_resumed" if away and (told is None or told.seq < state.resumed_seq) else one.kind
    )


def _latest_states(state: State, notices: Sequence[Notice]) -> list[Notice]:
    """Return the latest notice per key, where it differs from what the model last saw."""
    first: dict[str, Notice] = {}
    last: dict[str, Notice] = {}
    for one in notices:
        first.setdefault(one.key, one)
        last[one.key] = one
    return [
        one for key, one in last.items() if (one.line, one.body) != _last_seen(state, first[key])
    ]


def _last_seen(state: State, first: Notice) -> tuple[str, str]:
    """Return (line, body) that the model last saw for the subject of `first`."""
    told = [
        n for n in state.notices if n.seq < first.seq and (n.kind, n.key) == (first.kind, first.key)
    ]
    if told:
        return told[-1].line, told[-1].body
    if first.was:
        return (first.was, "")
    if first.kind == "diagnostics":
        return (first.line, "")
    return ("", "")


def _is_still_news(state: State, one: Notice) -> bool:
    """True if the file was not read, edited or changed again since."""
    if one.kind not in ("file_changed", "memory_changed"):
        return True
    seen = state.files.get(one.key)
    return seen is not None and seen.seq == one.seq


def _draft(state: State, kind: ReminderKind, news: Sequence[Notice]) -> ReminderDraft:
    """Draft a reminder: one line for a state without a key and a body, otherwise a list."""
    line, source = news[-1].line, f"r{news[-1].seq}"
    if kind.name == "mode":
        words = MODES.get(line, f"the permission mode is now {line}")
        if line == "plan" and not state.kind:
            offered = state.prefix is not None and any(
                tool.name == PLAN_TOOL for tool in state.prefix.callable_tools
            )
            words += PLAN_CALL if offered else PLAN_ANSWER
        return ReminderDraft(kind, words, state=line, source=source)
    if kind.nature == "state" and len(news) == 1 and not news[0].body and not news[0].key:
        return ReminderDraft(kind, f"{kind.head}: {line}", state=line, source=source)
    if kind.name == "session_resumed":
        away = (
            f"the session goes on after {duration_words(state.resumed_gap_s)}; meanwhile "
            f"{kind.head}"
        )
        return ReminderDraft(kind, away, news)
    return ReminderDraft(kind, kind.head, news)


def duration_words(seconds: float) -> str:
    """Return a duration in one unit: `40 s`, `12 min`, `3 h`, `5 days`."""
    for limit, unit, words in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{round(seconds / unit)} {words}"
    return f"{round(seconds / 86_400)} days"


# --- Computed states: todo list, context, cost, day -----------------------------------------------


def _state_drafts(
    state: State, budget: Budget, now_us: int, usd_max: float
) -> Iterator[ReminderDraft]:
    yield from _todo(state)
    yield from _rereads(state)
    yield from _context_budget(state, budget)
    yield from _cost_budget(state, usd_max)
    day = str(now_us // DAY_US)
    if "clock" in state.reminded and int(day) > int(state.reminded["clock"].state):
        yield ReminderDraft(KINDS["clock"], f"the day is now {date_of(int(day))} (UTC)", state=day)


def _last_told(state: State, kind: str) -> str:
    return state.reminded[kind].state if kind in state.reminded else ""


def _todo(state: State) -> Iterator[ReminderDraft]:
    """Draft a reminder of the todo list: changed by somebody else, long unchanged, or missing in
    long work.
    """
    now = todo_state(state.todos)
    told = _last_told(state, "todo").removeprefix("old: ")
    if now != told and (told or state.todos):
        yield ReminderDraft(KINDS["todo"], f"the todo list is now {_todo_lines(state)}", state=now)
        return
    can_plan = state.prefix is not None and any(
        tool.name == "TodoWrite" for tool in state.prefix.callable_tools
    )
    open_todo = not state.todos or any(todo.status != "completed" for todo in state.todos)
    idle = min(state.steps, state.asks - state.todo_asks)
    if (
        idle < TODO_STEPS
        or not open_todo
        or _last_told(state, "todo").startswith("old: ")
        or not can_plan
    ):
        return
    if state.todos:
        words = (
            f"the todo list was not touched for {idle} steps; bring it up to date. It is "
            f"{_todo_lines(state)}"
        )
    else:
        words = (
            f"{idle} steps without a todo list; if more is to come, TodoWrite helps to keep track"
        )
    yield ReminderDraft(KINDS["todo"], words, state=f"old: {now}")


def _todo_lines(state: State) -> str:
    return "; ".join(f"[{todo.status}] {todo.content}" for todo in state.todos) or "empty"


def _rereads(state: State) -> Iterator[ReminderDraft]:
    """Draft a reminder of reads that were answered `REREAD_TIMES` times, or as often again, with
    their lines that hold words of the request.
    """
    told = state.reminded["reread"].seq if "reread" in state.reminded else 0
    notices = [
        Notice(
            one.seq,
            "reread",
            f"{one.source}: read {one.times} times, last r{one.seq}",
            "\n".join(one.lines),
        )
        for one in state.ledger.wanted.values()
        if one.times % REREAD_TIMES == 0 and one.seq > told
    ]
    if notices and not state.profile.startswith("seed"):
        yield ReminderDraft(KINDS["reread"], KINDS["reread"].head, notices)


def _context_budget(state: State, budget: Budget) -> Iterator[ReminderDraft]:
    usable, told = budget.usable_tokens, int(_last_told(state, "context_budget") or 0)
    if usable < CONTEXT_TOKENS_MIN or state.profile.startswith("seed"):
        return
    percent = state.view_tokens * 100 // usable
    level = max((level for level in CONTEXT_LEVELS if percent >= level), default=0)
    if level > told:
        words = (
            f"the conversation fills {percent} % of its room ({state.view_tokens} of {usable} "
            "tokens)"
        )
        note = (
            "older parts will be condensed when it is full, nothing is lost, and you go on as "
            "before"
        )
        yield ReminderDraft(KINDS["context_budget"], f"{words}; {note}", state=str(level))


def _cost_budget(state: State, usd_max: float) -> Iterator[ReminderDraft]:
    told = int(_last_told(state, "cost_budget") or 0)
    level = max(
        (level for level in COST_LEVELS if usd_max and state.spent_usd >= usd_max * level / 100),
        default=0,
    )
    if level > told:
        words = f"${state.spent_usd:.2f} of the ${usd_max:.2f} for this session are spent"
        yield ReminderDraft(
            KINDS["cost_budget"], f"{words}; finish what matters most first", state=str(level)
        )


def date_of(day: int) -> str:
    """Return the date of a day counted from 1970-01-01, as `2026-11-21`.

    Years begin in March, so that a leap day is the last day.
    """
    shifted = day + 719_468
    era = shifted // 146_097
    of_era = shifted % 146_097
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day_of_month = of_year - (153 * month + 2) // 5 + 1
    return f"{year + era * 400 + (month >= 10):04d}-{(month + 2) % 12 + 1:02d}-{day_of_month:02d}"


# --- Fitting into the token budget ----------------------------------------------------------------


def fit_reminder(draft: ReminderDraft, state: State, room: int) -> Reminded:
    """Return the reminder in at most about `room` tokens: lines first, then bodies, then only
    counts.
    """
    kind, nonce = draft.kind.name, state.nonce
    if not draft.notices:
        head = neutralize_markers(draft.head, nonce).replace("\n", "\\n")
        return Reminded(kind, marker(nonce, kind, head), draft.source, draft.state)
    left = room - _tokens(state, marker(nonce, kind, draft.head)) - COUNT_TOKENS
    lines = [f"* {_line(one, nonce)}" for one in draft.notices]
    costs = [_tokens(state, line) + LINE_TOKENS for line in lines]
    shown = _prefix_within(costs, left if sum(costs) <= left else left * LINES_SHARE_MAX)
    left -= sum(costs[:shown])
    below, whole = [], []
    for one, line in zip(draft.notices[:shown], lines, strict=False):
        body = quote_external(one.body, nonce)
        fits = _tokens(state, body) <= left
        left -= _tokens(state, body) if fits else 0
        known = one.whole and (not body or (fits and body == one.body))
        below.append(
            line
            + _recall_hint(one, known=known, fits=fits)
            + (f"\n{body}" if body and fits else "")
        )
        whole += [str(one.seq)] * known
    more = len(lines) - shown
    if more:
        below.append(
            f"* and {more} more that do not fit here: {_not_shown_hint(draft.notices[shown:])}"
        )
    sources = " ".join(f"r{one.seq}" for one in draft.notices[:SOURCES_MAX])
    told = "\n".join([marker(nonce, kind, draft.head), *below])
    return Reminded(kind, told, sources, " ".join(whole) if _is_file(kind) else "")


def _is_file(kind: str) -> bool:
    return kind in ("file_changed", "memory_changed", "session_resumed")


def _tokens(state: State, text: str) -> int:
    return state.gauge.scale(estimate_text(text))


def _prefix_within(costs: Sequence[int], room: float) -> int:
    for n, cost in enumerate(costs):
        room -= cost
        if room < 0:
            return n
    return len(costs)


def _line(one: Notice, nonce: str) -> str:
    return shortened(neutralize_markers(one.line, nonce).replace("\n", "\\n"), LINE_CHARS_MAX)


def _recall_hint(one: Notice, *, known: bool, fits: bool) -> str:
    """Return the hint for content that is not shown, or not verbatim."""
    if _is_file(one.kind):
        return "" if known else "; Read it before you rely on it"
    return "" if fits or not one.body else f'; all of it: Recall("r{one.seq}")'


def _not_shown_hint(notices: Sequence[Notice]) -> str:
    first, last = notices[0].seq, notices[-1].seq
    if all(one.brief for one in notices):
        return _by_outcome(notices)
    if _is_file(notices[0].kind):
        return "Read before you rely on any file"
    return f'Recall("r{first}")' + (f' to Recall("r{last}")' if last != first else "")


def _by_outcome(notices: Sequence[Notice]) -> str:
    """Group names by outcome: `done, exit code 0: b3-b40, b42; failed, exit code 1: b41`."""
    alike: dict[str, list[str]] = {}
    for one in notices:
        alike.setdefault(one.brief, []).append(one.line.partition(" ")[0].rstrip(":"))
    told = "; ".join(f"{brief}: {', '.join(_name_ranges(names))}" for brief, names in alike.items())
    return (
        told
        if len(told) <= NAMES_CHARS_MAX
        else told[:NAMES_CHARS_MAX].rpartition(",")[0] + " … (TaskList)"
    )


def _name_ranges(names: Sequence[str]) -> Iterator[str]:
    """Yield sorted names, consecutive ones as a range: `b3-b40`."""
    numbered = sorted(
        (name.rstrip("0123456789"), whole_number(name[len(name.rstrip("0123456789")) :]))
        for name in names
    )
    for _, run in groupby(enumerate(numbered), key=lambda pair: (pair[1][0], pair[1][1] - pair[0])):
        (head, first), *more = (name for _, name in run)
        last = more[-1][1] if more else first
        yield f"{head}{first}" + (f"-{head}{last}" if more else "")
