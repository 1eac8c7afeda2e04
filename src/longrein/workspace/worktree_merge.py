"""What a worktree holds, brought into the user's own folder: all of it, or nothing and the conflicts named.

Git merges three-way without index and work tree; both sides are commits, the user's being a picture of the folder as
it is now, uncommitted changes included. Only a merge without conflict touches the folder, as one patch that git takes
whole or not at all; index and branch stay as they are, so what came in is seen as uncommitted changes.
"""

import os
from collections.abc import Sequence

import msgspec

from longrein.workspace.git import run_git
from longrein.workspace.port import Workspace
from longrein.workspace.worktrees import LONG_S, Worktree, commit_of, finish_worktree, line_of, listed


class Merged(msgspec.Struct, frozen=True):
    """What came of it."""

    done: bool
    text: str
    """One line: what was brought over, or why nothing was touched."""
    files: tuple[str, ...] = ()
    """Files that were changed, absolute."""
    conflicts: tuple[str, ...] = ()
    """Files that both sides changed in the same places, or that are in the way; absolute."""


async def merge_worktree(workspace: Workspace, tree: Worktree, session: str = "") -> Merged:
    """Bring the changes of `tree` into `tree.root`. What was not committed in it is committed there first; else the
    worktree stays as it is."""
    finished = await finish_worktree(workspace, tree, session)
    if not finished.kept:
        return Merged(True, f"{tree.branch} changed nothing")
    theirs = await commit_of(workspace, tree.path, session=session)
    ours = await _picture(workspace, tree.root, session)
    if not ours or not theirs:
        where = tree.path if ours else f"{tree.root}, or it is in the middle of a merge"
        return Merged(False, f"nothing was touched: git does not answer in {where}")
    words = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs]
    code, said = await run_git(workspace, words, tree.root, session, timeout_s=LONG_S)
    result, *names = said.split(b"\0")
    conflicts = _absolute(tree.root, names)
    if code == 1 and conflicts:
        return Merged(False, f"nothing was touched: both sides changed {listed(conflicts)}", (), conflicts)
    if code:
        return Merged(False, f"nothing was touched: git (2.38 or newer is needed) says {line_of(said)}")
    return await _applied(workspace, tree, ours, result.decode("ascii", "replace").strip(), session)


async def _picture(workspace: Workspace, root: str, session: str) -> str:
    """A commit of the folder as it is, which nobody else sees; of a clean one its last commit. '' when git cannot."""
    code, said = await run_git(workspace, ["stash", "create"], root, session, timeout_s=LONG_S)
    words = said.decode("ascii", "replace").split()
    return "" if code else await commit_of(workspace, root, words[-1] if words else "HEAD", session)


async def _applied(workspace: Workspace, tree: Worktree, ours: str, result: str, session: str) -> Merged:
    """Change the folder from the picture to the result."""
    new = await _differing(workspace, tree.root, session, "--diff-filter=A", ours, result)
    there = [path for path in new if os.path.lexists(path)]  # git does not know them, so no picture holds them
    same = [path for path in there if await _is_same(workspace, tree.root, result, path, session)]
    in_the_way = tuple(path for path in there if path not in same)
    if in_the_way:
        return Merged(False, f"nothing was touched: {listed(in_the_way)} would be overwritten", (), in_the_way)
    but = ["--", ".", *(f":(exclude,literal){os.path.relpath(path, tree.root)}" for path in same)]
    files = await _differing(workspace, tree.root, session, ours, result, *but)
    if not files:
        return Merged(True, f"all of {tree.branch} is in {tree.root} already")
    why = await _patched(workspace, tree, [ours, result, *but], session)
    if why:
        return Merged(False, f"nothing was touched: the folder was changed meanwhile ({why}); try again")
    count = f"{len(files)} {'file' if len(files) == 1 else 'files'}"
    return Merged(True, f"{count} changed in {tree.root}, not committed: {listed(files)}", files)


async def _is_same(workspace: Workspace, root: str, result: str, path: str, session: str) -> bool:
    """Whether a file of the folder is what the result holds."""
    name = f"{result}:{os.path.relpath(path, root)}"
    code, data = await run_git(workspace, ["cat-file", "blob", name], root, session)
    try:
        return not code and not os.path.islink(path) and workspace.read(path) == data
    except OSError:
        return False


async def _patched(workspace: Workspace, tree: Worktree, sides: Sequence[str], session: str) -> str:
    """Apply the difference, whole or not at all; '' when that was done."""
    patch = f"{tree.path}.patch"
    try:
        words = ["diff", "--binary", "--full-index", "--no-renames", f"--output={patch}", *sides]
        code, said = await run_git(workspace, words, tree.root, session, timeout_s=LONG_S)
        if not code:
            words = ["apply", "--whitespace=nowarn", patch]
            code, said = await run_git(workspace, words, tree.root, session, timeout_s=LONG_S)
    finally:
        if os.path.lexists(patch):
            os.unlink(patch)
    return line_of(said) if code else ""


async def _differing(workspace: Workspace, root: str, session: str, *words: str) -> tuple[str, ...]:
    code, said = await run_git(workspace, ["diff", "--name-only", "--no-renames", "-z", *words], root, session)
    return () if code else _absolute(root, said.split(b"\0"))


def _absolute(root: str, names: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(os.path.join(root, os.fsdecode(name)) for name in names if name)
