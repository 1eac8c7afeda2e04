"""Twenty seeds of `simulate`; its docstring says how to run more."""

import pytest

from lab.support.simulate import Simulation, simulate
from tests.seeds import seeds


@pytest.mark.parametrize("first", seeds(20)[::20])
def test_sessions_drawn_from_seeds_keep_the_laws_and_visit_what_those_are_about(first: int) -> None:
    """Twenty seeds; a failure names its own."""
    visited([simulate(seed) for seed in range(first, first + 20)])


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = simulate(3), simulate(3)
    assert first.disk.entries() == second.disk.entries()
    assert first.clock.slept == second.clock.slept


def visited(played: list[Simulation]) -> None:
    """Twenty sessions hold between them each kind of fact and each way to end a life."""
    kinds = {type(entry.event).__name__ for one in played for entry in one.disk.entries()}
    wanted = (
        "Asked Replied AskFailed PermissionAsked PermissionAnswered ToolStarted ToolEnded "
        "Summarized Interrupted"
    )
    assert (
        not {*wanted.split(), "Rewound", "ModeSet", "PrefixSet", "FileChanged", "TodoSet"} - kinds
    )
    lives = [kind for one in played for kind in one.lives]
    assert {"kill", "power", "close"} <= set(lives)
