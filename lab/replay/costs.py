"""Cost of a replayed session under prompt-cache prices, and share of later needs that were still
shown.

One uncached input token costs 1. The prefix that is read from the cache is the longest unchanged
run of system text, summary and items since the request before. A use (`uses`) is kept when any
shown item holds it. A lost use costs a request that brings its newest source back, which then stays
for some requests.
"""

from collections.abc import Sequence

import msgspec

from lab.replay.plain_policies import PROSE, Change
from lab.replay.recording import Item, Recording
from lab.replay.uses import Uses, find_uses, plain_block
from longrein_context import call_content, features

CACHED_TOKENS_MIN = 1_024
"""Shorter prefixes are not cached."""
INSTRUCTION_TOKENS = 500
"""Tokens of the instruction that asks for a summary."""
SUMMARY_KEEPS = 0.30
"""Share of later uses that a model's summary of `SUMMARY_TOKENS_USUAL` held in recorded
sessions.
"""
SUMMARY_TOKENS_USUAL = 2_000
RECALL_CALL_TOKENS = 80
RECALLED_TOKENS_MAX = 6_000
RECALLED_REQUESTS = 20
"""Tokens of a call that brings an item back, tokens that it brings at most, requests for which
they stay.
"""
LOST_BELOW = 0.5
"""A use of which less is kept must be brought back."""


class Rates(msgspec.Struct, frozen=True):
    """Prices of cached input, cache write and output, and the largest answer in tokens that such
    models give.
    """

    read: float
    write: float
    output: float
    output_tokens_max: int = 32_000
    known: bool = True
    """False if the engine is not told the prices."""


PRICES = {
    "anthropic": Rates(0.1, 1.25, 5.0, 64_000),
    "anthropic-1h": Rates(0.1, 2.0, 5.0, 64_000),
    "openai10": Rates(0.1, 1.0, 8.0, 128_000),
    "openai25": Rates(0.25, 1.0, 4.0, 32_768),
    "openai50": Rates(0.5, 1.0, 4.0, 16_384),
    "gemini": Rates(0.1, 1.0, 6.0, 65_536),
    "deepseek": Rates(0.008, 1.0, 2.0, 384_000),
    "local": Rates(0.0, 1.0, 0.0, 8_192),
    "unknown": Rates(0.1, 1.0, 5.0, 8_192, known=False),
}
"""Price ratios that providers publish, as their pages stood in November 2026.

- anthropic: platform.claude.com/docs/en/build-with-claude/prompt-caching; a write to the 5-minute
  cache costs 1.25, to the 1-hour cache 2.
- openai10, openai25, openai50: developers.openai.com/api/docs/pricing; GPT-5 (1.25, cached .125,
  output 10), GPT-4.1 (2, .5, 8), GPT-4o (2.5, 1.25, 10). No price for writing.
- gemini: ai.google.dev/gemini-api/docs/pricing; Gemini 3 Pro (2, cached .2, output 12). Its
  implicit cache costs nothing to write or to store; the storage price is for explicit caches, which
  longrein does not make.
- deepseek: api-docs.deepseek.com/quick_start/pricing; V4 Pro at first (1.74, cached .0145, output
  3.48), the lowest ratio so far. In October 2026 V4.1 Flash reads at .02, V4 Pro at .033.
- local: nothing is charged, so the figure is the tokens that must be computed again.
- unknown: the engine is not told any price; accounted like a provider that takes nothing for
  writing.
"""


class Tokens(msgspec.Struct):
    """Tokens of requests: read from the cache, written to it, and output."""

    read: float = 0
    written: float = 0
    output: float = 0

    def cost(self, rates: Rates) -> float:
        """Return the cost in units of one uncached input token."""
        return rates.read * self.read + rates.write * self.written + rates.output * self.output


class Row(msgspec.Struct):
    """Figures of one session under one policy, or the sum of several."""

    policy: str
    session: str
    requests: int
    cost: float = 0
    """Cost in units of one uncached input token."""
    keep_all: float = 0
    """Cost of keeping everything."""
    with_recalls: float = 0
    """Cost with that of bringing lost items back."""
    recalls: float = 0
    cache_read: int = 0
    carried: int = 0
    """Input tokens of all requests."""
    breaks: int = 0
    summaries: int = 0
    peak: int = 0
    """Input tokens of the largest request."""
    keep_all_peak: int = 0
    """The same when everything is kept."""
    failures: int = 0
    """Requests that do not fit the window, and inputs that were never shown in full."""
    uses: int = 0
    kept: float = 0
    tool_uses: int = 0
    """Uses of what only tool results held."""
    tool_kept: float = 0
    id_uses: int = 0
    """Identifiers among those; the others are lines."""
    id_kept: float = 0
    line_uses: int = 0
    line_kept: float = 0
    edit_uses: int = 0
    """Old texts of edits that stood whole in one item."""
    edit_kept: int = 0


class _Lost(msgspec.Struct):
    """Lost use of a request."""

    request: int
    source: int
    missing: float


class CostAccount:
    """Account of the costs and uses of one session, request by request.

    `window`: tokens that a request may have with its output; 0 for no limit.
    """

    def __init__(
        self,
        policy: str,
        recording: Recording,
        rates: Rates,
        *,
        window: int = 0,
        uses: Uses | None = None,
    ) -> None:
        self.recording = recording
        self.rates = rates
        self.window = window
        self.uses = find_uses(recording) if uses is None else uses
        self._finds_edits = any(self.uses.edits)
        self._row = Row(policy, recording.name, recording.requests)
        self._spent, self._whole = Tokens(), Tokens()
        self._texts: dict[int, str | None] = {}
        """Texts in place of items, as the policy gave them."""
        self._shown: dict[int, str] = {}
        """Blocks of the items that are not shown in full; '' for none."""
        self._now = [dict[str, None]() for _ in recording.items]
        self._visible: dict[str, int] = {}
        self._summary: dict[str, None] = {}
        self._summary_text = self._summary_block = ""
        """Two summaries of nothing but a model's words count as the same text, in favour of the
        plain policies.
        """
        self._read_by_model: dict[str, None] = {}
        """Names that a model read when it wrote the summary in use or one before."""
        self._written_tokens = 0
        self._before = self._size = self._whole_size = 0
        self._lost: list[_Lost] = []
        self._tokens = [0] * len(recording.items)
        """Tokens of each item in the last request."""
        self._carried = 0
        """Sum of `_tokens`."""

    def request(self, change: Change, tokens: list[int], summary_tokens: int) -> None:
        """Account for request `change.t`, shown with `tokens` per item after `change`."""
        items, first = self.recording.items, self._before
        end = first
        while end < len(items) and (items[end].request, items[end].output) < (change.t, True):
            end += 1
        if change.asked_tokens:
            self._pay_summary(change)
        for place in range(first, end):
            self._now[place] = self._count(self._now[place], self.uses.names[place])
            self._row.failures += place in change.show and not items[place].output
        changed = {
            p: text
            for p, text in change.show.items()
            if p not in self._texts or self._texts[p] != text
        }
        for place, text in changed.items():
            self._show(place, text)
        is_new = change.summary is not None and change.summary != self._summary_text
        if is_new:
            self._set_summary(change)
        cut = min([first, *changed])
        for place in {*change.show, *range(first, end)}:
            self._carried += tokens[place] - self._tokens[place] if place < end else 0
            self._tokens[place] = tokens[place] if place < end else 0
        self._pay(change.t, tokens, summary_tokens, end, None if is_new else cut)
        self._use(change.t)
        self._before = end

    @property
    def row(self) -> Row:
        return self.row_at(self.rates)

    def row_at(self, rates: Rates) -> Row:
        """Return the figures at other prices. Only sensible for a policy that does not look at
        prices.
        """
        recalled, recalls = self._recalls()
        cost = self._spent.cost(rates)
        more = {
            "cost": cost,
            "keep_all": self._whole.cost(rates),
            "with_recalls": cost + recalled.cost(rates),
        }
        return msgspec.structs.replace(self._row, recalls=recalls, **more)

    # --- What is shown ----------------------------------------------------------------------------

    def _count(self, before: dict[str, None], now: dict[str, None]) -> dict[str, None]:
        """Count `now` as visible in place of `before`; return `now`."""
        for name in before:
            self._visible[name] -= 1
        for name in now:
            self._visible[name] = self._visible.get(name, 0) + 1
        return now

    def _names(self, text: str) -> dict[str, None]:
        names = features(text) if self.uses.known else ()
        return {name: None for name in names if name in self.uses.known}

    def _show(self, place: int, text: str | None) -> None:
        self._texts[place], shown = text, _shown(self.recording.items[place], text)
        self._now[place] = self._count(self._now[place], self._names(shown))
        if self._finds_edits:
            self._shown[place] = plain_block(shown)

    def _set_summary(self, change: Change) -> None:
        text = self._summary_text = change.summary or ""
        if PROSE in text:
            self._written_tokens = change.asked_tokens or self._written_tokens
        else:
            self._read_by_model, self._written_tokens = {}, 0
        self._summary = self._names(text.replace(PROSE, ""))
        self._summary_block = plain_block(text)

    # --- What it costs ----------------------------------------------------------------------------

    def _pay_summary(self, change: Change) -> None:
        """Account for a model's summary of what the request before showed."""
        cached = self._size if self._size >= CACHED_TOKENS_MIN else 0
        self._spent.read += cached
        self._spent.written += self._size - cached + INSTRUCTION_TOKENS
        self._spent.output += change.asked_tokens
        self._row.summaries += 1
        needed = self._size + INSTRUCTION_TOKENS + change.asked_tokens
        self._row.failures += 0 < self.window < needed
        if PROSE in (change.summary or ""):
            self._read_by_model |= {
                name: None for name, count in self._visible.items() if count > 0
            }
            self._read_by_model |= self._summary

    def _pay(
        self, t: int, tokens: list[int], summary_tokens: int, end: int, cut: int | None
    ) -> None:
        """Account for request `t`. `cut`: number of items that are as they were; None behind a
        new summary.
        """
        recorded, row = self.recording, self._row
        prefix = recorded.system_tokens
        if cut is not None:
            prefix += summary_tokens + self._carried - sum(tokens[cut:end])
        prefix = 0 if t == 0 or prefix < CACHED_TOKENS_MIN else prefix
        self._size = recorded.system_tokens + summary_tokens + self._carried
        output, place = 0, end
        while place < len(recorded.items) and (
            recorded.items[place].request,
            recorded.items[place].output,
        ) == (
            t,
            True,
        ):
            output, place = output + recorded.items[place].tokens, place + 1
        self._spend(self._spent, prefix, self._size, output)
        before, self._whole_size = self._whole_size, self._whole_size or recorded.system_tokens
        self._whole_size += sum(item.tokens for item in recorded.items[self._before : end])
        self._spend(
            self._whole, before if before >= CACHED_TOKENS_MIN else 0, self._whole_size, output
        )
        row.cache_read += prefix
        row.carried += self._size
        row.breaks += t > 0 and (cut is None or cut < self._before)
        row.peak = max(row.peak, self._size)
        row.keep_all_peak = max(row.keep_all_peak, self._whole_size)
        row.failures += 0 < self.window < self._size + output

    def _spend(self, tokens: Tokens, prefix: int, size: int, output: int) -> None:
        tokens.read += prefix
        tokens.written += size - prefix
        tokens.output += output

    def _recalls(self) -> tuple[Tokens, float]:
        """Return tokens and number of the requests that bring lost sources back; one serves for
        some requests.
        """
        tokens, number = Tokens(), 0.0
        mean = self._row.carried / max(1, self.recording.requests)
        last: dict[int, int] = {}
        for lost in sorted(self._lost, key=lambda lost: (lost.request, -lost.missing)):
            recent = (
                lost.request - last.get(lost.source, -RECALLED_REQUESTS - 1) <= RECALLED_REQUESTS
            )
            last[lost.source] = lost.request
            if recent:
                continue
            size = min(self.recording.items[lost.source].tokens, RECALLED_TOKENS_MAX)
            stay = min(RECALLED_REQUESTS, self.recording.requests - lost.request)
            number += lost.missing
            tokens.output += lost.missing * RECALL_CALL_TOKENS
            tokens.read += lost.missing * (mean + size * stay)
            tokens.written += lost.missing * size
        return tokens, number

    # --- What is kept -----------------------------------------------------------------------------

    def _use(self, t: int) -> None:
        """Count what the output of request `t` uses and what of that is shown."""
        row = self._row
        by_summary = SUMMARY_KEEPS * min(1.0, self._written_tokens / SUMMARY_TOKENS_USUAL)
        for name, source, tool_only in self.uses.named[t]:
            kept = 1.0 if self._visible.get(name, 0) > 0 or name in self._summary else 0.0
            if not kept and name in self._read_by_model:
                kept = by_summary
            row.uses += 1
            row.kept += kept
            if tool_only:
                line = name[0] == "\n"
                row.tool_uses += 1
                row.tool_kept += kept
                row.line_uses += line
                row.line_kept += kept * line
                row.id_uses += not line
                row.id_kept += kept * (not line)
            if kept < LOST_BELOW:
                self._lost.append(_Lost(t, source, 1.0 - kept))
        for text, sources in self.uses.edits[t]:
            row.edit_uses += 1
            row.edit_kept += (
                any(place not in self._shown or text in self._shown[place] for place in sources)
                or text in self._summary_block
                or any(text in block for block in self._shown.values())
            )


def _shown(item: Item, text: str | None) -> str:
    if text is None:
        return ""
    return call_content(text) if item.kind == "tool_call" else text


# --- Tables and JSON ------------------------------------------------------------------------------


def total(rows: Sequence[Row]) -> Row:
    """Return the sum of all sessions of one policy; the peaks are the largest."""
    largest = {name: max(getattr(row, name) for row in rows) for name in ("peak", "keep_all_peak")}
    names = [name for name in Row.__struct_fields__ if name not in ("policy", "session", *largest)]
    sums = {name: sum(getattr(row, name) for row in rows) for name in names}
    return Row(policy=rows[0].policy, session="all", **largest, **sums)


def as_json(rows: Sequence[Row]) -> str:
    """Format the rows as one JSON list."""
    return msgspec.json.format(msgspec.json.encode(rows)).decode() + "\n"


TABLE_HEAD = (
    *("policy", "session", "requests", "cost / keep-all", "with recalls", "cache hit"),
    *("kept", "tool-only", "ids", "lines", "edits", "breaks", "peak", "misfits"),
)
"""`kept`: share of all uses; `tool-only`, `ids`, `lines`: of what only results held; `edits`:
old texts of edits.
"""


def as_table(rows: Sequence[Row]) -> str:
    """Format a line per session and policy, and a sum for each policy with several sessions."""
    by_policy: dict[str, list[Row]] = {}
    for row in rows:
        by_policy.setdefault(row.policy, []).append(row)
    every = [
        one
        for found in by_policy.values()
        for one in (*found, *([total(found)] if len(found) > 1 else []))
    ]
    cells = [TABLE_HEAD, *map(_cells, every)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(TABLE_HEAD))]
    lines = [
        "  ".join(
            c.ljust(w) if n < 2 else c.rjust(w)
            for n, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    shares = (
        (row.cost, row.keep_all),
        (row.with_recalls, row.keep_all),
        (row.cache_read, row.carried),
        (row.kept, row.uses),
        (row.tool_kept, row.tool_uses),
        (row.id_kept, row.id_uses),
        (row.line_kept, row.line_uses),
        (row.edit_kept, row.edit_uses),
    )
    figures = [f"{part / whole:.3f}" if whole else "-" for part, whole in shares]
    return (
        row.policy,
        row.session,
        str(row.requests),
        *figures,
        str(row.breaks),
        f"{row.peak:,}",
        str(row.failures),
    )
