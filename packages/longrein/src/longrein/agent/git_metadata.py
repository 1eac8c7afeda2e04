"""State of a repository from its files, without running git: the branch, and programs that it
would make git run.
"""

import re

from longrein.workspace import Workspace

CONFIG_BYTES_MAX = 1 << 20
HEAD_BYTES_MAX = 4096
INDEX_BYTES_MAX = 64 << 20


def find_git_folder(workspace: Workspace, folder: str) -> str:
    """Return the git folder of the repository around `folder`; '' for none."""
    found = _find_repository(workspace, folder)
    return found[0] if found is not None and not found[1] else ""


def find_work_tree(workspace: Workspace, folder: str) -> str:
    """Return the nearest folder at or above `folder` that holds `.git`; '' for none."""
    at = workspace.resolve(folder or "/", "/").real
    while at and not workspace.resolve(f"{at}/.git", "/").kind:
        at = at.rpartition("/")[0]
    return at


def current_branch(workspace: Workspace, git_folder: str) -> str:
    """Return the branch, or `detached at COMMIT`; '' where it is unknown, or no usual name.

    The name reaches the model, so a text that poses as a name is left out.
    """
    try:
        head = (
            workspace.read(f"{git_folder}/HEAD", HEAD_BYTES_MAX).decode("utf-8", "replace").strip()
        )
    except OSError:
        return ""
    if re.fullmatch(r"[0-9a-f]{40,64}", head):
        return f"detached at {head[:10]}"
    found = re.fullmatch(r"ref: refs/heads/([\w./+@#=-]{1,100})", head)
    return found[1] if found else ""


def find_armed_setting(workspace: Workspace, folder: str, *, reads_only: bool) -> str:
    """Return what could make git run a program in `folder`; '' for nothing. Runs nothing itself."""
    from longrein.permissions.git_config import HOOKS, READING_HOOKS, find_risky_key

    found = _find_repository(workspace, folder)
    if found is None:
        return ""
    git_folder, problem = found
    if problem:
        return problem
    try:
        common = _line(workspace, f"{git_folder}/commondir")
        common = workspace.resolve(common, git_folder).path if common else git_folder
        for path in dict.fromkeys(
            (f"{common}/config", f"{git_folder}/config.worktree", f"{common}/config.worktree")
        ):
            if key := find_risky_key(_text(workspace, path)):
                return f"{key} in {path} may run a program"
    except (OSError, UnicodeDecodeError) as error:
        return f"the configuration in {git_folder} cannot be read: {error}"
    for hook in READING_HOOKS if reads_only else HOOKS:
        if workspace.resolve(f"{common}/hooks/{hook}", "/").kind:
            return f"the hook {common}/hooks/{hook} would run"
    return _submodule(workspace, git_folder)


def _submodule(workspace: Workspace, git_folder: str) -> str:
    from longrein.permissions.git_config import GITLINK

    try:
        index = workspace.read(f"{git_folder}/index", INDEX_BYTES_MAX)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"the index in {git_folder} cannot be read: {error}"
    if GITLINK in index or len(index) == INDEX_BYTES_MAX or b"link" in index[-200:]:
        return "git also obeys the configuration of the submodules"
    return ""


def _find_repository(workspace: Workspace, folder: str) -> tuple[str, str] | None:
    """Return (git folder, problem) of the repository that git would find above `folder`; None
    for none.
    """
    at = workspace.resolve(folder or "/", "/").real
    while True:
        place = workspace.resolve(f"{at.rstrip('/')}/.git", "/")
        if place.kind == "folder":
            return place.path, ""
        if place.kind:
            try:
                pointer = _line(workspace, place.path)
            except (OSError, UnicodeDecodeError):
                return place.path, f"{place.path} cannot be read"
            if not pointer.startswith("gitdir: "):
                return place.path, f"{place.path} is not a repository"
            return workspace.resolve(pointer.removeprefix("gitdir: "), at).path, ""
        bare = (
            workspace.resolve(f"{at.rstrip('/')}/{name}", "/").kind
            for name in ("HEAD", "objects", "refs")
        )
        if all(bare):
            return at, f"{at} itself is a repository, whose configuration git would obey"
        if at in ("/", ""):
            return None
        at = at.rpartition("/")[0] or "/"


def _line(workspace: Workspace, path: str) -> str:
    return _text(workspace, path).rstrip("\r\n")


def _text(workspace: Workspace, path: str) -> str:
    try:
        data = workspace.read(path, CONFIG_BYTES_MAX)
    except FileNotFoundError:
        return ""
    if len(data) == CONFIG_BYTES_MAX:
        raise OSError(f"{path} is too large")
    return data.decode()
