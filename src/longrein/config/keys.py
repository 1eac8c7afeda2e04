"""Every setting there is: what it holds and how far a project's own file may set it."""

from collections.abc import Mapping, Sequence

MODES = ("plan", "default", "acceptEdits", "bypassPermissions")
"""From the narrowest to the widest."""
PROFILES = ("default", "seed", "seed-later", "seed-new", "seed-framework")
POLICIES = ("ask", "keep", "stop")
"""What becomes of background tasks when longrein is left."""
STAYS = ("exit", "drain", "steer")
"""What a headless run does about work in the background when its answer is done."""
TASK_OPTIONS = ("promote", "wake", "wake_after_s", "stall_s", "timeout_s")
"""Settings of `tasks` that are options of the agent by the same names."""
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
"""Lists that a nearer layer adds to; any other value it replaces."""

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
"""Environment variable to key, for all single values: by the key's last word, those of `tasks` by both."""

OTHER_VARIABLES = (
    "LONGREIN_STATE_DIR",
    "LONGREIN_SESSION",
    "LONGREIN_COMMAND",
    "LONGREIN_DEPTH",
    "LONGREIN_TEST_TAG",
    "LONGREIN_SUBAGENT_MODEL",
)
"""Variables that are no settings."""


def pattern_of(path: Sequence[str]) -> str:
    """The key in `KEYS` that a path of names would have: `providers.mock.wire` is `providers.*.wire`."""
    if len(path) == 3 and path[0] in ("providers", "models"):
        return f"{path[0]}.*.{path[2]}"
    return ".".join(path)


def dotted(path: Sequence[str]) -> str:
    """A path as TOML spells it: `models."mock/small".window`."""
    return ".".join(n if n.replace("_", "").replace("-", "").isalnum() and n.isascii() else f'"{n}"' for n in path)


def nearest(word: str, words: Sequence[str]) -> str:
    """The word that takes the fewest slips (a letter, or two swapped), if these are at most a third of it; else ''."""
    scored = sorted((_changes(word, other), i) for i, other in enumerate(words))
    if scored and scored[0][0] <= max(1, len(word) // 3):
        return words[scored[0][1]]
    return ""


def _changes(a: str, b: str) -> int:
    two_ago, row = [0] * (len(b) + 1), list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            new.append(min(row[j] + 1, new[j - 1] + 1, row[j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                new[j] = min(new[j], two_ago[j - 2] + 1)
        two_ago, row = row, new
    return row[-1]
