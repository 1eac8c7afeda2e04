"""Rate limit that processes share by a file, also on several machines with a common file system, or
by a value in the store of their sessions.

It holds the request slots of `RateLimit` by the wall clock, and how many requests and tokens a
minute are allowed. The file is locked for the moment of a change.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from longrein.agent.concurrency_limits import ProviderRate, RateLimit
from longrein.store.session_store import store_of
from longrein_context.events import AskFailed, Replied, SessionError

MINUTE_S = 60.0
T = TypeVar("T")
Change = Callable[[bytes], bytes]


class Rates(msgspec.Struct, frozen=True):
    """Limits of a provider."""

    requests_per_minute: int = 0
    """0: no limit."""
    tokens_per_minute: int = 0
    """Input that is not read from the provider's cache, and output; 0: no limit."""
    input_tokens_per_minute: int = 0
    """That input alone; 0: no limit."""
    output_tokens_per_minute: int = 0
    """0: no limit."""


class SharedRates(msgspec.Struct):
    """Content of the file or the value."""

    limits: Rates = Rates()
    providers: dict[str, ProviderRate] = {}


def change_file(path: str, change: Change) -> None:
    """Replace the content of a file, which may be missing, by what `change` makes of it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.lockf(descriptor, os.F_LOCK, 0)
        data = change(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
        os.ftruncate(descriptor, os.pwrite(descriptor, data, 0))
    finally:
        os.close(descriptor)


def shared_rates(state_dir: str, name: str) -> Callable[[Change], None]:
    """Return how to change the rates of that name: an absolute path of a file, or the name of a
    value in the store of `state_dir`.
    """
    store = store_of(state_dir)
    if store is None or os.path.isabs(name):
        return partial(change_file, name)
    return partial(store.change_shared, name)


class SharedRateLimit(RateLimit):
    """A `RateLimit` in a file or a store.

    While the store cannot be reached, the process goes by what it has last seen.
    """

    def __init__(self, state_dir: str, name: str, wall_us: Callable[[], int]) -> None:
        """`state_dir`, `name`: of the encoded `SharedRates`; see `shared_rates`."""
        super().__init__()
        self._change_shared, self._wall_us = shared_rates(state_dir, name), wall_us
        self._seen = b""

    def take_turn(self, provider: str, now_s: float) -> tuple[float, AskFailed | None]:
        """See `RateLimit.take_turn`."""
        now_s = self._wall_us() / 1e6
        return self._change(partial(self._take_turn, provider, now_s))

    def _take_turn(
        self, provider: str, now_s: float, rates: SharedRates
    ) -> tuple[float, AskFailed | None]:
        known = rates.providers.setdefault(provider, ProviderRate())
        first_s = max([now_s, *known.filled_s.values()])
        wait_s, refusal = super().take_turn(provider, first_s)
        at = first_s + wait_s
        if rates.limits.requests_per_minute:
            known.free_s = max(known.free_s, at + MINUTE_S / rates.limits.requests_per_minute)
        return at - now_s, refusal

    def heard(self, provider: str, outcome: Replied | AskFailed, now_s: float) -> None:
        """See `RateLimit.heard`."""
        now_s = self._wall_us() / 1e6
        self._change(partial(self._hear, provider, outcome, now_s))

    def _hear(
        self, provider: str, outcome: Replied | AskFailed, now_s: float, rates: SharedRates
    ) -> None:
        known = rates.providers.setdefault(provider, ProviderRate())
        super().heard(provider, outcome, now_s)
        if provider not in self._providers:  # its gap is over; its other times are not
            self._providers[provider] = known
            known.gap_s, known.refusal = 0.0, None
        for name, tokens in _tokens_by_limit(outcome).items():
            if limit := getattr(rates.limits, name):
                since_s = max(now_s, known.filled_s.get(name, 0.0))
                known.filled_s[name] = since_s + MINUTE_S * tokens / limit

    def _change(self, act: Callable[[SharedRates], T]) -> T:
        """Let `act` change the rates, in the store perhaps several times; return its result."""
        results = list[T]()

        def change(data: bytes) -> bytes:
            rates = SharedRates()
            with suppress(msgspec.DecodeError):  # new, or torn by a crash
                rates = msgspec.json.decode(data, type=SharedRates)
            self._providers = rates.providers
            results.append(act(rates))
            self._seen = msgspec.json.encode(rates)
            return self._seen

        try:
            self._change_shared(change)
        except SessionError:  # the next commit waits for the store, or ends the run
            change(self._seen)
        return results[-1]


def _tokens_by_limit(outcome: Replied | AskFailed) -> dict[str, int]:
    """Return the tokens of a reply that count for each limit of `Rates`."""
    if isinstance(outcome, AskFailed):
        return {}
    fresh = outcome.usage.context_tokens - outcome.usage.cache_read_tokens
    output = outcome.usage.output_tokens
    return {
        "tokens_per_minute": fresh + output,
        "input_tokens_per_minute": fresh,
        "output_tokens_per_minute": output,
    }
