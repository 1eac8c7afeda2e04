"""Files of other agents in the folder and in the home: which are used here, which are not, and why.

`KINDS` has one row for each kind of file. Nothing is read here except settings files of other
agents that are not used, or only in part, to tell what is ignored in them.
"""

import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from longrein.config.claude_settings import OWN_KEYS, USED_KEYS
from longrein.config.instructions import project_root
from longrein.config.settings_file import shorten_home
from longrein.config.skill_files import PROJECT_FOLDERS as SKILL_FOLDERS
from longrein.config.skill_files import USER_FOLDERS as USER_SKILL_FOLDERS
from longrein.config.skill_library import OPENCODE_FILES
from longrein.config.skill_library import PROJECT_FOLDERS as COMMAND_FOLDERS
from longrein.config.skill_library import USER_FOLDERS as USER_COMMAND_FOLDERS
from longrein.config.user_environment import read_table
from longrein.permissions import escape

Use = Literal["used", "partly", "not used"]
Trusted = Literal["yes", "no"]

SETTINGS_BYTES_MAX = 256 * 1024
NAMED_MAX = 4
"""Files named in the line at the start."""


class FoundKind(msgspec.Struct, frozen=True):
    """A kind of file that an agent leaves in a folder."""

    path: str
    """Below the project; below the home with `~/`."""
    what: str
    """Description of the file, for display."""
    use: Use
    page: str = "docs/skills.md"
    """Page of the documentation that tells more."""
    why: str = ""
    """Reason why the file, or a part of it, is not used."""
    known: tuple[str, ...] = ()
    """Keys that are used of a settings file that is used in part; () where keys are not looked
    at.
    """


class FoundFile(msgspec.Struct, frozen=True):
    """A file or folder of such a kind that exists."""

    path: str
    """For display."""
    kind: FoundKind
    use: Use
    why: str = ""
    matters: str = ""
    """Ignored part that the user may rely on, such as `hooks`; '' for nothing."""
    unknown: str = ""
    """Other keys that are ignored."""

    @property
    def line(self) -> str:
        """Line for `longrein doctor`."""
        reason = f" ({self.why})" if self.why else ""
        ignored = f"; ignored in it: {self.ignored}" if self.ignored else ""
        page = f"; {self.kind.page}" if self.use == "not used" else ""
        return f"{self.path}: {self.kind.what}: {self.use}{reason}{ignored}{page}"

    @property
    def ignored(self) -> str:
        """Keys that are ignored; '' for none."""
        return self.matters or self.unknown

    @property
    def is_left(self) -> bool:
        """True if some of the file is not used, as far as can be determined."""
        return self.use == "not used" or (
            self.use == "partly" and (not self.kind.known or bool(self.unknown))
        )


def found_files(cwd: str, home: str, *, trusted: bool) -> tuple[FoundFile, ...]:
    """Return the files of other agents in the project and in the home, in the order of `KINDS`.

    Costs one system call for each row, and reads at most a few settings files.
    """
    root, found = project_root(cwd), []
    for kind in KINDS:
        for path in _places(kind.path, root, cwd, home):
            if os.path.lexists(path):
                found.append(_found(path, kind, home, trusted=trusted))
    return tuple(_shadowed(found))


def found_note(found: tuple[FoundFile, ...], *, quiet: bool = False) -> str:
    """Return the line for the start; '' when there is nothing to say.

    With `quiet`, only files are named in which something is ignored that the user may rely on.
    """
    left = [
        one for one in found if one.is_left and (one.matters or not quiet) and not _untrusted(one)
    ]
    if not left:
        return ""
    named = ", ".join(
        f"{one.path} ({one.ignored} ignored)" if one.ignored else one.path
        for one in left[:NAMED_MAX]
    )
    more = f" and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
    used = sum(one.use == "used" for one in found)
    rest = f"; {used} other files of agents are used" if used and not quiet else ""
    return f"found and not used: {named}{more}{rest}; `longrein doctor` says why"


def _places(path: str, root: str, cwd: str, home: str) -> tuple[str, ...]:
    if path.startswith("~/"):
        return (f"{home.rstrip('/')}/{path[2:]}",)
    folders = dict.fromkeys((cwd, root))
    return tuple(f"{folder.rstrip('/')}/{path}" for folder in folders if folder != home)


def _found(path: str, kind: FoundKind, home: str, *, trusted: bool) -> FoundFile:
    shown = escape(shorten_home(path, home) if kind.path.startswith("~/") else kind.path)
    if not trusted and not kind.path.startswith("~/"):
        return FoundFile(shown, kind, "not used", UNTRUSTED)
    table = (
        read_table(path, shown, SETTINGS_BYTES_MAX, comments=True)[0]
        if path.endswith((".json", ".jsonc")) and (kind.known or kind.use == "not used")
        else {}
    )
    unknown = [escape(name)[:40] for name in table if name not in kind.known] if kind.known else []
    more = [f"{len(unknown) - NAMED_MAX} more"] if len(unknown) > NAMED_MAX else []
    matters = "" if kind.known else _ignored_rules(table)
    return FoundFile(
        shown, kind, kind.use, kind.why, matters, ", ".join([*unknown[:NAMED_MAX], *more])
    )


UNTRUSTED = "this folder is not trusted: `longrein trust` changes that"


def _untrusted(one: FoundFile) -> bool:
    """Return whether the line about a folder that is not trusted names the file already."""
    return one.why == UNTRUSTED


def _ignored_rules(table: Mapping[str, Any]) -> str:
    """Return `hooks`, `deny rules` or both where a settings file that is not used has them."""
    permissions = table.get("permissions")
    denies = isinstance(permissions, Mapping) and bool(permissions.get("deny"))
    return " and ".join(
        filter(None, ("hooks" if table.get("hooks") else "", "deny rules" if denies else ""))
    )


def _shadowed(found: list[FoundFile]) -> list[FoundFile]:
    """Mark instruction files beside a stronger one: of each folder only the first of
    `INSTRUCTIONS` is read.
    """
    present = [name for name in INSTRUCTIONS if any(one.path == name for one in found)]
    if len(present) < 2:
        return found
    return [
        msgspec.structs.replace(one, use="not used", why=f"{present[0]} beside it is read instead")
        if one.path in present[1:] and one.use == "used"
        else one
        for one in found
    ]


# --- Kinds ----------------------------------------------------------------------------------------


INSTRUCTIONS = (
    *("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "GEMINI.md"),
)
"""Of each folder the first that exists is read."""
_PLUGIN_PARTS = "their skills and commands; not their hooks and servers"
_HOOKS = "their events have other names; write them to .claude/settings.json"
_AIDER = "name the files of its `read` in context.files"
_IMPORT = "`longrein import {}` takes over your own"


def _rows(
    use: Use, what: str, page: str, *paths: str, why: str = "", known: tuple[str, ...] = ()
) -> tuple[FoundKind, ...]:
    return tuple(FoundKind(path, what, use, page, why, known) for path in paths)


KINDS = (
    *_rows(
        "used", "instructions", "docs/trust.md", *INSTRUCTIONS, "CLAUDE.local.md", "AGENTS.local.md"
    ),
    *_rows(
        "used",
        "instructions",
        "docs/trust.md",
        ".claude/rules",
        "~/.agents/AGENTS.md",
        *(
            "~/.claude/CLAUDE.md",
            "~/.claude/rules",
            "~/.codex/AGENTS.md",
            "~/.gemini/GEMINI.md",
            "~/.config/opencode/AGENTS.md",
        ),
    ),
    *_rows(
        "not used",
        "instructions",
        "docs/trust.md",
        *(
            ".cursor/rules",
            ".cursorrules",
            ".github/copilot-instructions.md",
            ".windsurfrules",
            ".goosehints",
        ),
        *(
            ".clinerules",
            "CRUSH.md",
            "CONVENTIONS.md",
            "AGENT.md",
            "QWEN.md",
        ),
        *(
            ".windsurf/rules",
            ".github/instructions",
            ".roo/rules",
            ".roorules",
            ".rules",
            ".continue/rules",
        ),
        *(
            ".junie/guidelines.md",
            ".kiro/steering",
            ".augment/rules",
            ".amazonq/rules",
            ".trae/rules",
        ),
        why="name it in context.files to have it read, or import it with @ in AGENTS.md",
    ),
    *_rows(
        "used",
        "subagent types",
        "docs/subagents.md",
        ".claude/agents",
        ".agents/agents",
        ".longrein/agents",
    ),
    *_rows("used", "subagent types", "docs/subagents.md", "~/.claude/agents", "~/.agents/agents"),
    *_rows(
        "not used",
        "subagent types",
        "docs/subagents.md",
        *(
            ".opencode/agents",
            ".opencode/agent",
            ".gemini/agents",
            ".codex/agents",
            "~/.codex/agents",
        ),
        *(
            "~/.config/opencode/agents",
            "~/.config/opencode/agent",
            "~/.gemini/agents",
            ".cursor/agents",
        ),
        *(".github/agents", ".github/chatmodes", ".roomodes"),
        why="copy the markdown files to .agents/agents",
    ),
    *_rows(
        "used",
        "skills",
        "docs/skills.md",
        *SKILL_FOLDERS,
        *(f"~/{name}" for name in USER_SKILL_FOLDERS),
    ),
    *_rows("used", "commands", "docs/skills.md", *(name for name, _ in COMMAND_FOLDERS)),
    *_rows(
        "used", "commands", "docs/skills.md", *(f"~/{name}" for name, _ in USER_COMMAND_FOLDERS)
    ),
    *_rows(
        "not used",
        "commands",
        "docs/skills.md",
        *(".github/prompts", ".windsurf/workflows", ".roo/commands", ".continue/prompts"),
        why="copy the markdown files to .agents/commands",
    ),
    *_rows(
        "partly",
        "plugins",
        "docs/skills.md",
        ".agents/plugins",
        "~/.agents/plugins",
        why=_PLUGIN_PARTS,
    ),
    *_rows(
        "partly",
        "plugins",
        "docs/skills.md",
        "~/.claude/plugins/installed_plugins.json",
        why=_PLUGIN_PARTS,
    ),
    *_rows(
        "partly",
        "settings of Claude Code",
        "docs/hooks.md",
        *(".claude/settings.json", ".claude/settings.local.json"),
        why="hooks that you have confirmed, rules that deny or ask",
        known=USED_KEYS,
    ),
    *_rows(
        "partly",
        "settings of Claude Code",
        "docs/hooks.md",
        "~/.claude/settings.json",
        why="permissions, env, model, hooks, statusLine",
        known=(*OWN_KEYS, "enabledPlugins"),
    ),
    *_rows(
        "not used",
        "looks of Claude Code",
        "docs/coming-from.md",
        *(".claude/output-styles", "~/.claude/output-styles", "~/.claude/keybindings.json"),
        why="longrein has none",
    ),
    *_rows("used", "MCP servers", "docs/mcp.md", ".mcp.json", "~/.claude.json"),
    *_rows("used", "hooks of Codex", "docs/hooks.md", ".codex/hooks.json", "~/.codex/hooks.json"),
    *_rows(
        "not used",
        "settings of Codex",
        "docs/hooks.md",
        ".codex/config.toml",
        why=_IMPORT.format("codex"),
    ),
    *_rows(
        "not used",
        "settings of Codex",
        "docs/hooks.md",
        "~/.codex/config.toml",
        why=_IMPORT.format("codex"),
    ),
    *_rows(
        "not used",
        "settings of Gemini CLI",
        "docs/hooks.md",
        *(".gemini/settings.json", "~/.gemini/settings.json"),
        why=_IMPORT.format("gemini"),
    ),
    *_rows(
        "partly",
        "settings of opencode",
        "docs/skills.md",
        *(*OPENCODE_FILES, "~/.config/opencode/opencode.json", "~/.config/opencode/opencode.jsonc"),
        why=f"its commands; {_IMPORT.format('opencode')}",
        known=("command", "$schema"),
    ),
    *_rows(
        "not used",
        "MCP servers of an editor",
        "docs/mcp.md",
        *(
            ".cursor/mcp.json",
            ".vscode/mcp.json",
            "~/.cursor/mcp.json",
            ".roo/mcp.json",
            ".kiro/settings/mcp.json",
        ),
        *("~/.codeium/windsurf/mcp_config.json",),
        why="copy what you need to .mcp.json",
    ),
    *_rows(
        "not used",
        "hooks of an editor",
        "docs/hooks.md",
        ".cursor/hooks.json",
        ".github/hooks",
        why=_HOOKS,
    ),
    *_rows(
        "not used",
        "plugins",
        "docs/library.md",
        *(
            ".opencode/plugin",
            ".opencode/plugins",
            "~/.config/opencode/plugin",
            "~/.gemini/extensions",
        ),
        why="programs of another agent",
    ),
    *_rows(
        "not used",
        "settings of aider",
        "docs/settings.md",
        ".aider.conf.yml",
        "~/.aider.conf.yml",
        why=_AIDER,
    ),
)
"""In the order of the lines. `use` says whether longrein uses such a file."""
