"""Fold of the breaks: entries that change what has been sent. Handles stay valid, so nothing is
lost.
"""

from collections.abc import Iterable

from longrein.context.state.request_types import Item, ItemForm, ItemKind
from longrein.context.state.state import CompactionMark, State
from longrein.context.state.token_estimate import ITEM_TOKENS, estimate_part
from longrein.context.state.tool_traits import with_traits
from longrein.context.state.view import count_prefix, make_item, reindex, replace_item
from longrein.events import (
    AnyPart,
    Cleared,
    Form,
    PrefixSet,
    Summarized,
    Text,
    ToolCall,
    ToolResult,
    decode_object,
)

UNDO_MAX = 20  # Limit of compactions that can be undone by number; the log keeps all
CROSSINGS = ("watermark", "overflow", "memory", "request")
"""Reasons of compactions forced by size; one that only saves money is no crossing."""


def fold_cleared(state: State, seq: int, event: Cleared) -> None:
    """Show items in their shorter forms; remove folded ones from the view."""
    folded = {form.handle for form in event.forms if form.form == "folded"}
    for form in event.forms:
        if form.handle not in folded:
            change_form(state, seq, form)
    if folded:
        gone = [item for item in state.items if item.handle in folded]
        state.items = [item for item in state.items if item.handle not in folded]
        _discount(state, gone)
    mark_break(state)
    _undoable(state, seq)
    if event.reason in CROSSINGS:
        _settled(state)


def _discount(state: State, gone: Iterable[Item]) -> None:
    """Take items that have left the view out of the estimate and the index."""
    for item in gone:
        state.gauge.add_part(item.part, item.tokens, -1)
    reindex(state)


def _undoable(state: State, seq: int) -> None:
    state.compactions = (*state.compactions[1 - UNDO_MAX :], seq)


def _settled(state: State) -> None:
    state.settled = (*state.settled[-2:], CompactionMark(state.gauge.raw, state.asks))
    state.settled_seq = state.seq
    state.compact_wanted = None
    state.summary_attempts = 0


def change_form(state: State, seq: int, form: Form) -> None:
    """Give one item another form, by entry `seq`. A handle that is not in the view is ignored."""
    at = state.index.get(form.handle)
    if at is None:
        return
    old = state.items[at]
    shape: ItemForm = "trimmed" if form.form == "trimmed" else "placeholder"
    part = reformed(old.part, form.text, images=shape == "trimmed")
    kind: ItemKind = "text" if old.kind == "thinking" else old.kind
    tokens = estimate_part(part) + ITEM_TOKENS
    item = Item(
        (seq, at, old.seqs[0]), kind, old.seqs, old.handle, part, shape, tokens, owner=old.owner
    )
    replace_item(state, at, item)


def reformed(old: AnyPart, text: str, *, images: bool) -> AnyPart:
    """Return `old` with other content. Changed thinking becomes plain text: a signed block is
    whole or gone.
    """
    match old:
        case ToolResult(call, name, status, parts):
            kept = [
                p
                for p in parts
                if not isinstance(p, Text) and not getattr(p, "media", "").startswith("text/")
            ]
            return ToolResult(call, name, status, (Text(text), *kept) if images else (Text(text),))
        case ToolCall(id, name):
            return ToolCall(id, name, decode_object(text), text)
        case _:
            return Text(text)


def fold_summarized(state: State, seq: int, event: Summarized) -> None:
    """Replace the items of a span by one summary; open slots stay."""
    head, tail = state.items[: state.context_items], state.conversation
    kept = [
        item for item in tail if item.seqs[0] == 0 or not event.first <= item.seqs[0] <= event.last
    ]
    gone = [item for item in tail if item.seqs[0] and event.first <= item.seqs[0] <= event.last]
    summary = [
        make_item(
            seq, 0, "summary", Text(event.text), handle=f"r{seq}", span=(event.first, event.last)
        )
    ]
    if event.reply:
        summary.append(make_item(seq, 1, "ack", Text(event.reply), span=(event.first, event.last)))
    older = [at for at, item in enumerate(kept, 1) if item.seqs[0] and item.seqs[1] < event.first]
    cut = older[-1] if older else 0
    state.items = [*head, *kept[:cut], *summary, *kept[cut:]]
    _discount(state, gone)
    for item in summary:
        state.gauge.add_part(item.part, item.tokens)
    mark_break(state)
    _settled(state)
    state.summary = state.summary_of = None
    state.rewritten_seq = seq
    state.ledger_text = event.ledger
    _undoable(state, seq)
    state.told = ()  # told again when a call touches their folder
    state.failure = None


def fold_prefix_set(state: State, seq: int, event: PrefixSet) -> None:
    """Set system text, tool list or static context. The first prefix is no break."""
    first = state.prefix is None
    if state.prefix is not None and (state.prefix.provider, state.prefix.model) != (
        event.provider,
        event.model,
    ):
        state.window_learned = state.input_learned = state.refused_raw = (
            0  # learned of the previous model
        )
        state.gauge.ceiling, state.gauge.flat = 0, (0, 0, 0)
    count_prefix(state, -1)
    state.prefix, state.prefix_seq = event, seq
    state.traits = with_traits(state.traits, event)
    texts = [(n, Text(text)) for n, text in enumerate(event.context) if text]
    fresh = [make_item(seq, n, "context", text, handle=f"r{seq}.{n + 1}") for n, text in texts]
    state.items[: state.context_items] = fresh
    state.context_items = len(fresh)
    count_prefix(state, 1)
    reindex(state)
    if not first:
        mark_break(state)
        state.failures = 0


def mark_break(state: State) -> None:
    """Note that the next request does not begin with what was sent before."""
    state.breaks += 1
    state.sent_items = 0
