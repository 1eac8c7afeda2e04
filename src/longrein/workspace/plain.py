"""The plain workspace: the user's own files and processes, without a sandbox."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from longrein.workspace import files
from longrein.workspace.afterwards import look_again
from longrein.workspace.aside import aside
from longrein.workspace.environment import children_environment
from longrein.workspace.exchange import alone_in
from longrein.workspace.paths import look, spellings
from longrein.workspace.port import Merge, Place, Replaced, Spawner, Stamp
from longrein.workspace.replacing import replace, take_in, write
from longrein.workspace.stamps import stamp, stamp_again
from longrein.workspace.walk import walk

T = TypeVar("T")
SESSION_MARK = "LONGREIN_SESSION"


class PlainWorkspace:
    """See `Workspace`."""

    def __init__(
        self, roots: Sequence[str], spawner: Spawner, environment: Mapping[str, str], keep_env: Sequence[str]
    ) -> None:
        self._spellings = spellings(roots)
        self.roots = tuple(dict.fromkeys(look(root, "/", (), "").real for root in spellings(roots)))
        self.spawner = spawner
        self._merge: Merge | None = None
        self._home = environment.get("HOME", "")
        self._environment = children_environment(environment, keep_env)

    def look(self, path: str, cwd: str) -> Place:
        """See `Workspace.look`."""
        return look(path, cwd, self._spellings, self._home)

    def read(self, path: str, limit_bytes: int = 0) -> bytes:
        """See `Workspace.read`."""
        return files.read(path, limit_bytes)

    def write(self, path: str, data: bytes, *, expect: str | None = None) -> None:
        """See `Workspace.write`."""
        write(path, data, expect=expect)

    def replace(
        self, path: str, data: bytes, *, expect: str, base: bytes | None = None, merge: Merge | None = None
    ) -> Replaced:
        """See `Workspace.replace`."""
        self._merge = merge or self._merge
        return replace(path, data, expect=expect, base=base, merge=merge)

    async def aside(self, work: Callable[[], T], /) -> T:
        """See `Workspace.aside`."""
        return await aside(work)

    def remove(self, path: str) -> None:
        """See `Workspace.remove`."""
        files.remove(path)

    def hash(self, path: str) -> str:
        """See `Workspace.hash`."""
        return files.content_hash(path)

    def stamp(self, path: str, then: Stamp | None = None) -> Stamp:
        """See `Workspace.stamp`."""
        for late in look_again():
            with alone_in(os.path.dirname(late.target)):
                take_in(late, self._merge)
        return stamp(path) if then is None else stamp_again(path, then)

    def walk(
        self, folder: str, visit: Callable[[str, bool], bool], limit_s: float = 10.0, *, ignored: bool = False
    ) -> bool:
        """See `Workspace.walk`."""
        return walk(folder, visit, limit_s, time.monotonic, ignored=ignored)

    def environment(self, session: str) -> dict[str, str]:
        """See `Workspace.environment`."""
        return {**self._environment, SESSION_MARK: session}


def open_workspace(
    roots: Sequence[str], *, spawner: Spawner, environment: Mapping[str, str], keep_env: Sequence[str] = ()
) -> PlainWorkspace:
    """The plain workspace over `roots` (absolute folders).

    `environment` is the parent's, of which children get an allow-list; `keep_env` widens it: exact names, or
    beginnings written `MY_*`.
    """
    return PlainWorkspace(roots, spawner, environment, keep_env)
