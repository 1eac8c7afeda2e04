"""Time, tokens and money of a turn in one line."""

from longrein.steps import Projection
from longrein.steps.turn_work import TurnWork
from longrein_context.events import (
    AnyEvent,
    Asked,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    Replied,
    Text,
    ToolCall,
    TurnEnded,
    Usage,
    UserSpoke,
)

SECOND_US = 1_000_000


def told(seconds: float, usage: Usage = Usage(), usd: float = 0.0, said: int = 1) -> str:  # noqa: B008
    """The line at the end of a turn of `said` messages and one request."""
    work, projection = TurnWork(), Projection()
    events = [UserSpoke((Text("go"),))] * said + [Asked("turn", 1, 1)]
    reply = Replied(said + 1, (), "end", usage, cost_usd=usd)
    for seq, event in enumerate([*events, reply], 1):
        for step in projection.read(Entry(seq, 7 * SECOND_US + seq, event)):
            work.add(step)
    at_us = 7 * SECOND_US + 1 + round(seconds * SECOND_US)
    [end] = projection.read(Entry(9, at_us, TurnEnded("done")))
    found = work.end(end.at)
    assert not work.end(end.at), "the next turn begins anew"
    return found


def test_a_turn_is_told_with_what_is_known_of_it() -> None:
    used = Usage(1_000, 29_000, 400, 600)
    assert told(24, used, 0.04) == "Worked for 24 s · 1 request, context 30k · $0.04"
    assert told(185, used) == "Worked for 3 m 05 s · 1 request, context 30k"
    assert told(5, said=3) == "Worked for 5.0 s"


def line_of(*events: tuple[float, AnyEvent]) -> str:
    """The line at the end of a turn, whose last event is its end; (second, event)."""
    work, projection = TurnWork(), Projection()
    for seq, (second, event) in enumerate(events, 1):
        for step in projection.read(Entry(seq, round(second * SECOND_US), event)):
            work.add(step)
    return work.end(round(events[-1][0] * SECOND_US))


def test_the_time_in_which_it_waits_for_the_user_does_not_count() -> None:
    calls = [ToolCall(f"c2.{n}", "Bash", {"command": "x"}) for n in range(2)]
    asked = [PermissionAsked(call.id, "Bash", "x", "because") for call in calls]
    answered = [PermissionAnswered(call.id, "allow", by="user") for call in calls]
    used = Usage(10_000, 0, 0, 10)
    line = line_of(
        (1, UserSpoke((Text("go"),))),
        (1, Asked("turn", 1, 1)),
        (3, Replied(2, tuple(calls), "calls", used)),
        (4, asked[0]), (10, asked[1]), (50, answered[0]), (104, answered[1]),
        (105, Asked("turn", 1, 1)),
        (111, Replied(8, (Text("so"),), "end", Usage(33_000, 0, 0, 10))),
        (111, TurnEnded("done")),
    )  # fmt: skip
    assert line == "Worked for 10 s · 2 requests, context 33k"


def test_money_of_an_interrupted_request_is_a_bound() -> None:
    cut = Replied(2, (Text("so"),), "interrupted", Usage(9), cost_usd=0.5, estimated=("output",))
    events = (1, UserSpoke((Text("go"),))), (1, Asked("turn", 1, 1)), (9, cut)
    assert line_of(*events, (9, TurnEnded("interrupted"))).endswith(" · at most $0.50")


def test_a_turn_of_a_moment_is_not_told() -> None:
    assert not told(4.9, Usage(9, 9, 9, 9), 0.04)
