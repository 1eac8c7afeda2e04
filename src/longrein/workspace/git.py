"""Run git for longrein itself, so that no program named by the repository can run (S049) and
nothing waits.

Disabled are hooks, fsmonitor, pagers, editors, ssh and credential commands, external diffs, text
conversion, signing programs, submodule recursion, background maintenance, every transport and the
system settings. Aliases do not apply: only built-in commands are used. Content filters are named by
the repository itself and run even in `git status`; they are listed first, which runs nothing, and
then disabled by name.
"""

import os
from collections.abc import Mapping, Sequence

from longrein.workspace.command import CollectingSink
from longrein.workspace.files import find_program, spellings
from longrein.workspace.port import Workspace

GIT_TIMEOUT_S = 10.0
GIT_BYTES_MAX = 16 << 20
GIT_CUT = 124
"""Exit code of a call that took too long or printed too much; its output so far is returned."""

SAFE_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.editor": "true",
    "core.sshCommand": "false",
    "core.askPass": "true",
    "core.attributesFile": "/dev/null",
    "core.gitProxy": "",
    "core.alternateRefsCommand": "true",
    "credential.helper": "",
    "diff.external": "",
    "gpg.program": "false",
    "log.showSignature": "false",
    "commit.gpgSign": "false",
    "submodule.recurse": "false",
    "status.submoduleSummary": "false",
    "diff.ignoreSubmodules": "all",
    "maintenance.auto": "false",
    "gc.auto": "0",
    "protocol.allow": "never",
    "uploadpack.packObjectsHook": "",
}
"""Given on the command line, so above every settings file."""

QUIET_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # above `protocol.NAME.allow` of the repository
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}

SHOWS_DIFFS = (
    "diff",
    "log",
    "show",
    "format-patch",
    "diff-tree",
    "diff-index",
    "diff-files",
    "whatchanged",
)


NO_CONTENT = (
    "rev-parse",
    "rev-list",
    "ls-files",
    "ls-tree",
    "for-each-ref",
    "symbolic-ref",
    "cat-file",
    "config",
)
"""Git commands that never filter a file's content, so the filters need not be listed."""

FILTERS = (
    "config",
    "--null",
    "--name-only",
    "--get-regexp",
    r"^filter\..*\.(clean|smudge|process|required)$",
)


async def run_git(
    workspace: Workspace,
    args: Sequence[str],
    cwd: str,
    session: str = "",
    *,
    timeout_s: float = GIT_TIMEOUT_S,
) -> tuple[int, bytes]:
    """Run `git <args>` in `cwd`: (exit code, output).

    127 without git, `GIT_CUT` when it took too long or printed too much.
    """
    environment = quiet_environment(workspace.environment(session)) | work_tree(cwd)
    git = find_program("git", environment.get("PATH", ""), spellings(workspace.roots))
    if not git:
        return 127, b""
    options = [git, "--no-pager", "--no-optional-locks", *setting_options(SAFE_SETTINGS)]
    if args and args[0] not in NO_CONTENT:
        code, names = await _run(workspace, [*options, *FILTERS], cwd, environment, timeout_s)
        if code not in (0, 1):
            return code, names
        if b"=" in names:
            return (
                128,
                (
                    b"fatal: a filter of this repository has '=' in its name and cannot be "
                    b"switched "
                    b"off\n"
                ),
            )
        options += setting_options({os.fsdecode(name): "" for name in names.split(b"\0") if name})
    return await _run(workspace, [*options, *safe_arguments(args)], cwd, environment, timeout_s)


async def _run(
    workspace: Workspace, words: list[str], cwd: str, environment: dict[str, str], timeout_s: float
) -> tuple[int, bytes]:
    output = CollectingSink()
    ended = await workspace.spawner.run(
        words,
        cwd=cwd,
        env=environment,
        sink=output,
        timeout_s=timeout_s,
        output_bytes_max=GIT_BYTES_MAX,
    )
    code = GIT_CUT if ended.cause in ("timeout", "flood") else ended.code
    return 128 if code is None else code, bytes(output.data)


def setting_options(values: Mapping[str, str]) -> list[str]:
    """Return `-c` options that override every settings file.

    An empty filter disables it; `required` needs a boolean.
    """
    given = (
        f"{key}={'false' if key.endswith('.required') else value}" for key, value in values.items()
    )
    return [word for one in given for word in ("-c", one)]


def safe_arguments(args: Sequence[str]) -> list[str]:
    """Disable external diffs and text conversion in commands that show differences."""
    words = (
        2 if tuple(args[:2]) == ("stash", "show") else int(bool(args) and args[0] in SHOWS_DIFFS)
    )
    return [*args[:words], *(("--no-ext-diff", "--no-textconv") if words else ()), *args[words:]]


def work_tree(cwd: str) -> dict[str, str]:
    """Return the variable that names the nearest folder with `.git`; it stands above
    `core.worktree` (S049).
    """
    folder = cwd
    if ".git" in cwd.split("/"):
        return {}  # git's own folder
    while not os.path.lexists(os.path.join(folder, ".git")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return {}
    return {"GIT_WORK_TREE": folder}


def quiet_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Replace git's own variables (`GIT_DIR`, `GIT_EXTERNAL_DIFF` …) by `QUIET_ENVIRONMENT`."""
    return {
        name: value for name, value in environment.items() if not name.startswith("GIT_")
    } | QUIET_ENVIRONMENT
