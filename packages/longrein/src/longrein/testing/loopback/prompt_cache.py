"""Simulated prompt cache of a provider: tokens read and written, by the bytes of the requests.

Anthropic caches a prefix only at a marked block, and finds it from a mark at most 20 blocks later.
The others cache automatically and find the longest common prefix, in steps of 128 tokens from 1,024
on.
"""

from collections.abc import Callable

from longrein.testing.loopback.response_parts import CacheUsage
from longrein.testing.loopback.script import Limits
from longrein.testing.loopback.validation import TOKEN_BYTES, ParsedRequest

LOOKBACK_BLOCKS = 20
"""Blocks up to a mark, the mark included, that are searched for an earlier entry."""
STEP_TOKENS = 128
"""Granularity of the automatic cache."""
AUTOMATIC_MIN_TOKENS = 1_024
"""Smallest prefix in the automatic cache."""
HOUR_S = 3_600.0


class PromptCache:
    """Cached prefixes of one provider."""

    def __init__(self, limits: Limits, now_s: Callable[[], float]) -> None:
        self._limits = limits
        self._now_s = now_s
        self._until: dict[int, tuple[float, float]] = {}

    def count(self, parsed: ParsedRequest) -> CacheUsage:
        """Count the tokens that `parsed` reads and writes, and cache its prefixes."""
        return self._marked(parsed) if parsed.wire == "anthropic" else self._automatic(parsed)

    # --- Anthropic --------------------------------------------------------------------------------

    def _marked(self, parsed: ParsedRequest) -> CacheUsage:
        total = parsed.used
        marks = [(at, HOUR_S if ttl > 0 else self._limits.cache_ttl_s) for at, ttl in parsed.marks]
        if not marks:
            return CacheUsage(total, 0, 0)
        chain, sums = _prefix_keys(parsed)
        found = max((self._hit(chain, at) for at, _ in marks), default=-1)
        read = sums[found] if found >= 0 else 0
        written = hour = 0
        for at, ttl_s in marks:
            if sums[at] < self._limits.cache_min_tokens:
                continue
            self._keep(chain[at], ttl_s)
            new = sums[at] - read - written
            if new > 0:
                written += new
                hour += new if ttl_s == HOUR_S else 0
        return CacheUsage(total - read - written, read, written, hour)

    def _hit(self, chain: list[int], mark: int) -> int:
        """Return the index of the last cached block within the lookback of `mark`; -1 for none."""
        for at in range(mark, max(-1, mark - LOOKBACK_BLOCKS), -1):
            if self._alive(chain[at]):
                return at
        return -1

    # --- automatic --------------------------------------------------------------------------------

    def _automatic(self, parsed: ParsedRequest) -> CacheUsage:
        total = parsed.used
        data = b"".join(raw for _, raw in parsed.blocks)
        size = STEP_TOKENS * TOKEN_BYTES
        key, read = hash((parsed.wire, parsed.model)), 0
        keep: list[int] = []
        for end in range(size, len(data) + 1, size):
            key = hash((key, data[end - size : end]))
            tokens = end // TOKEN_BYTES
            if tokens >= AUTOMATIC_MIN_TOKENS:
                keep.append(key)
                if self._alive(key):
                    read = tokens
        for key in keep:
            self._keep(key, self._limits.cache_ttl_s)
        read = min(read, total)
        return CacheUsage(total - read, read, 0)

    # --- entries ----------------------------------------------------------------------------------

    def _alive(self, key: int) -> bool:
        """Return whether `key` is cached; reading renews its lifetime."""
        until, ttl_s = self._until.get(key, (0.0, 0.0))
        now = self._now_s()
        if now >= until:
            return False
        self._until[key] = (now + ttl_s, ttl_s)
        return True

    def _keep(self, key: int, ttl_s: float) -> None:
        self._until[key] = (self._now_s() + ttl_s, ttl_s)


def _prefix_keys(parsed: ParsedRequest) -> tuple[list[int], list[int]]:
    """Return for each block a key of the prefix up to it, and the tokens up to it."""
    key, total = hash((parsed.wire, parsed.model)), 0
    chain, sums = [], []
    for (side, raw), tokens in zip(parsed.blocks, parsed.tokens, strict=True):
        key = hash((key, side, raw))
        total += tokens
        chain.append(key)
        sums.append(total)
    return chain, sums
