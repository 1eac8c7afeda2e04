"""All skills and custom commands of a session, read from disk again whenever they are asked for."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from longrein.config.custom_commands import (
    command_folders,
    command_text,
    opencode_files,
    read_command,
    read_opencode,
)
from longrein.config.frontmatter import split_frontmatter
from longrein.config.instructions import (
    folders_between,
    imports,
    leads_out,
    project_root,
)
from longrein.config.plugins import plugin_folders
from longrein.config.settings_file import shorten_home
from longrein.config.skill_files import (
    PROJECT_FOLDERS,
    SKILL_FILES,
    SKIPPED,
    InvalidSkill,
    Notes,
    SkillFolder,
    Walk,
    read_skill,
    read_text_file,
    skill_folders,
)
from longrein.events import ToolError
from longrein.permissions import escape
from longrein.tools import SkillBody, SkillInfo

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
            paths = [path for name in PROJECT_FOLDERS if os.path.isdir(path := f"{below}/{name}")]
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
