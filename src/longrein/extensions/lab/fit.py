"""`longrein fit`: weights of the clearing policy from the user's own sessions. Nothing leaves
the machine.
"""

from collections.abc import Sequence

from longrein.app.run_context import RunContext
from longrein.config.clearing_weights import write_weights
from longrein.events import UsageError
from longrein.extensions.lab.simulate import recordings
from longrein.frontends.stdio import say

MISSING = "longrein fit needs numpy, which is not installed: pip install 'longrein[fit]'"


def fit(place: RunContext, words: Sequence[str], *, out: str = "", sessions: str = "") -> int:
    """Fit weights on the sessions that `words` name and write them to `out`.

    Raises `UsageError` without `out` or numpy, and for sessions from which nothing can be learned.
    """
    words = (*words, *([sessions] if sessions else ()))
    if not words:
        raise UsageError("longrein fit needs sessions: files, folders or ids")
    if not out:
        raise UsageError("longrein fit needs a file to write: --out FILE")
    try:
        from longrein.extensions.lab.replay.weight_fit import fit_weights, sample
    except ImportError as error:
        raise UsageError(MISSING) from error
    samples = [sample(recording) for recording in recordings(place.state_dir, words)]
    try:
        weights = fit_weights(samples, f"fitted on {len(samples)} sessions")
    except ValueError as error:
        raise UsageError(f"no weights can be fitted: {error}") from error
    write_weights(out, weights)
    say(f"weights of {len(samples)} sessions written to {out}")
    say(
        f"longrein simulate {' '.join(words)} --weights {out} shows their effect; the setting "
        "context.weights uses them"
    )
    return 0
