"""A folder of one's own for a subagent: a git worktree, made before it starts and looked through when it is over.

What the user forbids for a place holds for its picture in a worktree too: each call is judged once more as if it were
made in the folder that the worktree stands for.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longrein.agent.session import Session
from longrein.context import ChildNow
from longrein.permissions import Call
from longrein.tools import SubagentTask, SubagentType
from longrein.workspace import Finished, Worktree, finish_worktree, make_worktree, remove_worktree

NONE_HERE = "worktrees cannot be made here; do without isolation"


async def made(
    session: Session, jobs: Sequence[tuple[int, SubagentTask]], call: str, found: Mapping[int, ChildNow]
) -> dict[int, Worktree | str]:
    """For each job that wants one and was not started yet: its worktree, or why there is none. Made side by side."""
    kinds = {kind.name: kind for kind in session.crew.kinds}
    wanting = [index for index, job in jobs if index not in found and _wants(job, kinds.get(job.kind))]
    trees = await asyncio.gather(*(_make(session, f"{session.id[:13]}-{call}-{index}") for index in wanting))
    return dict(zip(wanting, trees, strict=True))


def _wants(job: SubagentTask, kind: SubagentType | None) -> bool:
    return not job.again and kind is not None and (job.worktree or kind.worktree)


async def _make(session: Session, name: str) -> Worktree | str:
    crew = session.crew
    if not crew.worktrees or crew.workspace_in is None:
        return NONE_HERE
    return await make_worktree(crew.workspace, session.state.cwd, crew.worktrees, name, session.process_session)


async def dropped(session: Session, trees: Sequence[Worktree]) -> None:
    """Remove those that nobody will work in."""
    for tree in trees:
        await remove_worktree(session.crew.workspace, tree, session.process_session)


async def finished(session: Session, tree: Worktree) -> Finished:
    """The work in it is over: gone when nothing changed, else kept with a word on how to take it over."""
    return await finish_worktree(session.crew.workspace, tree, session.process_session)


def pictured(call: Call, tree: Worktree) -> Call:
    """`call` as if it were made in the folder that `tree` stands for."""
    touched = tuple(
        msgspec.structs.replace(one, path=home(one.path, tree), real=home(one.real, tree), given=home(one.given, tree))
        for one in call.touched
    )
    arguments = {name: _home_in(value, tree) for name, value in call.arguments.items()}
    return Call(call.tool, arguments, call.access, touched)


def _home_in(value: Any, tree: Worktree) -> Any:
    return value.replace(tree.path, tree.root) if isinstance(value, str) else value


def home(path: str, tree: Worktree) -> str:
    """The place that a path in the worktree stands for; any other path as it is."""
    return tree.root + path[len(tree.path) :] if path == tree.path or path.startswith(tree.path + "/") else path
