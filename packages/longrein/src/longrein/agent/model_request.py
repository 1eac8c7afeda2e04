"""Model requests: send one, stream its deltas to subscribers, append `Replied` or `AskFailed`."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from itertools import accumulate, chain, count
from typing import Any

import msgspec

from longrein.agent.messages import ReplyDelta, RetryPause
from longrein.agent.session import SNAPSHOT_EVERY, Session
from longrein.agent.session_part import SessionPart
from longrein.models import (
    ATTEMPTS_MAX,
    TEXT_WIRE,
    CallDelta,
    Delta,
    Failure,
    Model,
    Reply,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
    cost_usd,
    settled_usage,
)
from longrein.permissions import rule_tool
from longrein.tools import Tool, own_calls
from longrein_context import (
    Request,
    State,
    births,
    births_gain,
    estimate_part,
    render,
    request_tokens,
    reserve_usd,
    window_of,
)
from longrein_context.events import (
    TOO_DEEP,
    AnyPart,
    Asked,
    AskFailed,
    ProviderBlock,
    Replied,
    Text,
    Thinking,
    ToolCall,
    Usage,
    call_id,
    is_too_deep,
)

MEANWHILE_S = 0.1
"""Age of a request at which a snapshot is written and commands are prepared, while the model
works.
"""
CUT_SHARE = 0.6
"""A server that counts less than this share of the estimate drops part of the prompt. No tokenizer
of a local model is so far from the estimate."""
CUT_TOKENS_MIN = 2_000
"""The estimate of a smaller request may be wrong by as much."""
CALL_MARKS = ("{", "<invoke", "functions.")
"""One of these is in each text that holds a call."""
TOLD_WAIT_S = 1.0
"""A shorter wait for the provider is not announced."""


async def request_turn(
    session: Session, usd_left: float | None, tokens_left: int | None = None
) -> None:
    """Make the next request of purpose `turn`.

    When it is interrupted, what has come so far is kept (DESIGN: stopping in the middle).
    """
    await _wait_for_turn(session)
    state, model = session.state, session.deps.model
    budget = window_of(state, model.budget)
    forms = births(state, budget)
    probe = render(state, budget, usd_left, tokens_left)
    asked = Asked(
        purpose="turn",
        reach=state.seq,
        prefix=state.prefix_seq,
        births=forms,
        estimate_tokens=state.view_tokens - births_gain(state, forms),
        reserved_usd=reserve_usd(state, budget, probe.max_output_tokens),
    )
    seq = session.append(asked)
    session.commit(flush=False)
    request = (
        msgspec.structs.replace(probe, items=render(session.state, budget).items)
        if forms
        else probe
    )
    known, refused = session.state.gauge.ceiling, session.state.refused_raw
    meanwhile = asyncio.get_running_loop().call_later(MEANWHILE_S, _work_meanwhile, session)
    outcome = await stream_answer(session, request, seq, asked.reserved_usd)
    meanwhile.cancel()
    session.deps.rate_limit.heard(model.provider, outcome, session.deps.clock.mono_s())
    session.append(outcome)
    ceiling = session.state.gauge.ceiling
    if ceiling != known:
        session.notice(
            f"the provider counts no more than {ceiling} tokens: it drops what is beyond, so that "
            "is the window"
        )
    if session.state.refused_raw not in (0, refused):
        session.notice(
            f"the provider found about {asked.estimate_tokens} tokens too long and named no limit: "
            "the window counts as smaller than that from now on"
        )
    session.paused_failures = 0 if session.state.failures == 0 else session.paused_failures


def _work_meanwhile(session: Session) -> None:
    """Write a snapshot; prepare a command where one may run without a question."""
    session.keep_snapshot(due=SNAPSHOT_EVERY)
    if session.mode == "bypassPermissions":
        unasked: Iterable[str] = session.deps.tools
    elif session.mode != "plan":
        unasked = map(rule_tool, session.rules.allow)
    else:
        unasked = ()
    for name in unasked:
        session.expect(name)


async def _wait_for_turn(session: Session) -> None:
    """Wait until the provider takes a request again; commit first, and announce a long wait."""
    wait_s, refusal = session.deps.rate_limit.take_turn(
        session.deps.model.provider, session.deps.clock.mono_s()
    )
    if wait_s <= 0:
        return
    await session.commit(flush=False)
    if refusal is not None and wait_s >= TOLD_WAIT_S and session.state.failures == 0:
        session.subscribers.publish(retry_pause(refusal, 0, wait_s))
    await session.deps.clock.sleep(wait_s)


def retry_pause(failure: AskFailed, attempt: int, delay_s: float) -> RetryPause:
    """Build the notice that no request is made for `delay_s` seconds after `attempt` failures."""
    return RetryPause(
        failure.asked,
        failure.kind,
        failure.status,
        attempt,
        failure.attempts_max or ATTEMPTS_MAX,
        delay_s,
        failure.message,
    )


async def stream_answer(
    session: Session, request: Request, seq: int, reserved_usd: float, model: Model | None = None
) -> Replied | AskFailed:
    """Stream the answer to `Asked` `seq` from `model` (None: the session's); interrupted, return
    what has come.
    """
    heard: list[Delta] = []
    final: Delta | None = None
    model, shown = (
        model or session.deps.model,
        session.subscribers.streaming and session.delta_redactor(),
    )
    try:
        async for batch in model.stream(request):
            final = batch[-1]
            heard += batch
            if type(batch[0]) is CallDelta and batch[0].name:
                session.expect(batch[0].name)
            if shown and (clean := shown.take(batch)):
                session.subscribers.publish(ReplyDelta(seq, clean, request.purpose))
    except asyncio.CancelledError:
        if not session.interrupting:
            raise
        return _cut(session, model, request, heard, seq, reserved_usd)
    match final:
        case Reply():
            final = _with_calls_in_text(session.state, session.deps.tools, request, final)
            usage, estimated = _settled(session.state, model, request, final.usage, final.parts)
            _tell_cut(session, model, request, final.usage)
            cost = _cost(model, usage, reserved_usd, session.deps.limits.usd_max)
            groups = _own_parts(final.parts, session.deps.tools)
            parts = _numbered(chain.from_iterable(groups), seq)
            starts = [0, *accumulate(map(len, groups))]
            blocks = tuple(
                msgspec.structs.replace(one, part=starts[one.part]) for one in final.blocks
            )
            return Replied(seq, parts, final.stop, usage, blocks, cost, final.model, estimated)
        case Failure():
            return _failed(session, model, request, final, seq, reserved_usd)
        case _:
            return AskFailed(
                seq,
                "truncated",
                "the model's stream ended without an end",
                assumed_usd=reserved_usd,
            )


def _with_calls_in_text(
    state: State, tools: Mapping[str, Tool], request: Request, reply: Reply
) -> Reply:
    """Return `reply` with the calls that its text is. A model that calls tools natively means no
    call by a text that looks like one; it is told.
    """
    if request.purpose != "turn" or reply.stop != "end":
        return reply
    text = "\n".join(part.text for part in reply.parts if isinstance(part, Text))
    if not any(mark in text for mark in CALL_MARKS):
        return reply
    from longrein.tools.calls_in_text import read_text_calls

    listed = {spec.name for spec in request.prefix.tools}
    offered = {name: tool for name, tool in tools.items() if name in listed}
    calls, is_last, fits = read_text_calls(text, offered)
    is_native = request.prefix.model in state.native_callers
    is_example = state.call_hint_given and not (is_last and calls[0].name in offered)
    if not calls or (not fits and (is_native or is_example)):
        return reply
    if is_native or not fits:
        return msgspec.structs.replace(reply, stop="calls_in_text")
    parts = (*reply.parts, *(own for call in calls for own in own_calls(call, tools)))
    blocks = (
        ProviderBlock(part, TEXT_WIRE, reply.model, '""')
        for part in range(len(reply.parts), len(parts))
    )
    return msgspec.structs.replace(
        reply, parts=parts, blocks=(*reply.blocks, *blocks), stop="calls_in_text"
    )


def _settled(
    state: State, model: Model, request: Request, told: Usage, parts: Sequence[AnyPart]
) -> tuple[Usage, tuple[str, ...]]:
    """Return the usage, and which sides of it are estimates.

    Hidden thinking is assumed to use the whole output limit.
    """
    hidden = any(isinstance(part, Thinking) and not part.text for part in parts)
    output = (
        request.max_output_tokens if hidden else state.gauge.scale(sum(map(estimate_part, parts)))
    )
    guess = Usage(request_tokens(state, request), output_tokens=output)
    return settled_usage(told, guess, model.budget.window_tokens, request.max_output_tokens)


def _tell_cut(session: Session, model: Model, request: Request, told: Usage) -> None:
    """Notify the user, once, of a server of their own that drops part of the prompt and says
    nothing.
    """
    counted = told.context_tokens
    if session.has_told_cut or not model.budget.reads_free or counted <= 0:
        return
    sent = request_tokens(session.state, request)
    if sent < CUT_TOKENS_MIN or counted >= CUT_SHARE * sent:
        return
    session.has_told_cut = True
    session.notice(
        f"{model.name} counted {counted:,} of about {sent:,} input tokens: its server drops the "
        "rest. Start the server with a larger window, or state the one that it has: window under "
        f'[models."{model.name}"]'
    )


def _cost(model: Model, usage: Usage, reserved_usd: float, usd_max: float) -> float:
    """Return the price of `usage`; under a money limit without a known price, the reserve."""
    if model.budget.price is None and usd_max:
        return reserved_usd
    return cost_usd(model.budget.price, usage, model.wire)


def with_call_ids(
    parts: Sequence[AnyPart], asked: int, tools: Mapping[str, Tool]
) -> tuple[AnyPart, ...]:
    """Give each call its longrein id, `c<asked>.<index of the call>`, and the names of its tool and
    arguments here.
    """
    return _numbered(chain.from_iterable(_own_parts(parts, tools)), asked)


def _own_parts(parts: Sequence[AnyPart], tools: Mapping[str, Tool]) -> Sequence[Sequence[AnyPart]]:
    """Return for each part what it is here: a call may stand for several."""
    return [
        own_calls(_bounded(part), tools) if isinstance(part, ToolCall) else [part] for part in parts
    ]


def _numbered(parts: Iterable[AnyPart], asked: int) -> tuple[AnyPart, ...]:
    numbers = count()
    return tuple(
        msgspec.structs.replace(part, id=call_id(asked, next(numbers)))
        if isinstance(part, ToolCall)
        else part
        for part in parts
    )


def _bounded(call: ToolCall) -> ToolCall:
    """Drop arguments that are nested too deep for the log; such a call never runs and the model
    is told.
    """
    if not is_too_deep(call.arguments):
        return call
    return ToolCall(call.id, call.name, None, call.received or f"({TOO_DEEP})")


def _failed(
    session: Session,
    model: Model,
    request: Request,
    failure: Failure,
    asked: int,
    reserved_usd: float,
) -> AskFailed:
    assumed = reserved_usd if failure.partial or failure.kind in ("truncated", "stalled") else 0.0
    if failure.kind == "empty":  # the answer was complete, so it is paid for
        usage, _ = _settled(session.state, model, request, failure.usage, ())
        assumed = _cost(model, usage, reserved_usd, session.deps.limits.usd_max)
    partial = (
        session.blobs.put_blob(msgspec.json.encode(failure.partial)) if failure.partial else ""
    )
    return AskFailed(
        asked,
        failure.kind,
        failure.message,
        failure.status,
        session.state.failures + 1,
        failure.retry_after_s,
        failure.limit_tokens,
        assumed,
        partial,
        failure.attempts_max,
    )


def _cut(
    session: Session,
    model: Model,
    request: Request,
    heard: Sequence[Delta],
    asked: int,
    reserved_usd: float,
) -> Replied | AskFailed:
    """Build the outcome of an interrupted stream.

    Its text becomes a reply; calls and thinking are kept as bytes that the view leaves out. What
    the provider had counted holds; the rest is an estimate of what came.
    """
    text = "".join(d.text for d in heard if isinstance(d, TextDelta))
    thinking = "".join(d.text for d in heard if isinstance(d, ThinkingDelta))
    names: dict[int, str] = {}
    received: dict[int, str] = {}
    for delta in heard:
        if isinstance(delta, CallDelta):
            names[delta.index] = names.get(delta.index, "") or delta.name
            received[delta.index] = received.get(delta.index, "") + delta.json
    calls = [ToolCall("", names[index], None, received[index]) for index in sorted(names)]
    parts: list[AnyPart] = [Thinking(thinking)] if thinking else []
    parts += [Text(text)] if text else []
    told = next((d.usage for d in reversed(heard) if isinstance(d, UsageDelta)), Usage())
    usage, estimated = _settled(session.state, model, request, told, [*parts, *calls])
    cost = _cost(model, usage, reserved_usd, session.deps.limits.usd_max)
    if not parts and not calls:
        return AskFailed(asked, "cancelled", "interrupted before anything came", assumed_usd=cost)
    numbered = with_call_ids([*parts, *calls], asked, {})
    sides = tuple(dict.fromkeys((*estimated, "output")))
    return Replied(asked, numbered, "interrupted", usage, (), cost, model.name, sides)


# --- Summary in the background --------------------------------------------------------------------


class SummaryRequest(SessionPart):
    """At most one summary request in the background; its outcome waits here until the loop
    appends it to the log.
    """

    rank = 60

    def __init__(self) -> None:
        self._task: asyncio.Task[Replied | AskFailed] | None = None
        self._seq = 0
        self._reserved_usd = 0.0

    @property
    def running(self) -> bool:
        """True while a request has no outcome in the log."""
        return self._task is not None

    def start(
        self, attempt: Coroutine[Any, Any, Replied | AskFailed], seq: int, reserved_usd: float
    ) -> None:
        """Run `attempt`, the answer to `Asked` `seq`, in the background; wake the loop when it
        is done.
        """
        self._task = asyncio.ensure_future(attempt)
        self._seq = seq
        self._reserved_usd = reserved_usd
        self._task.add_done_callback(lambda _task: self.session.poke())

    async def collect(self) -> None:
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            self.session.append(task.result())

    async def close(self) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Cancel the request and record what it may have cost."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        task, self._task = self._task, None
        gone = AskFailed(self._seq, "cancelled", "no longer needed", assumed_usd=self._reserved_usd)
        self.session.append(gone if task.cancelled() else task.result())
