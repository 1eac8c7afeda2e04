"""The measures of the terminal, without a verdict by time."""

import asyncio

import pytest
from prompt_toolkit.data_structures import Size

from lab.terminal import RESIZES, frame_costs, resize_costs, wrong_widths


def test_500_resizes_of_a_streaming_answer_lose_no_word() -> None:
    costs, lost = asyncio.run(resize_costs())
    assert (len(costs), lost) == (RESIZES, 0)


def test_widths_of_characters_are_those_that_the_screen_counts() -> None:
    assert wrong_widths() == []


@pytest.mark.parametrize("size", [Size(rows=8, columns=24), Size(rows=60, columns=200)])
def test_frames_are_drawn_at_any_size(size: Size) -> None:
    assert len(asyncio.run(frame_costs(500, 1.0, size))) == 10
