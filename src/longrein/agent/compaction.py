"""Summaries: asked for beside the work or while the user waits, put in place at a step boundary.

The request repeats what the provider has cached and adds one instruction; what comes back is only prose, never an act.
"""

from collections.abc import Iterator
from hashlib import sha256

import msgspec

from longrein import context
from longrein.agent.model_request import answer
from longrein.agent.session import Session
from longrein.context import (
    FileBlock,
    FileUse,
    Request,
    State,
    Summarise,
    Swap,
    births,
    chunk_requests,
    covering,
    estimate_text,
    event_texts,
    fits_whole,
    merge_request,
    prose_problem,
    render_seed_summary,
    render_summary,
    reserve_usd,
    seed_summarized,
    summarized,
    window_of,
)
from longrein.events import (
    AnyEvent,
    AnyPart,
    Asked,
    AskFailed,
    FileChanged,
    FileSeen,
    LongreinError,
    PrefixSet,
    Reminded,
    Replied,
    Text,
    ToolCall,
    Usage,
    marker,
    text_of,
)
from longrein.models import Model
from longrein.tools import clean

# ---------------------------------------------------------------------------------------------------------------------
#
# After a compaction: the files that matter, read again from disk, so that the work goes on without reading them anew.
#
# What is shown is what stands on disk now, compared by hash with what the model knew. A file that cannot be read is a
# line, never an error.


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
    place = session.crew.workspace.resolve(path, "/")
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


# --- summarising -----------------------------------------------------------------------------------------------------


REEXPANDED_SHARE_MAX = 0.05
"""Of the usable window: lines put back because the steps since have named what they hold."""


async def compact(session: Session, move: Summarise | Swap) -> None:
    """Ask for a summary, or put the one that has come in place."""
    if isinstance(move, Swap):
        _swap(session, move)
    else:
        await _summarise(session, move)


async def _summarise(session: Session, wish: Summarise) -> None:
    """One attempt at a summary: waits for it, or with `wish.beside` lets it come by the inbox.

    Its requests are made now: what is said and done from here on is not what they are about.
    """
    await session.beside.stop(session)
    seq, reserved = _asked(session, wish)
    chosen = None if session.state.profile.startswith("seed") else _chosen(session)
    attempt = _attempt(session, _requests(session, wish, chosen), seq, reserved, chosen)
    if wish.beside:
        session.beside.start(session, attempt, seq, reserved)
    else:
        session.append(await attempt)


def _asked(session: Session, wish: Summarise) -> tuple[int, float]:
    state, budget = session.state, window_of(session.state, session.crew.model.budget)
    plain = wish.beside or state.profile.startswith("seed")
    asked = Asked(
        purpose="summary",
        reach=state.sent_reach if wish.beside else state.seq,
        prefix=state.prefix_seq,
        births=() if plain else births(state, budget),
        estimate_tokens=state.view_tokens,
        reserved_usd=reserve_usd(state, budget, budget.max_output_tokens),
        focus=wish.focus,
        first=wish.first,
        last=wish.last,
        reason=wish.reason,
    )
    seq = session.append(asked)
    session.commit(flush=False)
    return seq, asked.reserved_usd


def _requests(session: Session, wish: Summarise, chosen: Model | None) -> list[Request]:
    """One request for the whole view; several for its parts when the chosen model's window is smaller."""
    state = session.state
    if state.profile.startswith("seed"):
        return [render_seed_summary(state)]
    live = render_summary(state, window_of(state, session.crew.model.budget), wish)
    if chosen is None:
        return [live]
    prefix = _prefix_of(live.prefix, chosen)
    if fits_whole(state, chosen.budget):
        return [msgspec.structs.replace(live, prefix=prefix, max_output_tokens=chosen.budget.max_output_tokens)]
    return chunk_requests(state, chosen.budget, _bare(prefix), wish.focus)


def _prefix_of(prefix: PrefixSet, chosen: Model) -> PrefixSet:
    return msgspec.structs.replace(prefix, provider=chosen.provider, model=chosen.model, wire=chosen.wire)


def _bare(prefix: PrefixSet) -> PrefixSet:
    return msgspec.structs.replace(prefix, system="", tools=(), context=())


async def _attempt(
    session: Session, requests: list[Request], seq: int, reserved: float, chosen: Model | None
) -> Replied | AskFailed:
    """Ask; what is no summary counts as a failed attempt, and the next move decides what then."""
    try:
        return await _joined(session, requests, seq, reserved, chosen)
    finally:
        if chosen is not None:
            await chosen.aclose()


async def _joined(
    session: Session, requests: list[Request], seq: int, reserved: float, chosen: Model | None
) -> Replied | AskFailed:
    """The answer to the one request, or one summary of the answers to all."""
    state, focus = session.state, session.state.summarising.focus if session.state.summarising else ""
    usage, cost, texts = Usage(), 0.0, list[str]()
    while requests:
        outcome = _held_to(session, await answer(session, requests.pop(0), seq, reserved, chosen))
        if isinstance(outcome, AskFailed):
            return msgspec.structs.replace(outcome, assumed_usd=outcome.assumed_usd + cost)
        usage, cost = usage + outcome.usage, cost + outcome.cost_usd
        texts.append(text_of(outcome.parts))
        if not requests and len(texts) > 1 and chosen is not None and state.prefix is not None:
            prefix = _bare(_prefix_of(state.prefix, chosen))
            requests, texts = [merge_request(state, chosen.budget, prefix, texts, focus)], []
    return msgspec.structs.replace(outcome, usage=usage, cost_usd=cost)


def _held_to(session: Session, outcome: Replied | AskFailed) -> Replied | AskFailed:
    """`outcome` when it is a summary, else the failure that it is."""
    if isinstance(outcome, AskFailed):
        return outcome
    prose, calls = text_of(_texts(outcome.parts)), sum(isinstance(p, ToolCall) for p in outcome.parts)
    budget = window_of(session.state, session.crew.model.budget)
    seed = session.state.profile.startswith("seed") and prose.strip()
    problem = "" if seed else prose_problem(session.state, budget, prose, outcome.stop, calls)
    if problem:
        return AskFailed(outcome.asked, "invalid", f"no summary: {problem}", assumed_usd=outcome.cost_usd)
    return _taken(outcome)


def _taken(outcome: Replied) -> Replied:
    return msgspec.structs.replace(outcome, parts=_texts(outcome.parts), blocks=())


def _chosen(session: Session) -> Model | None:
    """The model chosen for summaries; a second attempt goes to the session's own."""
    name = session.crew.compact_model
    if not name or name == session.crew.model.name or session.state.summary_attempts:
        return None
    try:
        return session.crew.open_model(name)
    except LongreinError as error:
        session.notice(f"{error}; this model writes the summary itself")
        return None


def _texts(parts: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
    return tuple(part for part in parts if isinstance(part, Text))


def _swap(session: Session, ready: Swap) -> None:
    """Put a summary that has come in place, with the files that matter as they are on disk now."""
    state, budget = session.state, window_of(session.state, session.crew.model.budget)
    if state.profile.startswith("seed"):
        session.append(seed_summarized(state, budget, ready))
        return
    span = (ready.first, ready.last)
    rebuilt = rebuild(session, ready.last)
    seen = covering(state, span, texts_cleared_since(session, span, ready.asked))
    event = summarized(state, budget, span, ready.reason, ready.prose, (ready.asked,), rebuilt.blocks, seen)
    used = context.reexpanded(state, span, event.text, round(budget.usable_tokens * REEXPANDED_SHARE_MAX))
    session.append(event, *rebuilt.facts_of(event.files))
    if used:
        head = marker(state.nonce, "note", "lines of what was summarised that the steps since have named")
        session.append(Reminded("reexpanded", f"{head}\n{used}", "compaction"))
