"""Once-encoded fragments and the brackets between them: how a request of any length is joined in under a millisecond.

A wire says how one item is encoded (its fragment, kept for the item's life) and how a run of items of one side is
bracketed. Requests only grow between breaks, so what was laid out for the last one is kept and the new items are laid
after it; after a break everything before the changed item still stands.
"""

from collections.abc import Callable, Sequence

import msgspec

from longrein.context import Item

Lay = Callable[[str, Sequence[bytes]], tuple[list[bytes], bytes]]
"""(side, fragments) of one run -> two chunks for each fragment (what stands before it, itself), the closing bracket."""

SESSIONS_MAX = 64
"""Sessions whose fragments a model keeps; the one that asked longest ago goes first."""


class Grammar(msgspec.Struct, frozen=True):
    """How a wire writes a list of items."""

    encode: Callable[[Item], bytes]
    """The fragment of an item; empty when this wire and model do not get it."""
    side: Callable[[Item], str]
    """Which run an item belongs to; neighbours of one side share a bracket."""
    lay: Lay
    """How a run is bracketed; the opening bracket stands with the first fragment."""


class Memo:
    """What one session's requests to one model are made of."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.head: tuple[object, bytes] = (None, b"")
        """Whatever stands before the items, and the prefix it was made of."""
        self._fragments: dict[tuple[int, int, int], tuple[Item, bytes]] = {}
        self._items: tuple[Item, ...] = ()
        self._chunks: list[bytes] = []  # lead, fragment, lead, fragment …: two for each item
        self._runs: list[tuple[int, str, bytes]] = []  # start, side and closing bracket of each run

    def chunks(self, items: tuple[Item, ...]) -> list[bytes]:
        """Leads and fragments of `items`, two an item, without the last bracket. The list is not to be changed."""
        same = self._common(items)
        if same < len(self._items) or same < len(items):
            start = self._cut(same)
            if same < len(self._items):
                self._forget(items)
            self._items = items
            self._extend(start)
        return self._chunks

    @property
    def closing(self) -> bytes:
        """What closes the last run."""
        return self._runs[-1][2] if self._runs else b""

    @property
    def first_side(self) -> str:
        """Side of the first run; empty when nothing was laid."""
        return self._runs[0][1] if self._runs else ""

    def fragment(self, item: Item) -> bytes:
        """The item for this wire: made once in its life."""
        known = self._fragments.get(item.key)
        if known is not None and known[0] is item:
            return known[1]
        made = self.grammar.encode(item)
        self._fragments[item.key] = (item, made)
        return made

    def _common(self, items: tuple[Item, ...]) -> int:
        last = self._items
        for at, (old, new) in enumerate(zip(last, items, strict=False)):
            if old is not new:
                return at
        return min(len(last), len(items))

    def _cut(self, same: int) -> int:
        """Drop the layout from the last run that can still change; its start."""
        while self._runs and self._runs[-1][0] >= same:
            self._runs.pop()
        start = self._runs.pop()[0] if self._runs else 0
        del self._chunks[2 * start :]
        return start

    def _forget(self, items: tuple[Item, ...]) -> None:
        kept = {item.key for item in items}
        for key in [key for key in self._fragments if key not in kept]:
            del self._fragments[key]

    def _extend(self, start: int) -> None:
        run: list[tuple[int, bytes]] = []
        side = ""
        self._chunks += [b""] * (2 * (len(self._items) - start))
        for at in range(start, len(self._items)):
            item = self._items[at]
            fragment = self.fragment(item)
            if not fragment:
                continue
            new = self.grammar.side(item)
            if run and new != side:
                self._close(side, run)
                run = []
            side = new
            run.append((at, fragment))
        if run:
            self._close(side, run)

    def _close(self, side: str, run: list[tuple[int, bytes]]) -> None:
        chunks, closing = self.grammar.lay(side, [fragment for _, fragment in run])
        if not any(chunks):
            return
        if self._runs:
            chunks[0] = self._runs[-1][2] + b"," + chunks[0]
        self._runs.append((run[0][0], side, closing))
        for n, (at, _) in enumerate(run):
            self._chunks[2 * at : 2 * at + 2] = chunks[2 * n : 2 * n + 2]


class Memos:
    """The memos of the sessions that use one model."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._by_session: dict[str, Memo] = {}

    def of(self, session: str) -> Memo:
        """The memo of `session`, made when it is new."""
        memo = self._by_session.pop(session, None) or Memo(self._grammar)
        self._by_session[session] = memo
        while len(self._by_session) > SESSIONS_MAX:
            del self._by_session[next(iter(self._by_session))]
        return memo
