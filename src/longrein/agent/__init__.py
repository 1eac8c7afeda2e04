"""The agent: main loop, inbox, model requests, tool calls, compaction, background tasks and subagents."""

from longrein.agent.loop import run
from longrein.agent.messages import (
    Answer,
    Compact,
    Continue,
    ExternalEvent,
    FromSubagent,
    InboxMessage,
    Output,
    PendingMessage,
    Pin,
    ReplyDelta,
    RetryPause,
    Rewind,
    SessionPort,
    SessionUpdate,
    SetMode,
    SetModel,
    StopChild,
    StopTask,
    SubagentView,
    TaskOver,
    Uncompact,
    Unpin,
    UserMessage,
    UserNotice,
)
from longrein.agent.moves import Judgement, Move, next_move
from longrein.agent.open_session import BYPASS, OpenSession, open_session, resumed_state
from longrein.agent.ports import Dependencies, MoveContext
from longrein.agent.prompts import builtin_kinds, child_system, compose_system, fork_task
from longrein.agent.session import Session
from longrein.agent.task_pool import TaskPool
from longrein.models import Clock
from longrein.settings_schema import Limits, TaskOptions

__all__ = [
    "BYPASS",
    "Answer",
    "Clock",
    "Compact",
    "Continue",
    "Dependencies",
    "ExternalEvent",
    "FromSubagent",
    "InboxMessage",
    "Judgement",
    "Limits",
    "Move",
    "MoveContext",
    "OpenSession",
    "Output",
    "PendingMessage",
    "Pin",
    "ReplyDelta",
    "RetryPause",
    "Rewind",
    "Session",
    "SessionPort",
    "SessionUpdate",
    "SetMode",
    "SetModel",
    "StopChild",
    "StopTask",
    "SubagentView",
    "TaskOptions",
    "TaskOver",
    "TaskPool",
    "Uncompact",
    "Unpin",
    "UserMessage",
    "UserNotice",
    "builtin_kinds",
    "child_system",
    "compose_system",
    "fork_task",
    "next_move",
    "open_session",
    "resumed_state",
    "run",
]
