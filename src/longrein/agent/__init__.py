"""The loop, the inbox and the only writer of events."""

from longrein.agent.loop import run
from longrein.agent.moves import Judgement, Move, next_move
from longrein.agent.opening import OpenSession, open_session
from longrein.agent.port import (
    Answer,
    Compact,
    GoOn,
    Happened,
    Heard,
    Noticed,
    Output,
    Pausing,
    Pending,
    Pin,
    Rewind,
    Said,
    SessionPort,
    SetMode,
    SetModel,
    Streaming,
    Uncompact,
    Unpin,
    Word,
)
from longrein.agent.ports import Clock, Crew, Limits, Outlook
from longrein.agent.prompts import compose_system
from longrein.agent.session import Session

__all__ = [
    "Answer",
    "Clock",
    "Compact",
    "Crew",
    "GoOn",
    "Happened",
    "Heard",
    "Judgement",
    "Limits",
    "Move",
    "Noticed",
    "OpenSession",
    "Outlook",
    "Output",
    "Pausing",
    "Pending",
    "Pin",
    "Rewind",
    "Said",
    "Session",
    "SessionPort",
    "SetMode",
    "SetModel",
    "Streaming",
    "Uncompact",
    "Unpin",
    "Word",
    "compose_system",
    "next_move",
    "open_session",
    "run",
]
