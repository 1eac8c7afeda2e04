"""Skills and custom commands of a session, read from disk again whenever they are asked for."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from longrein.config.frontmatter import split_frontmatter
from longrein.config.instructions import folders_between, imports, leads_out, project_root
from longrein.config.plugins import plugin_folders
from longrein.config.settings_file import shorten_home
from longrein.config.skill_files import PROJECT_FOLDERS as SKILL_FOLDERS
from longrein.config.skill_files import (
    SKILL_FILES,
    SKIPPED,
    InvalidSkill,
    Notes,
    SkillFolder,
    SkillSource,
    Walk,
    existing_folders,
    read_skill,
    read_text_file,
    skill_folders,
    skill_info,
    text_field,
)
from longrein.config.user_environment import agent_folder, config_dir, parse_table
from longrein.permissions import escape
from longrein.tools import SkillBody, SkillInfo, Style
from longrein_context.events import ToolError
from longrein_context.events.escape import shortened

RESOURCES_MAX = 40
"""Files of a skill's folder that are named."""
RESOURCES_LOOKED_MAX = 1_000
"""Entries looked at for these names."""
COMMANDS_MAX = 500
"""Commands read of one folder."""

Reader = Callable[[str, SkillFolder, str, Notes], SkillInfo | Sequence[SkillInfo]]
Stamp = tuple[str, int, int, str, str]


class SkillFiles:
    """Implement `tools.SkillLibrary` on files. A file is parsed again when it has changed."""

    def __init__(
        self,
        cwd: str,
        home: str,
        environ: Mapping[str, str],
        trusted: Callable[[str], bool],
        plugins: Sequence[str] = (),
        only: Sequence[str] | None = None,
    ) -> None:
        """`trusted`: whether the user trusts a folder; asked only where it has skills or commands.

        `plugins`: folders of plugins that flags name. `only`: names of the skills and commands
        that the model may load; None for all.
        """
        self._plugins, self._only = plugins, only
        self._cwd = cwd
        self._home = home
        self._environ = environ
        self._trusted = trusted
        self._project = project_root(cwd)
        self._parsed: dict[Stamp, tuple[Sequence[SkillInfo], Notes]] = {}
        self._roots: dict[str, str] = {}
        """Path of a file -> folder that it must not leave."""
        self.notes: tuple[str, ...] = ()
        """Lines for the user about the last scan."""

    def all(self) -> Sequence[SkillInfo]:
        notes, walk = Notes(), Walk()
        plugin_skills, plugin_commands = plugin_folders(
            self._cwd, self._home, self._trusted, self._plugins
        )
        skills = (
            *skill_folders(self._cwd, self._home, self._environ, self._trusted),
            *plugin_skills,
        )
        commands = (
            *command_folders(self._cwd, self._home, self._environ, self._trusted),
            *plugin_commands,
        )
        found: dict[str, SkillInfo] = {}
        for folder in skills:
            walk.root = folder.root
            self._add(found, walk.skills(folder.path), folder, read_skill, notes)
        for folder in commands:
            walk.root = folder.root
            ending = ".toml" if folder.style == "gemini" else ".md"
            self._add(
                found,
                islice(walk.files(folder.path, ending), COMMANDS_MAX),
                folder,
                read_command,
                notes,
            )
        for folder in opencode_files(self._cwd, self._home, self._environ, self._trusted):
            self._add(found, iter((folder.path,)), folder, read_opencode, notes)
        if walk.left <= 0:
            notes.add(
                "There are more folders of skills and commands than are looked into: some were "
                "left out."
            )
        self.notes = notes.all()
        return self._chosen(found)

    def nested(self, folder: str) -> Sequence[SkillInfo]:
        root = self._project
        notes = Notes()
        walk = Walk()
        found: dict[str, SkillInfo] = {}
        if not folder.startswith(self._cwd.rstrip("/") + "/"):
            return ()
        for below in reversed(folders_between(self._cwd, folder)[1:]):
            paths = [path for name in SKILL_FOLDERS if os.path.isdir(path := f"{below}/{name}")]
            for path in paths if paths and self._trusted(below) else ():
                self._add(found, walk.skills(path), SkillFolder(path, root), read_skill, notes)
        return self._chosen(found)

    def _chosen(self, found: Mapping[str, SkillInfo]) -> list[SkillInfo]:
        """Return skills by name; those that are not chosen are for the user only."""
        skills = [found[name] for name in sorted(found)]
        if self._only is None:
            return skills
        return [
            one if one.name in self._only else msgspec.structs.replace(one, for_model=False)
            for one in skills
        ]

    def body(self, skill: SkillInfo) -> SkillBody:
        try:
            text = read_text_file(skill.path, self._roots.get(skill.path, ""))
            if skill.kind == "command":
                text = escape(command_text(skill, text))
                return SkillBody(text, tuple(imports(text)) if skill.style != "gemini" else ())
            text = escape(split_frontmatter(text)[1])
        except (InvalidSkill, ValueError) as problem:
            raise ToolError(f"[skill] {skill.source}: {problem}.") from None
        names = list(islice(_resources(skill.folder), RESOURCES_MAX + 1))
        return SkillBody(
            text, (), tuple(names[:RESOURCES_MAX]), more_resources=len(names) > RESOURCES_MAX
        )

    def _add(
        self,
        found: dict[str, SkillInfo],
        paths: Iterator[str],
        folder: SkillFolder,
        read: Reader,
        notes: Notes,
    ) -> None:
        """Add the skills or commands of one folder. Of two with one name the first counts."""
        for path in paths:
            skills, told = self._read(path, folder, read)
            notes.merge(told)
            for skill in skills:
                first = found.setdefault(skill.name, skill)
                if first is not skill and os.path.realpath(first.path) != os.path.realpath(path):
                    notes.add(
                        f"{skill.kind} {skill.name}: {first.source} counts, {skill.source} has "
                        "the same name."
                    )

    def _read(
        self, path: str, folder: SkillFolder, read: Reader
    ) -> tuple[Sequence[SkillInfo], Notes]:
        try:
            status = os.stat(path)
        except OSError:
            return (), Notes()
        folder = self._owner(path, folder)
        stamp = (path, status.st_mtime_ns, status.st_size, folder.prefix, folder.root)
        if stamp not in self._parsed:
            notes, skills = Notes(), list[SkillInfo]()
            try:
                brought = read(path, folder, self._home, notes)
                skills += [brought] if isinstance(brought, SkillInfo) else brought
            except InvalidSkill as problem:
                notes.add(f"{escape(shorten_home(path, self._home))} {problem}: left out.")
            self._parsed[stamp] = skills, notes
        self._roots[path] = folder.root
        return self._parsed[stamp]

    def _owner(self, path: str, folder: SkillFolder) -> SkillFolder:
        """Return `folder`, as one of the project where a folder of the user's own leads into it.

        A repository around the home is no project.
        """
        is_around_home = not leads_out(os.path.join(self._home, "x"), self._project)
        if folder.root or is_around_home or leads_out(path, self._project):
            return folder
        return folder._replace(root=self._project)


def _resources(folder: str) -> Iterator[str]:
    """Yield the files of a skill's folder, relative to it; `SKILL.md` and hidden ones are left
    out.
    """
    looked, waiting = 0, [""]
    while waiting:
        inner = waiting.pop(0)
        try:
            with os.scandir(os.path.join(folder, inner)) as listed:
                entries = sorted(
                    islice(listed, RESOURCES_LOOKED_MAX - looked), key=lambda entry: entry.name
                )
        except OSError:
            continue
        looked += len(entries)
        for entry in entries:
            name = f"{inner}/{entry.name}" if inner else entry.name
            if entry.name.startswith(".") or entry.name in SKIPPED or not entry.name.isprintable():
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            elif name not in SKILL_FILES:
                yield name
        if looked >= RESOURCES_LOOKED_MAX:
            return


# --- Custom commands ------------------------------------------------------------------------------
#
# Custom slash commands from files: `.claude/commands/**/*.md` and those of other agents, also in
# `opencode.json`.
#
# The folder decides which placeholders a file has: `$0` is the first argument in files of Claude
# Code, `$1` in those of opencode and Codex, `{{args}}` stands for all of them in those of Gemini
# CLI.

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
    except (ValueError, RecursionError) as error:
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
