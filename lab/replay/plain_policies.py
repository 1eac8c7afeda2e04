"""Plain context policies, for comparison: they know neither prices nor what is needed later."""

from collections.abc import Callable, Iterator

import msgspec

from lab.replay.recording import Recording, count_tokens

SUMMARY_TOKENS = 2_000
"""Tokens that a model's summary counts."""
PROSE = "[[LLM-SUMMARY]]"
"""Placeholder for a model's summary."""
WATERMARK_SHARE = 0.92
"""Share of the window above which a summary replaces everything but the newest exchange."""
RESULTS_KEPT = 10
BATCH_TOKENS_MIN = 20_000
"""Results older than the newest `RESULTS_KEPT` are hidden once that saves so many tokens."""
RESULT_TOKENS_MIN = 67
"""Smaller results stay."""


class Change(msgspec.Struct):
    """Changes before request `t`."""

    t: int
    show: dict[int, str | None] = {}
    """Position of an item -> text shown in its place; None for none."""
    summary: str | None = None
    """New summary text at the start; None when it does not change."""
    asked_tokens: int = 0
    """Tokens that a model wrote for the summary."""
    reason: str = ""


class PlainReplay:
    """Replay of one session under a plain policy."""

    def __init__(self, recording: Recording, policy: "PlainPolicy", window: int) -> None:
        """`window`: tokens."""
        self.recording = recording
        self.policy = policy
        self.window = window
        self.tokens = [item.tokens for item in recording.items]
        """Tokens of each item as it is shown."""
        self.summary_tokens = 0
        self.shorter: set[int] = set()
        """Positions of the items that are not shown in full."""
        self.results: list[int] = []
        """Positions of the results so far."""
        self.summarised = 0
        """Number of the first items that a model's summary stands for."""
        self.batched = 0
        """Number of results before which nothing is left for another batch."""
        self.end = self.before = 0
        """Number of items in this request and in the one before."""
        self._carried = 0
        """Tokens of the items of this request."""

    @property
    def size(self) -> int:
        return self.recording.system_tokens + self.summary_tokens + self._carried

    def changes(self) -> Iterator[Change]:
        """Yield one change for each request, in order, also empty ones."""
        items = self.recording.items
        for t in range(self.recording.requests):
            self.before = self.end
            while self.end < len(items) and (items[self.end].request, items[self.end].output) < (
                t,
                True,
            ):
                if items[self.end].kind == "tool_result":
                    self.results.append(self.end)
                self._carried += self.tokens[self.end]
                self.end += 1
            change = Change(t, {})
            self.policy(self, change)
            yield change

    def hide(self, change: Change, place: int, text: str | None) -> None:
        """Show `text` in place of an item, or nothing."""
        item = self.recording.items[place]
        tokens = 0 if text is None else count_tokens(item.kind, text)
        if text == item.text:
            tokens = item.tokens
        if place < self.end:
            self._carried += tokens - self.tokens[place]
        change.show[place] = text
        self.shorter.add(place)
        self.tokens[place] = tokens


PlainPolicy = Callable[[PlainReplay, Change], None]
"""Function that changes what the next request shows."""


def summarise_when_full(replay: PlainReplay, change: Change) -> None:
    """Let a model summarise everything but the newest exchange when the window is nearly full."""
    if replay.size <= WATERMARK_SHARE * replay.window or not replay.before:
        return
    for place in range(replay.summarised, replay.before):
        if replay.tokens[place]:
            replay.hide(change, place, None)
    replay.summarised = replay.before
    change.summary = PROSE
    change.asked_tokens = SUMMARY_TOKENS
    change.reason = "watermark"
    replay.summary_tokens = SUMMARY_TOKENS + count_tokens("assistant_text", "")


def clear_in_batches(replay: PlainReplay, change: Change) -> None:
    """Hide old results when that saves many tokens at once; summarise when the window is nearly
    full all the same.
    """
    items = replay.recording.items
    old = [
        p
        for p in replay.results[replay.batched : -RESULTS_KEPT]
        if p not in replay.shorter and items[p].tokens > RESULT_TOKENS_MIN
    ]
    notes = {place: f"[{items[place].lines} lines of old output were cleared]" for place in old}
    saved = sum(
        replay.tokens[place] - count_tokens("tool_result", note) for place, note in notes.items()
    )
    if notes and saved >= BATCH_TOKENS_MIN:
        for place, note in notes.items():
            replay.hide(change, place, note)
        replay.batched = len(replay.results) - RESULTS_KEPT
        change.reason = "batch"
    summarise_when_full(replay, change)


PLAIN: dict[str, PlainPolicy] = {"summary-92": summarise_when_full, "batch": clear_in_batches}
