"""`longrein sessions --watch` and `inspect --live`: what an open session does."""

import pytest

from longrein.frontends.reports.open_sessions import OpenSessionRow, row_of
from longrein.store import SessionInfo
from longrein_context import fold
from longrein_context.events import (
    AnyEvent,
    Asked,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    PrefixSet,
    Replied,
    Text,
    ToolCall,
    TurnEnded,
    Usage,
    UserSpoke,
)

PREFIX = PrefixSet("start", "provider", "model", "scripted", "")
SPOKE, ENDED = UserSpoke((Text("go"),)), TurnEnded("done")
REPLY = Replied(
    3,
    tuple(ToolCall(f"c4.{n}", "Bash", {"command": f"rm {n}"}) for n in range(2)),
    "calls",
    Usage(input_tokens=500),
    cost_usd=0.5,
)
BEGUN = (PREFIX, SPOKE, Asked("turn", 2, 1), REPLY)
FIRST, SECOND = (PermissionAsked(f"c4.{n}", "Bash", f"rm {n}", "why") for n in range(2))
YES = PermissionAnswered("c4.1", "allow", "user")
INFO = SessionInfo("s", "/state/s", 0, 9, "/w", "a title", 9, True)


def row(*events: AnyEvent) -> OpenSessionRow:
    return row_of(INFO, fold(Entry(seq, seq, event) for seq, event in enumerate(events, 1)))


@pytest.mark.parametrize(("events", "state"), [
    ([], ("idle", "", 0)),
    ([PREFIX, SPOKE], ("works", "", 2)),
    ([PREFIX, SPOKE, ENDED], ("idle", "", 3)),
    ([*BEGUN], ("works", "", 2)),
    ([*BEGUN, FIRST], ("asks", "Bash rm 0", 5)),
    ([*BEGUN, FIRST, SECOND, YES], ("asks", "Bash rm 0", 7)),
    ([*BEGUN, SECOND, YES], ("works", "", 2)),
])  # fmt: skip
def test_the_state_of_an_open_session(events: list[AnyEvent], state: tuple[str, str, int]) -> None:
    found = row(*events)
    assert (found.state, found.question, found.since_us) == state


def test_the_model_the_context_and_the_money_of_an_open_session() -> None:
    found = row(*BEGUN)
    assert (found.model, found.context_tokens, found.usd) == ("provider/model", 500, 0.5)
