"""`longrein simulate`: cost of recorded or stored sessions under other context policies."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing

from msgspec.structs import replace

from longrein.app.run_context import RunContext
from longrein.config.clearing_weights import SHIPPED, Tables, Weights, read_weights
from longrein.context import Budget, Price, use_tables
from longrein.events import UsageError, decode_entry
from longrein.extensions.lab.replay import (
    NAMES,
    PRICES,
    CostAccount,
    Rates,
    Recording,
    Row,
    Uses,
    as_json,
    as_table,
    base_name,
    find_uses,
    of_entries,
    read_recording,
    replay_of,
)
from longrein.frontends.stdio import show
from longrein.models import CLEARS
from longrein.store import Reader, find_session

OUTPUT_TOKENS_MAX, OUTPUT_SHARE_MAX = 32_000, 8
"""The budget reserves the usual largest answer of such models, at most this and at most 1 / 8 of
the window.
"""
WORST_WIRE = "openai-responses"
"""The wire on which the engine costs most, as `benchmarks.cells` measures it."""
OWN_WEIGHTS = "own weights"
"""Name of the policy `default` with the weights of a file."""


def simulate(
    place: RunContext,
    words: Sequence[str],
    *,
    policy: str = "",
    prices: str = "anthropic",
    window: int = 200_000,
    wire: str = WORST_WIRE,
    weights: str = "",
    json: bool = False,
) -> int:
    """Print a line for each session and policy. `weights`: a file of `longrein fit`, compared with
    the shipped ones.

    Raises `UsageError` for a file that is no recorded session or holds no weights.
    """
    own, rows = read_weights(weights) if weights else None, list[Row]()
    names: Sequence[str] = NAMES
    if policy or own:
        names = [policy or "default"]
    budget, rates = budget_of(prices, window, wire), PRICES[prices]
    for session in recordings(place.state_dir, words):
        uses = find_uses(session)
        rows += [play(name, session, uses, budget, rates) for name in names]
        if own:
            row = play("default", session, uses, budget, rates, own.without(session.name))
            rows.append(replace(row, policy=OWN_WEIGHTS))
    if json:
        show(as_json(rows))
        return 0
    show(as_table(rows))
    show(f"window {window:,}, prices {prices}, wire {wire}\n")
    if own:
        show(_about(own, {row.session for row in rows}))
    return 0


def play(
    policy: str,
    session: Recording,
    uses: Uses,
    budget: Budget,
    rates: Rates,
    tables: Tables = SHIPPED.tables,
) -> Row:
    """Replay a session under the policy of this name, and return its figures. `tables`: weights
    of `default`.
    """
    use_tables(tables)
    replay = replay_of(policy, session, budget)
    account = CostAccount(policy, session, rates, window=budget.window_tokens, uses=uses)
    for change in replay.changes():
        account.request(change, replay.tokens, replay.summary_tokens)
    return account.row


def budget_of(prices: str, window: int, wire: str = WORST_WIRE) -> Budget:
    """Return the budget of a model with these price ratios; one input token costs a millionth of
    a dollar.
    """
    rates = PRICES[prices]
    price = Price(1.0, rates.output, rates.read, rates.write) if rates.known else None
    output = min(rates.output_tokens_max, OUTPUT_TOKENS_MAX, window // OUTPUT_SHARE_MAX)
    return Budget(window, output, price, clears=CLEARS[wire])


def recordings(state_dir: str, words: Sequence[str]) -> Iterator[Recording]:
    """Yield the sessions that `words` name: files, folders and ids of stored sessions. Raises
    `UsageError`.
    """
    for word in words:
        if os.path.isdir(word):
            names = sorted(n for n in os.listdir(word) if n.endswith((".jsonl", ".jsonl.gz")))
            if not names:
                raise UsageError(
                    f"{word} holds no sessions: no file in it ends with .jsonl or .jsonl.gz"
                )
            yield from (_file(os.path.join(word, name)) for name in names)
        elif os.path.isfile(word):
            yield _file(word)
        else:
            yield _stored(state_dir, word)


def _about(own: Weights, sessions: set[str]) -> str:
    """Return a line that says whether the weights were fitted on the sessions for which the
    table shows them.
    """
    fitted = {name for fold in own.folds for name in fold.without}
    held = len(sessions & fitted)
    return (
        f"{OWN_WEIGHTS}: {own.about}; each of {held} sessions that they were fitted on is shown "
        "with weights that were "
        f"fitted without it, {len(sessions) - held} were not used for the fit\n"
    )


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
