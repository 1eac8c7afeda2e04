"""Cost of the same session under plain context policies, and a session as it would have been
under one of them. The one module that needs the extension `lab`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from longrein.context import Budget
from longrein.events import Entry
from longrein.extensions.inspector.page_data import (
    Break,
    Inspection,
    ModuleTokens,
    PolicyData,
    RequestData,
)
from longrein.extensions.lab.replay import (
    NAMES,
    OWN,
    CostAccount,
    OwnDecisions,
    PolicyReplay,
    Rates,
    Recorder,
    Recording,
    Tokens,
    Uses,
    find_uses,
    numbered_steps,
    of_steps,
    replay_of,
)
from longrein.extensions.lab.replay.plain_policies import (
    PLAIN,
    Change,
    PlainPolicy,
    PlainReplay,
)
from longrein.steps import Step

SEARCHED_CHARS_MAX = 6_000_000
"""In a longer session no uses are looked for, so that the page is made in seconds: recalls are
then not counted.
"""
READ_SHARE, OUTPUT_SHARE = 0.1, 5.0
"""Price ratios where none are known."""


class Scale(msgspec.Struct, frozen=True):
    """Conversion of a replay's figures."""

    tokens: float
    """The provider's tokens per estimated token."""
    cost: float
    """Cost of an estimated token of uncached input, in `unit`."""
    unit: str
    """`usd` or `tokens`."""
    rates: Rates


def scale_of(budget: Budget, recording: Recording, sent_tokens: float) -> Scale:
    """Return the scale for a model. `sent_tokens`: tokens of all that the requests sent first,
    as far as known.
    """
    estimated = sum(item.tokens for item in recording.items)
    tokens = sent_tokens / estimated if estimated and sent_tokens else 1.0
    price = budget.price
    if price is None or price.input <= 0:
        return Scale(tokens, tokens, "tokens", Rates(READ_SHARE, 1.0, OUTPUT_SHARE, known=False))
    rates = Rates(
        price.read_usd / price.input, price.write_usd / price.input, price.output / price.input
    )
    return Scale(tokens, tokens * price.input / 1e6, "usd", rates)


class ReplayedPolicies:
    """Costs of a session as it was and under the plain policies, all by replay."""

    def __init__(self) -> None:
        self._recorder = Recorder(SEARCHED_CHARS_MAX)

    def hear(self, step: Step) -> None:
        """Take in a step of the session."""
        self._recorder.hear(step)

    def priced(self, base: Inspection, budget: Budget, sent_tokens: float) -> Inspection:
        """Return `base` with the costs of the steps so far. `sent_tokens` as in `scale_of`."""
        recording, places = self._recorder.recording(base.session.id)
        scale = scale_of(budget, recording, sent_tokens)
        uses = find_uses(recording) if self._recorder.has_texts else no_uses(recording)
        own = _scaled_budget(budget, scale)
        decisions = OwnDecisions(self._recorder.breaks, places)
        policies = [
            _policy(name, _open_plain(name, recording, own, decisions), own, scale, uses)
            for name in (OWN, *CHEAP)
        ]
        return msgspec.structs.replace(base, policies=policies, cost_unit=scale.unit)


def _scaled_budget(budget: Budget, scale: Scale) -> Budget:
    """Return the budget in the replay's estimated tokens."""
    window, output = (
        round(budget.window_tokens / scale.tokens),
        round(budget.max_output_tokens / scale.tokens),
    )
    return msgspec.structs.replace(budget, window_tokens=window, max_output_tokens=output)


def _uses(recording: Recording) -> Uses:
    if sum(len(item.text) for item in recording.items) <= SEARCHED_CHARS_MAX:
        return find_uses(recording)
    return no_uses(recording)


def no_uses(recording: Recording) -> Uses:
    """Return that nothing is known of what requests use."""
    return Uses(
        [[] for _ in range(recording.requests)],
        [[] for _ in range(recording.requests)],
        [{}] * len(recording.items),
        frozenset(),
    )


def keep_all(_replay: PlainReplay, _change: Change) -> None:
    """Keep everything, whether it fits the window or not."""


CHEAP: dict[str, PlainPolicy] = {"keep-all": keep_all, **PLAIN}
"""Policies that are cheap to replay, beside the session as it was."""


def _open_plain(
    name: str, recording: Recording, budget: Budget, decisions: OwnDecisions
) -> PlainReplay:
    policy = decisions if name == OWN else CHEAP[name]
    return PlainReplay(recording, policy, budget.window_tokens, decisions.rewinds)


def _policy(name: str, replay: PlainReplay, budget: Budget, scale: Scale, uses: Uses) -> PolicyData:
    recording = replay.recording
    account = CostAccount(name, recording, scale.rates, window=budget.window_tokens, uses=uses)
    cumulative = []
    for change in replay.changes():
        account.request(change, replay.tokens, replay.summary_tokens)
        cumulative.append(round(account.spent.cost(scale.rates) * scale.cost, 6))
    row = account.row
    return PolicyData(
        name,
        round(row.cost * scale.cost, 6),
        round(row.with_recalls * scale.cost, 6),
        round(row.recalls, 2),
        cumulative,
        round(row.peak * scale.tokens),
        round(row.kept / row.uses, 4) if row.uses else 1.0,
        0 if name == OWN else row.failures,
    )


# --- A session under another policy, for a comparison ---------------------------------------------


def policy_names() -> Sequence[str]:
    """Return the names of the policies under which a session can be replayed; the first is the
    session as it was.
    """
    return (OWN, *NAMES)


def under_policies(
    base: Inspection,
    entries: Iterable[Entry],
    budget: Budget,
    sent_tokens: float,
    names: Sequence[str],
) -> list[Inspection]:
    """Return the session of `base` as it would have been under each of the policies `names`."""
    steps = numbered_steps(entries)
    recording = of_steps(base.session.id, steps)
    scale = scale_of(budget, recording, sent_tokens)
    return [
        replayed_inspection(base, recording, name, budget, scale, OwnDecisions(steps))
        for name in names
    ]


def replayed_inspection(
    base: Inspection,
    recording: Recording,
    name: str,
    budget: Budget,
    scale: Scale,
    decisions: OwnDecisions,
) -> Inspection:
    """Return the session as it would have been under the policy `name`: its requests and their
    cost. `decisions` are those of its log.

    Raises `KeyError` for an unknown name.
    """
    if name not in policy_names():
        raise KeyError(name)
    own = _scaled_budget(budget, scale)
    is_plain = name == OWN or name in CHEAP
    replay = (
        _open_plain(name, recording, own, decisions)
        if is_plain
        else replay_of(name, recording, own)
    )
    account = CostAccount(
        name, recording, scale.rates, window=own.window_tokens, uses=_uses(recording)
    )
    requests: list[RequestData] = []
    at_us = _times(recording)
    for change in replay.changes():
        before, breaks = account.spent, account.breaks
        account.request(change, replay.tokens, replay.summary_tokens)
        now = account.spent
        spent = Tokens(
            now.read - before.read, now.written - before.written, now.output - before.output
        )
        cause = ""
        if account.breaks > breaks:
            cause = "summarised" if change.summary is not None else "cleared"
        modules = _modules(recording, replay, change.t)
        requests.append(_request(change, modules, spent, cause, at_us[change.t], requests, scale))
    session = msgspec.structs.replace(base.session, policy=name)
    return msgspec.structs.replace(
        base,
        session=session,
        requests=requests,
        lanes=[],
        items=[],
        transcript=[],
        subagents=[],
        files=[],
        policies=[],
        money=[],
    )


def _times(recording: Recording) -> list[int]:
    """Return the time of each request: that of its first output."""
    times = [0] * recording.requests
    for item in reversed(recording.items):
        if item.output:
            times[item.request] = item.at_us
    return times


MODULE_OF_KIND = {
    "user": "user",
    "assistant_text": "assistant",
    "tool_call": "calls",
    "tool_result": "results",
}
NAMED_MODULES = {"thinking": "thinking", "reminder": "reminders"}


def _modules(recording: Recording, replay: PolicyReplay | PlainReplay, t: int) -> dict[str, int]:
    """Return the estimated tokens of request `t` by module."""
    sums = {"system": recording.system_tokens, "summary": replay.summary_tokens}
    for item, tokens in zip(recording.items, replay.tokens, strict=True):
        if (item.request, item.output) >= (t, True):
            break
        module = NAMED_MODULES.get(item.name) or MODULE_OF_KIND[item.kind]
        sums[module] = sums.get(module, 0) + tokens
    return sums


def _request(
    change: Change,
    modules: dict[str, int],
    spent: Tokens,
    cause: str,
    at_us: int,
    earlier: Sequence[RequestData],
    scale: Scale,
) -> RequestData:
    """Return request `change.t` of a replay. The tokens of a summary request are counted in the
    request after it.
    """
    usd = round(spent.cost(scale.rates) * scale.cost, 8)
    tokens = ModuleTokens(**{name: round(count * scale.tokens) for name, count in modules.items()})
    before, now = sum(earlier[-1].tokens.all()) if earlier else 0, sum(tokens.all())
    by_summary = before if change.asked_tokens else 0
    read = max(0, round(spent.read * scale.tokens) - by_summary)
    missed = max(0, min(before, now) - read) if cause else 0
    price = missed / scale.tokens * scale.cost * (scale.rates.write - scale.rates.read)
    return RequestData(
        change.t + 1,
        0,
        at_us,
        tokens,
        cache_read=round(spent.read * scale.tokens),
        cache_write=round(spent.written * scale.tokens),
        output=round(spent.output * scale.tokens),
        usd=usd,
        total_usd=round(usd + (earlier[-1].total_usd if earlier else 0.0), 8),
        missed=missed,
        break_=Break(cause, change.reason, 0, round(price, 8), before, now) if cause else None,
    )
