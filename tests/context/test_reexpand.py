"""Summary made in the background: names used by the steps made meanwhile are put back."""

from longrein_context import State, reexpand_lines
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Asked,
    Opened,
    PrefixSet,
    Replied,
    Text,
    ToolCall,
    ToolEnded,
    UserSpoke,
)
from tests.context.log_builder import EventLog
from tests.tables import cases

READ = "RETRY_CEILING_S = 17\nunrelated_thing = 2\ndef fetch_page(url): ...\n"
SUMMARY = "We looked at the settings. fetch_page is fine."


def story(*later: AnyEvent) -> State:
    """A file was read and summarised up to entry 6; `later` came after it."""
    facts: list[AnyEvent] = [
        Opened(SCHEMA_VERSION, "s", "n0nce", ("/w",), "/w"),
        PrefixSet("start", "mock", "small", "anthropic", "Be good."),
        UserSpoke((Text("raise the ceiling"),)),
        Asked("turn", 3, 2),
        Replied(4, (ToolCall("c4.0", "Read", {"file_path": "net.py"}),), "calls"),
        ToolEnded("c4.0", "Read", "ok", (Text(READ),)),
        Asked("turn", 6, 2),
        *later,
    ]
    return EventLog(*facts).state


def reply(text: str, *calls: ToolCall) -> Replied:
    return Replied(7, (Text(text), *calls), "calls" if calls else "end")


@cases(
    "later summary put_back",
    ((reply("RETRY_CEILING_S is too low"),), SUMMARY, "r6: RETRY_CEILING_S = 17"),
    ((reply("RETRY_CEILING_S is too low"),), SUMMARY + " RETRY_CEILING_S = 17", ""),
    ((reply("fetch_page is what I meant"),), SUMMARY, ""),
    ((reply("nothing of note"),), SUMMARY, ""),
    ((), SUMMARY, ""),
    (
        (reply("so", ToolCall("c7.0", "Bash", {"command": "grep RETRY_CEILING_S"})),),
        SUMMARY,
        "r6: RETRY_CEILING_S = 17",
    ),
    (
        (
            reply("RETRY_CEILING_S?", ToolCall("c7.0", "Read", {})),
            ToolEnded("c7.0", "Read", "ok", (Text("RETRY_CEILING_S = 18"),)),
        ),
        SUMMARY,
        "",
    ),
    ((reply("RETRY_CEILING_S and unrelated_thing"),), SUMMARY, "r6: RETRY_CEILING_S = 17"),
)
def test_a_name_used_since_is_put_back(
    later: tuple[AnyEvent, ...], summary: str, put_back: str
) -> None:
    assert reexpand_lines(story(*later), (3, 6), summary, 1_000) == put_back


def test_what_does_not_fit_is_left_out() -> None:
    assert reexpand_lines(story(reply("RETRY_CEILING_S")), (3, 6), SUMMARY, 3) == ""
