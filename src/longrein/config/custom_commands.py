"""Custom slash commands from files: `.claude/commands/**/*.md` and those of other agents.

The folder decides which placeholders a file has: `$0` is the first argument in files of Claude Code, `$1` in those of
opencode and Codex, `{{args}}` stands for all of them in those of Gemini CLI.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from longrein.config.environment import config_dir
from longrein.config.frontmatter import split_frontmatter
from longrein.config.settings_file import shorten_home
from longrein.config.skills import (
    InvalidSkill,
    Notes,
    SkillFolder,
    SkillSource,
    existing_folders,
    read_text_file,
    skill_info,
    text_field,
)
from longrein.permissions import escape
from longrein.tools import SkillInfo, Style

PROJECT_FOLDERS: tuple[tuple[str, Style], ...] = (
    (".longrein/commands", "claude"),
    (".agents/commands", "claude"),
    (".claude/commands", "claude"),
    (".cursor/commands", "claude"),
    (".opencode/commands", "opencode"),
    (".opencode/command", "opencode"),
    (".codex/prompts", "codex"),
    (".gemini/commands", "gemini"),
)
"""(folder, its placeholders), below each folder from the current one up to the project's root, in this order."""
USER_FOLDERS: tuple[tuple[str, Style], ...] = (
    (".agents/commands", "claude"),
    (".claude/commands", "claude"),
    (".cursor/commands", "claude"),
    (".config/opencode/commands", "opencode"),
    (".config/opencode/command", "opencode"),
    (".codex/prompts", "codex"),
    (".gemini/commands", "gemini"),
)
"""The same below the home, after longrein's own."""
SUMMARY_CHARS_MAX = 120
"""Characters of a first line that stands for a description."""


def command_folders(
    cwd: str, home: str, environ: Mapping[str, str], trusted: Callable[[str], bool]
) -> Iterator[SkillFolder]:
    """Yield the existing folders of commands, nearest first."""
    yield from existing_folders(cwd, home, trusted, PROJECT_FOLDERS)
    own: list[tuple[str, Style]] = [(f"{config_dir(environ, home)}/commands", "claude")]
    own += [(f"{home}/{name}", style) for name, style in USER_FOLDERS]
    yield from (SkillFolder(path, "", style=style) for path, style in own if os.path.isdir(path))


def read_command(path: str, folder: SkillFolder, home: str, notes: Notes) -> SkillInfo:
    """Read the head of a command's file. Raises `InvalidSkill`."""
    fields, text = command_parts(read_text_file(path, folder.root), folder.style)
    if not text.strip():
        raise InvalidSkill("has no text")
    shown = escape(shorten_home(path, home))
    described = " ".join(text_field(fields.get("description")).split())
    return skill_info(
        fields,
        _name(path, folder),
        escape(described or _first_line(text)),
        SkillSource(path, folder, shown, "command", home),
        notes,
        for_model=folder.style == "claude" and bool(described),
    )


def command_parts(text: str, style: Style) -> tuple[Mapping[str, Any], str]:
    """Return (fields, text) of a command's file. Raises `InvalidSkill`."""
    if style != "gemini":
        try:
            return split_frontmatter(text)
        except ValueError as error:
            raise InvalidSkill(f"its head is no YAML ({error})") from None
    import tomllib  # only for files of Gemini CLI

    try:
        fields = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidSkill(f"is no TOML ({error})") from None
    prompt = fields.get("prompt")
    if not isinstance(prompt, str):
        raise InvalidSkill("has no `prompt`")
    return fields, prompt


def _name(path: str, folder: SkillFolder) -> str:
    """Return the name: the file's; in a sub-folder with its path where the agent does so."""
    inner = os.path.relpath(path, folder.path).rpartition(".")[0]
    match folder.style:
        case "claude":
            return os.path.basename(inner)
        case "gemini":
            return inner.replace("/", ":")
        case "codex":
            return f"prompts:{os.path.basename(inner)}"
        case _:
            return inner


def _first_line(text: str) -> str:
    line = next((line.strip().lstrip("#").strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= SUMMARY_CHARS_MAX else line[: SUMMARY_CHARS_MAX - 1] + "…"
