"""What is to become of a job: who does it, with which parts, or why nobody; nothing is written here yet."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID, uuid5

import msgspec

from longrein.agent.children.crewing import SEARCH, may_use, prefix_of, refusing, tools_of
from longrein.agent.children.grants import Given, Offer, Refused, Wish
from longrein.agent.children.tree import Tree
from longrein.agent.ports import Crew
from longrein.agent.prompts import child_system, fork_task
from longrein.agent.session import Session
from longrein.agent.synthesis import SYNTHESIS
from longrein.context import estimate_text, spec_tokens
from longrein.events import CALL_TOOL, Grant, LongreinError
from longrein.models import Model
from longrein.tools import Job, Kind, Tool
from longrein.workspace import Worktree


class Plan(msgspec.Struct):
    """A job that can be done."""

    index: int
    job: Job
    kind: Kind
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


def plan(session: Session, tree: Tree, index: int, job: Job, folder: Worktree | str | None) -> Plan | str:
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


def form_of(session: Session, job: Job, model: Model, *, own_folder: bool) -> tuple[str, str]:
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


def crew_of(session: Session, kind: Kind, model: Model, form: str, *, depth: int) -> Crew:
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


def refused_tools(kind: Kind, above: Mapping[str, Tool], *, spawns: bool) -> list[str]:
    """Names of tools that a fork is told of and may not use."""
    return [name for name in above if name not in (SEARCH, CALL_TOOL) and not may_use(kind, name, spawns)]
