"""Rows A1 to A19 and D8 in the default profile, as far as it differs from the founding documents.

A5, A7, A12 and A15 to A17 are tested in tests/context (estimates, needles, bad input), A8 as law 2.
"""

import pytest

from longrein.models import Reply
from longrein_context import Budget, Price, Request, fold
from longrein_context.events import Asked, Cleared, Summarized, ToolEnded, TurnEnded, text_of
from tests.seed.harness import (
    PROSE,
    AnsweringModel,
    SessionResult,
    call,
    play,
    prints,
    said,
    says,
    sizes,
)

pytestmark = pytest.mark.anyio

SMALL = Budget(16_000, 2_000, Price(3, 15, 0.3, 3.75))


async def printing(count: int) -> SessionResult:
    """`count` steps that each print 3,000 characters in a window of 16k."""

    def answer(n: int, request: Request) -> Reply:
        return (
            says(call("Print", chars=3_000, mark=f"line {n} of the output\n"))
            if n < count
            else says("done")
        )

    return await play(model=AnsweringModel(answer, SMALL), profile="default")


def whole_before(played: SessionResult) -> None:
    """Unless something was cleared or summarised in between, a request begins with all of the
    one before.
    """
    broke = {e.seq for e in played.disk.entries() if isinstance(e.event, Cleared | Summarized)}
    asked = [
        e.seq
        for e in played.disk.entries()
        if isinstance(e.event, Asked) and e.event.purpose == "turn"
    ]
    for (seq, old), (later, new) in zip(
        zip(asked, played.requests, strict=True),
        list(zip(asked, played.requests, strict=True))[1:],
        strict=False,
    ):
        if not any(seq < one < later for one in broke):
            assert new.items[: len(old.items)] == old.items


async def test_A1_nothing_is_cleared_where_it_does_not_pay_and_the_prefix_stands() -> None:
    played = await play(*[prints(500)] * 6, says("done"), profile="default")
    assert sizes(played.last) == [500] * 6
    assert not played.events(Cleared)
    whole_before(played)


async def test_A1_under_pressure_it_clears_in_batches_and_not_each_turn() -> None:
    played = await printing(60)
    breaks = played.events(Cleared) + played.events(Summarized)
    assert 1 <= len(breaks) <= 20
    whole_before(played)


async def test_A2_eight_results_of_one_step_all_reach_the_model() -> None:
    played = await play(prints(*[500] * 8), says("done"), profile="default")
    assert sizes(played.requests[1]) == [500] * 8


async def test_A3_what_stands_for_results_is_shorter() -> None:
    def answer(n: int, request: Request) -> Reply:
        both = (
            call("Print", chars=120, mark=f"small {n} "),
            call("Print", chars=3_000, mark=f"large {n}\n"),
        )
        return says(*both) if n < 14 else says("done")

    played = await play(model=AnsweringModel(answer, SMALL), profile="default")
    whole = {
        f"r{e.seq}": text_of(e.event.parts)
        for e in played.disk.entries()
        if isinstance(e.event, ToolEnded)
    }
    cleared = played.events(Cleared)
    assert cleared
    for event in cleared:  # one of them lists others, which leave with their calls
        forms = [form for form in event.forms if form.handle in whole]
        assert sum(len(form.text) for form in forms) < sum(
            len(whole[form.handle]) for form in forms
        )


async def test_A6_a_window_of_200k_is_not_compacted_at_50k_and_one_of_50k_is() -> None:
    def answer(n: int, request: Request) -> Reply:
        return says("noted")

    words = tuple(f"part {n}: " + " ".join(f"w{n * m}" for m in range(4_000)) for n in range(12))
    wide = AnsweringModel(answer, Budget(200_000, 8_000, Price(3, 15)))
    played = await play(model=wide, words=words, profile="default")
    assert fold(played.disk.entries()).view_tokens > 50_000
    assert not played.events(Cleared) + played.events(Summarized)
    narrow = await play(
        model=AnsweringModel(answer, Budget(50_000, 8_000, Price(3, 15))),
        words=words,
        profile="default",
    )
    assert narrow.events(Summarized)
    assert fold(narrow.disk.entries()).view_tokens < 42_000


async def test_A10_the_model_compacts_after_the_batch_and_the_turn_goes_on() -> None:
    batch = says(
        call("Print", chars=200), call("Compact", focus="the names"), call("Print", chars=300)
    )
    played = await play(batch, says(PROSE), says("done"), profile="default")
    assert [event.status for event in played.events(ToolEnded)] == ["ok"] * 3
    assert played.story.endswith("Summarized Asked Replied TurnEnded")
    assert "the names" in said(played.summaries[0])[-1]


async def test_A11_what_is_shortened_is_shortened_before_the_request_and_in_one_go() -> None:
    played = await printing(40)
    names = played.story.split()
    for at, name in enumerate(names):
        if name == "Cleared":
            assert names[at + 1] in ("Asked", "Cleared", "Summarized"), names[at - 2 : at + 3]
    assert names.count("TurnEnded") == 1


async def test_A19_D8_file_after_file_in_a_window_of_16k_and_the_peak_is_flat() -> None:
    files = {
        f"/w/f{n}.txt": f"the secret of file {n} is {n * 7919}\n" + f"filler {n}\n" * 60
        for n in range(100)
    }

    def answer(n: int, request: Request) -> Reply:
        return says(call("Read", file_path=f"f{n % 100}.txt")) if n < 100 else says("read them all")

    played = await play(
        model=AnsweringModel(answer, SMALL),
        profile="default",
        files=files,
        words=("read every file",),
    )
    peaks = [event.estimate_tokens for event in played.events(Asked)]
    assert max(peaks) <= SMALL.window_tokens
    assert max(peaks[50:]) <= 1.3 * max(peaks[20:50]), "flat"
    assert played.events(TurnEnded) == [TurnEnded("done")]
