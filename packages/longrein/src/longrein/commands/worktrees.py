"""`longrein worktrees`: list, merge and remove the worktrees of subagents."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from longrein.app.run_context import RunContext
from longrein.frontends.stdio import say, show
from longrein.permissions import visible
from longrein.workspace import (
    Workspace,
    Worktree,
    list_worktrees,
    merge_worktree,
    open_workspace,
    remove_worktree,
    temporary_spawner,
    worktree_changes,
)
from longrein_context.events import UsageError

USAGE = "longrein worktrees [merge NAME | remove NAME [--unmerged]]; see longrein worktrees --help"
T = TypeVar("T")


class WorktreeRow(msgspec.Struct, frozen=True):
    """Worktree in the listing."""

    name: str
    branch: str
    folder: str
    repository: str
    """Top folder of the user's own work tree."""
    committed: int
    """Number of files that its commits changed."""
    uncommitted: int
    """Number of files with uncommitted changes."""


def worktrees(
    run_context: RunContext, words: Sequence[str], *, unmerged: bool = False, json: bool = False
) -> int:
    """Run `longrein worktrees WORDS`; return the exit code: 1 when a merge or removal was
    refused.
    """
    every = list_worktrees(f"{run_context.state_dir}/worktrees")
    if not words:
        rows = [_run(run_context.environ, tree, _row_work(tree)) for tree in every]
        show(msgspec.json.format(msgspec.json.encode(rows)) + b"\n" if json else _table(rows))
        return 0
    if len(words) != 2 or words[0] not in ("merge", "remove"):
        raise UsageError(f"what is to be done with {visible(' '.join(words))}? {USAGE}")
    tree = _named(every, words[1])
    return (
        _merge(run_context.environ, tree)
        if words[0] == "merge"
        else _remove(run_context.environ, tree, unmerged=unmerged)
    )


def _merge(environ: Mapping[str, str], tree: Worktree) -> int:
    merged = _run(environ, tree, lambda space: merge_worktree(space, tree))
    if not merged.done:
        say(visible(merged.text))
        return 1
    show(f"{visible(merged.text)}\n")
    return 0


def _remove(environ: Mapping[str, str], tree: Worktree, *, unmerged: bool) -> int:
    why = _run(environ, tree, lambda space: remove_worktree(space, tree, unmerged=unmerged))
    if why:
        say(visible(why) + "; --unmerged removes it all the same" * why.endswith("not merged"))
        return 1
    show(f"{name_of(tree)} is gone, with its branch\n")
    return 0


def name_of(tree: Worktree) -> str:
    """Return the name: the last part of the folder and of the branch."""
    return str(tree.path.rpartition("/")[2])


def _named(every: Sequence[Worktree], word: str) -> Worktree:
    """Return the worktree whose name is `word` or begins with it. Raises `UsageError`."""
    word = word.removeprefix("longrein/")
    found = [tree for tree in every if name_of(tree) == word] or [
        t for t in every if name_of(t).startswith(word)
    ]
    if len(found) == 1:
        return found[0]
    there = ", ".join(name_of(tree) for tree in (found or every)) or "none"
    which = "several worktrees begin so" if found else "there is no worktree of that name"
    raise UsageError(f"{visible(word)}: {which}; there are {there}")


def _run(
    environ: Mapping[str, str], tree: Worktree, work: Callable[[Workspace], Coroutine[Any, Any, T]]
) -> T:
    """Run `work` with a workspace around the worktree's repository."""

    async def walk() -> T:
        async with temporary_spawner(environ, (tree.root,)) as spawner:
            return await work(open_workspace((tree.root,), spawner=spawner, environment=environ))

    return asyncio.run(walk())


def _row_work(tree: Worktree) -> Callable[[Workspace], Coroutine[Any, Any, WorktreeRow]]:
    async def look(space: Workspace) -> WorktreeRow:
        committed, uncommitted = await worktree_changes(space, tree)
        return WorktreeRow(
            name_of(tree), tree.branch, tree.path, tree.root, len(committed), len(uncommitted)
        )

    return look


def _table(rows: Sequence[WorktreeRow]) -> str:
    if not rows:
        return "no worktrees are kept\n"
    lines = []
    for row in rows:
        size = f"files changed: {row.committed}" + f" and {row.uncommitted} not committed" * bool(
            row.uncommitted
        )
        lines.append(f"{row.name}  {visible(row.repository)}  {size}\n")
    return "".join(lines)
