"""Import of the settings of other agents into the user's own: what would be taken over, and what
cannot be.

Rules, mode, model, names of variables and networks go into `config.toml`, hooks into `hooks.json`,
servers into `mcp.json`, each beside it. Nothing that is there already is changed.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from longrein.config.claude_settings import NO_SKILL_COMMANDS, USED_KEYS, read_own
from longrein.config.settings_file import (
    KEYS,
    dotted,
    read_text,
    shorten_home,
    store_text,
    values_of,
    with_values,
)
from longrein.config.user_environment import agent_folder, config_dir, read_table, user_file
from longrein.permissions import check_rule, escape
from longrein.permissions.hook_protocol import EVENTS
from longrein.tools import own_name, own_tools
from longrein_context.events import SettingsError


class Found(msgspec.Struct):
    """Contents of another agent's files, in the terms of longrein."""

    files: list[str] = []
    """Files that were read, for display."""
    lists: dict[str, list[str]] = {}
    """Key such as `permissions.allow` -> texts to add."""
    values: dict[str, Any] = {}
    """Key such as `model` -> value."""
    servers: dict[str, Any] = {}
    """MCP servers by name, as in `.mcp.json`."""
    hooks: dict[str, list[Any]] = {}
    """Event -> groups, as in `hooks.json`."""
    left: list[str] = []
    """Entries that cannot be taken over, one line each."""
    read_anyway: list[str] = []
    """Settings, skills and commands that longrein reads in their present place."""

    def add(self, key: str, *texts: str) -> None:
        """Add texts to a list of settings."""
        known = self.lists.setdefault(key, [])
        known += [text for text in texts if text not in known]

    def add_rules(self, kind: str, rules: Any) -> None:
        """Add permission rules; an invalid one is named."""
        for rule in rules if isinstance(rules, list) else []:
            problem = (
                check_rule(rule, "allow" if kind == "allow" else "")
                if isinstance(rule, str)
                else "is no text"
            )
            if problem:
                self.left.append(f"rule {str(rule)[:80]} ({kind}): {problem}")
            else:
                self.add(f"permissions.{kind}", rule)

    def add_servers(self, servers: Any) -> None:
        """Add MCP servers that a command or an address describes."""
        for name, server in servers.items() if isinstance(servers, dict) else ():
            if isinstance(server, dict) and (server.get("command") or server.get("url")):
                self.servers[name] = server
            else:
                self.left.append(f"MCP server {name}: neither a command nor an address")

    def add_hooks(self, table: Any) -> None:
        """Add hooks of events that longrein has."""
        for event, groups in table.items() if isinstance(table, dict) else ():
            if event in EVENTS and isinstance(groups, list):
                self.hooks.setdefault(event, []).extend(groups)
            else:
                self.left.append(f"hooks of {event}: longrein has no such event")


# --- Reading: one function for each agent ---------------------------------------------------------


class _Source:
    """Files of another agent."""

    def __init__(self, home: str, environ: Mapping[str, str]) -> None:
        self.home, self.environ = home, environ
        self.found = Found()

    def table(self, path: str, *, comments: bool = False) -> dict[str, Any]:
        """Read a JSON or TOML file; {} where it is missing or malformed, which is then named."""
        shown = shorten_home(path, self.home)
        table, problem = read_table(path, shown, comments=comments)
        if problem:
            self.found.left.append(problem)
        elif os.path.exists(path):
            self.found.files.append(shown)
        return table

    def leave(self, table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
        """Name the keys of a table that are not taken over."""
        self.found.left += [
            f"{name} of {where}: no such setting" for name in table if name not in known
        ]


def _read_claude(source: _Source) -> None:
    folder = agent_folder("claude", source.environ, source.home)
    table, found = source.table(f"{folder}/settings.json"), source.found
    own = read_own(source.home, source.environ)
    found.left += own.notes
    for one in own.values:
        if one.path[0] == "permissions":
            found.add(dotted(one.path), *one.value)
        elif one.path == ("permission_mode",):
            found.values["permission_mode"] = one.value
    if own.folders:
        found.read_anyway.append(
            "permissions.additionalDirectories (while other_agents.read is true)"
        )
    if variables := dict(own.variables):
        found.add("env.keep", *variables)
        found.left.append(
            f"values of {', '.join(sorted(variables))}: export them in your shell; only names are "
            "kept"
        )
    if own.model:
        found.left.append(
            f"model {own.model}: write it as PROVIDER/MODEL, such as anthropic/claude-sonnet-4-5"
        )
    found.add_hooks(table.get("hooks"))
    found.add_servers(source.table(f"{source.home}/.claude.json").get("mcpServers"))
    if table.get(NO_SKILL_COMMANDS) is True:
        found.read_anyway.append(f"{NO_SKILL_COMMANDS} (while other_agents.read is true)")
    source.leave(table, USED_KEYS, "settings.json")
    for name, what in (
        ("agents", "subagent types"),
        ("commands", "commands"),
        ("skills", "skills"),
    ):
        if os.path.isdir(f"{folder}/{name}"):
            found.read_anyway.append(f"{what} in {shorten_home(folder, source.home)}/{name}")


_CODEX_MODES = {
    "untrusted": "default",
    "on-request": "default",
    "on-failure": "auto",
    "never": "auto",
}


def _read_codex(source: _Source) -> None:
    folder = agent_folder("codex", source.environ, source.home)
    table, found = source.table(f"{folder}/config.toml"), source.found
    sandbox, approval = table.get("sandbox_mode"), table.get("approval_policy")
    if sandbox == "read-only":
        found.values["permission_mode"] = "plan"
    elif sandbox == "danger-full-access":
        found.left.append(
            "sandbox_mode danger-full-access: set sandbox.mode and permission_mode yourself if "
            "you want it"
        )
    elif isinstance(approval, str) and approval in _CODEX_MODES:
        found.values["permission_mode"] = _CODEX_MODES[approval]
    if sandbox == "workspace-write":
        found.values["sandbox.mode"] = "auto"
    details = _table(table, "sandbox_workspace_write")
    if details.get("network_access") is True:
        found.add("sandbox.network", "*")
    found.add(
        "sandbox.write", *(one for one in details.get("writable_roots", []) if isinstance(one, str))
    )
    if isinstance(model := table.get("model"), str):
        provider = str(table.get("model_provider", "openai"))
        found.values["model"] = f"{provider}/{model}"
    found.add_servers(table.get("mcp_servers"))
    found.add("env.keep", *_texts(_table(table, "shell_environment_policy").get("include_only")))
    found.add_hooks(source.table(f"{folder}/hooks.json").get("hooks"))
    known = (
        "approval_policy",
        "sandbox_mode",
        "sandbox_workspace_write",
        "model",
        "model_provider",
        "mcp_servers",
    )
    source.leave(table, (*known, "shell_environment_policy"), "config.toml")
    if os.path.isdir(f"{folder}/prompts"):
        found.read_anyway.append(f"commands in {shorten_home(folder, source.home)}/prompts")


_GEMINI_MODES = {"default": "default", "auto_edit": "acceptEdits", "plan": "plan"}


def _read_gemini(source: _Source) -> None:
    table, found = source.table(f"{source.home}/.gemini/settings.json", comments=True), source.found
    tools, general = _table(table, "tools"), _table(table, "general")
    for kind, listed in (("allow", tools.get("allowed")), ("deny", tools.get("exclude"))):
        found.add_rules(
            kind, [rule for one in _texts(listed) if (rule := _gemini_rule(one, found))]
        )
    mode = general.get("defaultApprovalMode", tools.get("approvalMode"))
    if isinstance(mode, str) and mode in _GEMINI_MODES:
        found.values["permission_mode"] = _GEMINI_MODES[mode]
    elif mode:
        found.left.append(f"approval mode {mode}: set permission_mode yourself if you want it")
    name = _table(table, "model").get("name") or table.get("model")
    if isinstance(name, str):
        found.values["model"] = f"gemini/{name}"
    names = _table(table, "context").get("fileName")
    found.add("context.files", *(_texts(names) if isinstance(names, list) else _texts([names])))
    found.add_servers(table.get("mcpServers"))
    for event in _table(table, "hooks"):
        found.left.append(
            f"hooks of {event}: the events have other names; `gemini hooks migrate` shows the pairs"
        )
    source.leave(
        table,
        ("$schema", "tools", "general", "model", "context", "mcpServers", "hooks"),
        "settings.json",
    )
    if os.path.isdir(f"{source.home}/.gemini/commands"):
        found.read_anyway.append("commands in ~/.gemini/commands")


def _gemini_rule(written: str, found: Found) -> str:
    """Return a rule of longrein for one of Gemini, such as `run_shell_command(git status)`."""
    name, bracket, spec = written.partition("(")
    tools = {one.spec.name: one for one in own_tools()}
    tool = own_name(name, tools)
    if tool not in tools and not name.startswith("mcp"):
        found.left.append(f"rule {written[:80]}: no tool is called {name}")
        return ""
    spec = spec.removesuffix(")")
    return f"{tool}({spec} *)" if bracket and tool == "Bash" else written.replace(name, tool, 1)


def _read_opencode(source: _Source) -> None:
    folder, found = agent_folder("opencode", source.environ, source.home), source.found
    table = source.table(f"{folder}/opencode.json", comments=True) or source.table(
        f"{folder}/opencode.jsonc", comments=True
    )
    permission = table.get("permission")
    permission = (
        {"edit": permission, "bash": permission}
        if isinstance(permission, str)
        else _table(table, "permission")
    )
    for name, tool in (("edit", "Edit"), ("bash", "Bash"), ("webfetch", "WebFetch")):
        given = permission.get(name)
        for pattern, kind in ({"*": given} if isinstance(given, str) else given or {}).items():
            if kind in ("allow", "ask", "deny"):
                found.add_rules(kind, [tool if pattern == "*" else f"{tool}({pattern})"])
    for name in permission:
        if name not in ("edit", "bash", "webfetch"):
            found.left.append(f"permission.{name}: no such tool")
    for key, name in (("model", "model"), ("small_model", "compact_model")):
        if isinstance(value := table.get(key), str) and "/" in value:
            found.values[name] = value
    found.add_servers(table.get("mcp"))
    found.add(
        "context.files", *(name for name in _texts(table.get("instructions")) if "/" not in name)
    )
    if table.get("command"):
        found.read_anyway.append(f"commands in {found.files[-1]}")
    known = ("$schema", "permission", "model", "small_model", "mcp", "instructions", "command")
    source.leave(table, known, "opencode.json")


AGENTS: Mapping[str, Callable[[_Source], None]] = {
    "claude": _read_claude,
    "codex": _read_codex,
    "gemini": _read_gemini,
    "opencode": _read_opencode,
}
"""Agents whose settings can be imported."""


def find_settings(agent: str, home: str, environ: Mapping[str, str]) -> Found:
    """Read the settings of `agent`, one of `AGENTS`. Never raises for what they hold."""
    source = _Source(home, environ)
    AGENTS[agent](source)
    found = source.found
    found.lists = {key: texts for key, texts in found.lists.items() if texts}
    found.left = [escape(line) for line in dict.fromkeys(found.left)]
    return found


def _table(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = table.get(name)
    return found if isinstance(found, dict) else {}


def _texts(listed: Any) -> list[str]:
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []


# --- Writing --------------------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True):
    """New content of one of the user's files."""

    path: str
    text: str
    lines: tuple[str, ...]
    """Added lines, for display."""


def planned_changes(found: Found, home: str, environ: Mapping[str, str]) -> list[Change]:
    """Return the changes that take over what was found; raises `SettingsError` for a malformed
    file of the user.
    """
    folder = config_dir(environ, home)
    changes = [
        _settings_change(found, user_file(environ, home), home),
        _json_change(f"{folder}/mcp.json", "mcpServers", found.servers, "server", home),
        _json_change(f"{folder}/hooks.json", "hooks", found.hooks, "hooks of", home),
    ]
    return [change for change in changes if change.lines]


def _settings_change(found: Found, path: str, home: str) -> Change:
    shown = shorten_home(path, home)
    text = read_text(path, shown) or ""
    before = {dotted(value.path): value.value for value in values_of(text, shown)}
    new: dict[str, Any] = {}
    lines = []
    for key, value in found.values.items():
        if key not in before:
            new[key] = value
            lines.append(f"{key} = {value}")
        elif before[key] != value:
            found.left.append(f"{key} = {value}: you have set it to {before[key]}")
    for key, texts in found.lists.items():
        usual = KEYS[key].default if KEYS[key].setting.replaces else ()
        present = before.get(key, usual)
        if added := [one for one in texts if one not in before.get(key, ())]:
            new[key] = [*added, *present]
            lines += [f"{key}: {one}" for one in added]
    return Change(path, with_values(text, shown, new), tuple(map(escape, lines)))


def _json_change(path: str, name: str, new: Mapping[str, Any], what: str, home: str) -> Change:
    shown = shorten_home(path, home)
    table, problem = read_table(path, shown)
    if problem and new:
        raise SettingsError(problem)
    known = _table(table, name)
    added = {key: value for key, value in new.items() if key not in known}
    text = (
        msgspec.json.format(msgspec.json.encode({**table, name: {**known, **added}})).decode()
        + "\n"
    )
    return Change(path, text, tuple(escape(f"{what} {key}") for key in added))


def apply_changes(changes: Sequence[Change], home: str) -> None:
    """Write the changes. Raises `SettingsError`."""
    for change in changes:
        shown = shorten_home(change.path, home)
        store_text(change.path, shown, change.text, "mend that and import again")
