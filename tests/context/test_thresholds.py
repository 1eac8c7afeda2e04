"""Thresholds of the compaction as settings: they are part of the budget, so the fold does not
know them.
"""

from pathlib import Path

import msgspec
import pytest

from longrein.app.run_context import PREPARE_AHEAD, named_budget, read_run_context
from longrein.options import Options
from longrein_context import (
    COMPACT_SHARE,
    PREPARE_SHARE,
    Budget,
    Digest,
    Nothing,
    Price,
    State,
    decide,
)
from longrein_context.clear_items import policy_for, rates_of
from longrein_context.clearing.needs import NeedsMemory
from longrein_context.decisions import DIGEST_FROM_WINDOWS
from longrein_context.events import SettingsError
from tests.context.log_builder import LogBuilder
from tests.tables import cases

SMALL = Budget(20_000, 2_000)
"""A window without prices: nothing is cleared to save money."""


def conversation(share: float) -> LogBuilder:
    """A conversation of turns that fills about `share` of the usable window of `SMALL`."""
    log = LogBuilder()
    while log.state.view_tokens < share * SMALL.usable_tokens:
        log.user(f"question {log.seq}: what of the {log.seq * 7}th part?")
        log.says(" ".join(f"answer{log.seq}word{n}" for n in range(60)))
    log.user("and now?")
    return log


@pytest.mark.parametrize("compact", [0.60, 0.75, COMPACT_SHARE])
def test_the_view_shrinks_from_the_named_share_on(compact: float) -> None:
    budget = msgspec.structs.replace(
        SMALL, prepare_share=compact - PREPARE_AHEAD, compact_share=compact
    )
    below, above = conversation(compact - 0.06), conversation(compact + 0.01)
    assert isinstance(decide(below.state, budget), Nothing)
    assert not isinstance(decide(above.state, budget), Nothing)


def test_a_view_of_many_windows_is_digested() -> None:
    """As after an import. Clearing, which weighs each line, is for smaller views."""
    assert isinstance(decide(conversation(DIGEST_FROM_WINDOWS + 0.5).state, SMALL), Digest)


def budget_of(folder: Path, lines: str, patch: pytest.MonkeyPatch) -> Budget:
    config = folder / ".config/longrein/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'model = "anthropic/claude-sonnet-4-5"\n[context]\n{lines}\n')
    for name, value in (
        ("HOME", str(folder)),
        ("ANTHROPIC_API_KEY", "k"),
        ("LONGREIN_STATE_DIR", f"{folder}/s"),
    ):
        patch.setenv(name, value)
    patch.delenv("XDG_CONFIG_HOME", raising=False)
    return named_budget(
        read_run_context(Options(), folder=str(folder)), "anthropic/claude-sonnet-4-5"
    )


@cases(
    "lines shares",
    ("", (PREPARE_SHARE, COMPACT_SHARE)),
    ("prepare_at = 50\ncompact_at = 70", (0.5, 0.7)),
    ("compact_at = 60", (0.6 - PREPARE_AHEAD, 0.6)),  # the one stays below the other
)
def test_the_settings_become_part_of_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, shares: tuple[float, float]
) -> None:
    budget = budget_of(tmp_path, lines, monkeypatch)
    assert (budget.prepare_share, budget.compact_share) == pytest.approx(shares)


@cases("line visibility", ("", 1.0), ("visibility = 3", 3.0), ("visibility = 0.25", 0.25))
def test_visibility_is_part_of_the_budget_and_of_the_price_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, visibility: float
) -> None:
    budget = budget_of(tmp_path, line, monkeypatch)
    assert budget.visibility == visibility
    usual, dear = (
        policy_for(State(), one)
        for one in (msgspec.structs.replace(budget, visibility=1.0), budget)
    )
    price = dear.price(NeedsMemory())
    assert price.line == pytest.approx(visibility * usual.price(NeedsMemory()).line)
    assert price.keep == usual.price(NeedsMemory()).keep


@pytest.mark.parametrize("line", ["compact_at = 99", "compact_at = 20", "prepare_at = 3"])
def test_a_share_that_is_unsafe_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    with pytest.raises(
        SettingsError,
        match=r"config\.toml:3: context\.\w+ must be a whole number of \d+ to \d+, not",
    ):
        budget_of(tmp_path, line, monkeypatch)


@cases(
    "price is_local read",
    (None, False, 0.1),
    (None, True, 0.0),
    (Price(0.0, 0.0), False, 0.0),
    (Price(0.0, 8.0, 0.5), False, 0.1),
    (Price(2.0, 8.0, 0.5), False, 0.25),
    (Price(2.0, 8.0), True, 0.1),
)
def test_cache_reads_are_free_where_none_are_charged(
    price: Price | None, is_local: bool, read: float
) -> None:
    budget = Budget(100_000, 4_000, price, is_local=is_local)
    assert (budget.read_share, rates_of(budget).read) == (read, read)
