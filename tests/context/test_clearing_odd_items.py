"""Clearing of items that look like something else: columns of numbers, foreign markers, images,
calls that nothing can hold.
"""

import json

import pytest

from longrein_context.clearing.line_index import TextIndex
from longrein_context.clearing.rewrite import outcome_of
from longrein_context.clearing.text_features import SourceItem, names_by_line
from longrein_context.clearing.timing import plan_shrinking
from longrein_context.events import marker
from tests.context.test_worth import POLICY, Story
from tests.tables import cases

SIGN = "[longrein:a1b2c3"
PROSE = "a long line of some words that nobody will ever look for again, number {}"


def shrunk(story: Story) -> dict[str, str]:
    """Shrink as much as can be; return the new text of each changed item."""
    plan = plan_shrinking(story.worth, POLICY, 1e9)
    assert plan is not None
    plan.take(story.worth)
    return {change.handle: change.text for change in plan.changes}


@pytest.mark.parametrize("every", [5, 10])
def test_calls_after_reminders_do_not_break_the_cache_again_and_again(every: int) -> None:
    def breaks(*, reminders: bool) -> int:
        story = Story()
        for n in range(120):
            text = "\n".join(PROSE.format(f"{n}.{row}") for row in range(12))
            if reminders and n % every == 0:
                story.put("other", "[longrein:a1b2c3 note: something happened]")
            story.step("Write", {"file_path": f"src/file_{n}.py", "content": text}, "ok")
        return story.breaks

    assert breaks(reminders=True) <= 3 * breaks(reminders=False) + 3


@cases(
    "lines numbered",
    ([f"{n}\tdef total_{n}(rows):" for n in range(1, 30)], True),
    ([f"   {n}→def total_{n}(rows):" for n in range(41, 70)], True),
    ([f"{n * n}\tsrc/module_{n}.py" for n in range(1, 30)], False),
    ([f"{40 - n}\tsrc/module_{n}.py" for n in range(30)], False),
    ([f"def total_{n}(rows):" for n in range(1, 30)], False),
)
def test_a_column_of_numbers_is_not_taken_for_line_numbers(
    lines: list[str], *, numbered: bool
) -> None:
    index = TextIndex(lines, bytes(len(lines)), {})
    assert index.numbered == numbered
    if not numbered:
        assert index.sizes == [len(line) + 1 for line in lines]


def test_a_text_that_begins_like_a_marker_of_another_session_is_cut_with_a_handle() -> None:
    story = Story()
    text = "\n".join(["[longrein: my notes on the tool]", *(PROSE.format(n) for n in range(300))])
    piece = SourceItem("r900", "result", text, 9_000, story.worth.now, "Bash", "", "c", sign=SIGN)
    record = story.worth.add(piece)
    assert (record.again, record.header) == (False, "")
    story.ask()
    story.wander(4)
    shown = shrunk(story)["r900"]
    assert shown.startswith(f"{SIGN} cleared: ok, 301 lines")
    assert 'Recall("r900")' in shown


def test_the_outcome_of_a_result_is_not_that_of_the_history_below_it() -> None:
    story = Story()
    built = "\n".join(PROSE.format(n) for n in range(200)) + "\nBuild finished without a complaint"
    below = marker("a1b2c3", "history", "one call after r7")
    text = f"{built}\n{below}\nr9 Bash:\nmake lint\n→ failed, 40 lines, exit code 2: Error: E501"
    story.put("call", "", "Bash", json.dumps({"command": "make all"}), "c1")
    piece = SourceItem("r7", "result", text, 900, story.worth.now, "Bash", "", "c1", sign=SIGN)
    record = story.worth.add(piece)
    outcome = outcome_of(story.worth, record)
    assert outcome.startswith("ok, 201 lines")
    assert "lint" not in outcome
    assert "exit code" not in outcome


def test_a_staircase_of_lines_and_one_huge_line_are_read_without_recursion() -> None:
    stairs = [" " * n + "step" for n in range(4_000)]
    assert len(TextIndex(stairs, bytes(len(stairs)), {}).sizes) == len(stairs)
    [names] = names_by_line(" ".join(f"name_{n}" for n in range(20_000)))
    assert len(names) == 20_000
