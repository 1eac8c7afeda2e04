"""Race of context policies: `python -m lab.race`, or `make race`. See `--help`."""

import argparse
import sys
import time
from pathlib import Path

import msgspec

from lab.race.contest import (
    DEVELOPING,
    HELD_BACK,
    LOOPS,
    Run,
    jobs,
    quick_settings,
    run_all,
    settings,
)
from lab.race.report import KEEP_ALL, finished, race_table, split_table, trace
from lab.race.sessions import NEEDS


def main(words: list[str]) -> int:
    """Run the race and print its tables; 1 when a run failed."""
    options = _options(words)
    first_seed = DEVELOPING if options.dev else HELD_BACK
    sessions = quick_settings(first_seed) if options.quick else settings(first_seed, options.rounds)
    chosen = [
        one
        for one in sessions
        if one.needs in options.needs
        and (not options.window or one.window in options.window)
        and (not options.seed or one.seed in options.seed)
    ]
    if options.tables:
        return _print_tables(
            [msgspec.json.decode(line, type=Run) for line in options.tables.open("rb")], options
        )
    todo = jobs(chosen, options.loops, (KEEP_ALL, *options.policy) if options.policy else ())
    runs: list[Run] = []
    begun = time.monotonic()
    for run in run_all(todo, options.processes):
        runs.append(run)
        if options.out:
            with options.out.open("ab") as file:
                file.write(msgspec.json.encode(run) + b"\n")
        print(
            f"\r{len(runs)} of {len(todo)} runs, {time.monotonic() - begun:.0f} s",
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)
    return _print_tables(runs, options)


def _print_tables(runs: list[Run], options: argparse.Namespace) -> int:
    for run in runs:
        if run.error:
            print(f"failed: {run.loop}, {run.policy}, {run.setting.name}: {run.error}")
    failed = any(run.error for run in runs)
    arms = [(loop, policy) for loop, policy, _ in jobs([runs[0].setting], LOOPS)] if runs else []
    runs = sorted(
        finished([run for run in runs if not run.error]),
        key=lambda run: arms.index((run.loop, run.policy)),
    )
    print(race_table(runs))
    print("\nCost, and needed lines that were not visible:\n")
    print(split_table(runs, "needs:", lambda run: run.setting.needs))
    print("\n" + split_table(runs, "window:", lambda run: run.setting.window // 1000))
    print("\n" + split_table(runs, "prices:", lambda run: run.setting.price))
    print(
        f"\n{len({run.setting for run in runs})} sessions, CPU "
        f"{sum(run.cpu_s for run in runs):.0f} s"
    )
    if options.trace:
        print("\n\n".join(map(trace, runs)))
    return 1 if failed else 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.race", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="three short sessions in a small window: what the tests run",
    )
    parser.add_argument(
        "--dev", action="store_true", help="sessions to develop on; the table is of others"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="sessions for each kind of needs and window"
    )
    parser.add_argument("--loops", nargs="+", default=list(LOOPS), choices=LOOPS)
    parser.add_argument("--policy", nargs="+", default=[], help="only these, beside keeping all")
    parser.add_argument("--needs", nargs="+", default=list(NEEDS), choices=NEEDS)
    parser.add_argument("--window", nargs="+", type=int, help="tokens")
    parser.add_argument("--seed", nargs="+", type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--trace",
        action="store_true",
        help="print each request: its tokens and what broke the cache",
    )
    parser.add_argument(
        "--out", type=Path, help="append each run with its requests to this JSON Lines file"
    )
    parser.add_argument(
        "--tables", type=Path, help="only print the tables of runs that `--out` wrote"
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
