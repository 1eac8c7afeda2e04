"""Fit the weights of the clearing policy on recorded sessions. Nothing leaves the machine.

    python -m lab.fit SESSION... --out FILE [--state-dir FOLDER]

A session is a file, a folder or an id.
"""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from lab.simulate import SESSIONS, STATE_DIR, recordings, run
from longrein.atomic_file import replace_file
from longrein.config.clearing_weights import Weights
from longrein.frontends.stdio import say
from longrein_context.events import UsageError

MISSING = "lab.fit needs numpy, which is not installed: make library"


def fit(state_dir: str, words: Sequence[str], out: str) -> int:
    """Fit weights on the sessions that `words` name and write them to `out`.

    Raises `UsageError` without numpy, and for sessions from which nothing can be learned.
    """
    try:
        from lab.replay.weight_fit import fit_weights, sample
    except ImportError as error:
        raise UsageError(MISSING) from error
    samples = [sample(recording) for recording, _ in recordings(state_dir, words)]
    try:
        weights = fit_weights(samples, f"fitted on {len(samples)} sessions")
    except ValueError as error:
        raise UsageError(f"no weights can be fitted: {error}") from error
    write_weights(out, weights)
    say(f"weights of {len(samples)} sessions written to {out}")
    say(
        f"python -m lab.simulate {' '.join(words)} --weights {out} shows their effect; the setting "
        "context.weights uses them"
    )
    return 0


def write_weights(path: str, weights: Weights) -> None:
    """Write a file of weights. Raises `UsageError` if that fails."""
    try:
        replace_file(path, [msgspec.json.encode(weights), b"\n"], durable=False, mode=0o644)
    except OSError as error:
        raise UsageError(f"the weights cannot be written to {path}: {error.strerror}") from error


def main(words: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.fit", description="Fit weights.")
    parser.add_argument("sessions", nargs="+", help=SESSIONS)
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--state-dir", help=STATE_DIR)
    given = parser.parse_args(words)
    return run(given.state_dir, lambda state_dir: fit(state_dir, given.sessions, given.out))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
