"""Start of subagents: plan a job, narrow the parent's parts for it, and open its session."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from uuid import UUID, uuid5

import msgspec

from longrein.agent.dependencies import UNBOUND, Dependencies, RemainingBudget, below, narrower
from longrein.agent.hooks import SessionHooks
from longrein.agent.messages import FromSubagent, SessionUpdate
from longrein.agent.open_session import open_session
from longrein.agent.prompts import fork_task, subagent_system
from longrein.agent.session import Session
from longrein.agent.session_part import BackgroundTasks, Checkpoints, Skills
from longrein.agent.subagents.budget import (
    Granted,
    RunOption,
    SpawnRequest,
    answer_reserve,
    limits_under,
    remaining_budget,
    without_reserve,
)
from longrein.agent.subagents.shared_state import ActiveSubagent, SubagentTree
from longrein.agent.subagents.subagent_report import SYNTHESIS
from longrein.agent.subagents.worktree import mapped_call, original_path
from longrein.agent.subscribers import History
from longrein.models import Model, is_trained_on_patches
from longrein.permissions import Call, Rules
from longrein.store import Log
from longrein.tools import (
    EDITORS,
    Outcome,
    SubagentTask,
    SubagentType,
    Tool,
    ToolContext,
    named_tools,
    offer_tools,
    tools_by_name,
)
from longrein.workspace import Worktree, read_worktree
from longrein_context import State, SubagentState, estimate_text, fold, spec_tokens
from longrein_context.events import (
    CALL_TOOL,
    SCHEMA_VERSION,
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
    SubagentStarted,
    Text,
    ToolEnded,
    ToolError,
    TurnEnded,
    UserSpoke,
)

# --- Dependencies of a subagent -------------------------------------------------------------------
#
# The parent's parts, narrowed. Immutable parts are shared, so that a subagent costs little.


AGENT = "Agent"
"""Name of the tool that starts subagents."""
SEARCH = "ToolSearch"
"""Name of the tool that finds deferred tools; rebuilt for the tools of the subagent."""


def may_use(kind: SubagentType, name: str, spawns: bool) -> bool:
    """Return True if the type may use the tool `name`."""
    if name == AGENT:
        return spawns
    name = EDITORS[0] if name in EDITORS else name

    def among(patterns: Sequence[str]) -> bool:
        return any(
            name.startswith(one[:-1]) if one.endswith("*") else name == one for one in patterns
        )

    return (kind.tools is None or among(kind.tools)) and not among(kind.without)


def refused_tools(kind: SubagentType, above: Mapping[str, Tool], *, spawns: bool) -> list[str]:
    """Return the names of the tools of `above` that a subagent of this type may not use."""
    return [
        name
        for name in above
        if name not in (SEARCH, CALL_TOOL) and not may_use(kind, name, spawns)
    ]


def _refused(tool: Tool, kind: str) -> Tool:
    text = (
        f"[not-yours] {tool.spec.name} is not for a subagent of type {kind}; do your task "
        "without it."
    )

    async def refuse(_context: ToolContext, /, **_arguments: object) -> Outcome:
        raise ToolError(text)

    return msgspec.structs.replace(
        tool,
        access="none",
        run=refuse,
        together=lambda _: True,
        paths=lambda _: (),
        withdrawn=True,
    )


def prefix_of(
    tools: Mapping[str, Tool], system: str, above: PrefixSet | None
) -> Callable[[Model, str], PrefixSet]:
    """Build the prefix function of a subagent: its own text and tools, its parent's static
    context.
    """
    context, sources = (above.context, above.sources) if above is not None else ((), ())
    offer = cache(
        lambda usable_tokens, patches: offer_tools(tools.values(), usable_tokens, patches=patches)
    )

    def prefix(model: Model, reason: str) -> PrefixSet:
        told = offer(model.budget.usable_tokens, is_trained_on_patches(model.model))
        return PrefixSet(
            reason,
            model.provider,
            model.model,
            model.wire,
            system,
            told.listed,
            context,
            sources,
            told.deferred,
        )

    return prefix


# --- Planning -------------------------------------------------------------------------------------


class SpawnPlan(msgspec.Struct):
    """A job that can be run."""

    index: int
    job: SubagentTask
    kind: SubagentType
    model: Model
    form: str
    note: str = ""
    """Differences from the request, and their reason."""
    again: str = ""
    """Session of a subagent that is asked again."""
    background: bool = False
    tree: Worktree | None = None
    """Worktree of the subagent."""

    def wish(self, state: State, depth_max: int) -> SpawnRequest:
        """Build the budget request: as a fork, else with an empty conversation."""
        task = estimate_text(self.job.prompt) + 500
        own = 0
        prefix = state.prefix
        if prefix is not None and not self.again:
            tools = [spec for spec in prefix.tools if may_use(self.kind, spec.name, spawns=False)]
            own = sum(map(estimate_text, (prefix.system, *prefix.context))) + sum(
                map(spec_tokens, tools)
            )
        empty = RunOption("empty", self.model.budget, own + task)
        fork = RunOption("fork", self.model.budget, task, state.view_tokens)
        offers = (fork, empty) if self.form == "fork" else (empty,)
        below = depth_max - 1 if self.kind.spawns else 0
        return SpawnRequest(offers, self.kind.turns_max, max(0, below), bool(self.again))


def plan(
    state: State,
    deps: Dependencies,
    tree: SubagentTree,
    index: int,
    job: SubagentTask,
    folder: Worktree | str | None,
) -> SpawnPlan | str:
    """Plan a job, or return why it cannot run. `folder`: its worktree, when it wants one."""
    if isinstance(folder, str):
        return folder
    kinds = {kind.name: kind for kind in deps.kinds}
    kind = kinds.get(job.kind)
    if kind is None:
        known = ", ".join(name for name in kinds if name != SYNTHESIS)
        return f"there is no subagent type {job.kind!r} here; types are {known or 'none'}"
    try:
        name, note = deps.subagent_model(job.model or kind.model)
        model = tree.model(name, deps.model)
    except LongreinError as error:
        return str(error)
    own = deps.model
    form, why = form_of(state, own, job, model, own_folder=folder is not None)
    told = "; ".join(filter(None, (note, why)))
    return SpawnPlan(index, job, kind, model, form, told, background=kind.background, tree=folder)


def form_of(
    state: State, own: Model, job: SubagentTask, model: Model, *, own_folder: bool
) -> tuple[str, str]:
    """Return how the conversation begins, and why it differs from the request."""
    if job.form != "fork":
        return "empty", ""
    if (model.provider, model.model, model.wire) != (own.provider, own.model, own.wire):
        return "empty", f"empty instead of fork: {model.name} is not the model of this conversation"
    if own_folder:
        return (
            "empty",
            "empty instead of fork: it works in another folder than this conversation tells of",
        )
    if state.prefix is None or not state.asks:
        return "empty", "empty instead of fork: there is nothing to fork yet"
    return "fork", ""


def fork_point(call: str) -> int:
    """Return the `Asked` before the reply that holds `call`, whose id is `c<asked>.<n>`."""
    return int(call[1:].partition(".")[0])


def task_of(plan: SpawnPlan, form: str, grant: Grant, refused: Sequence[str]) -> str:
    """Return the first message to a subagent; for a fork it also states its role and limits."""
    if form != "fork" or plan.again:
        return (
            f"{plan.tree.words}\n\n{plan.job.prompt}" if plan.tree is not None else plan.job.prompt
        )
    limits = [f"at most {grant.turns} requests"]
    limits += [f"${grant.usd:.2f}"] if grant.usd else []
    limits += [f"{grant.tokens:,} tokens"] if grant.tokens else []
    limits += [f"{grant.seconds / 60:.0f} minutes"]
    without = f" These tools are refused to you: {', '.join(refused)}." if refused else ""
    return (
        f"{fork_task(plan.kind, plan.job.prompt)}\n# Your limits\n"
        f"You are a subagent of type {plan.kind.name}; you have {', '.join(limits)}.{without}\n"
    )


# --- Live policy of the parent --------------------------------------------------------------------
#
# Rules and mode are read from the parent at each use, so a rule that the user takes back is gone
# below at once.


class LiveParentPolicy(msgspec.Struct, eq=False):
    """Live policy of the parent of one subagent, and the channel for the subagent's updates."""

    parent: Session
    tree: SubagentTree
    child: str
    """Session of the subagent."""
    label: str
    kind: str
    cap: str = "bypassPermissions"
    """The widest mode that its type may have."""
    last: Entry | None = None
    """Latest entry worth showing."""
    reason: str = ""
    """Reason of its last turn's end; '' during a turn."""
    worktree: Worktree | None = None
    """Worktree of the subagent."""

    @property
    def root(self) -> Session:
        """The session of the user."""
        return self.tree.root

    @property
    def root_id(self) -> str:
        return self.root.id

    @property
    def mode_restored(self) -> bool:
        return self.root.approvals.mode_restored

    @property
    def variables(self) -> dict[str, str]:
        return self.parent.part(SessionHooks).all_variables

    @property
    def streaming(self) -> bool:
        return self.root.subscribers.streaming

    @property
    def in_background(self) -> bool:
        known = self.parent.state.children.get(self.child)
        return known is not None and known.started.background

    def open_tasks(self) -> None:
        self.root.open(BackgroundTasks)

    @property
    def rules(self) -> Rules:
        """The parent's rules now; patterns of the first root apply to that of the worktree."""
        rules, tree = self.parent.rules, self.worktree
        return (
            rules if tree is None else msgspec.structs.replace(rules, base=tree.mapped(rules.base))
        )

    def elsewhere(self, call: Call, cwd: str) -> Iterator[tuple[Call, Rules, str]]:
        """Yield (call, rules, current folder) as they would be in the folders that worktrees stand
        for.

        A call denied there is denied here too.
        """
        tree, above = self.worktree, self.parent.deps.parent_policy
        if tree is not None:
            cwd = original_path(cwd, tree)
            call = mapped_call(call, tree, cwd, self.parent.rules.home)
            yield call, self.parent.rules, cwd
        if above is not None:
            yield from above.elsewhere(call, cwd)

    @property
    def mode(self) -> str:
        """The widest permission mode the subagent may have now."""
        return narrower(self.parent.mode, self.cap)

    def hear(self, heard: SessionUpdate) -> None:
        """Pass on a committed entry or a provisional update of the subagent."""
        if isinstance(heard, FromSubagent):
            return
        told = FromSubagent(self.child, self.label, self.kind, heard)
        event = heard.event if isinstance(heard, Entry) else None
        if isinstance(event, PermissionAsked):
            self.tree.questions.ask(told)
            return
        if isinstance(heard, Entry) and isinstance(event, Replied | ToolEnded | UserSpoke):
            self.last = heard
        if isinstance(event, UserSpoke | TurnEnded):
            self.reason = event.reason if isinstance(event, TurnEnded) else ""
        self.root.subscribers.publish(told)
        if isinstance(event, PermissionAnswered | ToolEnded):
            self.tree.questions.settled(self.child, event.call)


# --- Starting -------------------------------------------------------------------------------------


SECONDS_MAX = 2 * 3600.0
"""Wall time of one task without another limit."""


def append_start(
    session: Session, one: SpawnPlan, given: Granted, call: str, background: bool
) -> tuple[int, SubagentStarted]:
    """Append the start of a subagent; return the seq of its first one, and the start."""
    grant = msgspec.structs.replace(given.grant, seconds=given.grant.seconds or SECONDS_MAX)
    was = session.state.children[one.again] if one.again else None
    seq = was.seq if was is not None else session.state.seq + 1
    folder = one.tree.path if one.tree is not None else ""
    started = SubagentStarted(
        child=was.started.child
        if was is not None
        else str(uuid5(UUID(session.id), f"subagent {seq}")),
        kind=one.kind.name,
        call=call,
        grant=grant,
        index=one.index,
        description=one.job.description,
        task=one.job.prompt,
        form=was.started.form if was is not None else given.offer.form,
        background=background or one.background,
        model=one.model.name,
        worktree=was.started.worktree if was is not None else folder,
        again=was.seq if was is not None else 0,
        note="; ".join(filter(None, (one.note, given.note))),
        location=one.kind.location,
    )
    session.append(started)
    return seq, started


def start_subagent(
    session: Session, tree: SubagentTree, one: SpawnPlan, start: tuple[int, SubagentStarted]
) -> ActiveSubagent:
    """Open the session of a subagent whose `start` has just been appended; both must be committed
    together before anything awaits.
    """
    _, started = start
    grant = started.grant or Grant()
    if one.again:
        shares = shared_entries(session.history, session.state.children[one.again])
    elif started.form == "fork":
        shares = fork_point(started.call)
    else:
        shares = 0
    working = open_subagent(session, tree, one.kind, start, shares)
    child = working.session
    if child.mode != child.state.mode:
        child.append(ModeSet(child.mode))
    refused = refused_tools(one.kind, session.deps.tools, spawns=bool(child.deps.kinds))
    skills = child.find(Skills)
    if one.kind.skills and skills is not None:
        child.append(*skills.preloaded(one.kind.skills))
    child.append(UserSpoke((Text(task_of(one, started.form, grant, refused)),)))
    child.deps.limits = limits_under(session.deps.limits, grant, child.state)
    return working


def shared_entries(history: History, now: SubagentState) -> int:
    """Return how many entries of the parent's log a fork begins with."""
    if now.started.form != "fork":
        return 0
    first = next(iter(history(now.seq, now.seq)), None)
    begun = first.event if first is not None else None
    return fork_point(begun.call) if isinstance(begun, SubagentStarted) else 0


def open_subagent(
    session: Session,
    tree: SubagentTree,
    kind: SubagentType | None,
    start: tuple[int, SubagentStarted],
    shares: int,
) -> ActiveSubagent:
    """Open the session of a subagent. `start`: seq of its first start, and its last start."""
    seq, started = start
    log = session.log.child(started.child, shares)
    told = fold(log.entries)
    if kind is None:  # the type no longer exists: keep only the tools it was told of
        kind = SubagentType(
            started.kind,
            "",
            tools=tuple(t.name for t in told.prefix.callable_tools) if told.prefix else (),
        )
    label = below(session.state.label, f"a{seq}")
    policy = LiveParentPolicy(session, tree, started.child, label, started.kind)
    policy.cap = kind.mode or policy.cap
    if _is_worktree(session.deps.worktrees, started.worktree):
        policy.worktree = read_worktree(started.worktree)
    opened = first_entry(started, policy, shares) if told.session != started.child else None
    child = open_session(log, _dependencies(kind, started, policy, log), state=told, opened=opened)
    child.paused = False
    child.part(SessionHooks).add_of_type(kind.hooks)
    working = ActiveSubagent(seq, started, child, shares + 1, policy)
    if started.worktree and policy.worktree is None:
        working.problem = f"its worktree {started.worktree} is gone"
    return working


def _is_worktree(folder: str, path: str) -> bool:
    """Return True if `path` lies where worktrees are made; a log that was edited could name any
    folder.
    """
    return bool(folder) and os.path.dirname(os.path.normpath(path)) == os.path.realpath(folder)


def _dependencies(
    kind: SubagentType, started: SubagentStarted, policy: LiveParentPolicy, log: Log
) -> Dependencies:
    deps, depth = policy.parent.deps, started.grant.depth if started.grant else 0
    spawns = depth > 0 and bool(kind.spawns)
    try:
        model = policy.tree.model(started.model, deps.model)
    except LongreinError:  # the settings no longer know it
        model = deps.model
    refused = refused_tools(kind, deps.tools, spawns=spawns)
    if started.form == "fork":  # it shares the prefix, so it sees all tools
        tools = {
            name: _refused(tool, kind.name) if name in refused else tool
            for name, tool in deps.tools.items()
        }
        prefix = deps.prefix
    else:
        left_out = {SEARCH, CALL_TOOL, *refused}
        given = [tool for name, tool in deps.tools.items() if name not in left_out]
        tools = tools_by_name(named_tools(given) if kind.tools else given)
        prefix = prefix_of(tools, subagent_system(kind, tools), policy.parent.state.prefix)
    below = tuple(k for k in deps.kinds if k.name in kind.spawns or "*" in kind.spawns)
    workspace = deps.workspace
    if policy.worktree is not None and deps.workspace_in is not None:
        workspace = deps.workspace_in((policy.worktree.path,))
    return msgspec.structs.replace(
        deps,
        tools=tools,
        prefix=prefix,
        model=model,
        kinds=below if spawns else (),
        task_options=msgspec.structs.replace(
            deps.task_options, wake=True
        ),  # no user could ask for the news
        parts={kind: opens for kind, opens in deps.parts.items() if kind is not Checkpoints},
        parent_policy=policy,
        archive=deps.archive.child(log.session),
        workspace=workspace,
    )


def first_entry(started: SubagentStarted, policy: LiveParentPolicy, shares: int) -> Opened:
    """Return the first entry of a subagent's log. `shares`: entries of its parent before it."""
    state, tree = policy.parent.state, policy.worktree
    return Opened(
        SCHEMA_VERSION,
        started.child,
        state.nonce,
        state.roots if tree is None else (tree.path,),
        state.cwd if tree is None else tree.cwd,
        state.profile,
        Parent(policy.parent.id, shares, started.call),
        started.grant,
        state.pins,
        started.kind,
        policy.label,
    )


# --- Remaining budget -----------------------------------------------------------------------------


def remaining_for(session: Session, tree: SubagentTree, more: int = 0) -> RemainingBudget:
    """Return the budget left to `session` and its subagents, minus the reserve for its answer.

    `more`: subagents about to be started, whose reports that answer will carry too.
    """
    deps, above = session.deps, session.deps.parent_policy
    room = remaining_for(above.parent, tree) if isinstance(above, LiveParentPolicy) else UNBOUND
    rest = remaining_budget(session.state, deps.limits, session.elapsed.task_s, tree.states, room)
    return without_reserve(rest, answer_reserve(session.state, deps.model.budget, more))
