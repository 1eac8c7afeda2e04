"""From a plan to a subagent that can walk: its start in the parent's log, its own log, its parts, its first words."""

import msgspec

from longrein.agent.children.bond import Bond
from longrein.agent.children.grants import Given, limits_under
from longrein.agent.children.planning import Plan, child_id, crew_of, fork_point, refused_tools, task_of
from longrein.agent.children.tree import Tree, Working
from longrein.agent.company import below
from longrein.agent.opening import open_session
from longrein.agent.ports import Crew
from longrein.agent.session import Session
from longrein.context import ChildNow, State, fold
from longrein.events import (
    SCHEMA_VERSION,
    ChildStarted,
    Grant,
    LongreinError,
    ModeSet,
    Opened,
    Parent,
    Text,
    UserSpoke,
)
from longrein.models import Model
from longrein.store import Log
from longrein.tools import Kind
from longrein.workspace import read_worktree

SECONDS_MAX = 2 * 3600.0
"""Wall time of one task where nothing else limits it."""


def begin(session: Session, tree: Tree, one: Plan, given: Given, call: str, background: bool) -> Working:
    """Append its start and open its session; both are to be committed together, before anything else waits."""
    grant = msgspec.structs.replace(given.grant, seconds=given.grant.seconds or SECONDS_MAX)
    was = session.state.children[one.again] if one.again else None
    seq = was.seq if was is not None else session.state.seq + 1
    started = ChildStarted(
        child=was.started.child if was is not None else child_id(session.id, seq),
        kind=one.kind.name,
        call=call,
        grant=grant,
        index=one.index,
        description=one.job.description,
        task=one.job.prompt,
        form=was.started.form if was is not None else given.offer.form,
        background=background or one.background,
        model=one.model.name,
        worktree=was.started.worktree if was is not None else one.tree.path if one.tree is not None else "",
        again=was.seq if was is not None else 0,
        note="; ".join(filter(None, (one.note, given.note))),
    )
    session.append(started)
    shares = _shares(session, was) if was is not None else fork_point(call) if started.form == "fork" else 0
    working = _opened(session, tree, one.kind, (seq, started), shares)
    child = working.session
    if child.mode != child.state.mode:
        child.append(ModeSet(child.mode))
    refused = refused_tools(one.kind, session.crew.tools, spawns=bool(child.crew.kinds))
    child.append(UserSpoke((Text(task_of(one, started.form, grant, refused)),)))
    child.crew.limits = limits_under(session.crew.limits, grant, child.state)
    return working


def rejoin(session: Session, tree: Tree, now: ChildNow) -> Working:
    """One that worked when the session was left, as its log has it."""
    kind = next((kind for kind in session.crew.kinds if kind.name == now.started.kind), None)
    working = _opened(session, tree, kind, (now.seq, now.started), _shares(session, now))
    child = working.session
    child.crew.limits = limits_under(session.crew.limits, now.started.grant, child.state)
    return working


def _shares(session: Session, now: ChildNow) -> int:
    """How much of this log one that was forked has as its own beginning: as its first start says."""
    if now.started.form != "fork":
        return 0
    first = next(iter(session.crew.history(now.seq, now.seq)), None)
    begun = first.event if first is not None else None
    return fork_point(begun.call) if isinstance(begun, ChildStarted) else 0


def _opened(session: Session, tree: Tree, kind: Kind | None, start: tuple[int, ChildStarted], shares: int) -> Working:
    """Its session, opened by what any session is opened by. `start`: seq of its first start, and its last start."""
    seq, started = start
    log = session.log.child(started.child, shares)
    told = fold(log.entries)
    if kind is None:  # its type is gone: it keeps the tools it was told of, and no more
        kind = Kind(started.kind, "", tools=tuple(t.name for t in told.prefix.tools) if told.prefix else ())
    label = below(session.state.label, f"a{seq}")
    bond = Bond(session, tree, started.child, label, started.kind)
    bond.cap = kind.mode or bond.cap
    bond.worktree = read_worktree(started.worktree) if started.worktree else None
    opened = _first_entry(session, started, bond, shares) if told.session != started.child else None
    child = open_session(log, _crew(session, tree, kind, started, bond, log), state=told, opened=opened)
    child.paused = False
    working = Working(seq, started, child, shares + 1)
    working.worktree = bond.worktree
    if started.worktree and bond.worktree is None:
        working.problem = f"its worktree {started.worktree} is gone"
    return working


def _crew(session: Session, tree: Tree, kind: Kind, started: ChildStarted, bond: Bond, log: Log) -> Crew:
    grant = started.grant or Grant()
    crew = crew_of(session, kind, _model(session, tree, started.model), started.form, depth=grant.depth)
    crew.history, crew.above = log.history, bond
    crew.archive = crew.archive.child(log.session) if crew.archive is not None else None
    if bond.worktree is not None and crew.workspace_in is not None:
        crew.workspace = crew.workspace_in((bond.worktree.path,))
    return crew


def _model(session: Session, tree: Tree, name: str) -> Model:
    """Its model; the parent's where the settings know it no more."""
    try:
        return tree.model(name, session)
    except LongreinError:
        return session.crew.model


def _first_entry(session: Session, started: ChildStarted, bond: Bond, shares: int) -> Opened:
    state: State = session.state
    tree = bond.worktree
    return Opened(
        SCHEMA_VERSION,
        started.child,
        state.nonce,
        state.roots if tree is None else (tree.path,),
        state.cwd if tree is None else tree.cwd,
        state.profile,
        Parent(session.id, shares, started.call),
        started.grant,
        state.pins,
        started.kind,
        bond.label,
    )
