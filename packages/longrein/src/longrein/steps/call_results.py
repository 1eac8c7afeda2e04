"""Results of calls in short: counts of searches and reads, exit code and last lines of a command.
Pure.

The figures are read from the result, so that old logs have them too.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.steps.human_text import counted, escape
from longrein_context.events import AnyPart, Document, Text, ToolEnded

LOOKUPS = ("read", "search")
"""Kinds of tools that only look; such calls in a row are told as one group."""
SHELL = "shell"
"""Kind of tools whose result is the output of a command."""
ROWS_OF_SUCCESS, ROWS_OF_FAILURE = 3, 8
"""Last lines that are shown of a command's output."""
CHARS_MAX = 200_000
"""Characters of a result that are counted and shown at most, from its end."""

_EXIT = r"\[exit code (\d{1,3})(?: \((.*)\))?\]"
_NUMBERED = r"(?m)^ *(\d{1,9})\t"
_PLACE = r"\[lines (\d{1,9})-(\d{1,9})(?: of (\d{1,9})[;\]]|, the end of the file\])"
_HIT = r"\d+:"
_NOTES = ("[there is more:", "[not everything was searched:", "[lines of files that changed")
_COUNT = r".*: (\d{1,9})$"


class LastLines(msgspec.Struct, frozen=True):
    """The last lines of an output."""

    rows: Sequence[str]
    """Escaped."""
    hidden: int = 0
    """Number of lines above them."""


def result_text(parts: Sequence[AnyPart]) -> str:
    """Text of a result; of a long one its two ends."""
    texts = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, Document):
            texts += [part.head, part.tail]
    return "\n".join(filter(None, texts))


def result_figures(end: ToolEnded, arguments: dict[str, Any] | None, kind: str) -> str:
    """Return the figures of a result: `12 hits in 4 files`, `40–80 of 1,565`, `exit 3`; '' where
    nothing is to be said. `kind`: of the tool.
    """
    text = result_text(end.parts)[-CHARS_MAX:]
    if kind == SHELL:
        found = re.search(_EXIT, text[-2_000:])
        if found is None or end.status == "ok":
            return ""
        return f"exit {found[1]}" + (f": {found[2]}" if found[2] else "")
    if end.status != "ok":
        return ""
    if kind == "read":
        return _lines_read(text)
    if kind == "search" and "pattern" in (arguments or {}):
        return _hits(text, (arguments or {}).get("output_mode"))
    return ""


def _lines_read(text: str) -> str:
    place = re.search(_PLACE, text[-500:])
    numbers = re.findall(_NUMBERED, text)
    if place:
        total = int(place[3] or place[2])
        return f"{int(place[1]):,}–{int(place[2]):,} of {total:,}"
    if not numbers:
        return ""
    if int(numbers[0]) > 1:
        return f"{int(numbers[0]):,}–{int(numbers[-1]):,}"
    return counted(len(numbers), "line")


def _hits(text: str, mode: object) -> str:
    rows, more = _found_rows(text)
    if mode == "content":
        blocks = [block.split("\n") for block in text.split("\n\n")] if rows else []
        hits = sum(bool(re.match(_HIT, row)) for block in blocks for row in block[1:])
        files = len(blocks)
    elif mode == "count":
        counts = [int(found[1]) for row in rows if (found := re.match(_COUNT, row))]
        hits, files = sum(counts), len(counts)
    else:
        hits, files = 0, len(rows)
    if not files:
        return "nothing found"
    more_than = "more than " * more
    places = counted(files, "file")
    return f"{more_than}{counted(hits, 'hit')} in {places}" if hits else more_than + places


def _found_rows(text: str) -> tuple[list[str], bool]:
    """Rows of a search without its notes, and whether there are more."""
    more = "\n[there is more:" in text
    rows = [row for row in text.split("\n") if row and not row.startswith(_NOTES)]
    return [row for row in rows if row != "Nothing found."], more


def last_lines(end: ToolEnded) -> LastLines:
    """The last lines of a command's output, more of one that failed."""
    if end.status in ("denied", "not_run"):
        return LastLines(())
    parts = [part for part in end.parts if isinstance(part, Text | Document)]
    text = result_text(parts)
    rows = [row for row in escape(text[-CHARS_MAX:]).expandtabs(4).split("\n") if row.strip()]
    rows = [row for row in rows if not re.fullmatch(_EXIT, row) and row != "(no output)"]
    most = ROWS_OF_SUCCESS if end.status == "ok" else ROWS_OF_FAILURE
    shown = rows[-most:]
    total = max(len(rows), *(part.lines for part in parts if isinstance(part, Document)), 0)
    return LastLines(shown, total - len(shown))
