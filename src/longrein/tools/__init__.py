"""The model's hands: functions whose signature and docstring are the tool."""

from longrein.tools.arguments import check_arguments, fit_arguments, malformed_arguments, unknown_tool
from longrein.tools.bash import chooses_folder, leaves_folder, reads_only
from longrein.tools.builtin import builtin_tools
from longrein.tools.diff import change_of
from longrein.tools.goals import goal_tools
from longrein.tools.port import (
    Access,
    AgentPort,
    Archive,
    Blobs,
    FileVersion,
    GoalPort,
    Hands,
    Job,
    Kept,
    Kind,
    Outcome,
    OutputSlice,
    Past,
    Report,
    TaskPort,
    TaskView,
    Tool,
    ToolOptions,
)
from longrein.tools.registry import make_tool, tool
from longrein.tools.subagent import agent_tool, report_text
from longrein.tools.text_encoding import clean
from longrein.tools.tool_search import Deferral, Offer, by_name, misfit_call, offer, unknown_call

__all__ = [
    "Access",
    "AgentPort",
    "Archive",
    "Blobs",
    "Deferral",
    "FileVersion",
    "GoalPort",
    "Hands",
    "Job",
    "Kept",
    "Kind",
    "Offer",
    "Outcome",
    "OutputSlice",
    "Past",
    "Report",
    "TaskPort",
    "TaskView",
    "Tool",
    "ToolOptions",
    "agent_tool",
    "builtin_tools",
    "by_name",
    "change_of",
    "check_arguments",
    "chooses_folder",
    "clean",
    "fit_arguments",
    "goal_tools",
    "leaves_folder",
    "make_tool",
    "malformed_arguments",
    "misfit_call",
    "offer",
    "reads_only",
    "report_text",
    "tool",
    "unknown_call",
    "unknown_tool",
]
