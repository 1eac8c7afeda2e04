"""`longrein simulate`: cost of recorded or stored sessions under other context policies."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing

from longrein.context import Budget, Price
from longrein.events import UsageError, decode_entry
from longrein.frontends.stdio import show
from longrein.replay import (
    POLICIES,
    PRICES,
    CostAccount,
    PolicyReplay,
    Recording,
    as_json,
    as_table,
    base_name,
    of_entries,
    read_recording,
)
from longrein.run_context import RunContext
from longrein.store import Reader, find_session

OUTPUT_TOKENS_MAX = 8_192
"""Largest answer that the budget reserves."""


def simulate(
    place: RunContext,
    words: Sequence[str],
    *,
    policy: str = "",
    prices: str = "anthropic",
    window: int = 200_000,
    json: bool = False,
) -> int:
    """Print a line for each session and policy. Raises `UsageError` for a file that is no recorded session."""
    rows = []
    budget = budget_of(prices, window)
    for session in _recordings(place.state_dir, words):
        for name in [policy] if policy else POLICIES:
            drive, account = PolicyReplay(session, POLICIES[name], budget), CostAccount(name, session, PRICES[prices])
            for change in drive.changes():
                account.request(change, drive.tokens, drive.summary_tokens)
            rows.append(account.row)
    show(as_json(rows) if json else as_table(rows))
    return 0


def budget_of(prices: str, window: int) -> Budget:
    """Return the budget of a model with these price ratios; one input token costs a millionth of a dollar."""
    rates = PRICES[prices]
    return Budget(window, min(OUTPUT_TOKENS_MAX, window // 4), Price(1.0, rates.output, rates.read, rates.write))


def _recordings(state_dir: str, words: Sequence[str]) -> Iterator[Recording]:
    for word in words:
        if os.path.isdir(word):
            names = sorted(n for n in os.listdir(word) if n.endswith((".jsonl", ".jsonl.gz")))
            yield from (_file(os.path.join(word, name)) for name in names)
        elif os.path.isfile(word):
            yield _file(word)
        else:
            yield _stored(state_dir, word)


def _file(path: str) -> Recording:
    """Read a recorded session in the neutral format, or one written by `longrein export`."""
    with open(path, "rb") as file:
        data = file.read()
    if data.startswith(b'{"seq":'):
        try:
            return of_entries(base_name(path), [decode_entry(line) for line in data.splitlines()])
        except ValueError as error:
            raise UsageError(f"{path} is no exported session: {error}") from error
    return read_recording(path, data)


def _stored(state_dir: str, session: str) -> Recording:
    found = find_session(state_dir, session)
    with closing(Reader(state_dir, found)) as reader:
        return of_entries(found, reader.entries())
