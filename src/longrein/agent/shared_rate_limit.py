"""Rate limit that processes share by a file, also on several machines with a common file system.

The file holds the request slots of `RateLimit` by the wall clock, and how many requests and tokens
a minute are allowed. It is locked for the moment of a change.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from longrein.agent.concurrency_limits import ProviderRate, RateLimit
from longrein.events import AskFailed, Replied

MINUTE_S = 60.0


class Rates(msgspec.Struct, frozen=True):
    """Limits of a provider."""

    requests_per_minute: int = 0
    """0: no limit."""
    tokens_per_minute: int = 0
    """Input that is not read from the provider's cache, and output; 0: no limit."""


class SharedRates(msgspec.Struct):
    """Content of the file."""

    limits: Rates = Rates()
    providers: dict[str, ProviderRate] = {}


class SharedRateLimit(RateLimit):
    """A `RateLimit` in a file."""

    def __init__(self, path: str, wall_us: Callable[[], int]) -> None:
        """`path`: a file of `SharedRates`, which may be missing."""
        super().__init__()
        self._path, self._wall_us = path, wall_us

    def take_turn(self, provider: str, now_s: float) -> tuple[float, AskFailed | None]:
        """See `RateLimit.take_turn`."""
        now_s = self._wall_us() / 1e6
        with self._changed(provider) as (rates, known):
            wait_s, refusal = super().take_turn(provider, max(now_s, known.tokens_s))
            at = max(now_s, known.tokens_s) + wait_s
            if rates.limits.requests_per_minute:
                known.free_s = max(known.free_s, at + MINUTE_S / rates.limits.requests_per_minute)
        return at - now_s, refusal

    def heard(self, provider: str, outcome: Replied | AskFailed, now_s: float) -> None:
        """See `RateLimit.heard`."""
        now_s = self._wall_us() / 1e6
        with self._changed(provider) as (rates, known):
            super().heard(provider, outcome, now_s)
            if provider not in self._providers:  # its gap is over; its other times are not
                self._providers[provider] = known
                known.gap_s, known.refusal = 0.0, None
            if rates.limits.tokens_per_minute and isinstance(outcome, Replied):
                usage = outcome.usage
                tokens = usage.context_tokens - usage.cache_read_tokens + usage.output_tokens
                since_s = max(now_s, known.tokens_s)
                known.tokens_s = since_s + MINUTE_S * tokens / rates.limits.tokens_per_minute

    @contextmanager
    def _changed(self, provider: str) -> Iterator[tuple[SharedRates, ProviderRate]]:
        """Lock and read the file; write it at the end."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.lockf(descriptor, os.F_LOCK, 0)
            rates = SharedRates()
            with suppress(msgspec.DecodeError):  # new, or torn by a crash
                size = os.fstat(descriptor).st_size
                rates = msgspec.json.decode(os.pread(descriptor, size, 0), type=SharedRates)
            self._providers = rates.providers
            yield rates, self._providers.setdefault(provider, ProviderRate())
            data = msgspec.json.encode(rates)
            os.ftruncate(descriptor, os.pwrite(descriptor, data, 0))
        finally:
            os.close(descriptor)
