"""Trusted folders: only what they bring is used as settings, subagent types and instructions.

Kept in `trusted.json` of the state folder, so that a repository cannot trust itself. An entry has
the real path and the identity of the repository there. The identity is what the kernel gave the
folder and its `.git`: inode number and time of birth. Content is no identity, because a stranger
can copy it: a fork has the same first commit, and an archive holds any address of origin. Nobody
but the kernel sets a time of birth, so that a repository that is deleted and cloned again, unpacked
or moved to the place of another one is asked about again.

Trust ends at the next `.git` below: a repository, submodule or worktree inside a trusted folder is
asked about on its own, because its content comes from elsewhere or from another branch. So does a
bare repository.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from struct import unpack_from

import msgspec

from longrein.config.claude_settings import read_file_of_project
from longrein.config.frontmatter import split_frontmatter
from longrein.config.hook_files import HookFile, hooks_in_head, parse_hooks, project_files
from longrein.config.instructions import folders_between, instruction_files, project_root
from longrein.config.plugins import door_points
from longrein.config.settings_file import (
    KEYS,
    SIZE_MAX_BYTES,
    dotted,
    keys_in,
    pattern_of,
    read_text,
    shorten_home,
    write_settings_file,
)
from longrein.config.skill_files import PROJECT_FOLDERS as SKILL_FOLDERS
from longrein.config.skill_files import InvalidSkill, Walk, existing_folders, read_text_file
from longrein.config.skill_library import PROJECT_FOLDERS as COMMAND_FOLDERS
from longrein.config.skill_library import opencode_files
from longrein.config.subagent_types import PROJECT_FOLDERS, list_files
from longrein.config.user_environment import project_file, read_bounded, read_table, user_file
from longrein.extension_points import TRUST_DOOR
from longrein.permissions import Hook, escape
from longrein.permissions.hook_protocol import hook_line
from longrein.settings_schema import Settings
from longrein_context.events import SettingsError
from longrein_context.events.escape import shortened

REPOSITORY = ".git"
"""Entry of a repository's root: a folder or, in a worktree or submodule, a file that names the
folder.
"""
BARE_ENTRIES = ("HEAD", "objects", "refs")
"""Entries of a repository without a work tree."""
GIT_FILE_BYTES_MAX = 4096


class TrustedFolder(msgspec.Struct, frozen=True):
    """A folder that the user trusts."""

    folder: str
    """Real path."""
    identity: str = ""
    """See `identity_of`; '' in an entry of an older version, which trusts nothing until the user
    confirms it.
    """
    hooks: tuple[str, ...] = ()
    """Fingerprints of the hooks that the user has confirmed."""


class TrustedFolders(msgspec.Struct, frozen=True):
    """All folders that the user trusts."""

    entries: tuple[TrustedFolder, ...] = ()
    left_out: tuple[str, ...] = ()
    """Files of the current folder that were not read because it is not trusted, for display."""

    def cover(self, folder: str) -> bool:
        """Return whether the user trusts `folder`: itself, or a folder above it in the same
        repository.
        """
        known = {entry.folder: entry.identity for entry in self.entries}
        return any(
            known.get(above) == identity_of(above)
            for above in _same_repository(folder)
            if above in known
        )

    def why_not(self, folder: str) -> str:
        """Return why a folder that was trusted no longer is; '' where it is trusted or never
        was.
        """
        known = {entry.folder: entry.identity for entry in self.entries}
        for above in _same_repository(folder):
            if above in known and known[above] != identity_of(above):
                if not known[above]:
                    return (
                        f"{above} was trusted by an older longrein, by its path alone: confirm "
                        "it once"
                    )
                return (
                    f"another folder or repository stands at {above} than the one that was trusted"
                )
        return ""

    def confirmed_hooks(self, folder: str) -> frozenset[str]:
        """Return the fingerprints of the hooks that the user has confirmed in `folder` and above
        it.
        """
        above = set(_same_repository(folder))
        return frozenset(
            one for entry in self.entries if entry.folder in above for one in entry.hooks
        )

    def with_folder(self, folder: str, home: str, hooks: tuple[str, ...] = ()) -> "TrustedFolders":
        """Return these and the unit of `folder`, see `trust_unit`. Raises `SettingsError` for the
        whole home.

        `hooks`: fingerprints of the hooks that are confirmed with it.
        """
        unit = trust_unit(folder, home)
        identity = identity_of(unit)
        known = next(
            (
                entry.hooks
                for entry in self.entries
                if (entry.folder, entry.identity) == (unit, identity)
            ),
            (),
        )
        rest = (entry for entry in self.entries if entry.folder != unit)
        return TrustedFolders(
            (*rest, TrustedFolder(unit, identity, tuple(dict.fromkeys((*known, *hooks)))))
        )


def is_trusted(state_dir: str, folder: str) -> bool:
    """Return whether the user trusts `folder`. A damaged list trusts nothing."""
    return read_trusted(state_dir).cover(folder)


def trust(state_dir: str, folder: str, home: str, hooks: tuple[str, ...] = ()) -> str:
    """Trust the repository of `folder`, or the folder where there is none; return its real path.

    `hooks`: fingerprints of the hooks that the user has seen. Raises `SettingsError` for a folder
    that holds the home, and when the list cannot be written.
    """
    unit, before = trust_unit(folder, home), read_trusted(state_dir)
    after = before.with_folder(folder, home, hooks)
    if after != before:
        _write(state_dir, after)
    return unit


def distrust(state_dir: str, folder: str) -> None:
    """Remove the trust in `folder`, with every entry that covers it.

    Raises `SettingsError` when the list cannot be written.
    """
    known, above = read_trusted(state_dir).entries, set(_same_repository(folder))
    kept = tuple(entry for entry in known if entry.folder not in above)
    if kept != known:
        _write(state_dir, TrustedFolders(kept))


def trust_unit(folder: str, home: str) -> str:
    """Return the real path to trust for `folder`: the root of its repository, else the folder
    itself.

    A repository around the home (of dotfiles) is never the unit. Raises `SettingsError` where the
    folder holds the home.
    """
    real = os.path.realpath(folder)
    if _holds(real, home):
        raise SettingsError(f"{folder} holds your whole home: trust the folder of one project")
    root = list(_same_repository(real))[-1]
    is_root = _is_repository(root)
    return root if is_root and not _holds(root, home) else real


def identity_of(folder: str) -> str:
    """Return the identity of a folder and of the repository there; `missing` where there is no
    folder.

    A `.git` file counts with its text, so that a worktree that is pointed to another repository is
    another one.
    """
    if not os.path.isdir(folder):
        return "missing"
    git = os.path.join(folder, REPOSITORY)
    return " ".join(filter(None, (_stamp(folder), _stamp(git), _target(git))))


def read_trusted(state_dir: str) -> TrustedFolders:
    """Read the trusted folders. Entries of older versions, which are paths alone, have no
    identity.
    """
    try:
        found = msgspec.json.decode(
            read_bounded(_file(state_dir), SIZE_MAX_BYTES), type=list[TrustedFolder | str]
        )
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return TrustedFolders()
    return TrustedFolders(
        tuple(TrustedFolder(one) if isinstance(one, str) else one for one in found)
    )


def _same_repository(folder: str) -> list[str]:
    """Return the real path of `folder` and those above, up to the root of its repository."""
    real = os.path.realpath(folder)
    found = [real]
    while not _is_repository(real) and os.path.dirname(real) != real:
        real = os.path.dirname(real)
        found.append(real)
    return found


def _is_repository(folder: str) -> bool:
    """Return whether a folder is a repository's root, or what git takes for a bare repository."""
    if os.path.lexists(os.path.join(folder, REPOSITORY)):
        return True
    return all(os.path.lexists(os.path.join(folder, name)) for name in BARE_ENTRIES)


def _holds(folder: str, home: str) -> bool:
    return folder == "/" or f"{os.path.realpath(home)}/".startswith(f"{folder.rstrip('/')}/")


def _stamp(path: str) -> str:
    """Return inode number and time of birth; '' for a missing file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ""
    return f"{status.st_ino}.{_born_ns(path, status)}"


def _born_ns(path: str, status: os.stat_result) -> int:
    """Return the time of birth in nanoseconds; 0 where the file system has none."""
    if sys.platform == "darwin":
        return int(status.st_birthtime * 1e9)
    import ctypes  # two milliseconds, in folders that are trusted already

    call, result = getattr(ctypes.CDLL(None), "statx", None), ctypes.create_string_buffer(256)
    if call is None or call(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, result) != 0:
        return 0
    seconds, nanoseconds = unpack_from("=qI", result.raw, _BTIME_AT)
    return int(seconds) * 10**9 + int(nanoseconds)


_AT_FDCWD, _STATX_BTIME = -100, 0x800
_BTIME_AT = 80
"""Place of `stx_btime` in the result of statx(2)."""


def _target(git: str) -> str:
    """Return the text of a `.git` file; '' for a folder."""
    try:
        if not stat.S_ISREG(os.stat(git).st_mode):
            return ""
        return read_bounded(git, GIT_FILE_BYTES_MAX).decode("utf-8", "replace").strip()
    except OSError:
        return "unreadable" if os.path.lexists(git) else ""


def _write(state_dir: str, folders: TrustedFolders) -> None:
    entries = msgspec.json.format(msgspec.json.encode(folders.entries))
    try:
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        write_settings_file(_file(state_dir), entries + b"\n")
    except OSError as error:
        said = f"{_file(state_dir)} cannot be written ({error.strerror})"
        raise SettingsError(f"{said}; name another place with LONGREIN_STATE_DIR") from None


def _file(state_dir: str) -> str:
    return f"{state_dir}/trusted.json"


# --- Preview of trust -----------------------------------------------------------------------------
#
# Preview of what trust in a folder activates, as rows for one screen. Before trust nothing else of
# the folder is read.
#
# Each kind of thing that a folder can bring has one row in `KINDS`, or comes in by the door
# `longrein.trust`. A new kind adds its row there, and with it appears on the screen, in `longrein
# trust` and in the line of headless runs.

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


class TrustRow(msgspec.Struct, frozen=True):
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
) -> tuple[TrustRow, ...]:
    """Return what trusting the folder would activate, one row for each file."""
    folder = Folder(cwd, home, environ, settings)
    return tuple(
        TrustRow(kind.name, _shown(path, folder), escape(kind.effect(path, folder)))
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
