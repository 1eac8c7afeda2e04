"""Cost of recorded or stored sessions under other context policies.

    python -m lab.simulate SESSION... [--policy NAME] [--prices NAME] [--window N] [--wire NAME]
                           [--weights FILE] [--json] [--state-dir FOLDER]

A session is a file, a folder or an id. Window, prices and wire are those of the session where it
is one of longrein; its first line then says what was paid, as `longrein inspect` shows it.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from msgspec.structs import replace

from lab.replay import (
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
from longrein.app.run_context import named_budget, read_run_context
from longrein.config.clearing_weights import Tables, Weights, read_weights
from longrein.extensions.inspector.model_requests import requests_of
from longrein.frontends.stdio import say, show
from longrein.models import CLEARS
from longrein.options import Options
from longrein.store import Reader, find_session
from longrein_context import Budget, Price, use_tables
from longrein_context.clearing.weights import TABLES
from longrein_context.events import Entry, LongreinError, PrefixSet, UsageError, decode_entry

OUTPUT_TOKENS_MAX, OUTPUT_SHARE_MAX = 32_000, 8
"""The budget reserves the usual largest answer of such models, at most this and at most 1 / 8 of
the window.
"""
WORST_WIRE = "openai-responses"
"""The wire on which the engine costs most, as `lab.cells` measures it."""
SESSIONS = "files, folders or ids of sessions"
STATE_DIR = "folder of the stored sessions, where ids are given"
OWN_FACTS = "in place of the session's own"
PAID = "paid"
"""Name of the row of a session as it was."""
OWN_WEIGHTS = "own weights"
"""Name of the policy `default` with the weights of a file."""


def simulate(
    state_dir: str,
    words: Sequence[str],
    *,
    policy: str = "",
    prices: str = "",
    window: int = 0,
    wire: str = "",
    weights: str = "",
    json: bool = False,
) -> int:
    """Print a line for each session and policy. `prices`, `window` and `wire` stand for those of
    the sessions. `weights`: a file of `lab.fit`, compared with the shipped ones.

    Raises `UsageError` for a file that is no recorded session or holds no weights.
    """
    own, rows = read_weights(weights) if weights else None, list[Row]()
    names: Sequence[str] = NAMES
    if policy or own:
        names = [policy or "default"]
    told: dict[str, None] = {}
    for session, entries in recordings(state_dir, words):
        prefix = next((e.event for e in reversed(entries) if isinstance(e.event, PrefixSet)), None)
        budget, rates, about = facts_of(prefix, prices, window, wire)
        told[about] = None
        if prefix is not None:
            rows.append(paid(session.name, entries, budget))
        uses = find_uses(session)
        rows += [play(name, session, uses, budget, rates) for name in names]
        if own:
            row = play("default", session, uses, budget, rates, own.without(session.name))
            rows.append(replace(row, policy=OWN_WEIGHTS))
    if json:
        show(as_json(rows))
        return 0
    show(as_table(rows))
    show("".join(f"{about}\n" for about in told))
    if own:
        show(_about(own, {row.session for row in rows}))
    return 0


def facts_of(
    prefix: PrefixSet | None, prices: str, window: int, wire: str
) -> tuple[Budget, Rates, str]:
    """Return budget and rates of a session, and a line that names them: those that are given, else
    those of the model of its last `prefix`, as the inspector takes them.
    """
    if prefix is None:
        prices, window, wire = prices or "anthropic", window or 200_000, wire or WORST_WIRE
        told = f"window {window:,}, prices {prices}, wire {wire}"
        return budget_of(prices, window, wire), PRICES[prices], told
    model = f"{prefix.provider}/{prefix.model}"
    own = named_budget(read_run_context(Options()), model)
    chosen = budget_of(prices or "unknown", window or own.window_tokens, wire or WORST_WIRE)
    budget = replace(
        own,
        window_tokens=chosen.window_tokens,
        price=chosen.price if prices else own.price,
        clears=chosen.clears if wire else own.clears,
    )
    told = f"window {budget.window_tokens:,}, prices {prices or model}, wire {wire or prefix.wire}"
    return budget, PRICES[prices] if prices else rates_of(own), told


def rates_of(budget: Budget) -> Rates:
    """Return the price ratios of a model."""
    price = budget.price
    if price is None or price.input <= 0:
        return PRICES["local" if budget.reads_free else "unknown"]
    read, written = price.read_usd / price.input, price.write_usd / price.input
    return Rates(read, written, price.output / price.input)


def paid(name: str, entries: Sequence[Entry], budget: Budget) -> Row:
    """Return the figures of a session of longrein as it was, from the requests that the inspector
    shows.
    """
    requests = requests_of(entries, lambda _: budget)
    sent = [one.input + one.cache_read + one.cache_write for one in requests]
    return Row(
        PAID,
        name,
        len(requests),
        cache_read=sum(one.cache_read for one in requests),
        carried=sum(sent),
        breaks=sum(one.break_ is not None for one in requests),
        peak=max(sent, default=0),
    )


def play(
    policy: str,
    session: Recording,
    uses: Uses,
    budget: Budget,
    rates: Rates,
    tables: Tables = TABLES,
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


def recordings(state_dir: str, words: Sequence[str]) -> Iterator[tuple[Recording, Sequence[Entry]]]:
    """Yield the sessions that `words` name: files, folders and ids of stored sessions; with their
    entries where they are sessions of longrein. Raises `UsageError`.
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


def _file(path: str) -> tuple[Recording, Sequence[Entry]]:
    """Read a recorded session in the neutral format, or one written by `longrein export`."""
    with open(path, "rb") as file:
        data = file.read()
    if not data.startswith(b'{"seq":'):
        return read_recording(path, data), ()
    try:
        entries = [decode_entry(line) for line in data.splitlines()]
    except ValueError as error:
        raise UsageError(f"{path} is no exported session: {error}") from error
    return of_entries(base_name(path), entries), entries


def _stored(state_dir: str, session: str) -> tuple[Recording, Sequence[Entry]]:
    found = find_session(state_dir, session)
    with closing(Reader(state_dir, found)) as reader:
        entries = list(reader.entries())
    return of_entries(found, entries), entries


def run(state_dir: str | None, work: Callable[[str], int]) -> int:
    """Do `work` with the folder of the sessions; tell an error in one line. Return the code."""
    try:
        return work(state_dir or read_run_context(Options()).state_dir)
    except LongreinError as error:
        say(str(error))
        return 2


def main(words: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.simulate", description="Replay sessions.")
    parser.add_argument("sessions", nargs="+", help=SESSIONS)
    about = "a context policy; without it all"
    parser.add_argument("--policy", default="", choices=("", *NAMES), help=about)
    parser.add_argument("--prices", default="", choices=tuple(PRICES), help=OWN_FACTS)
    parser.add_argument("--window", type=int, default=0, help=f"tokens; {OWN_FACTS}")
    parser.add_argument("--wire", default="", choices=tuple(CLEARS), help=OWN_FACTS)
    parser.add_argument("--weights", default="", help="file of lab.fit, beside the shipped weights")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--state-dir", help=STATE_DIR)
    given = vars(parser.parse_args(words))
    sessions, state_dir = given.pop("sessions"), given.pop("state_dir")
    return run(state_dir, lambda folder: simulate(folder, sessions, **given))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
