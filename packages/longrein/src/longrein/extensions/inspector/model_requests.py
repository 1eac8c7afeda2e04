"""Requests of the main agent: tokens by module, use of the cache, money, and breaks with their
price.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from longrein.extensions.inspector.item_lifecycles import ItemTracker
from longrein.extensions.inspector.page_data import MODULES, Break, ModuleTokens, RequestData
from longrein.steps import BreakStep, CompactionStep, RequestStep, Step, steps_of
from longrein_context import Budget, State, estimate_text, spec_tokens
from longrein_context.context_report import scaled
from longrein_context.events import (
    Asked,
    AskFailed,
    Entry,
    PrefixSet,
    Replied,
    Usage,
    counts_of,
)
from longrein_context.state.request_types import ItemKind

MODULE_OF_KIND: Mapping[ItemKind, str] = {
    "context": "instructions",
    "user": "user",
    "reminder": "reminders",
    "text": "assistant",
    "thinking": "thinking",
    "call": "calls",
    "result": "results",
    "summary": "summary",
    "ack": "summary",
}
CAUSES = ("prefix", "summarised", "rewound", "restored", "cleared")
"""Causes of a break. If there are several, the first one here is named."""
MISSED_MIN, MISSED_SHARE_MIN = 1_024, 0.05
"""Tokens, and share of what could be read, from which a miss without an entry that explains it
is marked as a break.
"""
BREAK_EVENTS = (
    *("PrefixSet", "Asked", "AskFailed", "Replied"),
    *("Rewound", "Cleared", "Summarized", "Restored"),
)
"""Types of the entries that tell the breaks of a session."""


class _Sent(msgspec.Struct):
    """A request without an answer yet, with the uncalibrated tokens of its modules."""

    at: int
    raws: list[int]
    new: int
    """Uncalibrated tokens that no request had before."""
    purpose: str
    breaks: list[BreakStep | CompactionStep]
    budget: Budget
    idle_us: int
    """Time since the request before; 0 for the first."""


class RequestTracker:
    """Makes the list of requests from the log. `items` follows the same log."""

    def __init__(
        self, items: ItemTracker, budget_for: Callable[[PrefixSet | None], Budget]
    ) -> None:
        self.items = items
        self._requests: list[RequestData] = []
        self._budget_for = budget_for
        self._sent: dict[int, _Sent] = {}
        self._place: dict[int, int] = {}
        self._sums: dict[str, int] = {}
        self._prefix_sums: dict[str, int] = {}
        self._counted = 0
        self._prefix: PrefixSet | None = None
        self._breaks: list[BreakStep | CompactionStep] = []
        self._cached_tokens = 0
        """Input tokens of the last answered request, which the cache should hold."""
        self._last_at = 0
        self._reads_cache = False
        self.total_usd = 0.0

    @property
    def next_request(self) -> int:
        return len(self._requests) + 1

    def hear(self, step: Step, state: State, kept: int) -> None:
        """Take in a step. `state` is the state after it, `kept` is `sent_items` of the state
        before it.
        """
        self.items.hear(step, self.next_request)
        match step:
            case BreakStep(prefix=prefix) if prefix:
                if self._prefix is not None:
                    self._breaks.append(step)
                self._prefix = prefix
                self._prefix_sums = _prefix_sums(prefix)
                self._counted = 0
            case BreakStep() | CompactionStep():
                self._breaks.append(step)
            case RequestStep(reply=reply) if reply:
                self._replied(step.at, reply)
            case RequestStep(failure=failure) if failure:
                self._failed(step.at, failure)
            case RequestStep(asked=asked) if asked:
                self._asked(step, asked, state, kept)

    def requests(self) -> list[RequestData]:
        """Return all requests. Without any use of the cache nothing counts as missed."""
        if self._reads_cache:
            return list(self._requests)
        return [_uncached(request) for request in self._requests]

    def _asked(self, step: RequestStep, event: Asked, state: State, kept: int) -> None:
        n, new = self.next_request, 0
        if event.purpose == "turn":
            first = kept if 0 < kept <= self._counted else 0
            if not first:
                self._sums = dict(self._prefix_sums)
            for item in state.items[first:]:
                module = MODULE_OF_KIND[item.kind]
                self._sums[module] = self._sums.get(module, 0) + item.tokens
            new = self.items.take_request(state, n, first, is_broken=not first)
            open_slots = [call.slot for call in state.calls.values()]
            self._counted = min([len(state.items), *open_slots])
        raws = [self._sums.get(module, 0) for module in MODULES]
        breaks, self._breaks = (self._breaks, []) if event.purpose == "turn" else ([], self._breaks)
        idle = step.at - self._last_at if self._last_at else 0
        budget = self._budget_for(self._prefix)
        self._sent[step.seq] = _Sent(step.at, raws, new, event.purpose, breaks, budget, idle)
        self._place[step.seq] = len(self._requests)
        self._last_at = step.at
        tokens = _modules(raws, state.view_tokens)
        self._requests.append(
            RequestData(
                n,
                step.seq,
                step.at,
                tokens,
                purpose=event.purpose,
                status="waiting",
                total_usd=self.total_usd,
            )
        )

    def _replied(self, at: int, event: Replied) -> None:
        sent = self._sent.pop(event.asked, None)
        if sent is None:
            return
        usage, usd = counts_of(event.usage), max(0.0, event.cost_usd)
        self.total_usd += usd
        self._last_at = at
        total, counted = usage.context_tokens, "input" not in event.estimated
        self._reads_cache = self._reads_cache or usage.cache_read_tokens > 0
        before = self._requests[self._place[event.asked]]
        missed, found = 0, None
        if sent.purpose == "turn" and counted:
            missed, found = self._missed(sent, usage)
            self._cached_tokens = total
        self._requests[self._place[event.asked]] = msgspec.structs.replace(
            before,
            tokens=_modules(sent.raws, total) if total and counted else before.tokens,
            duration_us=max(1, at - sent.at),
            input=usage.input_tokens,
            cache_read=usage.cache_read_tokens,
            cache_write=usage.cache_write_tokens,
            output=usage.output_tokens,
            reasoning=usage.reasoning_tokens,
            missed=missed,
            usd=round(usd, 8),
            total_usd=round(self.total_usd, 8),
            status="ok",
            stop=event.stop,
            estimated=bool(event.estimated),
            break_=found,
        )

    def _missed(self, sent: _Sent, usage: Usage) -> tuple[int, Break | None]:
        """Return the tokens that were sent before and not read from the cache, and the break
        that explains them.
        """
        total, before = usage.context_tokens, self._cached_tokens
        new = round(sent.new * total / max(1, sum(sent.raws)))
        held = min(before, max(0, total - new))
        missed = (
            max(0, held - usage.cache_read_tokens) if held >= sent.budget.cache_min_tokens else 0
        )
        cause, detail, seq = _cause(sent)
        if not cause:
            if missed <= max(MISSED_MIN, MISSED_SHARE_MIN * held):
                return missed, None
            cause = "expired" if sent.idle_us > sent.budget.cache_ttl_s * 1e6 else "provider"
        return missed, Break(cause, detail, seq, _price(sent.budget, usage, missed), before, total)

    def _failed(self, at: int, event: AskFailed) -> None:
        sent = self._sent.pop(event.asked, None)
        if sent is None:
            return
        place = self._place[event.asked]
        self.total_usd += event.assumed_usd
        self._breaks = [*sent.breaks, *self._breaks]  # the next request pays for them
        self._requests[place] = msgspec.structs.replace(
            self._requests[place],
            duration_us=max(1, at - sent.at),
            usd=round(event.assumed_usd, 8),
            total_usd=round(self.total_usd, 8),
            status=event.kind,
            message=event.message,
        )


def _prefix_sums(prefix: PrefixSet) -> dict[str, int]:
    return {
        "system": estimate_text(prefix.system),
        "tools": sum(map(spec_tokens, prefix.tools)),
    }


def _modules(raws: list[int], total: int) -> ModuleTokens:
    return ModuleTokens(*scaled(raws, total)) if any(raws) else ModuleTokens()


def _cause(sent: _Sent) -> tuple[str, str, int]:
    """Return (cause, detail, seq) of the entry that changed what was sent; empty values for none.

    Clearing while the cache is cold costs nothing, so it is not the cause of what was missed.
    """
    if all(made.cause == "cleared" and made.reason == "cold" for made in sent.breaks):
        return "", "", 0
    cause = min((made.cause for made in sent.breaks), key=CAUSES.index)
    last = [made for made in sent.breaks if made.cause == cause][-1]
    return cause, last.reason, last.seq


def _price(budget: Budget, usage: Usage, missed: int) -> float:
    """Return what sending the missed tokens again cost, above reading them from the cache."""
    price = budget.price
    if price is None:
        return 0.0
    paid = price.write_usd if usage.cache_write_tokens else price.input
    return round(max(0.0, missed * (paid - price.read_usd) / 1e6), 8)


def _uncached(request: RequestData) -> RequestData:
    found = request.break_
    named = found if found is not None and found.seq else None
    free = msgspec.structs.replace(named, price_usd=0.0) if named else None
    return msgspec.structs.replace(request, missed=0, break_=free)


def requests_of(
    entries: Iterable[Entry], budget_for: Callable[[PrefixSet | None], Budget]
) -> list[RequestData]:
    """Return the requests of a session by its entries of the types `BREAK_EVENTS`, without their
    modules.

    Without the items of the view, what a break has missed stays unknown.
    """
    tracker = RequestTracker(ItemTracker(), budget_for)
    nothing = State()
    for step in steps_of(entries):
        tracker.hear(step, nothing, 0)
    return tracker.requests()


def causes_of_breaks(
    entries: Iterable[Entry], budget_for: Callable[[PrefixSet | None], Budget]
) -> list[str]:
    """Return the causes of the breaks of a session; arguments as in `requests_of`."""
    return [one.break_.cause for one in requests_of(entries, budget_for) if one.break_]
