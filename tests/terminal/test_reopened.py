"""Replay of a long session: reading only its end gives the same view as reading all."""

import pytest

from longrein.frontends.terminal.view_model import ViewModel
from longrein_context import fold
from longrein_context.events import SCHEMA_VERSION, Entry, Opened, Text, UserSpoke
from tests.context.random_session import RandomSession


def heard(walk: RandomSession, view: ViewModel, after: int) -> ViewModel:
    for entry in walk.entries[after:]:
        view.apply(entry, 0.0)
    view.go_live(busy=False, now_s=0.0)
    return view


@pytest.mark.parametrize("seed", range(6))
def test_the_scene_of_a_long_session_is_taken_from_its_fold(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longrein.frontends.terminal.view_model.REPLAYED_MAX", 60)
    walk = RandomSession(seed).run(150)
    whole, late = heard(walk, ViewModel(), 0), ViewModel()
    skipped = late.resume(fold(walk.entries))
    assert skipped == len(walk.entries) - 60
    heard(walk, late, skipped)
    assert [prompt.seq for prompt in late.prompts] == [prompt.seq for prompt in whole.prompts]
    assert list(late.activity.tasks) == list(whole.activity.tasks)
    assert list(late.activity.subagents) == list(whole.activity.subagents)
    assert list(late.calls) == list(whole.calls)
    assert late.questions == whole.questions
    assert late.phase == whole.phase
    if whole.prompts and whole.prompts[-1].seq > skipped:
        assert late.steps == whole.steps, (
            "the steps since the user's last prompt, where that is heard again"
        )


def test_all_of_a_short_session_is_heard_again() -> None:
    walk = RandomSession(1).run(20)
    view = ViewModel()
    assert view.resume(fold(walk.entries)) == 0
    assert (view.prompts, view.activity.tasks) == ([], {})


def test_a_steering_message_right_after_what_is_skipped_is_no_prompt() -> None:
    opened = Entry(1, 1, Opened(SCHEMA_VERSION, "s", "n0nce", ("/w",), "/w"))
    spoken = [Entry(at, at, UserSpoke((Text(f"m{at}"),), "steer")) for at in range(2, 9000)]
    view = ViewModel()
    skipped = view.resume(fold([opened, *spoken]))
    assert skipped > 0
    view.apply(spoken[-1], 0.0)
    assert view.prompts == []
