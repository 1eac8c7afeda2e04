"""`longrein -w NAME`: work in a git worktree of the folder's repository."""

import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from longrein.app.run_context import RunContext, new_nonce, read_run_context
from longrein.config import TrustedFolders
from longrein.frontends.secret_input import YES_NO, ask, is_terminal
from longrein.frontends.stdio import say
from longrein.steps.human_text import counted
from longrein.store import latest_session
from longrein.workspace import (
    PlainSpawner,
    Workspace,
    Worktree,
    make_worktree,
    open_workspace,
    remove_worktree,
    worktree_changes,
)
from longrein_context.events import UsageError

T = TypeVar("T")
ANSWERS = {**YES_NO, "": "yes"}


async def run_in_worktree(place: RunContext, run: Callable[[RunContext], Awaitable[int]]) -> int:
    """Make the worktree that the options name, or take the one that is there; `run` in it; then
    keep or remove it.

    Raises `UsageError` where there can be none.
    """
    tree = await _with_workspace(place, place.cwd, lambda space: _enter(place, space))
    os.chdir(tree.cwd)
    inner = read_run_context(place.options, place.environ, trusted=_trusted(place, tree))
    try:
        return await run(inner)
    finally:
        os.chdir(tree.root)
        await _with_workspace(place, tree.root, lambda space: _leave(place, space, tree))


def worktree_name(place: RunContext) -> str:
    """Return the name that the options give, else a new one."""
    return place.options.worktree or f"w-{new_nonce()[:6]}"


async def _enter(place: RunContext, space: Workspace) -> Worktree:
    name = worktree_name(place)
    tree = await make_worktree(space, place.cwd, f"{place.state_dir}/worktrees", name)
    if isinstance(tree, str):
        raise UsageError(f"-w {name}: {tree}")
    if not _is_below(place.cwd, tree.root):
        raise UsageError(
            f"-w {name}: the worktree of that name belongs to {tree.root}; choose another name"
        )
    lacks = (
        f"; {counted(tree.missing_count, 'uncommitted change')} of {tree.root} not in it"
        * bool(tree.missing_count)
    )
    say(f"working in worktree {tree.path}, branch {tree.branch}{lacks}")
    return tree


def _is_below(folder: str, root: str) -> bool:
    return f"{os.path.realpath(folder)}/".startswith(f"{os.path.realpath(root).rstrip('/')}/")


def _trusted(place: RunContext, tree: Worktree) -> TrustedFolders | None:
    """Return the trust in the worktree: that in the folder it was made from, with the hooks
    confirmed there.
    """
    if not place.trusted.cover(place.cwd):
        return None
    return place.trusted.with_folder(
        tree.cwd, place.home, tuple(place.trusted.confirmed_hooks(place.cwd))
    )


async def _leave(place: RunContext, space: Workspace, tree: Worktree) -> None:
    """Remove a worktree without changes; after a question where something was said in it. Any
    other stays.
    """
    name = os.path.basename(tree.path)
    committed, uncommitted = await worktree_changes(space, tree)
    changed = len({*committed, *uncommitted})
    if not changed:
        if _was_used(place, tree) and _asks(place) and ask(_question(name), ANSWERS) == "no":
            say(f"worktree {tree.path} stays; `longrein -w {name} -c` goes on in it")
            return
        why = await remove_worktree(space, tree)
        again = f"; `longrein -w {name} -c` goes on with its conversation" * _was_used(place, tree)
        say(
            f"worktree {name} was unchanged and is removed{again}"
            if not why
            else f"worktree {tree.path} stays: {why}"
        )
        return
    merge = f"`longrein worktrees merge {name}` brings them here"
    say(
        f"worktree {tree.path} stays with {counted(changed, 'changed file')}; {merge}, `longrein "
        f"-w {name} -c` goes on"
    )


def _question(name: str) -> str:
    return f"worktree {name} is unchanged: remove it? Its conversation is kept. [Y/n] "


def _was_used(place: RunContext, tree: Worktree) -> bool:
    return bool(latest_session(place.state_dir, tree.cwd))


def _asks(place: RunContext) -> bool:
    return not place.options.print and is_terminal()


async def _with_workspace(
    place: RunContext, folder: str, work: Callable[[Workspace], Awaitable[T]]
) -> T:
    """Run `work` with a workspace around `folder`."""
    spawner = PlainSpawner(place.environ.get("PATH", ""), (folder,))
    try:
        return await work(open_workspace((folder,), spawner=spawner, environment=place.environ))
    finally:
        await spawner.drain()
