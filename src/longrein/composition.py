"""The hall's workshop: every part is built here, once, by hand, and handed to those who need it."""

import asyncio
import contextlib
import gc
import os
import random
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from longrein.agent import (
    BYPASS,
    Crew,
    Limits,
    OpenSession,
    TaskOptions,
    TaskPool,
    builtin_kinds,
    compose_system,
    open_session,
    resumed_state,
)
from longrein.agent.background.control import Commands
from longrein.agent.subagents.runner import Children
from longrein.config import (
    Settings,
    describe_environment,
    is_trusted,
    known_secrets,
    load_instructions,
    load_subagent_types,
    nested_instructions,
    project_root,
    remember_rule,
    subagent_model,
)
from longrein.context import State, schema_diagnosis
from longrein.events import (
    SCHEMA_VERSION,
    BudgetError,
    Opened,
    PrefixSet,
    SessionBusy,
    UsageError,
    redactor,
)
from longrein.models import Model, ModelOptions, look_up, open_model
from longrein.run_context import (
    CLOCK,
    Place,
    check_depth,
    chosen_model,
    key_source,
    session_of,
    stored_model,
    sweep_orphans,
)
from longrein.store import (
    Archive,
    Goals,
    SessionLog,
    open_log,
    owner_of,
    project_key,
)
from longrein.tools import Kind, Tool, ToolOptions, agent_tool, builtin_tools, by_name, goal_tools, offer
from longrein.workspace import (
    SPOOL,
    SupervisedSpawner,
    SupervisionOptions,
    Workspace,
    give_back,
    memory_use,
    open_workspace,
    sweep_halves,
)

MIB = 1024 * 1024


class Built(msgspec.Struct):
    """A session that is open, and what a frontend wants to know of it."""

    place: Place
    session: OpenSession
    crew: Crew
    log: SessionLog
    key_source: str
    notes: tuple[str, ...]


class Additions(msgspec.Struct, frozen=True):
    """Parts that a program hands in beside what options and settings say."""

    model: Model | None = None
    """In place of the model that options and settings name."""
    tools: tuple[Tool, ...] = ()
    """Tools after the built-in ones."""
    builtin: tuple[str, ...] | None = None
    """Names of the built-in tools to offer; None for all."""
    window_tokens: int = 0
    """In place of the model's context window; 0 for what is known of it."""
    max_output_tokens: int = 0
    """In place of the model's output limit; 0 for what is known of it."""


NOTHING_ADDED = Additions()


async def build(place: Place, session: str = "", *, fresh: bool = False, additions: Additions = NOTHING_ADDED) -> Built:
    """Open the session that the options ask for (or `session`, or with `fresh` a new one) and everything around it.

    Raises our own errors: `ModelUnknown`, `SessionUnknown`, `SessionBusy`, `StoreDamaged`, `BudgetError` …
    """
    check_depth(place)
    if fresh:
        session = str(uuid.uuid4())
    given: Model | ModelOptions | None = additions.model
    if given is None and (fresh or not (session or place.options.continue_newest or place.options.resume)):
        given = chosen_model(place)  # before anything is made: a start without a model leaves no session behind
    ended = sweep_orphans(place)
    log = await _open_log(place, session, create=fresh)
    try:
        return _around(place, log, ended, given, additions)
    except BaseException:
        await log.close()
        raise


async def _open_log(place: Place, session: str, *, create: bool) -> SessionLog:
    """The log of `session`, or of the one that the options ask for: with `-c` the newest that nobody has open."""
    busy: list[str] = []
    while True:
        wanted, new, said = (session, create, "") if session else await session_of(place, busy)
        try:
            log = await open_log(place.state_dir, wanted, create=new, wall_us=CLOCK.wall_us)
        except SessionBusy:
            if session or not place.options.continue_newest or wanted in busy:
                raise
            busy.append(wanted)  # since it was chosen
            continue
        log.notes[:0] = [said] if said else []
        return log


def _around(
    place: Place, log: SessionLog, ended: list[str], given: Model | ModelOptions | None, additions: Additions
) -> Built:
    state, settings = resumed_state(log), place.settings
    model, key_from = _model(place, log, state, given, additions)
    roots = tuple(state.roots or place.roots)
    opened = None if state.session == log.session else _opened(place, log.session)
    nonce = opened.nonce if opened else state.nonce
    secrets = known_secrets(place.environ, settings)
    clean = redactor(secrets, nonce, settings.redact_patterns)
    spawner = _spawner(place, log, roots, nonce, secrets)

    def in_roots(roots: tuple[str, ...]) -> Workspace:
        return open_workspace(roots, spawner=spawner, environment=_environ(place), keep_env=settings.env_keep)

    workspace = in_roots(roots)
    kinds, unread = _kinds(place, additions.tools)
    tools = (*_builtin(kinds, additions.builtin), *additions.tools)
    prefix, told = _prefix(place, workspace, state, tools)
    project, owner = project_key(project_root(roots[0])), owner_of(log.session)
    crew = Crew(
        clock=CLOCK,
        jitter=random.random,
        workspace=workspace,
        tools=by_name(tools),
        model=model,
        open_model=lambda name: open_model(chosen_model(place, name), log.read_blob, CLOCK),
        prefix=prefix,
        history=lambda first, last: log.reader.entries(first - 1, last),
        rules=settings.rules(roots[0], place.home),
        limits=_limits(settings),
        options=msgspec.convert(dict(settings.tools), ToolOptions),
        redact=clean,
        secrets=secrets,
        nested=lambda folder, told: _nested(place, folder, told),
        remember_rule=lambda rule: remember_rule(rule, place.environ, place.home),
        fallback=settings.fallback_model,
        compact_model=settings.compact_model,
        archive=Archive(place.state_dir, log.session),
        goals=Goals(place.state_dir, project, owner, CLOCK.wall_us, redact=clean),
        memory=lambda: memory_use(settings.memory_mb * MIB),
        kinds=kinds,
        child_model=lambda asked: subagent_model(asked, crew.model.name, settings, place.environ),
        workspace_in=in_roots,
        worktrees=f"{place.state_dir}/worktrees",
        pool=TaskPool(spawner, settings.tasks_max),
        task_options=_task_options(settings),
        desk=Commands,
        company=Children,
    )
    crew.ease = lambda: _ease(crew, log)
    _check_money(crew)
    mode, lapsed = _mode(place, state)
    session = open_session(log, crew, state=state, opened=opened, mode=mode)
    spawner.notice = session.notice
    _tell_damage(log, session)
    notes = (*settings.notes, *log.notes, *told, *lapsed, *unread, *_left_behind(ended, roots, state))
    fills = schema_diagnosis(session.state.prefix, model.budget.window_tokens) if session.state.prefix else ""
    return Built(place, session, crew, log, key_from, tuple(map(clean, filter(None, [*notes, fills]))))


def _tell_damage(log: SessionLog, session: OpenSession) -> None:
    """Have the user told of damage in entries that are looked through after the start."""
    loop = asyncio.get_running_loop()

    def tell(checked: "Future[str]") -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: the next open repairs what was found
            if checked.result():
                loop.call_soon_threadsafe(session.notice, checked.result())

    if log.checked is not None:
        log.checked.add_done_callback(tell)


def _environ(place: Place) -> Mapping[str, str]:
    """What commands inherit from: a state folder that was named holds also for a longrein that they start."""
    named = place.options.state_dir or place.environ.get("LONGREIN_STATE_DIR")
    return {**place.environ, "LONGREIN_STATE_DIR": place.state_dir} if named else place.environ


def _model(
    place: Place, log: SessionLog, state: State, given: Model | ModelOptions | None, additions: Additions
) -> tuple[Model, str]:
    """The model that was given or asked for, or the one the session had; and where its key came from."""
    if given is not None and not isinstance(given, ModelOptions):
        return given, "none"
    chosen = given or chosen_model(place, stored_model(place, state))
    return open_model(_sized(chosen, additions), log.read_blob, CLOCK), key_source(place, chosen)


def _sized(chosen: ModelOptions, additions: Additions) -> ModelOptions:
    """`chosen` with the window and output limit that a program has named. Raises `UsageError` where they clash."""
    if not additions.window_tokens and not additions.max_output_tokens:
        return chosen
    known = chosen.budget or look_up(chosen.provider, chosen.model)
    window = additions.window_tokens or known.window_tokens
    output = additions.max_output_tokens or min(known.max_output_tokens, window // 4)
    if not 0 < output < window:
        raise UsageError(f"window {window} must be larger than max_output {output}, both above 0 tokens")
    budget = msgspec.structs.replace(known, window_tokens=window, max_output_tokens=output)
    return msgspec.structs.replace(chosen, budget=budget)


def _builtin(kinds: Sequence[Kind], chosen: Sequence[str] | None) -> list[Tool]:
    """The built-in tools called `chosen`, in their usual order; all for None. Raises `UsageError` for unknown ones."""
    tools = [*builtin_tools(), agent_tool(tuple(kinds)), *goal_tools()]
    if chosen is None:
        return tools
    names = [tool.spec.name for tool in tools]
    if unknown := [name for name in chosen if name not in names]:
        raise UsageError(f"there is no built-in tool {unknown[0]!r}; there are {', '.join(names)}")
    return [tool for tool in tools if tool.spec.name in chosen]


def _mode(place: Place, state: State) -> tuple[str, list[str]]:
    """The permission mode that is asked for, '' for that of the stored session; and what is to be said of it.

    `bypassPermissions` is never restored: it must be asked for in each run.
    """
    mode, was = place.settings.permission_mode, state.mode
    if not state.seq or place.options.permission_mode or mode == was:
        return mode, []
    if was != BYPASS:
        return "", []
    again = f"give --permission-mode {was} to have it again"
    return mode, [f"mode {was} is not restored: the session goes on in mode {mode}; {again}"]


def _left_behind(ended: Sequence[str], roots: Sequence[str], state: State) -> list[str]:
    """What a crash left: processes that were ended, halves of writes that lie beside the files of this session."""
    told = [f"ended what a crash had left running: {', '.join(ended)}"] if ended else []
    folders = dict.fromkeys((*roots, *(os.path.dirname(path) for path in state.files)))
    return [*told, *(sweep_halves(folders) if state.seq else ())]


def _limits(settings: Settings) -> Limits:
    return Limits(
        settings.turns_max,
        settings.usd_max,
        settings.parallel_max,
        agents_max=settings.agents_max,
        depth_max=settings.agents_depth,
        spawns_max=settings.agents_spawns,
        tasks_max=settings.tasks_max,
    )


def _task_options(settings: Settings) -> TaskOptions:
    return TaskOptions(
        memory_bytes=settings.task_memory_bytes,
        cpu_s=settings.task_cpu_s,
        quota_bytes=settings.task_quota_bytes,
        **settings.task_options,
    )


def _spawner(
    place: Place, log: SessionLog, roots: Sequence[str], nonce: str, secrets: tuple[str, ...]
) -> SupervisedSpawner:
    """Commands are started by the session's supervisor; where none can be had, by longrein, after a notice."""
    settings = place.settings
    options = SupervisionOptions(
        nonce, secrets, settings.redact_patterns, settings.task_keep_s, settings.task_quota_bytes
    )
    return SupervisedSpawner(
        os.path.join(log.folder, SPOOL),
        options,
        wall_us=CLOCK.wall_us,
        notice=log.notes.append,
        environ=place.environ,
        roots=roots,
    )


def _kinds(place: Place, more: Sequence[Tool]) -> tuple[tuple[Kind, ...], tuple[str, ...]]:
    """Subagent types, and what of their files was left out."""
    return load_subagent_types(
        builtin_kinds(),
        place.cwd,
        place.home,
        place.environ,
        trusted=lambda folder: is_trusted(place.state_dir, folder),
        given=place.options.agents,
        known_tools=[tool.spec.name for tool in (*builtin_tools(), *goal_tools(), *more)],
    )


def _ease(crew: Crew, log: SessionLog) -> None:
    """Drop what can be made again: encoded items, the reader's pages, garbage; what that frees goes to the system."""
    forget = getattr(crew.model, "forget", None)  # a model may hold nothing
    if forget is not None:
        forget()
    log.reader.close()
    gc.collect()
    give_back()


def _nested(place: Place, folder: str, told: Collection[str]) -> Iterable[tuple[str, str]]:
    root = project_root(place.cwd)
    found = nested_instructions(folder, root, told, place.home, place.settings)
    return zip((source.path for source in found.sources), found.texts, strict=True)


def _check_money(crew: Crew) -> None:
    if crew.limits.usd_max and crew.model.budget.price is None:
        raise BudgetError(
            f"a money limit needs the price of {crew.model.name}: give it as "
            f'[models."{crew.model.name}"] price_input and price_output in config.toml'
        )


def _opened(place: Place, session: str) -> Opened:
    nonce = uuid.uuid4().hex[:8]
    return Opened(SCHEMA_VERSION, session, nonce, place.roots, place.cwd, place.settings.profile)


# --- what stands before the conversation -------------------------------------------------------------------------


def _prefix(
    place: Place, workspace: Workspace, state: State, tools: Sequence[Tool]
) -> tuple[Callable[[Model, str], PrefixSet], Iterable[str]]:
    """(model, reason) -> what stands before the conversation; and notes on what was read for it."""
    context, sources, notes = _static_context(place, workspace, state)
    system = compose_system(replaced=place.options.system_prompt, appended=place.options.append_system_prompt)

    def prefix(model: Model, reason: str) -> PrefixSet:
        told = offer(tools, model.budget.usable_tokens)
        names = model.provider, model.model, model.wire
        return PrefixSet(reason, *names, system, told.listed, context, sources, told.deferred)

    return prefix, notes


def _static_context(place: Place, workspace: Workspace, state: State) -> tuple[tuple[str, ...], Any, Iterable[str]]:
    """Environment and instruction files: read once, at the start of a session, then frozen."""
    if state.prefix is not None:
        return state.prefix.context, state.prefix.sources, ()
    texts, sources, notes = load_instructions(place.cwd, place.home, place.environ, place.settings)
    around = describe_environment(
        cwd=place.cwd,
        day=time.strftime("%Y-%m-%d"),
        roots=place.roots,
        branch=_branch(workspace, project_root(place.cwd)),
    )
    return (around, *texts), sources, notes


def _branch(workspace: Workspace, root: str) -> str:
    """The git branch, read from `HEAD` without running git; '' when there is none."""
    try:
        head = workspace.read(os.path.join(root, ".git", "HEAD"), 4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""
