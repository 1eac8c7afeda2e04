"""A slice of the campaign: seeds of `simulate`, each a whole session of several lives. More: see its docstring."""

import pytest

from tests.testing.simulate import simulate

SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_session_drawn_from_a_seed_keeps_the_laws(seed: int) -> None:
    simulate(seed)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = simulate(3), simulate(3)
    assert first.disk.entries() == second.disk.entries()
    assert first.clock.slept == second.clock.slept


def test_the_sessions_visit_what_the_laws_are_about() -> None:
    played = [simulate(seed) for seed in range(16)]
    kinds = {type(entry.event).__name__ for one in played for entry in one.disk.entries()}
    wanted = "Asked Replied AskFailed PermissionAsked PermissionAnswered ToolStarted ToolEnded Summarized Interrupted"
    assert not {*wanted.split(), "Rewound", "ModeSet", "PrefixSet", "FileChanged", "TodoSet"} - kinds
    lives = [kind for one in played for kind in one.lives]
    assert {"kill", "power", "close"} <= set(lives)
