"""Write the view of a context policy for every session of a folder, in the judge's trace format.

    python -m lab.policy --sessions DIR --traces DIR [--policy NAME] [--weights FILE] [--wire
    NAME]
                                [--prices P] [--window N] [--ttl S] [--jobs N] [--only REGEX]

Drives the engine itself, one request at a time (`lab.replay`): the policy
never sees the future. Recorded results are as their agent sent them, so none is shortened at
first. Without --sessions a small generated set is used.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import msgspec

from lab.replay import (
    NAMES,
    PRICES,
    Change,
    Recording,
    base_name,
    read_recording,
    replay_of,
)
from lab.replay.generated import write_sessions
from lab.simulate import WORST_WIRE, budget_of
from longrein.config.clearing_weights import read_weights
from longrein.models import CLEARS
from longrein_context import Budget, use_tables

NO_LIMIT = 10**9
"""A window that no session fills."""


def sessions_in(folder: Path) -> list[Path]:
    """Return the session files of a folder, or the one file."""
    if folder.is_file():
        return [folder]
    return sorted(path for path in folder.glob("*.jsonl*") if path.suffix in (".jsonl", ".gz"))


def read(path: Path) -> Recording:
    """Read one session."""
    return read_recording(path.name, path.read_bytes())


def trace_lines(
    recording: Recording, policy: str, budget: Budget, *, timed: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the lines of the trace between its header and its end."""
    for change in replay_of(policy, recording, budget, timed=timed).changes():
        if line := trace_line(change):
            yield line


def trace_line(change: Change) -> dict[str, Any]:
    """Return the line of a change; {} if nothing changes."""
    line: dict[str, Any] = {}
    if change.show:
        line["show"] = {str(place): text for place, text in change.show.items()}
    if change.summary is not None:
        line["summary"] = change.summary
    if change.asked_tokens:
        line |= {"extra_output_tokens": change.asked_tokens, "extra_input": "cached"}
    return {"t": change.t, **line} if line else {}


def write_trace(job: tuple[Path, Path, str, str, str, int, float, str]) -> str:
    """Write one trace; return the session's name."""
    path, out, policy, wire, prices, window, ttl_s, weights = job
    if weights:
        use_tables(read_weights(weights).tables)
    recording, budget = read(path), budget_of(prices, window or NO_LIMIT, wire)
    if ttl_s:
        budget = msgspec.structs.replace(budget, cache_ttl_s=ttl_s)
    lines = [
        {"session": recording.name, "policy": policy, "prices": prices, "window": window},
        *trace_lines(recording, policy, budget, timed=bool(ttl_s)),
        {"end": True, "requests": recording.requests, "items": len(recording.items)},
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{base_name(path.name)}.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    return recording.name


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sessions", type=Path, help="folder of recorded sessions; without it a generated set"
    )
    parser.add_argument(
        "--traces", type=Path, required=True, help="folder for TRACES/<policy>/<session>.jsonl"
    )
    parser.add_argument("--policy", action="append", choices=NAMES)
    parser.add_argument(
        "--weights", default="", help="file of `lab.fit` instead of the weights that ship"
    )
    parser.add_argument("--wire", choices=tuple(CLEARS), default=WORST_WIRE)
    parser.add_argument("--prices", choices=sorted(PRICES), default="anthropic")
    parser.add_argument("--window", type=int, default=200_000, help="tokens; 0 for no limit")
    parser.add_argument(
        "--ttl", type=float, default=0.0, help="seconds after which the cache is cold; 0 for never"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="regular expression: only these sessions")
    args = parser.parse_args(argv)
    folder = args.sessions or write_sessions(args.traces.with_name(args.traces.name + "-sessions"))
    if args.sessions is None:
        print(f"no --sessions: using a small generated set, written to {folder}")
    files = [path for path in sessions_in(folder) if re.search(args.only, path.name)]
    jobs = [
        (
            path,
            args.traces / policy,
            policy,
            args.wire,
            args.prices,
            args.window,
            args.ttl,
            args.weights,
        )
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
