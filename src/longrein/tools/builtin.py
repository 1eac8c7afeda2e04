"""The built-in tools in their fixed order: the order of their schemas in every request."""

from longrein.tools.bash import BASH
from longrein.tools.compact import COMPACT
from longrein.tools.edit import EDIT
from longrein.tools.glob import GLOB
from longrein.tools.grep import GREP
from longrein.tools.port import Tool
from longrein.tools.read import READ
from longrein.tools.recall import RECALL
from longrein.tools.tasks import TASK_TOOLS
from longrein.tools.todo import TODO_WRITE
from longrein.tools.write import WRITE

BUILTIN: tuple[Tool, ...] = (READ, WRITE, EDIT, BASH, GREP, GLOB, TODO_WRITE, RECALL, COMPACT, *TASK_TOOLS)


def builtin_tools() -> tuple[Tool, ...]:
    """All built-in tools, always in the same order."""
    return BUILTIN
