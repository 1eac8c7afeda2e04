"""Git worktrees of subagents: made before the start, inspected after the end.

A rule about a path also holds for its copy in a worktree: each call is judged a second time with the paths of the
original folder.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longrein.agent.session import Session
from longrein.context import SubagentState
from longrein.permissions import Call
from longrein.tools import SubagentTask, SubagentType
from longrein.workspace import FinishedWorktree, Worktree, finish_worktree, make_worktree, remove_worktree

NONE_HERE = "worktrees cannot be made here; do without isolation"


async def make_worktrees(
    session: Session, jobs: Sequence[tuple[int, SubagentTask]], call: str, found: Mapping[int, SubagentState]
) -> dict[int, Worktree | str]:
    """Make a worktree for each new job that wants one; return it or the reason of the failure. In parallel."""
    kinds = {kind.name: kind for kind in session.deps.kinds}
    wanting = [index for index, job in jobs if index not in found and _wants(job, kinds.get(job.kind))]
    trees = await asyncio.gather(*(_make(session, f"{session.id[:13]}-{call}-{index}") for index in wanting))
    return dict(zip(wanting, trees, strict=True))


def _wants(job: SubagentTask, kind: SubagentType | None) -> bool:
    return not job.again and kind is not None and (job.worktree or kind.worktree)


async def _make(session: Session, name: str) -> Worktree | str:
    deps = session.deps
    if not deps.worktrees or deps.workspace_in is None:
        return NONE_HERE
    return await make_worktree(deps.workspace, session.state.cwd, deps.worktrees, name, session.process_session)


async def drop_worktrees(session: Session, trees: Sequence[Worktree]) -> None:
    """Remove unused worktrees."""
    for tree in trees:
        await remove_worktree(session.deps.workspace, tree, session.process_session)


async def finish_task_worktree(session: Session, tree: Worktree) -> FinishedWorktree:
    """Finish a worktree: remove it when unchanged, else keep it with a note on how to merge it."""
    return await finish_worktree(session.deps.workspace, tree, session.process_session)


def mapped_call(call: Call, tree: Worktree) -> Call:
    """Return `call` with the paths of the folder that `tree` stands for."""
    touched = tuple(
        msgspec.structs.replace(
            one,
            path=original_path(one.path, tree),
            real=original_path(one.real, tree),
            given=original_path(one.given, tree),
        )
        for one in call.touched
    )
    arguments = {name: _home_in(value, tree) for name, value in call.arguments.items()}
    return msgspec.structs.replace(call, arguments=arguments, touched=touched)


def _home_in(value: Any, tree: Worktree) -> Any:
    return value.replace(tree.path, tree.root) if isinstance(value, str) else value


def original_path(path: str, tree: Worktree) -> str:
    """Map a path in the worktree to the original folder; other paths stay."""
    return tree.root + path[len(tree.path) :] if path == tree.path or path.startswith(tree.path + "/") else path
