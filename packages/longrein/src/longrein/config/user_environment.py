"""The environment of the user: variables, folders of settings and state, and small files there."""

import errno
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def environment() -> dict[str, str]:
    """Return the environment variables of this process. Nothing else in longrein reads them."""
    return dict(os.environ)


def home_folder(environ: Mapping[str, str]) -> str:
    """Return the user's home, absolute; from the user database where HOME is not set."""
    home = environ.get("HOME", "")
    return home if home.startswith("/") else os.path.expanduser("~")


def config_dir(environ: Mapping[str, str], home: str, platform: str = sys.platform) -> str:
    """Return the folder of the user's settings, such as `~/.config/longrein`."""
    return _place(environ, home, platform, "XDG_CONFIG_HOME", ".config")


def user_file(environ: Mapping[str, str], home: str) -> str:
    """Return the path of the user's settings file, which may not exist."""
    return f"{config_dir(environ, home)}/config.toml"


AGENT_FOLDERS = {
    "claude": ("CLAUDE_CONFIG_DIR", "", ".claude"),
    "codex": ("CODEX_HOME", "", ".codex"),
    "gemini": ("", "", ".gemini"),
    "opencode": ("XDG_CONFIG_HOME", "/opencode", ".config/opencode"),
}
"""Other agent -> variable that names its folder, folder below that, usual folder below home."""


def agent_folder(agent: str, environ: Mapping[str, str], home: str) -> str:
    """Return the folder of the user's settings and instructions for another agent."""
    variable, below, usual = AGENT_FOLDERS[agent]
    given = environ.get(variable, "")
    return f"{given}{below}" if given else f"{home}/{usual}"


def project_file(cwd: str) -> str:
    """Return the path of the project's settings file in `cwd`, which may not exist."""
    return f"{cwd.rstrip('/')}/.longrein/config.toml"


def state_dir(environ: Mapping[str, str], home: str, platform: str = sys.platform) -> str:
    """Return the folder of sessions, absolute: LONGREIN_STATE_DIR, else such as
    `~/.local/state/longrein`.
    """
    given = environ.get("LONGREIN_STATE_DIR", "")
    if given:
        return os.path.abspath(
            home + given[1:] if given == "~" or given.startswith("~/") else given
        )
    return _place(environ, home, platform, "XDG_STATE_HOME", ".local/state")


def _place(environ: Mapping[str, str], home: str, platform: str, variable: str, below: str) -> str:
    # The XDG rules; a relative value counts as none. `platformdirs` takes 14 ms to import, so it is
    # used on macOS only.
    given = environ.get(variable, "")
    if given.startswith("/"):
        return f"{given.rstrip('/')}/longrein"
    if platform != "darwin":
        return f"{home.rstrip('/')}/{below}/longrein"
    import platformdirs

    return (
        platformdirs.user_config_dir("longrein")
        if below == ".config"
        else platformdirs.user_state_dir("longrein")
    )


# --- Description for the model --------------------------------------------------------------------
# Sent once at the start, so it holds nothing that changes.


PLATFORM = f"{os.uname().sysname.replace('Darwin', 'macOS, Darwin')} {os.uname().release}"
"""Name and version of this platform."""


def sign_line(sign: str) -> str:
    """Return the line that names the beginning of longrein's notes."""
    return f"Notes of longrein in this session begin with {sign}"


def describe_environment(
    *,
    cwd: str,
    day: str,
    roots: Sequence[str] = (),
    branch: str = "",
    commands: str = "",
    platform: str = PLATFORM,
    shell: str = "bash",
    sign: str = "",
) -> str:
    """Describe the environment for the static context. Pure.

    `day`: as `2026-11-21`. `branch`: '' where unknown. `commands`: what commands can change and
    reach. `sign`: beginning of longrein's notes.
    """
    lines = [sign_line(sign)] * bool(sign)
    lines.append(f"Current folder: {cwd}")
    others = [root for root in roots if root != cwd]
    if others:
        lines.append(f"Further folders of the session: {', '.join(others)}")
    if branch:
        lines.append(f"Git branch at the start: {branch}")
    lines.append(f"Platform: {platform}")
    if shell:
        lines.append(f"Shell: {shell}")
    if commands:
        lines.append(commands)
    lines.append(f"Day the session started: {day}")
    return "Environment:\n" + "\n".join(lines)


# --- Small files ----------------------------------------------------------------------------------
#
# Read a small file whole, or refuse it: never a pipe, a device or a huge file, and never with a
# wait.
#
# Every file of a repository or of the home that `config` reads is read here. A sparse file of 20
# GB, a pipe without a writer and a link to /dev/zero cost a few system calls.


def read_bounded(path: str, bytes_max: int, *, exact: bool = False) -> bytes:
    """Return the whole content of a regular file of at most `bytes_max` bytes.

    With `exact`, `path` is a real path that was judged before: if a link has come into it since,
    nothing is read. Raises `FileNotFoundError` or `NotADirectoryError` where there is none, and
    `OSError` with a text for the user in `strerror` for anything that is no such file.
    """
    try:
        _check(os.stat(path), path, bytes_max)  # before opening: opening a device can have effects
        from longrein.workspace.files import READING, read_up_to
        from longrein.workspace.supervisor.openat import open_real

        descriptor = open_real(path, READING) if exact else os.open(path, READING | os.O_CLOEXEC)
    except ValueError:
        raise FileNotFoundError(errno.ENOENT, "the path holds a NUL", path) from None
    try:
        size = _check(os.fstat(descriptor), path, bytes_max)
        data = read_up_to(
            descriptor, bytes_max + 1, size
        )  # a file of /proc has more than its size says
    finally:
        os.close(descriptor)
    if len(data) > bytes_max:
        raise too_large(path, bytes_max)
    return data


def read_table(
    path: str, shown: str, bytes_max: int = 1_000_000, *, comments: bool = False
) -> tuple[dict[str, Any], str]:
    """Read a JSON or TOML file: (its fields, ''), or ({}, why not). A missing file has no fields.

    `comments`: see `parse_table`.
    """
    try:
        data = read_bounded(path, bytes_max)
        return parse_table(data, toml=path.endswith(".toml"), comments=comments), ""
    except (FileNotFoundError, NotADirectoryError):
        return {}, ""
    except OSError as error:
        return {}, f"{shown}: cannot be read ({error.strerror}): mend or remove it"
    except ValueError as error:
        return {}, f"{shown}: it is not valid ({error}): mend or remove it"


def parse_table(data: bytes, *, toml: bool = False, comments: bool = False) -> dict[str, Any]:
    """Parse a TOML document or a JSON object; nothing at all is an empty one. Raises `ValueError`.

    With `comments`, JSON may hold comments, and commas before a closing bracket.
    """
    try:
        text = data.decode("utf-8-sig")
        if toml:
            import tomllib

            return tomllib.loads(text)
        from longrein_context.events.content import decode_json

        if comments:
            text = re.sub(_COMMENT, lambda found: found[1] or "", text)
            text = re.sub(_COMMA, lambda found: found[1] or "", text)
        table = decode_json(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(str(error)[:120]) from None
    if not isinstance(table, dict):
        raise ValueError("no JSON object")
    return table


def named_plugins(environ: Mapping[str, str], home: str) -> tuple[str, ...]:
    """Return the packages that the user's settings name, none where the file cannot be read.

    For the command line, which is parsed before all settings are read.
    """
    return plugins_of(read_table(user_file(environ, home), "")[0])


def plugins_of(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the packages that a table of settings names."""
    named = table.get("plugins")
    return tuple(filter(None, map(str, named))) if isinstance(named, list) else ()


_COMMENT = r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*(?s:.*?)\*/'
_COMMA = r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])'


def _check(status: os.stat_result, path: str, bytes_max: int) -> int:
    """Return the size of a regular file within the limit. Raises OSError."""
    if not stat.S_ISREG(status.st_mode):
        kind = "folder" if stat.S_ISDIR(status.st_mode) else "device, pipe or socket"
        raise OSError(errno.EINVAL, f"a {kind}, not a file", path)
    if status.st_size > bytes_max:
        raise too_large(path, bytes_max)
    return status.st_size


def too_large(path: str, bytes_max: int) -> OSError:
    """Return the error for a file above the limit."""
    limit = f"{bytes_max >> 20} MB" if bytes_max >= 1 << 20 else f"{bytes_max >> 10} kB"
    return OSError(errno.EFBIG, f"larger than {limit}", path)
