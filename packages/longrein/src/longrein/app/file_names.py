"""Completion of file names after `@`, from the files that git knows or a walk finds."""

import asyncio
import os
from collections.abc import Callable, Sequence

import msgspec

from longrein.app.file_matching import MATCHES_MAX, FileMatcher
from longrein.workspace import Workspace

FILES_MAX = 500_000
"""Files searched for `@`, where git does not list them."""
FILES_LIMIT_S = 5.0
"""Longest search for these files, seconds."""
FILES_KEPT_S = 10.0
"""Seconds that a list of files is reused while the user types."""
FRESH_S = 0.03
"""Seconds that a key waits for a new list of files before it uses the old one."""
FILES_SHOWN_MAX = 50
"""Files offered at once."""


class FilesFound(msgspec.Struct, frozen=True):
    """Completions of a file name after `@`."""

    paths: Sequence[str]
    """Paths relative to the folder, best first."""
    note: str = ""
    """Reason why the list is incomplete; '' when it is complete."""


class FileNames:
    """Completion of file names in a folder, for `@`."""

    def __init__(
        self,
        workspace: Workspace,
        cwd: Callable[[], str],
        mono_s: Callable[[], float],
        files_max: int = FILES_MAX,
    ) -> None:
        self._workspace = workspace
        self._cwd = cwd
        self._mono_s = mono_s
        self._files_max = files_max
        self._of, self._listed_s = "", 0.0
        self._matcher = FileMatcher(())
        self._files = 0
        self._whole = True
        """True if the list is complete."""
        self._renewing: asyncio.Task[None] | None = None
        self._typed = ""

    async def find(self, typed: str) -> FilesFound:
        """Return the files and folders that match `typed`, best first.

        A list is renewed beside the search for each new word and when it is old, so that only the
        first key in a folder, and a word that nothing fits, wait for it.
        """
        cwd, now_s = self._cwd(), self._mono_s()
        is_new = not typed or not typed.startswith(self._typed)
        self._typed = typed
        if cwd != self._of:
            await self._renew(cwd)
        elif (is_new or now_s - self._listed_s > FILES_KEPT_S) and (
            self._renewing is None or self._renewing.done()
        ):
            self._renewing = asyncio.ensure_future(self._renew(cwd))
            await asyncio.wait([self._renewing], timeout=FRESH_S)
        shown, found = self._matcher.find(typed, FILES_SHOWN_MAX)
        if not shown and self._renewing is not None:
            await asyncio.wait([self._renewing])
            shown, found = self._matcher.find(typed, FILES_SHOWN_MAX)
        left = found - len(shown)
        is_counted = not typed or found < MATCHES_MAX
        more = ""
        if left:
            more = f"{left:,} more; type on" if is_counted else "more; type on"
        partial = "" if self._whole else f"only {self._files:,} files of this folder were looked at"
        return FilesFound(shown, "; ".join(filter(None, (more, partial))))

    async def _renew(self, cwd: str) -> None:
        paths, whole = await self._list(cwd)
        self._matcher = await self._workspace.run_in_thread(lambda: FileMatcher(paths))
        self._of = cwd
        self._listed_s = self._mono_s()
        self._files = len(paths)
        self._whole = whole

    async def _list(self, cwd: str) -> tuple[list[str], bool]:
        """Return the files that git knows, else those of a walk with a time limit; and whether
        they are complete.
        """
        from longrein.workspace.git import GIT_CUT, run_git

        listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        code, listed = await run_git(self._workspace, listing, cwd)
        if code in (0, GIT_CUT):
            return listed.decode("utf-8", "surrogateescape").split("\0")[:-1], code == 0
        paths: list[str] = []
        whole = True
        folder = self._workspace.resolve(cwd, "/").real
        above = os.path.join(folder, "")

        def note(path: str, is_folder: bool) -> bool:
            nonlocal whole
            if len(paths) >= self._files_max:
                whole = False
            elif not is_folder:
                paths.append(path.removeprefix(above))
            return whole

        walking = asyncio.ensure_future(
            self._workspace.run_in_thread(
                lambda: self._workspace.walk(folder, note, limit_s=FILES_LIMIT_S)
            )
        )
        try:
            in_time = await asyncio.shield(walking)
        except asyncio.CancelledError:
            whole = False  # the walk ends soon without a waiter
            raise
        return paths, whole and in_time
