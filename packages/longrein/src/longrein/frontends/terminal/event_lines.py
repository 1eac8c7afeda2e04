"""Styled lines, and one function for each kind of event that turns it into lines. Pure; escapes
outside text.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any
from unicodedata import category, east_asian_width

import msgspec

from longrein.agent import RetryPause
from longrein.frontends.goals_command import goal_line
from longrein.frontends.localization import translate
from longrein.steps import BreakStep, CompactionStep, NoticeStep, SettingStep, Step, TurnEndStep
from longrein.steps.human_text import (
    counted,
    escape,
    escape_line,
    file_patches,
    joined,
    money,
    tokens,
)
from longrein_context import Price, State
from longrein_context.events import (
    ATTACHED,
    AskFailed,
    Image,
    PermissionAnswered,
    Rewound,
    Text,
    Todo,
    UserSpoke,
    text_of,
    without_attachments,
)
from longrein_context.events.escape import whole_number

if TYPE_CHECKING:
    from longrein.tools.patch_text import FilePatch

# --- Styled lines; widths are terminal cells ------------------------------------------------------


Span = tuple[str, str]
"""(style word, text). The text is escaped and holds no newline."""
Line = tuple[Span, ...]

NO_WRAP: Span = ("one", "")
"""Marks a line that is cropped to the width and never wrapped."""

STYLES = {
    "": ("", ""),
    **dict.fromkeys(("one", "column", "optional", "beside"), ("", "")),
    "dim": ("2", "ansibrightblack"),
    "bold": ("1", "bold"),
    "you": ("1;36", "bold ansicyan"),
    "name": ("1", "bold"),
    "ok": ("32", "ansigreen"),
    "bad": ("31", "ansired"),
    "warn": ("33", "ansiyellow"),
    "run": ("36", "ansicyan"),
    "add": ("32", "ansigreen"),
    "del": ("31", "ansired nostrike"),
}
"""Style word -> (ANSI attributes, style of prompt_toolkit). Sixteen colours only, so that the
user's theme applies.
"""


def line(*spans: Span | str) -> Line:
    """Make a line of spans; a bare string has no style."""
    return tuple(("", span) if isinstance(span, str) else span for span in spans)


def plain(of: Line) -> str:
    """Text of a line without styles."""
    return "".join(text for _, text in of)


def ansi(of: Line, *, colour: bool = True) -> str:
    """Text of a line with ANSI attributes."""
    if not colour:
        return plain(of)
    styled = ((STYLES[style][0], text) for style, text in of)
    return "".join(
        f"\x1b[{attributes}m{text}\x1b[0m" if attributes and text else text
        for attributes, text in styled
    )


def cells(text: str) -> int:
    """Terminal columns of `text`."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def pad(text: str, columns: int) -> str:
    """`text` with blanks up to `columns` terminal columns."""
    return text + " " * (columns - cells(text))


def _cells(char: str) -> int:
    if char < "\u0300":
        return 1
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return (
        2 if east_asian_width(char) in "WF" or "\U0001f1e6" <= char <= "\U0001f1ff" else 1
    )  # these make flags


def crop(of: Line, width: int) -> Line:
    """Cut a line to at most `width` columns and mark the cut with `…`."""
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
    """Split `text` into what fits into `width` columns and the rest."""
    if text.isascii():
        return text[:width], text[width:]
    used = 0
    for at, char in enumerate(text):
        used += _cells(char)
        if used > width:
            return text[:at], text[at:]
    return text, ""


def wrap(of: Line, width: int, indent: str = "") -> list[Line]:
    """Wrap a line to rows of `width` columns; later rows begin with `indent`. Only a word that is
    longer than a row is broken.
    """
    width = max(width, len(indent) + 4)
    text = plain(of)
    if cells(text) <= width:
        return [of]
    rows: list[Line] = []
    at = 0
    while at < len(text):
        room = width - len(indent) * bool(rows)
        end, following = _break(text, at, room)
        row = _spans_between(of, at, end)
        if plain(row).strip() or following >= len(text):
            rows.append((("", indent), *row) if rows and indent else row)
        at = following
    return rows


def _break(text: str, at: int, room: int) -> tuple[int, int]:
    """End of the row of `text` that begins at `at`, and the beginning of the next one."""
    ahead = text[at : at + 4 * room + 1]  # a bound, so that a long line costs no more than its rows
    part, rest = cut(ahead, room)
    part = part or ahead[:1]  # a wide character wider than the row
    end = at + len(part)
    if not rest or end >= len(text):
        return end, end
    if text[end] == " ":
        return end, end + 1
    blank = part.rfind(" ")
    word = ahead[blank + 1 :].partition(" ")[0]
    if blank >= 0 and cells(word) <= room:
        return at + blank, at + blank + 1
    return end, end


def _spans_between(of: Line, first: int, last: int) -> Line:
    """The spans of the characters `first` to `last` of a line."""
    found: list[Span] = []
    start = 0
    for style, text in of:
        part = text[max(first - start, 0) : max(last - start, 0)]
        if part:
            found.append((style, part))
        start += len(text)
        if start >= last:
            break
    return tuple(found)


def wrap_text(text: str, width: int) -> list[Line]:
    """Wrap escaped text of several lines."""
    return [row for part in text.expandtabs(4).split("\n") for row in wrap(line(part), width)]


def fold(lines: Sequence[Line], most: int) -> list[Line]:
    """At most `most` lines: the first ones and the number of those left out."""
    if len(lines) <= most:
        return list(lines)
    shown = max(most - 1, 1)
    return [
        *lines[:shown],
        line(("dim", translate(f"… {counted(len(lines) - shown, 'more line')}"))),
    ]


COLUMN: Span = ("column", "")
"""Marks where the last column of a table row begins."""
OPTIONAL: Span = ("optional", "")
"""Marks what is left out where the row is too narrow."""
BESIDE = "beside"
"""Style of the blanks before the second half of a row, which stands below the first where both do
not fit.
"""
COLUMN_CELLS_MIN = 24
"""Columns that the last column has at least; where it has not it stands below the others."""
STACKED = "    "
INDENT_MAX = 8
"""Columns by which further rows of an indented line are indented at most."""


def fit(of: Line, width: int) -> list[Line]:
    """Rows of at most `width` columns: cropped when the line begins with `NO_WRAP`, else wrapped
    with the indent of its first row; the last column of a table row is wrapped by itself.
    """
    half = next((n for n, (style, _) in enumerate(of) if style == BESIDE), 0)
    if half and cells(plain(of)) > width:
        return [*fit(of[:half], width), *fit(of[half + 1 :], width)]
    if OPTIONAL in of:
        at = of.index(OPTIONAL)
        whole = (*of[:at], *of[at + 1 :])
        of = whole if cells(plain(whole)) <= width else of[:at]
    if COLUMN in of:
        at = of.index(COLUMN)
        return _table_row(of[:at], of[at + 1 :], width)
    if NO_WRAP in of[:2]:
        return [crop(of, width)]
    text = plain(of)
    indent = min(len(text) - len(text.lstrip(" ")), INDENT_MAX)
    return wrap(of, width, " " * indent)


def _table_row(head: Line, last: Line, width: int) -> list[Line]:
    used = cells(plain(head))
    left = width - used
    if left >= min(COLUMN_CELLS_MIN, width // 2) or cells(plain(last)) <= left:
        rows = wrap(last, left)
        blank = line(" " * used)
        return [(*head, *rows[0]), *((*blank, *row) for row in rows[1:])]
    *first, (style, text) = head
    below = [(("", STACKED), *row) for row in wrap(last, width - len(STACKED))]
    above = (*first, (style, text.rstrip()))
    return [*(wrap(above, width, "  ") if plain(above).strip() else ()), *below]


def indented(lines: Iterable[Line], by: str = "  ") -> list[Line]:
    """Lines indented by `by`."""
    return [(("", by), *of) for of in lines]


# --- Diffs: complete and escaped ------------------------------------------------------------------


FileText = Callable[[str], str | None]


def diff_lines(old: str, new: str, around: int = 0) -> list[Line]:
    """Diff of `old` and `new`: `-` and `+` lines, common lines unmarked.

    All common lines are shown, or with `around` so many before and after a change, and each line
    with its number: a removed line with its old one, all others with their new one.
    """
    from longrein.tools.diff import hunks_of

    before, after = old.split("\n"), new.split("\n")
    width = len(str(max(len(before), len(after)))) if around else 0
    hunks = hunks_of(before, after)
    rows = list[Line]()
    shown = 0
    for at, (first, last, added, added_end) in enumerate(hunks):
        start = max(first - around, shown) if around else shown
        rows += [GAP] if start > shown else []
        rows += _marked(" ", "dim", before[start:first], added - (first - start), width)
        rows += _marked("-", "del", before[first:last], first, width)
        rows += _marked("+", "add", after[added:added_end], added, width)
        following = hunks[at + 1][0] if at + 1 < len(hunks) else len(before)
        shown = min(last + around, following)
        rows += _marked(" ", "dim", before[last:shown], added_end, width)
    rest = before[shown:]
    return [*rows, *([GAP] if around and rest else _marked(" ", "dim", rest))]


def _marked(
    mark: str, style: str, lines: Sequence[str], at: int = 0, width: int = 0
) -> Iterator[Line]:
    """Lines of a text after a mark; with `width` also after numbers, `at` the 0-based first."""
    for number, text in enumerate(lines, at + 1):
        numbered = f"{number:>{width}} " if width else ""
        yield line((style, f"{numbered}{mark} {escape(text).expandtabs(4)}"))


def change_lines(
    name: str, arguments: dict[str, Any] | None, file_text: FileText | None
) -> list[Line]:
    """Diff of an `Edit`, `Write` or `apply_patch`; [] for other calls and malformed arguments."""
    match name, arguments:
        case "apply_patch", _:
            return [row for one in file_patches(arguments) for row in _patch_lines(one, file_text)]
        case "Edit", {"old_string": str(old), "new_string": str(new)}:
            return diff_lines(old, new) if old else new_file_lines(new)
        case "Write", {"content": str(new)}:
            path = (arguments or {}).get("file_path")
            known = file_text(path) if file_text is not None and isinstance(path, str) else None
            return diff_lines(known, new) if known else new_file_lines(new)
        case _:
            return []


def _patch_lines(patch: "FilePatch", file_text: FileText | None) -> Iterator[Line]:
    """The change of one file, under its name."""
    moved = f" -> {patch.moved_to}" if patch.moved_to else ""
    yield line(("bold", escape_line(f"{patch.kind} {patch.path}{moved}")))
    if patch.kind == "Delete":
        text = (file_text(patch.path) if file_text is not None else None) or ""
        yield from _marked("-", "del", text.splitlines())
    for hunk in patch.hunks:
        at = " (end of the file)" * hunk.at_end
        if hunk.anchors or at or len(patch.hunks) > 1:
            for anchor in hunk.anchors[:-1]:
                yield line(("dim", escape_line(f"@@ {anchor}")))
            last = "".join(hunk.anchors[-1:])
            yield line(("dim", escape_line(f"@@ {last}{at}".rstrip())))
        old, new = ("".join(f"{row}\n" for row in rows) for rows in (hunk.old, hunk.new))
        yield from diff_lines(old, new)[:-1] if hunk.old else new_file_lines(new)


def new_file_lines(text: str, *, numbered: bool = False) -> list[Line]:
    """Lines of a new text; a missing final newline is noted as in git."""
    *lines, last = text.split("\n")
    whole = [*lines, last] if last else lines
    rows = [*_marked("+", "add", whole, width=len(str(len(whole))) if numbered else 0)]
    return [*rows, line(("dim", translate("\\ no newline at the end")))] if last else rows


def only_changes(rows: Sequence[Line], around: int = 2) -> list[Line]:
    """Drop common lines further than `around` lines from a change."""
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


def counts(rows: Sequence[Line]) -> str:
    """Added and removed lines, as `+12 -3`."""
    styles = [row[0][0] for row in rows if row]
    return f"+{styles.count('add')} -{styles.count('del')}"


# --- Events ---------------------------------------------------------------------------------------


USD_MIN = 0.0001
"""Smaller amounts are not told."""
COMMAND_LINES_MAX = 40
"""Lines of output of a command that the user has run; the conversation holds more."""
USER_LINES_MAX = 12

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
"""Status -> word and style. The word is always shown, so that colour is never needed."""

WAKES = {
    "bg_done": "a background task has ended",
    "bg_lost": "a background task was lost",
    "bg_stalled": "a background task seems to wait for input",
    "subagent_done": "a subagent has reported",
    "subagent_failed": "a subagent did not finish",
    "teammate_message": "a message has come",
    "cron_fired": "it is time",
}


def status_word(status: str) -> tuple[str, str]:
    """Word (escaped) and style of a status."""
    word, style = STATUS.get(status, (escape_line(status), "bad"))
    return translate(word), style


def user_lines(spoke: UserSpoke, note: str = "") -> list[Line]:
    """Lines of a user's message, folded when long; `note` follows the first line."""
    own = without_attachments(spoke.typed)
    rows = escape(text_of(own)).expandtabs(4).split("\n")
    first, *more = fold([line(("you", row)) for row in rows], USER_LINES_MAX)
    pictures = sum(isinstance(part, Image) for part in spoke.parts)
    more += [line(("dim", f"[Image #{n + 1}]")) for n in range(pictures)]
    attached = [
        part.text[len(ATTACHED) :].partition("]")[0]
        for part in spoke.typed
        if isinstance(part, Text) and part not in own
    ]
    more += [line(("dim", f"[attached {escape_line(name)}]")) for name in attached]
    head = (("you", "› "), *first, *([("dim", f"  ({note})")] if note else []))
    return [head, *indented(more)]


def user_command_lines(command: str, output: str, status: str = "ok") -> list[Line]:
    """Lines of a command that the user has run with `!`."""
    first, *more = escape(command).expandtabs(4).split("\n")
    head = line(("you", f"! {first}"), ("warn", "" if status == "ok" else f"  {status}"))
    rows = [line("  ", row) for row in escape(output).expandtabs(4).split("\n")]
    return [head, *indented([line(("you", row)) for row in more]), *fold(rows, COMMAND_LINES_MAX)]


def notice_line(text: str, *, done: bool = False) -> Line:
    """Line of a notice; lines of the text are joined. `done`: it tells of success, so that it has
    no mark.
    """
    return line(("warn", "" if done else "! "), escape_line(translate(" ".join(text.splitlines()))))


def ended_turn(ended: TurnEndStep) -> list[Line]:
    """Reason of a turn's end, unless it is `done` or `blocked`."""
    if ended.reason in ("done", "blocked"):  # the line of the denied call says it
        return []
    if ended.reason == "interrupted":
        return [
            line(("warn", translate("interrupted")), ("dim", translate("  say what to do instead")))
        ]
    return [
        line(
            ("bad", translate(f"stopped: {ended.reason}")),
            f"  {escape_line(translate(ended.message))}" if ended.message else "",
        )
    ]


def retry_text(pausing: RetryPause, left_s: float) -> str:
    """Reason of a pause, remaining seconds and number of the next attempt."""
    why, left = (
        escape_line(pausing.message or pausing.kind),
        f"{ceil(left_s)} s" if left_s > 0 else "",
    )
    if not pausing.attempt:
        if not left:
            return translate(f"waiting for the provider: {why}")
        return translate(f"waiting {left} for the provider: {why}")
    return translate(
        f"retrying{left and f' in {left}'}, attempt {pausing.attempt + 1} of "
        f"{pausing.attempts_max}: {why}"
    )


def failed_summary(failed: AskFailed) -> list[Line]:
    """Lines of a failed summary request; none when it was cancelled or lost."""
    if failed.kind in ("cancelled", "lost"):
        return []
    why = (failed.message or failed.kind).removeprefix("no summary: ")
    return [
        line(("warn", translate("the model wrote no summary")), ("dim", f"  {escape_line(why)}"))
    ]


def answered_lines(answer: PermissionAnswered, name: str, *, removable: bool = True) -> list[Line]:
    """Lines of a permission answer: each rule as it is stored, and the command that removes it;
    none for a single yes, as the line of the call follows. `removable`: False for the rules of a
    subagent, which no command of this session removes.
    """
    if answer.verdict == "allow" and answer.scope != "once":
        where = "always" if answer.scope == "always" else "for this session"
        rows: list[Line] = []
        for rule in map(escape_line, answer.rule.splitlines()):
            undo = translate(f"/permissions remove {rule} takes it back")
            rows.append(line(("ok", translate(f"allowed {where}")), f"  {rule}"))
            if removable:
                rows.append(line(("dim", f"  {undo}")))
        return rows or [line(("ok", translate(f"allowed {where}")), f"  {name}")]
    if answer.verdict == "deny" and answer.message and answer.by == "user":
        return [line(("bad", translate("no: ")), escape_line(answer.message))]
    return []


class ContextNow(msgspec.Struct, frozen=True):
    """The context after a compaction, and what is known of the one before."""

    state: State
    price: Price | None
    before_tokens: int
    """Tokens of the last request."""
    summary_usd: float
    """Money of the summary."""


def compaction_lines(step: CompactionStep, now: ContextNow | None = None) -> list[Line]:
    """Line of a compaction: tokens, what was put away, why now, and its money; or of its undoing.
    The clearing of the seed policies at each turn is not shown. `now`: None where an old log is
    shown.
    """
    if step.restored is not None:
        count = f"; {tokens(now.state.view_tokens)} tokens now" if now else ""
        what = f"the compaction r{step.restored.undone} is undone; what it put away is shown again"
        return [line(("dim", translate(f"context: {what}{count}")))]
    if step.reason == "micro_compact":
        return []
    what = told = ""
    if (span := step.summarized) is not None:
        how = "" if span.prose or span.reply else " by the records alone, without the model"
        what = told = f"entries {span.first} to {span.last} summarised{how}"
    elif step.cleared is not None:
        items = counted(len(step.cleared.forms), "old item")
        what = f"{items} shortened"
        told = f"{items} shortened, about {tokens(step.cleared.gain_tokens)} tokens freed"
    told, undo = f"{told}: {step.why}", ""
    if now is not None and 0 < now.state.view_tokens < now.before_tokens:
        sizes = f"{tokens(now.before_tokens)} → {tokens(now.state.view_tokens)} tokens"
        told = joined(sizes, f"{what}: {step.why}", _money_of_break(step, now), by="; ")
        undo = ", /uncompact undoes it"
    return [line(("dim", translate(f"context: {told}; every byte can be recalled{undo}")))]


def _money_of_break(step: CompactionStep, now: ContextNow) -> str:
    """Say what a compaction costs once, and what each request saves then; '' without prices. While
    the cache is cold a break costs nothing.
    """
    price, state = now.price or Price(0, 0), now.state
    if step.cleared is not None:
        freed = step.cleared.gain_tokens
        seqs = [whole_number(form.handle[1:].partition(".")[0]) for form in step.cleared.forms]
        first = min(seqs, default=0)
    else:
        freed = now.before_tokens - state.view_tokens
        first = step.summarized.first if step.summarized else 0
    resent = [item.tokens for item in state.items if first <= item.seqs[0] <= state.sent_reach]
    dearer = price.write_usd - price.read_usd if step.reason != "cold" else 0
    break_usd = state.gauge.scale(sum(resent)) * dearer / 1e6
    saved_usd = freed * price.read_usd / 1e6
    parts = (
        f"the summary cost {money(now.summary_usd)}" if now.summary_usd >= USD_MIN else "",
        f"the break costs {money(break_usd)}" if break_usd >= USD_MIN else "",
        f"each further request {money(saved_usd)} less" if saved_usd >= USD_MIN else "",
    )
    return joined(*map(translate, parts))


def todo_lines(todos: Sequence[Todo]) -> list[Line]:
    """Lines of a todo list."""
    marks = {"completed": ("dim", "[x]"), "in_progress": ("run", "[>]")}
    marked = [(*marks.get(todo.status, ("", "[ ]")), escape_line(todo.content)) for todo in todos]
    emptied = [line(("dim", translate("todo list emptied")))]
    return [line((style, f"{mark} {text}")) for style, mark, text in marked] or emptied


def step_lines(step: Step) -> list[Line]:
    """Lines of a step that needs nothing but itself; none for other steps."""
    match step:
        case CompactionStep():
            return compaction_lines(step)
        case BreakStep(rewound=rewound) if rewound:
            return _rewound_lines(rewound)
        case SettingStep(name="todos", todos=todos):
            return todo_lines(todos)
        case SettingStep(name="goal", goal=goal) if goal:
            return [line(("dim", translate("goal ")), goal_line(goal))]
        case SettingStep(name="schedules", schedules=schedules):
            rows = [
                f"{one.id} {escape_line(one.when)}: {escape_line(one.prompt)}" for one in schedules
            ]
            return [line(("dim", translate(f"scheduled: {row}"))) for row in rows] or [
                line(("dim", translate("nothing is scheduled")))
            ]
        case NoticeStep(reminder=reminder) if reminder and reminder.kind == "compact_refused":
            return [notice_line(f"nothing was compacted: {reminder.state}")]
        case SettingStep(name="title", value=title):
            text = f"title: {escape_line(title)}"
        case SettingStep(name="mode", value=mode):
            text = f"mode: {escape_line(mode)}"
        case BreakStep(prefix=prefix) if prefix and prefix.reason == "model":
            text = f"model: {escape_line(prefix.provider)}/{escape_line(prefix.model)}"
        case _:
            return []
    return [line(("dim", translate(text)))]


def _rewound_lines(event: Rewound) -> list[Line]:
    rows = [
        line(
            ("warn", translate("rewound")),
            ("dim", translate(f"  the conversation is again as it was at entry {event.to}")),
        )
    ]
    for put in event.files:
        back = "removed, it is new since then" if put.removed else "put back"
        result = back if put.done else f"left as it is ({escape_line(put.why)})"
        rows.append(line(("dim", f"  {translate(result)}  {escape_line(put.path)}")))
    return rows


def wake_line(source: str) -> Line:
    """Line of a turn that begins by a wake. `source` is the kind of the wake and its handle."""
    kind, _, handle = source.partition(" ")
    reason = WAKES.get(kind, escape_line(kind))
    return line(
        ("run", translate("woken")),
        ("dim", f"  {translate(reason)}" + (f" ({escape_line(handle)})" if handle else "")),
    )
