"""After a compaction: the files that matter, read again from disk, so that the work goes on without reading them anew.

What is shown is what stands on disk now, compared by hash with what the model knew. A file that cannot be read is a
line, never an error.
"""

from collections.abc import Iterator
from hashlib import sha256

import msgspec

from longrein.agent.session import Session
from longrein.context import FileBlock, FileUse, State, estimate_text, event_texts, window_of
from longrein.events import AnyEvent, FileChanged, FileSeen
from longrein.tools import clean

FILES_MAX = 8
"""Files that are put back."""
SHARE_MAX = 0.10
"""Of the usable window, for all of them."""
FILE_SHARE_MAX = 0.04
"""Of the usable window, for one."""
FILE_TOKENS_MAX = 5_000
"""And its ceiling in tokens."""
TOKENS_MAX = 50_000
"""Ceiling for all."""
FILE_TOKENS_MIN = 60
"""With less room than this nothing is put back."""
BYTES_MAX = 2 * 1024 * 1024
"""A larger file is only named."""
LINE_CHARS_MAX = 1_000
"""A file with a longer line is no text that one works on."""


class Rebuilt(msgspec.Struct, frozen=True):
    """What there is to put back, best first."""

    blocks: tuple[FileBlock, ...] = ()
    """For `summarized(files=…)`."""
    facts: dict[str, tuple[AnyEvent, ...]] = {}
    """What each path's block makes true; see `facts_of`."""

    def facts_of(self, shown: tuple[str, ...]) -> tuple[AnyEvent, ...]:
        """To append after the `Summarized` whose `files` are `shown`: what changed, and what the model has now seen."""
        return tuple(
            fact
            for path, facts in self.facts.items()
            for fact in facts
            if path in shown or not isinstance(fact, FileSeen)
        )


def rebuild(session: Session, last: int) -> Rebuilt:
    """Read again what matters of the files last used up to entry `last`, within the budget of this window."""
    state = session.state
    budget = window_of(state, session.crew.model.budget)
    left = min(round(budget.usable_tokens * SHARE_MAX), TOKENS_MAX)
    one = min(round(budget.usable_tokens * FILE_SHARE_MAX), FILE_TOKENS_MAX)
    blocks: list[FileBlock] = []
    facts: dict[str, tuple[AnyEvent, ...]] = {}
    for path, use in ranked(state, last):
        if len(blocks) == FILES_MAX or left < FILE_TOKENS_MIN:
            break
        block, made = _again(session, path, use, min(one, left))
        if block is not None:
            blocks.append(block)
            facts[path] = made
            left -= state.gauge.scale(estimate_text(block.text + block.note)) + 10
    return Rebuilt(tuple(blocks), facts)


def texts_cleared_since(session: Session, span: tuple[int, int], asked: int) -> list[str]:
    """What the summariser that was asked at entry `asked` saw of `span` and the view may not hold any more.

    Nothing, unless something was cleared since; the audit of its prose must not strike what was there.
    """
    if not any(seq > asked for seq in session.state.compactions):
        return []
    return [text for entry in session.crew.history(*span) for text in event_texts(entry.event)]


def ranked(state: State, last: int) -> Iterator[tuple[str, FileUse]]:
    """Files of the ledger, the one most worth having first: what was changed, lately, and often.

    One that was used again after entry `last` still stands in the conversation and is left out.
    """
    todo = " ".join(t.content for t in state.todos if t.status != "completed")
    said = state.ledger.words[-1].text if state.ledger.words else ""
    uses = [(path, use) for path, use in state.ledger.files.items() if use.seq <= last]
    newest = max((use.seq for _, use in uses), default=1)

    def worth(pair: tuple[str, FileUse]) -> tuple[float, str]:
        path, use = pair
        name = path.rpartition("/")[2]
        named = 1.0 * (name in said) + 0.7 * (name in todo)
        edited = min(use.changes, 4) * 0.4 if use.by in ("agent", "subagent") else 0.0
        return -(2.0 * use.seq / newest + edited + min(use.reads, 4) * 0.1 + named), path

    return iter(sorted(uses, key=worth))


def _again(session: Session, path: str, use: FileUse, tokens: int) -> tuple[FileBlock | None, tuple[AnyEvent, ...]]:
    """One file as it is now, and the facts that follow. None when there is nothing to say of it."""
    known = session.state.files.get(path)
    before = use.hash if known is None else known.hash if known.disk is None else known.disk
    seen = before if known is None else known.hash
    place = session.crew.workspace.look(path, "/")
    if place.kind == "":
        gone = (FileChanged(path, "", "user", before=before),) if before else ()
        return FileBlock(path, note="it is gone from disk"), gone
    if place.real != path or place.kind != "file":
        return FileBlock(path, note="it is no plain file any more; not read again"), ()
    if place.size_bytes > BYTES_MAX:
        return None, ()
    try:
        data = session.crew.workspace.read(path)
    except OSError as error:
        return FileBlock(path, note=f"it could not be read again: {(error.strerror or str(error)).lower()}"), ()
    digest, text = sha256(data).hexdigest(), _text(data)
    if text is None:
        return None, ()
    shown, whole, note = _page(session.crew.redact(text), use, tokens, session.state)
    blob = session.blobs.put_blob(data) if len(data) <= session.crew.options.keep_bytes_max else ""
    facts: tuple[AnyEvent, ...] = (FileSeen(path, digest, blob, whole),)
    if digest != before:
        facts = (FileChanged(path, digest, "user", blob, before), *facts)
    told = "changed since you saw it" if digest != seen else ""
    return FileBlock(path, shown, ", ".join(filter(None, (told, note)))), facts


def _text(data: bytes) -> str | None:
    """A file's content as text; None for what is no text to work on."""
    if b"\0" in data[:8192] or not data.strip():
        return None
    text = clean(data)
    return None if max(map(len, text.split("\n"))) > LINE_CHARS_MAX else text


def _page(text: str, use: FileUse, tokens: int, state: State) -> tuple[str, bool, str]:
    """(numbered lines, whether that is all, note): all if it fits, else from the line read last as far as it goes."""
    lines = text.removesuffix("\n").split("\n")
    per_line = max(1.0, state.gauge.scale(estimate_text(_numbered(lines, 1))) / len(lines))
    room = max(1, int(tokens * 0.9 / per_line))
    if len(lines) <= room:
        return _numbered(lines, 1), True, ""
    first = min(max(1, use.lines[0]), len(lines) - room + 1)
    while room > 1 and state.gauge.scale(estimate_text(_numbered(lines[first - 1 : first - 1 + room], first))) > tokens:
        room = room * 3 // 4
    last = first + room - 1
    return _numbered(lines[first - 1 : last], first), False, f"lines {first} to {last} of {len(lines)}"


def _numbered(lines: list[str], first: int) -> str:
    """As `Read` shows them."""
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))
