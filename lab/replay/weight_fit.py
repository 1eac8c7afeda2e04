"""Fit of the weights of the clearing policy on recorded sessions. Needs `numpy`, so only `longrein
fit` imports it.

Every session is replayed through the policy's own memory, without clearing anything. At sampled
requests each line whose newest copy stands in an item gives one row: its codes, and
whether the item is needed for it later. An additive logistic model is fitted to the rows by Newton
steps, one table after the other, with a ridge.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lab.replay.recording import Item, Recording
from longrein.config.clearing_weights import Fold, Weights
from longrein_context.clearing.line_index import rows_of
from longrein_context.clearing.line_value import (
    ITEM_CODES,
    LINE_CODES,
    item_codes,
    line_codes,
)
from longrein_context.clearing.needs import NeedsMemory
from longrein_context.clearing.text_features import USER, SourceItem, call_content, features

LINE_TERMS = (
    *(
        "cls*idle",
        "cls*state",
        "activity",
        "size",
        "mention",
        "nearby",
        "block",
        "spread",
        "origin",
        "copies",
    ),
    "copies*spread",
)
EVERY = 6
"""Requests between two samples of a session; the first is drawn from its name."""
ITEMS_OLD_IDLE, ITEMS_OLD_SHARE = 16, 3
"""After so many idle requests one in so many items is sampled."""
LINE_RIDGE = 40.0
"""Rows of one item are alike, so a weight needs many of them; chosen by how well one repository
foretells the other.
"""
SWEEPS = 20
FOLDS = 5
"""Groups of sessions; each is left out once, for the figures of `lab.simulate --weights`."""
KINDS = {"user": "user", "tool_call": "call", "tool_result": "result", "assistant_text": "text"}


class Rows(NamedTuple):
    """Codes and outcomes; one line each."""

    codes: Any
    needed: Any
    weight: Any


class Sample(NamedTuple):
    """Rows of one session."""

    session: str
    lines: Rows


def sample(session: Recording) -> Sample:
    """Return the rows of the lines of one session."""
    todo = [_source_item(n, item) for n, item in enumerate(session.items)]
    needs = _last_needs(todo)
    memory, at = NeedsMemory(), 0
    lines: list[tuple[int, ...]] = []
    first = 3 + sum(map(ord, session.name)) % EVERY
    for request in range(session.requests):
        while at < len(todo) and (
            todo[at].request < request or (todo[at].request == request and not todo[at].output)
        ):
            memory.add(todo[at])
            at += 1
        memory.begin_request(request)
        memory.dirty.clear()
        if request >= first and (request - first) % EVERY == 0:
            _sample_now(memory, needs, lines)
        memory.mark_sent()
    return Sample(session.name, _rows(lines))


def _source_item(n: int, item: Item) -> SourceItem:
    """Return an item as the policy takes it; the handle is the position."""
    kind, call = "thinking" if item.thinking else KINDS[item.kind], item.kind == "tool_call"
    content, arguments = ("", item.text) if call else (item.text, "")
    return SourceItem(
        f"r{n}",
        kind,
        content,
        item.tokens,
        item.request,
        item.name,
        arguments,
        item.call or f"?{n}",
    )


def _last_needs(todo: Sequence[SourceItem]) -> dict[tuple[int, str], int]:
    """(item, feature) -> last request whose output needed the feature while the item was its
    newest source.
    """
    newest: dict[str, int] = {}
    found: dict[tuple[int, str], int] = {}
    pending: list[int] = []
    names = [features(call_content(p.arguments) if p.kind == "call" else p.content) for p in todo]
    for n, piece in enumerate(todo):
        if pending and (not piece.output or todo[pending[0]].request != piece.request):
            for earlier in pending:
                newest.update(dict.fromkeys(names[earlier], earlier))
            pending.clear()
        if not piece.output:
            newest.update(dict.fromkeys(names[n], n))
            continue
        pending.append(n)
        if piece.kind != "thinking":
            for feature in names[n]:
                if feature in newest:
                    found[newest[feature], feature] = piece.request
    return found


def _sample_now(memory: NeedsMemory, needs: dict[tuple[int, str], int], lines: list[Any]) -> None:
    guard = memory.results[-2] if len(memory.results) > 1 else 0
    for held in memory.items[: min(guard, memory.sent)]:
        share = 1 if memory.now - held.last < ITEMS_OLD_IDLE else ITEMS_OLD_SHARE
        if held.cls == USER or (held.n + memory.now) % share:
            continue
        codes, index = item_codes(memory, held), memory.text_indexes.of(held)
        rows = rows_of(held, index)
        for row, code in zip(rows, line_codes(memory, index, rows), strict=True):
            key = index.keys[row]
            if key and memory.newest.get(key) == held.n:
                lines.append((*codes, *code, needs.get((held.n, key), -1) >= memory.now, share))


def _rows(found: list[tuple[int, ...]]) -> Rows:
    table = np.array(found, dtype=np.int16) if found else np.zeros((0, 2), dtype=np.int16)
    return Rows(
        table[:, :-2].astype(np.uint8),
        table[:, -2].astype(np.uint8),
        table[:, -1].astype(np.float32),
    )


def fit_weights(samples: Sequence[Sample], about: str) -> Weights:
    """Fit the weights on all sessions, and once without each group of them. Raises `ValueError`
    without any rows.
    """
    groups = (
        [samples[n::FOLDS] for n in range(min(FOLDS, len(samples)))] if len(samples) > 1 else []
    )
    folds = []
    for group in groups:
        left_out = {one.session for one in group}
        rest = [one for one in samples if one.session not in left_out]
        if any(len(one.lines.needed) for one in rest):
            folds.append(Fold(tuple(sorted(left_out)), _fit_tables(rest)))
    return Weights(about=about, tables=_fit_tables(samples), folds=tuple(folds))


def _fit_tables(samples: Iterable[Sample]) -> dict[str, dict[str, tuple[float, ...]]]:
    found = list(samples)
    return {
        "line": _fit(_join(one.lines for one in found), LINE_CODES, LINE_TERMS, LINE_RIDGE),
    }


def _join(parts: Iterable[Rows]) -> Rows:
    have = [part for part in parts if len(part.needed)]
    if not have:
        raise ValueError("the sessions are too short: nothing was read that could be needed later")
    return Rows(*(np.concatenate([part[k] for part in have]) for k in range(3)))


def _fit(
    rows: Rows, codes: dict[str, int], terms: Sequence[str], ridge: float
) -> dict[str, tuple[float, ...]]:
    """Return the weights of an additive logistic model, two decimals each."""
    names, sizes = [*ITEM_CODES, *codes], {**ITEM_CODES, **codes}
    index, length = [], []
    for term in terms:
        at: Any = np.zeros(len(rows.needed), dtype=np.int64)
        size = 1
        for name in term.split("*"):
            at = at * sizes[name] + rows.codes[:, names.index(name)]
            size *= sizes[name]
        index.append(at)
        length.append(size)
    y, n = rows.needed.astype(np.float64), rows.weight.astype(np.float64)
    rate = float(np.clip((y * n).sum() / n.sum(), 1e-4, 1 - 1e-4))
    bias = float(np.log(rate / (1 - rate)))
    tables = [np.zeros(size) for size in length]
    odds = np.full(len(y), bias)
    for _ in range(SWEEPS):
        for k, at in enumerate(index):
            p = 1 / (1 + np.exp(-odds))
            slope = np.bincount(at, n * (y - p), length[k]) - ridge * tables[k]
            bend = np.bincount(at, n * p * (1 - p), length[k]) + ridge
            step = np.clip(slope / bend, -1, 1)
            tables[k] += step
            odds += step[at]
        p = 1 / (1 + np.exp(-odds))
        shift = float(np.clip((n * (y - p)).sum() / ((n * p * (1 - p)).sum() + 1e-9), -1, 1))
        bias += shift
        odds += shift
    found = {
        term: tuple(round(float(w), 2) + 0.0 for w in table)
        for term, table in zip(terms, tables, strict=True)
    }
    return {"bias": (round(bias, 2),), **found}
