"""The past of a session whose log is not on disk: what `Hands` can bring, entry by entry."""

import importlib
from collections.abc import Iterator

from longrein.events import Entry
from longrein.store import Found, kind_of
from longrein.tools.port import Hands, Past


class HeldPast:
    """A `port.Past` over the hands of one call. Every look is a walk, so it is for short logs."""

    def __init__(self, hands: Hands) -> None:
        self._entry = hands.entry
        self._blobs = hands.blobs

    def tail(self) -> tuple[int, int]:
        """See `store.Past`. Seqs have no gaps, so twice as far until there is nothing, then between."""
        low, high = 0, 1
        while self._entry(high) is not None:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._entry(middle) is not None else (low, middle)
        last = self._entry(low) if low else None
        return (low, last.at) if last is not None else (0, 0)

    def entry(self, seq: int) -> Entry | None:
        """See `store.Past`."""
        return self._entry(seq)

    def entries(self, after: int = 0, to: int = 0) -> Iterator[Entry]:
        """See `store.Past`."""
        last = self.tail()[0]
        found = map(self._entry, range(after + 1, min(to or last, last) + 1))
        return (entry for entry in found if entry is not None)

    def of_kind(self, *kinds: str) -> Iterator[Entry]:
        """See `store.Past`."""
        found = map(self._entry, range(self.tail()[0], 0, -1))
        return (entry for entry in found if entry is not None and kind_of(entry.event) in kinds)

    def seq_at(self, at: int) -> int:
        """See `store.Past`."""
        return next((entry.seq for entry in reversed([*self.entries()]) if entry.at <= at), 0)

    def seq_ago(self, ago_us: int, now_us: int) -> int:
        """See `store.Past`."""
        newer, left = now_us, ago_us
        for entry in reversed([*self.entries()]):
            left, newer = left - max(0, newer - entry.at), entry.at
            if left <= 0:
                return entry.seq
        return 0

    def pieces(self, blob: str) -> Iterator[bytes]:
        """See `store.Past`: in one piece."""
        yield self._blobs.read_blob(blob)

    def search(self, query: str, limit: int, before: int = 0) -> Found:
        """See `store.Past`: reads every entry."""
        found: Found = importlib.import_module("longrein.store.search").scan(self, query, limit, before)
        return found

    def search_tree(self, query: str, limit: int, before: int = 0) -> Found:
        """See `store.Past`: no other log is in reach."""
        return self.search(query, limit, before)

    def child(self, session: str) -> Past | None:  # noqa: ARG002 - the port's signature
        """See `store.Past`: no other log is in reach."""
        return None

    def parent(self) -> Past | None:
        """See `store.Past`: no other log is in reach."""
        return None
