"""Stored inbox messages: an inbox that an earlier version wrote still loads."""

from typing import get_args

import msgspec

from longrein.agent import InboxMessage, UserMessage
from longrein_context.events import Text

TAGS = (
    "AddSchedule Answer CommandRun Compact GoOn Happened Pin RemoveSchedule Rewind Said SetMode "
    "SetModel SetTitle StopChild StopTask Uncompact Unpin"
)


def test_tags_of_stored_messages_never_change() -> None:
    assert (
        " ".join(sorted(str(kind.__struct_config__.tag) for kind in get_args(InboxMessage))) == TAGS
    )


def test_a_message_stored_by_an_earlier_version_loads() -> None:
    stored = b'{"type":"Said","parts":[{"type":"text","text":"go on"}],"how":"queued","to":""}'
    message = msgspec.json.decode(stored, type=InboxMessage)  # type: ignore[arg-type]
    assert message == UserMessage((Text("go on"),), "queued")
    assert (
        msgspec.json.decode(msgspec.json.encode(message)).items()
        >= msgspec.json.decode(stored).items()
    )
