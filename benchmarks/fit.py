"""Fits the tables of `longrein.context.clearing.weights` on recorded sessions.

    python benchmarks/fit.py --sessions DIR [--only REGEX | --except REGEX] [--out FILE]

Every session is replayed through the policy's own memory, without clearing anything. At sampled requests each line and
identifier whose newest copy stands in an item gives one row: its codes, and whether the item is needed for it later. An
additive logistic model is fitted to the rows by Newton steps, one table after the other, with a ridge.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from policy import read, sessions_in

from longrein.context.clearing.features import USER, SourceItem, call_content, features
from longrein.context.clearing.line_value import ITEM_CODES, LINE_CODES, WORD_CODES, item_codes, line_codes, word_codes
from longrein.context.clearing.needs import NeedsMemory
from longrein.context.clearing.text_index import rows_of
from longrein.replay import Item, Recording

LINE_TERMS = (
    *("cls*idle", "cls*state", "activity", "refs", "size", "near", "around", "mention", "nearby", "block"),
    *("length", "cls*place", "origin", "copies", "spread", "copies*spread", "indent"),
)
WORD_TERMS = (
    *("idle", "cls", "cls*state", "activity", "refs", "size"),
    *("before", "mention", "count", "declared", "length", "spread", "times"),
)
EVERY = 6
"""Requests between two samples of a session; the first is drawn from its name."""
ITEMS_OLD_SHARE = 3
"""One in this many long-idle items is sampled."""
LINE_RIDGE, WORD_RIDGE = 40.0, 100.0
"""Rows of one item are alike, so a weight needs many of them; chosen by how well one repository foretells the other."""
SWEEPS = 20


class Rows(NamedTuple):
    """Codes and outcomes; one line each."""

    codes: "np.ndarray[Any, Any]"
    needed: "np.ndarray[Any, Any]"
    weight: "np.ndarray[Any, Any]"


KINDS = {"user": "user", "tool_call": "call", "tool_result": "result", "assistant_text": "text"}


def source_items(session: Recording) -> list[SourceItem]:
    """Return the items of a session as the policy takes them; the handle is the position."""
    return [_source_item(n, item) for n, item in enumerate(session.items)]


def _source_item(n: int, item: Item) -> SourceItem:
    kind, call = "thinking" if item.thinking else KINDS[item.kind], item.kind == "tool_call"
    content, arguments = ("", item.text) if call else (item.text, "")
    return SourceItem(f"r{n}", kind, content, item.tokens, item.request, item.name, arguments, item.call or f"?{n}")


def last_needs(todo: Sequence[Any]) -> dict[tuple[int, str], int]:
    """(item, feature) -> last request whose output needed the feature while the item was its newest source."""
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


def sample(path: Path) -> tuple[Rows, Rows]:
    """Return rows of lines and rows of identifiers of one session."""
    session = read(path)
    todo = source_items(session)
    needs = last_needs(todo)
    worth, at = NeedsMemory(), 0
    lines: list[tuple[int, ...]] = []
    words: list[tuple[int, ...]] = []
    first = 3 + sum(map(ord, session.name)) % EVERY
    for request in range(session.requests):
        while at < len(todo) and (todo[at].request < request or (todo[at].request == request and not todo[at].output)):
            worth.add(todo[at])
            at += 1
        worth.begin_request(request)
        worth.dirty.clear()
        if request >= first and (request - first) % EVERY == 0:
            _sample_now(worth, needs, lines, words)
        worth.mark_sent()
    return _rows(lines), _rows(words)


def _sample_now(worth: NeedsMemory, needs: dict[tuple[int, str], int], lines: list[Any], words: list[Any]) -> None:
    guard = worth.results[-2] if len(worth.results) > 1 else 0
    for held in worth.items[: min(guard, worth.sent)]:
        idle = worth.now - held.last
        share = 1 if idle < 16 else ITEMS_OLD_SHARE
        if held.cls == USER or (held.n + worth.now) % share:
            continue
        codes, index = item_codes(worth, held), worth.text_indexes.of(held)
        for row, code in line_codes(worth, held, index, rows_of(held, index)):
            key = index.keys[row]
            if key and worth.newest.get(key) == held.n:
                lines.append((*codes, *code, needs.get((held.n, key), -1) >= worth.now, share))
        for name, code in word_codes(worth, held, index, index.places):
            if worth.newest.get(name) == held.n:
                words.append((*codes, *code, needs.get((held.n, name), -1) >= worth.now, share))


def _rows(found: list[tuple[int, ...]]) -> Rows:
    table = np.array(found, dtype=np.int16) if found else np.zeros((0, 2), dtype=np.int16)
    return Rows(table[:, :-2].astype(np.uint8), table[:, -2].astype(np.uint8), table[:, -1].astype(np.float32))


def join_rows(parts: Iterable[Rows]) -> Rows:
    """Join the rows of several sessions; equal rows are counted together."""
    have = [p for p in parts if len(p.needed)]
    return Rows(*(np.concatenate([p[k] for p in have]) for k in range(3)))


def fit(rows: Rows, codes: dict[str, int], terms: Sequence[str], ridge: float) -> dict[str, list[float]]:
    """Return the weights of an additive logistic model."""
    names = [*ITEM_CODES, *codes]
    sizes = {**ITEM_CODES, **codes}
    index, length = [], []
    for term in terms:
        at = np.zeros(len(rows.needed), dtype=np.int64)
        size = 1
        for name in term.split("*"):
            at = at * sizes[name] + rows.codes[:, names.index(name)]
            size *= sizes[name]
        index.append(at)
        length.append(size)
    y, n = rows.needed.astype(np.float64), rows.weight.astype(np.float64)
    rate = float((y * n).sum() / n.sum())
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
        step = float((n * (y - p)).sum() / (n * p * (1 - p)).sum())
        bias += step
        odds += step
    return {"bias": [bias], **{term: [float(w) for w in table] for term, table in zip(terms, tables, strict=True)}}


def module_text(tables: dict[str, dict[str, list[float]]], about: str) -> str:
    """Return the tables as a Python module."""
    out = [f'"""{about}"""\n', "# fmt: off"]
    for name, table in tables.items():
        out.append(f"{name.upper()}: dict[str, tuple[float, ...]] = {{")
        for term, weights in table.items():
            numbers = [f"{w:.2f}".replace("-0.00", "0.00") for w in weights]
            out.append(f'    "{term}": (')
            out += ["        " + ", ".join(numbers[k : k + 16]) + "," for k in range(0, len(numbers), 16)]
            out.append("    ),")
        out.append("}\n")
    out.append('TABLES = {"line": LINE, "word": WORD}\n')
    return "\n".join(out)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--except", dest="but", default="^$")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--about", default="Fitted weights.")
    args = parser.parse_args(argv)
    files = [p for p in sessions_in(args.sessions) if re.search(args.only, p.name) and not re.search(args.but, p.name)]
    with Pool(args.jobs) as pool:
        parts = list(pool.imap_unordered(sample, files))
    tables = {
        "line": fit(join_rows(p[0] for p in parts), LINE_CODES, LINE_TERMS, LINE_RIDGE),
        "word": fit(join_rows(p[1] for p in parts), WORD_CODES, WORD_TERMS, WORD_RIDGE),
    }
    text = module_text(tables, args.about)
    if args.out:
        args.out.write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
