"""What is to become of a job: who does it, with which parts, or why nobody; nothing is written here yet."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID, uuid5

import msgspec

from longrein.agent.messages import Heard, OfChild, Output, Streaming, TaskOver
from longrein.agent.open_session import open_session
from longrein.agent.ports import UNBOUND, Crew, Room, below, narrower
from longrein.agent.prompts import child_system, fork_task
from longrein.agent.session import Session
from longrein.agent.subagents.budget import Given, Offer, Refused, Wish, kept_back, left, less, limits_under
from longrein.agent.subagents.report import SYNTHESIS
from longrein.agent.subagents.tree import Tree, Working
from longrein.agent.subagents.worktree import home, pictured
from longrein.context import ChildNow, State, estimate_text, fold, spec_tokens
from longrein.events import (
    CALL_TOOL,
    SCHEMA_VERSION,
    ChildStarted,
    Entry,
    Grant,
    LongreinError,
    ModeSet,
    Opened,
    Parent,
    PermissionAnswered,
    PermissionAsked,
    PrefixSet,
    Replied,
    Text,
    ToolEnded,
    ToolError,
    ToolSpec,
    TurnEnded,
    UserSpoke,
)
from longrein.models import Model
from longrein.permissions import Call, Rules
from longrein.store import Log
from longrein.tools import Outcome, SubagentTask, SubagentType, Tool, ToolContext, offer_tools, tools_by_name
from longrein.workspace import Worktree, read_worktree

# ---------------------------------------------------------------------------------------------------------------------
#
# The parts a subagent works with: its parent's, narrowed. What is immutable is shared, so that one costs little.


AGENT = "Agent"
"""The tool that starts subagents."""
SEARCH = "ToolSearch"
"""The tool that finds deferred ones; made anew for the tools there are."""


def tools_of(kind: SubagentType, above: Mapping[str, Tool], *, spawns: bool) -> dict[str, Tool]:
    """The tools of `above` that a subagent of this type may use, in their order."""
    given = [tool for name, tool in above.items() if name not in (SEARCH, CALL_TOOL) and may_use(kind, name, spawns)]
    return tools_by_name(given)


def may_use(kind: SubagentType, name: str, spawns: bool) -> bool:
    """Whether the type may use the tool `name`."""
    if name == AGENT:
        return spawns
    listed = kind.tools is None or any(_named(name, pattern) for pattern in kind.tools)
    return listed and not any(_named(name, pattern) for pattern in kind.without)


def _named(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def refusing(kind: SubagentType, above: Mapping[str, Tool], *, spawns: bool) -> dict[str, Tool]:
    """The very tools of `above`, as a fork's request lists them; those it may not use refuse by their own words."""
    return {
        name: tool if name in (SEARCH, CALL_TOOL) or may_use(kind, name, spawns) else _refused(tool, kind.name)
        for name, tool in above.items()
    }


def _refused(tool: Tool, kind: str) -> Tool:
    text = f"[not-yours] {tool.spec.name} is not for a subagent of type {kind}; do your task without it."

    async def refuse(_hands: ToolContext, **_arguments: object) -> Outcome:
        raise ToolError(text)

    return msgspec.structs.replace(tool, access="none", run=refuse, together=lambda _: True, paths=lambda _: ())


def prefix_of(
    tools: Mapping[str, Tool], system: str, context: Sequence[str], sources: PrefixSet | None
) -> Callable[[Model, str], PrefixSet]:
    """What stands before the conversation of a subagent: its own text and tools, its parent's static context."""
    found = sources.sources if sources is not None else ()
    made: dict[str, tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]] = {}

    def prefix(model: Model, reason: str) -> PrefixSet:
        if model.name not in made:
            told = offer_tools(tools.values(), model.budget.usable_tokens)
            made[model.name] = told.listed, told.deferred
        listed, deferred = made[model.name]
        names = model.provider, model.model, model.wire
        return PrefixSet(reason, *names, system, listed, tuple(context), found, deferred)

    return prefix


# --- planning --------------------------------------------------------------------------------------------------------


class Plan(msgspec.Struct):
    """A job that can be done."""

    index: int
    job: SubagentTask
    kind: SubagentType
    model: Model
    form: str
    note: str = ""
    """What is otherwise than asked for, and why."""
    again: str = ""
    """Session of the subagent that is asked again."""
    known_tokens: int = 0
    """What it has in its view already."""
    background: bool = False
    tree: Worktree | None = None
    """Folder of its own."""

    def wish(self, session: Session) -> Wish:
        """What it wants of the budget: as a fork, else with an empty conversation."""
        task = estimate_text(self.job.prompt) + 500
        empty = Offer("empty", self.model.name, self.model.budget, self._own_tokens(session) + task, self.known_tokens)
        fork = Offer("fork", self.model.name, self.model.budget, task, session.state.view_tokens)
        offers = (fork, empty) if self.form == "fork" else (empty,)
        below = session.crew.limits.depth_max - 1 if self.kind.spawns else 0
        return Wish(offers, self.kind.turns_max, max(0, below), bool(self.again))

    def _own_tokens(self, session: Session) -> int:
        """Its system text, its tools and the static context, about."""
        if self.again or session.state.prefix is None:
            return 0
        prefix = session.state.prefix
        tools = [spec for spec in prefix.tools if may_use(self.kind, spec.name, spawns=False)]
        return estimate_text(prefix.system) + sum(map(spec_tokens, tools)) + sum(map(estimate_text, prefix.context))


def plan(session: Session, tree: Tree, index: int, job: SubagentTask, folder: Worktree | str | None) -> Plan | str:
    """What would be done about `job`, or why it cannot be. `folder`: its worktree, when it wants one."""
    if isinstance(folder, str):
        return folder
    kinds = {kind.name: kind for kind in session.crew.kinds}
    kind = kinds.get(job.kind)
    if kind is None:
        known = ", ".join(name for name in kinds if name != SYNTHESIS)
        return f"there is no subagent type {job.kind!r} here; types are {known or 'none'}"
    try:
        name, note = session.crew.child_model(job.model or kind.model)
        model = tree.model(name, session)
    except LongreinError as error:
        return str(error)
    form, why = form_of(session, job, model, own_folder=folder is not None)
    told = "; ".join(filter(None, (note, why)))
    return Plan(index, job, kind, model, form, told, background=kind.background, tree=folder)


def form_of(session: Session, job: SubagentTask, model: Model, *, own_folder: bool) -> tuple[str, str]:
    """How its conversation begins, and why otherwise than asked for."""
    if job.form != "fork":
        return "empty", ""
    own, state = session.crew.model, session.state
    if (model.provider, model.model, model.wire) != (own.provider, own.model, own.wire):
        return "empty", f"empty instead of fork: {model.name} is not the model of this conversation"
    if own_folder:
        return "empty", "empty instead of fork: it works in another folder than this conversation tells of"
    if state.prefix is None or not state.asks:
        return "empty", "empty instead of fork: there is nothing to fork yet"
    return "fork", ""


def fork_point(call: str) -> int:
    """The `Asked` before the reply that holds `call`: its id is `c<asked>.<n>`."""
    return int(call[1:].partition(".")[0])


def child_id(parent: str, seq: int) -> str:
    """Session of the subagent that entry `seq` of `parent` starts: computed, so that nothing deals it out."""
    return str(uuid5(UUID(parent), f"subagent {seq}"))


def task_of(plan: Plan, form: str, grant: Grant, refused: Sequence[str]) -> str:
    """The first words to it. To a fork they are the only ones of its own, so they say who it is and what holds."""
    if form != "fork" or plan.again:
        return f"{plan.tree.words}\n\n{plan.job.prompt}" if plan.tree is not None else plan.job.prompt
    limits = ", ".join(limit_words(grant))
    without = f" These tools are refused to you: {', '.join(refused)}." if refused else ""
    return (
        f"{fork_task(plan.kind, plan.job.prompt)}\n# Your limits\n"
        f"You are a subagent of type {plan.kind.name}; you have {limits}.{without}\n"
    )


def limit_words(grant: Grant) -> Iterator[str]:
    """What it may spend, in words."""
    yield f"at most {grant.turns} requests"
    if grant.usd:
        yield f"${grant.usd:.2f}"
    if grant.tokens:
        yield f"{grant.tokens:,} tokens"
    yield f"{grant.seconds / 60:.0f} minutes"


def crew_of(session: Session, kind: SubagentType, model: Model, form: str, *, depth: int) -> Crew:
    """The parts of a subagent, without what belongs to its own log."""
    crew, spawns = session.crew, depth > 0 and bool(kind.spawns)
    below = crew.kinds if "*" in kind.spawns else tuple(k for k in crew.kinds if k.name in kind.spawns)
    if form == "fork":
        tools, prefix = refusing(kind, crew.tools, spawns=spawns), crew.prefix
    else:
        tools = tools_of(kind, crew.tools, spawns=spawns)
        above = session.state.prefix
        prefix = prefix_of(tools, child_system(kind), above.context if above is not None else (), above)
    woken = msgspec.structs.replace(crew.task_options, wake=True)  # it has no user who could ask for what came
    given = {"tools": tools, "prefix": prefix, "model": model, "kinds": below if spawns else ()}
    return msgspec.structs.replace(crew, task_options=woken, **given)


def refusals(plans: Sequence[Plan | str], given: Sequence[Given | Refused]) -> list[tuple[Plan, Given] | str]:
    """Each plan with what it gets, or why not; in the order of the jobs."""
    served = iter(given)
    found: list[tuple[Plan, Given] | str] = []
    for one in plans:
        if isinstance(one, str):
            found.append(one)
            continue
        gets = next(served)
        found.append((one, gets) if isinstance(gets, Given) else gets.reason)
    return found


def refused_tools(kind: SubagentType, above: Mapping[str, Tool], *, spawns: bool) -> list[str]:
    """Names of tools that a fork is told of and may not use."""
    return [name for name in above if name not in (SEARCH, CALL_TOOL) and not may_use(kind, name, spawns)]


# ---------------------------------------------------------------------------------------------------------------------
#
# What stands above a subagent: the rules and the mode of its parent, as they are now, and a way to be heard.
#
# Nothing here is copied down, so a rule that the user takes back for the parent is gone below it at once.


class Bond:
    """One subagent's: see `agent.ports.Above`."""

    def __init__(self, parent: Session, tree: Tree, child: str, label: str, kind: str) -> None:
        self.parent, self.tree = parent, tree
        self.root, self.questions = tree.root, tree.questions
        self.child, self.label, self.kind = child, label, kind
        self.cap = "bypassPermissions"
        """The widest mode that its type may have."""
        self.last: Entry | None = None
        """What it did last that is worth telling, as far as it was heard."""
        self.reason = ""
        """How its last turn has ended; '' while one goes on."""
        self.worktree: Worktree | None = None
        """Folder of its own."""

    @property
    def rules(self) -> Rules:
        """See `Above`. Patterns that start at the first root start at that of its worktree."""
        rules, tree = self.parent.rules, self.worktree
        return rules if tree is None else msgspec.structs.replace(rules, base=tree.mapped(rules.base))

    def elsewhere(self, call: Call, cwd: str) -> Iterator[tuple[Call, Rules, str]]:
        """See `Above`."""
        tree, above = self.worktree, self.parent.crew.above
        if tree is not None:
            call, cwd = pictured(call, tree), home(cwd, tree)
            yield call, self.parent.rules, cwd
        if above is not None:
            yield from above.elsewhere(call, cwd)

    @property
    def mode(self) -> str:
        """See `Above`."""
        return narrower(self.parent.mode, self.cap)

    @property
    def process_session(self) -> str:
        """See `Above`."""
        return self.root.id

    @property
    def streaming(self) -> bool:
        """See `Above`."""
        return self.root.readers.streaming

    def _note(self, entry: Entry) -> None:
        match entry.event:
            case Replied() | ToolEnded():
                self.last = entry
            case UserSpoke():
                self.last, self.reason = entry, ""
            case TurnEnded(reason=reason):
                self.reason = reason
            case _:
                pass

    def hear(self, heard: Heard) -> None:
        """See `Above`."""
        if isinstance(heard, OfChild):
            return
        told = OfChild(self.child, self.label, self.kind, heard)
        if isinstance(heard, Streaming | Output | TaskOver):
            self.root.readers.stream(told)
            return
        event = heard.event if isinstance(heard, Entry) else None
        if isinstance(heard, Entry):
            self._note(heard)
        if isinstance(event, PermissionAsked):
            self.questions.ask(told)
            return
        self.root.readers.publish(told)
        if isinstance(event, PermissionAnswered | ToolEnded):
            self.questions.settled(self.child, event.call)


# ---------------------------------------------------------------------------------------------------------------------
#
# From a plan to a subagent that can walk: its start in the parent's log, its own log, its parts, its first words.


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


def _opened(
    session: Session, tree: Tree, kind: SubagentType | None, start: tuple[int, ChildStarted], shares: int
) -> Working:
    """Its session, opened by what any session is opened by. `start`: seq of its first start, and its last start."""
    seq, started = start
    log = session.log.child(started.child, shares)
    told = fold(log.entries)
    if kind is None:  # its type is gone: it keeps the tools it was told of, and no more
        kind = SubagentType(started.kind, "", tools=tuple(t.name for t in told.prefix.tools) if told.prefix else ())
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


def _crew(session: Session, tree: Tree, kind: SubagentType, started: ChildStarted, bond: Bond, log: Log) -> Crew:
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


# --- What is left to a session of a tree, counted from all logs that are at hand -------------------------------------


def room_of(session: Session, tree: Tree, more: int = 0) -> Room:
    """What is left to `session` and all below it, without what it keeps back for its own answer.

    `more`: subagents that it is about to start, whose reports that answer will carry too.
    """
    crew, above = session.crew, session.crew.above
    room = room_of(above.parent, tree) if isinstance(above, Bond) else UNBOUND
    rest = left(session.state, crew.limits, session.lasting.task_s, tree.states, room)
    return less(rest, kept_back(session.state, crew.model.budget, more))
