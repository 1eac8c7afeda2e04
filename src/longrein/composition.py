"""Build an open session with everything around it: every part is made here, once, and handed to its users."""

import asyncio
import contextlib
import gc
import os
import random
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from longrein.agent import (
    RESTORED_MODES,
    Dependencies,
    OpenSession,
    TaskPool,
    builtin_kinds,
    compose_system,
    open_session,
    resumed_state,
)
from longrein.agent.background.control import BackgroundControl
from longrein.agent.skills import SessionSkills
from longrein.agent.subagents.runner import SubagentRunner
from longrein.config import (
    SkillFiles,
    describe_environment,
    found_note,
    known_secrets,
    load_instructions,
    load_subagent_types,
    nested_instructions,
    project_root,
    remember_rule,
    subagent_model,
)
from longrein.context import State, schema_diagnosis
from longrein.events import SCHEMA_VERSION, BudgetError, Opened, PrefixSet, SessionBusy, UsageError, redactor
from longrein.models import Model, ModelOptions, look_up, open_model
from longrein.permissions import Rules
from longrein.run_context import (
    CLOCK,
    RunContext,
    check_depth,
    chosen_model,
    found_in,
    key_source,
    left_out_note,
    session_of,
    stored_model,
    sweep_orphans,
)
from longrein.settings_schema import MIB, SandboxOptions
from longrein.store import Goals, HistoryReader, SessionLog, open_log, owner_of, project_key
from longrein.tools import (
    SKILL,
    SubagentType,
    Tool,
    agent_tool,
    builtin_tools,
    catalogue,
    goal_tools,
    offer_tools,
    tools_by_name,
)
from longrein.workspace import (
    SPOOL,
    SupervisedSpawner,
    SupervisionOptions,
    Workspace,
    memory_use,
    open_workspace,
    recover_temp_files,
    release_free_memory,
)
from longrein.workspace.sandbox import SessionSandbox


class Composition(msgspec.Struct):
    """An open session with the parts that a frontend needs."""

    run_context: RunContext
    session: OpenSession
    deps: Dependencies
    log: SessionLog
    key_source: str
    notes: tuple[str, ...]


class Additions(msgspec.Struct, frozen=True):
    """Parts that a program passes in addition to options and settings."""

    model: Model | None = None
    """Replaces the model that options and settings name."""
    tools: tuple[Tool, ...] = ()
    """Tools offered after the built-in ones."""
    builtin: tuple[str, ...] | None = None
    """Names of the built-in tools to offer; None for all."""
    window_tokens: int = 0
    """Replaces the model's context window; 0 for the known value."""
    max_output_tokens: int = 0
    """Replaces the model's output limit; 0 for the known value."""


NOTHING_ADDED = Additions()


async def build(
    run_context: RunContext, session: str = "", *, fresh: bool = False, additions: Additions = NOTHING_ADDED
) -> Composition:
    """Open a session and build everything around it.

    The session is the one the options ask for, or `session`, or with `fresh` a new one. Raises longrein's own errors:
    `ModelUnknown`, `SessionUnknown`, `SessionBusy`, `StoreDamaged`, `BudgetError` …
    """
    check_depth(run_context)
    if fresh:
        session = str(uuid.uuid4())
    given: Model | ModelOptions | None = additions.model
    if given is None and (fresh or not (session or run_context.options.continue_newest or run_context.options.resume)):
        given = chosen_model(run_context)  # first, so that a start without a model leaves no session behind
    ended = sweep_orphans(run_context)
    log = await _open_log(run_context, session, create=fresh)
    try:
        return _around(run_context, log, ended, given, additions)
    except BaseException:
        await log.close()
        raise


async def _open_log(run_context: RunContext, session: str, *, create: bool) -> SessionLog:
    """Open the log of `session`, or of the one that the options ask for; with `-c` the newest that is not open."""
    busy: list[str] = []
    while True:
        wanted, new, said = (session, create, "") if session else await session_of(run_context, busy)
        try:
            log = await open_log(run_context.state_dir, wanted, create=new, wall_us=CLOCK.wall_us)
        except SessionBusy:
            if session or not run_context.options.continue_newest or wanted in busy:
                raise
            busy.append(wanted)  # opened by another process meanwhile
            continue
        log.notes[:0] = [said] if said else []
        return log


def _around(
    run_context: RunContext, log: SessionLog, ended: list[str], given: Model | ModelOptions | None, additions: Additions
) -> Composition:
    state, settings, allowed = resumed_state(log), run_context.settings, run_context.settings.permissions
    model, key_from = _model(run_context, log, state, given, additions)
    roots = tuple(state.roots or run_context.roots)
    opened = None if state.session == log.session else _opened(run_context, log.session)
    nonce = opened.nonce if opened else state.nonce
    secrets = known_secrets(run_context.environ, settings)
    clean = redactor(secrets, nonce, settings.redact.patterns)
    spawner = _spawner(run_context, log, roots, nonce, secrets)
    in_roots = partial(open_workspace, spawner=spawner, environment=_environ(run_context), keep_env=settings.env.keep)
    workspace = in_roots(roots)
    library, listed = _skills(run_context)
    kinds, tools, unread = _offered(run_context, additions, skills=bool(listed))
    prefix, told = _prefix(run_context, workspace, state, tools, listed)
    project, owner = project_key(project_root(roots[0])), owner_of(log.session)
    deps = Dependencies(
        clock=CLOCK,
        jitter=random.random,
        workspace=workspace,
        tools=tools_by_name(tools),
        model=model,
        open_model=lambda name: open_model(chosen_model(run_context, name), log.read_blob, CLOCK),
        prefix=prefix,
        history=lambda first, last: log.reader.entries(first - 1, last),
        rules=Rules(allowed.allow, allowed.ask, allowed.deny, roots[0], run_context.home),
        limits=settings.limits,
        options=settings.tools,
        redact=clean,
        secrets=secrets,
        own_patterns=bool(settings.redact.patterns),
        nested=lambda folder, told: _nested(run_context, folder, told),
        remember_rule=lambda rule: remember_rule(rule, run_context.environ, run_context.home),
        fallback=settings.fallback_model,
        compact_model=settings.compact_model,
        archive=HistoryReader(run_context.state_dir, log.session),
        goals=Goals(run_context.state_dir, project, owner, CLOCK.wall_us, redact=clean),
        memory=lambda: memory_use(settings.limits.memory_mb * MIB),
        kinds=kinds,
        skills=lambda session: SessionSkills(session, library),
        child_model=lambda asked: subagent_model(asked, deps.model.name, settings, run_context.environ),
        workspace_in=in_roots,
        worktrees=f"{run_context.state_dir}/worktrees",
        sandbox=_sandbox(run_context, log, roots),
        pool=TaskPool(spawner, settings.tasks.running_max),
        task_options=settings.tasks,
        background_tasks=BackgroundControl,
        subagents=SubagentRunner,
    )
    deps.ease = lambda: _ease(deps, log)
    _check_money(deps)
    mode, lapsed = _mode(run_context, state)
    session = open_session(log, deps, state=state, opened=opened, mode=mode)
    spawner.notice = session.notice
    _tell_damage(log, session)
    first = (left_out_note(run_context), _found_note(run_context), *settings.notes, *log.notes)
    notes = (*first, *told, *lapsed, *unread, *library.notes, *_left_behind(ended, roots, state))
    fills = schema_diagnosis(session.state.prefix, model.budget.window_tokens) if session.state.prefix else ""
    return Composition(run_context, session, deps, log, key_from, tuple(map(clean, filter(None, [*notes, fills]))))


def _found_note(run_context: RunContext) -> str:
    """Return the line about files of other agents; a headless run says it only where it matters."""
    options = run_context.options
    return found_note(found_in(run_context), quiet=options.print and not options.verbose)


def _tell_damage(log: SessionLog, session: OpenSession) -> None:
    """Notify the user of damage that the check after the start finds."""
    loop = asyncio.get_running_loop()

    def tell(checked: "Future[str]") -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended: the next open repairs the damage
            if checked.result():
                loop.call_soon_threadsafe(session.notice, checked.result())

    if log.checked is not None:
        log.checked.add_done_callback(tell)


def _environ(run_context: RunContext) -> Mapping[str, str]:
    """Return the environment of commands; a longrein they start uses the same state folder if one was named."""
    named = run_context.options.state_dir or run_context.environ.get("LONGREIN_STATE_DIR")
    return {**run_context.environ, "LONGREIN_STATE_DIR": run_context.state_dir} if named else run_context.environ


def _model(
    run_context: RunContext, log: SessionLog, state: State, given: Model | ModelOptions | None, additions: Additions
) -> tuple[Model, str]:
    """Return the model that was given or asked for, else the session's; and the source of its key."""
    if given is not None and not isinstance(given, ModelOptions):
        return given, "none"
    chosen = given or chosen_model(run_context, stored_model(run_context, state))
    return open_model(_sized(chosen, additions), log.read_blob, CLOCK), key_source(run_context, chosen)


def _sized(chosen: ModelOptions, additions: Additions) -> ModelOptions:
    """Apply the window and output limit that a program has named. Raises `UsageError` where they clash."""
    if not additions.window_tokens and not additions.max_output_tokens:
        return chosen
    known = chosen.budget or look_up(chosen.provider, chosen.model)
    window = additions.window_tokens or known.window_tokens
    output = additions.max_output_tokens or min(known.max_output_tokens, window // 4)
    if not 0 < output < window:
        raise UsageError(f"window {window} must be larger than max_output {output}, both above 0 tokens")
    budget = msgspec.structs.replace(known, window_tokens=window, max_output_tokens=output)
    return msgspec.structs.replace(chosen, budget=budget)


def _skills(run_context: RunContext) -> tuple[SkillFiles, str]:
    """Return the skills and custom commands on disk, and the catalogue for the model; '' for none."""
    library = SkillFiles(run_context.cwd, run_context.home, run_context.environ, run_context.trusted.cover)
    return library, catalogue(library.all())


def _offered(
    run_context: RunContext, additions: Additions, *, skills: bool
) -> tuple[tuple[SubagentType, ...], tuple[Tool, ...], tuple[str, ...]]:
    """Return the subagent types, the tools, and notes on the files of the types."""
    kinds, unread = _kinds(run_context, additions.tools)
    return kinds, (*_builtin(kinds, additions.builtin, skills=skills), *additions.tools), unread


def _builtin(kinds: Sequence[SubagentType], chosen: Sequence[str] | None, *, skills: bool) -> list[Tool]:
    """Return the built-in tools named in `chosen`, in their usual order; all for None.

    Raises `UsageError` for an unknown name.
    """
    tools = [*builtin_tools(), agent_tool(tuple(kinds)), *goal_tools(), *((SKILL,) if skills else ())]
    if chosen is None:
        return tools
    names = [tool.spec.name for tool in tools]
    if unknown := [name for name in chosen if name not in names]:
        raise UsageError(f"there is no built-in tool {unknown[0]!r}; there are {', '.join(names)}")
    return [tool for tool in tools if tool.spec.name in chosen]


def _mode(run_context: RunContext, state: State) -> tuple[str, list[str]]:
    """Return the permission mode to set, '' for the stored session's; and notes for the user.

    `auto` and `bypassPermissions` are never restored: they must be asked for in each run, or by the settings.
    """
    mode, was = run_context.settings.permission_mode, state.mode
    if not state.seq or run_context.options.permission_mode or mode == was:
        return mode, []
    if was in RESTORED_MODES:
        return "", []
    again = f"give --permission-mode {was} to have it again"
    return mode, [f"mode {was} is not restored: the session goes on in mode {mode}; {again}"]


def _left_behind(ended: Sequence[str], roots: Sequence[str], state: State) -> list[str]:
    """Describe what a crash left: processes that were ended, temporary files that were removed."""
    told = [f"ended what a crash had left running: {', '.join(ended)}"] if ended else []
    folders = dict.fromkeys((*roots, *(os.path.dirname(path) for path in state.files)))
    return [*told, *(recover_temp_files(folders) if state.seq else ())]


def _spawner(
    run_context: RunContext, log: SessionLog, roots: Sequence[str], nonce: str, secrets: tuple[str, ...]
) -> SupervisedSpawner:
    """Build the spawner of commands: through the session's supervisor, else directly, after a notice."""
    settings = run_context.settings
    options = SupervisionOptions(
        nonce, secrets, settings.redact.patterns, settings.tasks.keep_s, settings.tasks.quota_bytes
    )
    return SupervisedSpawner(
        os.path.join(log.folder, SPOOL),
        options,
        wall_us=CLOCK.wall_us,
        notice=log.notes.append,
        environ=run_context.environ,
        roots=roots,
    )


def _sandbox(run_context: RunContext, log: SessionLog, roots: Sequence[str]) -> SessionSandbox:
    """Build the sandbox of commands. Raises `UsageError` where it is required and none works."""
    sandbox = SessionSandbox(
        run_context.settings.sandbox,
        folder=log.folder,
        home=run_context.home,
        state_dir=run_context.state_dir,
        environ=run_context.environ,
        roots=roots,
    )
    _check_sandbox(run_context.settings.sandbox, sandbox)
    return sandbox


def _check_sandbox(options: SandboxOptions, sandbox: SessionSandbox) -> None:
    """Raise `UsageError` where the settings ask for what no sandbox gives here."""
    if domains := [name for name in options.network if name != "*"]:
        raise UsageError(
            f'sandbox.network names {domains[0]}, but domains cannot be allowed one by one yet. Set it to [] or ["*"]'
        )
    if options.mode == "required" and not sandbox.rung.confines:
        raise UsageError(
            f'no sandbox works here, and sandbox.mode is "required": {sandbox.rung.reason}. '
            'Set sandbox.mode to "auto" to work without one; `longrein doctor` shows what is missing'
        )


def _kinds(run_context: RunContext, more: Sequence[Tool]) -> tuple[tuple[SubagentType, ...], tuple[str, ...]]:
    """Return the subagent types, and notes on parts of their files that were ignored."""
    return load_subagent_types(
        builtin_kinds(),
        run_context.cwd,
        run_context.home,
        run_context.environ,
        trusted=run_context.trusted.cover,
        given=run_context.options.agents,
        known_tools=(*builtin_tools(), *goal_tools(), SKILL, *more),
    )


def _ease(deps: Dependencies, log: SessionLog) -> None:
    """Drop caches (encoded items, pages of the reader), collect garbage, return memory to the system."""
    forget = getattr(deps.model, "forget", None)  # optional
    if forget is not None:
        forget()
    log.reader.close()
    gc.collect()
    release_free_memory()


def _nested(run_context: RunContext, folder: str, told: Collection[str]) -> Iterable[tuple[str, str]]:
    found = nested_instructions(
        folder, run_context.cwd, told, run_context.home, run_context.settings, run_context.trusted.cover
    )
    return zip((source.path for source in found.sources), found.texts, strict=True)


def _check_money(deps: Dependencies) -> None:
    if deps.limits.usd_max and deps.model.budget.price is None:
        raise BudgetError(
            f"a money limit needs the price of {deps.model.name}: give it as "
            f'[models."{deps.model.name}"] price_input and price_output in config.toml'
        )


def _opened(run_context: RunContext, session: str) -> Opened:
    nonce = uuid.uuid4().hex[:8]
    return Opened(SCHEMA_VERSION, session, nonce, run_context.roots, run_context.cwd, run_context.settings.profile)


# --- Prefix of the conversation --------------------------------------------------------------------------------------


def _prefix(
    run_context: RunContext, workspace: Workspace, state: State, tools: Sequence[Tool], skills: str
) -> tuple[Callable[[Model, str], PrefixSet], Iterable[str]]:
    """Return (model, reason) -> prefix of the conversation; and notes on the files read for it."""
    context, sources, notes = _static_context(run_context, workspace, state, skills)
    system = compose_system(
        replaced=run_context.options.system_prompt, appended=run_context.options.append_system_prompt
    )

    def prefix(model: Model, reason: str) -> PrefixSet:
        told = offer_tools(tools, model.budget.usable_tokens)
        names = model.provider, model.model, model.wire
        return PrefixSet(reason, *names, system, told.listed, context, sources, told.deferred)

    return prefix, notes


def _static_context(
    run_context: RunContext, workspace: Workspace, state: State, skills: str
) -> tuple[tuple[str, ...], Any, Iterable[str]]:
    """Return environment, instruction files and skills: read once, at the start of a session, then frozen."""
    if state.prefix is not None:
        return state.prefix.context, state.prefix.sources, ()
    texts, sources, notes = load_instructions(
        run_context.cwd, run_context.home, run_context.environ, run_context.settings, run_context.trusted.cover
    )
    around = describe_environment(
        cwd=run_context.cwd,
        day=time.strftime("%Y-%m-%d"),
        roots=run_context.roots,
        branch=_branch(workspace, project_root(run_context.cwd)),
    )
    return (around, *texts, *((skills,) if skills else ())), sources, notes


def _branch(workspace: Workspace, root: str) -> str:
    """Read the git branch from `HEAD` without running git; '' when there is none, or when it is no usual name.

    The name goes into the first message, so a text that poses as a name is left out.
    """
    try:
        head = workspace.read(workspace.resolve(".git/HEAD", root).real, 4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    found = re.fullmatch(r"ref: refs/heads/([\w./+@#=-]{1,100})", head)
    return found[1] if found else ""
