"""Lines of tool calls: their state, figures, output and changes. Pure."""

from collections.abc import Sequence
from typing import Any

from longrein.frontends.localization import translate
from longrein.frontends.terminal.event_lines import (
    NO_WRAP,
    Line,
    counts,
    fold,
    indented,
    line,
    only_changes,
    status_word,
)
from longrein.frontends.terminal.shell_syntax import shell_lines
from longrein.steps import CallStep
from longrein.steps.call_results import SHELL, LastLines, last_lines, result_figures
from longrein.steps.human_text import (
    counted,
    elapsed,
    escape,
    escape_line,
    for_people,
    joined,
    key_argument,
)
from longrein_context.events import ToolEnded, text_of

FAILED_LINES_MAX = 4
DIFF_LINES_MAX = 24


def call_line(name: str, argument: str, status: str, time: str, mark: str = "●") -> Line:
    """Line of a call. The status comes before the argument, so that cropping never hides it."""
    word, style = status_word(status)
    state = f" {word} {time}" if time else f" {word}"
    shown: Line = (("", argument),)
    if name == "Bash" and argument:
        shown = shell_lines(argument)[0]
    return line(
        NO_WRAP,
        (style, f"{mark} "),
        ("name", escape_line(name)),
        (style, state),
        *((("", "  "), *shown) if argument else ()),
    )


def ended_lines(
    end: ToolEnded,
    arguments: dict[str, Any] | None,
    change: Sequence[Line],
    kind: str = "",
    stated: str = "",
) -> list[Line]:
    """Lines of an ended call: its line, the end of a command's output, the beginning of another
    error, the user's answers, the diff of an edit.

    `kind`: of the tool; `stated`: of `key_argument`.
    """
    figures = translate(escape_line(result_figures(end, arguments, kind)))
    time, below = joined(figures, elapsed(end.elapsed_ms / 1000)), list[Line]()
    if end.status == "ok" and change:
        time = f"{time} {counts(change)}".strip()
        below = fold(only_changes(change), DIFF_LINES_MAX)
    elif kind == SHELL:
        below = _output_lines(last_lines(end))
    elif end.status in ("failed", "interrupted") or end.name == "AskUserQuestion":
        text = escape(for_people(text_of(end.parts)[:4_000])).expandtabs(4)
        rows = [line(NO_WRAP, ("dim", row)) for row in text.split("\n") if row.strip()]
        below = fold(rows, DIFF_LINES_MAX if end.status == "ok" else FAILED_LINES_MAX)
    return [
        call_line(end.name, key_argument(arguments, stated), end.status, time),
        *indented(below),
    ]


def _output_lines(output: LastLines) -> list[Line]:
    above = translate(f"… {counted(output.hidden, 'line')} above")
    return [
        *([line(NO_WRAP, ("dim", above))] if output.hidden else []),
        *(line(NO_WRAP, ("dim", for_people(row))) for row in output.rows),
    ]


def lookup_text(look: CallStep, arguments: dict[str, Any] | None) -> str:
    """Return the subject of a read or a search, with its figures."""
    subject = key_argument(arguments)
    figures = result_figures(look.ended, arguments, look.kind) if look.ended else ""
    return f"{subject} ({translate(figures)})" if figures else subject


def lookups_line(looks: Sequence[CallStep], subjects: Sequence[str]) -> Line:
    """Line of several reads and searches in a row."""
    reads = sum(look.kind != "search" for look in looks)
    searches = len(looks) - reads
    name = joined(
        translate(counted(reads, "read")) if reads else "",
        translate(counted(searches, "search")) if searches else "",
    )
    span = f"{looks[0].handle}-{looks[-1].handle}"
    return call_line(name, ", ".join(subjects), "ok", span)
