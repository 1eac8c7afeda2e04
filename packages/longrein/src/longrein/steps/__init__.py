"""The one reading of the log: events and live updates become a small closed set of steps.

Frontends, reports and extensions render steps. Whoever adds an event adds one case to
`projection.py`.
"""

from longrein.steps.projection import MAIN, Projection, steps_of
from longrein.steps.steps import (
    Agent,
    BreakStep,
    CallStep,
    CompactionStep,
    FileStep,
    NoticeStep,
    PromptStep,
    QuestionStep,
    RequestStep,
    SettingStep,
    Step,
    StreamStep,
    SubagentStep,
    TaskStep,
    TextStep,
    ThinkingStep,
    TurnEndStep,
)

__all__ = [
    "MAIN",
    "Agent",
    "BreakStep",
    "CallStep",
    "CompactionStep",
    "FileStep",
    "NoticeStep",
    "Projection",
    "PromptStep",
    "QuestionStep",
    "RequestStep",
    "SettingStep",
    "Step",
    "StreamStep",
    "SubagentStep",
    "TaskStep",
    "TextStep",
    "ThinkingStep",
    "TurnEndStep",
    "steps_of",
]
