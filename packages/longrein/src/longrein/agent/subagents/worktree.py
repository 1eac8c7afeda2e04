"""Git worktrees of subagents, made before the start.

A rule about a path also holds for its copy in a worktree: each call is judged a second time with
the paths of the original folder.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from longrein.agent.session import Session
from longrein.permissions import Call, Touched, read_command
from longrein.tools import SubagentTask
from longrein.workspace import Worktree, make_worktree
from longrein_context import SubagentState

NONE_HERE = "worktrees cannot be made here; do without isolation"


async def make_worktrees(
    session: Session,
    jobs: Sequence[tuple[int, SubagentTask]],
    call: str,
    found: Mapping[int, SubagentState],
) -> dict[int, Worktree | str]:
    """Make a worktree for each new job that wants one; return it or the reason of the failure.
    In parallel.
    """
    deps, kinds = session.deps, {kind.name: kind for kind in session.deps.kinds}

    async def make(index: int) -> Worktree | str:
        if not deps.worktrees or deps.workspace_in is None:
            return NONE_HERE
        name = f"{session.id[:13]}-{call}-{index}"
        return await make_worktree(
            deps.workspace, session.state.cwd, deps.worktrees, name, session.process_session
        )

    new = [(index, job) for index, job in jobs if index not in found and not job.again]
    wanting = [
        index
        for index, job in new
        if job.kind in kinds
        and (job.worktree or kinds[job.kind].worktree or kinds[job.kind].location)
    ]
    trees = await asyncio.gather(*map(make, wanting))
    return dict(zip(wanting, trees, strict=True))


def mapped_call(call: Call, tree: Worktree, cwd: str, home: str) -> Call:
    """Return `call` with the paths of the folder that `tree` stands for; `cwd` is the current
    folder there.
    """
    arguments = {
        name: value.replace(tree.path, tree.root) if isinstance(value, str) else value
        for name, value in call.arguments.items()
    }
    command, parts = call.command, call.parts
    if command is not None:
        parts = tuple(
            msgspec.structs.replace(one, touched=_mapped_paths(one.touched, tree)) for one in parts
        )
        command = read_command(command.text.replace(tree.path, tree.root), cwd, home)
        parts = parts if len(parts) == len(command.script.parts) else ()
    touched = _mapped_paths(call.touched, tree)
    return msgspec.structs.replace(
        call, arguments=arguments, touched=touched, command=command, parts=parts
    )


def _mapped_paths(touched: tuple[Touched, ...], tree: Worktree) -> tuple[Touched, ...]:
    return tuple(
        msgspec.structs.replace(
            one,
            path=original_path(one.path, tree),
            real=original_path(one.real, tree),
            given=original_path(one.given, tree),
        )
        for one in touched
    )


def original_path(path: str, tree: Worktree) -> str:
    """Map a path in the worktree to the original folder; other paths stay."""
    return (
        tree.root + path[len(tree.path) :]
        if path == tree.path or path.startswith(tree.path + "/")
        else path
    )
