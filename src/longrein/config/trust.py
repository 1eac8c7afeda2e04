"""Trusted folders: only there does a project's own settings file count.

Kept by real path in `trusted.json` of the state folder. So a repository cannot trust itself, and a link or a new
repository at another path does not inherit trust.
"""

import os

import msgspec

from longrein.config.settings_file import SIZE_MAX_BYTES, write_settings_file
from longrein.events import SettingsError


def is_trusted(state_dir: str, folder: str) -> bool:
    """Return whether the user trusts `folder` or a folder above it. A damaged list trusts nothing."""
    real = os.path.realpath(folder)
    return any(real == known or real.startswith(known + "/") for known in _folders(state_dir) if known != "/")


def trust(state_dir: str, folder: str, home: str) -> None:
    """Trust `folder` and all below it.

    Raises `SettingsError` for a folder that holds the home, and when the list cannot be written.
    """
    real = os.path.realpath(folder)
    if real == "/" or os.path.realpath(home).startswith((real + "/", real + "//")) or real == os.path.realpath(home):
        raise SettingsError(f"{folder} holds your whole home: trust the folder of one project")
    known = _folders(state_dir)
    if real not in known:
        _write_folders(state_dir, [*known, real])


def distrust(state_dir: str, folder: str) -> None:
    """Remove the trust in `folder` itself. Raises `SettingsError` when the list cannot be written."""
    real, known = os.path.realpath(folder), _folders(state_dir)
    if real in known:
        _write_folders(state_dir, [name for name in known if name != real])


def _write_folders(state_dir: str, folders: list[str]) -> None:
    try:
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        write_settings_file(_file(state_dir), msgspec.json.format(msgspec.json.encode(folders)) + b"\n")
    except OSError as error:
        said = f"{_file(state_dir)} cannot be written ({error.strerror})"
        raise SettingsError(f"{said}; name another place with LONGREIN_STATE_DIR") from None


def _file(state_dir: str) -> str:
    return f"{state_dir}/trusted.json"


def _folders(state_dir: str) -> list[str]:
    try:
        with open(_file(state_dir), "rb") as file:
            return msgspec.json.decode(file.read(SIZE_MAX_BYTES), type=list[str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return []
