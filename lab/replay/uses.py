"""Uses in a recorded session: what an output takes from earlier items, whatever a policy shows of
them.

An identifier or line that an output shares with something earlier is a use. The old text of an edit
is another kind: the model must have it whole, in one place.
"""

import re
from typing import NamedTuple

import msgspec

from lab.replay.recording import Item, Recording
from longrein_context import call_content, features
from longrein_context.events import decode_object

_LINE_NUMBER = re.compile(r"^\s*\d+(?:→|\t|\||:|- )\s?", re.MULTILINE)


class Use(NamedTuple):
    """Use of an identifier or line by the output of a request."""

    name: str
    """Lines begin with a newline."""
    source: int
    """Position of the newest earlier item that holds it."""
    tool_only: bool
    """True if only tool results held it before."""


class EditUse(NamedTuple):
    """Old text of an edit, of two lines or more."""

    text: str
    sources: tuple[int, ...]
    """Positions of the earlier items that hold it whole."""


class Uses(msgspec.Struct, frozen=True):
    """All uses of a session. The lists have one element for each request."""

    named: list[list[Use]]
    edits: list[list[EditUse]]
    names: list[dict[str, None]]
    """For each item the identifiers and lines in it that are used at any time."""
    known: frozenset[str]
    """All identifiers and lines that are used at any time."""


def content_of(item: Item) -> str:
    """Return the text in which uses are looked for."""
    return call_content(item.text) if item.kind == "tool_call" else item.text


def plain_block(text: str) -> str:
    """Return a text without line numbers and indentation, so that an edit's old text is found in
    a numbered read.
    """
    return "\n".join(line.strip() for line in _LINE_NUMBER.sub("", text).split("\n"))


def find_uses(recording: Recording) -> Uses:
    """Find all uses of a session."""
    items, names = recording.items, [features(content_of(item)) for item in recording.items]
    named: list[list[Use]] = [[] for _ in range(recording.requests)]
    newest: dict[str, int] = {}
    tool_only: dict[str, bool] = {}
    first = 0
    while first < len(items):
        last, used = first + 1, dict[str, None]()
        if items[first].output:
            while (
                last < len(items)
                and items[last].output
                and items[last].request == items[first].request
            ):
                last += 1
            for place in range(first, last):
                used |= {} if items[place].thinking else names[place]
        named[items[first].request] += [
            Use(n, newest[n], tool_only[n]) for n in used if n in newest
        ]
        for place in range(first, last):
            is_result = items[place].kind == "tool_result"
            for name in names[place]:
                newest[name] = place
                tool_only[name] = is_result and tool_only.get(name, True)
        first = last
    known = frozenset(use.name for uses in named for use in uses)
    return Uses(
        named, _edits(recording), [{n: None for n in found if n in known} for found in names], known
    )


def _edits(recording: Recording) -> list[list[EditUse]]:
    edits: list[list[EditUse]] = [[] for _ in range(recording.requests)]
    blocks: list[str] = []
    start, request = 0, -1
    for place, item in enumerate(recording.items):
        if item.output and item.request != request:
            start, request = place, item.request
        if item.kind == "tool_call":
            for old in _old_texts(item.text):
                sources = tuple(n for n in range(start) if old in blocks[n])
                if sources:
                    edits[item.request].append(EditUse(old, sources))
        blocks.append(plain_block(content_of(item)))
    return edits


def _old_texts(arguments: str) -> list[str]:
    value = decode_object(arguments)
    if value is None:
        return []
    more = value.get("edits")
    edits = [
        value,
        *(one for one in (more if isinstance(more, list) else ()) if isinstance(one, dict)),
    ]
    olds = [old for edit in edits if isinstance(old := edit.get("old_string"), str) and "\n" in old]
    return [plain for old in olds if (plain := plain_block(old).strip())]
