"""Cost of a replayed session under prompt-cache prices, and share of later needs that were still shown.

One uncached input token costs 1. The prefix that is read from the cache is the longest unchanged run of system text,
summary and items since the request before. An identifier or line that an output shares with something earlier is a
use. A use is kept when any shown item holds it.
"""

from collections.abc import Sequence

import msgspec

from longrein.context import call_content, features
from longrein.replay.drive import Change
from longrein.replay.recording import Item, Recording

CACHED_TOKENS_MIN = 1_024
"""Shorter prefixes are not cached."""
INSTRUCTION_TOKENS = 500
"""Tokens of the instruction that asks for a summary."""


class Rates(msgspec.Struct, frozen=True):
    """Prices of cached input, cache write and output."""

    read: float
    write: float
    output: float


PRICES = {"anthropic": Rates(0.1, 1.25, 5.0), "openai10": Rates(0.1, 1.0, 8.0), "openai25": Rates(0.25, 1.0, 4.0)}
"""Price ratios that large providers publish."""


class Row(msgspec.Struct):
    """Figures of one session under one policy, or the sum of several."""

    policy: str
    session: str
    requests: int
    cost: float = 0
    """Cost in units of one uncached input token."""
    keep_all: float = 0
    """Cost of keeping everything."""
    cache_read: int = 0
    carried: int = 0
    """Input tokens of all requests."""
    breaks: int = 0
    peak: int = 0
    """Input tokens of the largest request."""
    uses: int = 0
    kept: int = 0
    tool_uses: int = 0
    tool_kept: int = 0


class CostAccount:
    """Account of the costs and uses of one session, request by request."""

    def __init__(self, policy: str, recording: Recording, rates: Rates) -> None:
        self.recording, self.rates = recording, rates
        self.row = Row(policy, recording.name, recording.requests)
        self._contents = [_content(item) for item in recording.items]
        self._features = [features(text) for text in self._contents]
        self._visible: dict[str, int] = {}
        self._now = [dict[str, None]() for _ in recording.items]
        self._tool_only: dict[str, bool] = {}
        self._summary: dict[str, None] = {}
        self._before = self._known = 0

    def request(self, change: Change, tokens: list[int], summary_tokens: int) -> None:
        """Account for request `change.t`, shown with `tokens` per item after `change`."""
        items, first = self.recording.items, self._before
        end = first
        while end < len(items) and (items[end].request, items[end].output) < (change.t, True):
            end += 1
        for place in range(first, end):
            self._now[place] = self._count(self._now[place], self._features[place])
        for place, text in change.show.items():
            self._now[place] = self._count(self._now[place], features(_shown(items[place], text)))
        if change.summary is not None:
            self._summary = self._count(self._summary, features(change.summary))
        self._pay(change, tokens, summary_tokens, end)
        self._use(change.t, end)
        self._before = end

    def _count(self, before: dict[str, None], now: dict[str, None]) -> dict[str, None]:
        """Count `now` as visible in place of `before`; return `now`."""
        for name in before:
            self._visible[name] -= 1
        for name in now:
            self._visible[name] = self._visible.get(name, 0) + 1
        return now

    def _pay(self, change: Change, tokens: list[int], summary_tokens: int, end: int) -> None:
        rates, recorded = self.rates, self.recording
        system, whole = recorded.system_tokens, [item.tokens for item in recorded.items[:end]]
        cut = min([self._before, *change.show])
        broke = change.summary is not None or cut < self._before
        prefix = system if change.summary is not None else system + summary_tokens + sum(tokens[:cut])
        prefix = 0 if change.t == 0 or prefix < CACHED_TOKENS_MIN else prefix
        total = system + summary_tokens + sum(tokens[:end])
        output = sum(m.tokens for m in recorded.items[end:] if m.output and m.request == change.t)
        self.row.cost += rates.read * prefix + rates.write * (total - prefix) + rates.output * output
        if change.asked_tokens:
            asked = system + sum(tokens[: self._before])
            self.row.cost += rates.read * asked + rates.write * INSTRUCTION_TOKENS + rates.output * change.asked_tokens
        old, new = system + sum(whole[: self._before]), sum(whole[self._before :])
        fresh = old + new if change.t == 0 else new
        self.row.keep_all += rates.read * (old + new - fresh) + rates.write * fresh + rates.output * output
        self.row.cache_read += prefix
        self.row.carried += total
        self.row.breaks += broke and change.t > 0
        self.row.peak = max(self.row.peak, total)

    def _use(self, t: int, end: int) -> None:
        """Count the features that the output of request `t`, which begins at `end`, shares with earlier items."""
        items, last, used = self.recording.items, end, dict[str, None]()
        self._know(end)
        while last < len(items) and items[last].request == t and items[last].output:
            if not items[last].thinking:
                used |= self._features[last]
            last += 1
        for name in used:
            if name in self._tool_only:
                kept, tool = self._visible.get(name, 0) > 0, self._tool_only[name]
                self.row.uses += 1
                self.row.kept += kept
                self.row.tool_uses += tool
                self.row.tool_kept += tool and kept
        self._know(last)

    def _know(self, end: int) -> None:
        for place in range(self._known, end):
            tool = self.recording.items[place].kind == "tool_result"
            for name in self._features[place]:
                self._tool_only[name] = tool and self._tool_only.get(name, True)
        self._known = end


def _content(item: Item) -> str:
    return call_content(item.text) if item.kind == "tool_call" else item.text


def _shown(item: Item, text: str | None) -> str:
    if text is None:
        return ""
    return call_content(text) if item.kind == "tool_call" else text


# --- Tables and JSON -------------------------------------------------------------------------------------------------


def total(rows: Sequence[Row]) -> Row:
    """Return the sum of all sessions of one policy; the peak is the largest."""
    names = [name for name in Row.__struct_fields__ if name not in ("policy", "session", "peak")]
    sums = {name: sum(getattr(row, name) for row in rows) for name in names}
    return Row(policy=rows[0].policy, session="all", peak=max(row.peak for row in rows), **sums)


def as_json(rows: Sequence[Row]) -> str:
    """Format the rows as one JSON list."""
    return msgspec.json.format(msgspec.json.encode(rows)).decode() + "\n"


TABLE_HEAD = (
    "policy",
    "session",
    "requests",
    "cost / keep-all",
    "cache hit",
    "kept",
    "kept, tool-only",
    "breaks",
    "peak",
)


def as_table(rows: Sequence[Row]) -> str:
    """Format a line per session and policy, and a sum for each policy with several sessions."""
    by_policy: dict[str, list[Row]] = {}
    for row in rows:
        by_policy.setdefault(row.policy, []).append(row)
    every = [one for found in by_policy.values() for one in (*found, *([total(found)] if len(found) > 1 else []))]
    cells = [TABLE_HEAD, *map(_cells, every)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(TABLE_HEAD))]
    lines = [
        "  ".join(c.ljust(w) if n < 2 else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    shares = (
        (row.cost, row.keep_all),
        (row.cache_read, row.carried),
        (row.kept, row.uses),
        (row.tool_kept, row.tool_uses),
    )
    figures = [f"{part / whole:.3f}" if whole else "-" for part, whole in shares]
    return row.policy, row.session, str(row.requests), *figures, str(row.breaks), f"{row.peak:,}"
