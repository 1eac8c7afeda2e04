"""One JSON form for disk, export and web; old logs are lifted when read, never rewritten.

A line is `{"seq":1,"at":…,"event":{"type":"Opened",…}}`; on disk the event alone, its seq and time in columns.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from longrein.events.content import ToolCall
from longrein.events.errors import SessionReadOnly
from longrein.events.events import SCHEMA_VERSION, AnyEvent, Entry, Replied, ToolStarted
from longrein.events.nesting import DEPTH_MAX, decode_json, flattened, is_too_deep

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
            event = _event_decoder.decode(data)
            return _decode_deep(data) if _is_deep(event) else event
        except RecursionError:
            return _decode_deep(data)
        except msgspec.ValidationError as error:
            finite = _without_nulls(data)
            if finite is not None:
                return finite
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
    lifted: AnyEvent = msgspec.convert(fields, AnyEvent)
    return lifted


def _without_nulls(data: bytes | str) -> AnyEvent | None:
    """An event in which a number was infinite: JSON has `null` for it. It takes its default. None for any other."""
    fields = decode_json(data)
    try:
        event: AnyEvent = msgspec.convert({key: value for key, value in fields.items() if value is not None}, AnyEvent)
    except msgspec.ValidationError:
        return None
    return event


def _is_deep(event: AnyEvent) -> bool:
    """Whether arguments in it are nested deeper than longrein takes them now."""
    match event:
        case Replied(parts=parts):
            return any(isinstance(part, ToolCall) and is_too_deep(part.arguments) for part in parts)
        case ToolStarted(arguments=arguments):
            return is_too_deep(arguments)
        case _:
            return False


def _decode_deep(data: bytes | str) -> AnyEvent:
    """An event whose values are nested too deep: such arguments stand as the text that was received, and never run."""
    raw = data.encode() if isinstance(data, str) else data
    fields = msgspec.json.decode(flattened(raw, DEPTH_MAX))
    match fields["type"]:
        case "Replied":
            fields = msgspec.json.decode(flattened(raw, _ABOVE_ARGUMENTS))
            for part in fields["parts"]:
                text = part.get("arguments")
                if isinstance(text, str):
                    part["arguments"] = _arguments(text)
                    part["received"] = part.get("received") or ("" if part["arguments"] is not None else text)
        case "ToolStarted":
            fields["arguments"] = None
    event: AnyEvent = msgspec.convert(fields, AnyEvent)
    return event


_ABOVE_ARGUMENTS = 3
"""Lists and objects around the arguments of a call: the reply, its parts, the call."""


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        value = decode_json(text)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def encode_entry(entry: Entry) -> bytes:
    """One line of an export, without the newline."""
    return _event_encoder.encode(entry)


def decode_entry(line: bytes | str) -> Entry:
    """The reverse of `encode_entry` for a line of the current schema."""
    return _entry_decoder.decode(line)
