"""The model's hands: functions whose signature and docstring are the tool."""

from longrein.tools.port import Access, FileVersion, Hands, Outcome, Tool, ToolOptions

__all__ = ["Access", "FileVersion", "Hands", "Outcome", "Tool", "ToolOptions"]
