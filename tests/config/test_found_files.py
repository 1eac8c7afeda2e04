"""Files of other agents: each kind is told, with the reason where it is not used; a start costs
next to nothing.
"""

import json
from pathlib import Path

import pytest

from longrein.config.other_agent_files import KINDS, NAMED_MAX, found_files, found_note
from tests.config.conftest import ConfigFolders

HOOKS = json.dumps({"hooks": {"PreToolUse": []}, "permissions": {"deny": ["Read(.env)"]}})
PLAIN = json.dumps({"hooks": {}, "permissions": {"allow": ["Bash(ls)"]}})


def put(folder: Path, name: str, text: str = "x") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def lines(folders: ConfigFolders, *, trusted: bool = True) -> list[str]:
    return [one.line for one in found_files(str(folders.cwd), str(folders.home), trusted=trusted)]


def note(folders: ConfigFolders, *, trusted: bool = True, quiet: bool = False) -> str:
    return found_note(
        found_files(str(folders.cwd), str(folders.home), trusted=trusted), quiet=quiet
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.path)
def test_each_kind_is_found_and_says_whether_it_is_used(
    folders: ConfigFolders, kind: object
) -> None:
    path = kind.path  # type: ignore[attr-defined]
    put(folders.home if path.startswith("~/") else folders.cwd, path.removeprefix("~/"), "{}")
    [line] = lines(folders)
    assert line.startswith(f"{path}: {kind.what}: {kind.use}")  # type: ignore[attr-defined]
    assert kind.use == "used" or "(" in line, "a reason"  # type: ignore[attr-defined]


TOOLS = {
    "claude": "CLAUDE.md .claude/settings.json .claude/agents .claude/skills .claude/commands "
    ".mcp.json ~/.claude/CLAUDE.md ~/.claude/settings.json ~/.claude/output-styles",
    "codex": "AGENTS.md .codex/config.toml .codex/hooks.json ~/.codex/AGENTS.md ~/.codex/prompts "
    "~/.codex/config.toml",
    "gemini": "GEMINI.md .gemini/settings.json .gemini/commands ~/.gemini/GEMINI.md "
    "~/.gemini/extensions",
    "opencode": "opencode.json .opencode/command .opencode/agent .opencode/plugin "
    "~/.config/opencode/opencode.json",
    "cursor": ".cursorrules .cursor/rules .cursor/mcp.json .cursor/commands .cursor/hooks.json",
    "copilot": ".github/copilot-instructions.md .github/instructions .github/prompts "
    ".github/agents .vscode/mcp.json",
    "windsurf": ".windsurfrules .windsurf/rules .windsurf/workflows "
    "~/.codeium/windsurf/mcp_config.json",
    "cline": ".clinerules",
    "aider": "CONVENTIONS.md .aider.conf.yml",
    "roo": ".roo/rules .roomodes .roo/mcp.json",
    "goose": ".goosehints .goose/skills",
    "crush": "CRUSH.md",
    "kiro": ".kiro/steering .kiro/settings/mcp.json",
    "junie": ".junie/guidelines.md",
    "continue": ".continue/rules .continue/prompts",
}
"""Files that each agent leaves by its own documentation."""


@pytest.mark.parametrize("tool", TOOLS)
def test_the_files_of_every_agent_are_listed_and_told_in_one_line(
    folders: ConfigFolders, tool: str
) -> None:
    names = TOOLS[tool].split()
    for name in names:
        put(folders.home if name.startswith("~/") else folders.cwd, name.removeprefix("~/"), "{}")
    assert {line.partition(": ")[0] for line in lines(folders)} == set(names)
    left = [line for line in lines(folders) if ": not used" in line]
    assert all(f"{one.partition(': ')[0]}" in note(folders) for one in left[:1])
    assert "\n" not in note(folders)


@pytest.mark.parametrize(
    ("name", "text", "ignored"),
    [
        (".claude/settings.json", {"statusLine": {}, "env": {}, "hooks": {}}, "statusLine"),
        (
            "~/.claude/settings.json",
            {"enabledPlugins": {}, "theme": "dark", "b": 1, "c": 1, "d": 1, "e": 1},
            None,
        ),
        ("opencode.json", {"command": {}, "mcp": {}, "agent": {}}, "mcp, agent"),
        ("opencode.json", {"command": {}}, ""),
        (".claude/settings.json", {"permissions": {"deny": ["Read"]}}, ""),
    ],
)
def test_unknown_keys_of_settings_are_said(
    folders: ConfigFolders, name: str, text: dict[str, object], ignored: str | None
) -> None:
    put(
        folders.home if name.startswith("~/") else folders.cwd,
        name.removeprefix("~/"),
        json.dumps(text),
    )
    ignored = "theme, b, c, d, 1 more" if ignored is None else ignored
    [line] = lines(folders)
    assert line.partition("; ignored in it: ")[2] == ignored
    assert note(folders) == (
        f"found and not used: {name} ({ignored} ignored); `longrein doctor` says why"
        if ignored
        else ""
    )
    assert note(folders, quiet=True) == ""


def test_no_row_names_a_page_that_is_missing() -> None:
    root = Path(__file__).parents[2]
    assert not [kind.page for kind in KINDS if not (root / kind.page).is_file()]


def test_nothing_is_said_where_nothing_was_found(folders: ConfigFolders) -> None:
    assert lines(folders) == []
    assert note(folders) == ""


def test_a_stronger_instruction_file_shadows_the_others(folders: ConfigFolders) -> None:
    for name in ("CLAUDE.md", "AGENTS.md", "CLAUDE.local.md"):
        put(folders.cwd, name)
    assert lines(folders) == [
        "AGENTS.md: instructions: used",
        "CLAUDE.md: instructions: not used (AGENTS.md beside it is read instead); docs/trust.md",
        "CLAUDE.local.md: instructions: used",
    ]


def test_files_of_a_folder_without_trust_are_told_by_doctor_alone(folders: ConfigFolders) -> None:
    put(folders.cwd, "CLAUDE.md")
    found = lines(folders, trusted=False)[0]
    assert "not used (this folder is not trusted: `longrein trust` changes that)" in found
    assert note(folders, trusted=False) == ""  # the line about trust names them


@pytest.mark.parametrize(("text", "ignored"), [
    (HOOKS, "hooks and deny rules"),
    (PLAIN, ""),
    ("[]", ""),
    ("{", ""),
    ("{" * 100_000, ""),
    ('{"hooks": ' + "[" * 5_000 + "]" * 5_000 + "}", ""),
    ('{"permissions": 3, "hooks": {"Stop": []}}', "hooks"),
])  # fmt: skip
def test_a_headless_run_says_only_what_matters(
    folders: ConfigFolders, text: str, ignored: str
) -> None:
    put(folders.cwd, "a.example.json", text)
    put(folders.cwd, ".gemini/settings.json", text)
    assert (f"ignored in it: {ignored}" in lines(folders)[0]) == bool(ignored)
    said = note(folders, quiet=True)
    assert said == (
        f"found and not used: .gemini/settings.json ({ignored} ignored); `longrein doctor` says why"
        if ignored
        else ""
    )
    assert note(folders)


def test_the_line_at_the_start_stays_one_line(folders: ConfigFolders) -> None:
    for kind in KINDS:
        put(
            folders.home if kind.path.startswith("~/") else folders.cwd,
            kind.path.removeprefix("~/") + "",
            "{}",
        )
    said = note(folders)
    assert "\n" not in said
    assert said.count(", ") == NAMED_MAX - 1


def test_a_large_settings_file_and_a_folder_in_its_place_are_not_read(
    folders: ConfigFolders,
) -> None:
    put(folders.cwd, ".codex/hooks.json", HOOKS + " " * 300_000)
    put(folders.home, ".codex/hooks.json/x")
    assert all("ignored" not in line for line in lines(folders))
