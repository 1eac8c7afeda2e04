"""Text of shortened items, ledgers of old calls, and the plan that says what changes.

A shortened item shows a marker (status, size, handle) and the body that `line_value` chose. A call
keeps a JSON object with its own keys. A run of old calls and results becomes one ledger inside the
first result of the run; call and result move together. Thinking is shown whole, as plain text of
the kept lines, or not at all.
"""

from collections.abc import Iterable, Mapping
from math import inf

import msgspec

from longrein.context.clearing.line_value import (
    LossPrices,
    ShortForm,
    SizeEstimate,
    ValueModels,
    body_text,
    ideal_form,
)
from longrein.context.clearing.needs import NeedsMemory
from longrein.context.clearing.text_features import (
    TEXT,
    THINKING,
    USER,
    DisplayState,
    ItemRecord,
    call_content,
    display_state_of,
)
from longrein.context.clearing.text_index import bare_text, long_and_short, rows_of
from longrein.events import marker

LEDGER_PAIR_TOKENS_MAX = 1500  # A larger pair is not moved into a ledger
LEDGER_SMALL_TOKENS = 400  # A result or call of this size may be folded without being trimmed first
LEDGER_TOKENS_MAX = 2500  # Tokens of one ledger. The next run begins a new one.
_LEFT = ("folded", "gone")  # Forms of items that left the view
LABEL_CHARS_MAX = 60  # Characters of a label that describe the call


class Change(msgspec.Struct, frozen=True):
    """New form of an item from the next request on."""

    handle: str
    # `trimmed` or `placeholder`: `text` replaces the item. `folded`: the item leaves the view.
    form: str
    text: str = ""


class Plan(msgspec.Struct, frozen=True):
    """Changes that a decision proposes. They count only once the log holds them."""

    changes: tuple[Change, ...]
    after: dict[int, DisplayState]  # Display state of each changed item

    def take(self, memory: NeedsMemory) -> None:
        """Apply the plan to the memory."""
        for n, stand in self.after.items():
            memory.restore(n, stand)
            memory.paying.pop(n, None)
            memory.dirty.pop(n, None)


class PlanBuilder(msgspec.Struct):
    """Builder of a plan. It changes the memory while it works and restores it at the end."""

    memory: NeedsMemory
    values: ValueModels
    price: LossPrices
    measure: SizeEstimate
    nonce: str
    before: dict[int, DisplayState] = {}
    changed: dict[int, None] = {}  # Positions of the items whose shown text changed

    def touch(self, record: ItemRecord) -> None:
        """Save the display state of an item before its first change."""
        if record.n not in self.before:
            self.before[record.n] = display_state_of(record)

    def plan(self) -> Plan | None:
        """Return the changes and restore the memory; None without a change."""
        if not self.changed:
            return None
        items = self.memory.items
        changes = tuple(change for n in sorted(self.changed) for change in _change(self, items[n]))
        after = {n: display_state_of(items[n]) for n in self.before}
        for n, stand in self.before.items():
            self.memory.restore(n, stand)
        return Plan(changes, after)


# --- Shortened items ------------------------------------------------------------------------------


def item_marker(builder: PlanBuilder, record: ItemRecord) -> str:
    """Return the marker that begins a shortened item."""
    if record.header:
        return record.header
    piece = record.piece
    match piece.kind:
        case "result":
            lines = piece.content.count("\n") + 1
            return marker(
                builder.nonce, "cleared", f'{piece.status}, {lines} lines, Recall("{piece.handle}")'
            )
        case "call":
            return marker(builder.nonce, "cleared", f'Recall("{piece.handle}")')
        case _:
            return marker(builder.nonce, "cut", piece.handle)


def kept_text(builder: PlanBuilder, record: ItemRecord, shape: ShortForm) -> str:
    """Return the text of an item that this form keeps."""
    if not shape.rows and not shape.words:
        return ""
    index, rows = builder.memory.text_indexes.of(record), shape.rows
    if record.piece.kind == "call" and not is_folded(record):
        rows = [row for row in rows if not index.fixed[row]]
    return body_text(record, index, rows, shape.words)


def trimmed_text(builder: PlanBuilder, record: ItemRecord, kept: str) -> str:
    """Return the text of an item of which `kept` is left; '' for an empty text or thinking."""
    if record.piece.kind == "call":
        return _trimmed_call(builder, record, kept)
    if record.cls in (TEXT, THINKING) and not kept:
        return ""
    return item_marker(builder, record) + ("\n" + kept if kept else "")


def _trimmed_call(builder: PlanBuilder, record: ItemRecord, kept: str) -> str:
    shown: dict[str, object] = dict(record.arguments or {})
    first = True
    for key, _, is_long in long_and_short(shown):
        if is_long:
            whole = item_marker(builder, record) + ("\n" + kept if kept else "")
            shown[key] = whole if first else marker(builder.nonce, "cleared", "")
            first = False
    return msgspec.json.encode(shown).decode()


def is_folded(record: ItemRecord) -> bool:
    """Return whether the item is in the ledger of another item."""
    return record.host >= 0 and record.host != record.n


def tokens_in(builder: PlanBuilder, record: ItemRecord, shape: ShortForm) -> float:
    """Return the tokens of an item in this form, without writing its text."""
    measure, kind = builder.measure, record.piece.kind
    if is_folded(record):
        line = len(label(builder.memory, record)) + 1 if kind == "result" else 0
        return (line + shape.chars) / measure.per_token
    if kind == "call":
        spare = sum(
            len(key) + 6 + (40 if is_long else 0)
            for key, _, is_long in long_and_short(record.arguments or {})
        )
        return measure.of(shape.chars * 1.06 + spare)
    if record.cls in (TEXT, THINKING) and not shape.chars:
        return 0.0
    return measure.of(len(item_marker(builder, record)) + 1 + shape.chars)


def is_too_small(builder: PlanBuilder, record: ItemRecord, gain_min: float) -> bool:
    """Return whether even the smallest form saves at most `gain_min` tokens, without reading the
    lines.
    """
    folded, kind = is_folded(record), record.piece.kind
    if (
        record.tokens
        - (builder.measure.block if kind in ("call", "result") and not folded else 0.0)
        <= gain_min
    ):
        return True
    chars = 0
    if kind == "call" and not folded:
        chars = sum(
            len(bare_text(text))
            for _, text, is_long in long_and_short(record.arguments or {})
            if not is_long
        )
    return record.tokens - tokens_in(builder, record, ShortForm((), [], chars)) <= gain_min


def tokens_saved(builder: PlanBuilder, record: ItemRecord) -> float:
    """Return the tokens that the ideal form saves."""
    return record.tokens - tokens_in(builder, record, best_form(builder, record))


def best_form(builder: PlanBuilder, record: ItemRecord) -> ShortForm:
    """Return the form that an item should have now."""
    return ideal_form(
        builder.memory,
        record,
        builder.values,
        builder.price,
        builder.measure,
        folded=is_folded(record),
    )


def trim(builder: PlanBuilder, record: ItemRecord, gain_min: float) -> None:
    """Give an item its ideal form, if that saves at least `gain_min` tokens."""
    shape = best_form(builder, record)
    if is_folded(record):
        _trim_member(builder, record, shape, gain_min)
    else:
        _apply_form(builder, record, shape, gain_min)


def _apply_form(
    builder: PlanBuilder, record: ItemRecord, shape: ShortForm, gain_min: float
) -> None:
    kept = kept_text(builder, record, shape)
    text = trimmed_text(builder, record, kept)
    tokens = builder.measure.of(len(text)) if text else 0.0
    if record.tokens - tokens < gain_min:
        return
    builder.touch(record)
    record.rows = shape.rows
    record.words = shape.words
    record.body = kept
    plain = call_content(text) if record.piece.kind == "call" else text
    builder.memory.set_shown(record, plain, tokens, "trimmed" if text else "gone")
    builder.changed[record.n] = None


def _trim_member(
    builder: PlanBuilder, record: ItemRecord, shape: ShortForm, gain_min: float
) -> None:
    tokens = tokens_in(builder, record, shape)
    if record.tokens - tokens < gain_min:
        return
    builder.touch(record)
    builder.touch(builder.memory.items[record.host])
    _fold(builder, record, shape, tokens)
    builder.changed[record.host] = None


def _fold(builder: PlanBuilder, record: ItemRecord, shape: ShortForm, tokens: float) -> None:
    record.rows, record.words, record.body = (
        shape.rows,
        shape.words,
        kept_text(builder, record, shape),
    )
    builder.memory.set_shown(record, _member_text(builder, record), tokens, "folded")


# --- Ledgers --------------------------------------------------------------------------------------


def label(memory: NeedsMemory, record: ItemRecord) -> str:
    """Return the line that stands for a folded call, such as `r412 Read src/a.py, 40 lines`."""
    piece = record.piece
    call = memory.items[record.partner] if record.partner >= 0 else None
    about = _about(call.arguments or {}, record.paths) if call else ""
    status = "" if piece.status == "ok" else f" {piece.status}"
    lines = piece.content.count("\n") + 1
    return f"{piece.handle} {piece.tool} {about}{status}, {lines} lines"


def _about(arguments: Mapping[str, object], paths: tuple[str, ...]) -> str:
    if paths:
        return paths[0]
    first = next((v for v in arguments.values() if isinstance(v, str) and v), "")
    return " ".join(first[: LABEL_CHARS_MAX + 20].split())[:LABEL_CHARS_MAX]


def _member_text(builder: PlanBuilder, record: ItemRecord) -> str:
    if record.piece.kind != "result":
        return record.body
    return label(builder.memory, record) + ("\n" + record.body if record.body else "")


def ledger_text(builder: PlanBuilder, host: ItemRecord) -> str:
    """Return the text of the host of a ledger: its own form, then a line and body for each other
    pair.
    """
    own = host.body
    if host.rows is None:  # it arrived already shortened
        index = builder.memory.text_indexes.of(host)
        own = body_text(host, index, rows_of(host, index), ())
    parts = [
        item_marker(builder, host),
        own,
        *(_member_text(builder, builder.memory.items[n]) for n in host.members),
    ]
    return "\n".join(part for part in parts if part)


def fold_runs(builder: PlanBuilder, start: int, stop: int, idle_min: int) -> None:
    """Fold runs of finished pairs between positions `start` and `stop` into ledgers."""
    memory = builder.memory
    host: ItemRecord | None = None
    size = 0.0
    for n in range(start, stop):
        record = memory.items[n]
        if record.cls == USER:
            host = None
        if record.piece.kind != "result" or (record.host >= 0 and record.host != n):
            continue
        pair = _foldable(builder, record, idle_min)
        if pair is None:
            host = None
            continue
        if host is None or size + pair > LEDGER_TOKENS_MAX:
            host, size = record, record.tokens + sum(memory.items[m].tokens for m in record.members)
            continue
        size += _join(builder, host, record)


def _foldable(builder: PlanBuilder, record: ItemRecord, idle_min: int) -> float | None:
    """Return the tokens of a pair that may go into a ledger; None when it may not."""
    memory = builder.memory
    if record.partner < 0:
        return None
    call = memory.items[record.partner]
    if not {call.piece.handle, record.piece.handle}.isdisjoint(memory.kept):
        return None
    if any(memory.now - max(one.born, one.last) < idle_min for one in (record, call)):
        return None
    if record.members:
        total = record.tokens + 0.0 + sum(memory.items[n].tokens for n in record.members)
        return total if total <= LEDGER_TOKENS_MAX else None
    total = record.tokens + call.tokens
    small = record.form != "full" or record.tokens <= LEDGER_SMALL_TOKENS + builder.measure.block
    return total if small and total <= LEDGER_PAIR_TOKENS_MAX else None


def _join(builder: PlanBuilder, host: ItemRecord, record: ItemRecord) -> float:
    """Move a pair, with its own ledger, into the ledger of `host`. Return its tokens there."""
    memory = builder.memory
    if host.form == "full":
        _apply_form(builder, host, best_form(builder, host), -inf)
    call = memory.items[record.partner]
    moved = [
        *_rest_of_reply(memory, call),
        call,
        record,
        *(memory.items[n] for n in record.members),
    ]
    for one in (host, *moved):
        builder.touch(one)
    record.members, added = (), 0.0
    for one in moved:
        one.host = host.n
        shape = ideal_form(memory, one, builder.values, builder.price, builder.measure, folded=True)
        _fold(builder, one, shape, tokens_in(builder, one, shape))
        host.members = (*host.members, one.n)
        builder.changed[one.n] = None
        added += one.tokens
    builder.changed[host.n] = None
    return added


def _rest_of_reply(memory: NeedsMemory, call: ItemRecord) -> list[ItemRecord]:
    """Return thinking and texts that leave with the last call of their reply: providers refuse
    thinking alone.
    """
    reply = reply_of(memory, call)
    if any(one.piece.kind == "call" and one is not call and not is_folded(one) for one in reply):
        return []
    kept = memory.kept
    return [
        one
        for one in reply
        if one.cls in (TEXT, THINKING) and one.form not in _LEFT and one.piece.handle not in kept
    ]


def reply_of(memory: NeedsMemory, record: ItemRecord) -> list[ItemRecord]:
    """Return the items of the reply that `record` belongs to, in order."""
    first = end = record.n
    while first and _is_same_reply(memory.items[first - 1], record):
        first -= 1
    while end < len(memory.items) and _is_same_reply(memory.items[end], record):
        end += 1
    return memory.items[first:end]


def _is_same_reply(one: ItemRecord, other: ItemRecord) -> bool:
    return one.piece.output and one.piece.request == other.piece.request


def _change(builder: PlanBuilder, record: ItemRecord) -> Iterable[Change]:
    piece = record.piece
    if record.form in _LEFT:
        if builder.before[record.n].form not in _LEFT:
            yield Change(piece.handle, "folded")
        return
    text = (
        ledger_text(builder, record)
        if piece.kind == "result"
        else trimmed_text(builder, record, record.body)
    )
    bare = record.rows is not None and not record.rows and not record.words and not record.members
    yield Change(piece.handle, "placeholder" if bare or piece.images else "trimmed", text)
