"""The hall's workshop: every part is built here, once, by hand, and handed to those who need it."""

import gc
import os
import random
import time
import uuid
from asyncio import sleep
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from longrein.agent import (
    Crew,
    Limits,
    OpenSession,
    TaskOptions,
    TaskPool,
    builtin_kinds,
    compose_system,
    open_session,
)
from longrein.config import (
    Settings,
    choose_model,
    describe_environment,
    environment,
    home_folder,
    is_trusted,
    known_secrets,
    load_instructions,
    load_kinds,
    load_settings,
    nested_instructions,
    project_root,
    remember_rule,
    state_dir,
    subagent_model,
)
from longrein.context import Budget, State, fold, schema_diagnosis
from longrein.events import (
    SCHEMA_VERSION,
    BudgetError,
    Entry,
    LongreinError,
    Opened,
    Parent,
    PrefixSet,
    SessionUnknown,
    UsageError,
    redactor,
)
from longrein.frontends.options import Options
from longrein.models import Model, ModelOptions, known_provider, look_up, offered_models, open_model
from longrein.store import (
    Archive,
    Goals,
    Reader,
    SessionLog,
    find_session,
    fork_log,
    is_open,
    latest_session,
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
    sweep,
    sweep_halves,
)

VERSION = "0.1.0"
MIB = 1024 * 1024


class SystemClock:
    """Real time."""

    def wall_us(self) -> int:
        """Microseconds UTC."""
        return time.time_ns() // 1000

    def mono_s(self) -> float:
        """Seconds, monotonic."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await sleep(seconds)


CLOCK = SystemClock()


class Place(msgspec.Struct, frozen=True):
    """Where longrein was started and what it was told: the same for every session of one start."""

    options: Options
    settings: Settings
    environ: Mapping[str, str]
    home: str
    cwd: str
    state_dir: str
    roots: tuple[str, ...]


class Built(msgspec.Struct):
    """A session that is open, and what a frontend wants to know of it."""

    place: Place
    session: OpenSession
    crew: Crew
    log: SessionLog
    key_source: str
    notes: tuple[str, ...]


def survey(options: Options, environ: Mapping[str, str] | None = None, *, folder: str = "") -> Place:
    """Look around in `folder` (by default the present one). Raises `SettingsError` and `UsageError`."""
    environ = environment() if environ is None else environ
    home = home_folder(environ)
    cwd = os.path.abspath(folder) if folder else _present_folder()
    state = os.path.abspath(options.state_dir) if options.state_dir else state_dir(environ, home)
    flags = {name: getattr(options, name) for name in options.__struct_fields__}
    settings = load_settings(cwd=cwd, home=home, environ=environ, flags=flags, trusted=is_trusted(state, cwd))
    return Place(options, settings, environ, home, cwd, state, (cwd, *map(_further_folder, options.add_dirs)))


def _present_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the folder that this shell is in has been removed: cd to one that is there") from None


def _further_folder(written: str) -> str:
    folder = os.path.abspath(os.path.expanduser(written))
    if not os.path.isdir(folder):
        raise UsageError(f"--add-dir: {folder} is not a folder")
    return folder


async def build(
    place: Place, session: str = "", *, fresh: bool = False, model: Model | None = None, tools: Sequence[Tool] = ()
) -> Built:
    """Open the session that the options ask for (or `session`, or with `fresh` a new one) and everything around it.

    `model` stands in place of the one that options and settings name; `tools` come after the built-in ones.

    Raises our own errors: `ModelUnknown`, `SessionUnknown`, `SessionBusy`, `StoreDamaged`, `BudgetError` …
    """
    if fresh:
        wanted, create = str(uuid.uuid4()), True
    else:
        wanted, create = (session, False) if session else await _session_of(place)
    ended = _sweep(place)
    log = await open_log(place.state_dir, wanted, create=create, wall_us=CLOCK.wall_us)
    try:
        return _around(place, log, ended, model, tools)
    except BaseException:
        await log.close()
        raise


def _around(place: Place, log: SessionLog, ended: list[str], given: Model | None, more: Sequence[Tool]) -> Built:
    state = fold(log.entries)
    model, key_source = given, "none"
    if model is None:
        chosen = chosen_model(place, _stored_model(place, state))
        model, key_source = open_model(chosen, log.read_blob, CLOCK), _key_source(place, chosen)
    roots = state.roots or place.roots
    opened = None if state.seq else _opened(place, log.session)
    nonce = opened.nonce if opened else state.nonce
    secrets = known_secrets(place.environ, place.settings)
    spawner = _spawner(place, log, roots, nonce, secrets)

    def in_roots(roots: tuple[str, ...]) -> Workspace:
        return open_workspace(roots, spawner=spawner, environment=place.environ, keep_env=place.settings.env_keep)

    workspace = in_roots(tuple(roots))
    beside: list[str] = []
    if state.seq:
        beside = sweep_halves(dict.fromkeys((*roots, *(os.path.dirname(path) for path in state.files))))
    context, sources, notes = _static_context(place, workspace, state)
    kinds, unread = _kinds(place, more)
    tools = (*builtin_tools(), agent_tool(kinds), *more)
    system = compose_system(replaced=place.options.system_prompt, appended=place.options.append_system_prompt)

    def prefix(model: Model, reason: str) -> PrefixSet:
        told = offer((*tools, *goal_tools()) if goals.begun else tools, model.budget.usable_tokens)
        names = model.provider, model.model, model.wire
        return PrefixSet(reason, *names, system, told.listed, context, sources, told.deferred)

    settings = place.settings
    project, owner = project_key(project_root(roots[0])), owner_of(log.session)
    clean = redactor(secrets, nonce, settings.redact_patterns)
    goals = Goals(place.state_dir, project, owner, CLOCK.wall_us, redact=clean)
    crew = Crew(
        clock=CLOCK,
        jitter=random.random,
        workspace=workspace,
        tools=by_name((*tools, *goal_tools())),
        model=model,
        open_model=lambda name: open_model(chosen_model(place, name), log.read_blob, CLOCK),
        prefix=prefix,
        history=lambda first, last: log.reader.entries(first - 1, last),
        rules=settings.rules(roots[0], place.home),
        limits=Limits(
            settings.turns_max,
            settings.usd_max,
            settings.parallel_max,
            agents_max=settings.agents_max,
            depth_max=settings.agents_depth,
            spawns_max=settings.agents_spawns,
            tasks_max=settings.tasks_max,
        ),
        options=msgspec.convert(dict(settings.tools), ToolOptions),
        redact=clean,
        secrets=secrets,
        nested=lambda folder, told: _nested(place, folder, told),
        remember_rule=lambda rule: _remember(place, rule),
        fallback=settings.fallback_model,
        compact_model=settings.compact_model,
        archive=Archive(place.state_dir, log.session),
        goals=goals,
        memory=lambda: memory_use(settings.memory_mb * MIB),
        kinds=kinds,
        child_model=lambda asked: subagent_model(asked, crew.model.name, settings, place.environ),
        workspace_in=in_roots,
        worktrees=f"{place.state_dir}/worktrees",
        pool=TaskPool(spawner, settings.tasks_max),
        task_options=TaskOptions(
            memory_bytes=settings.task_memory_bytes,
            cpu_s=settings.task_cpu_s,
            quota_bytes=settings.task_quota_bytes,
            **settings.task_options,
        ),
    )
    crew.ease = lambda: _ease(crew, log)
    _check_money(crew)
    mode = place.settings.permission_mode if not state.seq or place.options.permission_mode else ""
    session = open_session(log, crew, state=state, opened=opened, mode=mode)
    spawner.notice = session.notice
    left = [f"ended what a crash had left running: {', '.join(ended)}"] if ended else []
    fills = schema_diagnosis(session.state.prefix, model.budget.window_tokens) if session.state.prefix else ""
    every = (*place.settings.notes, *log.notes, *notes, *unread, *left, *beside, *filter(None, [fills]))
    return Built(place, session, crew, log, key_source, every)


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
    return load_kinds(
        builtin_kinds(),
        place.cwd,
        place.home,
        place.environ,
        trusted=lambda folder: is_trusted(place.state_dir, folder),
        given=place.options.agents,
        known_tools=[tool.spec.name for tool in (*builtin_tools(), *more)],
    )


def _ease(crew: Crew, log: SessionLog) -> None:
    """Drop what can be made again: encoded items, the reader's pages, garbage; what that frees goes to the system."""
    forget = getattr(crew.model, "forget", None)  # a model may hold nothing
    if forget is not None:
        forget()
    log.reader.close()
    gc.collect()
    give_back()


def chosen_model(place: Place, name: str = "") -> ModelOptions:
    """Options of the model `name`, else of what settings, keys or local servers offer. Raises `ModelUnknown`."""
    return choose_model(place.settings, place.environ, offered_models, name=name)


def budget_of(place: Place, state: State) -> Budget:
    """What the model of a stored session offers: as configured, else by the table."""
    provider, model = (state.prefix.provider, state.prefix.model) if state.prefix else ("", "")
    try:
        configured = chosen_model(place, f"{provider}/{model}").budget
    except LongreinError:
        configured = None  # its provider is no longer in the settings
    return configured or look_up(provider, model)


def _nested(place: Place, folder: str, told: Collection[str]) -> Iterable[tuple[str, str]]:
    root = project_root(place.cwd)
    found = nested_instructions(folder, root, told, place.home, place.settings)
    return zip((source.path for source in found.sources), found.texts, strict=True)


def _remember(place: Place, rule: str) -> None:
    remember_rule(rule, place.environ, place.home)


def _key_source(place: Place, chosen: ModelOptions) -> str:
    """Name of the variable that the key came from; `none` without a key."""
    known, given = known_provider(chosen.provider), place.settings.providers.get(chosen.provider)
    names = ((given.api_key_env,) if given and given.api_key_env else ()) + (known.keys if known else ())
    return next((name for name in names if chosen.api_key and place.environ.get(name) == chosen.api_key), "none")


def _stored_model(place: Place, state: State) -> str:
    """A resumed session keeps its model unless another is asked for."""
    if place.options.model or state.prefix is None:
        return ""
    return f"{state.prefix.provider}/{state.prefix.model}"


def _check_money(crew: Crew) -> None:
    if crew.limits.usd_max and crew.model.budget.price is None:
        raise BudgetError(
            f"a money limit needs the price of {crew.model.name}: give it as "
            f'[models."{crew.model.name}"] price_input and price_output in config.toml'
        )


# --- which session -----------------------------------------------------------------------------------------------


async def _session_of(place: Place) -> tuple[str, bool]:
    """Id of the session that the options name, and whether it is a new one."""
    options = place.options
    if options.continue_newest:
        found = latest_session(place.state_dir, place.cwd)
        if not found:
            raise SessionUnknown(f"there is no session of {place.cwd} to go on with; start one without -c")
    elif options.resume:
        found = find_session(place.state_dir, options.resume)
    else:
        return options.session_id or str(uuid.uuid4()), True
    return (await fork(place, found, options.session_id), False) if options.fork_session else (found, False)


async def fork(place: Place, source: str, session: str = "") -> str:
    """Make a copy of session `source`; gives its id."""
    reader = Reader(place.state_dir, source)
    first, last = reader.entry(1), reader.tail()[0]
    reader.close()
    if first is None or not isinstance(first.event, Opened):
        raise SessionUnknown(f"session {source} holds nothing to fork")
    target = session or str(uuid.uuid4())
    opened = msgspec.structs.replace(first.event, session=target, parent=Parent(source, last))
    await fork_log(place.state_dir, source, last, Entry(1, first.at, opened))
    return target


def _opened(place: Place, session: str) -> Opened:
    nonce = uuid.uuid4().hex[:8]
    return Opened(SCHEMA_VERSION, session, nonce, place.roots, place.cwd, place.settings.profile)


def _sweep(place: Place) -> list[str]:
    """End processes that a killed longrein left behind; those of other state folders are not ours to judge."""
    sessions = os.path.join(place.state_dir, "sessions")
    if not os.path.isdir(sessions):
        return []
    return sweep(lambda one: _is_held_or_foreign(place.state_dir, one), lambda one: os.path.join(sessions, one))


def _is_held_or_foreign(folder: str, session: str) -> bool:
    """Whether processes of `session` must be left alone: it is open, or not one of this state folder."""
    try:
        return not os.path.isdir(os.path.join(folder, "sessions", session)) or is_open(folder, session)
    except LongreinError:
        return True


# --- what stands before the conversation -------------------------------------------------------------------------


def _static_context(place: Place, workspace: Workspace, state: State) -> tuple[tuple[str, ...], Any, Iterable[str]]:
    """Environment and instruction files: read once, at the start of a session, then frozen."""
    if state.prefix is not None:
        return state.prefix.context, state.prefix.sources, ()
    texts, sources, notes = load_instructions(place.cwd, place.home, place.environ, place.settings)
    around = describe_environment(
        cwd=place.cwd,
        day=time.strftime("%Y-%m-%d"),
        roots=place.roots,
        branch=_branch(workspace, place.cwd),
    )
    return (around, *texts), sources, notes


def _branch(workspace: Workspace, cwd: str) -> str:
    """The git branch, read from `HEAD` without running git; '' when there is none."""
    try:
        head = workspace.read(os.path.join(cwd, ".git", "HEAD"), 4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""
