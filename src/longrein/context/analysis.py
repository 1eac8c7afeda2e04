"""Analysis of the context before a compaction: by kind, tool, time, file and module, and what could be freed.

Pure and offline: a function of the folded log. Every table adds up to the tokens of the next request, or to those of
its conversation where it says so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import get_args

import msgspec

from longrein.context.clearing.features import UNCHANGED_PREFIX
from longrein.context.decide import next_compacted
from longrein.context.report import MODULE_OF_KIND, Module
from longrein.context.state.ledger import key_argument
from longrein.context.state.request import Budget, Item
from longrein.context.state.state import State
from longrein.context.state.token_estimate import estimate_text, spec_tokens
from longrein.events import ToolCall, ToolResult, text_of

SLICES = 10  # Number of parts of the time line
FILES_SHOWN_MAX = 15  # Limit of files listed one by one
SMALL_TOKENS = 150  # Smaller items are not worth clearing
LEFT_TOKENS = 40  # Tokens that a cleared item still takes

RUNGS = (
    "superseded: read or run again later",
    "repeated word for word",
    "failed attempts",
    "other results",
    "arguments of calls",
    "thinking",
    "answers",
)
"""Measures, the cheapest loss first. An item counts under the first one that applies."""


class Row(msgspec.Struct, frozen=True):
    """Row of a table."""

    name: str
    count: int
    tokens: int


class ToolRow(msgspec.Struct, frozen=True):
    """Calls of one tool in the view."""

    name: str
    calls: int
    failed: int  # Calls that failed, were denied or cut
    tokens: int  # Tokens of arguments and results


class FileRow(msgspec.Struct, frozen=True):
    """Use of one file."""

    path: str
    reads: int
    changes: int
    tokens: int  # Tokens of calls and results that name it


class Analysis(msgspec.Struct, frozen=True):
    """Analysis of the context before a compaction."""

    total_tokens: int  # Input tokens of the next request
    conversation_tokens: int  # Part of it that is not system text, tools or static context
    usable_tokens: int
    kinds: tuple[Row, ...]  # By kind of block; adds up to the total
    modules: tuple[Row, ...]  # By the six modules; adds up to the total
    tools: tuple[ToolRow, ...]  # By tool, the largest first; adds up to the calls and results
    time: tuple[Row, ...]  # Ten equal parts of the log, oldest first; adds up to the conversation
    files: tuple[FileRow, ...]  # By file, the largest first
    rungs: tuple[Row, ...]  # By measure: what could be freed; no item counts twice
    next_count: int  # Items that the next compaction would remove
    next_tokens: int  # Their tokens
    floor_tokens: int  # Tokens that only a summary can remove


class _Block(msgspec.Struct, frozen=True):
    """Block of the request, system text and tools included."""

    kind: str
    module: str
    tokens: int  # Tokens, scaled to the provider's count
    item: Item | None = None


def analyse(state: State, budget: Budget) -> Analysis:
    """Analyse the view: its blocks, their tokens, and what could be freed."""
    blocks = _blocks(state)
    conversation = [block for block in blocks if block.item is not None and block.item.kind != "context"]
    calls = _calls(conversation)
    rungs = _rungs(state, conversation, calls)
    going = dict.fromkeys(next_compacted(state, budget))
    taken = [b for b in conversation if b.item is not None and b.item.handle in going]
    total = sum(block.tokens for block in blocks)
    return Analysis(
        total,
        sum(block.tokens for block in conversation),
        budget.usable_tokens,
        _table(blocks, lambda block: block.kind),
        tuple(sorted(_table(blocks, lambda block: block.module), key=lambda row: get_args(Module).index(row.name))),
        _tools(conversation),
        _time(state, conversation),
        _files(state, conversation, calls),
        rungs,
        len(taken),
        sum(block.tokens for block in taken),
        total - sum(row.tokens for row in rungs),
    )


def _blocks(state: State) -> list[_Block]:
    """Return all blocks, scaled so that their tokens add up to the view's."""
    raw: list[tuple[str, str, int, Item | None]] = []
    if state.prefix is not None:
        raw.append(("system text", "system", estimate_text(state.prefix.system), None))
        raw += [("tool schemas", "system", spec_tokens(tool), None) for tool in state.prefix.tools]
    raw += [(item.kind, MODULE_OF_KIND[item.kind], item.tokens, item) for item in state.items]
    factor = state.view_tokens / max(1, sum(size for _, _, size, _ in raw))
    blocks, sum_raw, sum_scaled = [], 0, 0
    for kind, module, size, item in raw:
        sum_raw += size
        tokens = round(sum_raw * factor) - sum_scaled
        sum_scaled += tokens
        blocks.append(_Block(kind, module, tokens, item))
    return blocks


def _table(blocks: Iterable[_Block], name: Callable[[_Block], str]) -> tuple[Row, ...]:
    sums: dict[str, tuple[int, int]] = {}
    for block in blocks:
        count, tokens = sums.get(name(block), (0, 0))
        sums[name(block)] = (count + 1, tokens + block.tokens)
    return tuple(Row(key, count, tokens) for key, (count, tokens) in sums.items())


# --- Calls and files -------------------------------------------------------------------------------------------------


def _calls(conversation: Sequence[_Block]) -> dict[str, ToolCall]:
    return {
        b.item.part.id: b.item.part for b in conversation if b.item is not None and isinstance(b.item.part, ToolCall)
    }


def _call_of(block: _Block, calls: Mapping[str, ToolCall]) -> ToolCall | None:
    part = block.item.part if block.item is not None else None
    if isinstance(part, ToolResult):
        return calls.get(part.call)
    return part if isinstance(part, ToolCall) else None


def _tools(conversation: Sequence[_Block]) -> tuple[ToolRow, ...]:
    rows: dict[str, ToolRow] = {}
    for block in conversation:
        part = block.item.part if block.item is not None else None
        if isinstance(part, ToolCall | ToolResult):
            row = rows.get(part.name, ToolRow(part.name, 0, 0, 0))
            over = isinstance(part, ToolResult) and block.item is not None and block.item.seqs[0] > 0
            failed = over and isinstance(part, ToolResult) and part.status != "ok"
            calls = row.calls + isinstance(part, ToolCall)
            rows[part.name] = ToolRow(row.name, calls, row.failed + failed, row.tokens + block.tokens)
    return tuple(sorted(rows.values(), key=lambda row: -row.tokens))


def _files(state: State, conversation: Sequence[_Block], calls: Mapping[str, ToolCall]) -> tuple[FileRow, ...]:
    tokens: dict[str, int] = {}
    for block in conversation:
        call = _call_of(block, calls)
        argument = key_argument(call.arguments or {}) if call is not None else ""
        if argument:
            tokens[argument] = tokens.get(argument, 0) + block.tokens
    rows = []
    for path, use in state.ledger.files.items():
        near = sum(size for name, size in tokens.items() if name == path or path.endswith("/" + name.lstrip("./")))
        rows.append(FileRow(path, use.reads, use.changes, near))
    return tuple(sorted(rows, key=lambda row: (-row.tokens, row.path)))


def _time(state: State, conversation: Sequence[_Block]) -> tuple[Row, ...]:
    last = max(1, state.seq)
    counts, tokens = [0] * SLICES, [0] * SLICES
    for block in conversation:
        seq = block.item.seqs[1] if block.item is not None else 0
        at = min(SLICES - 1, (seq or last) * SLICES // (last + 1))
        counts[at] += 1
        tokens[at] += block.tokens
    firsts = [max(1, -(-n * (last + 1) // SLICES)) for n in range(SLICES + 1)]
    names = [f"r{first} to r{after - 1}" for first, after in pairwise(firsts)]
    return tuple(map(Row, names, counts, tokens))


# --- What could be freed ---------------------------------------------------------------------------------------------


def _rungs(state: State, conversation: Sequence[_Block], calls: Mapping[str, ToolCall]) -> tuple[Row, ...]:
    sums = {name: [0, 0] for name in RUNGS}
    later: dict[tuple[str, str], None] = {}
    texts: dict[str, None] = {}
    for block in reversed(conversation):
        item = block.item
        if item is None:
            continue
        rung = _rung(item, _call_of(block, calls), later, texts)
        free = block.tokens - LEFT_TOKENS
        if rung is None or free <= 0 or not 0 < item.seqs[1] <= state.seen_reach or item.form == "placeholder":
            continue
        if item.kind in ("result", "call", "text") and item.tokens < SMALL_TOKENS:
            continue
        sums[RUNGS[rung]][0] += 1
        sums[RUNGS[rung]][1] += free
    return tuple(Row(name, count, tokens) for name, (count, tokens) in sums.items() if count)


def _rung(item: Item, call: ToolCall | None, later: dict[tuple[str, str], None], texts: dict[str, None]) -> int | None:
    """Return the index in `RUNGS` of an item; None if only a summary can remove it.

    `later`, `texts`: calls and results after it.
    """
    part = item.part
    if not isinstance(part, ToolResult):
        return {"call": 4, "thinking": 5, "text": 6}.get(item.kind)
    line, text = (part.name, str(call.arguments) if call is not None else ""), text_of(part.parts)
    if text.startswith(UNCHANGED_PREFIX):
        return 3
    superseded, repeated = line in later and bool(line[1]), text in texts
    later[line] = texts[text] = None
    if superseded:
        return 0
    if repeated:
        return 1
    return 2 if part.status != "ok" else 3


# --- Text ------------------------------------------------------------------------------------------------------------


def analysis_lines(analysis: Analysis) -> list[str]:
    """Return the analysis as lines for a terminal."""
    a = analysis
    share = round(100 * a.total_tokens / max(1, a.usable_tokens))
    of_usable = f"{a.total_tokens:,} of {a.usable_tokens:,} usable tokens ({share} %)"
    shown = [f"{of_usable}, {a.conversation_tokens:,} of them conversation"]
    shown += _titled("by kind", a.kinds) + _titled("by module", a.modules)
    if a.tools:
        shown.append("by tool: calls, failed, tokens")
        shown += [f"  {row.name:<28} {row.calls:>6} {row.failed:>6} {row.tokens:>9,}" for row in a.tools]
    shown += _titled("over time: blocks, tokens", a.time)
    if a.files:
        shown.append("files: reads, changes, tokens")
        files = a.files[:FILES_SHOWN_MAX]
        shown += [f"  {row.path:<44} {row.reads:>4} {row.changes:>4} {row.tokens:>9,}" for row in files]
        shown += [f"  and {len(a.files) - len(files)} more"] if len(a.files) > len(files) else []
    shown += _titled("could be freed, cheapest loss first", a.rungs)
    taken = f"would take {a.next_count} blocks of {a.next_tokens:,} tokens" if a.next_count else "finds nothing to take"
    shown.append(f"the next compaction {taken}")
    shown.append(f"without a summary at least {a.floor_tokens:,} tokens stay")
    return shown


def _titled(title: str, rows: Sequence[Row]) -> list[str]:
    """Return the non-empty rows under `title`; [] without rows."""
    shown = [f"  {row.name:<40} {row.count:>6} {row.tokens:>9,}" for row in rows if row.count or row.tokens]
    return [title, *shown] if shown else []
