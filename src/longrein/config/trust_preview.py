"""Preview of what trust in a folder activates, as rows for one screen. Before trust nothing else of
the folder is read.

Each kind of thing that a folder can bring has one row in `KINDS`, or comes in by the door
`longrein.trust`. A new kind adds its row there,
and with it appears on the screen, in `longrein trust` and in the line of headless runs.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

import msgspec

from longrein.config.bounded_file import read_table
from longrein.config.environ import project_file, user_file
from longrein.config.frontmatter import split_frontmatter
from longrein.config.hook_files import (
    HookFile,
    hooks_in_head,
    parse_hooks,
    project_files,
)
from longrein.config.instructions import folders_between, instruction_files, project_root
from longrein.config.other_agents import read_file_of_project
from longrein.config.plugins import door_points
from longrein.config.settings_file import keys_in, read_text, shorten_home
from longrein.config.settings_keys import KEYS, dotted, pattern_of
from longrein.config.skill_files import PROJECT_FOLDERS as SKILL_FOLDERS
from longrein.config.skill_files import InvalidSkill, Walk, existing_folders, read_text_file
from longrein.config.skill_library import PROJECT_FOLDERS as COMMAND_FOLDERS
from longrein.config.skill_library import opencode_files
from longrein.config.subagent_types import PROJECT_FOLDERS, list_files
from longrein.events import SettingsError
from longrein.events.escape import shortened
from longrein.extension_points import TRUST_DOOR
from longrein.permissions import Hook, escape
from longrein.permissions.hook_protocol import hook_line
from longrein.settings_schema import Settings

FILES_SHOWN_MAX = 20
"""Files of one kind that are named."""
NAME_CHARS_MAX = 200


class Folder(msgspec.Struct, frozen=True):
    """The current folder and what decides which of its files count."""

    cwd: str
    home: str
    environ: Mapping[str, str]
    settings: Settings
    """Without those of the project."""


class Row(msgspec.Struct, frozen=True):
    """A file that trust would activate, for display."""

    kind: str
    """Such as `settings`."""
    file: str
    effect: str = ""
    """Effect of the file once trusted, as far as can be determined."""


class Kind(msgspec.Struct, frozen=True):
    """A kind of thing that a folder brings."""

    name: str
    find: Callable[[Folder], list[str]]
    """Gives the paths, without opening a file."""
    effect: Callable[[str, Folder], str] = lambda _path, _folder: ""
    """Describes one file of them."""
    approve: Callable[[str, str], object] = lambda _state_dir, _cwd: None
    """Called with the state folder and the current one when the user trusts what was shown."""


def left_out_files(
    cwd: str, home: str, environ: Mapping[str, str], settings: Settings
) -> tuple[str, ...]:
    """Return the files that are not read while the folder is not trusted, relative to it, for
    display.
    """
    folder = Folder(cwd, home, environ, settings)
    return tuple(_shown(path, folder) for kind in all_kinds(settings) for path in kind.find(folder))


def trust_preview(
    cwd: str, home: str, environ: Mapping[str, str], settings: Settings
) -> tuple[Row, ...]:
    """Return what trusting the folder would activate, one row for each file."""
    folder = Folder(cwd, home, environ, settings)
    return tuple(
        Row(kind.name, _shown(path, folder), escape(kind.effect(path, folder)))
        for kind in all_kinds(settings)
        for path in kind.find(folder)
    )


def _shown(path: str, folder: Folder) -> str:
    """Return a path relative to the folder, else with `~`; on one line, without invisible
    characters.
    """
    inside = path.removeprefix(folder.cwd.rstrip("/") + "/")
    shown = escape(inside if inside != path else shorten_home(path, folder.home)).replace(
        "\n", "\\n"
    )
    return shortened(shown, NAME_CHARS_MAX)


# --- Kinds ----------------------------------------------------------------------------------------


def _settings_files(folder: Folder) -> list[str]:
    path = project_file(folder.cwd)
    return (
        [path] if os.path.lexists(path) and path != user_file(folder.environ, folder.home) else []
    )


def _settings_effect(path: str, folder: Folder) -> str:
    """Name the keys of a settings file, and those that a project cannot set."""
    try:
        keys = keys_in(
            read_text(path, shorten_home(path, folder.home)) or "", shorten_home(path, folder.home)
        )
    except SettingsError as error:
        return str(error)
    allowed = [dotted(key) for key in keys if _policy(key) not in ("", "nothing")]
    ignored = [dotted(key) for key in keys if _policy(key) in ("", "nothing")]
    said = [f"sets {_listed(allowed)}"] if allowed else []
    said += [f"ignored, because a project cannot set it: {_listed(ignored)}"] if ignored else []
    return "; ".join(said) or "sets nothing"


def _policy(key: tuple[str, ...]) -> str:
    """Return what a project may do with a key, as in `Setting.project`; '' for an unknown key."""
    known = KEYS.get(pattern_of(key))
    return known.setting.project if known else ""


def _listed(keys: list[str]) -> str:
    more = len(keys) - FILES_SHOWN_MAX
    return ", ".join(key[:NAME_CHARS_MAX] for key in keys[:FILES_SHOWN_MAX]) + (
        f" and {more} more" if more > 0 else ""
    )


def shown_head_hooks(
    cwd: str, home: str, environ: Mapping[str, str], settings: Settings
) -> list[Hook]:
    """Return the hooks in the heads of those skills, commands and subagent types that the screen
    shows.
    """
    folder = Folder(cwd, home, environ, settings)
    finders = (_skill_files, _command_files, _subagent_files)
    return [hook for find in finders for path in find(folder) for hook in _head_hooks(path, folder)]


def _head_hooks(path: str, folder: Folder) -> tuple[Hook, ...]:
    root = project_root(folder.cwd)
    if not path.endswith(".md"):
        return ()
    try:
        fields, _ = split_frontmatter(read_text_file(path, root))
    except (InvalidSkill, ValueError):
        return ()
    return hooks_in_head(fields, path, "", root, "")[0]


def _head_effect(path: str, folder: Folder) -> str:
    """List the hooks in the head of a file."""
    return "; ".join(
        f"runs on {hook_line(hook)[:NAME_CHARS_MAX]}" for hook in _head_hooks(path, folder)
    )


def _hook_files(folder: Folder) -> list[str]:
    return [one.path for one in project_files(folder.cwd, folder.home, folder.environ)]


def _hook_effect(path: str, folder: Folder) -> str:
    """List the hooks of a file: each runs a command or calls an address by itself."""
    shown = shorten_home(path, folder.home)
    table, problem = read_table(path, shown)
    hooks, _ = parse_hooks(
        table.get("hooks"), HookFile(path, shown, is_own=False), project_root(folder.cwd)
    )
    named = [f"runs on {hook_line(hook)[:NAME_CHARS_MAX]}" for hook in hooks]
    more = (
        [f"and {len(named) - FILES_SHOWN_MAX} more hooks"] if len(named) > FILES_SHOWN_MAX else []
    )
    brought = read_file_of_project(HookFile(path, shown, is_own=False), folder.home)
    rules = [f"{value.path[1]} {_listed(value.value)}" for value in brought.values]
    unused = [note.removeprefix(f"{shown}: ") for note in brought.notes]
    return (
        problem
        or "; ".join([*named[:FILES_SHOWN_MAX], *more, *rules, *unused])
        or "brings nothing that is used"
    )


def _subagent_files(folder: Folder) -> list[str]:
    root = project_root(folder.cwd)
    above = [one for one in reversed(folders_between(root, folder.cwd)) if one != folder.home]
    folders = (f"{one.rstrip('/')}/{name}" for one in above for name in PROJECT_FOLDERS)
    return [path for one in folders for path in _first(list_files(one), one)]


def _skill_files(folder: Folder) -> list[str]:
    walk = Walk()
    folders = existing_folders(
        folder.cwd, folder.home, lambda _: True, [(name, "claude") for name in SKILL_FOLDERS]
    )
    return [path for one in folders for path in _first(walk.skills(one.path), one.path)]


def _command_files(folder: Folder) -> list[str]:
    walk = Walk()
    folders = existing_folders(folder.cwd, folder.home, lambda _: True, COMMAND_FOLDERS)
    endings = ((one.path, ".toml" if one.style == "gemini" else ".md") for one in folders)
    found = [path for one, ending in endings for path in _first(walk.files(one, ending), one)]
    return [
        *found,
        *(
            one.path
            for one in opencode_files(folder.cwd, folder.home, {}, lambda _: True)
            if one.root
        ),
    ]


def _plugin_folders(folder: Folder) -> list[str]:
    place = f"{project_root(folder.cwd)}/.agents/plugins"
    return [place] if os.path.isdir(place) and project_root(folder.cwd) != folder.home else []


def _first(paths: Iterator[str], folder: str) -> list[str]:
    """Return the first paths, and the folder itself where there are more."""
    found = list(islice(paths, FILES_SHOWN_MAX + 1))
    return found if len(found) <= FILES_SHOWN_MAX else [*found[:FILES_SHOWN_MAX], f"{folder}/…"]


def _instruction_files(folder: Folder) -> list[str]:
    return instruction_files(folder.cwd, folder.home, folder.settings)


def _size(path: str, _folder: Folder) -> str:
    try:
        return f"{os.stat(path).st_size:,} bytes of text for the model"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


KINDS = (
    Kind("settings", _settings_files, _settings_effect),
    Kind("hooks", _hook_files, _hook_effect),
    Kind("subagent", _subagent_files, _head_effect),
    Kind("skill", _skill_files, _head_effect),
    Kind("command", _command_files, _head_effect),
    Kind("plugins", _plugin_folders),
)
"""In the order of the screen."""
INSTRUCTIONS = Kind("instructions", _instruction_files, _size)
"""The last kind, below those of extensions."""


def all_kinds(settings: Settings) -> tuple[Kind, ...]:
    """Return the kinds with those of extensions."""
    try:
        points = door_points(TRUST_DOOR, settings.plugins)
    except SettingsError:  # a plugin is not installed: no session opens
        points = door_points(TRUST_DOOR, ())
    return (*KINDS, *(point.load() for point in points), INSTRUCTIONS)
