"""Subagents that an extension runs outside this process: the `location` of their type.

Such a subagent has a session of its own, and a worktree here that gets its changes at its end. It
keeps what it was granted and allowed at its start.
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from longrein.agent.dependencies import below, narrower
from longrein.agent.prompts import subagent_system
from longrein.agent.session import Session
from longrein.agent.subagent_host import SubagentHost, SubagentOrder, SubagentOutcome
from longrein.agent.subagents.shared_state import StartedSubagent, SubagentTree
from longrein.agent.subagents.spawn import LiveParentPolicy, first_entry, refused_tools
from longrein.agent.subagents.subagent_report import STATUS, LastTask, end_of_task
from longrein.tools import SubagentType
from longrein.workspace import Workspace, finish_worktree, read_worktree, take_patch
from longrein_context import fold
from longrein_context.events import Entry, LongreinError, SubagentEnded, SubagentStarted


class RemoteSubagent(StartedSubagent):
    """A subagent that a host runs."""

    def __init__(self, seq: int, started: SubagentStarted) -> None:
        super().__init__(seq, started)
        self.host: SubagentHost | None = None
        self.order: SubagentOrder | None = None
        """None for one that can do no more, with the `problem`."""
        self.outcome = SubagentOutcome()
        self.entries: Sequence[Entry] = ()
        """Its log, once it has ended."""
        self.elapsed_s = 0.0


def remote_subagent(
    session: Session, tree: SubagentTree, kind: SubagentType | None, seq: int, last: SubagentStarted
) -> RemoteSubagent:
    """Prepare the order of a subagent that has been started. `kind`: its type, if there is one
    still.
    """
    one = RemoteSubagent(seq, last)
    folder = read_worktree(last.worktree)
    try:
        one.host = tree.host(last.location)
    except LongreinError as error:
        one.problem = str(error)
        return one
    if kind is None or folder is None:
        gone = f"its worktree {last.worktree}" if kind else f"the type {last.kind}"
        one.problem = f"{gone} is gone"
        return one
    policy = LiveParentPolicy(
        session, tree, last.child, below(session.state.label, f"a{seq}"), last.kind
    )
    policy.worktree = folder
    spawns = last.grant is not None and last.grant.depth > 0 and bool(kind.spawns)
    tools = session.deps.tools
    refused = refused_tools(kind, tools, spawns=spawns)
    refused += [name for name, tool in tools.items() if tool.withdrawn]
    one.order = SubagentOrder(
        opened=msgspec.structs.replace(first_entry(last, policy, 0), one_shot=True),
        prompt=f"{last.task}\n\n{folder.words_elsewhere}",
        system=subagent_system(kind, [name for name in tools if name not in refused]),
        model=last.model or session.deps.model.name,
        mode=narrower(session.mode, kind.mode) if kind.mode else session.mode,
        rules=session.rules,
        tools=tuple(name for name in tools if name not in refused),
        refused=tuple(dict.fromkeys(refused)),
        tree=folder,
    )
    return one


async def run_remote(parent: Session, one: RemoteSubagent, tree: SubagentTree) -> None:
    """Let a subagent work when the semaphore has a slot, and take over its changes."""
    if not await tree.slots.enter_or(one.halt, parent.id):
        tree.slots.force()
    one.begun = True
    workspace, session = parent.deps.workspace, parent.process_session
    began_s = parent.deps.clock.mono_s()
    try:
        if one.host is not None and one.order is not None:
            await _work(one, one.host, one.order, workspace, session)
        if one.host is not None:
            with suppress(LongreinError):
                one.entries = await one.host.entries(one.started.child)
    finally:
        one.elapsed_s = parent.deps.clock.mono_s() - began_s
        tree.slots.leave()


async def _work(
    one: RemoteSubagent,
    host: SubagentHost,
    order: SubagentOrder,
    workspace: Workspace,
    session: str,
) -> None:
    try:
        one.outcome = await host.run(order, one.halt)
    except (LongreinError, OSError) as error:
        one.problem = str(error)
    patch = one.outcome.patch
    if patch and (why := await take_patch(workspace, order.tree, patch, session)):
        one.problem = f"its changes do not fit into {order.tree.path} and are in {patch}: {why}"
        return
    one.finished = await finish_worktree(workspace, order.tree, session)
    if not (one.problem or one.outcome.kept):
        await host.forget(one.started.child)


def remote_ended(one: RemoteSubagent, error: BaseException | None) -> tuple[SubagentEnded, str]:
    """Build the `SubagentEnded` of a finished subagent, and the handle of its last text.

    One that had ended before a crash needs neither its worktree, which goes when it is unchanged,
    nor its type.
    """
    outcome = one.outcome
    if one.order is None and STATUS.get(LastTask(one.entries).reason) in ("done", "limit"):
        one.problem = ""
    one.problem = one.problem or (f"{type(error).__name__}: {error}" if error else "")
    ended, whole = end_of_task(one, fold(one.entries), one.entries, {}, one.elapsed_s)
    if one.finished is None:  # the files of its log are those of its copy
        ended = msgspec.structs.replace(ended, files=())
    status = ended.status
    if status == "failed" and not one.problem:
        status = outcome.status or ("interrupted" if one.stopped else "failed")
    kept = f"what it has changed is in {outcome.kept}" if outcome.kept else ""
    if outcome.kept and status == "done":
        status = "failed"
    message = "; ".join(filter(None, (ended.message or outcome.message, kept)))
    return msgspec.structs.replace(ended, status=status, message=message), whole
