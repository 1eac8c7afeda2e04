"""Adapter between the state and the clearing policy: items become pieces, a plan becomes a
`Cleared`.

The policy's memory is kept in `state.worth` and brought up to date before each use. It is derived
data: a proposed plan counts only once the log has it. When the view is not the expected one (after
a resume, rewind, summary or restore), the memory is rebuilt from the items.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import msgspec

from longrein_context.clearing.line_value import (
    LineReason,
    SizeEstimate,
    ValueModels,
    explain_lines,
)
from longrein_context.clearing.needs import NeedsMemory
from longrein_context.clearing.rewrite import FormChange, RewritePlan
from longrein_context.clearing.text_features import SourceItem, readable
from longrein_context.clearing.timing import (
    ClearableKinds,
    ClearingPolicy,
    TokenRates,
    plan_clearing,
    plan_shrinking,
)
from longrein_context.clearing.weights import TABLES
from longrein_context.events import Cleared, Form, Image, ToolCall, ToolResult, marker_sign, text_of
from longrein_context.fold_notices import reformed
from longrein_context.state.request_types import Budget, Item
from longrein_context.state.state import State
from longrein_context.state.token_estimate import (
    BLOCKS,
    CHARS_PER_TOKEN_CODE,
    ITEM_TOKENS,
    arguments_text,
    estimate_part,
)

# In `Budget.clears`: whole exchanges, that is replies with their thinking, calls and results
EXCHANGE = "exchange"
OLD = "old "  # In `Budget.clears` before a kind: only items from before the user's last message
LOCAL_RATES = TokenRates(read=0.0, write=1.0, output=5.0)  # Work of a server of the user's own
REMEMBERED_MIN = 600  # Number of items that may be remembered after they left the view
EXCESS_FACTORS = (1.0, 1.2, 2.0)
"""Factors on the requested tokens, tried in turn, because the policy estimates sizes from
characters alone.
"""
_values: list[ValueModels] = []  # The fitted models, made at first use


def use_tables(tables: Mapping[str, Any]) -> None:
    """Use these weight tables in this process from now on, see `context.weights`."""
    _values[:] = [ValueModels(tables)]


class ClearingMemory(msgspec.Struct):  # noqa: PLW1641 - it changes, so it has no hash
    """Memory of the clearing policy between two decisions."""

    worth: NeedsMemory
    known: list[Item]  # Items taken into `worth`, as they were then
    plans: tuple[RewritePlan, ...] = ()  # Proposed plans that the log may have by now
    recalls: int = 0  # Number of recalls taken in

    def __eq__(self, other: object) -> bool:
        """Treat all memories as equal: derived data makes no difference between two states."""
        return isinstance(other, ClearingMemory | None)


def clear(state: State, budget: Budget, *, cold: bool) -> Cleared | None:
    """Clear items whose clearing pays; for free while the cache is cold. None if there are none."""
    memo, policy = update_memory(state), policy_for(state, budget)
    again = {f"r{one.seq}" for one in state.ledger.wanted.values() if one.times > 1}
    memo.worth.kept = state.held | _skill_results(state) | again
    return _cleared_event(
        state, memo, plan_clearing(memo.worth, policy, cold=cold), "cold" if cold else "rent"
    )


def squeeze(
    state: State, budget: Budget, goal_tokens: int, reason: str, least: float = 0.0
) -> Cleared | None:
    """Clear down to `goal_tokens`, the least valuable items first, or everything that can be.

    `least`: smallest share of the value that possibly needed content keeps.
    """
    memo, policy = update_memory(state), policy_for(state, budget)
    memo.worth.kept = _skill_results(state)
    excess = float(state.view_tokens - goal_tokens)
    found = None
    for more in EXCESS_FACTORS:
        found = _cleared_event(
            state, memo, plan_shrinking(memo.worth, policy, excess * more, least), reason
        )
        if found is None or found.gain_tokens >= excess:
            break
    return found


def _skill_results(state: State) -> frozenset[str]:
    """Return the handles of loaded skills: their text stays as it is."""
    return frozenset(f"r{skill.seq}" for skill in state.skills.values())


def _cleared_event(
    state: State, memo: ClearingMemory, plan: RewritePlan | None, reason: str
) -> Cleared | None:
    if plan is None:
        return None
    memo.plans = (*memo.plans[-3:], plan)
    changes = [change for change in plan.changes if not _is_unchanged(state, change)]
    forms = tuple(Form(change.handle, change.form, change.text) for change in changes)
    gain = state.gauge.scale(sum(_saved(state, form) for form in forms))
    return Cleared(forms, reason, gain) if forms else None


def _is_unchanged(state: State, change: FormChange) -> bool:
    """True if a change does nothing: a call without long arguments, or an item without a handle."""
    if change.handle not in state.index:
        return True
    part = state.items[state.index[change.handle]].part
    if not isinstance(part, ToolCall) or change.form == "folded":
        return False
    return marker_sign(state.nonce) not in change.text


def _saved(state: State, form: Form) -> int:
    """Return the estimated tokens that a form saves, before calibration."""
    item = state.items[state.index[form.handle]]
    if form.form == "folded":
        return item.tokens
    part = reformed(item.part, form.text, images=form.form == "trimmed")
    return item.tokens - estimate_part(part) - ITEM_TOKENS


def line_reasons(state: State, budget: Budget, handle: str) -> list[LineReason]:
    """Return the reason for each line of an item to be shown or not; [] if it is not in the
    view.
    """
    memo, policy = update_memory(state), policy_for(state, budget)
    place = memo.worth.by_handle.get(handle)
    if place is None or memo.worth.items[place].form in ("folded", "gone"):
        return []
    held = memo.worth.items[place]
    return explain_lines(memo.worth, held, policy.values, policy.price(memo.worth), policy.measure)


def policy_for(state: State, budget: Budget) -> ClearingPolicy:
    """Return the policy with the model's prices and the session's sizes."""
    if not _values:
        _values.append(ValueModels(TABLES))
    chars = CHARS_PER_TOKEN_CODE / state.gauge.ratio
    around = ITEM_TOKENS * state.gauge.learned.factors[BLOCKS]
    kinds = frozenset(budget.clears)
    old = frozenset(kind.removeprefix(OLD) for kind in kinds if kind.startswith(OLD))
    return ClearingPolicy(
        _values[0],
        rates_of(budget),
        measure=SizeEstimate(chars, around),
        clearable=ClearableKinds(kinds, old, EXCHANGE in kinds),
        nonce=state.nonce,
        context_tokens=float(state.view_tokens),
        visibility=budget.visibility,
    )


def rates_of(budget: Budget) -> TokenRates:
    """Return prices in units of one uncached input token; those of a common provider if they are
    unknown, the work of the machine where nothing is charged.
    """
    price = budget.price
    if price is None or price.input <= 0:
        return LOCAL_RATES if budget.reads_free else TokenRates()
    return TokenRates(budget.read_share, price.write_usd / price.input, price.output / price.input)


# --- Updating the memory --------------------------------------------------------------------------


def update_memory(state: State) -> ClearingMemory:
    """Bring the memory up to date with the view and return it."""
    memo = state.worth if isinstance(state.worth, ClearingMemory) else None
    open_slot = min((call.slot for call in state.calls.values()), default=len(state.items))
    items = state.items[state.context_items : open_slot]
    if (
        memo is None
        or _overgrown(memo)
        or not (_same(memo, items, state) or _apply_matching_plan(memo, items))
    ):
        memo = ClearingMemory(NeedsMemory(), [], recalls=0 if memo is None else memo.recalls)
        state.worth = memo
    for item in items[len(memo.known) :]:
        memo.worth.add(piece_of(item, state))
    memo.known = items
    memo.worth.begin_request(len(state.asked_seqs))
    memo.worth.sent = len(memo.worth.items) - _unsent(
        state, items
    )  # folded items keep their place there
    for handle, _ in state.recalled[memo.recalls :]:
        memo.worth.record_recall(handle)
    memo.recalls = len(state.recalled)
    memo.worth.wanted = {f"r{one.seq}": one.lines for one in state.ledger.wanted.values()}
    return memo


def _overgrown(memo: ClearingMemory) -> bool:
    """True if most remembered items have left the view, so that a rebuild is cheaper."""
    return len(memo.worth.items) > 2 * len(memo.known) + REMEMBERED_MIN


def _same(memo: ClearingMemory, items: list[Item], state: State) -> bool:
    """True if the view begins as it was known, apart from birth forms of items that had not been
    sent.
    """
    known = memo.known
    if len(known) > len(items):
        return False
    other = [n for n, item in enumerate(known) if item is not items[n]]
    places = [memo.worth.by_handle.get(_handle(known[n]), -1) for n in other]
    if any(place < memo.worth.sent for place in places) or any(
        known[n].handle != items[n].handle for n in other
    ):
        return False
    for n, place in zip(other, places, strict=True):
        memo.worth.replace(place, piece_of(items[n], state))
    return True


def _handle(item: Item) -> str:
    """Return the handle of an item, or another unique key."""
    return item.handle or f"?{item.key[0]}.{item.key[1]}"


def _apply_matching_plan(memo: ClearingMemory, items: list[Item]) -> bool:
    """True if the view differs by one of the plans; that plan is then marked as done."""
    for plan in memo.plans:
        changed = {change.handle: change for change in plan.changes}
        expected = [
            item
            for item in memo.known
            if item.handle not in changed or changed[item.handle].form != "folded"
        ]
        if len(expected) <= len(items) and all(
            a is b
            or (a.handle == b.handle and a.handle in changed and _text(b) == changed[a.handle].text)
            for a, b in zip(expected, items, strict=False)
        ):
            plan.take(memo.worth)
            memo.known, memo.plans = items[: len(expected)], ()
            return True
    return False


def _unsent(state: State, items: list[Item]) -> int:
    """Return the number of last items that the model has not replied to."""
    at = len(items)
    while at and not 0 < items[at - 1].seqs[1] <= state.seen_reach:
        at -= 1
    return len(items) - at


def _text(item: Item) -> str:
    return arguments_text(item.part) if isinstance(item.part, ToolCall) else text_of((item.part,))


def piece_of(item: Item, state: State) -> SourceItem:
    """Convert an item of the view into a piece."""
    part, kind = item.part, item.kind
    mine = kind in ("text", "thinking", "call")
    name = kind if mine or kind in ("result", "user") else "other"
    request = max(0, bisect_left(state.asked_seqs, item.seqs[0]) - mine)
    handle = _handle(item)
    tokens = float(state.gauge.tokens_of(part))
    sign = f"[{marker_sign(state.nonce)}"
    if isinstance(part, ToolCall):
        tool = state.traits_of(part.name).kind
        return SourceItem(
            handle,
            name,
            "",
            tokens,
            request,
            part.name,
            arguments_text(part),
            part.id,
            stated_kind=tool,
            sign=sign,
        )
    if isinstance(part, ToolResult):
        images = any(isinstance(p, Image) for p in part.parts)
        goes_on = part.status == "ok" and any(
            task.started.call == part.call for task in state.tasks.values()
        )
        status = "in the background" if goes_on else part.status
        tool = state.traits_of(part.name).kind
        return SourceItem(
            handle,
            name,
            readable(text_of((part,))),
            tokens,
            request,
            part.name,
            "",
            part.call,
            status,
            images,
            tool,
            sign,
        )
    return SourceItem(handle, name, text_of((part,)), tokens, request, sign=sign)


# --- Encoding -------------------------------------------------------------------------------------


class _StoredMemory(msgspec.Struct, array_like=True):
    """Stored form of a `ClearingMemory`."""

    worth: NeedsMemory
    known: list[int | Item]  # Positions in the view, or the item itself if it is no longer there
    plans: tuple[RewritePlan, ...]
    recalls: int


def _stored(value: Any) -> Any:
    """Return a range as a list, and None for the indexes, which are made again from the texts."""
    return list(value) if isinstance(value, range) else None


_encoder = msgspec.msgpack.Encoder(enc_hook=_stored)
_decoder = msgspec.msgpack.Decoder(_StoredMemory, dec_hook=lambda kind, _: kind())


def encode_memory(state: State, data: bytearray) -> None:
    """Append the encoded memory to `data`; nothing if there is none."""
    memo = state.worth
    if isinstance(memo, ClearingMemory):
        places = {id(item): at for at, item in enumerate(state.items)}
        known = [places.get(id(item), item) for item in memo.known]
        _encoder.encode_into(_StoredMemory(memo.worth, known, memo.plans, memo.recalls), data, -1)


def decode_memory(state: State, data: bytes | memoryview) -> ClearingMemory:
    """Decode the memory. Raises `msgspec.DecodeError`, `IndexError`."""
    stored = _decoder.decode(data)
    known = [state.items[item] if isinstance(item, int) else item for item in stored.known]
    return ClearingMemory(stored.worth, known, stored.plans, stored.recalls)
