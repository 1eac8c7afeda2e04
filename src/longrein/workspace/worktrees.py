"""Git worktrees of subagents: create, finish, merge and remove them.

A worktree is a folder outside the user's tree, with a branch of its own. All git calls go through `run_git`, so no
program that the repository names can run. Only `merge_worktree` changes the user's work tree; index and branches are
never touched. An unchanged worktree is removed with its branch. In any other, uncommitted changes are committed on its
branch and it is kept. Removal is never forced: it is refused with the reason where it would lose work.
"""

import os
import re
from collections.abc import Sequence

import msgspec

from longrein.atomic_file import replace_file
from longrein.workspace.files import is_inside
from longrein.workspace.git import run_git
from longrein.workspace.port import Workspace

NAME = r"(?![.-])(?!.*\.\.)(?!.*\.lock\Z)[A-Za-z0-9._-]{1,64}(?<!\.)\Z"
"""Names that are safe as a folder, as a branch and on a command line."""
BRANCHES = "longrein/"
LONG_S = 120.0
"""Seconds for commands that write as many files as the repository has."""
SHOWN_MAX = 5
AUTHOR = ("-c", "user.name=longrein", "-c", "user.email=longrein@localhost")
"""Author of commits that the user did not ask for."""


class Worktree(msgspec.Struct, frozen=True):
    """A worktree, planned or created."""

    path: str
    """Its top folder, absolute."""
    branch: str
    start: str
    """Commit it was created from."""
    root: str
    """Top folder of the user's own work tree."""
    prefix: str = ""
    """Folder below `root` in which the session works; '' for `root` itself."""
    missing: tuple[str, ...] = ()
    """The first few names of uncommitted changes in `root`, which the worktree lacks."""
    missing_count: int = 0
    made: bool = False
    """False while it is only planned."""

    @property
    def cwd(self) -> str:
        """Folder where work begins."""
        return os.path.join(self.path, self.prefix) if self.prefix else self.path

    def mapped(self, path: str) -> str:
        """Map a path at or below `root` into the worktree; any other path is unchanged."""
        return self.path + path[len(self.root) :] if is_inside(path, (self.root,)) else path

    @property
    def words(self) -> str:
        """Instructions for the agent that works in it."""
        left_out = f"Not in it: {short_list(self.missing, self.missing_count)} (not committed there). " * bool(
            self.missing_count
        )
        return (
            f"You work in a git worktree of your own: {self.path}, branch {self.branch}, made from the last commit of "
            f"{self.root}. {left_out}Files that git ignores (dependencies, build results, local settings) are not in "
            f"it either. Keep to this folder; what you change is merged later by others, so change nothing in "
            f"{self.root}. Commit or leave uncommitted, as you like: both are kept."
        )


class FinishedWorktree(msgspec.Struct, frozen=True):
    """Result of `finish_worktree`."""

    kept: bool
    text: str
    """Place of the worktree and how to merge it; '' when it was removed without a remark."""
    files: tuple[str, ...] = ()
    """Files that its commits changed, by their place in the user's tree."""


async def make_worktree(workspace: Workspace, cwd: str, folder: str, name: str, session: str = "") -> Worktree | str:
    """Create worktree `<folder>/<name>` of the repository around `cwd`; or return why not.

    It begins with the last commit. An existing worktree is returned. The record is written before git begins, so a
    half-made worktree is found after a crash and created anew by the next call.
    """
    root = await _root_of(workspace, cwd, os.path.realpath(folder), session)
    if isinstance(root, Refusal):
        return root.why
    if not re.match(NAME, name):
        return f"{name!r} is no name for a worktree: letters, digits, '.', '_' and '-', at most 64"
    path = os.path.join(os.path.realpath(folder), name)
    known = read_worktree(path)
    if known is not None and known.made:
        return known
    missing = await status(workspace, root, session) or []
    shown = tuple(name.encode(errors="replace").decode() for name in missing[:SHOWN_MAX])
    prefix = os.path.relpath(os.path.realpath(cwd), os.path.realpath(root))
    start = await commit_of(workspace, root, session=session)
    tree = Worktree(path, BRANCHES + name, start, root, "" if prefix == "." else prefix, shown, len(missing))
    why = _write_record(tree)
    return f"no worktree can be made: {why}" if why else await _create(workspace, tree, session)


def read_worktree(path: str) -> Worktree | None:
    """Return the worktree at `path`, planned or created; None when there is none."""
    try:
        with open(_record(path), "rb") as file:
            tree = msgspec.json.decode(file.read(), type=Worktree)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    there = not tree.made or os.path.lexists(os.path.join(path, ".git"))
    return tree if tree.path == path and there else None


def list_worktrees(folder: str) -> list[Worktree]:
    """Return all existing worktrees below `folder`, by name."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    paths = (os.path.join(os.path.realpath(folder), name.removesuffix(".json")) for name in names)
    found = (read_worktree(path) for path in dict.fromkeys(paths))
    return [tree for tree in found if tree is not None and tree.made]


async def worktree_changes(
    workspace: Workspace, tree: Worktree, session: str = ""
) -> tuple[Sequence[str], Sequence[str]]:
    """Return (files that its commits changed, names of uncommitted changes)."""
    return await changed_files(workspace, tree, session), await status(workspace, tree.path, session) or ()


async def finish_worktree(workspace: Workspace, tree: Worktree, session: str = "") -> FinishedWorktree:
    """Remove an unchanged worktree; else commit what is uncommitted and keep it."""
    if not tree.made:
        await _remove_unfinished(workspace, tree, session)
        _remove_record(tree.path)
        return FinishedWorktree(False, "")
    changes = await status(workspace, tree.path, session)
    if changes is None:
        return FinishedWorktree(
            True, f"worktree {tree.path} (branch {tree.branch}) was left as it is: git does not answer there"
        )
    if not changes and await commit_of(workspace, tree.path, session=session) == tree.start:
        why = await remove_worktree(workspace, tree, session)
        return FinishedWorktree(
            bool(why), f"worktree {tree.path} is unchanged and was not removed: {why}" if why else ""
        )
    left = await _commit_rest(workspace, tree, session) if changes else ""
    files = await changed_files(workspace, tree, session)
    return FinishedWorktree(True, await _kept_text(workspace, tree, left, session), files)


async def remove_worktree(workspace: Workspace, tree: Worktree, session: str = "", *, unmerged: bool = False) -> str:
    """Remove a worktree and its branch; '' on success, else why not.

    Refused with uncommitted changes. Commits that are not in the user's branch are removed only with `unmerged`.
    """
    changes = await status(workspace, tree.path, session)
    if changes is None or changes:
        what = f"uncommitted: {short_list(changes)}" if changes else "git does not answer there"
        return f"{tree.path} was not removed, it holds work ({what})" if changes else what
    head = await commit_of(workspace, tree.path, session=session)
    merged = head == tree.start or await _is_merged(workspace, tree.root, head, session)
    if not merged and not unmerged:
        return f"{tree.branch} holds commits that were not merged"
    code, said = await run_git(workspace, ["worktree", "remove", tree.path], tree.root, session, timeout_s=LONG_S)
    if code:
        return one_line(said)
    tip = await commit_of(workspace, tree.root, f"refs/heads/{tree.branch}", session)
    if tip and (tip in (head, tree.start)):  # else the branch holds other work
        await run_git(workspace, ["update-ref", "-d", f"refs/heads/{tree.branch}", tip], tree.root, session)
    _remove_record(tree.path)
    return ""


# --- Creation --------------------------------------------------------------------------------------------------------


class Refusal(msgspec.Struct, frozen=True):
    """Why a worktree cannot be created."""

    why: str


async def _root_of(workspace: Workspace, cwd: str, folder: str, session: str) -> str | Refusal:
    """Find the top of the user's work tree around `cwd`."""
    if is_inside(os.path.realpath(cwd), (folder,)):
        return Refusal("this is a worktree of a subagent already: work in it, or divide the files")
    code, said = await run_git(workspace, ["rev-parse", "--is-bare-repository", "--is-inside-work-tree"], cwd, session)
    if code == 127:
        return Refusal("git is not installed, so there are no worktrees")
    if code:
        why = one_line(said)
        plain = "not a git repository" in why or code == 124
        return Refusal(f"{cwd} is not in a git repository" if plain else f"git refuses here: {why}")
    if said.split() != [b"false", b"true"]:
        return Refusal(f"{cwd} is in a bare repository or in git's own folder: there is no work tree to begin with")
    code, said = await run_git(workspace, ["rev-parse", "--show-toplevel"], cwd, session)
    top = os.fsdecode(said.removesuffix(b"\n"))
    if code or not os.path.isdir(top):
        return Refusal(f"git does not name the top of {cwd}: {one_line(said)}")
    if is_inside(folder, (top, os.path.realpath(top))):
        return Refusal(f"the state folder lies inside {top}: a worktree there would be part of the user's tree")
    return await _check_repository(workspace, top, session)


async def _check_repository(workspace: Workspace, top: str, session: str) -> str | Refusal:
    """Return `top` when a worktree of it would be complete, else a refusal."""
    code, said = await run_git(workspace, ["rev-parse", "--show-superproject-working-tree"], top, session)
    if code or said.strip():
        return Refusal(
            f"{top} is a submodule of {one_line(said)}: worktrees of submodules do not work together with it"
        )
    if not await commit_of(workspace, top, session=session):
        return Refusal(f"{top} has no commit yet: a worktree begins with the last commit")
    code, _ = await run_git(workspace, ["cat-file", "-e", "HEAD:.gitmodules"], top, session)
    if not code:
        return Refusal(f"{top} has submodules, which would be empty in a worktree")
    return top


async def _create(workspace: Workspace, tree: Worktree, session: str) -> Worktree | str:
    """Let git create the worktree; the record says so last."""
    await _remove_unfinished(workspace, tree, session)
    words = ["worktree", "add", "--quiet", "-b", tree.branch, tree.path, tree.start]
    code, said = await run_git(workspace, words, tree.root, session, timeout_s=LONG_S)
    if code:
        return f"git cannot make a worktree: {one_line(said)}"
    made = msgspec.structs.replace(tree, made=True)
    try:
        os.makedirs(made.cwd, exist_ok=True)  # the session's folder may hold no committed file
    except OSError as error:
        return f"{made.cwd} cannot be made ({error.strerror})"
    return _write_record(made) or made


async def _remove_unfinished(workspace: Workspace, tree: Worktree, session: str) -> None:
    """Remove a half-made worktree, in which nobody has worked."""
    if os.path.lexists(tree.path):
        await run_git(workspace, ["worktree", "remove", "--force", tree.path], tree.root, session, timeout_s=LONG_S)
        await run_git(workspace, ["update-ref", "-d", f"refs/heads/{tree.branch}", tree.start], tree.root, session)


def _write_record(tree: Worktree) -> str:
    """Write its record, complete or not at all; '' on success."""
    record = _record(tree.path)
    try:
        os.makedirs(os.path.dirname(record), mode=0o700, exist_ok=True)
        replace_file(record, (msgspec.json.encode(tree),), durable=False)
    except OSError as error:
        return f"{record} cannot be written ({error.strerror})"
    except UnicodeEncodeError:
        return f"the name of {tree.root!r} is not valid text"
    return ""


def _record(path: str) -> str:
    """Path of a worktree's record, beside its folder."""
    return f"{path}.json"


def _remove_record(path: str) -> None:
    try:
        os.unlink(_record(path))
    except OSError:
        return


# --- Queries ---------------------------------------------------------------------------------------------------------


async def status(workspace: Workspace, folder: str, session: str = "") -> list[str] | None:
    """Return the names of uncommitted changes; None when git fails."""
    words = ["status", "--porcelain", "-z", "--untracked-files=normal", "--no-renames"]
    code, said = await run_git(workspace, words, folder, session, timeout_s=LONG_S)
    return None if code else [os.fsdecode(piece[3:]) for piece in said.split(b"\0") if piece]


async def commit_of(workspace: Workspace, folder: str, name: str = "HEAD", session: str = "") -> str:
    """Return the commit of a name; '' when there is none."""
    code, said = await run_git(workspace, ["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"], folder, session)
    return "" if code else said.decode("ascii", "replace").strip()


async def changed_files(workspace: Workspace, tree: Worktree, session: str = "") -> tuple[str, ...]:
    """Return the files that its commits changed, by their place in the user's tree."""
    words = ["diff", "--name-only", "--no-renames", "-z", tree.start, "HEAD"]
    code, said = await run_git(workspace, words, tree.path, session)
    return () if code else tuple(os.path.join(tree.root, os.fsdecode(name)) for name in said.split(b"\0") if name)


async def _is_merged(workspace: Workspace, root: str, commit: str, session: str) -> bool:
    """Tell whether the user's last commit contains `commit`, in its history or, after a squash, in its files."""
    code, _ = await run_git(workspace, ["merge-base", "--is-ancestor", commit, "HEAD"], root, session)
    if not commit or code == 0:
        return bool(commit)
    code, merged = await run_git(workspace, ["merge-tree", "--write-tree", "HEAD", commit], root, session)
    held, own = await run_git(workspace, ["rev-parse", "HEAD^{tree}"], root, session)
    return not code and not held and merged.strip() == own.strip()


async def _commit_rest(workspace: Workspace, tree: Worktree, session: str) -> str:
    """Commit uncommitted changes; '' on success, else why not. On failure they stay in the folder."""
    code, said = await run_git(workspace, ["add", "--all"], tree.path, session, timeout_s=LONG_S)
    if not code:
        words = [*AUTHOR, "commit", "--quiet", "--no-verify", "-m", f"What was left uncommitted in {tree.branch}"]
        code, said = await run_git(workspace, words, tree.path, session, timeout_s=LONG_S)
    return one_line(said) if code else ""


async def _kept_text(workspace: Workspace, tree: Worktree, left: str, session: str) -> str:
    """Say where a kept worktree is, how large its change is, and how to merge it."""
    tip = await commit_of(workspace, tree.path, session=session)
    moved = tip != await commit_of(workspace, tree.root, f"refs/heads/{tree.branch}", session)
    name = tip[:12] if moved else tree.branch  # the subagent may have switched to another branch
    code, said = await run_git(workspace, ["diff", "--shortstat", tree.start, "HEAD"], tree.path, session)
    size = one_line(said) if not code and said.strip() else "no committed change"
    rest = f"; some of it could not be committed ({left}) and lies uncommitted in its folder" if left else ""
    return (
        f"kept on {'commit' if moved else 'branch'} {name}, folder {tree.path}: {size}{rest}. To see it: git diff "
        f"HEAD...{name}; to take it over: git merge --squash {name}, or, where uncommitted changes are in the way, "
        f"longrein worktrees merge {os.path.basename(tree.path)}{await _conflict_note(workspace, tree, name, session)}"
    )


async def _conflict_note(workspace: Workspace, tree: Worktree, name: str, session: str) -> str:
    """Name the files that conflict with the user's present commit; '' for none."""
    words = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", "HEAD", name]
    code, said = await run_git(workspace, words, tree.root, session)
    names = [os.fsdecode(piece) for piece in said.split(b"\0")[1:] if piece]
    return f" (conflicts with the present commit in {short_list(names)})" if code == 1 and names else ""


def one_line(said: bytes) -> str:
    """Return git's output in one line."""
    return " ".join(said.decode("utf-8", "replace").split())[:300] or "it gives no reason"


def short_list(names: Sequence[str], count: int = 0) -> str:
    """Join the first few of `names`; `count` is their number when not all are given."""
    shown, more = ", ".join(" ".join(name.split()) for name in names[:SHOWN_MAX]), max(count, len(names)) - SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


# --- Merging into the user's folder ----------------------------------------------------------------------------------
#
# All changes or none. Git merges three-way without index and work tree: both sides are commits, the user's being a
# snapshot of the folder with its uncommitted changes. Only a merge without conflict changes the folder, as one patch
# that git applies completely or not at all. Index and branch stay, so the changes show as uncommitted.


class MergeResult(msgspec.Struct, frozen=True):
    """Result of `merge_worktree`."""

    done: bool
    text: str
    """The merged files, or why nothing was touched; one line."""
    files: tuple[str, ...] = ()
    """Changed files, absolute."""
    conflicts: tuple[str, ...] = ()
    """Files that both sides changed in the same places, or that are in the way; absolute."""


async def merge_worktree(workspace: Workspace, tree: Worktree, session: str = "") -> MergeResult:
    """Merge the changes of `tree` into the folder `tree.root`.

    Uncommitted changes of the worktree are committed there first.
    """
    finished = await finish_worktree(workspace, tree, session)
    if not finished.kept:
        return MergeResult(True, f"{tree.branch} changed nothing")
    theirs = await commit_of(workspace, tree.path, session=session)
    ours = await _snapshot_commit(workspace, tree.root, session)
    if not ours or not theirs:
        where = tree.path if ours else f"{tree.root}, or it is in the middle of a merge"
        return MergeResult(False, f"nothing was touched: git does not answer in {where}")
    words = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs]
    code, said = await run_git(workspace, words, tree.root, session, timeout_s=LONG_S)
    result, *names = said.split(b"\0")
    conflicts = _absolute(tree.root, names)
    if code == 1 and conflicts:
        return MergeResult(False, f"nothing was touched: both sides changed {short_list(conflicts)}", (), conflicts)
    if code:
        return MergeResult(False, f"nothing was touched: git (2.38 or newer is needed) says {one_line(said)}")
    return await _apply(workspace, tree, ours, result.decode("ascii", "replace").strip(), session)


async def _snapshot_commit(workspace: Workspace, root: str, session: str) -> str:
    """Commit the folder's present state, without a branch; the last commit of a clean folder. '' on failure."""
    code, said = await run_git(workspace, ["stash", "create"], root, session, timeout_s=LONG_S)
    words = said.decode("ascii", "replace").split()
    return "" if code else await commit_of(workspace, root, words[-1] if words else "HEAD", session)


async def _apply(workspace: Workspace, tree: Worktree, ours: str, result: str, session: str) -> MergeResult:
    """Change the folder from the snapshot to the merge result."""
    new = await _changed_between(workspace, tree.root, session, "--diff-filter=A", ours, result)
    there = [path for path in new if os.path.lexists(path)]  # untracked, so not in the snapshot
    same = [path for path in there if await _is_same(workspace, tree.root, result, path, session)]
    in_the_way = tuple(path for path in there if path not in same)
    if in_the_way:
        return MergeResult(False, f"nothing was touched: {short_list(in_the_way)} would be overwritten", (), in_the_way)
    but = ["--", ".", *(f":(exclude,literal){os.path.relpath(path, tree.root)}" for path in same)]
    files = await _changed_between(workspace, tree.root, session, ours, result, *but)
    if not files:
        return MergeResult(True, f"all of {tree.branch} is in {tree.root} already")
    why = await _apply_patch(workspace, tree, [ours, result, *but], session)
    if why:
        return MergeResult(False, f"nothing was touched: the folder was changed meanwhile ({why}); try again")
    count = f"{len(files)} {'file' if len(files) == 1 else 'files'}"
    return MergeResult(True, f"{count} changed in {tree.root}, not committed: {short_list(files)}", files)


async def _is_same(workspace: Workspace, root: str, result: str, path: str, session: str) -> bool:
    """Tell whether a file of the folder equals the file in the result."""
    name = f"{result}:{os.path.relpath(path, root)}"
    code, data = await run_git(workspace, ["cat-file", "blob", name], root, session)
    try:
        return not code and not os.path.islink(path) and workspace.read(path) == data
    except OSError:
        return False


async def _apply_patch(workspace: Workspace, tree: Worktree, sides: Sequence[str], session: str) -> str:
    """Apply the difference completely or not at all; '' on success."""
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
    return one_line(said) if code else ""


async def _changed_between(workspace: Workspace, root: str, session: str, *words: str) -> tuple[str, ...]:
    code, said = await run_git(workspace, ["diff", "--name-only", "--no-renames", "-z", *words], root, session)
    return () if code else _absolute(root, said.split(b"\0"))


def _absolute(root: str, names: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(os.path.join(root, os.fsdecode(name)) for name in names if name)
