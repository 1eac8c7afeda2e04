"""Outcome of an attempt by its session's log: the end of its turn, its cost, its last failure."""

from contextlib import closing

import msgspec

from longrein.frontends.reports.cost import cost_rows
from longrein.store import Reader
from longrein_context.events import (
    Asked,
    AskFailed,
    Interrupted,
    Replied,
    SessionUnknown,
    TurnEnded,
    UserSpoke,
)


class SessionOutcome(msgspec.Struct, frozen=True):
    """State of a session's last turn, and the cost of the session."""

    exists: bool = False
    """True if it has entries."""
    is_asked: bool = False
    """True if the prompt is in the log."""
    reason: str = ""
    """Why the last turn ended, `interrupted` also before that end; '' while it goes on."""
    failure: str = ""
    """Kind of the last failed request that no reply followed."""
    message: str = ""
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    """Time from the prompt to the end of the last turn, pauses between processes included."""
    cached_tokens: int = 0
    """Part of the input that was read from the provider's cache."""


def session_outcome(state_dir: str, session: str) -> SessionOutcome:
    """Read the outcome of a session; one that does not exist has an empty one."""
    try:
        with closing(Reader(state_dir, session)) as reader:
            entries = list(reader.entries())
    except SessionUnknown:
        return SessionOutcome()
    is_asked = False
    reason = failure = message = ""
    asked_us = ended_us = 0
    for entry in entries:
        match entry.event:
            case UserSpoke():
                is_asked = True
                asked_us = asked_us or entry.at
                reason = ""
            case Asked(purpose="turn"):
                reason = ""
            case Interrupted():
                reason = "interrupted"
            case Replied():
                failure = ""
            case AskFailed(kind=kind, message=text):
                failure, message = kind, text
            case TurnEnded():
                ended_us = entry.at
                reason = entry.event.reason
                message = entry.event.message or message
    rows = cost_rows(entries)
    return SessionOutcome(
        bool(entries),
        is_asked,
        reason,
        failure,
        message,
        sum(row.usd for row in rows),
        sum(row.usage.context_tokens for row in rows),
        sum(row.usage.output_tokens for row in rows),
        max(0, ended_us - asked_us) / 1e6,
        sum(row.usage.cache_read_tokens for row in rows),
    )
