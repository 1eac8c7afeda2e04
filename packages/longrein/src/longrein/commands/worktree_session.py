"""`longrein -w NAME`: work in a git worktree of the folder's repository."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from longrein.app.run_context import RunContext, new_nonce, read_run_context
from longrein.config import TrustedFolders
from longrein.frontends.secret_input import YES_NO, ask, is_terminal
from longrein.frontends.stdio import say
from longrein.steps.human_text import counted
from longrein.store import latest_session
from longrein.workspace import (
    Workspace,
    Worktree,
    make_worktree,
    open_workspace,
    remove_worktree,
    temporary_spawner,
    worktree_changes,
)
from longrein_context.events import UsageError

T = TypeVar("T")
ANSWERS = {**YES_NO, "": "yes"}


async def run_in_worktree(
    run_context: RunContext, run: Callable[[RunContext], Awaitable[int]]
) -> int:
    """Make the worktree that the options name, or take the one that is there; `run` in it; then
    keep or remove it.

    Raises `UsageError` where there can be none.
    """
    tree = await _with_workspace(
        run_context.environ, run_context.cwd, lambda space: _enter(run_context, space)
    )
    os.chdir(tree.cwd)
    inner = read_run_context(
        run_context.options, run_context.environ, trusted=_trusted(run_context, tree)
    )
    try:
        return await run(inner)
    finally:
        os.chdir(tree.root)
        await _with_workspace(
            run_context.environ, tree.root, lambda space: _leave(run_context, space, tree)
        )


def worktree_name(run_context: RunContext) -> str:
    """Return the name that the options give, else a new one."""
    return run_context.options.worktree or f"w-{new_nonce()[:6]}"


async def _enter(run_context: RunContext, space: Workspace) -> Worktree:
    name = worktree_name(run_context)
    tree = await make_worktree(space, run_context.cwd, f"{run_context.state_dir}/worktrees", name)
    if isinstance(tree, str):
        raise UsageError(f"-w {name}: {tree}")
    if not _is_below(run_context.cwd, tree.root):
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


def _trusted(run_context: RunContext, tree: Worktree) -> TrustedFolders | None:
    """Return the trust in the worktree: that in the folder it was made from, with the hooks
    confirmed there.
    """
    if not run_context.trusted.cover(run_context.cwd):
        return None
    return run_context.trusted.with_folder(
        tree.cwd, run_context.home, tuple(run_context.trusted.confirmed_hooks(run_context.cwd))
    )


async def _leave(run_context: RunContext, space: Workspace, tree: Worktree) -> None:
    """Remove a worktree without changes; after a question where something was said in it. Any
    other stays.
    """
    name = os.path.basename(tree.path)
    committed, uncommitted = await worktree_changes(space, tree)
    changed = len({*committed, *uncommitted})
    if not changed:
        if (
            _was_used(run_context.state_dir, tree)
            and _asks(run_context)
            and ask(_question(name), ANSWERS) == "no"
        ):
            say(f"worktree {tree.path} stays; `longrein -w {name} -c` goes on in it")
            return
        why = await remove_worktree(space, tree)
        again = f"; `longrein -w {name} -c` goes on with its conversation" * _was_used(
            run_context.state_dir, tree
        )
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


def _was_used(state_dir: str, tree: Worktree) -> bool:
    return bool(latest_session(state_dir, tree.cwd))


def _asks(run_context: RunContext) -> bool:
    return not run_context.options.print and is_terminal()


async def _with_workspace(
    environ: Mapping[str, str], folder: str, work: Callable[[Workspace], Awaitable[T]]
) -> T:
    """Run `work` with a workspace around `folder`."""
    async with temporary_spawner(environ, (folder,)) as spawner:
        return await work(open_workspace((folder,), spawner=spawner, environment=environ))
