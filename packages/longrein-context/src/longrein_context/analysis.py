"""Analysis of the context before a compaction: by kind, tool, time, file and module, and what could
be freed.

Pure and offline: a function of the folded log. Every table adds up to the tokens of the next
request, or to those of its conversation where it says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import get_args

import msgspec

from longrein_context.clearing.text_features import UNCHANGED_PREFIX
from longrein_context.context_report import MODULE_OF_KIND, Module, scaled
from longrein_context.decisions import next_compacted
from longrein_context.events import ToolCall, ToolResult, text_of
from longrein_context.state.ledger import key_argument
from longrein_context.state.request_types import Budget, Item
from longrein_context.state.state import State
from longrein_context.state.token_estimate import estimate_text, spec_tokens

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


class AnalysisRow(msgspec.Struct, frozen=True):
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
    kinds: tuple[AnalysisRow, ...]  # By kind of block; adds up to the total
    modules: tuple[AnalysisRow, ...]  # By the six modules; adds up to the total
    tools: tuple[ToolRow, ...]  # By tool, the largest first; adds up to the calls and results
    time: tuple[
        AnalysisRow, ...
    ]  # Ten equal parts of the log, oldest first; adds up to the conversation
    files: tuple[FileRow, ...]  # By file, the largest first
    rungs: tuple[AnalysisRow, ...]  # By measure: what could be freed; no item counts twice
    next_count: int  # Items that the next compaction would remove
    next_tokens: int  # Their tokens
    floor_tokens: int  # Tokens that only a summary can remove


_Block = tuple[
    str, str, int
]  # (kind, module, tokens) of a block of the request, system text and tools included
_Talk = Sequence[tuple[Item, ToolCall | None, int]]
"""Items of the conversation with their call (of a result, the call it answers) and tokens."""


def analyse(state: State, budget: Budget) -> Analysis:
    """Analyse the view: its blocks, their tokens, and what could be freed."""
    blocks = _blocks(state)
    counts = [tokens for _, _, tokens in blocks]
    made = {
        item.part.id: item.part for item in state.conversation if isinstance(item.part, ToolCall)
    }
    sizes = counts[len(counts) - len(state.conversation) :]
    talk = [
        (item, _call_of(item, made), size)
        for item, size in zip(state.conversation, sizes, strict=True)
    ]
    rungs = _rungs(state, talk)
    going = dict.fromkeys(next_compacted(state, budget))
    taken = [tokens for item, _, tokens in talk if item.handle in going]
    modules = _table((module, tokens) for _, module, tokens in blocks)
    return Analysis(
        sum(counts),
        sum(sizes),
        budget.usable_tokens,
        _table((kind, tokens) for kind, _, tokens in blocks),
        tuple(sorted(modules, key=lambda row: get_args(Module).index(row.name))),
        _tools(talk),
        _time(state, talk),
        _files(state, talk),
        rungs,
        len(taken),
        sum(taken),
        sum(counts) - sum(row.tokens for row in rungs),
    )


def _blocks(state: State) -> list[_Block]:
    """Return all blocks, scaled so that their tokens add up to the view's."""
    raw: list[_Block] = []
    if state.prefix is not None:
        raw.append(("system text", "system", estimate_text(state.prefix.system)))
        raw += [("tool schemas", "system", spec_tokens(tool)) for tool in state.prefix.tools]
    raw += [(item.kind, MODULE_OF_KIND[item.kind], item.tokens) for item in state.items]
    tokens = scaled([size for _, _, size in raw], state.view_tokens)
    return [(kind, module, size) for (kind, module, _), size in zip(raw, tokens, strict=True)]


def _table(blocks: Iterable[tuple[str, int]]) -> tuple[AnalysisRow, ...]:
    sums: dict[str, tuple[int, int]] = {}
    for name, tokens in blocks:
        count, total = sums.get(name, (0, 0))
        sums[name] = (count + 1, total + tokens)
    return tuple(AnalysisRow(name, count, total) for name, (count, total) in sums.items())


# --- Calls and files ------------------------------------------------------------------------------


def _call_of(item: Item, made: Mapping[str, ToolCall]) -> ToolCall | None:
    if isinstance(item.part, ToolResult):
        return made.get(item.part.call)
    return item.part if isinstance(item.part, ToolCall) else None


def _tools(talk: _Talk) -> tuple[ToolRow, ...]:
    rows: dict[str, ToolRow] = {}
    for item, _, tokens in talk:
        part = item.part
        if isinstance(part, ToolCall | ToolResult):
            row = rows.get(part.name, ToolRow(part.name, 0, 0, 0))
            failed = isinstance(part, ToolResult) and item.seqs[0] > 0 and part.status != "ok"
            calls = row.calls + isinstance(part, ToolCall)
            rows[part.name] = ToolRow(row.name, calls, row.failed + failed, row.tokens + tokens)
    return tuple(sorted(rows.values(), key=lambda row: -row.tokens))


def _files(state: State, talk: _Talk) -> tuple[FileRow, ...]:
    arguments = [
        (key_argument(call.arguments or {}), tokens) for _, call, tokens in talk if call is not None
    ]
    sizes = {row.name: row.tokens for row in _table(arguments) if row.name}
    rows = []
    for path, use in state.ledger.files.items():
        near = sum(
            size
            for name, size in sizes.items()
            if name == path or path.endswith("/" + name.lstrip("./"))
        )
        rows.append(FileRow(path, use.reads, use.changes, near))
    return tuple(sorted(rows, key=lambda row: (-row.tokens, row.path)))


def _time(state: State, talk: _Talk) -> tuple[AnalysisRow, ...]:
    last = max(1, state.seq)
    counts, sizes = [0] * SLICES, [0] * SLICES
    for item, _, tokens in talk:
        at = min(SLICES - 1, (item.seqs[1] or last) * SLICES // (last + 1))
        counts[at] += 1
        sizes[at] += tokens
    firsts = [max(1, -(-n * (last + 1) // SLICES)) for n in range(SLICES + 1)]
    names = [f"r{first} to r{after - 1}" for first, after in pairwise(firsts)]
    return tuple(map(AnalysisRow, names, counts, sizes))


# --- What could be freed --------------------------------------------------------------------------


def _rungs(state: State, talk: _Talk) -> tuple[AnalysisRow, ...]:
    sums = {name: [0, 0] for name in RUNGS}
    later: dict[tuple[str, str], None] = {}
    texts: dict[str, None] = {}
    for item, call, tokens in reversed(talk):
        rung = _rung(item, call, later, texts)
        free = tokens - LEFT_TOKENS
        if (
            rung is None
            or free <= 0
            or not 0 < item.seqs[1] <= state.seen_reach
            or item.form == "placeholder"
        ):
            continue
        if item.kind in ("result", "call", "text") and item.tokens < SMALL_TOKENS:
            continue
        sums[RUNGS[rung]][0] += 1
        sums[RUNGS[rung]][1] += free
    return tuple(
        AnalysisRow(name, count, tokens) for name, (count, tokens) in sums.items() if count
    )


def _rung(
    item: Item, call: ToolCall | None, later: dict[tuple[str, str], None], texts: dict[str, None]
) -> int | None:
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


# --- Text -----------------------------------------------------------------------------------------


def analysis_lines(analysis: Analysis) -> list[str]:
    """Return the analysis as lines for a terminal."""
    a = analysis
    share = round(100 * a.total_tokens / max(1, a.usable_tokens))
    of_usable = f"{a.total_tokens:,} of {a.usable_tokens:,} usable tokens ({share} %)"
    shown = [f"{of_usable}, {a.conversation_tokens:,} of them conversation"]
    shown += _titled("by kind", a.kinds) + _titled("by module", a.modules)
    if a.tools:
        shown.append("by tool: calls, failed, tokens")
        shown += [
            f"  {row.name:<28} {row.calls:>6} {row.failed:>6} {row.tokens:>9,}" for row in a.tools
        ]
    shown += _titled("over time: blocks, tokens", a.time)
    if a.files:
        shown.append("files: reads, changes, tokens")
        files = a.files[:FILES_SHOWN_MAX]
        shown += [
            f"  {row.path:<44} {row.reads:>4} {row.changes:>4} {row.tokens:>9,}" for row in files
        ]
        shown += [f"  and {len(a.files) - len(files)} more"] if len(a.files) > len(files) else []
    shown += _titled("could be freed, cheapest loss first", a.rungs)
    taken = (
        f"would take {a.next_count} blocks of {a.next_tokens:,} tokens"
        if a.next_count
        else "finds nothing to take"
    )
    shown.append(f"the next compaction {taken}")
    shown.append(f"without a summary at least {a.floor_tokens:,} tokens stay")
    return shown


def _titled(title: str, rows: Sequence[AnalysisRow]) -> list[str]:
    """Return the non-empty rows under `title`; [] without rows."""
    shown = [
        f"  {row.name:<40} {row.count:>6} {row.tokens:>9,}"
        for row in rows
        if row.count or row.tokens
    ]
    return [title, *shown] if shown else []
