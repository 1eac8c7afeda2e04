"""Summaries: asked for beside the work or while the user waits, put in place at a step boundary.

The request repeats what the provider has cached and adds one instruction; what comes back is only prose, never an act.
"""

import msgspec

from longrein import context
from longrein.agent.asking import answer
from longrein.agent.rebuilding import rebuild, texts_cleared_since
from longrein.agent.session import Session
from longrein.context import (
    Request,
    Summarise,
    Swap,
    births,
    chunk_requests,
    covering,
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
    AnyPart,
    Asked,
    AskFailed,
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
