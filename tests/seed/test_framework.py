"""C1 to C5: the documents' compaction where a framework owns the tool loop, as the profile
`seed-framework`.
"""

from collections.abc import Sequence

import pytest

from longrein.agent import InboxMessage, Rewind
from longrein.testing.scripted_model import Step
from longrein.testing.store import MemoryDisk
from longrein_context import Budget, Request
from longrein_context.events import Summarized, TurnEnded, UserSpoke
from longrein_context.seed_policy import INPUT_CHARS_MAX
from longrein_context.state.state import FRAMEWORK_PROFILE
from tests.seed.harness import ROOMY, SessionResult, call, play, said, says
from tests.tables import split_words

pytestmark = pytest.mark.anyio


async def framed(
    *steps: Step, words: Sequence[str | InboxMessage] = ("one",), budget: Budget = ROOMY
) -> SessionResult:
    return await play(*steps, words=words, profile=FRAMEWORK_PROFILE, budget=budget)


def shown_turns(request: Request) -> list[str]:
    """Return the earlier turns in the system prompt."""
    _, _, shown = request.prefix.system.partition("\n\n<conversation-context>\n")
    return shown.removesuffix("\n</conversation-context>").split("\n") if shown else []


async def test_C2_C3_profile_shows_six_cut_turns_in_the_system_prompt_and_no_call_of_them() -> None:
    steps = [
        says("let me look", call("Print", chars=900)),
        says("a" * 600),
        says("b"),
        says("c"),
        says("d"),
    ]
    played = await framed(*steps, words=("one", "two", "three", "four"))
    assert [shown_turns(request) for request in played.requests] == [
        ["[user]: one"],
        ["[user]: one"],
        ["[user]: one", "[assistant]: " + "a" * 500, "[user]: two"],
        [
            "[user]: one",
            "[assistant]: " + "a" * 500,
            "[user]: two",
            "[assistant]: b",
            "[user]: three",
        ],
        [
            "[assistant]: " + "a" * 500,
            "[user]: two",
            "[assistant]: b",
            "[user]: three",
            "[assistant]: c",
            "[user]: four",
        ],
    ], "the present message stands there too and so is sent twice, as in the text"
    assert [item.kind for item in played.requests[1].items] == split_words(
        "context user text call result"
    )
    assert [item.kind for item in played.last.items] == ["context", "user"]
    assert said(played.last)[-1] == "four"
    assert not played.summaries


async def test_C1_C4_C5_the_profile_compacts_between_turns_and_drops_the_focus() -> None:
    wish = says(call("Compact", focus="the names"))
    played = await framed(says("a" * 200_100), says("S" * 900), says("b"), wish, says("c"),
        says("T"), says("d"),
                          words=("one", "two", "three", "four"))  # fmt: skip
    first, second = (said(request)[-1] for request in played.summaries)
    assert first.startswith(
        "Summarize this conversation for continuity. Include: 1) what was accomplished"
    )
    assert first.endswith(
        "\n\nuser: one\nassistant: " + "a" * (INPUT_CHARS_MAX - len("user: one\nassistant: "))
    )
    assert "the names" not in second
    assert second.endswith("user: three\nassistant: c"), (
        "the wish of the model is carried out after its answer"
    )
    summarised = [
        e.seq for e in played.disk.entries() if getattr(e.event, "purpose", "") == "summary"
    ]
    spoken = [e.seq for e in played.disk.entries() if isinstance(e.event, UserSpoke)]
    assert summarised[-1] < spoken[-1]
    head = "[system]: [Conversation compressed. Transcript: .transcripts/transcript_"
    assert shown_turns(played.requests[1])[0].startswith(head)
    assert sum(turn.count("S") for turn in shown_turns(played.requests[1])) < 500, (
        "500 characters, the path among them"
    )
    assert shown_turns(played.last)[-1] == "[user]: four"


async def test_C1_a_long_turn_of_the_profile_is_not_touched_until_the_window_is_full() -> None:
    small = Budget(30_000, 2_000)
    prints_much = [says(call("Print", chars=9_000, mark="to be ")) for _ in range(9)]
    played = await framed(*prints_much, says("done"), budget=small)
    kinds = {event.reason for event in played.events(Summarized)}
    assert kinds <= {"overflow"}
    assert played.events(TurnEnded) == [TurnEnded("done")]


async def test_the_profile_goes_on_after_a_resume_and_a_rewind() -> None:
    disk = MemoryDisk()
    for n, word in enumerate(("one", "two", "three")):
        played = await play(says("abc"[n]), words=(word,), profile=FRAMEWORK_PROFILE, disk=disk)
    assert shown_turns(played.last) == [
        "[user]: one",
        "[assistant]: a",
        "[user]: two",
        "[assistant]: b",
        "[user]: three",
    ]
    to = next(entry.seq for entry in disk.entries() if isinstance(entry.event, TurnEnded))
    played = await play(says("d"), words=(Rewind(to), "four"), profile=FRAMEWORK_PROFILE, disk=disk)
    assert shown_turns(played.last) == ["[user]: one", "[assistant]: a", "[user]: four"]
