"""Tools that the model can call: async functions whose signature and docstring become the tool."""

from typing import TYPE_CHECKING

from longrein.settings_schema import ToolOptions
from longrein.tools.arguments import edit_distance, fit_arguments, malformed_arguments_message
from longrein.tools.ask_user import ASK_USER
from longrein.tools.builtin import builtin_tools, own_tools
from longrein.tools.foreign_calls import own_calls
from longrein.tools.planning import EXIT_PLAN_MODE, goal_tools
from longrein.tools.registry import make_tool, tool
from longrein.tools.skill import (
    SKILL,
    SkillBody,
    SkillInfo,
    SkillLibrary,
    Style,
    catalogue,
    find_skill,
    skill_content,
)
from longrein.tools.structured_output import STRUCTURED_OUTPUT, structured_output_tool
from longrein.tools.subagent import agent_tool, report_text
from longrein.tools.text_encoding import clean
from longrein.tools.tool_port import (
    BackgroundedCommand,
    Blobs,
    CommandSurroundings,
    FileVersion,
    LoadedText,
    Outcome,
    OutputSlice,
    SessionFiles,
    SessionServices,
    ShellCommand,
    SkillPort,
    SubagentPort,
    SubagentReport,
    SubagentTask,
    SubagentType,
    TaskPort,
    TaskView,
    Tool,
    ToolContext,
)
from longrein.tools.tool_search import (
    EDITORS,
    DeferralPolicy,
    alias_names,
    bad_arguments_message,
    for_offered,
    is_foreign,
    named_tools,
    offer_tools,
    own_name,
    tools_by_name,
    unknown_call_message,
)
from longrein_context.lazy_names import names_at_first_use

if TYPE_CHECKING:
    from longrein.tools.argument_substitution import Piece, substitute
    from longrein.tools.calls_in_text import read_text_calls
    from longrein.tools.diff import change_of, hunks_of

__getattr__ = names_at_first_use(
    __name__,
    {
        "diff": "change_of hunks_of",
        "argument_substitution": "Piece substitute",
        "calls_in_text": "read_text_calls",
    },
)

__all__ = [
    "ASK_USER",
    "EDITORS",
    "EXIT_PLAN_MODE",
    "SKILL",
    "STRUCTURED_OUTPUT",
    "BackgroundedCommand",
    "Blobs",
    "CommandSurroundings",
    "DeferralPolicy",
    "FileVersion",
    "LoadedText",
    "Outcome",
    "OutputSlice",
    "Piece",
    "SessionFiles",
    "SessionServices",
    "ShellCommand",
    "SkillBody",
    "SkillInfo",
    "SkillLibrary",
    "SkillPort",
    "Style",
    "SubagentPort",
    "SubagentReport",
    "SubagentTask",
    "SubagentType",
    "TaskPort",
    "TaskView",
    "Tool",
    "ToolContext",
    "ToolOptions",
    "agent_tool",
    "alias_names",
    "bad_arguments_message",
    "builtin_tools",
    "catalogue",
    "change_of",
    "clean",
    "edit_distance",
    "find_skill",
    "fit_arguments",
    "for_offered",
    "goal_tools",
    "hunks_of",
    "is_foreign",
    "make_tool",
    "malformed_arguments_message",
    "named_tools",
    "offer_tools",
    "own_calls",
    "own_name",
    "own_tools",
    "read_text_calls",
    "report_text",
    "skill_content",
    "structured_output_tool",
    "substitute",
    "tool",
    "tools_by_name",
    "unknown_call_message",
]
