"""Workspace over the user's own files and processes, without a sandbox."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

import msgspec

from longrein.workspace import files
from longrein.workspace.atomic_write import replace
from longrein.workspace.command_environment import CALL_ID, children_environment
from longrein.workspace.files import is_inside, refresh_stamp, resolve_path, spellings, stamp
from longrein.workspace.supervisor.process_tree import SESSION_MARK
from longrein.workspace.walk import walk
from longrein.workspace.workspace_port import (
    FileStamp,
    Merge,
    ReplaceResult,
    ResolvedPath,
    SharedFolders,
    Spawner,
)

T = TypeVar("T")


def _work(
    work: Callable[[], T], loop: asyncio.AbstractEventLoop, done: "asyncio.Future[T]"
) -> None:
    try:
        tell = partial(done.set_result, work())
    except BaseException as error:  # raised in the caller
        tell = partial(done.set_exception, error)
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(tell)


class PlainWorkspace:
    """See `Workspace`."""

    def __init__(
        self,
        roots: Sequence[str],
        spawner: Spawner,
        environment: Mapping[str, str],
        keep_env: Sequence[str],
        shared: Callable[[], SharedFolders] = SharedFolders,
    ) -> None:
        self._shared = shared
        self._spellings = spellings(roots)
        self.roots = tuple(
            dict.fromkeys(resolve_path(root, "/", (), "").real for root in self._spellings)
        )
        self.spawner = spawner
        self._home = environment.get("HOME", "")
        self._environment = children_environment(environment, keep_env)

    def resolve(self, path: str, cwd: str) -> ResolvedPath:
        found = resolve_path(path, cwd, self._spellings, self._home)
        return found if found.inside else self._in_shared(found)

    def _in_shared(self, found: ResolvedPath) -> ResolvedPath:
        """Return the place of a path in a shared folder; other paths as they are.

        A path below `/tmp` is the machine's own, unless commands have made something there in
        theirs. What is empty hides no file of the user's: it may be the place of a mount.
        """
        shared = self._shared()
        if shared.cache and is_inside(found.path, (shared.cache,)):
            inside = is_inside(found.real, (shared.cache,))
            return msgspec.structs.replace(found, inside=inside, is_scratch=inside)
        if not shared.tmp or not is_inside(found.path, ("/tmp",)):
            return found
        written = shared.tmp + found.path.removeprefix("/tmp")
        moved = resolve_path(written, "/", (shared.tmp,), "")
        is_new = not moved.kind and (
            os.path.isdir(os.path.dirname(found.path))
            or not os.path.isdir(os.path.dirname(written))
        )
        is_hidden = found.kind and found.kind == moved.kind and _is_empty(moved)
        if is_new or is_hidden or is_inside(found.path, shared.named):
            return found
        return msgspec.structs.replace(
            moved, given=found.given, path=found.path, is_scratch=moved.inside
        )

    def find_program(self, name: str) -> str:
        if "/" in name:
            return name
        folders = self.environment("").get("PATH", os.defpath).split(os.pathsep)
        return next((path for f in folders if os.access(path := f"{f or '.'}/{name}", os.X_OK)), "")

    def read(self, path: str, limit_bytes: int = 0) -> bytes:
        return files.read(path, limit_bytes)

    def replace(
        self,
        path: str,
        data: bytes,
        *,
        expect: str,
        base: bytes | None = None,
        merge: Merge | None = None,
        like: str = "",
        mode: int | None = None,
    ) -> ReplaceResult:
        return replace(path, data, expect=expect, base=base, merge=merge, like=like, mode=mode)

    async def run_in_thread(self, work: Callable[[], T], /) -> T:
        done = run_in_background(work)
        while not done.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        return done.result()

    def remove(self, path: str) -> int:
        return files.remove(path)

    def hash(self, path: str) -> str:
        return files.content_hash(path)

    def stamp(self, path: str, then: FileStamp | None = None) -> FileStamp:
        return stamp(path) if then is None else refresh_stamp(path, then)

    def walk(
        self,
        folder: str,
        visit: Callable[[str, bool], bool],
        limit_s: float = 10.0,
        *,
        ignored: bool = False,
    ) -> bool:
        return walk(folder, visit, limit_s, time.monotonic, ignored=ignored)

    def environment(self, session: str, call_id: str = "") -> dict[str, str]:
        of_call = {CALL_ID: call_id} if call_id else {}
        return {**self._environment, SESSION_MARK: session, **of_call}


def _is_empty(place: ResolvedPath) -> bool:
    if place.kind != "folder":
        return not place.size_bytes
    with os.scandir(place.real) as entries:
        return next(entries, None) is None


def run_in_background(work: Callable[[], T]) -> "asyncio.Future[T]":
    """Do `work` in a thread; nobody has to wait for it, not even at the exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    # a thread of its own: in the loop's small pool one slow disk would delay all other work
    Thread(target=_work, args=(work, loop, done), name="longrein-worker", daemon=True).start()
    return done


def open_workspace(
    roots: Sequence[str],
    *,
    spawner: Spawner,
    environment: Mapping[str, str],
    keep_env: Sequence[str] = (),
    shared: Callable[[], SharedFolders] = SharedFolders,
) -> PlainWorkspace:
    """Open the workspace over `roots` (absolute folders).

    `environment` is the parent's environment, of which commands get an allow-list. `keep_env`
    widens the list: exact names, or prefixes written `MY_*`. `shared` returns the folders that
    confined commands share with file tools.
    """
    return PlainWorkspace(roots, spawner, environment, keep_env, shared)
