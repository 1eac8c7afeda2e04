"""Run git for longrein itself, so that no program named by the repository can run and
nothing waits.

Disabled are hooks, fsmonitor, pagers, editors, ssh and credential commands, external diffs, text
conversion, signing programs, submodules, background maintenance, every transport and the system
settings. Aliases do not apply: only built-in commands are used. Content filters and merge drivers
have names that the repository chooses. They are listed first, which runs nothing, and then disabled
by name. What a configuration includes depends on the folder and the branch, so they are listed in
each folder in which the command works.

Git starts itself in submodules, whose own settings nobody has listed. It does not find itself: its
search path is empty. A folder that only looks like a repository, because files of a project lie
there as `HEAD`, `objects` and `refs`, is not used as one.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress

from longrein.folder_trees import walk_folders
from longrein.workspace.command_output import CollectingSink
from longrein.workspace.files import find_program, is_inside, spellings
from longrein.workspace.workspace_port import CommandSpec, Workspace

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
    "gpg.openpgp.program": "false",
    "gpg.x509.program": "false",
    "gpg.ssh.program": "false",
    "gpg.ssh.defaultKeyCommand": "false",
    "interactive.diffFilter": "cat",
    "safe.bareRepository": "explicit",
    "sequence.editor": "true",
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

NO_PROGRAMS = {"PATH": os.devnull, "GIT_EXEC_PATH": os.devnull}
"""Variables with which git finds no program by name, itself included."""

STARTS_ITSELF = ("worktree", "rev-parse --show-superproject-working-tree")
"""Git commands that run other git commands, none of them in a submodule."""

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

READ_FILES = (
    *("HEAD", "index", "packed-refs", "commondir", "config", "config.worktree", "shallow"),
    *("info/exclude", "info/attributes", "info/grafts", "info/sparse-checkout"),
    *("objects/info/alternates", "objects/info/commit-graph", "objects/pack/multi-pack-index"),
)
"""Files in the git folder that git reads whatever the command."""
WRITES = frozenset(
    [
        "add",
        "apply",
        "branch",
        "commit",
        "commit-tree",
        "merge-tree",
        "read-tree",
        "reset",
        "update-ref",
        "worktree",
        "write-tree",
    ]
)
"""Git commands that write in the git folder."""
WRITTEN_FOLDERS = frozenset(("logs", "objects", "refs", "worktrees"))
"""Folders in the git folder in which they write."""
NEVER_WRITTEN = frozenset(("config", "description", "hooks", "info", "lfs", "modules"))
"""Names in the git folder that may be links of the user."""

NEVER_LINKS = frozenset(("index",))
"""Files of the git folder that neither git nor tools of users make as links."""

NAMED_BY_REPOSITORY = (
    "config",
    "--null",
    "--name-only",
    "--get-regexp",
    r"^(filter\..*\.(clean|smudge|process|required)|merge\..*\.driver)$",
)
"""Git command that lists the settings with programs and a name that the repository chooses."""

HARMLESS = {"required": "false", "driver": "exit 1"}
"""Last part of such a setting -> value that runs nothing; '' for others. A merge driver that fails
is a conflict.
"""


async def run_git(
    workspace: Workspace,
    args: Sequence[str],
    cwd: str,
    session: str = "",
    *,
    timeout_s: float = GIT_TIMEOUT_S,
    also_in: Sequence[str] = (),
    index: str = "",
) -> tuple[int, bytes]:
    """Run `git <args>` in `cwd`: (exit code, output).

    `also_in`: other folders in which the command works. `index`: file to use as the index. 127
    without git, `GIT_CUT` when it took too long or printed too much.
    """
    environment = quiet_environment(workspace.environment(session))
    git = find_program("git", environment.get("PATH", ""), spellings(workspace.roots))
    if not git:
        return 127, b""
    top, is_bare = find_repository(cwd)
    if is_bare:
        return 128, b"fatal: this is in a bare repository or in git's own folder\n"
    if pipe := pipe_in_git_folder(top):
        return 128, os.fsencode(f"fatal: {pipe} is no file: remove it\n")
    environment |= work_tree(top)
    command = _command(args)
    if command not in STARTS_ITSELF and " ".join(args) not in STARTS_ITSELF:
        environment |= NO_PROGRAMS
    if index:
        environment["GIT_INDEX_FILE"] = index
    options = [git, "--no-pager", "--no-optional-locks", *setting_options(SAFE_SETTINGS)]
    if command in WRITES:
        words = [*options, "rev-parse", "--path-format=absolute", "--git-common-dir"]
        code, said = await _run(workspace, words, cwd, environment, timeout_s)
        link = "" if code else link_leading_out(os.fsdecode(said.removesuffix(b"\n")))
        if link:
            return 128, os.fsencode(f"fatal: {link} leads out of the git folder: remove the link\n")
    for folder in () if command in NO_CONTENT else (cwd, *also_in):
        listing = [*options, *NAMED_BY_REPOSITORY]
        code, names = await _run(workspace, listing, folder, environment, timeout_s)
        if code not in (0, 1):
            return code, names
        if b"=" in names:
            return 128, b"fatal: a filter or merge driver has '=' in its name: rename it\n"
        options += setting_options(_switched_off(names))
    return await _run(workspace, [*options, *safe_arguments(args)], cwd, environment, timeout_s)


def pipe_in_git_folder(top: str) -> str:
    """Return a pipe, socket or device where git reads a file, or a link that only a command makes;
    '' for none.

    Git would wait for the pipe's other end, and read what the link leads to.
    """
    for name in READ_FILES:
        path = f"{top}/.git/{name}"
        with suppress(OSError):
            mode = os.stat(path, follow_symlinks=name not in NEVER_LINKS).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                return path
    return ""


def link_leading_out(folder: str) -> str:
    """Return a link in a git folder through which git would write elsewhere; '' for none.

    Commands can make links there.
    """
    real = os.path.realpath(folder)
    for above, folders, files in walk_folders(real):
        names = {*folders, *files}
        if above == real:
            names -= NEVER_WRITTEN
            folders[:] = [name for name in folders if name in WRITTEN_FOLDERS]
        elif above == f"{real}/objects":
            folders[:] = [name for name in folders if len(name) > 2]  # `info`, `pack`
        for path in (f"{above}/{name}" for name in sorted(names)):
            if os.path.islink(path) and not is_inside(os.path.realpath(path), (real,)):
                return path
    return ""


def _command(args: Sequence[str]) -> str:
    """Return the git command behind `-c` options."""
    at = 0
    while args[at] == "-c":
        at += 2
    return args[at]


def _switched_off(names: bytes) -> dict[str, str]:
    keys = [os.fsdecode(name) for name in names.split(b"\0") if name]
    return {key: HARMLESS.get(key.rpartition(".")[2], "") for key in keys}


async def _run(
    workspace: Workspace, words: list[str], cwd: str, environment: dict[str, str], timeout_s: float
) -> tuple[int, bytes]:
    output = CollectingSink()
    ended = await workspace.spawner.run(
        CommandSpec(words, cwd, environment),
        sink=output,
        timeout_s=timeout_s,
        output_bytes_max=GIT_BYTES_MAX,
    )
    code = GIT_CUT if ended.cause in ("timeout", "flood") else ended.code
    return 128 if code is None else code, bytes(output.data)


def setting_options(values: Mapping[str, str]) -> list[str]:
    """Return `-c` options that override every settings file."""
    return [word for key, value in values.items() for word in ("-c", f"{key}={value}")]


def safe_arguments(args: Sequence[str]) -> list[str]:
    """Disable external diffs, text conversion and submodules in commands that show differences.

    The option is needed beside `diff.ignoreSubmodules`, over which `.gitmodules` wins.
    """
    command, *rest = args
    if command == "status":
        return [command, "--ignore-submodules=all", *rest]
    if command in SHOWS_DIFFS:
        return [command, "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", *rest]
    return [command, *rest]


def find_repository(cwd: str) -> tuple[str, bool]:
    """Return the folder of the repository around `cwd`, '' for none, and whether it is bare.

    A stranger can put what looks like a bare repository into a project, as ordinary files.
    """
    folder = cwd
    while True:
        own = os.path.join(folder, ".git")
        if os.path.isfile(own) or looks_like_repository(own):
            return folder, False
        if looks_like_repository(folder):
            return folder, True
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return "", False


def work_tree(folder: str) -> dict[str, str]:
    """Return the variable that makes `folder` the work tree; it stands above `core.worktree`."""
    return {"GIT_WORK_TREE": folder} if folder else {}


def looks_like_repository(folder: str) -> bool:
    """Tell whether a folder has what git looks for in a repository."""
    return all(os.path.lexists(os.path.join(folder, name)) for name in ("HEAD", "objects", "refs"))


def quiet_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Replace git's own variables (`GIT_DIR`, `GIT_EXTERNAL_DIFF` …) by `QUIET_ENVIRONMENT`."""
    return {
        name: value for name, value in environment.items() if not name.startswith("GIT_")
    } | QUIET_ENVIRONMENT
