"""Error of the token estimate against the provider's count, after five answered calls.

For each script and each stand-in tokenizer a session of fifteen calls; from the sixth on three
figures are compared with the count of a tokenizer that the engine does not know: the next request's
size as `Asked` estimates it, what came since the last count (all that a session ever has to guess),
and the factor that `/context` shows. Then the same with sessions that mix scripts and change them,
and with providers that leave usage out, say zero or say nonsense.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from lab.context.counting import DIALECTS, WIDE, Dialect
from lab.context.material import KINDS
from lab.context.playing import FEED, Provider, budget_of, feed, play_session, reply
from lab.context.table import Row, print_table
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.store import MemoryDisk
from longrein.tools import builtin_tools
from longrein_context import State, fold
from longrein_context.events import Asked, Entry, Replied, Usage

CALLS = 15
LEARNED = 5  # Calls after which the estimate must be right
REACH = 0.10
REACH_FRESH = 0.30  # Goal for the results of one step, as a single file may differ from all before
Lie = Callable[[Usage], Usage]


@dataclass
class EstimateErrors:
    """Worst errors of one session, as shares, from the sixth call on."""

    name: str
    view: float = 0.0  # Error of the whole request
    fresh: float = 0.0  # Error of the part since the last count, where that is 500 tokens or more
    factor: float = 0.0  # Distance of the shown factor from 1


def session(
    kinds: Sequence[str],
    dialect: Dialect,
    *,
    lie: Lie = lambda usage: usage,
    seed: int = 0,
    calls: int = CALLS,
) -> tuple[list[Entry], dict[int, int]]:
    """Return the log of a session with results of `kinds` in turn, and the true count of each
    request by its number.
    """
    random, disk, made = Random(seed), MemoryDisk(), [0]

    def turn(_: object) -> object:
        made[0] += 1
        if made[0] >= calls:
            return reply("done")
        return reply("I look.", feed(kinds[made[0] % len(kinds)], random.randrange(2_000, 9_000)))

    provider = Provider(budget_of(1_000_000), turn, dialect=dialect, said_usage=lie)
    true: dict[int, int] = {}
    count = provider.counter.request

    def counting(request: object) -> int:
        true[len(true)] = tokens = count(request)
        return tokens

    provider.counter.request = counting
    run_virtual(
        play_session(provider, ["go on"], disk=disk, tools=(*builtin_tools(), FEED)),
        clock=VirtualClock(),
    )
    return disk.entries(), true


def compare_estimates(
    name: str, played: tuple[list[Entry], dict[int, int]], learned: int = LEARNED
) -> EstimateErrors:
    """Compare the estimates of the log after `learned` calls with the true counts."""
    entries, true = played
    found, number, before = EstimateErrors(name), -1, 0
    for entry in entries:
        if isinstance(entry.event, Asked):
            number += 1
            if number >= learned:
                tokens, estimate = true[number], entry.event.estimate_tokens
                found.view = max(found.view, abs(estimate / tokens - 1))
                if tokens - before >= 500:
                    known = fold(entries[: entry.seq - 1]).gauge.counted
                    found.fresh = max(found.fresh, abs((estimate - known) / (tokens - before) - 1))
            before = true[number]
        elif isinstance(entry.event, Replied) and number >= learned:
            found.factor = max(
                found.factor, abs(factor(fold(entries[: entry.seq - 1])) / true[number] - 1)
            )
    return found


def factor(state: State) -> float:
    """Return the sum of the items' estimates, each estimated by itself."""
    gauge = state.gauge
    parts = sum(gauge.tokens_of(item.part) for item in state.items)
    prefix = state.prefix
    assert prefix is not None
    texts = [
        prefix.system,
        *(tool.name + tool.description + str(tool.schema) for tool in prefix.tools),
    ]
    return parts + sum(gauge.tokens_of_text(text) for text in texts)


def worst(rows: Sequence[EstimateErrors], what: str) -> tuple[float, str]:
    """Return the largest figure of that name and its row's name."""
    row = max(rows, key=lambda row: float(getattr(row, what)))
    return float(getattr(row, what)), row.name


def homogeneous() -> list[EstimateErrors]:
    """Play one script per session with each tokenizer."""
    return [
        compare_estimates(f"{kind}, {d.name}", session([kind], d))
        for kind in KINDS
        for d in DIALECTS
    ]


def mixed() -> list[EstimateErrors]:
    """Play several scripts in turn, so that new content never resembles the view; measured once
    each was seen.
    """
    sets = [
        ("prose", "cjk"),
        ("code", "base64"),
        ("json", "cyrillic", "prose"),
        ("code", "log", "cjk", "base64"),
        KINDS,
    ]
    return [
        compare_estimates(
            f"{'+'.join(kinds) if len(kinds) < 5 else 'all'}, {d.name}",
            session(kinds, d, calls=len(kinds) + CALLS),
            max(LEARNED, len(kinds) + 1),
        )
        for kinds in sets
        for d in DIALECTS
    ]


LIES: dict[str, Lie] = {
    "missing": lambda _: Usage(),
    "zero input": lambda usage: Usage(0, 0, 0, usage.output_tokens),
    "a seventh": lambda usage: Usage(0, 0, usage.context_tokens // 7, 1),
    "ten million": lambda _: Usage(10_000_000, 0, 0, 1),
    "the uncached part only": lambda usage: Usage(min(300, usage.context_tokens), 0, 0, 1),
    "now and then nonsense": lambda usage: usage if usage.output_tokens % 3 else Usage(17, 0, 0, 1),
}
"""False usage that a provider may report."""


def false_usage() -> list[EstimateErrors]:
    """Measure the estimate under false usage; without a true count it must stay near the guess."""
    return [
        compare_estimates(f"usage {name}", session(["code", "prose"], WIDE, lie=lie))
        for name, lie in LIES.items()
    ]


def measure() -> list[Row]:
    """Return the rows of the table."""
    plain, several, lies = homogeneous(), mixed(), false_usage()
    rows = []
    for what, of in (
        ("view", "next request"),
        ("fresh", "what came since the last count"),
        ("factor", "sum of items"),
    ):
        for rows_of, name in (
            (plain, f"{len(KINDS)} scripts × {len(DIALECTS)} tokenizers"),
            (several, "mixtures"),
        ):
            error, whose = worst(rows_of, what)
            reach = REACH_FRESH if what == "fresh" else REACH
            rows.append(
                Row(f"estimate after {LEARNED} calls, {of}, {name}: worst error", f"{error:.1%}",
                f"≤ {reach:.0%}",
                    error <= reach, whose)
            )  # fmt: skip
    error, whose = worst(lies, "view")
    rows.append(
        Row(
            "estimate, usage missing, zero or wrong: worst error",
            f"{error:.1%}",
            "≤ 35 %",
            error <= 0.35,
            whose,
        )
    )
    return rows


if __name__ == "__main__":
    if "-v" in sys.argv:
        for row in (*homogeneous(), *mixed(), *false_usage()):
            print(
                f"{row.name:<70} view {row.view:6.1%}  fresh {row.fresh:6.1%}  items "
                f"{row.factor:6.1%}"
            )
    sys.exit(print_table(measure()))
