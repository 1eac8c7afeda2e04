"""Time, tokens and money of a turn in one line."""

from longrein.steps import Projection
from longrein.steps.turn_work import TurnWork
from longrein_context.events import Asked, Entry, Replied, Text, TurnEnded, Usage, UserSpoke

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
    assert told(24, used, 0.04) == "Worked for 24 s · 31k tokens · $0.04"
    assert told(185, used) == "Worked for 3 m 05 s · 31k tokens"
    assert told(5, said=3) == "Worked for 5.0 s"


def test_a_turn_of_a_moment_is_not_told() -> None:
    assert not told(4.9, Usage(9, 9, 9, 9), 0.04)
