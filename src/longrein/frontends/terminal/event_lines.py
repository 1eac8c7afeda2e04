"""Facts as styled lines: pure, one function a kind. Everything from outside is escaped here."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from math import ceil
from typing import Any
from unicodedata import category, east_asian_width

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
from longrein.frontends.text_format import elapsed, escape, escape_line, key_argument, tokens

# --- Styled lines: what is drawn before any terminal library has seen it. Widths are terminal cells ------------------


Span = tuple[str, str]
"""(style word, text). The text is escaped already and holds no newline."""
Line = tuple[Span, ...]

NO_WRAP: Span = ("one", "")
"""A line that begins with it is cropped to the width, never wrapped: one line a call."""

SGR = {
    "": "",
    "one": "",
    "dim": "2",
    "bold": "1",
    "you": "1;36",
    "name": "1",
    "ok": "32",
    "bad": "31",
    "warn": "33",
    "run": "36",
    "add": "32",
    "del": "31",
    "where": "36;2",
}
"""Style word -> ANSI attributes: the sixteen colours only, so that the user's own theme holds."""


def line(*spans: Span | str) -> Line:
    """A line of spans; a bare string has no style."""
    return tuple(("", span) if isinstance(span, str) else span for span in spans)


def plain(of: Line) -> str:
    """The text alone."""
    return "".join(text for _, text in of)


def ansi(of: Line, *, colour: bool = True) -> str:
    """The text with its attributes."""
    if not colour:
        return plain(of)
    return "".join(f"\x1b[{SGR[style]}m{text}\x1b[0m" if SGR[style] and text else text for style, text in of)


def cells(text: str) -> int:
    """Columns that `text` takes."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if char < "\u0300":
        return 1
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def crop(of: Line, width: int) -> Line:
    """`of` in at most `width` columns, with `…` where it was cut."""
    if sum(cells(text) for _, text in of) <= width:
        return of
    kept: list[Span] = []
    left = max(width - 1, 0)
    for style, text in of:
        part, rest = cut(text, left)
        kept.append((style, part))
        left -= cells(part)
        if rest:
            break
    return (*kept, ("dim", "…")) if width > 0 else ()


def cut(text: str, width: int) -> tuple[str, str]:
    """`text` in two: as much as fits into `width` columns, and the rest."""
    if text.isascii():
        return text[:width], text[width:]
    used = 0
    for at, char in enumerate(text):
        used += _cells(char)
        if used > width:
            return text[:at], text[at:]
    return text, ""


def wrap(of: Line, width: int, indent: str = "") -> list[Line]:
    """`of` broken to rows of `width` columns, at blanks where it can be; later rows begin with `indent`."""
    width = max(width, len(indent) + 4)
    rows: list[Line] = []
    row: list[Span] = []
    left = width
    for style, text in of:
        rest = text
        while cells(rest) > left:
            part, rest = _break(rest, left, fresh=not row or left == width - len(indent))
            row.append((style, part))
            rows.append(tuple(row))
            row, left = ([("", indent)] if indent else []), width - len(indent)
        row.append((style, rest))
        left -= cells(rest)
    return [*rows, tuple(row)]


def _break(text: str, width: int, *, fresh: bool) -> tuple[str, str]:
    """A first row of at most `width` columns and what follows it."""
    part, rest = cut(text, width)
    if fresh and not part:  # one wide character in a very narrow place
        return text[:1], text[1:]
    blank = part.rfind(" ")
    if rest.startswith(" "):
        return part, rest[1:]
    if blank > 0 and len(part) - blank < 40:
        return part[:blank], part[blank + 1 :] + rest
    return part, rest


def wrap_text(text: str, width: int, style: str = "") -> list[Line]:
    """Escaped text of several lines, each wrapped."""
    return [row for part in text.expandtabs(4).split("\n") for row in wrap(((style, part),), width)]


def fold(lines: Sequence[Line], most: int) -> list[Line]:
    """At most `most` lines: where there are more, the first ones and how many were left out."""
    if len(lines) <= most:
        return list(lines)
    shown = max(most - 1, 1)
    return [*lines[:shown], line(("dim", f"… {len(lines) - shown} more lines"))]


def fit(of: Line, width: int) -> list[Line]:
    """`of` as rows of at most `width` columns: cropped where it begins with `ONE`, else wrapped."""
    return [crop(of, width)] if NO_WRAP in of[:2] else wrap(of, width)


def indented(lines: Iterable[Line], by: str = "  ") -> list[Line]:
    """Each line moved to the right."""
    return [(("", by), *of) for of in lines]


# --- What a call would do to a file, as lines: every character of both sides is there, escaped -----------------------


LINES_MAX = 2_000
"""Texts longer than this are shown as all old, then all new: finding what they share would take seconds."""

FileText = Callable[[str], str | None]


def diff_lines(old: str, new: str) -> list[Line]:
    """`old` turned into `new`, whole: `-` and `+` lines, lines of both unmarked."""
    before, after = old.split("\n"), new.split("\n")
    if len(before) + len(after) > LINES_MAX:
        return [*_marked("-", "del", before), *_marked("+", "add", after)]
    rows: list[Line] = []
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            rows += _marked(" ", "dim", before[i:j])
        else:
            rows += [*_marked("-", "del", before[i:j]), *_marked("+", "add", after[k:m])]
    return rows


def _marked(mark: str, style: str, lines: list[str]) -> Iterator[Line]:
    return (line((style, f"{mark} {escape(text).expandtabs(4)}")) for text in lines)


def change_lines(name: str, arguments: dict[str, Any] | None, file_text: FileText | None) -> list[Line]:
    """The diff of an `Edit` or `Write`; [] for another call or for arguments that are not as expected."""
    old, new = _sides(name, arguments or {}, file_text)
    if not isinstance(old, str) or not isinstance(new, str):
        return []
    if old == "":
        return _new_file_lines(new)
    return diff_lines(old, new)


def _new_file_lines(text: str) -> list[Line]:
    """A text that is new. That its last line has no end is said, as users know it from git."""
    *lines, last = text.split("\n")
    rows = list(_marked("+", "add", lines))
    return [*rows, *_marked("+", "add", [last]), line(("dim", "\\ no newline at the end"))] if last else rows


def _sides(name: str, arguments: dict[str, Any], file_text: FileText | None) -> tuple[Any, Any]:
    match name:
        case "Edit":
            return arguments.get("old_string"), arguments.get("new_string")
        case "Write":
            path = arguments.get("file_path")
            known = file_text(path) if file_text is not None and isinstance(path, str) else None
            return known or "", arguments.get("content")
        case _:
            return None, None


def only_changes(rows: list[Line], around: int = 2) -> list[Line]:
    """Without the common lines that are further than `around` from a change."""
    changed = [n for n, row in enumerate(rows) if row[0][0] != "dim"]
    near = {n + d for n in changed for d in range(-around, around + 1)}
    kept: list[Line] = []
    for n, row in enumerate(rows):
        if n in near:
            kept.append(row)
        elif not kept or kept[-1] != GAP:
            kept.append(GAP)
    return kept


GAP: Line = (("dim", "  ⋮"),)
"""Stands for common lines that were left out."""


def counts(rows: list[Line]) -> str:
    """`+12 -3`."""
    added = sum(row[0][0] == "add" for row in rows)
    removed = sum(row[0][0] == "del" for row in rows)
    return f"+{added} -{removed}"


# --- drawing ---------------------------------------------------------------------------------------------------------


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
        NO_WRAP,
        (style, f"{mark} "),
        ("name", escape_line(name)),
        (style, told),
        ("", f"  {argument}" if argument else ""),
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
        return [head, *indented(_first_lines(text_of(end.parts)))]
    return [head]


def _first_lines(text: str) -> list[Line]:
    lines = [row for row in escape(text[:4_000]).expandtabs(4).split("\n") if row.strip()]
    return fold([line(NO_WRAP, ("dim", row)) for row in lines], FAILED_LINES_MAX)


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
