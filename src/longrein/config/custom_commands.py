"""Custom slash commands from files: `.claude/commands/**/*.md` and those of other agents, also in
`opencode.json`.

The folder decides which placeholders a file has: `$0` is the first argument in files of Claude
Code, `$1` in those of opencode and Codex, `{{args}}` stands for all of them in those of Gemini CLI.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from longrein.config.bounded_file import parse_table
from longrein.config.environ import agent_folder, config_dir
from longrein.config.frontmatter import split_frontmatter
from longrein.config.settings_file import shorten_home
from longrein.config.skill_files import (
    InvalidSkill,
    Notes,
    SkillFolder,
    SkillSource,
    existing_folders,
    read_text_file,
    skill_info,
    text_field,
)
from longrein.events.escape import shortened
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
"""(folder, its placeholders), below each folder from the current one up to the project's root,
in this order.
"""
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
OPENCODE_FILES = (
    *("opencode.json", "opencode.jsonc"),
    *(".opencode/opencode.json", ".opencode/opencode.jsonc"),
)
"""Settings files of opencode with commands, in the folders of a project."""
SUMMARY_CHARS_MAX = 120
"""Characters of a first line that stands for a description."""
OPENCODE_COMMANDS_MAX = 500
"""Commands read of one settings file."""


def command_folders(
    cwd: str, home: str, environ: Mapping[str, str], trusted: Callable[[str], bool]
) -> Iterator[SkillFolder]:
    """Yield the existing folders of commands, nearest first."""
    yield from existing_folders(cwd, home, trusted, PROJECT_FOLDERS)
    own: list[tuple[str, Style]] = [(f"{config_dir(environ, home)}/commands", "claude")]
    own += [(f"{home}/{name}", style) for name, style in USER_FOLDERS]
    yield from (SkillFolder(path, "", style=style) for path, style in own if os.path.isdir(path))


def opencode_files(
    cwd: str, home: str, environ: Mapping[str, str], trusted: Callable[[str], bool]
) -> Iterator[SkillFolder]:
    """Yield the existing settings files of opencode, which may hold commands, nearest first."""
    names: list[tuple[str, Style]] = [(name, "opencode") for name in OPENCODE_FILES]
    yield from existing_folders(cwd, home, trusted, names, os.path.isfile)
    own = agent_folder("opencode", environ, home)
    for path in (f"{own}/{name}" for name in OPENCODE_FILES[:2]):
        if os.path.isfile(path):
            yield SkillFolder(path, "", style="opencode")


def read_opencode(path: str, folder: SkillFolder, home: str, notes: Notes) -> Sequence[SkillInfo]:
    """Read the commands in a settings file of opencode. Raises `InvalidSkill`."""
    shown, found = escape(shorten_home(path, home)), []
    for name, fields in islice(
        _opencode_commands(read_text_file(path, folder.root)).items(), OPENCODE_COMMANDS_MAX
    ):
        try:
            text = _template(fields)
            told = escape(
                " ".join(text_field(fields.get("description")).split()) or _first_line(text)
            )
            source = SkillSource(path, folder, shown, "command")
            found.append(skill_info(fields, name, told, source, notes, for_model=False))
        except InvalidSkill as problem:
            notes.add(escape(f"{shown}: command {name[:80]} {problem}: left out."))
    return found


def _opencode_commands(text: str) -> Mapping[str, Any]:
    try:
        commands = parse_table(text.encode(), comments=True).get("command")
    except ValueError as error:
        raise InvalidSkill(f"is no JSON ({error})") from None
    return (
        {"-".join(name.split()): fields for name, fields in commands.items()}
        if isinstance(commands, dict)
        else {}
    )


def _template(fields: Any) -> str:
    text = fields.get("template") if isinstance(fields, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise InvalidSkill("has no `template`")
    return text


def command_text(skill: SkillInfo, text: str) -> str:
    """Return the text of a command from the text of its file. Raises `InvalidSkill`."""
    if skill.style == "opencode" and not skill.path.endswith(".md"):
        return _template(_opencode_commands(text).get(skill.name))
    return command_parts(text, skill.style)[1]


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
            raise InvalidSkill(f"has a head that is no YAML ({error})") from None
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
    line = next(
        (line.strip().lstrip("#").strip() for line in text.splitlines() if line.strip()), ""
    )
    return shortened(line, SUMMARY_CHARS_MAX)
