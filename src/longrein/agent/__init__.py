"""The loop, the inbox and the only writer of events."""

from longrein.agent.behind import company_of, desk_of
from longrein.agent.loop import run
from longrein.agent.moves import Judgement, Move, next_move
from longrein.agent.opening import BYPASS, OpenSession, open_session
from longrein.agent.port import (
    AgentView,
    Answer,
    Compact,
    GoOn,
    Happened,
    Heard,
    Noticed,
    OfChild,
    Output,
    Pausing,
    Pending,
    Pin,
    Rewind,
    Said,
    SessionPort,
    SetMode,
    SetModel,
    StopChild,
    StopTask,
    Streaming,
    TaskOver,
    Uncompact,
    Unpin,
    Word,
)
from longrein.agent.ports import Clock, Crew, Limits, Outlook
from longrein.agent.prompts import builtin_kinds, child_system, compose_system, fork_task
from longrein.agent.session import Session
from longrein.agent.tasks.options import TaskOptions
from longrein.agent.tasks.pool import TaskPool

__all__ = [
    "BYPASS",
    "AgentView",
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
    "OfChild",
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
    "StopChild",
    "StopTask",
    "Streaming",
    "TaskOptions",
    "TaskOver",
    "TaskPool",
    "Uncompact",
    "Unpin",
    "Word",
    "builtin_kinds",
    "child_system",
    "company_of",
    "compose_system",
    "desk_of",
    "fork_task",
    "next_move",
    "open_session",
    "run",
]
