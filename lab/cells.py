"""Table of the context engine and plain policies in all windows, at all prices and on all wires.

    python -m lab.cells [--sessions DIR] [--sample N] [--only REGEX] [--windows 16k,…]
    [--prices NAME,…]
                               [--wires NAME,…] [--weights REGEX=FILE] [--system-share X] [--judge
                               FILE.py] [--json FILE] [--jobs N]

Each session is replayed request by request, in two processes. Costs are sums over the sessions,
over those of keeping everything without a window. `inside`: cost with recalls of the sessions that
stay below 92 % of the window when everything is kept. `worst`: least share kept, and highest cost
over keep-all, of a session. Plain policies know neither price nor wire, so they are replayed once
for each window. Prices at which the engine decides alike are not: the whole table of 100 sessions
takes hours, `--sample 10` some minutes.

`longrein` is marked `first` in its cell, `within 1 %` of the cheapest, or `behind` it by so much;
the cost with recalls counts, and only policies count that fit the window in every session. A
session whose system text is above 60 % of the window is left out of the cell; `--system-share .6`
shortens the system text to that share instead.

`--judge`: a program with `cost(session, trace, window, rates) -> (cost, with recalls)` that
accounts for the same traces in its own way; the largest difference is printed. Without `--sessions`
a small generated set is used.
"""

import argparse
import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lab.policy import read, sessions_in, trace_line
from lab.replay import (
    PLAIN,
    PRICES,
    CostAccount,
    Rates,
    Recording,
    Row,
    Uses,
    find_uses,
    replay_of,
    total,
)
from lab.replay.generated import write_sessions
from lab.simulate import budget_of
from longrein.config.clearing_weights import Tables, read_weights
from longrein.models import CLEARS
from longrein_context import use_tables
from longrein_context.clearing.weights import TABLES

WINDOWS = {
    "16k": 16_000,
    "32k": 32_000,
    "64k": 64_000,
    "128k": 128_000,
    "200k": 200_000,
    "1M": 1_000_000,
}
SYSTEM_SHARE_MAX = 0.6
"""Largest share of the window that the system text may have."""
INSIDE_SHARE = 0.92
"""A session is inside the window when keeping everything stays below this share of it."""
CLOSE = 1.01
"""Cost over that of the cheapest which still counts as equal."""
Judge = Callable[[Path, list[dict[str, Any]], int, Rates], tuple[float, float]]


class Cell(NamedTuple):
    """A line of the table. `wire` is empty for a plain policy."""

    window: str
    prices: str
    wire: str
    policy: str


class Plan(msgspec.Struct, frozen=True):
    """Windows, prices, wires and weights to measure."""

    windows: tuple[str, ...]
    prices: tuple[str, ...]
    wires: tuple[str, ...]
    weights: tuple[tuple[str, str], ...] = ()
    """(regular expression for the names of sessions, file)."""
    system_share: float = 0.0
    judge: str = ""


class Found(msgspec.Struct):
    """Figures of one session."""

    rows: dict[Cell, Row]
    left_out: list[str]
    """Windows that the system text nearly fills."""
    difference: float = 0.0
    """Largest relative difference to the judge."""


def measure(job: tuple[Path, Plan]) -> Found:
    """Replay one session in every cell."""
    path, plan = job
    recording = read(path)
    uses, judge = find_uses(recording), load_judge(plan.judge)
    tables = next(
        (
            read_weights(file).tables
            for pattern, file in plan.weights
            if re.search(pattern, path.name)
        ),
        None,
    )
    found = Found({}, [])
    for name in plan.windows:
        window = WINDOWS[name]
        session = _with_system(recording, round(plan.system_share * window))
        if session.system_tokens > SYSTEM_SHARE_MAX * window:
            found.left_out.append(name)
            continue
        for cell, rates, account, trace in _cells(session, uses, plan, name, tables or TABLES):
            row = found.rows[cell] = account.row_at(rates)
            if judge is not None and session is recording:
                told = judge(path, trace, window, rates)
                ours = (row.cost, row.with_recalls)
                found.difference = max(
                    found.difference,
                    *(abs(a / b - 1) for a, b in zip(ours, told, strict=True) if b),
                )
    return found


def _with_system(recording: Recording, most: int) -> Recording:
    """Return the session with at most so many tokens of system text; 0 for no limit."""
    tokens = recording.system_tokens
    return (
        msgspec.structs.replace(recording, system_tokens=min(tokens, most))
        if 0 < most < tokens
        else recording
    )


def _cells(
    session: Recording, uses: Uses, plan: Plan, name: str, tables: Tables
) -> Iterator[tuple[Cell, Rates, CostAccount, list[dict[str, Any]]]]:
    for policy in ("keep-all", *PLAIN):
        account, trace = _play(session, uses, policy, name, plan.prices[0], plan.wires[0])
        for prices in plan.prices:
            yield Cell(name, prices, "", policy), PRICES[prices], account, trace
    use_tables(tables)
    for prices in plan.prices:
        alike: dict[tuple[str, ...], str] = {}
        for wire in plan.wires:
            if CLEARS[wire] not in alike:
                account, trace = _play(session, uses, "default", name, prices, wire)
                alike[CLEARS[wire]] = wire
            yield Cell(name, prices, wire, "longrein"), PRICES[prices], account, trace


def _play(
    session: Recording, uses: Uses, policy: str, window: str, prices: str, wire: str
) -> tuple[CostAccount, list[dict[str, Any]]]:
    budget = budget_of(prices, WINDOWS[window], wire)
    replay = replay_of(policy, session, budget)
    account = CostAccount(policy, session, PRICES[prices], window=budget.window_tokens, uses=uses)
    trace = []
    for change in replay.changes():
        account.request(change, replay.tokens, replay.summary_tokens)
        if line := trace_line(change):
            trace.append(line)
    return account, trace


def load_judge(path: str) -> Judge | None:
    """Load the function `cost` of a judge's file."""
    if not path:
        return None
    spec = importlib.util.spec_from_file_location("judge_of_cells", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    judge: Judge = module.cost
    return judge


# --- The table ------------------------------------------------------------------------------------

HEAD = (
    *("window", "prices", "wire", "policy", "sessions", "cost", "with recalls", "inside"),
    *(
        "kept",
        "tool-only",
        "ids",
        "lines",
        "edits",
        "hit",
        "bad",
        "worst kept",
        "worst cost",
        "place",
    ),
)


def table(found: Sequence[Found], plan: Plan) -> str:
    """Return the table in Markdown."""
    rows = {
        cell: [one.rows[cell] for one in found if cell in one.rows]
        for cell in dict.fromkeys(cell for one in found for cell in one.rows)
    }
    lines = [HEAD, ("---",) * 4 + ("---:",) * (len(HEAD) - 5) + ("---",)]
    for window in plan.windows:
        for prices in plan.prices:
            here = [cell for cell in rows if cell[:2] == (window, prices)]
            peers = {c.policy: rows[c] for c in here if not c.wire}
            for cell in sorted(here, key=lambda c: (c.wire == "", c.wire)):
                place = _place(rows[cell], peers) if cell.wire else ""
                lines.append(
                    (*cell[:2], cell.wire or "-", cell.policy, *_figures(rows[cell], window), place)
                )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _figures(rows: Sequence[Row], window: str) -> tuple[str, ...]:
    row, inside = (
        total(rows),
        [row for row in rows if row.keep_all_peak < INSIDE_SHARE * WINDOWS[window]],
    )
    shares = (
        *((row.cost, row.keep_all), (row.with_recalls, row.keep_all)),
        (sum(one.with_recalls for one in inside), sum(one.keep_all for one in inside)),
        *((row.kept, row.uses), (row.tool_kept, row.tool_uses), (row.id_kept, row.id_uses)),
        *(
            (row.line_kept, row.line_uses),
            (row.edit_kept, row.edit_uses),
            (row.cache_read, row.carried),
        ),
    )
    worst = (
        min((one.kept / one.uses for one in rows if one.uses), default=1.0),
        max((one.cost / one.keep_all for one in rows if one.keep_all), default=0.0),
    )
    figures = [f"{part / whole:.3f}" if whole else "-" for part, whole in shares]
    return str(len(rows)), *figures, str(_bad(rows)), *(f"{one:.3f}" for one in worst)


def _bad(rows: Sequence[Row]) -> int:
    """Return the number of sessions with a request that does not fit, or with something that was
    never shown.
    """
    return sum(row.failures > 0 for row in rows)


def _place(own: Sequence[Row], peers: dict[str, Sequence[Row]]) -> str:
    """Return the place of longrein among the policies that fit the window as often as it does."""
    valid = {
        name: total(rows).with_recalls for name, rows in peers.items() if _bad(rows) <= _bad(own)
    }
    best, cost = min(valid, key=lambda name: valid[name], default=""), total(own).with_recalls
    if not best or cost <= valid[best]:
        return "first"
    over = cost / valid[best] if valid[best] else 2.0
    return (
        f"within 1 % of {best}"
        if over <= CLOSE
        else f"**behind** {best} by {100 * (over - 1):.1f} %"
    )


def summary(found: Sequence[Found], plan: Plan, text: str) -> str:
    """Return the lines below the table."""
    lines = []
    for window in plan.windows:
        if out := sum(window in one.left_out for one in found):
            lines.append(
                f"{window}: {out} of {len(found)} sessions left out, system text above 60 % of "
                "the window"
            )
    if plan.system_share:
        lines.append(f"system text shortened to at most {plan.system_share:.0%} of the window")
    rows = text.splitlines()
    counts = (
        sum(f"| {word}" in row for row in rows) for word in ("first", "within 1 %", "**behind**")
    )
    lines.append("cells of longrein: {} first, {} within 1 %, {} behind".format(*counts))
    if plan.judge:
        worst = max((one.difference for one in found), default=0.0)
        lines.append(f"largest difference of a session's cost to {plan.judge}: {worst:.2%}")
    return "\n".join(lines)


# --- The command line -----------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sessions", type=Path, help="folder of recorded sessions; without it a generated set"
    )
    parser.add_argument(
        "--sample", type=int, default=0, help="only so many sessions, evenly over their sizes"
    )
    parser.add_argument("--only", default="", help="regular expression: only these sessions")
    parser.add_argument("--windows", type=_list_of(WINDOWS), default=tuple(WINDOWS))
    parser.add_argument("--prices", type=_list_of(PRICES), default=tuple(PRICES))
    parser.add_argument("--wires", type=_list_of(CLEARS), default=tuple(CLEARS))
    parser.add_argument(
        "--weights", action="append", default=[], help="REGEX=FILE: weights for these sessions"
    )
    parser.add_argument("--system-share", type=float, default=0.0)
    parser.add_argument("--judge", default="")
    parser.add_argument("--json", type=Path, help="file for the figures of each session")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        if args.sessions is None:
            print(
                "no --sessions: using a small generated set, which tells little about real sessions"
            )
        files = [
            f
            for f in sessions_in(args.sessions or write_sessions(Path(folder)))
            if re.search(args.only, f.name)
        ]
        weights = tuple((one.rpartition("=")[0], one.rpartition("=")[2]) for one in args.weights)
        plan = Plan(args.windows, args.prices, args.wires, weights, args.system_share, args.judge)
        found = _measure_all(sample(files, args.sample), plan, args.jobs)
    if not found:
        print("no sessions")
        return 1
    text = table(found, plan)
    print(f"{text}\n\n{summary(found, plan, text)}")
    if args.json:
        cells = [{"cell": cell, "row": row} for one in found for cell, row in one.rows.items()]
        args.json.write_bytes(msgspec.json.encode(cells))
    return 0


def sample(files: list[Path], count: int) -> list[Path]:
    """Return `count` files, evenly over their sizes and largest first; all of them for 0."""
    ordered = sorted(files, key=lambda file: file.stat().st_size, reverse=True)
    count = min(count, len(ordered)) or len(ordered)
    return [ordered[(2 * n + 1) * len(ordered) // (2 * count)] for n in range(count)]


def _measure_all(files: list[Path], plan: Plan, jobs: int) -> list[Found]:
    if jobs < 2:
        return [measure((file, plan)) for file in files]
    with Pool(jobs, maxtasksperchild=4) as pool:
        return list(pool.imap_unordered(measure, [(file, plan) for file in files]))


def _list_of(known: Any) -> Callable[[str], tuple[str, ...]]:
    def read_list(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(known)}")
        return names

    return read_list


if __name__ == "__main__":
    sys.exit(main())
