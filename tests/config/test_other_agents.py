"""Settings of other agents (A9, A10): what counts of `.claude/settings.json`, and what `longrein
import` takes over.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from longrein.config import load_settings
from longrein.config.settings_import import AGENTS, apply_changes, find_settings, planned_changes
from longrein.settings_schema import Settings
from longrein_context.events import SettingsError


class Files:
    """A home and a project."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        (self.project / ".git").mkdir(parents=True)
        self.home.mkdir()

    def write(self, name: str, content: Any) -> None:
        path = (self.home if name.startswith("~") else self.project) / name.removeprefix("~/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    def load(self, *, trusted: bool = True, **environ: str) -> Settings:
        where = {"cwd": str(self.project), "home": str(self.home), "environ": environ, "flags": {}}
        return load_settings(**where, trusted=trusted)  # type: ignore[arg-type]

    def take(self, agent: str) -> list[str]:
        """Import, write, and return what was not taken over."""
        found = find_settings(agent, str(self.home), {})
        apply_changes(planned_changes(found, str(self.home), {}), str(self.home))
        return found.left


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


RULES = {
    "allow": ["Bash(git *)"],
    "ask": ["Bash(git push *)"],
    "deny": ["Read(./.env)"],
    "defaultMode": "acceptEdits",
}
WHOLE = {"permissions": RULES, "env": {"FOO": "bar"}, "model": "opus"}


# --- What counts ----------------------------------------------------------------------------------


def test_the_users_own_file_counts_below_longreins_own(files: Files) -> None:
    files.write("~/.claude/settings.json", WHOLE)
    settings = files.load()
    permissions = settings.permissions
    found = (permissions.allow, permissions.ask, permissions.deny)
    assert found == (("Bash(git *)",), ("Bash(git push *)",), ("Read(./.env)",))
    found = (settings.permission_mode, settings.variables, settings.model)
    assert found == ("acceptEdits", (("FOO", "bar"),), "")
    assert settings.origin["permissions.deny"] == "~/.claude/settings.json"
    files.write("~/.config/longrein/config.toml", "permission_mode = 'plan'\n")
    assert files.load().permission_mode == "plan"
    files.write("~/.config/longrein/config.toml", "[other_agents]\nread = false\n")
    assert files.load().permissions == Settings().permissions


def test_the_model_counts_where_its_key_is_there(files: Files) -> None:
    files.write("~/.claude/settings.json", {"model": "opus"})
    assert files.load(ANTHROPIC_API_KEY="x").model.startswith("anthropic/claude-opus")
    files.write("~/.claude/settings.json", {"model": "unheard-of"})
    assert files.load(ANTHROPIC_API_KEY="x").model == ""


def test_a_project_only_narrows(files: Files) -> None:
    files.write(".claude/settings.json", WHOLE)
    assert files.load(trusted=False).permissions == Settings().permissions
    settings = files.load()
    found = (settings.permissions.allow, settings.permission_mode, settings.variables)
    assert found == ((), "default", ())
    found = (settings.permissions.ask, settings.permissions.deny)
    assert found == (("Bash(git push *)",), ("Read(./.env)",))
    assert len(settings.notes) == 1
    assert "permissions.allow, permissions.defaultMode, env, model not used" in settings.notes[0]


def test_a_project_that_the_user_has_listed_may_widen(files: Files) -> None:
    files.write(".claude/settings.json", WHOLE)
    files.write("~/.config/longrein/config.toml", f'[other_agents]\nfull = ["{files.project}"]\n')
    settings = files.load()
    assert (settings.permissions.allow, settings.variables) == (("Bash(git *)",), (("FOO", "bar"),))
    assert settings.notes == ()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"permissions": {"defaultMode": "bypassPermissions"}},
            "defaultMode 'bypassPermissions' not used",
        ),
        ({"permissions": {"allow": ["Bad("]}}, "permissions.allow 'Bad('"),
        ({"permissions": {"allow": "Bash"}}, "permissions.allow is no list"),
        ({"permissions": {"deny": [7]}}, "permissions.deny '7'"),
        ({"permissions": []}, "permissions is no object"),
        ({"permissions": {"additionalDirectories": ["/nonexistent"]}}, "is no folder"),
        ({"env": {"A": 1}}, "env.A is no variable with a text"),
        ({"env": {"A=B": "x"}}, "env.A=B is no variable with a text"),
        ({"env": {"": "x"}}, "env. is no variable with a text"),
        ({"env": {"A": "x\0"}}, "env.A is no variable with a text"),
        ({"env": "x"}, "env is no object"),
        ({"permissions": {"denny": ["Read(.env)"]}}, "permissions.denny is not known and not used"),
        ({"permissions": {"Deny": ["Read(.env)"]}}, "did you mean deny?"),
        ({"permisions": {"deny": ["Read(.env)"]}}, "did you mean permissions?"),
    ],
)
def test_what_is_wrong_is_named(files: Files, table: Any, said: str) -> None:
    files.write("~/.claude/settings.json", table)
    notes = files.load().notes
    assert len(notes) == 1
    assert said in notes[0]


def test_further_folders(files: Files, tmp_path: Path) -> None:
    (files.home / "notes").mkdir()
    files.write(
        "~/.claude/settings.json",
        {"permissions": {"additionalDirectories": ["~/notes", str(tmp_path)]}},
    )
    assert files.load().folders == (str(files.home / "notes"), str(tmp_path))


def test_a_path_of_the_users_own_allow_rule_is_relative_to_that_file(files: Files) -> None:
    files.write(
        "~/.claude/settings.json",
        {"permissions": {"allow": ["Edit(/notes/**)", "Edit(//tmp/x)", "Edit(src/*)"]}},
    )
    allow = files.load().permissions.allow
    assert allow == (f"Edit(/{files.home}/.claude/notes/**)", "Edit(//tmp/x)", "Edit(src/*)")


def test_a_path_of_a_project_s_rule_is_relative_to_the_project(files: Files) -> None:
    files.write(".claude/settings.json", {"permissions": {"deny": ["Edit(/src/**)", "Read(.env)"]}})
    assert files.load().permissions.deny == (f"Edit(/{files.project}/src/**)", "Read(.env)")


# --- Import ---------------------------------------------------------------------------------------


CODEX = """
model = "gpt-5"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
notify = ["x"]
[sandbox_workspace_write]
network_access = true
[mcp_servers.docs]
command = "docs-server"
"""
GEMINI = """{ // a comment
  "tools": {"allowed": ["run_shell_command(git)"], "exclude": ["nope"]},
  "model": {"name": "gemini-2.5-pro"}, "context": {"fileName": "NOTES.md"}, "ui": {"theme": "x"},
}"""
OPENCODE = {
    "model": "anthropic/claude-sonnet-4-5",
    "permission": {"edit": "ask", "bash": {"git *": "allow", "rm *": "deny"}},
    "mcp": {"x": {"type": "local", "command": ["npx", "y"]}, "off": {"enabled": False}},
}
CLAUDE = {**WHOLE, "hooks": {"PreToolUse": [{"hooks": []}]}, "statusLine": {}}
GIT = {"permissions.allow": ("Bash(git *)",)}
OF_CLAUDE = {**GIT, "permission_mode": "acceptEdits", "env.keep": ("FOO",)}
NOT_OF_CLAUDE = ["env FOO", "model opus", "statusLine"]
OF_CODEX = {"model": "openai/gpt-5", "permission_mode": "default", "sandbox.network": ("*",)}
OF_GEMINI = {**GIT, "model": "gemini/gemini-2.5-pro"}
OF_OPENCODE = {
    **GIT,
    "model": "anthropic/claude-sonnet-4-5",
    "permissions.ask": ("Edit",),
    "permissions.deny": ("Bash(rm *)",),
}
OPENCODE_FILE = "~/.config/opencode/opencode.json"
IMPORTS = [
    ("claude", "~/.claude/settings.json", CLAUDE, OF_CLAUDE, NOT_OF_CLAUDE),
    ("codex", "~/.codex/config.toml", CODEX, OF_CODEX, ["notify"]),
    ("gemini", "~/.gemini/settings.json", GEMINI, OF_GEMINI, ["rule nope", "ui"]),
    ("opencode", OPENCODE_FILE, OPENCODE, OF_OPENCODE, ["MCP server off"]),
]


def value(settings: Settings, key: str) -> Any:
    table, _, name = key.rpartition(".")
    return getattr(getattr(settings, table) if table else settings, name)


@pytest.mark.parametrize(("agent", "name", "content", "wanted", "left"), IMPORTS)
def test_import(
    files: Files, agent: str, name: str, content: Any, wanted: dict[str, Any], left: list[str]
) -> None:
    files.write(name, content)
    not_taken = files.take(agent)
    assert [line for line in not_taken if not line.startswith(tuple(left))] == []
    assert len(not_taken) == len(left)
    (files.home / ".claude/settings.json").unlink(missing_ok=True)
    settings = files.load(ANTHROPIC_API_KEY="")
    assert {key: value(settings, key) for key in wanted} == wanted
    files.write(name, content)
    assert planned_changes(find_settings(agent, str(files.home), {}), str(files.home), {}) == [], (
        "a second time: nothing"
    )


def test_import_leaves_hooks_where_they_run(files: Files) -> None:
    """A copy in longrein's own file would run beside them."""
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}
    files.write("~/.claude/settings.json", {"hooks": hooks})
    files.write("~/.codex/hooks.json", {"hooks": hooks})
    for agent in ("claude", "codex"):
        found = find_settings(agent, str(files.home), {})
        assert found.read_anyway == ["hooks (while other_agents.read is true)"]
        assert planned_changes(found, str(files.home), {}) == []


def test_import_of_a_wide_sandbox_chooses_no_mode(files: Files) -> None:
    wide = 'sandbox_mode = "danger-full-access"\napproval_policy = "never"\n'
    files.write("~/.codex/config.toml", wide)
    left = files.take("codex")
    assert [line.partition(": ")[2] for line in left] == [
        "set permission_mode yourself if you want it",
        "set sandbox.mode yourself if you want it",
    ]
    assert files.load().permission_mode == "default"


def test_import_keeps_what_is_there(files: Files) -> None:
    before = '# mine\nmodel = "mock/small"\n\n[permissions]\n# rules\nallow = ["Bash(ls)"]\n'
    files.write("~/.config/longrein/config.toml", before)
    files.write("~/.config/opencode/opencode.json", OPENCODE)
    left = files.take("opencode")
    text = (files.home / ".config/longrein/config.toml").read_text()
    assert "# mine" in text
    assert "# rules" in text
    settings = files.load()
    assert settings.model == "mock/small"
    assert set(settings.permissions.allow) == {"Bash(ls)", "Bash(git *)"}
    assert any("you have set it to mock/small" in line for line in left)


def test_import_gives_the_names_of_instruction_files_beside_the_usual_ones(files: Files) -> None:
    files.write("~/.gemini/settings.json", GEMINI)
    files.take("gemini")
    assert files.load().context.files == ("NOTES.md", *Settings().context.files)


@pytest.mark.parametrize("agent", sorted(AGENTS))
@pytest.mark.parametrize(
    "content", ["{", "[]", '{"permissions": 7, "permission": [], "tools": 1, "mcp": 3}', "\0"]
)
def test_import_of_broken_files_says_so(files: Files, agent: str, content: str) -> None:
    names = ("~/.claude/settings.json", "~/.codex/config.toml", "~/.gemini/settings.json")
    for name in (
        *names,
        "~/.config/opencode/opencode.json",
        "~/.claude.json",
        "~/.codex/hooks.json",
    ):
        files.write(name, content)
    files.take(agent)


def test_import_into_a_broken_file_changes_nothing(files: Files) -> None:
    files.write("~/.config/longrein/config.toml", "[[[")
    files.write("~/.config/opencode/opencode.json", OPENCODE)
    with pytest.raises(SettingsError):
        files.take("opencode")
