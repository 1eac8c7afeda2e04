"""Faults of providers, models and users, one black-box test each: the session goes on and nothing
is lost.

Files that vanish or change before the rebuild are tested in tests/agent/test_rebuilding.py, limits
named in the text of an overflow error in tests/models/test_failures.py.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from lab.context.estimates import LIES
from lab.context.playing import (
    SUMMARISERS,
    Answer,
    Provider,
    budget_of,
    feed,
    play_session,
    reply,
    small_tools,
)
from longrein.agent import Compact, OpenSession
from longrein.models import Failure
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import memory_dependencies, open_test_session
from longrein.testing.store import MemoryDisk
from longrein_context import Budget, Request, decide, fold, window_of
from longrein_context.events import (
    AnyEvent,
    AskFailed,
    Cleared,
    Entry,
    Interrupted,
    Replied,
    Summarized,
    ToolCall,
    ToolStarted,
    TurnEnded,
    decode_entry,
    text_of,
)
from tests.agent.disk_harness import turn

TALK = Budget(8_000, 1_000, budget_of(8_000).price, clears=())
"""Nothing may be cleared, so that the view can only be summarised."""
GOLDEN = Path(__file__).parents[1] / "store" / "golden_v1.jsonl"


def talker(steps: int, budget: Budget = TALK) -> Callable[[Request], Answer]:
    """Much talk and a small result in each step."""
    random, left = Random(1), [steps]

    def turn(_: Request) -> Answer:
        left[0] -= 1
        words = " ".join(
            f"thought{random.randrange(10**6)}" for _ in range(budget.usable_tokens // 40)
        )
        return reply(words, feed("code", 60)) if left[0] > 0 else reply("done")

    return turn


def events(disk: MemoryDisk, kind: type[Any]) -> list[Any]:
    return [entry.event for entry in disk.entries() if isinstance(entry.event, kind)]


def run_session(provider: Provider, *prompts: str) -> MemoryDisk:
    """Say `prompts` to a session; its log."""
    disk = MemoryDisk()
    run_virtual(
        play_session(provider, prompts or ("go on", "and on"), disk=disk), clock=VirtualClock()
    )
    return disk


def check(disk: MemoryDisk, provider: Provider, *, overflows_max: int = 0) -> None:
    """The session went on to the end, each law held, and the last words were answered."""
    ended: list[TurnEnded] = events(disk, TurnEnded)
    assert [end.reason for end in ended] == ["done"] * len(ended), ended
    assert ended
    assert not provider.broken, provider.broken[:3]
    assert provider.overflows <= overflows_max
    assert provider.attempts <= 2 + 2 * provider.entered / (0.1 * provider.budget.usable_tokens)


# --- the summariser -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SUMMARISERS)
def test_A16_a_summariser_that(kind: str) -> None:
    provider = Provider(TALK, talker(40), kind)
    disk = run_session(provider)
    check(disk, provider)
    assert provider.attempts, "no summary was ever asked for"
    assert events(disk, Summarized)


def test_A17_a_call_in_a_summary_is_not_run() -> None:
    disk = run_session(Provider(TALK, talker(40), "calls tools"))
    made = {
        part.id
        for e in disk.entries()
        for part in getattr(e.event, "parts", ())
        if isinstance(part, ToolCall)
    }
    summaries = {failed.asked for failed in events(disk, AskFailed)}
    assert summaries
    assert all(started.call in made for started in events(disk, ToolStarted))
    assert not [
        started
        for started in events(disk, ToolStarted)
        if int(started.call[1:].split(".")[0]) in summaries
    ]


# --- usage and window -----------------------------------------------------------------------------


@pytest.mark.parametrize("lie", LIES)
def test_A5_usage_is(lie: str) -> None:
    provider = Provider(TALK, talker(40), said_usage=LIES[lie])
    check(run_session(provider), provider)


class Smaller(Provider):
    """Its window is a fifth of what its budget says; `tells`: whether the error names it."""

    real: int = 8_000
    tells: bool = True

    def answer(self, request: Request, tokens: int) -> Answer:
        if tokens <= self.real:
            return super().answer(request, tokens)
        self.overflows += 1
        return Failure(
            "overflow", f"{tokens} tokens", 400, limit_tokens=self.real if self.tells else 0
        )


@pytest.mark.parametrize("tells", [True, False])
def test_A15_an_unknown_window_is_learned_or_felt(tells: bool) -> None:
    provider = Smaller(Budget(40_000, 4_000, TALK.price), talker(30))
    provider.tells = tells
    disk = run_session(provider)
    state = fold(disk.entries())
    learned = window_of(state, provider.budget).window_tokens
    assert learned == 8_000 if tells else 8_000 < learned < 10_000, (
        "the size of the refused request is a bound"
    )
    check(disk, provider, overflows_max=1)


def test_a_refusal_without_a_reason_in_the_size_keeps_nobody_from_trying_again() -> None:
    """A provider that calls everything too long is no small window: once it is well again, the
    session goes on.
    """
    ill = [True]

    def answers(_: Request) -> Answer:
        return Failure("overflow", "too long", 400) if ill[0] else reply("done")

    provider = Provider(Budget(40_000, 4_000, TALK.price), answers)
    disk = run_session(provider, "one", "two")
    assert [end.reason for end in events(disk, TurnEnded)] == ["error", "error"]
    ill[0] = False
    run_virtual(play_session(provider, ("three",), disk=disk), clock=VirtualClock())
    assert events(disk, TurnEnded)[-1] == TurnEnded("done")
    assert fold(disk.entries()).refused_raw == 0, "a request of that size was taken"


@pytest.mark.parametrize("tells", [True, False])
def test_A15_a_first_message_that_no_window_could_hold_is_answered(tells: bool) -> None:
    provider = Smaller(Budget(40_000, 4_000, TALK.price), lambda _: reply("done"))
    provider.tells = tells
    disk = run_session(
        provider, f"the first word, {'lorem ipsum dolor ' * 10_000} the last word", "and on"
    )
    check(disk, provider, overflows_max=1 if tells else 3)
    shown = "\n".join(text_of((item.part,)) for item in provider.last)
    assert [word in shown for word in ("the first word", "the last word", "and on")] == [True] * 3


def test_law_6_a_call_that_is_larger_than_the_window_ends_no_session() -> None:
    much = "".join(f"x{n} = {n * 7919}\n" for n in range(8_000))
    answers = [reply(ToolCall("", "Feed", {"kind": much, "chars": 10})), reply("done")]
    provider = Provider(
        Budget(8_000, 2_000, TALK.price), lambda _: answers.pop(0) if answers else reply("done")
    )
    disk = run_session(provider, "write it all", "\u4e2d\u6587" * 20_000, "and on")
    check(disk, provider)
    assert much in [
        (c.arguments or {}).get("kind")
        for r in events(disk, Replied)
        for c in r.parts
        if isinstance(c, ToolCall)
    ]


def test_a_provider_that_silently_truncates_is_noticed() -> None:
    cut = 3_000

    def flat(usage: Any) -> Any:
        return msgspec.structs.replace(usage, input_tokens=0, cache_read_tokens=0,
            cache_write_tokens=min(
            cut, usage.context_tokens))  # fmt: skip

    provider = Provider(budget_of(40_000), talker(24, TALK), said_usage=flat)
    disk = run_session(provider)
    assert not provider.broken
    assert fold(disk.entries()).gauge.ceiling == pytest.approx(cut, rel=0.02)


# --- what users ask -------------------------------------------------------------------------------


def told(
    words: Callable[[OpenSession], Coroutine[Any, Any, None]], provider: Provider
) -> MemoryDisk:
    """Play `words` in a session that is closed afterwards."""
    disk = MemoryDisk()

    async def story() -> None:
        clock = VirtualClock()
        deps = memory_dependencies(provider, disk, clock=clock, tools=small_tools())
        session = open_test_session(provider, disk=disk, deps=deps, mode="bypassPermissions")
        provider.session = session
        await words(session)
        await session.close()

    run_virtual(story())
    return disk


def test_A7_two_compactions_in_one_second_lose_nothing() -> None:
    async def words(session: OpenSession) -> None:
        await turn(session, "first the tests")
        await turn(session, "then the page")
        session.tell(Compact())
        await turn(session, Compact("the page"))
        await turn(session, "and on")

    provider = Provider(TALK, talker(3))
    disk = told(words, provider)
    check(disk, provider)
    last = provider.last
    shown = "\n".join(text_of((item.part,)) for item in last)
    assert [word in shown for word in ("first the tests", "then the page", "and on")] == [True] * 3


def test_E8_a_cancel_in_the_middle_of_a_summary_leaves_the_log_whole() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def waiting() -> None:
        begun.set()
        await gate.wait()

    async def words(session: OpenSession) -> None:
        await turn(session, "first")
        await turn(session, "second")
        provider.wait = waiting
        session.tell(Compact())
        walk = asyncio.ensure_future(session.run(once=True))
        await begun.wait()
        session.interrupt()
        gate.set()
        await walk
        await turn(session, "go on then")

    provider = Provider(TALK, talker(4))
    disk = told(words, provider)
    ended: list[TurnEnded] = events(disk, TurnEnded)
    assert ended[-1].reason == "done"
    assert not provider.broken
    shown = "\n".join(text_of((item.part,)) for item in provider.last)
    assert [word in shown for word in ("first", "second", "go on then")] == [True] * 3
    assert len(events(disk, Interrupted)) <= 1


# --- old sessions ---------------------------------------------------------------------------------


def test_law_12_a_session_of_an_older_version_is_decided_on_like_any_other() -> None:
    entries: list[Entry] = [
        decode_entry(line) for line in GOLDEN.read_bytes().splitlines() if line.strip()
    ]
    state = fold(entries)
    assert state.view_tokens > 0
    assert decide(state, TALK) is not None
    kinds: set[type[AnyEvent]] = {type(entry.event) for entry in entries}
    assert {Cleared, Summarized} & kinds
