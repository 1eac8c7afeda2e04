"""The model's hands: functions whose signature and docstring are the tool."""

from longrein.tools.arguments import check_arguments, fit_arguments, malformed_arguments, unknown_tool
from longrein.tools.builtin import builtin_tools
from longrein.tools.port import Access, Blobs, FileVersion, Hands, Outcome, Tool, ToolOptions
from longrein.tools.registry import make_tool, tool
from longrein.tools.text import clean

__all__ = [
    "Access",
    "Blobs",
    "FileVersion",
    "Hands",
    "Outcome",
    "Tool",
    "ToolOptions",
    "builtin_tools",
    "check_arguments",
    "clean",
    "fit_arguments",
    "make_tool",
    "malformed_arguments",
    "tool",
    "unknown_tool",
]
