"""The model's hands: functions whose signature and docstring are the tool."""

import importlib
from typing import Any

from longrein.tools.agent import agent_tool
from longrein.tools.agent_port import AgentPort, Job, Kind, Report
from longrein.tools.arguments import check_arguments, fit_arguments, malformed_arguments, unknown_tool
from longrein.tools.builtin import builtin_tools
from longrein.tools.changes import change_of
from longrein.tools.deferred import Deferral, Offer, by_name, misfit_call, offer, unknown_call
from longrein.tools.goal_port import GoalPort
from longrein.tools.goals import goal_tools
from longrein.tools.plain import chooses_folder, leaves_folder, reads_only
from longrein.tools.port import Access, Archive, Blobs, FileVersion, Hands, Outcome, Past, Tool, ToolOptions
from longrein.tools.registry import make_tool, tool
from longrein.tools.task_port import Kept, OutputSlice, TaskPort, TaskView
from longrein.tools.text import clean

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


def __getattr__(name: str) -> Any:
    """`report_text`, which only a session with subagents needs."""
    if name == "report_text":
        return importlib.import_module("longrein.tools.agent_report").report_text
    raise AttributeError(f"longrein.tools has no public name {name!r}")
