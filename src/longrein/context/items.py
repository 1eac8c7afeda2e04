"""Putting items into the view, and keeping the index and the guess of its size true."""

from longrein.context.request import Item, ItemForm, ItemKind
from longrein.context.state import State
from longrein.context.tokens import ITEM_TOKENS, estimate_part, estimate_text
from longrein.events import AnyPart, PrefixSet, ProviderBlock, ToolResult


def item_of(
    seq: int,
    n: int,
    kind: ItemKind,
    part: AnyPart,
    *,
    handle: str = "",
    block: ProviderBlock | None = None,
    owner: str = "",
    span: tuple[int, int] | None = None,
) -> Item:
    """Part `n` of entry `seq` as an item. `span`: the entries it stands for, when not `seq` alone."""
    form: ItemForm = "summary" if kind == "summary" else "full"
    tokens = estimate_part(part) + ITEM_TOKENS
    return Item((seq, n, 0), kind, span or (seq, seq), handle, part, form, tokens, block, owner)


def add(state: State, item: Item) -> None:
    """Put `item` at the end of the view."""
    if item.handle:
        state.index[item.handle] = len(state.items)
    state.items.append(item)
    state.gauge.raw += item.tokens


def reindex(state: State) -> None:
    """Find every item and every open slot again after positions have changed."""
    state.index = {item.handle: at for at, item in enumerate(state.items) if item.handle}
    slots = {item.part.call: at for at, item in enumerate(state.items) if isinstance(item.part, ToolResult)}
    for call, open_call in state.calls.items():
        open_call.slot = slots[call]


def prefix_raw(prefix: PrefixSet | None) -> int:
    """Guess for system text and tools."""
    if prefix is None:
        return 0
    tools = sum(estimate_text(t.name + t.description + str(t.schema)) + ITEM_TOKENS for t in prefix.tools)
    return estimate_text(prefix.system) + tools
