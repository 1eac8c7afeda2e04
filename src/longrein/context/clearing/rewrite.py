"""How a decision becomes text: trimmed items, short ledgers in place of runs of calls, and the markers that say so.

What is shown of a cleared item is a marker that only the harness can write (status, size, handle) and the body that
`bodies` chose. A call keeps a JSON object with its own keys. A run of old calls and results becomes one ledger inside
the first result of the run; call and result go together. Thinking is whole, gone, or plain text of what is kept of it.
"""

from collections.abc import Iterable, Mapping
from math import inf

import msgspec

from longrein.context.clearing.features import TEXT, THINKING, USER, Held, Stand, call_content, stand_of
from longrein.context.clearing.line_value import Measure, Price, Shape, Values, body, ideal
from longrein.context.clearing.needs import Worth
from longrein.context.clearing.text_index import bare_text, long_and_short, rows_of
from longrein.events import marker

LEDGER_PAIR_TOKENS_MAX = 1500
"""A pair that still shows more than this stands for itself."""
LEDGER_SMALL_TOKENS = 400
"""A result or call of this size may be folded though it was never trimmed."""
LEDGER_TOKENS_MAX = 2500
"""One ledger holds at most this; the next run begins a new one."""
LABEL_CHARS_MAX = 60
"""Of what a folded call was about."""


class Change(msgspec.Struct, frozen=True):
    """An item is shown in another way from the next request on."""

    handle: str
    form: str
    """`trimmed` or `placeholder`: `text` stands in its place; `folded`: it is no longer in the view."""
    text: str = ""


class Plan(msgspec.Struct, frozen=True):
    """What a decision would change. Nothing is changed until it is taken: what counts is what the log then says."""

    changes: tuple[Change, ...]
    gain: float
    """Tokens that each later request saves."""
    after: dict[int, Stand]
    """How the items will stand."""

    def take(self, worth: Worth) -> None:
        """Remember that it was done."""
        for n, stand in self.after.items():
            worth.put(n, stand)
            worth.paying.pop(n, None)
            worth.dirty.pop(n, None)


class Desk(msgspec.Struct):
    """What shaping needs beside the memory, and how the items stood that it has changed."""

    worth: Worth
    values: Values
    price: Price
    measure: Measure
    nonce: str
    before: dict[int, Stand] = {}
    changed: dict[int, None] = {}
    """Places of the items whose shown text is another one now."""

    def touch(self, held: Held) -> None:
        """Remember how an item stands before it is changed for the first time."""
        if held.n not in self.before:
            self.before[held.n] = stand_of(held)

    def plan(self) -> Plan | None:
        """What was changed; the memory is as it was before."""
        if not self.changed:
            return None
        items = self.worth.items
        changes = tuple(change for n in sorted(self.changed) for change in _change(self, items[n]))
        gain = sum(stand.tokens - items[n].tokens for n, stand in self.before.items())
        after = {n: stand_of(items[n]) for n in self.before}
        for n, stand in self.before.items():
            self.worth.put(n, stand)
        return Plan(changes, gain, after)


# --- one item ------------------------------------------------------------------------------------------------------


def header(desk: Desk, held: Held) -> str:
    """The marker that begins what is shown of a cleared item."""
    if held.header:
        return held.header
    piece = held.piece
    match piece.kind:
        case "result":
            lines = piece.content.count("\n") + 1
            return marker(desk.nonce, "cleared", f'{piece.status}, {lines} lines, Recall("{piece.handle}")')
        case "call":
            return marker(desk.nonce, "cleared", f'Recall("{piece.handle}")')
        case _:
            return marker(desk.nonce, "cut", piece.handle)


def kept_text(desk: Desk, held: Held, shape: Shape) -> str:
    """What is left of an item's own text in this shape."""
    if not shape.rows and not shape.words:
        return ""
    sheet, rows = desk.worth.sheets.of(held), shape.rows
    if held.piece.kind == "call" and not is_folded(held):
        rows = [row for row in rows if not sheet.fixed[row]]
    return body(held, sheet, rows, shape.words)


def trimmed_text(desk: Desk, held: Held, kept: str) -> str:
    """What is shown of an item of which `kept` is left; nothing for a text of which nothing is."""
    if held.piece.kind == "call":
        return _trimmed_call(desk, held, kept)
    if held.cls in (TEXT, THINKING) and not kept:
        return ""
    return header(desk, held) + ("\n" + kept if kept else "")


def _trimmed_call(desk: Desk, held: Held, kept: str) -> str:
    shown: dict[str, object] = dict(held.arguments or {})
    first = True
    for key, _, is_long in long_and_short(shown):
        if is_long:
            shown[key] = (
                header(desk, held) + ("\n" + kept if kept else "") if first else marker(desk.nonce, "cleared", "")
            )
            first = False
    return msgspec.json.encode(shown).decode()


def is_folded(held: Held) -> bool:
    """Whether it stands in the ledger of another."""
    return held.host >= 0 and held.host != held.n


def tokens_in(desk: Desk, held: Held, shape: Shape) -> float:
    """Size of an item in this shape, without making its text."""
    measure, kind = desk.measure, held.piece.kind
    if is_folded(held):
        return (
            (len(label(desk.worth, held)) + 1 + shape.chars) / measure.result
            if kind == "result"
            else (shape.chars / measure.result)
        )
    if kind == "call":
        spare = sum(len(key) + 6 + (40 if is_long else 0) for key, _, is_long in long_and_short(held.arguments or {}))
        return measure.of("call", shape.chars * 1.06 + spare)
    if held.cls in (TEXT, THINKING) and not shape.chars:
        return 0.0
    return measure.of(kind, len(header(desk, held)) + 1 + shape.chars)


def is_small(desk: Desk, held: Held, gain_min: float) -> bool:
    """Whether not even its smallest shape would save more than `gain_min` tokens: found without reading its lines."""
    folded, kind = is_folded(held), held.piece.kind
    if held.tokens - (desk.measure.block if kind in ("call", "result") and not folded else 0.0) <= gain_min:
        return True
    chars = 0
    if kind == "call" and not folded:
        chars = sum(len(bare_text(text)) for _, text, is_long in long_and_short(held.arguments or {}) if not is_long)
    return held.tokens - tokens_in(desk, held, Shape((), [], chars)) <= gain_min


def saved(desk: Desk, held: Held) -> float:
    """Tokens that its ideal form would save."""
    return held.tokens - tokens_in(desk, held, best(desk, held))


def best(desk: Desk, held: Held) -> Shape:
    """The shape that an item should have now."""
    return ideal(desk.worth, held, desk.values, desk.price, desk.measure, folded=is_folded(held))


def trim(desk: Desk, held: Held, gain_min: float) -> None:
    """Give an item its ideal form, if that saves at least `gain_min` tokens."""
    shape = best(desk, held)
    if is_folded(held):
        _trim_member(desk, held, shape, gain_min)
    else:
        _take(desk, held, shape, gain_min)


def _take(desk: Desk, held: Held, shape: Shape, gain_min: float) -> None:
    kept = kept_text(desk, held, shape)
    text = trimmed_text(desk, held, kept)
    tokens = desk.measure.of(held.piece.kind, len(text)) if text else 0.0
    if held.tokens - tokens < gain_min:
        return
    desk.touch(held)
    held.rows, held.words, held.body = shape.rows, shape.words, kept
    plain = call_content(text) if held.piece.kind == "call" else text
    desk.worth.show(held, plain, tokens, "trimmed" if text else "gone")
    desk.changed[held.n] = None


def _trim_member(desk: Desk, held: Held, shape: Shape, gain_min: float) -> None:
    tokens = tokens_in(desk, held, shape)
    if held.tokens - tokens < gain_min:
        return
    desk.touch(held)
    desk.touch(desk.worth.items[held.host])
    _fold(desk, held, shape, tokens)
    desk.changed[held.host] = None


def _fold(desk: Desk, held: Held, shape: Shape, tokens: float) -> None:
    held.rows, held.words, held.body = shape.rows, shape.words, kept_text(desk, held, shape)
    desk.worth.show(held, _member_text(desk, held), tokens, "folded")


# --- ledgers -------------------------------------------------------------------------------------------------------


def label(worth: Worth, held: Held) -> str:
    """`r412 Read src/a.py, 40 lines`: what a folded call was."""
    piece = held.piece
    call = worth.items[held.partner] if held.partner >= 0 else None
    about = _about(call.arguments or {}, held.paths) if call else ""
    status = "" if piece.status == "ok" else f" {piece.status}"
    lines = piece.content.count("\n") + 1
    return f"{piece.handle} {piece.tool} {about}{status}, {lines} lines"


def _about(arguments: Mapping[str, object], paths: tuple[str, ...]) -> str:
    if paths:
        return paths[0]
    first = next((v for v in arguments.values() if isinstance(v, str) and v), "")
    return " ".join(first[: LABEL_CHARS_MAX + 20].split())[:LABEL_CHARS_MAX]


def _member_text(desk: Desk, held: Held) -> str:
    if held.piece.kind != "result":
        return held.body
    return label(desk.worth, held) + ("\n" + held.body if held.body else "")


def ledger_text(desk: Desk, host: Held) -> str:
    """What stands in the result of a run's first pair: its own form, then a line and body for each other pair."""
    own = host.body
    if host.rows is None:  # it arrived in the form that it has
        sheet = desk.worth.sheets.of(host)
        own = body(host, sheet, rows_of(host, sheet), ())
    parts = [header(desk, host), own, *(_member_text(desk, desk.worth.items[n]) for n in host.members)]
    return "\n".join(part for part in parts if part)


def fold_runs(desk: Desk, start: int, stop: int, idle_min: int) -> None:
    """Fold runs of finished pairs between places `start` and `stop` into ledgers."""
    worth = desk.worth
    host: Held | None = None
    size = 0.0
    for n in range(start, stop):
        held = worth.items[n]
        if held.cls == USER:
            host = None
        if held.piece.kind != "result" or (held.host >= 0 and held.host != n):
            continue
        pair = _foldable(desk, held, idle_min)
        if pair is None:
            host = None
            continue
        if host is None or size + pair > LEDGER_TOKENS_MAX:
            host, size = held, held.tokens + sum(worth.items[m].tokens for m in held.members)
            continue
        size += _join(desk, host, held)


def _foldable(desk: Desk, held: Held, idle_min: int) -> float | None:
    """Tokens of the pair when it may go into a ledger."""
    worth = desk.worth
    if held.partner < 0:
        return None
    call = worth.items[held.partner]
    if not {call.piece.handle, held.piece.handle}.isdisjoint(worth.kept):
        return None
    for one in (held, call):
        if worth.now - max(one.born, one.last) < idle_min:
            return None
    total = held.tokens + (call.tokens if not held.members else 0.0) + sum(worth.items[n].tokens for n in held.members)
    if held.members:
        return total if total <= LEDGER_TOKENS_MAX else None
    small = held.form != "full" or held.tokens <= LEDGER_SMALL_TOKENS + desk.measure.block
    return total if small and total <= LEDGER_PAIR_TOKENS_MAX else None


def _join(desk: Desk, host: Held, held: Held) -> float:
    """Move a pair (with its own ledger, if it has one) into the ledger of `host`; the tokens it takes there."""
    worth = desk.worth
    if host.form == "full":
        _take(desk, host, best(desk, host), -inf)
    call = worth.items[held.partner]
    moved = [call, held, *(worth.items[n] for n in held.members)]
    desk.touch(host)
    added = 0.0
    for one in moved:
        desk.touch(one)
    held.members = ()
    for one in moved:
        one.host = host.n
        shape = ideal(worth, one, desk.values, desk.price, desk.measure, folded=True)
        _fold(desk, one, shape, tokens_in(desk, one, shape))
        host.members = (*host.members, one.n)
        desk.changed[one.n] = None
        added += one.tokens
    desk.changed[host.n] = None
    return added


def _change(desk: Desk, held: Held) -> Iterable[Change]:
    piece = held.piece
    if held.form in ("folded", "gone"):
        if desk.before[held.n].form not in ("folded", "gone"):
            yield Change(piece.handle, "folded")
        return
    text = ledger_text(desk, held) if piece.kind == "result" else trimmed_text(desk, held, held.body)
    bare = held.rows is not None and not held.rows and not held.words and not held.members
    yield Change(piece.handle, "placeholder" if bare or piece.images else "trimmed", text)
