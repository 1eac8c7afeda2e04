"""When a failed request is made again: a pure function of how often it failed, how, and what the provider asked for."""

from longrein.events import RETRYABLE

FIRST_PAUSE_S = 0.5
"""Pause after the first failure; it doubles with each further one."""
PAUSE_MAX_S = 32.0
"""The doubling stops here."""
JITTER_SHARE = 0.25
"""A pause is lengthened by up to this share, so that many sessions do not come back at the same instant."""
RETRY_AFTER_MAX_S = 60.0
"""A provider that asks for more is asked again after this: what it says is often a guess."""
ATTEMPTS_MAX = 10
"""Attempts at one request. Their pauses sum up to 127 s at least, longer than most outages of a proxy."""


def pause_s(failures_in_row: int, kind: str, retry_after_s: float = -1.0, jitter: float = 0.0) -> float | None:
    """Seconds to wait before the next attempt; None: give up.

    `failures_in_row` counts the failure just seen, so it starts at 1. `kind` is a `FailureKind`. A negative
    `retry_after_s` means that the provider did not say. `jitter` is a random number from 0 to 1.
    """
    if kind not in RETRYABLE or failures_in_row >= ATTEMPTS_MAX:
        return None
    longer = 1 + JITTER_SHARE * jitter
    if retry_after_s >= 0:
        return min(retry_after_s * longer, RETRY_AFTER_MAX_S)
    return min(FIRST_PAUSE_S * 2.0 ** (max(failures_in_row, 1) - 1), PAUSE_MAX_S) * longer
