"""Git worktrees of subagents: create, finish, merge and remove them.

A worktree is a folder outside the user's tree, with a branch of its own. All git calls go through
`run_git`, so no program that the repository names can run. Only `merge_worktree` changes the user's
work tree; index and branches are never touched. An unchanged worktree is removed with its branch.
In any other, uncommitted changes are committed on its branch and it is kept. Removal is never
forced: it is refused with the reason where it would lose work.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from longrein.atomic_file import replace_file
from longrein.workspace.files import is_inside, read
from longrein.workspace.git import GIT_CUT, GIT_TIMEOUT_S, NO_CONTENT, run_git
from longrein.workspace.workspace_port import Workspace

NAME = r"(?![.-])(?!.*\.\.)(?!.*\.lock\Z)[A-Za-z0-9._-]{1,64}(?<!\.)\Z"
"""Names that are safe as a folder, as a branch and on a command line."""
BRANCHES = "longrein/"
LONG_S = 120.0
"""Seconds for git commands that may read or write as many files as the repository has."""
SHOWN_MAX = 5
TRIES = 5
HALF_MADE = re.compile(rb"failed to read .*/commondir")
"""What git says of a worktree that another process is making in this moment (git 2.39)."""
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
        return (
            f"You work in a git worktree of your own: {self.path}, branch {self.branch}, made "
            f"from the last commit of {self.root}. {self._left_out}Files that git ignores "
            "(dependencies, build results, local settings) are not in it either. Keep to this "
            "folder; what you change is merged later by others, so change nothing in "
            f"{self.root}. Commit or leave uncommitted, as you like: both are kept."
        )

    @property
    def words_elsewhere(self) -> str:
        """Instructions for the agent that works in a copy on another machine."""
        return (
            f"You work in a copy of the last commit of a repository. {self._left_out}Files that "
            "git ignores (dependencies, build results, local settings) are not in it either. "
            "What you change in it is merged later by others; commit nothing."
        )

    @property
    def _left_out(self) -> str:
        if not self.missing_count:
            return ""
        return f"Not in it: {short_list(self.missing, self.missing_count)} (not committed there). "


class FinishedWorktree(msgspec.Struct, frozen=True):
    """Result of `finish_worktree`."""

    kept: bool
    text: str
    """Place of the worktree and how to merge it; '' when it was removed without a remark."""
    files: tuple[str, ...] = ()
    """Files that its commits changed, by their place in the user's tree."""


class _Git:
    """Git calls of one session."""

    def __init__(self, workspace: Workspace, session: str = "") -> None:
        self.workspace, self._session = workspace, session

    async def run(
        self, folder: str, *words: str, also_in: Sequence[str] = (), index: str = ""
    ) -> tuple[int, bytes]:
        """Run git in `folder`: (exit code, output). For `also_in` and `index` see `run_git`.

        Worktrees are made side by side, and git reads them all.
        """
        code, said = 0, b""
        for _ in range(TRIES):
            code, said = await run_git(
                self.workspace,
                words,
                folder,
                self._session,
                timeout_s=GIT_TIMEOUT_S if words[0] in NO_CONTENT else LONG_S,
                also_in=also_in,
                index=index,
            )
            if not code or not HALF_MADE.search(said):
                break
        return code, said

    async def failure(
        self, folder: str, *words: str, also_in: Sequence[str] = (), index: str = ""
    ) -> str:
        """Run git in `folder`; '' on success, else what it says."""
        code, said = await self.run(folder, *words, also_in=also_in, index=index)
        return one_line(said) if code else ""

    async def failure_to_add(self, folder: str, which: str, index: str = "") -> str:
        """Add files to the index; '' on success, else what git says.

        Repositories inside are left out: git would start itself there, under their settings.
        """
        code, listed = await self.run(folder, "ls-files", "--stage", "-z", "--full-name")
        if code:
            return one_line(listed)
        entries = (entry.partition(b"\t") for entry in listed.split(b"\0"))
        inner = [os.fsdecode(name) for head, _, name in entries if head.startswith(b"160000 ")]
        but = (f":(top,exclude,literal){name}" for name in inner)
        return await self.failure(folder, "add", which, "--", ":(top)", *but, index=index)

    async def commit_of(self, folder: str, name: str = "HEAD") -> str:
        """Return the commit of a name; '' when there is none."""
        code, said = await self.run(
            folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"
        )
        return "" if code else said.decode("ascii", "replace").strip()

    async def status(self, folder: str) -> list[str] | None:
        """Return the names of uncommitted changes; None when git fails."""
        code, said = await self.run(
            folder, "status", "--porcelain", "-z", "--untracked-files=normal", "--no-renames"
        )
        return None if code else [os.fsdecode(piece[3:]) for piece in said.split(b"\0") if piece]

    async def changed_files(self, folder: str, root: str, *sides: str) -> tuple[str, ...]:
        """Return the files that differ between two commits, as paths below `root`; none when git
        fails.
        """
        code, said = await self.run(folder, "diff", "--name-only", "--no-renames", "-z", *sides)
        return () if code else _absolute(root, said.split(b"\0"))

    async def merge(self, folder: str, ours: str, theirs: str) -> tuple[int, str, list[bytes]]:
        """Merge two commits without index and work tree: (exit code, resulting tree, names of
        conflicting files).
        """
        words = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs]
        code, said = await self.run(folder, *words)
        result, *names = said.split(b"\0")
        return code, result.decode("utf-8", "replace").strip(), [name for name in names if name]


async def make_worktree(
    workspace: Workspace, cwd: str, folder: str, name: str, session: str = ""
) -> Worktree | str:
    """Create worktree `<folder>/<name>` of the repository around `cwd`; or return why not.

    It begins with the last commit. An existing worktree is returned. The record is written before
    git begins, so a half-made worktree is found after a crash and created anew by the next call.
    """
    git = _Git(workspace, session)
    try:
        root = await _root_of(git, cwd, os.path.realpath(folder))
    except Refusal as refusal:
        return str(refusal)
    if not re.match(NAME, name):
        return f"{name!r} is no name for a worktree: letters, digits, '.', '_' and '-', at most 64"
    path = os.path.join(os.path.realpath(folder), name)
    known = read_worktree(path)
    if known is not None and known.made:
        return known
    missing = await git.status(root) or []
    shown = tuple(map(_as_text, missing[:SHOWN_MAX]))
    prefix = os.path.relpath(os.path.realpath(cwd), os.path.realpath(root))
    start = await git.commit_of(root)
    tree = Worktree(
        path, BRANCHES + name, start, root, "" if prefix == "." else prefix, shown, len(missing)
    )
    if why := _write_record(tree):
        return f"no worktree can be made: {why}"
    if known is not None or os.path.lexists(path):
        await _remove_unfinished(git, known or tree)
    if why := await _check_out(git, tree):
        return f"git cannot make a worktree: {why}"
    try:
        os.makedirs(tree.cwd, exist_ok=True)  # the session's folder may hold no committed file
    except OSError as error:
        return f"{tree.cwd} cannot be made ({error.strerror})"
    made = msgspec.structs.replace(tree, made=True)
    return _write_record(made) or made


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
    workspace: Workspace, tree: Worktree
) -> tuple[Sequence[str], Sequence[str]]:
    """Return (files that its commits changed, names of uncommitted changes)."""
    git = _Git(workspace)
    files = await git.changed_files(tree.path, tree.root, tree.start, "HEAD")
    return files, await git.status(tree.path) or ()


async def finish_worktree(
    workspace: Workspace, tree: Worktree, session: str = ""
) -> FinishedWorktree:
    """Remove an unchanged worktree; else commit what is uncommitted and keep it."""
    git = _Git(workspace, session)
    if not tree.made:
        await _remove_unfinished(git, tree)
        _remove_record(tree.path)
        return FinishedWorktree(False, "")
    changes = await git.status(tree.path)
    if changes is None:
        return FinishedWorktree(
            True,
            f"worktree {tree.path} (branch {tree.branch}) was left as it is: git does not answer "
            "there",
        )
    if not changes and await git.commit_of(tree.path) == tree.start:
        why = await remove_worktree(workspace, tree, session)
        return FinishedWorktree(
            bool(why),
            f"worktree {tree.path} is unchanged and was not removed: {why}" if why else "",
        )
    left = ""
    if changes:
        words = [
            *AUTHOR,
            "commit",
            "--quiet",
            "--no-verify",
            "-m",
            f"What was left uncommitted in {tree.branch}",
        ]
        left = await git.failure_to_add(tree.path, "--all") or await git.failure(tree.path, *words)
    files = await git.changed_files(tree.path, tree.root, tree.start, "HEAD")
    shown = tuple(map(_as_text, files))
    return FinishedWorktree(True, _as_text(await _kept_text(git, tree, left)), shown)


async def take_patch(workspace: Workspace, tree: Worktree, patch: str, session: str = "") -> str:
    """Commit a file of changes since the worktree's first commit, unless that has been done
    already, completely or not at all; '' on success, else why not.

    The commit is made before the folder changes, so that a call after a crash begins anew.
    """
    git, index = _Git(workspace, session), f"{tree.path}.index"
    head = await git.commit_of(tree.path)
    if head != tree.start:
        return "" if head else f"git does not answer in {tree.path}"
    try:
        if why := await git.failure(tree.path, "read-tree", tree.start, index=index):
            return why
        words = ("apply", "--cached", "--whitespace=nowarn", patch)
        if why := await git.failure(tree.path, *words, index=index):
            return why
        code, said = await git.run(tree.path, "write-tree", index=index)
        if code:
            return one_line(said)
    finally:
        with suppress(OSError):
            os.unlink(index)
    name = said.decode("ascii").strip()
    commit = (*AUTHOR, "commit-tree", "-p", tree.start, "-m", f"Changes of {tree.branch}", name)
    code, said = await git.run(tree.path, *commit)
    if code:
        return one_line(said)
    return await git.failure(tree.path, "reset", "--quiet", "--hard", said.decode("ascii").strip())


async def remove_worktree(
    workspace: Workspace, tree: Worktree, session: str = "", *, unmerged: bool = False
) -> str:
    """Remove a worktree and its branch; '' on success, else why not.

    Refused with uncommitted changes. Commits that are not in the user's branch are removed only
    with `unmerged`.
    """
    git = _Git(workspace, session)
    changes = await git.status(tree.path)
    if changes is None or changes:
        what = f"uncommitted: {short_list(changes)}" if changes else "git does not answer there"
        return f"{tree.path} was not removed, it holds work ({what})" if changes else what
    head = await git.commit_of(tree.path)
    merged = head == tree.start or await _is_merged(git, tree.root, head)
    if not merged and not unmerged:
        return f"{tree.branch} holds commits that were not merged"
    words = ("worktree", "remove", tree.path)
    if why := await git.failure(tree.root, *words, also_in=(tree.path,)):
        return why
    tip = await git.commit_of(tree.root, f"refs/heads/{tree.branch}")
    if tip and (tip in (head, tree.start)):  # else the branch holds other work
        await git.run(tree.root, "update-ref", "-d", f"refs/heads/{tree.branch}", tip)
    _remove_record(tree.path)
    return ""


# --- Creation -------------------------------------------------------------------------------------


class Refusal(Exception):
    """Reason why a worktree cannot be created."""


async def _root_of(git: _Git, cwd: str, folder: str) -> str:
    """Find the top of the user's work tree around `cwd`. Raises `Refusal` where no worktree of
    it would be complete.
    """
    if is_inside(os.path.realpath(cwd), (folder,)):
        raise Refusal("this is a worktree of a subagent already: work in it, or divide the files")
    code, said = await git.run(cwd, "rev-parse", "--is-bare-repository", "--is-inside-work-tree")
    if code == 127:
        raise Refusal("git is not installed, so there are no worktrees")
    if code:
        why = one_line(said)
        plain = "not a git repository" in why or code == GIT_CUT
        raise Refusal(f"{cwd} is not in a git repository" if plain else f"git refuses here: {why}")
    if said.split() != [b"false", b"true"]:
        raise Refusal(
            f"{cwd} is in a bare repository or in git's own folder: there is no work tree to "
            "begin with"
        )
    code, said = await git.run(cwd, "rev-parse", "--show-toplevel")
    top = os.fsdecode(said.removesuffix(b"\n"))
    if code or not os.path.isdir(top):
        raise Refusal(f"git does not name the top of {cwd}: {one_line(said)}")
    if is_inside(folder, (top, os.path.realpath(top))):
        raise Refusal(
            f"the state folder lies inside {top}: a worktree there would be part of the user's tree"
        )
    code, said = await git.run(top, "rev-parse", "--show-superproject-working-tree")
    if code or said.strip():
        raise Refusal(
            f"{top} is a submodule of {one_line(said)}: worktrees of submodules do not work "
            "together with it"
        )
    if not await git.commit_of(top):
        raise Refusal(f"{top} has no commit yet: a worktree begins with the last commit")
    code, _ = await git.run(top, "cat-file", "-e", "HEAD:.gitmodules")
    if not code:
        raise Refusal(f"{top} has submodules, which would be empty in a worktree")
    return top


async def _check_out(git: _Git, tree: Worktree) -> str:
    """Create the branch and its files; '' on success.

    The branch comes first: `worktree add -b` leaves it where it fails, and would find it the next
    time. The files come in a last step, in the new folder: what the configuration includes depends
    on the folder and the branch.
    """
    if why := await git.failure(tree.root, "branch", "--no-track", tree.branch, tree.start):
        return why
    words = ("worktree", "add", "--quiet", "--no-checkout", tree.path, tree.branch)
    return await git.failure(tree.root, *words) or await git.failure(
        tree.path, "reset", "--quiet", "--hard"
    )


async def _remove_unfinished(git: _Git, tree: Worktree) -> None:
    """Remove what there is of a half-made worktree, in which nobody has worked."""
    words = ("worktree", "remove", "--force", tree.path)
    await git.run(tree.root, *words, also_in=(tree.path,))
    await git.run(tree.root, "update-ref", "-d", f"refs/heads/{tree.branch}", tree.start)


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
    with suppress(OSError):
        os.unlink(_record(path))


async def _is_merged(git: _Git, root: str, commit: str) -> bool:
    """Tell whether the user's last commit contains `commit`, in its history or, after a squash,
    in its files.
    """
    code, _ = await git.run(root, "merge-base", "--is-ancestor", commit, "HEAD")
    if not commit or code == 0:
        return bool(commit)
    code, merged, _ = await git.merge(root, "HEAD", commit)
    failed, own = await git.run(root, "rev-parse", "HEAD^{tree}")
    return not code and not failed and merged == own.decode("ascii", "replace").strip()


async def _kept_text(git: _Git, tree: Worktree, left: str) -> str:
    """Say where a kept worktree is, how large its change is, and how to merge it."""
    tip = await git.commit_of(tree.path)
    moved = tip != await git.commit_of(tree.root, f"refs/heads/{tree.branch}")
    name = tip[:12] if moved else tree.branch  # the subagent may have switched to another branch
    code, said = await git.run(tree.path, "diff", "--shortstat", tree.start, "HEAD")
    size = one_line(said) if not code and said.strip() else "no committed change"
    rest = (
        f"; some of it could not be committed ({left}) and lies uncommitted in its folder"
        if left
        else ""
    )
    code, _, names = await git.merge(tree.root, "HEAD", name)
    conflicts = short_list([os.fsdecode(one) for one in names])
    note = f" (conflicts with the present commit in {conflicts})" if code == 1 and names else ""
    return (
        f"kept on {'commit' if moved else 'branch'} {name}, folder {tree.path}: {size}{rest}. To "
        "see it: git diff "
        f"HEAD...{name}; to take it over: git merge --squash {name}, or, where uncommitted "
        "changes are in the way, "
        f"longrein worktrees merge {os.path.basename(tree.path)}{note}"
    )


def _as_text(name: str) -> str:
    """Replace the bytes of a name that are not UTF-8, which no log can hold."""
    return name.encode(errors="replace").decode()


def one_line(said: bytes) -> str:
    """Return git's output in one line."""
    return " ".join(said.decode("utf-8", "replace").split())[:300] or "it gives no reason"


def short_list(names: Sequence[str], count: int = 0) -> str:
    """Join the first few of `names`; `count` is their number when not all are given."""
    shown, more = (
        ", ".join(" ".join(name.split()) for name in names[:SHOWN_MAX]),
        max(count, len(names)) - SHOWN_MAX,
    )
    return f"{shown} and {more} more" if more > 0 else shown


# --- Merging into the user's folder ---------------------------------------------------------------
#
# All changes or none. Git merges three-way without index and work tree: both sides are commits, the
# user's being a snapshot of the folder with its uncommitted changes. Only a merge without conflict
# changes the folder, as one patch that git applies completely or not at all. Index and branch stay,
# so the changes show as uncommitted.


class MergeResult(msgspec.Struct, frozen=True):
    """Result of `merge_worktree`."""

    done: bool
    text: str
    """The merged files, or why nothing was touched; one line."""
    files: tuple[str, ...] = ()
    """Changed files, absolute."""
    conflicts: tuple[str, ...] = ()
    """Files that both sides changed in the same places, or that are in the way; absolute."""


async def merge_worktree(workspace: Workspace, tree: Worktree) -> MergeResult:
    """Merge the changes of `tree` into the folder `tree.root`.

    Uncommitted changes of the worktree are committed there first.
    """
    finished = await finish_worktree(workspace, tree)
    if not finished.kept:
        return MergeResult(True, f"{tree.branch} changed nothing")
    git = _Git(workspace)
    theirs = await git.commit_of(tree.path)
    ours = await _snapshot(git, tree)
    if not ours or not theirs:
        where = tree.path if ours else f"{tree.root}, or it is in the middle of a merge"
        return MergeResult(False, f"nothing was touched: git does not answer in {where}")
    code, result, names = await git.merge(tree.root, ours, theirs)
    conflicts = _absolute(tree.root, names)
    if code == 1 and conflicts:
        return MergeResult(
            False, f"nothing was touched: both sides changed {short_list(conflicts)}", (), conflicts
        )
    if code:
        return MergeResult(
            False,
            f"nothing was touched: git (2.38 or newer is needed) says {one_line(result.encode())}",
        )
    return await _apply(git, tree, ours, result)


async def _snapshot(git: _Git, tree: Worktree) -> str:
    """Return a commit of the folder's present state, the last commit for a clean one; '' when git
    fails or a merge is under way. The user's index stays as it is.
    """
    index = f"{tree.path}.index"
    code, said = await git.run(
        tree.root, "rev-parse", "--path-format=absolute", "--git-path", "index"
    )
    unmerged = await git.run(tree.root, "ls-files", "--unmerged")
    if code or unmerged != (0, b""):
        return ""
    try:
        data = read(os.path.realpath(os.fsdecode(said.removesuffix(b"\n"))))
        with open(os.open(index, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as copy:
            copy.write(data)
        return await _commit_of_index(git, tree, index)
    except OSError:
        return ""
    finally:
        with suppress(OSError):
            os.unlink(index)


async def _commit_of_index(git: _Git, tree: Worktree, index: str) -> str:
    if await git.failure_to_add(tree.root, "--update", index):
        return ""
    code, written = await git.run(tree.root, "write-tree", index=index)
    failed, committed = await git.run(tree.root, "rev-parse", "HEAD^{tree}")
    if code or failed:
        return ""
    if written == committed:
        return await git.commit_of(tree.root)
    name = written.decode("ascii").strip()
    words = (*AUTHOR, "commit-tree", "-p", "HEAD", "-m", "Uncommitted changes", name)
    code, said = await git.run(tree.root, *words)
    return "" if code else said.decode("ascii").strip()


async def _apply(git: _Git, tree: Worktree, ours: str, result: str) -> MergeResult:
    """Change the folder from the snapshot to the merge result."""
    new = await git.changed_files(tree.root, tree.root, "--diff-filter=A", ours, result)
    there = [path for path in new if os.path.lexists(path)]  # untracked, so not in the snapshot
    same = [path for path in there if await _is_same(git, tree.root, result, path)]
    in_the_way = tuple(path for path in there if path not in same)
    if in_the_way:
        return MergeResult(
            False,
            f"nothing was touched: {short_list(in_the_way)} would be overwritten",
            (),
            in_the_way,
        )
    but = ["--", ".", *(f":(exclude,literal){os.path.relpath(path, tree.root)}" for path in same)]
    files = await git.changed_files(tree.root, tree.root, ours, result, *but)
    if not files:
        return MergeResult(True, f"all of {tree.branch} is in {tree.root} already")
    why = await _apply_patch(git, tree, [ours, result, *but])
    if why:
        return MergeResult(
            False, f"nothing was touched: the folder was changed meanwhile ({why}); try again"
        )
    count = f"{len(files)} {'file' if len(files) == 1 else 'files'}"
    return MergeResult(
        True, f"{count} changed in {tree.root}, not committed: {short_list(files)}", files
    )


async def _is_same(git: _Git, root: str, result: str, path: str) -> bool:
    """Tell whether a file of the folder equals the file in the result."""
    name = f"{result}:{os.path.relpath(path, root)}"
    code, data = await git.run(root, "cat-file", "blob", name)
    try:
        return not code and not os.path.islink(path) and git.workspace.read(path) == data
    except OSError:
        return False


async def _apply_patch(git: _Git, tree: Worktree, sides: Sequence[str]) -> str:
    """Apply the difference completely or not at all; '' on success."""
    patch = f"{tree.path}.patch"
    words = ["diff", "--binary", "--full-index", "--no-renames", f"--output={patch}", *sides]
    try:
        return await git.failure(tree.root, *words) or await git.failure(
            tree.root, "apply", "--whitespace=nowarn", patch
        )
    finally:
        if os.path.lexists(patch):
            os.unlink(patch)


def _absolute(root: str, names: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(os.path.join(root, os.fsdecode(name)) for name in names if name)
