"""Facts as styled lines: pure, one function a kind. Everything from outside is escaped here."""

from collections.abc import Sequence
from math import ceil
from typing import Any

from longrein.agent import Pausing
from longrein.context import State
from longrein.events import (
    AskFailed,
    Cleared,
    Image,
    PermissionAnswered,
    Restored,
    Rewound,
    Summarized,
    Todo,
    ToolEnded,
    TurnEnded,
    UserSpoke,
    text_of,
)
from longrein.frontends.acts import key_argument
from longrein.frontends.amounts import elapsed, tokens
from longrein.frontends.safe import escape, escape_line
from longrein.frontends.terminal.diff import counts, only_changes
from longrein.frontends.terminal.lines import ONE, Line, fold, indented, line

USER_LINES_MAX = 12
"""Lines of what the user said that are shown again."""
FAILED_LINES_MAX = 4
"""Lines of a failed call's result that are shown."""
DIFF_LINES_MAX = 24
"""Lines of a change that was made."""

STATUS = {
    "ok": ("ok", "ok"),
    "failed": ("failed", "bad"),
    "denied": ("denied", "bad"),
    "interrupted": ("interrupted", "warn"),
    "not_run": ("not run", "dim"),
    "running": ("running", "run"),
    "waiting": ("waiting", "dim"),
    "asking": ("asks you", "warn"),
    "queued": ("queued", "dim"),
    "done": ("done", "ok"),
    "timed_out": ("timed out", "bad"),
    "killed": ("killed", "warn"),
    "lost": ("lost", "bad"),
    "limit": ("limit reached", "bad"),
}
"""Status -> its word and style. The word stands beside the colour, always."""

WAKES = {
    "bg_done": "a background task has ended",
    "bg_lost": "a background task was lost",
    "bg_stalled": "a background task seems to wait for input",
    "subagent_done": "a subagent has reported",
    "subagent_failed": "a subagent did not finish",
    "teammate_message": "a message has come",
    "cron_fired": "it is time",
}
"""Kinds of news that begin a turn."""


def status_word(status: str) -> tuple[str, str]:
    """A status as a word, escaped, and its style."""
    return STATUS.get(status, (escape_line(status), "bad"))


def spent_usd(state: State) -> float:
    """What was spent, without what is set aside for a request that still goes on."""
    return state.spent_usd - (state.asked.reserved_usd if state.asked else 0.0)


def call_line(name: str, argument: str, status: str, time: str, mark: str = "●") -> Line:
    """The one line of a call. The status stands before the argument, so that cropping never hides it."""
    word, style = status_word(status)
    told = f" {word}" + (f" {time}" if time else "")
    return line(
        ONE, (style, f"{mark} "), ("name", escape_line(name)), (style, told), ("", f"  {argument}" if argument else "")
    )


def ended_lines(end: ToolEnded, arguments: dict[str, Any] | None, change: Sequence[Line]) -> list[Line]:
    """A call that is over: its line, for a failure the beginning of why, for an edit what changed."""
    rows = list(change)
    time = elapsed(end.elapsed_ms / 1000)
    if end.status == "ok" and rows:
        time = f"{time} {counts(rows)}".strip()
    head = call_line(end.name, key_argument(arguments), end.status, time)
    if end.status == "ok":
        return [head, *indented(fold(only_changes(rows), DIFF_LINES_MAX))] if rows else [head]
    if end.status in ("failed", "interrupted"):
        return [head, *indented(_beginning(text_of(end.parts)))]
    return [head]


def _beginning(text: str) -> list[Line]:
    lines = [row for row in escape(text[:4_000]).expandtabs(4).split("\n") if row.strip()]
    return fold([line(ONE, ("dim", row)) for row in lines], FAILED_LINES_MAX)


def user_lines(spoke: UserSpoke, note: str = "") -> list[Line]:
    """What the user said, folded when long; `note` says what became of it."""
    rows = escape(text_of(spoke.parts)).expandtabs(4).split("\n")
    shown = fold([line(("you", row)) for row in rows], USER_LINES_MAX)
    pictures = [
        line(("dim", f"[Image #{n}]")) for n, p in enumerate((p for p in spoke.parts if isinstance(p, Image)), 1)
    ]
    if note and shown:
        shown[0] = (*shown[0], ("dim", f"  ({note})"))
    marks = [("you", "› ")] + [("", "  ")] * (len(shown) + len(pictures))
    return [(mark, *row) for mark, row in zip(marks, [*shown, *pictures], strict=False)]


def notice_line(text: str) -> Line:
    """One line for the user."""
    return line(("warn", "! "), escape_line(text))


def ended_turn(ended: TurnEnded) -> list[Line]:
    """Why a turn ended, when it is not because all was done."""
    match ended.reason:
        case "done" | "blocked":  # the denied call's own line says it
            return []
        case "interrupted":
            return [line(("warn", "interrupted"), ("dim", "  say what to do instead"))]
        case reason:
            told = f"  {escape_line(ended.message)}" if ended.message else ""
            return [line(("bad", f"stopped: {reason}"), told)]


def retry_text(pausing: Pausing, left_s: float) -> str:
    """Why no request is made for `left_s` seconds, or is made again now, and which attempt it will be."""
    why, left = escape_line(pausing.message or pausing.kind), f"{ceil(left_s)} s" if left_s > 0 else ""
    if not pausing.attempt:
        return f"waiting {left} for the provider: {why}".replace("  ", " ", 1)
    return f"retrying{left and f' in {left}'}, attempt {pausing.attempt + 1} of {pausing.attempts_max}: {why}"


def failed_request(failed: AskFailed, *, shown: bool) -> list[Line]:
    """A request that got no answer; told at once only when part of one stands on the screen."""
    if not shown:
        return []
    return [line(("warn", "the reply above was cut off"), ("dim", f"  {escape_line(failed.message or failed.kind)}"))]


def failed_summary(failed: AskFailed) -> list[Line]:
    """A request for a summary that brought none; silent when nobody wants it any more."""
    if failed.kind in ("cancelled", "lost"):
        return []
    told = (failed.message or failed.kind).removeprefix("no summary: ")
    return [line(("warn", "the model wrote no summary"), ("dim", f"  {escape_line(told)}"))]


def answered_lines(answer: PermissionAnswered, name: str) -> list[Line]:
    """The user's word on a call. A plain yes needs no line: the call's own follows."""
    if answer.verdict == "allow" and answer.scope != "once":
        where = "always" if answer.scope == "always" else "for this session"
        return [line(("ok", f"allowed {where}"), f"  {escape_line(answer.rule or name)}")]
    if answer.verdict == "deny" and answer.message and answer.by == "user":
        return [line(("bad", "no: "), escape_line(answer.message))]
    return []


def compaction_lines(event: Cleared | Summarized) -> list[Line]:
    """That the view was made smaller. Nothing is lost, and it says so. The documents' clearing each turn is silent."""
    if event.reason == "micro_compact":
        return []
    if isinstance(event, Cleared):
        many = len(event.forms)
        told = f"{many} old item{'s' if many != 1 else ''} shortened, about {tokens(event.gain_tokens)} tokens freed"
    else:
        how = "" if event.prose or event.reply else " by the records alone, without the model"
        told = f"entries {event.first} to {event.last} summarised{how}"
    return [line(("dim", f"context: {told}; every byte can be recalled"))]


def restored_line(event: Restored) -> Line:
    """That a compaction was undone."""
    return line(("dim", f"context: the compaction r{event.undone} is undone; what it put away is shown again"))


def todo_lines(todos: Sequence[Todo]) -> list[Line]:
    """The list with a mark a line."""
    marks = {"completed": ("[x] ", "dim"), "in_progress": ("[>] ", "run")}
    rows = []
    for todo in todos:
        mark, style = marks.get(todo.status, ("[ ] ", ""))
        rows.append(line((style, mark + escape_line(todo.content))))
    return rows or [line(("dim", "todo list emptied"))]


def rewound_lines(event: Rewound) -> list[Line]:
    """That the conversation went back, and what became of the files."""
    rows = [line(("warn", "rewound"), ("dim", f"  the conversation is again as it was at entry {event.to}"))]
    for put in event.files:
        back = "removed, it is new since then" if put.removed else "put back"
        told = back if put.done else f"left as it is ({escape_line(put.why)})"
        rows.append(line(("dim", f"  {told}  {escape_line(put.path)}")))
    return rows


def wake_line(source: str) -> Line:
    """Why a turn begins that nobody has asked for. `source` is the kind of the news and its handle."""
    kind, _, handle = source.partition(" ")
    told = WAKES.get(kind, escape_line(kind))
    return line(("run", "woken"), ("dim", f"  {told}" + (f" ({escape_line(handle)})" if handle else "")))
