"""Seeds of `simulate_tree`; its docstring says how to run more."""

import logging
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from lab.support.simulate_tree import TreeSimulation, simulate
from tests.seeds import seeds

SEEDS = seeds(16)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Silence asyncio about tasks that a simulated kill leaves."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@cache
def checked_tree(seed: int) -> TreeSimulation:
    return simulate(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_R070_R071_R073_I1_to_I12_a_tree_drawn_from_a_seed_keeps_the_laws(seed: int) -> None:
    checked_tree(seed)


def test_the_same_seed_gives_the_same_tree() -> None:
    first, second = checked_tree(5), simulate(5)
    assert logs(first) == logs(second)
    assert first.clock.slept == second.clock.slept


def logs(one: TreeSimulation) -> list[object]:
    return [one.disk.entries(session) for session in ("", *one.disk.children())]


def test_the_trees_visit_what_the_laws_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        seen += checked_tree(seed).seen
    wanted = "subagent task fork kill power close full question"
    assert not {
        *wanted.split(),
        "question of a subagent",
        "report by notice",
        "end by notice",
    } - set(seen), seen
