"""Secrets are replaced at the door: every text of an event passes here before it is folded or stored (law 4)."""

from collections.abc import Callable

import msgspec

from longrein.events import AnyEvent, AnyPart, Document, Reminded, Replied, Text, ToolEnded, UserSpoke

Redact = Callable[[str], str]


def redacted(event: AnyEvent, redact: Redact) -> AnyEvent:
    """`event` with the secrets in what people, models and tools said replaced; the same object when there are none."""
    match event:
        case UserSpoke() | Replied() | ToolEnded():
            parts = tuple(_part(part, redact) for part in event.parts)
            if all(new is old for new, old in zip(parts, event.parts, strict=True)):
                return event
            return msgspec.structs.replace(event, parts=parts)
        case Reminded():
            text, state = redact(event.text), redact(event.state)
            same = text == event.text and state == event.state
            return event if same else msgspec.structs.replace(event, text=text, state=state)
        case _:
            return event


def _part(part: AnyPart, redact: Redact) -> AnyPart:
    match part:
        case Text(text):
            clean = redact(text)
            return part if clean == text else Text(clean)
        case Document():
            head, tail = redact(part.head), redact(part.tail)
            same = head == part.head and tail == part.tail
            return part if same else msgspec.structs.replace(part, head=head, tail=tail)
        case _:
            return part
