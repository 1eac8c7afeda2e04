"""`longrein sessions --watch`: open sessions, those that wait for an answer first."""

import pytest

from longrein.commands.open_sessions import state_of
from longrein_context.events import (
    AnyEvent,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    Text,
    TurnEnded,
    UserSpoke,
)

SPOKE, ENDED = UserSpoke((Text("go"),)), TurnEnded("done")
FIRST, SECOND = (PermissionAsked(f"c2.{n}", "Bash", f"rm {n}", "why") for n in range(2))
YES = PermissionAnswered("c2.1", "allow", "user")


@pytest.mark.parametrize(("events", "state"), [
    ([], ("idle", "")),
    ([SPOKE], ("works", "")),
    ([SPOKE, ENDED], ("idle", "")),
    ([SPOKE, FIRST], ("asks", "Bash rm 0")),
    ([SPOKE, FIRST, SECOND, YES], ("asks", "Bash rm 0")),
    ([SPOKE, SECOND, YES], ("works", "")),
    ([SPOKE, FIRST, ENDED], ("idle", "")),
])  # fmt: skip
def test_the_state_of_an_open_session(events: list[AnyEvent], state: tuple[str, str]) -> None:
    entries = [Entry(seq, seq, event) for seq, event in enumerate(events, 1)]
    assert state_of(reversed(entries)) == state
