"""The loop, the inbox and the only writer of events."""

from longrein.agent.port import (
    Answer,
    Compact,
    GoOn,
    Heard,
    Noticed,
    Output,
    Pausing,
    Pending,
    Rewind,
    Said,
    SessionPort,
    SetMode,
    SetModel,
    Streaming,
    Word,
)

__all__ = [
    "Answer",
    "Compact",
    "GoOn",
    "Heard",
    "Noticed",
    "Output",
    "Pausing",
    "Pending",
    "Rewind",
    "Said",
    "SessionPort",
    "SetMode",
    "SetModel",
    "Streaming",
    "Word",
]
