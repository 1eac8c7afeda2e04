"""Compaction by a model: request a summary, put it in place, show important files again.

A summary is requested in the background or while the user waits, and put in place at a step
boundary. The request repeats what the provider has cached and adds one instruction; its reply is
used as prose only.
"""

from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from itertools import chain, count
from math import log2

import msgspec

import longrein_context as context
from longrein.agent.dependencies import Dependencies
from longrein.agent.hook_points import after_compaction, refuse_compaction
from longrein.agent.model_request import SummaryRequest, stream_answer
from longrein.agent.redaction import RedactingBlobs
from longrein.agent.session import Session
from longrein.agent.subscribers import History
from longrein.models import Model
from longrein.tools import clean
from longrein_context import (
    Budget,
    Digest,
    FileBlock,
    FileUse,
    Request,
    State,
    Summarise,
    Swap,
    births,
    build_seed_summary,
    build_summary,
    chunk_requests,
    claim_lookup,
    estimate_text,
    event_texts,
    fits_in_window,
    is_useful,
    merge_request,
    prose_problem,
    render_seed_summary,
    render_summary,
    reserve_usd,
    window_of,
)
from longrein_context.events import (
    AnyEvent,
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
    without_sign,
)

# --- Files after a compaction ---------------------------------------------------------------------
#
# Important files are read again from disk, so that the agent need not. The content is compared by
# hash with what the model knew. An unreadable file becomes a line, never an error.


FILES_MAX = 8
"""Files that are shown again."""
SHARE_MAX = 0.10
"""Share of the usable window for all files."""
FILE_SHARE_MAX = 0.04
"""Share of the usable window for one file."""
FILE_TOKENS_MAX = 5_000
"""Limit of tokens for one file."""
TOKENS_MAX = 50_000
"""Limit of tokens for all files."""
FILE_TOKENS_MIN = 60
"""Tokens left below which no further file is shown."""
BYTES_MAX = 2 * 1024 * 1024
"""Limit of a file's size; a larger file is not shown."""
LINE_CHARS_MAX = 1_000
"""A file with a longer line is not shown."""


class RebuiltContext(msgspec.Struct, frozen=True):
    """Files to show again, the most important first."""

    blocks: tuple[FileBlock, ...]
    facts: dict[str, tuple[AnyEvent, ...]]
    """Events for each path."""

    def facts_of(self, shown: tuple[str, ...]) -> tuple[AnyEvent, ...]:
        """Return what changed and what the model has now seen, to append after a `Summarized`
        with these `files`.
        """
        return tuple(
            fact
            for path, facts in self.facts.items()
            for fact in facts
            if path in shown or not isinstance(fact, FileSeen)
        )


def rebuild(state: State, deps: Dependencies, blobs: RedactingBlobs, last: int) -> RebuiltContext:
    """Read the most important files used up to entry `last` again, within the window's budget."""
    budget = window_of(state, deps.model.budget)
    left = min(round(budget.usable_tokens * SHARE_MAX), TOKENS_MAX)
    one = min(round(budget.usable_tokens * FILE_SHARE_MAX), FILE_TOKENS_MAX)
    blocks: list[FileBlock] = []
    facts: dict[str, tuple[AnyEvent, ...]] = {}
    for path, use in ranked(state, last):
        if len(blocks) == FILES_MAX or left < FILE_TOKENS_MIN:
            break
        block, made = _again(state, deps, blobs, path, use, min(one, left))
        if block is not None:
            blocks.append(block)
            facts[path] = made
            left -= state.gauge.scale(estimate_text(block.text + block.note)) + 10
    return RebuiltContext(tuple(blocks), facts)


def texts_cleared_since(
    state: State, history: History, span: tuple[int, int], asked: int
) -> list[str]:
    """Return the texts of `span` if anything was cleared since the summary request at `asked`.

    The audit of the summary must accept what the summariser saw, though the view no longer holds
    it.
    """
    if not any(seq > asked for seq in state.compactions):
        return []
    return [text for entry in history(*span) for text in event_texts(entry.event)]


def ranked(state: State, last: int) -> Iterator[tuple[str, FileUse]]:
    """Yield the files of the ledger, the most important first: often changed, often read, recent.

    The number of uses counts by its logarithm, a late use as much as one more doubling. A file used
    again after entry `last` is still in the conversation and is left out.
    """
    todo = " ".join(t.content for t in state.todos if t.status != "completed")
    said = state.ledger.words[-1].text if state.ledger.words else ""
    uses = [(path, use) for path, use in state.ledger.files.items() if use.seq <= last]
    newest = max((use.seq for _, use in uses), default=1)

    def worth(pair: tuple[str, FileUse]) -> tuple[float, str]:
        path, use = pair
        name = path.rpartition("/")[2]
        named = 1.0 * (name in said) + 0.7 * (name in todo)
        changes = use.changes if use.by in ("agent", "subagent") else 0
        often = 0.8 * log2(1 + changes) + 0.5 * log2(1 + use.reads)
        return -(use.seq / newest + often + named), path

    return iter(sorted(uses, key=worth))


def _again(
    state: State,
    deps: Dependencies,
    blobs: RedactingBlobs,
    path: str,
    use: FileUse,
    tokens: int,
) -> tuple[FileBlock | None, tuple[AnyEvent, ...]]:
    """Read one file as it is now; return its block and events, None for a file not worth a
    block.
    """
    known = state.files.get(path)
    before = use.hash if known is None else known.on_disk
    seen = use.hash if known is None else known.hash
    place = deps.workspace.resolve(path, "/")
    if place.kind == "":
        gone = (FileChanged(path, "", "user", before=before),) if before else ()
        return FileBlock(path, note="it is gone from disk"), gone
    if place.real != path or place.kind != "file":
        return FileBlock(path, note="it is no plain file any more; not read again"), ()
    if place.size_bytes > BYTES_MAX:
        return None, ()
    try:
        data = deps.workspace.read(path)
    except OSError as error:
        return FileBlock(
            path, note=f"it could not be read again: {(error.strerror or str(error)).lower()}"
        ), ()
    digest, text = sha256(data).hexdigest(), _text(data)
    if text is None:
        return None, ()
    shown, whole, note = _page(deps.redact(text), use, tokens, state)
    blob = blobs.put_blob(data) if len(data) <= deps.options.keep_bytes_max else ""
    facts: tuple[AnyEvent, ...] = (FileSeen(path, digest, blob, whole),)
    if digest != before:
        facts = (FileChanged(path, digest, "user", blob, before), *facts)
    told = "changed since you saw it" if digest != seen else ""
    return FileBlock(path, shown, ", ".join(filter(None, (told, note)))), facts


def _text(data: bytes) -> str | None:
    """Return a file's content as text; None for binary content or very long lines."""
    if b"\0" in data[:8192] or not data.strip():
        return None
    text = clean(data)
    return None if max(map(len, text.split("\n"))) > LINE_CHARS_MAX else text


def _page(text: str, use: FileUse, tokens: int, state: State) -> tuple[str, bool, str]:
    """Return (numbered lines, True if complete, note).

    All lines if they fit, else as many as fit from the line read last.
    """
    lines = text.removesuffix("\n").split("\n")
    per_line = max(1.0, state.gauge.scale(estimate_text(_numbered(lines, 1))) / len(lines))
    room = max(1, int(tokens * 0.9 / per_line))
    if len(lines) <= room:
        return _numbered(lines, 1), True, ""
    first = min(max(1, use.lines[0]), len(lines) - room + 1)
    while (
        room > 1
        and state.gauge.scale(estimate_text(_numbered(lines[first - 1 : first - 1 + room], first)))
        > tokens
    ):
        room = room * 3 // 4
    last = first + room - 1
    return (
        _numbered(lines[first - 1 : last], first),
        False,
        f"lines {first} to {last} of {len(lines)}",
    )


def _numbered(lines: list[str], first: int) -> str:
    """Number lines as `Read` does."""
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))


# --- Summaries ------------------------------------------------------------------------------------


REEXPANDED_SHARE_MAX = 0.05
"""Share of the usable window for summarised lines that later steps have named."""


async def compact(session: Session, move: Summarise | Swap | Digest) -> None:
    """Put a finished summary in place, or request one: wait for it, or with `beside` let it run in
    the background.

    The requests are rendered now, so they do not include anything that is said or done later. A
    digest, which needs no model, is put in place even where a hook refuses it, unless the user has
    asked for it: the window is full.
    """
    if isinstance(move, Digest):
        made = move.event
        if await refuse_compaction(session, made.reason, ""):
            if made.reason == "request":
                return
            session.notice(
                "the window is full, so it is made smaller all the same, without a model"
            )
        session.append(made)
        await after_compaction(session, made.reason, made.text)
        return
    if isinstance(move, Swap):
        _swap(session, move)
        if not session.state.profile.startswith("seed"):
            await after_compaction(session, move.reason, move.prose)
        return
    if await refuse_compaction(session, move.reason, move.focus):
        return
    await session.part(SummaryRequest).stop()
    seq, reserved = _asked(session, move)
    chosen = None if session.state.profile.startswith("seed") else _chosen(session)
    attempt = _attempt(
        session,
        _requests(session.state, session.deps.model.budget, move, chosen),
        seq,
        reserved,
        chosen,
    )
    if move.beside:
        session.part(SummaryRequest).start(attempt, seq, reserved)
    else:
        session.append(await attempt)


def _asked(session: Session, wish: Summarise) -> tuple[int, float]:
    state, budget = session.state, window_of(session.state, session.deps.model.budget)
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


def _requests(state: State, budget: Budget, wish: Summarise, chosen: Model | None) -> list[Request]:
    """Build one request for the whole view, or several for parts when the chosen model's window
    is smaller.
    """
    if state.profile.startswith("seed"):
        return [render_seed_summary(state)]
    live = render_summary(state, window_of(state, budget), wish)
    if chosen is None:
        return [live]
    prefix = msgspec.structs.replace(
        live.prefix, provider=chosen.provider, model=chosen.model, wire=chosen.wire
    )
    if fits_in_window(state, chosen.budget):
        return [
            msgspec.structs.replace(
                live, prefix=prefix, max_output_tokens=chosen.budget.max_output_tokens
            )
        ]
    return chunk_requests(state, chosen.budget, _bare(prefix, chosen), wish.focus)


def _bare(prefix: PrefixSet, chosen: Model) -> PrefixSet:
    """Return a prefix for `chosen` without texts."""
    names = {"provider": chosen.provider, "model": chosen.model, "wire": chosen.wire}
    return msgspec.structs.replace(prefix, system="", tools=(), context=(), **names)


async def _attempt(
    session: Session, requests: list[Request], seq: int, reserved: float, chosen: Model | None
) -> Replied | AskFailed:
    """Return the reply to a single request, or one summary merged from several; closes `chosen`."""
    state, focus = (
        session.state,
        session.state.summarising.focus if session.state.summarising else "",
    )
    usage = Usage()
    cost = 0.0
    texts = list[str]()
    try:
        while requests:
            answer = await stream_answer(session, requests.pop(0), seq, reserved, chosen)
            outcome = _checked(session.state, session.deps.model.budget, answer)
            if isinstance(outcome, AskFailed):
                return msgspec.structs.replace(outcome, assumed_usd=outcome.assumed_usd + cost)
            usage, cost = usage + outcome.usage, cost + outcome.cost_usd
            texts.append(text_of(outcome.parts))
            if not requests and len(texts) > 1 and chosen is not None and state.prefix is not None:
                requests, texts = (
                    [
                        merge_request(
                            state, chosen.budget, _bare(state.prefix, chosen), texts, focus
                        )
                    ],
                    [],
                )
        return msgspec.structs.replace(outcome, usage=usage, cost_usd=cost)
    finally:
        if chosen is not None:
            await chosen.aclose()


def _checked(state: State, budget: Budget, outcome: Replied | AskFailed) -> Replied | AskFailed:
    """Return the texts of a usable summary; a reply that is no summary counts as a failed
    attempt.
    """
    if isinstance(outcome, AskFailed):
        return outcome
    texts = tuple(part for part in outcome.parts if isinstance(part, Text))
    prose, calls = text_of(texts), sum(isinstance(part, ToolCall) for part in outcome.parts)
    budget = window_of(state, budget)
    seed = state.profile.startswith("seed") and prose.strip()
    problem = "" if seed else prose_problem(state, budget, prose, outcome.stop, calls)
    if problem:
        return AskFailed(
            outcome.asked, "invalid", f"no summary: {problem}", assumed_usd=outcome.cost_usd
        )
    return msgspec.structs.replace(outcome, parts=texts, blocks=())


def _chosen(session: Session) -> Model | None:
    """Open the model chosen for summaries; None for the session's own, also for a second
    attempt.
    """
    name = session.deps.compact_model
    if not name or name == session.deps.model.name or session.state.summary_attempts:
        return None
    try:
        return session.deps.open_model(name)
    except LongreinError as error:
        session.notice(f"{error}; this model writes the summary itself")
        return None


def _write_transcript(state: State, deps: Dependencies) -> str:
    """Write the transcript of the `seed` profiles to `.transcripts` in the project's folder; return
    its path there, '' if it cannot be written.
    """
    stem = f".transcripts/transcript_{deps.clock.wall_us() // 1_000_000}"
    for name in chain([f"{stem}.jsonl"], (f"{stem}-{number}.jsonl" for number in count(2))):
        place = deps.workspace.resolve(name, state.roots[0])
        if place.kind == "":
            break
    if place.real != f"{state.roots[0]}/{name}":  # a link leads somewhere else
        return ""
    try:
        text = without_sign(context.transcript_lines(state), state.nonce)
        deps.workspace.replace(place.real, text.encode(), expect="")
    except OSError:
        return ""
    return name


def _swap(session: Session, ready: Swap) -> None:
    """Put a finished summary in place, with the important files as they are on disk now."""
    state, budget = session.state, window_of(session.state, session.deps.model.budget)
    if state.profile.startswith("seed"):
        session.append(
            build_seed_summary(state, budget, ready, _write_transcript(state, session.deps))
        )
        return
    span = (ready.first, ready.last)
    rebuilt = rebuild(state, session.deps, session.blobs, ready.last)
    seen = claim_lookup(
        state, span, texts_cleared_since(state, session.log.history, span, ready.asked)
    )
    made = partial(build_summary, state, budget, span, ready.reason, ready.prose, (ready.asked,))
    event = made(rebuilt.blocks, seen)
    if not is_useful(state, budget, event):
        event = made()  # files are shown again only where there is room for them
    used = context.reexpand_lines(
        state, span, event.text, round(budget.usable_tokens * REEXPANDED_SHARE_MAX)
    )
    session.append(event, *rebuilt.facts_of(event.files))
    if used:
        head = marker(
            state.nonce, "note", "lines of what was summarised that the steps since have named"
        )
        session.append(Reminded("reexpanded", f"{head}\n{used}", "compaction"))
