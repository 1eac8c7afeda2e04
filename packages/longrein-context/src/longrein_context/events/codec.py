"""JSON form of events and entries, the same on disk, in exports and for the web.

An exported line is `{"seq":1,"at":…,"event":{"type":"Opened",…}}`. On disk the event is stored
alone, with seq and time in columns. Old logs are converted when read and never rewritten.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from longrein_context.events.content import (
    DEPTH_MAX,
    ToolCall,
    decode_json,
    decode_object,
    flattened,
    is_too_deep,
)
from longrein_context.events.errors import SessionReadOnly
from longrein_context.events.escape import valid_text
from longrein_context.events.events import SCHEMA_VERSION, AnyEvent, Entry, Replied, ToolStarted

_event_encoder = msgspec.json.Encoder()
_event_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_entry_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)

S = TypeVar("S", bound=msgspec.Struct)
Lift = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: Mapping[int, Mapping[str, Lift]] = {}
"""Schema version of the log -> event type -> conversion to the next version. Entries are never
removed.
"""


def encode_event(event: AnyEvent) -> bytes:
    """Encode an event as compact JSON."""
    return _event_encoder.encode(event)


def decode_event(data: bytes | str, version: int = SCHEMA_VERSION) -> AnyEvent:
    """Decode an event that was written with schema `version`.

    Raises `SessionReadOnly` for an event of a newer longrein, and `msgspec.DecodeError` for invalid
    bytes.
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
            f"this session was written by a newer longrein (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); "
            "upgrade it"
        )
    fields = msgspec.json.decode(data, type=dict[str, Any])
    for step in range(version, SCHEMA_VERSION):
        lift = UPCASTERS.get(step, {}).get(fields["type"])
        fields = lift(fields) if lift else fields
    lifted: AnyEvent = msgspec.convert(fields, AnyEvent)
    return lifted


def _without_nulls(data: bytes | str) -> AnyEvent | None:
    """Decode an event with `null` for an infinite number, which gets its default; None for other
    events.
    """
    fields = decode_json(data)
    try:
        event: AnyEvent = msgspec.convert(
            {key: value for key, value in fields.items() if value is not None}, AnyEvent
        )
    except msgspec.ValidationError:
        return None
    return event


def _is_deep(event: AnyEvent) -> bool:
    """Return True if arguments in the event are nested deeper than `DEPTH_MAX`."""
    match event:
        case Replied(parts=parts):
            return any(isinstance(part, ToolCall) and is_too_deep(part.arguments) for part in parts)
        case ToolStarted(arguments=arguments):
            return is_too_deep(arguments)
        case _:
            return False


def _decode_deep(data: bytes | str) -> AnyEvent:
    """Decode an event whose values are nested too deep. Such arguments are kept as received text
    and never run.
    """
    raw = data.encode() if isinstance(data, str) else data
    fields = msgspec.json.decode(flattened(raw, DEPTH_MAX))
    match fields["type"]:
        case "Replied":
            fields = msgspec.json.decode(flattened(raw, _ABOVE_ARGUMENTS))
            for part in fields["parts"]:
                text = part.get("arguments")
                if isinstance(text, str):
                    part["arguments"] = decode_object(text)
                    part["received"] = part.get("received") or (
                        "" if part["arguments"] is not None else text
                    )
        case "ToolStarted":
            fields["arguments"] = None
    event: AnyEvent = msgspec.convert(fields, AnyEvent)
    return event


_ABOVE_ARGUMENTS = (
    3  # Nesting levels around the arguments of a call: the reply, its parts, the call
)


def storable(value: S) -> S:
    """Return an event or message that JSON can hold, with `valid_text` for each text; the same
    object when it can.
    """
    try:
        _event_encoder.encode(value)
    except UnicodeEncodeError:
        import json

        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return msgspec.json.decode(valid_text(text), type=type(value))
    except RecursionError:
        pass  # the caller drops what is nested too deep
    return value


def encode_entry(entry: Entry) -> bytes:
    """Encode an entry as a line of an export, without the newline."""
    return _event_encoder.encode(entry)


def decode_entry(line: bytes | str) -> Entry:
    """Decode a line of `encode_entry` with the current schema."""
    return _entry_decoder.decode(line)
