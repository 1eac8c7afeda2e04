"""Context report: tokens by item and by module, for `/context` and `longrein context`.

Estimates are scaled by one factor so that the rows of the last request add up to the provider's
count. The six modules are labels for people and budgets; they do not order the request.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from longrein_context.events import (
    Image,
    PrefixSet,
    ToolCall,
    ToolResult,
    ToolSpec,
    marker_sign,
    text_of,
)
from longrein_context.events.ids import HISTORY
from longrein_context.state.request_types import PREPARE_SHARE, Budget, Item, ItemKind, Price
from longrein_context.state.state import State
from longrein_context.state.token_estimate import arguments_text, estimate_text, spec_tokens

Module = Literal[
    "system",
    "continuation",
    "calls and results",
    "verified milestones",
    "user requests",
    "environment",
]
MODULES: tuple[Module, ...] = get_args(Module)  # The six modules of the context
MODULE_OF_KIND: Mapping[ItemKind, Module] = {
    "context": "environment",
    "user": "user requests",
    "reminder": "environment",
    "text": "calls and results",
    "thinking": "calls and results",
    "call": "calls and results",
    "result": "calls and results",
    "summary": "continuation",
    "ack": "continuation",
}
SHOWN_CHARS_MAX = 100  # Characters shown of an item's beginning
_LINE_NUMBER = re.compile(r" *(\d+)\t")
"""Start of a line of a file as `Read` shows it."""
_CALL_IN_HISTORY = re.compile(r"^(?=r\d+ \S+:$)", re.MULTILINE)
_LINES_READ = re.compile(r"^→ \w+, lines (\d+)-(\d+)$", re.MULTILINE)
"""Outcome of a part of a file that was read, in a history."""


class ReportRow(msgspec.Struct, frozen=True):
    """Block of the next request."""

    module: Module
    kind: str  # `system`, `tool`, or the kind of the item
    name: str  # Tool or source; '' for plain text
    handle: str  # Handle for `Recall`; '' for system text and tools
    form: str
    tokens: int  # Scaled to the provider's count
    usd: float  # Cost of carrying the block so far, with ideal cache use; 0 without prices
    goes: bool  # True if the next compaction would remove it
    begins: str  # File and lines of a reading, such as `src/app.py:40–80`; else the first words


class Report(msgspec.Struct, frozen=True):
    """Content of the context."""

    shown: tuple[ReportRow, ...]
    total_tokens: int  # Tokens of the next request: the sum of `shown`
    # Input and output of the last answered request as counted by the provider; 0 if there is none
    counted_tokens: int
    factor: float  # Count divided by estimate
    usable_tokens: int
    window_tokens: int
    note: str = ""  # Note on assumed prices
    prepare_share: float = (
        PREPARE_SHARE  # Share of the usable window at which a summary is prepared
    )

    def modules(self) -> list[tuple[Module, int]]:
        """Return (module, tokens) of the modules with content, in their order."""
        sums = {
            module: sum(s.tokens for s in self.shown if s.module == module) for module in MODULES
        }
        return [(module, tokens) for module, tokens in sums.items() if tokens]


def report(state: State, budget: Budget, goes: Iterable[str] = ()) -> Report:
    """Return the blocks of the next request. `goes`: handles that the next compaction would
    remove.
    """
    taken, price = frozenset(goes), budget.price
    calls = {item.part.id: item.part for item in state.items if isinstance(item.part, ToolCall)}
    rows = [
        *_prefix_rows(state),
        *(row for item in state.items for row in _item_rows(state, item, calls, price, taken)),
    ]
    tokens = scaled([raw for raw, _ in rows], state.view_tokens)
    shown = tuple(
        msgspec.structs.replace(row, tokens=count)
        for (_, row), count in zip(rows, tokens, strict=True)
    )
    counted, factor = state.last_usage.context_tokens, state.gauge.ratio
    note = price.note if price is not None else ""
    return Report(
        shown,
        state.view_tokens,
        counted,
        factor,
        budget.usable_tokens,
        budget.window_tokens,
        note,
        budget.prepare_share,
    )


def scaled(raws: list[int], total: int) -> list[int]:
    """Scale `raws` to whole numbers that add up to `total` exactly; the largest remainders are
    rounded up.
    """
    everything = sum(raws) or 1
    exact = [raw * total / everything for raw in raws]
    counts = [int(value) for value in exact]
    for at in sorted(range(len(raws)), key=lambda n: counts[n] - exact[n])[: total - sum(counts)]:
        counts[at] += 1
    return counts


def _prefix_rows(state: State) -> list[tuple[int, ReportRow]]:
    if state.prefix is None:
        return []
    system = estimate_text(state.prefix.system)
    rows = [(system, _plain("system", state.prefix.system))]
    return rows + [
        (spec_tokens(tool), _plain("tool", tool.description, tool.name))
        for tool in state.prefix.tools
    ]


def _plain(kind: str, text: str, name: str = "") -> ReportRow:
    return ReportRow("system", kind, name, "", "full", 0, 0.0, goes=False, begins=_beginning(text))


def _item_rows(
    state: State,
    item: Item,
    calls: Mapping[str, ToolCall],
    price: Price | None,
    taken: frozenset[str],
) -> list[tuple[int, ReportRow]]:
    """Return the row of an item, and a row for each other block that its text holds."""
    name = item.part.name if isinstance(item.part, ToolCall | ToolResult) else ""
    row = ReportRow(
        MODULE_OF_KIND[item.kind],
        item.kind,
        name,
        item.handle,
        item.form,
        0,
        _usd(state, item, price),
        item.handle in taken,
        reading_place(state, item, calls) or _begins(item),
    )
    found = [(item.tokens, row)]
    if isinstance(item.part, ToolResult):
        own, *others = _history(text_of((item.part,)), state.nonce)
        found = [(estimate_text(own) or 1, row)]
        found += [(estimate_text(text), _folded(state, row, text)) for text in others]
    elif item.kind == "summary" and state.ledger_text:
        verified, told = min(item.tokens, estimate_text(state.ledger_text)), state.ledger_text
        milestones = msgspec.structs.replace(
            row, module="verified milestones", begins=_beginning(told)
        )
        found = [(item.tokens - verified, row), (verified, milestones)]
    sizes = scaled([raw for raw, _ in found], item.tokens)
    return [
        (size, msgspec.structs.replace(part, usd=row.usd * size / max(1, item.tokens)))
        for size, (_, part) in zip(sizes, found, strict=True)
    ]


def _history(text: str, nonce: str) -> list[str]:
    """Return the own text of a result, then the text of each call in the history behind it."""
    own, sign, history = text.partition(f"\n[{marker_sign(nonce)}{HISTORY}")
    head, *calls = _CALL_IN_HISTORY.split(history)
    return [own + sign + head, *calls]


def _folded(state: State, row: ReportRow, text: str) -> ReportRow:
    """Return the row of a call in the history of `row`: its file and lines where it has read."""
    head, _, told = text.partition("\n")
    handle, name = head.rstrip(":").split()
    lines = _LINES_READ.search(told)
    begins = _beginning(told)
    if state.traits_of(name).kind == "read":
        begins = _place(state, told.partition("\n")[0], lines.groups() if lines else ())
    return msgspec.structs.replace(row, name=name, handle=handle, form="folded", begins=begins)


def reading_place(state: State, item: Item, calls: Mapping[str, ToolCall]) -> str:
    """Return the file and lines of a reading, such as `src/app.py:40–80`; '' for other items.

    `calls`: call id -> call, for the results.
    """
    part = item.part
    if not isinstance(part, ToolCall | ToolResult) or state.traits_of(part.name).kind != "read":
        return ""
    call = part if isinstance(part, ToolCall) else calls.get(part.call)
    arguments = (call.arguments if call is not None else None) or {}
    path = arguments.get("file_path") or arguments.get("path")
    if not isinstance(path, str) or not path:
        return ""
    numbers = _lines_asked(arguments)
    if isinstance(part, ToolResult) and item.form == "full":
        numbers = _lines_shown(text_of(part.parts)) or numbers
    return _place(state, path, numbers)


def _place(state: State, path: str, numbers: Sequence[str]) -> str:
    path = path.removeprefix(state.cwd.rstrip("/") + "/")
    return ":".join(filter(None, (path, "–".join(dict.fromkeys(numbers)))))


def _lines_shown(text: str) -> list[str]:
    """Return the numbers of the first and the last numbered line of a result; [] without any."""
    lines = text.split("\n") if "\t" in text else []
    first = next(filter(None, map(_LINE_NUMBER.match, lines)), None)
    last = next(filter(None, map(_LINE_NUMBER.match, reversed(lines))), None)
    return [first[1], last[1]] if first and last else []


def _lines_asked(arguments: Mapping[str, Any]) -> list[str]:
    """Return the first and last line that a call names; [] where it does not name both."""
    first, count = arguments.get("offset", 1), arguments.get("limit")
    if not (isinstance(first, int) and isinstance(count, int)):
        return []
    return [str(max(first, 1)), str(max(first, 1) + count - 1)]


def _begins(item: Item) -> str:
    match item.part:
        case ToolCall():
            return _beginning(arguments_text(item.part))
        case Image(media=media):
            return media
        case part:
            return _beginning(text_of((part,)))


def _beginning(text: str) -> str:
    return " ".join(text[: 4 * SHOWN_CHARS_MAX].split())[:SHOWN_CHARS_MAX]


def _usd(state: State, item: Item, price: Price | None) -> float:
    """Return the cost of an item: written to the cache once, then read by each later request."""
    carried = len(state.asked_seqs) - bisect_left(state.asked_seqs, item.key[0])
    if price is None or carried <= 0 or not item.key[0]:
        return 0.0
    return state.gauge.scale(item.tokens) * (price.write_usd + (carried - 1) * price.read_usd) / 1e6


# --- Tool schemas by server -----------------------------------------------------------------------
#
# The tools of a server are named `mcp__SERVER__TOOL`.


DIAGNOSED_SHARE_MIN = 0.10  # Smallest share of the window at which schemas are reported


def specs_by_server(specs: Iterable[ToolSpec]) -> dict[str, list[ToolSpec]]:
    """Group `specs` by server in order of first appearance; '' for tools without a server."""
    found: dict[str, list[ToolSpec]] = {}
    for spec in specs:
        words = spec.name.split("__", 2)
        found.setdefault(words[1] if len(words) == 3 and words[0] == "mcp" else "", []).append(spec)
    return found


def schema_diagnosis(prefix: PrefixSet, window_tokens: int) -> str:
    """Return one line on the server with the largest schemas; '' if none takes a tenth of the
    window.
    """
    deferred = {spec.name for spec in prefix.deferred}
    costs = {
        server: (sum(map(spec_tokens, specs)), specs[0].name in deferred)
        for server, specs in specs_by_server(prefix.callable_tools).items()
        if server
    }
    server, (tokens, late) = max(
        costs.items(), key=lambda cost: cost[1][0], default=("", (0, False))
    )
    if not server or tokens < DIAGNOSED_SHARE_MIN * window_tokens:
        return ""
    fills = (
        f"server {server}'s schemas fill {_thousands(tokens)} of your "
        f"{_thousands(window_tokens)} window"
    )
    return (
        f"{fills}; these are deferred now"
        if late
        else f"{fills}; switch off what you do not need of it"
    )


def _thousands(tokens: int) -> str:
    if tokens >= 10_000:
        return f"{tokens / 1000:.0f}k"
    if tokens >= 1_000:
        return f"{tokens / 1000:.1f}k"
    return str(tokens)
