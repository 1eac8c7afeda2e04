"""Text of shortened items, histories of old calls, and the plan that says what changes.

A shortened result shows a marker (outcome, size, handle) and the blocks that `line_value` chose,
with a line for each gap. A call is never shortened in its place. A run of old calls and results
becomes a history inside the first result of the run: a line for each call, what was done, on what
and with what outcome, then what is kept of it. Thinking is shown whole or not at all.
"""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from longrein_context.clearing.line_index import (
    FILE_TEXTS,
    LINE_NUMBER,
    LONG_CHARS,
    argument_rows,
    argument_text,
    texts_of,
)
from longrein_context.clearing.line_value import (
    LossPrices,
    ShortForm,
    SizeEstimate,
    ValueModels,
    body_text,
    ideal_form,
)
from longrein_context.clearing.needs import NeedsMemory
from longrein_context.clearing.text_features import (
    EDIT,
    PART_READ,
    READ,
    SEARCH,
    SHELL,
    SHORT_CHARS,
    TEXT,
    THINKING,
    USER,
    DisplayState,
    ItemRecord,
    display_state_of,
)
from longrein_context.events import marker
from longrein_context.state.command_results import (
    LABEL_CHARS_MAX,
    clip,
    code_of,
    first_change,
    told_by_output,
)

HISTORY_PAIR_TOKENS_MAX = 1500  # A larger pair is not moved into a history
HISTORY_TOKENS_MAX = 12000  # Tokens of one history. The next run begins a new one.
_LEFT = ("folded", "gone")  # Forms of items that left the view
ANSWER_TURNS = 2  # Times that the user speaks after an answer until it may be shortened
TOLD_CHARS_MAX = 300  # Characters of an outcome that was told before
ONE_WORD = re.compile(r"[\w-]{1,20}")
LINE_NUMBERS = re.compile(rf"^{LINE_NUMBER}", re.MULTILINE)
IMAGE_IDLE = 8
"""Idle requests after which an image counts as unneeded; the log does not tell whether an image
is used.
"""


class FormChange(msgspec.Struct, frozen=True):
    """New form of an item from the next request on."""

    handle: str
    # `trimmed` or `placeholder`: `text` replaces the item. `folded`: the item leaves the view.
    form: str
    text: str = ""


class RewritePlan(msgspec.Struct, frozen=True):
    """Changes that a decision proposes. They count only once the log holds them."""

    changes: tuple[FormChange, ...]
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
    forms: dict[int, ShortForm] = {}  # Ideal forms found since the last change of text or price

    def set_price(self, price: LossPrices) -> None:
        """Value lines at these prices from now on."""
        self.price = price
        self.forms.clear()

    def show(self, record: ItemRecord, text: str, tokens: float, form: str) -> None:
        """Set the shown text of an item. Each form may change with it."""
        self.memory.set_shown(record, text, tokens, form)
        self.forms.clear()

    def touch(self, record: ItemRecord) -> None:
        """Save the display state of an item before its first change."""
        if record.n not in self.before:
            self.before[record.n] = display_state_of(record)

    def plan(self) -> RewritePlan | None:
        """Return the changes and restore the memory; None without a change."""
        if not self.changed:
            return None
        items = self.memory.items
        changes = tuple(change for n in sorted(self.changed) for change in _change(self, items[n]))
        after = {n: display_state_of(items[n]) for n in self.before}
        for n, stand in self.before.items():
            self.memory.restore(n, stand)
        return RewritePlan(changes, after)


# --- Shortened items ------------------------------------------------------------------------------


def item_marker(builder: PlanBuilder, record: ItemRecord) -> str:
    """Return the marker that begins a shortened item."""
    if record.header:
        return record.header
    piece = record.piece
    if piece.kind == "result":
        told = f'{outcome_of(builder.memory, record)}; Recall("{piece.handle}") brings all'
        return marker(builder.nonce, "cleared", told)
    return marker(builder.nonce, "cut", f'Recall("{piece.handle}") brings all')


def kept_text(builder: PlanBuilder, record: ItemRecord, shape: ShortForm) -> str:
    """Return the text of an item that this form keeps: of a call under the names of its
    arguments.
    """
    if not shape.rows:
        return ""
    index, texts = builder.memory.text_indexes.of(record), texts_of(record)
    handle, numbered = record.piece.handle, index.numbered
    if record.again:
        return "\n".join(texts[row] for row in shape.rows)
    if record.piece.kind != "call":
        return body_text(texts, shape.rows, range(len(texts)), handle, numbered=numbered)
    parts = []
    for key, within, _ in argument_rows(record):
        rows = [row for row in shape.rows if row in within]
        if rows:
            parts.append(f"  {key} ({handle}):")
            parts.append(body_text(texts, rows, within, handle, numbered=numbered))
    return "\n".join(parts)


def trimmed_text(builder: PlanBuilder, record: ItemRecord, kept: str) -> str:
    """Return the text of an item of which `kept` is left; '' for an empty text or thinking."""
    if record.cls in (TEXT, THINKING) and not kept:
        return ""
    return item_marker(builder, record) + ("\n" + kept if kept else "")


def is_folded(record: ItemRecord) -> bool:
    """Return whether the item is in the history of another item."""
    return record.host >= 0 and record.host != record.n


def tokens_in(builder: PlanBuilder, record: ItemRecord, shape: ShortForm) -> float:
    """Return the tokens of an item in this form, without writing its text. A call is shortened
    only in the history.
    """
    measure, kind = builder.measure, record.piece.kind
    if kind == "call" or is_folded(record):
        about = len(head(builder.memory, record)) + 1 if kind == "result" else 0
        return (about + shape.chars) / measure.per_token
    if record.cls in (TEXT, THINKING) and not shape.chars:
        return 0.0
    return measure.of(len(item_marker(builder, record)) + 1 + shape.chars)


def is_too_small(builder: PlanBuilder, record: ItemRecord, gain_min: float) -> bool:
    """Return whether even the smallest form saves at most `gain_min` tokens, without reading the
    lines.
    """
    in_place = record.piece.kind == "result" and not is_folded(record)
    around = builder.measure.block if in_place else 0.0
    if record.tokens - around <= gain_min:
        return True
    return record.tokens - tokens_in(builder, record, ShortForm((), 0)) <= gain_min


def tokens_saved(builder: PlanBuilder, record: ItemRecord) -> float:
    """Return the tokens that the ideal form saves."""
    return record.tokens - tokens_in(builder, record, best_form(builder, record))


def best_form(builder: PlanBuilder, record: ItemRecord) -> ShortForm:
    """Return the form that an item should have now."""
    found = builder.forms.get(record.n)
    if found is None:
        found = builder.forms[record.n] = ideal_form(
            builder.memory, record, builder.values, builder.price, builder.measure
        )
    return found


def can_leave(builder: PlanBuilder, call: ItemRecord, idle_min: int) -> bool:
    """Return whether a call may go into a history now: its pair may, and there is a result in the
    same turn to hold it.
    """
    memory = builder.memory
    if call.partner < 0:
        return False
    results = memory.results
    at = bisect(results, call.partner) - 1
    if not at:
        return False
    between = memory.items[results[at - 1] + 1 : call.partner]
    if any(one.cls == USER for one in between):
        return False
    return _foldable(builder, memory.items[call.partner], idle_min) is not None


def trim(builder: PlanBuilder, record: ItemRecord, gain_min: float) -> None:
    """Give an item its ideal form, if that saves at least `gain_min` tokens. A call stays as it
    is until it goes into the history.
    """
    if is_folded(record):
        _trim_member(builder, record, best_form(builder, record), gain_min)
    elif record.piece.kind != "call":
        _apply_form(builder, record, best_form(builder, record), gain_min)


def _apply_form(
    builder: PlanBuilder, record: ItemRecord, shape: ShortForm, gain_min: float
) -> None:
    if not record.piece.images and len(shape.rows) == len(texts_of(record)):
        return  # nothing is cut
    kept = kept_text(builder, record, shape)
    text = trimmed_text(builder, record, kept)
    tokens = builder.measure.of(len(text)) if text else 0.0
    if record.tokens - tokens < gain_min:
        return
    builder.touch(record)
    record.rows, record.body = shape.rows, kept
    builder.show(record, text, tokens, "trimmed" if text else "gone")
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
    record.rows, record.body = shape.rows, kept_text(builder, record, shape)
    builder.show(record, _member_text(builder, record), tokens, "folded")


# --- History --------------------------------------------------------------------------------------


def outcome_of(memory: NeedsMemory, record: ItemRecord) -> str:
    """Return the outcome of a call, from its result: how it ended, how much it printed, and the
    line that tells most.
    """
    if not record.outcome:
        call = memory.items[record.partner] if record.partner >= 0 else None
        record.outcome = _outcome(record, (call.arguments if call else None) or {})
    return record.outcome


def _outcome(record: ItemRecord, arguments: Mapping[str, object]) -> str:
    piece = record.piece
    content = piece.own_text
    text = content.strip()
    if record.header:
        return clip(record.header.partition(": ")[2].partition("; ")[0], TOLD_CHARS_MAX)
    if len(text) <= SHORT_CHARS and "\n" not in text:
        return f"{piece.status}: {text}" if text else f"{piece.status}, no output"
    if record.cls == EDIT:
        return piece.status + first_change(arguments)
    count = content.count("\n") + 1
    size = f"{piece.status}, {count} line{'s' if count != 1 else ''}"
    if record.cls == SHELL:
        code = code_of(content, piece.status)
        size += f", exit code {code}" if code else ""
        command = next((value for value in arguments.values() if isinstance(value, str)), "")
        told = told_by_output(command, content, piece.status)
    elif record.cls == PART_READ:
        return _lines_read(content, piece.status) or size
    elif record.cls in (READ, SEARCH):
        return size
    else:
        told = clip(text, SHORT_CHARS)
    return f"{size}: {told}" if told else size


def _lines_read(text: str, status: str) -> str:
    """Return which lines of a file a numbered text holds; '' for another text."""
    numbers = LINE_NUMBERS.findall(text)
    return f"{status}, lines {numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else ""


def _untold_change(call: ItemRecord, outcome: str) -> str:
    """Return what an edit changed, where neither its outcome nor the kept part of it shows it."""
    change = first_change(call.arguments or {})
    is_shown = call.body != "" and not change.startswith(", - ")
    return "" if is_shown or change in outcome else change


def head(memory: NeedsMemory, record: ItemRecord) -> str:
    """Return the lines that stand for a call in the history: what was done, on what, and with
    what outcome. Each short argument has a line of its own.

        r412 Bash:
        make test
        → failed, 40 lines, exit code 2: 3 failed, 9 passed
    """
    piece = record.piece
    call = memory.items[record.partner] if record.partner >= 0 else None
    about = _arguments_told(call, record.cls) if call else ()
    outcome = outcome_of(memory, record)
    if call and record.cls == EDIT and piece.status == "ok":
        outcome += _untold_change(call, outcome)
    return "\n".join((f"{piece.handle} {piece.tool}:", *about, f"→ {outcome}"))


def _arguments_told(call: ItemRecord, cls: int) -> Iterator[str]:
    """Yield the arguments of a call for its label. One word or number does not tell what it is,
    so its name stands before it. Of a long argument the start is told, and less of it where the
    start is kept below.
    """
    arguments, kept = call.arguments or {}, call.rows or ()
    for key, rows, is_long in argument_rows(call):
        text = argument_text(arguments[key])
        if not text or (is_long and key in FILE_TEXTS):
            continue
        if is_long:
            yield clip(text, LABEL_CHARS_MAX if rows.start in kept else LONG_CHARS)
        else:
            yield f"{key}: {text}" if ONE_WORD.fullmatch(text) else text
    if cls not in (READ, PART_READ, SEARCH, SHELL):  # their range is told, or their time limit
        for key, value in arguments.items():
            if isinstance(value, int | float) and value is not False:
                yield f"{key}: {value}"


def _member_text(builder: PlanBuilder, record: ItemRecord) -> str:
    kind, body = record.piece.kind, record.body
    if kind == "result":
        told = head(builder.memory, record)
        return f"{told}\n{body}" if _has_body(builder, record) else told
    if kind == "call" or not body:
        return body
    return f"{record.piece.handle} you wrote: {body}"


def _has_body(builder: PlanBuilder, record: ItemRecord) -> bool:
    """Return whether something is kept of a result that its outcome does not tell."""
    body = record.body.strip()
    return body != "" and not outcome_of(builder.memory, record).endswith(body)


def history_text(builder: PlanBuilder, host: ItemRecord) -> str:
    """Return the text of the host of a history: its own form, then the other pairs, each with its
    label, what is kept of the call and what is kept of the result.
    """
    if host.rows is None or len(host.rows) == len(texts_of(host)):
        parts = [host.piece.content]
    else:
        parts = [item_marker(builder, host), host.body]
    if host.members:
        members = [builder.memory.items[n] for n in sorted(host.members)]
        count = sum(one.piece.kind == "result" for one in members)
        calls = f"{count} calls" if count != 1 else "one call"
        told = f"{calls} after {host.piece.handle}, shortened; Recall brings each whole"
        parts.append(marker(builder.nonce, "history", told))
        parts += _entries(builder, members)
    return "\n".join(part for part in parts if part)


def _entries(builder: PlanBuilder, members: Sequence[ItemRecord]) -> Iterator[str]:
    """Yield the texts of the members: the label of a pair stands before what is kept of its
    call.
    """
    calls = {one.n: one for one in members if one.piece.kind == "call"}
    for one in members:
        if one.piece.kind == "result":
            call = calls.get(one.partner)
            yield head(builder.memory, one)
            yield call.body if call else ""
            if call and call.body and _has_body(builder, one):
                yield f"  result ({one.piece.handle}):"
            yield one.body if _has_body(builder, one) else ""
        elif one.piece.kind != "call":
            yield _member_text(builder, one)


def has_live_image(memory: NeedsMemory, record: ItemRecord) -> bool:
    """Return whether an item holds an image that may still be needed."""
    return record.piece.images and memory.now - record.last < IMAGE_IDLE


def fold_runs(builder: PlanBuilder, start: int, stop: int, idle_min: int) -> None:
    """Fold runs of finished pairs between positions `start` and `stop` into histories."""
    memory = builder.memory
    host: ItemRecord | None = None
    size = 0.0
    for n in range(start, stop):
        record = memory.items[n]
        if record.cls == USER:
            host = None
        if record.piece.kind != "result" or is_folded(record):
            continue
        pair = None if host is None else _foldable(builder, record, idle_min)
        if pair is None or host is None or size + pair > HISTORY_TOKENS_MAX:
            host = record if not memory.must_stay(record) else None
            size = sum(memory.items[m].tokens for m in record.members)
        else:
            size += _join(builder, host, record)


def _foldable(builder: PlanBuilder, record: ItemRecord, idle_min: int) -> float | None:
    """Return the tokens that a pair has in a history; None when it may not go there."""
    memory = builder.memory
    if record.partner < 0 or record.again:  # it may hold a history of its own as plain text
        return None
    call = memory.items[record.partner]
    if memory.must_stay(call) or memory.must_stay(record) or has_live_image(memory, record):
        return None
    if any(memory.now - max(one.born, one.last) < idle_min for one in (record, call)):
        return None
    if record.members:
        total = record.tokens + 0.0 + sum(memory.items[n].tokens for n in record.members)
        return total if total <= HISTORY_TOKENS_MAX else None
    shapes = ((one, best_form(builder, one)) for one in (record, call))
    total = sum(tokens_in(builder, one, shape) for one, shape in shapes)
    return total if total <= HISTORY_PAIR_TOKENS_MAX else None


def _join(builder: PlanBuilder, host: ItemRecord, record: ItemRecord) -> float:
    """Move a pair, with its own history, into the history of `host`. Return its tokens there."""
    memory = builder.memory
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
        shape = ShortForm((), 0) if one.cls == THINKING else best_form(builder, one)
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
    return [
        one
        for one in reply
        if one.cls in (TEXT, THINKING) and one.form not in _LEFT and not memory.must_stay(one)
    ]


def is_answer_in_use(memory: NeedsMemory, record: ItemRecord) -> bool:
    """Return whether a text ended its turn, and the user has spoken at most `ANSWER_TURNS` times
    since. Messages in a row count once.
    """
    if record.cls != TEXT or any(one.piece.kind == "call" for one in reply_of(memory, record)):
        return False
    times = 0
    for n in reversed(memory.users[bisect(memory.users, record.n) :]):
        times += memory.items[n - 1].cls != USER
        if times > ANSWER_TURNS:
            return False
    return True


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


def _change(builder: PlanBuilder, record: ItemRecord) -> Iterable[FormChange]:
    piece = record.piece
    if record.form in _LEFT:
        if builder.before[record.n].form not in _LEFT:
            yield FormChange(piece.handle, "folded")
        return
    text = (
        history_text(builder, record)
        if piece.kind == "result"
        else trimmed_text(builder, record, record.body)
    )
    bare = record.rows is not None and not record.rows and not record.members
    is_cut = piece.images and record.rows is not None
    yield FormChange(piece.handle, "placeholder" if bare or is_cut else "trimmed", text)
