"""Questions to the user's own git repository, for copies of the work tree. Nothing in it is
changed.
"""

import os
import subprocess
from collections.abc import Mapping

from longrein.workspace.files import read
from longrein.workspace.git import (
    NO_PROGRAMS,
    SAFE_SETTINGS,
    find_repository,
    pipe_in_git_folder,
    setting_options,
    work_tree,
)
from longrein.workspace.tree_records import CheckpointError

GIT_S = 60.0
"""Limit of one git command, in seconds."""
EXCLUDE_BYTES_MAX = 1 << 20


class UsersRepository:
    """The repository that holds a root, if there is one."""

    def __init__(self, git: str, root: str, environment: Mapping[str, str]) -> None:
        """Look the places up. `environment`: without git's own variables. Raises
        `CheckpointError`.
        """
        self._git = git
        self._root = root
        self._environment = environment
        self.top = self.objects = self.index = ""
        """Top folder, folder of objects that may be borrowed, index; '' outside a repository."""
        self.exclude = b""
        """Content of `info/exclude`."""
        top, is_bare = find_repository(root)
        self._tops = work_tree(top)
        self._cwd = "/" if pipe_in_git_folder(top) else root  # git would wait for the pipe
        if top and not is_bare and self._cwd == root:
            self._find()

    def _find(self) -> None:
        words = [
            "rev-parse",
            "--git-path",
            "objects",
            "--git-path",
            "info/exclude",
            "--git-path",
            "index",
        ]
        found = (
            self.ask(*words, "--show-object-format").decode("utf-8", "surrogateescape").split("\n")
        )
        if len(found) != 5:
            return
        objects, exclude, index = (os.path.join(self._root, path) for path in found[:3])
        try:
            self.exclude = read(os.path.normpath(exclude), EXCLUDE_BYTES_MAX)
        except FileNotFoundError:
            pass
        except OSError:  # a link or a pipe, which git would open
            return
        self.index = index
        self.top = self._tops["GIT_WORK_TREE"]
        if found[3] == "sha1" and ":" not in objects and not objects.startswith('"'):
            self.objects = os.path.realpath(objects)

    def excludes_file(self) -> str:
        """Return the setting of the user's own `core.excludesFile`; '' for the usual place."""
        path = self.ask("config", "--type=path", "--get", "core.excludesFile").rstrip(b"\n")
        if not path or b"\n" in path:
            return ""
        quoted = path.decode("utf-8", "surrogateescape").replace("\\", "\\\\").replace('"', '\\"')
        return f'[core]\n\texcludesFile = "{quoted}"\n'

    def ask(self, *words: str) -> bytes:
        """Run a git command that reads no content of files; b'' when it fails. Raises
        `CheckpointError` when it was killed.
        """
        try:
            done = subprocess.run(
                [self._git, "--no-optional-locks", *setting_options(SAFE_SETTINGS), *words],
                cwd=self._cwd,
                env={**self._environment, **self._tops, **NO_PROGRAMS},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=GIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return b""
        if done.returncode < 0:
            raise CheckpointError(f"git was killed by signal {-done.returncode}")
        return done.stdout if done.returncode == 0 else b""
