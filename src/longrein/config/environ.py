"""Environment variables, the folders of settings and state, and the description of the
environment for the model.
"""

import os
import sys
from collections.abc import Mapping, Sequence


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


PLATFORM = {"linux": "Linux", "darwin": "macOS"}.get(sys.platform, sys.platform)
"""Name of this platform."""


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
        lines.append(f"Shell of Bash: {shell}")
    if commands:
        lines.append(commands)
    lines.append(f"Day the session started: {day}")
    return "Environment:\n" + "\n".join(lines)
