"""One JSON form for disk, export and web; old logs are lifted when read, never rewritten.

A line is `{"seq":1,"at":…,"event":{"type":"Opened",…}}`; on disk the event alone, its seq and time in columns.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from longrein.events.errors import SessionReadOnly
from longrein.events.facts import SCHEMA_VERSION, AnyEvent, Entry

_event_encoder = msgspec.json.Encoder()
_event_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_entry_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)

Lift = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: Mapping[int, Mapping[str, Lift]] = {}
"""Version that wrote the log -> event type -> what makes it an event of the next version. Kept for ever."""


def encode_event(event: AnyEvent) -> bytes:
    """The compact JSON of one event."""
    return _event_encoder.encode(event)


def decode_event(data: bytes | str, version: int = SCHEMA_VERSION) -> AnyEvent:
    """The event in `data`, written by schema `version`.

    Raises `SessionReadOnly` for what a newer longrein wrote and `msgspec.DecodeError` for bytes that are no event.
    """
    if version == SCHEMA_VERSION:
        try:
            return _event_decoder.decode(data)
        except msgspec.ValidationError as error:
            raise SessionReadOnly(
                f"an entry of this session is unknown to this longrein ({error}); upgrade it"
            ) from None
    if version > SCHEMA_VERSION:
        raise SessionReadOnly(
            f"this session was written by a newer longrein (schema {version}, this one knows {SCHEMA_VERSION}); "
            "upgrade it"
        )
    fields = msgspec.json.decode(data, type=dict[str, Any])
    for step in range(version, SCHEMA_VERSION):
        lift = UPCASTERS.get(step, {}).get(fields["type"])
        fields = lift(fields) if lift else fields
    event: AnyEvent = msgspec.convert(fields, AnyEvent)
    return event


def encode_entry(entry: Entry) -> bytes:
    """One line of an export, without the newline."""
    return _event_encoder.encode(entry)


def decode_entry(line: bytes | str) -> Entry:
    """The reverse of `encode_entry` for a line of the current schema."""
    return _entry_decoder.decode(line)
