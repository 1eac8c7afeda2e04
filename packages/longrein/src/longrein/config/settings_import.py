"""Import of the settings of other agents into the user's own: what would be taken over, and what
cannot be.

`ROWS` is the table of what is read: for each agent the file, the key in it, its meaning, and the
setting of longrein. Rules, mode, model, names of variables and networks go into `config.toml`,
servers into `mcp.json` beside it. Nothing that is there already is changed. Hooks are read where
they stand: a copy of them would run a second time.
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
    left: list[str] = []
    """Entries that cannot be taken over, one line each."""
    provider: str = ""
    """Provider of a model that the agent names without one; '' where its names are whole."""
    read_anyway: list[str] = []
    """Settings, skills and commands that longrein reads in their present place."""

    def add(self, key: str, *texts: str) -> None:
        """Add texts to a list of settings."""
        known = self.lists.setdefault(key, [])
        known += [text for text in texts if text not in known]

    def add_rules(self, kind: str, rules: Sequence[Any]) -> None:
        """Add permission rules; an invalid one is named."""
        for rule in rules:
            problem = check_rule(rule, "allow" if kind == "allow" else "")
            if problem:
                self.left.append(f"rule {rule[:80]} ({kind}): {problem}")
            else:
                self.add(f"permissions.{kind}", rule)


class Row(msgspec.Struct, frozen=True):
    """A key of another agent's file: how it is taken over, or why it is not."""

    file: str
    """Below the agent's folder, or below the home with `~/`; of several the first with fields."""
    key: str
    """With a dot for a key in a table."""
    meaning: "Callable[[Found, Row, Any], None]"
    """Takes the value of the key into `Found`. Never raises for what it is."""
    setting: str = ""
    """Key of longrein, or the kind of a rule."""
    words: Mapping[str, str] = {}
    """Word of the agent -> value of the setting; '' where the setting stays as it is."""
    why: str = ""
    """Line for the user."""


# --- Meanings -------------------------------------------------------------------------------------


def _word(found: Found, row: Row, value: Any) -> None:
    """Take a word. One that longrein does not have is left, and no later row sets the same."""
    word = str(value)[:80]
    if word not in row.words:
        found.left.append(f"{row.key} {word}: set {row.setting} yourself if you want it")
        found.values.setdefault(row.setting, "")
    elif row.words[word]:
        found.values.setdefault(row.setting, row.words[word])


def _provider(found: Found, _: Row, value: Any) -> None:
    found.provider = str(value)


def _model(found: Found, row: Row, value: Any) -> None:
    if isinstance(value, str) and (found.provider or "/" in value):
        found.values[row.setting] = f"{found.provider}/{value}".removeprefix("/")


def _list(found: Found, row: Row, value: Any) -> None:
    found.add(row.setting, *_texts(value))


def _names(found: Found, row: Row, value: Any) -> None:
    """Take names of instruction files; a path is none."""
    found.add(row.setting, *(name for name in _texts(value) if "/" not in name))


def _network(found: Found, row: Row, value: Any) -> None:
    if value is True:
        found.add(row.setting, "*")


def _servers(found: Found, _: Row, value: Any) -> None:
    """Take MCP servers that a command or an address describes."""
    for name, server in value.items() if isinstance(value, dict) else ():
        if isinstance(server, dict) and (server.get("command") or server.get("url")):
            found.servers[name] = server
        else:
            found.left.append(f"MCP server {name}: neither a command nor an address")


def _gemini_rules(found: Found, row: Row, value: Any) -> None:
    """Take rules such as `run_shell_command(git status)`."""
    tools = {one.spec.name: one for one in own_tools()}
    for written in _texts(value):
        name, bracket, spec = written.partition("(")
        tool = own_name(name, tools)
        if tool not in tools and not name.startswith("mcp"):
            found.left.append(f"rule {written[:80]}: no tool is called {name}")
        elif bracket and tool == "Bash":
            found.add_rules(row.setting, [f"{tool}({spec.removesuffix(')')} *)"])
        else:
            found.add_rules(row.setting, [written.replace(name, tool, 1)])


_OPENCODE_TOOLS = ("edit", "bash", "webfetch")


def _opencode_rules(found: Found, _: Row, value: Any) -> None:
    """Take a table of tool -> decision, or -> pattern -> decision; or one decision for both."""
    tools = {one.spec.name: one for one in own_tools()}
    table = {"edit": value, "bash": value} if isinstance(value, str) else value
    for name, given in table.items() if isinstance(table, dict) else ():
        if name not in _OPENCODE_TOOLS:
            found.left.append(f"permission.{name}: no such tool")
            continue
        tool = own_name(name, tools)
        patterns = given if isinstance(given, dict) else {"*": given}
        for pattern, kind in patterns.items():
            if kind in ("allow", "ask", "deny"):
                found.add_rules(kind, [tool if pattern == "*" else f"{tool}({pattern})"])


def _left(found: Found, row: Row, value: Any) -> None:
    shown = ", ".join(value) if isinstance(value, dict) else str(value)
    found.left.append(f"{row.key} {shown[:200]}: {row.why}")


def _read_anyway(found: Found, row: Row, value: Any) -> None:
    if value:
        found.read_anyway.append(row.why)


# --- The table ------------------------------------------------------------------------------------


CLAUDE = "settings.json"
CODEX = "config.toml"
GEMINI = "settings.json"
OPENCODE = "opencode.json opencode.jsonc"
_GEMINI_MODES = {"default": "default", "auto_edit": "acceptEdits", "plan": "plan"}
_WHILE_READ = "(while other_agents.read is true)"
_FOLDERS = "permissions.additionalDirectories"

AGENTS: Mapping[str, Sequence[Row]] = {
    "claude": (
        Row(CLAUDE, _FOLDERS, _read_anyway, why=f"{_FOLDERS} {_WHILE_READ}"),
        Row(CLAUDE, NO_SKILL_COMMANDS, _read_anyway, why=f"{NO_SKILL_COMMANDS} {_WHILE_READ}"),
        Row(CLAUDE, "env", _left, why="export the values in your shell; only names are kept"),
        Row(
            CLAUDE,
            "model",
            _left,
            why="write it as PROVIDER/MODEL, such as anthropic/claude-sonnet-4-5",
        ),
        Row(CLAUDE, "hooks", _read_anyway, why=f"hooks {_WHILE_READ}"),
        Row("~/.claude.json", "mcpServers", _servers),
    ),
    "codex": (
        Row(
            CODEX,
            "sandbox_mode",
            _word,
            "permission_mode",
            {"read-only": "plan", "workspace-write": ""},
        ),
        Row(
            CODEX,
            "approval_policy",
            _word,
            "permission_mode",
            {
                "untrusted": "default",
                "on-request": "default",
                "on-failure": "auto",
                "never": "auto",
            },
        ),
        Row(
            CODEX,
            "sandbox_mode",
            _word,
            "sandbox.mode",
            {"read-only": "", "workspace-write": "auto"},
        ),
        Row(CODEX, "sandbox_workspace_write.network_access", _network, "sandbox.network"),
        Row(CODEX, "sandbox_workspace_write.writable_roots", _list, "sandbox.write"),
        Row(CODEX, "model_provider", _provider),
        Row(CODEX, "model", _model, "model"),
        Row(CODEX, "mcp_servers", _servers),
        Row(CODEX, "shell_environment_policy.include_only", _list, "env.keep"),
        Row("hooks.json", "hooks", _read_anyway, why=f"hooks {_WHILE_READ}"),
    ),
    "gemini": (
        Row(GEMINI, "tools.allowed", _gemini_rules, "allow"),
        Row(GEMINI, "tools.exclude", _gemini_rules, "deny"),
        Row(GEMINI, "general.defaultApprovalMode", _word, "permission_mode", _GEMINI_MODES),
        Row(GEMINI, "tools.approvalMode", _word, "permission_mode", _GEMINI_MODES),
        Row(GEMINI, "model", _model, "model"),
        Row(GEMINI, "model.name", _model, "model"),
        Row(GEMINI, "context.fileName", _names, "context.files"),
        Row(GEMINI, "mcpServers", _servers),
        Row(
            GEMINI,
            "hooks",
            _left,
            why="the events have other names; `gemini hooks migrate` shows the pairs",
        ),
    ),
    "opencode": (
        Row(OPENCODE, "permission", _opencode_rules),
        Row(OPENCODE, "model", _model, "model"),
        Row(OPENCODE, "small_model", _model, "compact_model"),
        Row(OPENCODE, "mcp", _servers),
        Row(OPENCODE, "instructions", _names, "context.files"),
        Row(OPENCODE, "command", _read_anyway, why="its commands"),
    ),
}
"""Agents whose settings can be imported. Other keys of the file of an agent's first row are named
as not taken over.
"""
PROVIDERS = {"codex": "openai", "gemini": "gemini"}
"""Agent -> provider of its models, where their names are without one."""
FOLDERS = {
    "claude": {"agents": "subagent types", "commands": "commands", "skills": "skills"},
    "codex": {"prompts": "commands"},
    "gemini": {"commands": "commands"},
    "opencode": {},
}
"""Agent -> folder that longrein reads where it stands -> what is in it."""


# --- Reading --------------------------------------------------------------------------------------


def find_settings(agent: str, home: str, environ: Mapping[str, str]) -> Found:
    """Read the settings of `agent`, one of `AGENTS`. Never raises for what they hold."""
    found = Found(provider=PROVIDERS.get(agent, ""))
    folder = agent_folder(agent, environ, home)
    rows = AGENTS[agent]
    if agent == "claude":
        _take_own(found, home, environ)
    tables: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row.file not in tables:
            tables[row.file] = _read(found, row.file, folder, home)
        value: Any = tables[row.file]
        for name in row.key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            row.meaning(found, row, value)
    known = {"$schema", *(row.key.partition(".")[0] for row in rows)}
    known.update(USED_KEYS if agent == "claude" else ())
    unknown = [name for name in tables[rows[0].file] if name not in known]
    found.left += [f"{name} of {rows[0].file.split()[0]}: no such setting" for name in unknown]
    for name, what in FOLDERS[agent].items():
        if os.path.isdir(f"{folder}/{name}"):
            found.read_anyway.append(f"{what} in {shorten_home(folder, home)}/{name}")
    found.lists = {key: texts for key, texts in found.lists.items() if texts}
    found.values = {key: value for key, value in found.values.items() if value}
    found.left = [escape(line) for line in dict.fromkeys(found.left)]
    return found


def _read(found: Found, files: str, folder: str, home: str) -> dict[str, Any]:
    """Return the first of `files` with fields; {} where none is there or it is malformed, which
    is then named.
    """
    table: dict[str, Any] = {}
    for name in files.split():
        path = f"{home}{name[1:]}" if name.startswith("~/") else f"{folder}/{name}"
        shown = shorten_home(path, home)
        table, problem = read_table(path, shown, comments=True)
        if problem:
            found.left.append(problem)
        elif os.path.exists(path):
            found.files.append(shown)
        if table:
            break
    return table


def _take_own(found: Found, home: str, environ: Mapping[str, str]) -> None:
    """Take rules, mode and names of variables from the file of Claude Code, which also counts
    where it stands.
    """
    own = read_own(home, environ)
    found.left += own.notes
    for one in own.values:
        if one.path[0] == "permissions":
            found.add(dotted(one.path), *one.value)
        elif one.path == ("permission_mode",):
            found.values["permission_mode"] = one.value
    found.add("env.keep", *dict(own.variables))


def _texts(listed: Any) -> list[str]:
    """Return the texts of a list; a text alone is a list of one."""
    listed = listed if isinstance(listed, list) else [listed]
    return [one for one in listed if isinstance(one, str)]


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
    changes = [
        _settings_change(found, user_file(environ, home), home),
        _servers_change(found, f"{config_dir(environ, home)}/mcp.json", home),
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


def _servers_change(found: Found, path: str, home: str) -> Change:
    table, problem = read_table(path, shorten_home(path, home))
    if problem and found.servers:
        raise SettingsError(problem)
    known = table.get("mcpServers")
    known = known if isinstance(known, dict) else {}
    added = {name: server for name, server in found.servers.items() if name not in known}
    encoded = msgspec.json.encode({**table, "mcpServers": {**known, **added}})
    text = msgspec.json.format(encoded).decode() + "\n"
    return Change(path, text, tuple(escape(f"server {name}") for name in added))


def apply_changes(changes: Sequence[Change], home: str) -> None:
    """Write the changes. Raises `SettingsError`."""
    for change in changes:
        shown = shorten_home(change.path, home)
        store_text(change.path, shown, change.text, "mend that and import again")
