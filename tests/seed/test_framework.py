"""C1 to C6: the documents' compaction where a framework owns the tool loop, and what longrein does in its place.

The first part plays that text literally, with its own functions under a loop of a few lines, the second as the profile
`seed-framework`. The third is the default profile in the same places.
"""

from collections.abc import Sequence

import pytest

from longrein.agent import Compact, InboxMessage, Rewind
from longrein.context import Budget, Price, Request, fold
from longrein.context.seed_policy import (
    COMPACT_ANSWER,
    TextTurn,
    compacted_turns,
    context_summary,
    is_due,
    summary_request,
    system_with,
    text_turns,
)
from longrein.context.seed_policy import TEXT_INPUT_CHARS_MAX as INPUT_CHARS_MAX
from longrein.context.state.state import FRAMEWORK_PROFILE
from longrein.events import Summarized, ToolCall, ToolEnded, TurnEnded
from longrein.testing.scripted_model import Step
from longrein.testing.store import MemoryDisk
from longrein.tools import builtin_tools
from tests.seed.harness import ROOMY, SessionResult, call, play, prints, results, said, says

pytestmark = pytest.mark.anyio


class Framework:
    """A loop that is not ours: one request for each user message, tools inside of it and out of sight."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []  # (system, user) of each request
        self.turns: list[TextTurn] = []
        self.wanted = False

    def _ask(self, system: str, user: str) -> str:
        self.asked.append((system, user))
        return self.answers.pop(0)

    def say(self, words: str) -> None:
        if is_due(self.turns, self.wanted):
            self.turns = compacted_turns(self._ask("", summary_request(self.turns)), "transcript_1.jsonl")
            self.wanted = False
        answer = self._ask(system_with("Be good.", self.turns), words)
        self.turns += [("user", words), ("assistant", answer)]

    def compact_tool(self, focus: str = "") -> str:
        self.wanted = True
        return COMPACT_ANSWER


# --- the text, literally -----------------------------------------------------------------------------------------


def test_C1_the_check_comes_before_each_user_message_and_nowhere_else() -> None:
    framework = Framework("a" * 100_000, "b" * 100_100, "A SUMMARY", "c")
    for words in ("one", "two", "three"):
        framework.say(words)
    assert [user[:9] for _, user in framework.asked] == ["one", "two", "Summarize", "three"]


async def test_C2_the_history_is_text_of_the_user_and_the_model() -> None:
    played = await play(says("let me look", call("Print", chars=9)), says("nine"), words=("print it",))
    assert text_turns(fold(played.disk.entries())) == [
        ("user", "print it"),
        ("assistant", "let me look"),
        ("assistant", "nine"),
    ]


def test_C3_the_last_six_turns_cut_to_500_stand_in_the_system_prompt() -> None:
    turns = [("user" if n % 2 == 0 else "assistant", f"{n}" * 600) for n in range(8)]
    shown = context_summary(turns)
    lines = shown.splitlines()
    assert lines[0] == "<conversation-context>"
    assert lines[-1] == "</conversation-context>"
    assert lines[1:-1] == [f"{turns[n][0]}: " + f"{n}" * 500 for n in range(2, 8)]
    assert system_with("Be good.", turns) == f"Be good.\n\n{shown}"
    assert system_with("Be good.", []) == "Be good."


def test_C3_of_a_summary_too_only_500_characters_are_seen_its_path_among_them() -> None:
    framework = Framework("a" * 200_100, "S" * 2_000, "b")
    framework.say("one")
    framework.say("two")
    system = framework.asked[-1][0]
    assert system.count("S") == 500 - len("[Conversation compressed. Transcript: transcript_1.jsonl]\n\n")


def test_C4_one_request_with_three_points_and_80_000_characters() -> None:
    asked = summary_request([("user", "u" * 100), ("assistant", "a" * 100_000)])
    head, body = asked.split("\n\n", 1)
    assert [point in head for point in ("1) what was accomplished", "2) the current state", "3) key decisions")]
    assert len(body) == INPUT_CHARS_MAX
    assert body.startswith("user: uuu")
    assert "\nassistant: aaa" in body


def test_C4_the_history_becomes_one_turn_of_role_system() -> None:
    assert compacted_turns("A SUMMARY", "transcript_1700.jsonl") == [
        ("system", "[Conversation compressed. Transcript: transcript_1700.jsonl]\n\nA SUMMARY")
    ]


def test_C5_the_tool_sets_a_flag_and_its_focus_goes_nowhere() -> None:
    framework = Framework("a", "A SUMMARY", "b", "c")
    framework.say("one")
    assert framework.compact_tool("the names").startswith("Compression triggered")
    framework.say("two")
    assert "the names" not in framework.asked[1][1]
    framework.say("three")
    assert len(framework.asked) == 4, "the text never takes the flag back and compacts each turn; this loop does"


def test_C6_the_text_has_the_same_five_tools() -> None:
    """bash, read_file, write_file, edit_file and compact, by the names that longrein gives them."""
    assert {"Bash", "Read", "Write", "Edit", "Compact"} <= {tool.spec.name for tool in builtin_tools()}


# --- the same as a profile ---------------------------------------------------------------------------------------


async def framed(*steps: Step, words: Sequence[str | InboxMessage] = ("one",), budget: Budget = ROOMY) -> SessionResult:
    return await play(*steps, words=words, profile=FRAMEWORK_PROFILE, budget=budget)


def shown_turns(request: Request) -> list[str]:
    """Return the earlier turns in the system prompt."""
    _, _, shown = request.prefix.system.partition("\n\n<conversation-context>\n")
    return shown.removesuffix("\n</conversation-context>").split("\n") if shown else []


async def test_C2_C3_the_profile_shows_six_cut_turns_in_the_system_prompt_and_no_call_of_them() -> None:
    steps = [says("let me look", call("Print", chars=900)), says("a" * 600), says("b"), says("c"), says("d")]
    played = await framed(*steps, words=("one", "two", "three", "four"))
    assert [shown_turns(request) for request in played.requests] == [
        [],
        [],
        ["user: one", "assistant: " + "a" * 500, "user: two"],
        ["user: one", "assistant: " + "a" * 500, "user: two", "assistant: b", "user: three"],
        ["assistant: " + "a" * 500, "user: two", "assistant: b", "user: three", "assistant: c", "user: four"],
    ], "the present message stands there too and so is sent twice, as in the text"
    assert [item.kind for item in played.requests[1].items] == ["context", "user", "text", "call", "result"]
    assert [item.kind for item in played.last.items] == ["context", "user"]
    assert said(played.last)[-1] == "four"
    assert not played.summaries


async def test_C1_C4_C5_the_profile_compacts_before_a_users_message_and_drops_the_focus() -> None:
    wish = says(call("Compact", focus="the names"))
    played = await framed(says("a" * 200_100), says("S" * 900), says("b"), wish, says("c"), says("T"), says("d"),
                          words=("one", "two", "three", "four"))  # fmt: skip
    first, second = (said(request)[-1] for request in played.summaries)
    assert first.startswith("Summarize this conversation for continuity. Include: 1) what was accomplished")
    assert first.endswith("\n\nuser: one\nassistant: " + "a" * (INPUT_CHARS_MAX - len("user: one\nassistant: ")))
    assert "the names" not in second
    assert second.endswith("user: three\nassistant: c"), "the wish of the model waits for the next message"
    head = "system: [Conversation compressed. Transcript: longrein export "
    assert shown_turns(played.requests[1])[0].startswith(head)
    assert sum(turn.count("S") for turn in shown_turns(played.requests[1])) < 500, "500 characters, the path among them"
    assert shown_turns(played.last)[-1] == "user: four"


async def test_C1_a_long_turn_of_the_profile_is_not_touched_until_the_window_is_full() -> None:
    small = Budget(30_000, 2_000)
    prints_much = [says(call("Print", chars=9_000, mark="to be ")) for _ in range(9)]
    played = await framed(*prints_much, says("done"), budget=small)
    kinds = {event.reason for event in played.events(Summarized)}  # type: ignore[attr-defined]
    assert kinds <= {"overflow"}
    assert played.events(TurnEnded) == [TurnEnded("done")]


async def test_the_profile_goes_on_after_a_resume_and_a_rewind() -> None:
    disk = MemoryDisk()
    for n, word in enumerate(("one", "two", "three")):
        played = await play(says("abc"[n]), words=(word,), profile=FRAMEWORK_PROFILE, disk=disk)
    assert shown_turns(played.last) == ["user: one", "assistant: a", "user: two", "assistant: b", "user: three"]
    to = next(entry.seq for entry in disk.entries() if isinstance(entry.event, TurnEnded))
    played = await play(says("d"), words=(Rewind(to), "four"), profile=FRAMEWORK_PROFILE, disk=disk)
    assert shown_turns(played.last) == ["user: one", "assistant: a", "user: four"]


# --- the default profile -----------------------------------------------------------------------------------------


async def test_C1_a_turn_of_forty_calls_never_overflows() -> None:
    small = Budget(16_000, 2_000, Price(3, 15))
    played = await play(*_long_turn(40), says("done"), profile="default", budget=small)
    assert played.events(TurnEnded) == [TurnEnded("done")]


def _long_turn(steps: int) -> list[Step]:
    """Model with so many calls and a reply to every summary request."""

    def step(n: int) -> Step:
        return lambda request: says("1. Request: go") if request.purpose == "summary" else says(_print(n))

    return [step(n) for n in range(steps)]


def _print(n: int) -> ToolCall:
    return call("Print", chars=3_000, mark=f"line {n} of the output\n")


async def test_C2_calls_and_results_are_in_the_log_and_in_the_view() -> None:
    played = await play(prints(300), says("done"), profile="default")
    assert len(played.events(ToolEnded)) == 1
    assert [item.kind for item in played.last.items] == ["context", "user", "call", "result"]


async def test_C3_a_summary_is_seen_whole_and_the_system_text_never_changes() -> None:
    prose = "1. Request and intent: " + "The names matter. " * 60
    played = await play(
        prints(300), says("hi"), says(prose), says("ok"), words=("go", Compact(), "on"), profile="default"
    )
    assert "The names matter. " * 59 in said(played.last)[1]
    assert len({request.prefix.system for request in (*played.requests, *played.summaries)}) == 1
    assert "The names matter" not in played.last.prefix.system


async def test_C4_whatever_was_summarised_can_be_read_back_by_its_handle() -> None:
    recall = call("Recall", handle="r8")
    steps = [prints(3_000), says("hi"), says("1. Request: go"), says(recall), says("done")]
    played = await play(*steps, words=("go", Compact(), "the output?"), profile="default")
    assert "x" * 3_000 in results(played.last)[-1]


async def test_C5_the_focus_of_the_tool_is_in_the_request_for_the_summary() -> None:
    wish = says(call("Compact", focus="the names of the tables"))
    played = await play(prints(300), wish, says("1. Request: go"), says("done"), profile="default")
    assert "the names of the tables" in said(played.summaries[0])[-1]
    assert played.story.endswith("Summarized Asked Replied TurnEnded")
