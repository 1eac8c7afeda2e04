"""The interactive terminal. Imported only for interactive use, because it imports prompt_toolkit
and rich.
"""

from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.command_types import Outcome
from longrein.frontends.terminal.terminal_run import run_terminal

__all__ = ["Outcome", "Row", "run_terminal"]
