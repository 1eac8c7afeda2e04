"""Writes what a context policy would show, for every session of a folder, in the judge's trace format.

    python benchmarks/policy.py --sessions DIR --traces DIR [--policy default|keep-all|seed] [--tables FILE]
                                [--prices P] [--window N] [--ttl SECONDS] [--jobs N] [--only REGEX]

One request at a time: the policy never sees what a request does not yet contain. Recorded results are as their agent
sent them, so nothing gets a birth form. Without --sessions a small generated set is used.
"""

import argparse
import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from replay.driving import POLICIES
from replay.generated import write_sessions
from replay.recorded import read, recordings

from longrein.context.bodies import Values
from longrein.context.rental import Rates, Rental
from longrein.context.worth_tables import TABLES

PRICES = {
    "anthropic": Rates(0.1, 1.25, 5.0),
    "openai10": Rates(0.1, 1.0, 8.0),
    "openai25": Rates(0.25, 1.0, 4.0),
}
NONCE = "3f9a2c"
"""Of the markers in traces; as long as a session's own."""


def tables_in(path: Path | None) -> Mapping[str, Any]:
    """The tables that ship, or those of a file written by `fit.py`."""
    if path is None:
        return TABLES
    spec = importlib.util.spec_from_file_location("tables", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: not a table file; write one with benchmarks/fit.py --out")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Mapping[str, Any] = module.TABLES
    return found


def write_trace(job: tuple[Path, Path, str, str, int, float, Path | None]) -> str:
    """One trace; the session's name."""
    path, out, policy, prices, window, ttl, tables = job
    session = read(path)
    rental = Rental(Values(tables_in(tables)), PRICES[prices], nonce=NONCE)
    lines: list[dict[str, Any]] = [
        {"session": session.name, "policy": policy, "prices": prices, "window": window},
        *POLICIES[policy](session, rental, window, ttl),
        {"end": True, "requests": session.requests, "items": len(session.messages)},
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{session.name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return session.name


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=Path, help="folder of recorded sessions; without it a generated set")
    parser.add_argument("--traces", type=Path, required=True, help="folder for TRACES/<policy>/<session>.jsonl")
    parser.add_argument("--policy", action="append", choices=sorted(POLICIES))
    parser.add_argument("--tables", type=Path, help="table file of fit.py instead of the one that ships")
    parser.add_argument("--prices", choices=sorted(PRICES), default="anthropic")
    parser.add_argument("--window", type=int, default=200_000, help="tokens; 0 for no limit")
    parser.add_argument("--ttl", type=float, default=0.0, help="seconds after which the cache is cold; 0 for never")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="regular expression: only these sessions")
    args = parser.parse_args(argv)
    folder = args.sessions or write_sessions(args.traces.with_name(args.traces.name + "-sessions"))
    if args.sessions is None:
        print(f"no --sessions: using a small generated set, written to {folder}")
    files = [path for path in recordings(folder) if re.search(args.only, path.name)]
    jobs = [
        (path, args.traces / policy, policy, args.prices, args.window, args.ttl, args.tables)
        for policy in args.policy or ["default"]
        for path in files
    ]
    if args.jobs > 1 and len(jobs) > 1:
        with Pool(args.jobs) as pool:
            done = list(pool.imap_unordered(write_trace, jobs))
    else:
        done = [write_trace(job) for job in jobs]
    print(f"{len(done)} traces in {args.traces}")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
