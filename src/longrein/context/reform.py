"""The breaks: facts that change what has been sent. Each keeps every item's handle, so nothing is lost (law 4)."""

from longrein.context.items import item_of, prefix_raw, reindex
from longrein.context.request import Item, ItemForm
from longrein.context.state import Settled, State
from longrein.context.tokens import ITEM_TOKENS, estimate_part
from longrein.events import AnyPart, Cleared, Form, PrefixSet, Summarized, Text, ToolResult


def cleared(state: State, seq: int, event: Cleared) -> None:
    """Items get their shorter forms."""
    for form in event.forms:
        reform(state, seq, form)
    broke(state)
    _settled(state)


def _settled(state: State) -> None:
    state.settled = (*state.settled[-2:], Settled(state.gauge.raw, state.asks))
    state.settled_seq = state.seq
    state.compact_wanted = None


def reform(state: State, seq: int, form: Form) -> None:
    """One item gets another form; entry `seq` says so. A handle that is not in the view is passed over."""
    at = state.index.get(form.handle)
    if at is None:
        return
    old = state.items[at]
    shape: ItemForm = "trimmed" if form.form == "trimmed" else "placeholder"
    part: AnyPart = Text(form.text)
    if isinstance(old.part, ToolResult):
        images = () if shape == "placeholder" else tuple(p for p in old.part.parts if not _is_text(p))
        part = ToolResult(old.part.call, old.part.name, old.part.status, (part, *images))
    item = Item((seq, at, old.seqs[0]), old.kind, old.seqs, old.handle, part, shape, estimate_part(part) + ITEM_TOKENS)
    state.gauge.raw += item.tokens - old.tokens
    state.items[at] = item


def _is_text(part: AnyPart) -> bool:
    return isinstance(part, Text) or getattr(part, "media", "").startswith("text/")


def summarized_into(state: State, seq: int, event: Summarized) -> None:
    """The items of a span give way to one summary; open slots stay."""
    head, tail = state.items[: state.context_items], state.items[state.context_items :]
    kept = [item for item in tail if item.seqs[0] == 0 or not event.first <= item.seqs[0] <= event.last]
    gone = len(tail) - len(kept)
    summary = [item_of(seq, 0, "summary", Text(event.text), handle=f"r{seq}", span=(event.first, event.last))]
    if event.reply:
        summary.append(item_of(seq, 1, "ack", Text(event.reply), span=(event.first, event.last)))
    before = [item for item in kept if item.seqs[0] and item.seqs[1] < event.first]
    after = kept[len(before) :]
    state.items = [*head, *before, *summary, *after]
    for open_call in state.calls.values():
        open_call.slot += len(summary) - gone
    state.gauge.raw = prefix_raw(state.prefix) + sum(item.tokens for item in state.items)
    reindex(state)
    broke(state)
    _settled(state)
    state.summary, state.summary_attempts = None, 0
    state.told = ()  # they come back when their folder is touched again
    state.failure = None


def prefix_set(state: State, seq: int, event: PrefixSet) -> None:
    """Another system text, tool list or static context. The first one is no break."""
    first = state.prefix is None
    state.gauge.raw -= prefix_raw(state.prefix) + sum(i.tokens for i in state.items[: state.context_items])
    state.prefix, state.prefix_seq = event, seq
    fresh = [
        item_of(seq, n, "context", Text(text), handle=f"r{seq}.{n + 1}") for n, text in enumerate(event.context) if text
    ]
    state.gauge.raw += prefix_raw(event) + sum(i.tokens for i in fresh)
    state.items[: state.context_items] = fresh
    state.context_items = len(fresh)
    reindex(state)
    if not first:
        broke(state)
        state.failures = 0


def broke(state: State) -> None:
    """What had been sent is no longer the beginning of what will be."""
    state.breaks += 1
    state.sent_items = 0
