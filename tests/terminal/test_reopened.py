"""A long session that is opened again: only its end is heard anew, and the scene is as if all had been."""

import pytest

from longrein.context import fold
from longrein.frontends.terminal.view_model import Scene
from tests.context.random_session import RandomSession


def heard(walk: RandomSession, scene: Scene, after: int) -> Scene:
    for entry in walk.entries[after:]:
        scene.hear(entry, 0.0)
    scene.catch_up(busy=False, now_s=0.0)
    return scene


@pytest.mark.parametrize("seed", range(6))
def test_the_scene_of_a_long_session_is_taken_from_its_fold(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longrein.frontends.terminal.view_model.REPLAYED_MAX", 60)
    walk = RandomSession(seed).run(150)
    whole, late = heard(walk, Scene(), 0), Scene()
    skipped = late.resume(fold(walk.entries))
    assert skipped == len(walk.entries) - 60
    heard(walk, late, skipped)
    assert [prompt.seq for prompt in late.prompts] == [prompt.seq for prompt in whole.prompts]
    assert list(late.beside.tasks) == list(whole.beside.tasks)
    assert list(late.beside.workers) == list(whole.beside.workers)
    assert list(late.calls) == list(whole.calls)
    assert late.questions == whole.questions
    assert (late.phase, late.steps) == (whole.phase, whole.steps)


def test_all_of_a_short_session_is_heard_again() -> None:
    walk = RandomSession(1).run(20)
    scene = Scene()
    assert scene.resume(fold(walk.entries)) == 0
    assert (scene.prompts, scene.beside.tasks) == ([], {})
