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
from struct import unpack_from

import msgspec

from longrein.config.bounded_file import read_bounded
from longrein.config.settings_file import SIZE_MAX_BYTES, write_settings_file
from longrein.events import SettingsError

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
