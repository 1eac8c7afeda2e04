"""The walk of one subagent: the turns of its task by the main loop, and what is ended when they are over."""

import asyncio

from longrein.agent.children.gate import Gate
from longrein.agent.children.tree import Working
from longrein.agent.children.watch import watch
from longrein.agent.children.worktrees import finished
from longrein.agent.session import Session
from longrein.events import Entry


async def walk(parent: Session, one: Working, gate: Gate) -> None:
    """The whole walk of `one`, when `gate` has a place for it. A watchdog looks at it meanwhile."""
    if not await gate.enter_or(one.halt, parent.id):
        gate.force()  # it was told to end: it has only to write that down, and to end those below it
    one.begun = True
    _ask_again(one.session)
    watching = asyncio.ensure_future(watch(parent, one))
    try:
        await _through(parent, one)
    finally:
        one.session.lasting.stop()
        watching.cancel()
        gate.leave()


async def _through(parent: Session, one: Working) -> None:
    """Its turns: the one of its task, and those for which its own subagents in the background wake it."""
    session = one.session
    if one.problem:
        return
    await session.run(once=True)
    while (company := session.company) is not None and company.running and not session.closed:
        if one.stopped:
            company.stop()
        await company.settled()
        await session.run(once=True)
    if not session.closed:
        await session.beside.stop(session)
        await session.leave("stop")  # nobody is left to whom its tasks could be of use
        if one.worktree is not None:
            one.finished = await finished(parent, one.worktree)


def _ask_again(child: Session) -> None:
    """Let its question be heard that waited when it was left. Not before it works: nobody else asks meanwhile."""
    for call in child.state.calls.values():
        if call.asked is not None and call.answer is None:
            child.readers.publish(Entry(child.state.seq, child.state.at, call.asked))
