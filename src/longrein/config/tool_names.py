"""Names of tools that rules may speak of: a slip in one would make a rule that forbids nothing, without a word."""

from longrein.config.keys import nearest
from longrein.permissions import rule_tool

OWN = (
    *("Read", "Write", "Edit", "Bash", "Grep", "Glob", "TodoWrite", "Recall", "Compact", "Agent", "ToolSearch"),
    *("CallTool", "TaskList", "TaskOutput", "TaskStop", "TaskInput", "GoalAdd", "GoalUpdate", "GoalList"),
)
"""Those of longrein."""
OTHERS = (
    *("MultiEdit", "NotebookEdit", "NotebookRead", "LS", "WebFetch", "WebSearch", "Skill", "SlashCommand", "Task"),
    *("TaskCreate", "TaskGet", "TaskUpdate", "BashOutput", "KillShell", "KillBash", "AskUserQuestion", "Monitor"),
    *("EnterPlanMode", "ExitPlanMode", "EnterWorktree", "ExitWorktree", "LSP", "CronCreate", "CronList", "CronDelete"),
    *("SendMessage", "PowerShell", "ListMcpResources", "ReadMcpResource"),
)
"""Those of other agents whose rules are copied into settings."""


def unknown_tool(rule: str) -> str:
    """What to say of a rule whose tool nobody knows; '' where it is known, or a server's own (`mcp__…`)."""
    name = rule_tool(rule)
    if name.startswith("mcp_") or name in OTHERS or name in OWN:
        return ""
    if name.endswith("*") and any(one.startswith(name[:-1]) for one in (*OWN, *OTHERS)):
        return ""
    same = next((one for one in OWN if one.lower() == name.lower()), "") or nearest(name, OWN)
    return f"no tool is called {name}{f': did you mean {same}?' if same else '.'} The rule has no effect."
