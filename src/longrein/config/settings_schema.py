"""Schema of the settings: kind of each value, what a project's file may set, checks, environment variables."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from longrein.permissions import check_rule, rule_tool
from longrein.tools import edit_distance, own_tools

MODES = ("plan", "default", "acceptEdits", "bypassPermissions")
"""Permission modes, narrowest first."""
PROFILES = ("default", "seed", "seed-later", "seed-new", "seed-framework")
POLICIES = ("ask", "keep", "stop")
"""Policies for background tasks when longrein exits."""
BACKGROUND_MODES = ("exit", "drain", "steer")
"""Policies of a headless run for background work at its end."""
TASK_OPTIONS = ("promote", "wake", "wake_after_s", "stall_s", "timeout_s")
"""Settings of `tasks` that are options of the agent under the same names."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "max")
WIRES = ("anthropic", "openai-chat", "openai-responses", "gemini", "scripted")

KEYS: Mapping[str, tuple[str, str]] = {
    # key: (kind of value, what a project's file may do: free, narrow, add or no)
    "model": ("model", "free"),
    "fallback_model": ("model", "free"),
    "compact_model": ("model", "free"),
    "permission_mode": ("mode", "narrow"),
    "profile": ("profile", "free"),
    "permissions.allow": ("allow", "no"),
    "permissions.ask": ("rules", "add"),
    "permissions.deny": ("rules", "add"),
    "providers.*.wire": ("wire", "no"),
    "providers.*.base_url": ("text", "no"),
    "providers.*.api_key_env": ("text", "no"),
    "providers.*.headers": ("headers", "no"),
    "providers.*.text_tools": ("flag", "no"),
    "providers.*.idle_timeout_s": ("size", "no"),
    "providers.*.content_timeout_s": ("size", "no"),
    "models.*.window": ("size", "no"),
    "models.*.max_output": ("size", "no"),
    "models.*.effort": ("effort", "no"),
    "models.*.price_input": ("number", "no"),
    "models.*.price_output": ("number", "no"),
    "models.*.price_cache_read": ("number", "no"),
    "models.*.price_cache_write": ("number", "no"),
    "models.*.cache_ttl_s": ("number", "no"),
    "tools.bash_timeout_s": ("number", "free"),
    "tools.bash_timeout_max_s": ("number", "free"),
    "tools.output_inline_bytes": ("count", "free"),
    "tools.output_bytes_max": ("count", "free"),
    "tools.head_bytes": ("count", "free"),
    "tools.tail_bytes": ("count", "free"),
    "tools.read_lines_max": ("count", "free"),
    "tools.read_bytes_max": ("count", "free"),
    "tools.line_chars_max": ("count", "free"),
    "tools.keep_bytes_max": ("count", "free"),
    "limits.max_turns": ("count", "narrow"),
    "limits.max_budget_usd": ("number", "narrow"),
    "limits.parallel_max": ("size", "narrow"),
    "limits.memory_mb": ("count", "narrow"),
    "limits.agents_max": ("size", "narrow"),
    "limits.agents_depth": ("size", "narrow"),
    "limits.agents_spawns": ("size", "narrow"),
    "tasks.keep_hours": ("number", "narrow"),
    "tasks.quota_mb": ("size", "narrow"),
    "tasks.memory_mb": ("count", "narrow"),
    "tasks.cpu_s": ("number", "narrow"),
    "tasks.max": ("size", "narrow"),
    "tasks.policy": ("policy", "no"),
    "tasks.promote": ("flag", "free"),
    "tasks.wake": ("flag", "free"),
    "tasks.wake_after_s": ("number", "free"),
    "tasks.stall_s": ("number", "free"),
    "tasks.timeout_s": ("number", "narrow"),
    "tasks.background": ("stay", "no"),
    "tasks.background_s": ("number", "no"),
    "context.files": ("names", "free"),
    "context.bytes_max": ("count", "free"),
    "env.keep": ("names", "no"),
    "redact.patterns": ("patterns", "add"),
    "redact.env": ("names", "add"),
}

LISTS = ("permissions.allow", "permissions.ask", "permissions.deny", "env.keep", "redact.patterns", "redact.env")
"""Lists that a nearer layer adds to. Other values are replaced."""

FLAGS: Mapping[str, tuple[str, str]] = {
    # field of the command line: (key, flag)
    "model": ("model", "--model"),
    "permission_mode": ("permission_mode", "--permission-mode"),
    "profile": ("profile", "--profile"),
    "max_turns": ("limits.max_turns", "--max-turns"),
    "max_budget_usd": ("limits.max_budget_usd", "--max-budget-usd"),
    "background": ("tasks.background", "--background"),
    "allowed_tools": ("permissions.allow", "--allowed-tools"),
    "disallowed_tools": ("permissions.deny", "--disallowed-tools"),
}


def _variable(key: str) -> str:
    return "LONGREIN_" + (key if key.startswith("tasks.") else key.rpartition(".")[2]).replace(".", "_").upper()


VARIABLES: Mapping[str, str] = {
    _variable(key): key
    for key, (kind, _) in KEYS.items()
    if "*" not in key and kind in ("model", "mode", "profile", "policy", "stay", "count", "size", "number")
}
"""Environment variable -> key, for all single values: named by the key's last word, those of `tasks` by both."""

OTHER_VARIABLES = (
    "LONGREIN_STATE_DIR",
    "LONGREIN_SESSION",
    "LONGREIN_COMMAND",
    "LONGREIN_DEPTH",
    "LONGREIN_TEST_TAG",
    "LONGREIN_SUBAGENT_MODEL",
)
"""Variables that are not settings."""


def pattern_of(path: Sequence[str]) -> str:
    """Return the key of `KEYS` for a path: `providers.mock.wire` becomes `providers.*.wire`."""
    if len(path) == 3 and path[0] in ("providers", "models"):
        return f"{path[0]}.*.{path[2]}"
    return ".".join(path)


def dotted(path: Sequence[str]) -> str:
    """Return a path as TOML spells it: `models."mock/small".window`."""
    return ".".join(n if n.replace("_", "").replace("-", "").isalnum() and n.isascii() else f'"{n}"' for n in path)


def nearest(word: str, words: Sequence[str]) -> str:
    """Return the word with the fewest typos, if these are at most a third of its letters; else ''."""
    scored = sorted((edit_distance(word, other), i) for i, other in enumerate(words))
    if scored and scored[0][0] <= max(1, len(word) // 3):
        return words[scored[0][1]]
    return ""


# --- Checking values -------------------------------------------------------------------------------------------------


_CHOICES = {
    "mode": MODES,
    "profile": PROFILES,
    "wire": WIRES,
    "effort": EFFORTS,
    "policy": POLICIES,
    "stay": BACKGROUND_MODES,
}
COUNT_MAX = 2**53
"""Larger numbers are typos."""


def problem_with(kind: str, value: Any) -> str:
    """Return the problem of a value, to follow its key in a message; '' without one."""
    if kind in _CHOICES:
        return (
            "" if value in _CHOICES[kind] else f"must be one of {', '.join(_CHOICES[kind])}, not {_shown_value(value)}"
        )
    if kind == "model":
        return (
            "" if isinstance(value, str) and _is_model(value) else f"must be PROVIDER/MODEL, not {_shown_value(value)}"
        )
    if kind in ("text", "flag"):
        right = isinstance(value, str if kind == "text" else bool)
        return "" if right else f"must be {'a text' if kind == 'text' else 'true or false'}, not {_shown_value(value)}"
    if kind in ("count", "size", "number"):
        return _number_problem(kind, value)
    if kind == "headers":
        right = isinstance(value, dict) and all(isinstance(v, str) and "\n" not in v for v in value.values())
        return "" if right else f"must be a table of texts, not {_shown_value(value)}"
    return _list_problem(kind, value)


def _number_problem(kind: str, value: Any) -> str:
    types, least = (int, float) if kind == "number" else int, 1 if kind == "size" else 0
    right = isinstance(value, types) and not isinstance(value, bool) and least <= value <= COUNT_MAX
    what = "a number" if kind == "number" else "a whole number"
    return "" if right else f"must be {what} of {least} or more, not {_shown_value(value)}"


def _list_problem(kind: str, value: Any) -> str:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        return f"must be a list of texts, not {_shown_value(value)}"
    for item in value:
        problem = ""
        if kind in ("rules", "allow"):
            problem = check_rule(item, kind) or ""
        elif kind == "patterns":
            problem = _pattern_problem(item)
        if problem:
            return f"{_shown_value(item)}: {problem}"
    return ""


def _pattern_problem(pattern: str) -> str:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        return f"is no regular expression ({error})"
    return "matches the empty text" if compiled.match("") else ""


def _is_model(name: str) -> bool:
    provider, slash, model = name.partition("/")
    return bool(provider and slash and model) and name.isprintable() and " " not in name


def _shown_value(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return text if len(text) <= 60 else text[:57] + "…"


def from_text(kind: str, text: str) -> Any:
    """Convert the value of an environment variable. Invalid numbers stay text and are refused later."""
    if kind in ("count", "size", "number"):
        try:
            return int(text)
        except ValueError:
            pass
    if kind == "number":
        try:
            return float(text)
        except ValueError:
            pass
    return text


# --- Tool names in rules ---------------------------------------------------------------------------------------------
# A typo in a tool's name would make a rule without effect.


OWN_TOOLS = tuple(tool.spec.name for tool in own_tools())
FOREIGN_TOOLS = (
    *("MultiEdit", "NotebookEdit", "NotebookRead", "LS", "WebFetch", "WebSearch", "Skill", "SlashCommand", "Task"),
    *("TaskCreate", "TaskGet", "TaskUpdate", "BashOutput", "KillShell", "KillBash", "AskUserQuestion", "Monitor"),
    *("EnterPlanMode", "ExitPlanMode", "EnterWorktree", "ExitWorktree", "LSP", "CronCreate", "CronList", "CronDelete"),
    *("SendMessage", "PowerShell", "ListMcpResources", "ReadMcpResource"),
)
"""Tools of other agents, whose rules users copy into settings."""


def unknown_tool(rule: str) -> str:
    """Return a warning for a rule of an unknown tool; '' for known tools and those of servers (`mcp__…`)."""
    name = rule_tool(rule)
    if name.startswith("mcp_") or name in FOREIGN_TOOLS or name in OWN_TOOLS:
        return ""
    if name.endswith("*") and any(one.startswith(name[:-1]) for one in (*OWN_TOOLS, *FOREIGN_TOOLS)):
        return ""
    same = next((one for one in OWN_TOOLS if one.lower() == name.lower()), "") or nearest(name, OWN_TOOLS)
    return f"no tool is called {name}{f': did you mean {same}?' if same else '.'} The rule has no effect."
