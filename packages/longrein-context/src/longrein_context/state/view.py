"""Changes of the view that keep the index and the token estimate consistent."""

from collections.abc import Sequence

from longrein_context.events import AnyPart, ProviderBlock, Text, ToolResult
from longrein_context.state.request_types import Item, ItemForm, ItemKind
from longrein_context.state.state import State
from longrein_context.state.token_estimate import (
    ITEM_TOKENS,
    estimate_part,
    estimate_text,
    spec_text,
    spec_tokens,
)


def make_item(
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
    """Return part `n` of entry `seq` as an item.

    `span`: entries that the item stands for, if not `seq` alone.
    """
    form: ItemForm = "summary" if kind == "summary" else "full"
    tokens = estimate_part(part) + ITEM_TOKENS
    return Item((seq, n, 0), kind, span or (seq, seq), handle, part, form, tokens, block, owner)


def span_of(items: Sequence[Item]) -> tuple[int, int]:
    """Return the first and last entry of `items`; (1, 0) if there are none, or only a summary."""
    if not items or (len(items) <= 2 and items[0].kind == "summary"):
        return 1, 0
    return min(item.seqs[0] for item in items), max(item.seqs[1] for item in items)


def append_item(state: State, item: Item) -> None:
    """Append `item` to the view."""
    if item.handle:
        state.index[item.handle] = len(state.items)
    state.items.append(item)
    state.gauge.add_part(item.part, item.tokens)


def replace_item(state: State, at: int, item: Item) -> None:
    """Replace the item at position `at`."""
    old = state.items[at]
    state.gauge.add_part(old.part, old.tokens, -1)
    state.gauge.add_part(item.part, item.tokens)
    state.items[at] = item


def reindex(state: State) -> None:
    """Rebuild the index and the slots of open calls after positions have changed."""
    state.index = {item.handle: at for at, item in enumerate(state.items) if item.handle}
    if state.calls:
        slots = {
            item.part.call: at
            for at, item in enumerate(state.items)
            if isinstance(item.part, ToolResult)
        }
        for call, open_call in list(state.calls.items()):
            if call in slots:
                open_call.slot = slots[call]
            else:  # damage in the log has left a call without the place of its result
                del state.calls[call]


def count_prefix(state: State, sign: int) -> None:
    """Add everything before the conversation to the token estimate (`sign` 1) or remove it (-1)."""
    if state.prefix is not None:
        system = state.prefix.system
        state.gauge.add_part(Text(system), estimate_text(system), sign)
        for tool in state.prefix.tools:
            state.gauge.add_part(Text(spec_text(tool)), spec_tokens(tool), sign)
    for item in state.items[: state.context_items]:
        state.gauge.add_part(item.part, item.tokens, sign)


def find_visible_reading(state: State, path: str, digest: str, first: int, last: int) -> str:
    """Return the handle of a reading of `path` that is whole in the view and covers the lines; ''
    if there is none.

    A reading that a later `Read` was already pointed at does not count: the next one gets the
    lines.
    """
    for reading in reversed(state.readings.get(path, ())):
        at = state.index.get(reading.handle, -1)
        covers = reading.first <= first and last <= reading.last
        if (
            reading.hash == digest
            and covers
            and not reading.told
            and at >= 0
            and state.items[at].form == "full"
        ):
            return reading.handle
    return ""
