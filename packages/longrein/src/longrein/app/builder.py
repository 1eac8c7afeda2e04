"""Build an open session with everything around it: every part is made here, once, and handed to
its users.
"""

import asyncio
import contextlib
import gc
import os
import random
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec

from longrein.agent import (
    RESTORED_MODES,
    Dependencies,
    OpenSession,
    TaskPool,
    open_session,
    resumed_state,
)
from longrein.agent.extension_part import ExtensionPart, Surroundings
from longrein.agent.git_metadata import current_branch, find_git_folder
from longrein.agent.hooks import SessionHooks
from longrein.agent.session_part import (
    BackgroundTasks,
    Checkpoints,
    PartFactory,
    SessionPart,
    Skills,
    Subagents,
)
from longrein.agent.skill_invocation import SessionSkills
from longrein.app.additions import Additions
from longrein.app.app_session import AppSession, start_observers
from longrein.app.execution import (
    checkpoint_opener,
    hook_table,
    make_sandbox,
    make_spawner,
    open_workspaces,
    variables,
)
from longrein.app.prefix_offer import Offer, make_offer, search_note, with_plugins
from longrein.app.run_context import (
    CLOCK,
    RunContext,
    check_depth,
    chosen_model,
    found_in,
    found_notes,
    kept_keys,
    session_of,
    stored_model,
    sweep_orphans,
)
from longrein.choices import is_small
from longrein.config import (
    Plugins,
    door_points,
    found_note,
    known_secrets,
    nested_instructions,
    project_root,
    remember_rule,
    subagent_model,
)
from longrein.extension_points import SESSION_PARTS_DOOR, absent_extensions
from longrein.models import Model, ModelOptions, forget_encoded, look_up, open_model, served_as
from longrein.permissions import Rules
from longrein.settings_schema import MIB, small_output
from longrein.store import (
    Goals,
    HistoryReader,
    HookFiles,
    SessionLog,
    open_log,
    owner_of,
    project_key,
)
from longrein.store.daemon_threads import run_in_thread
from longrein.workspace import (
    SupervisedSpawner,
    Workspace,
    memory_use,
    recover_temp_files,
    release_free_memory,
)
from longrein.workspace.sandbox import SessionSandbox
from longrein_context import State, schema_diagnosis
from longrein_context.events import (
    SCHEMA_VERSION,
    BudgetError,
    CwdSet,
    Opened,
    SessionBusy,
    SettingsError,
    UsageError,
    redactor,
)

if TYPE_CHECKING:
    from longrein.app.app import App


async def build(app: "App", session: str, *, fresh: bool, additions: Additions) -> AppSession:
    """Open a session and build everything around it; see `App.open`."""
    run_context = app.context
    check_depth(run_context)
    if fresh:
        session = str(uuid.uuid4())
    additions = with_plugins(run_context, additions)
    parts = _extension_parts(run_context, additions)
    given: Model | ModelOptions | None = additions.model
    if given is None and (
        fresh or not (session or run_context.options.continue_newest or run_context.options.resume)
    ):
        # first, so that a start without a model leaves no session behind
        given = additions.plugins.open_model(run_context.settings.model)
        if given is None:  # a thread, since a server of the user's own may be asked
            choice = run_in_thread(lambda: chosen_model(run_context), "model")
            given = await asyncio.wrap_future(choice)
    ended = sweep_orphans(run_context.state_dir)
    log = await _open_log(run_context, session, create=fresh)
    try:
        opened = _around(app, log, ended, given, additions, parts)
    except BaseException:
        await log.close()
        raise
    opened.finishes = start_observers(run_context, opened.session, app.say)
    return opened


async def _open_log(run_context: RunContext, session: str, *, create: bool) -> SessionLog:
    """Open the log of `session`, or of the one that the options ask for; with `-c` the newest
    that is not open.
    """
    busy: list[str] = []
    while True:
        wanted, new, said = (
            (session, create, "") if session else await session_of(run_context, busy)
        )
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
    app: "App",
    log: SessionLog,
    ended: list[str],
    given: Model | ModelOptions | None,
    additions: Additions,
    parts: tuple[ExtensionPart, ...],
) -> AppSession:
    run_context = app.context
    state = resumed_state(log)
    model = _model(run_context, log, state, given, additions)
    roots = run_context.roots  # never those of the log, which could be edited
    opened, nonce = _opened(run_context, log.session, state)
    secrets = _secrets(run_context, parts)
    spawner = make_spawner(run_context, log, roots, nonce, secrets)
    sandbox = make_sandbox(run_context, log, roots)
    workspace, in_roots = open_workspaces(run_context, roots, spawner, sandbox, additions.editor)
    opened = opened and _with_branch(opened, workspace)
    branch = opened.branch if opened else ""
    offer = make_offer(run_context, additions, state, parts, sandbox, branch, nonce)
    surroundings = Surroundings(
        log.session, state, workspace, spawner, offer.tools, nonce, offer.denies
    )
    for part in parts:
        part.attach(surroundings)
    deps = _dependencies(
        run_context, log, additions, surroundings, offer, parts, model, sandbox, secrets, in_roots
    )
    _check_money(deps)
    mode, lapsed = _mode(run_context, state)
    session = open_session(log, deps, state=state, opened=opened, mode=mode)
    if session.state.grant is not None:  # a subagent outside its parent's process
        from longrein.agent.subagents.budget import limits_under

        deps.limits = limits_under(deps.limits, session.state.grant, State())
    _connect_notices(session, log, spawner, additions.plugins)
    moved = (*_use_weights(run_context), *_leave_folders(session, run_context, state))
    later = (
        _absence_note(run_context, additions),
        *offer.notes,
        *lapsed,
        *(note for part in parts for note in part.notes),
        *moved,
        *_left_behind(ended, roots, state),
    )
    notes = _notes(run_context, session, log, later)
    return AppSession(app, session, deps, log, notes)


def _secrets(run_context: RunContext, parts: Sequence[ExtensionPart]) -> tuple[str, ...]:
    """Return the values that are masked in all that is kept and sent."""
    return (
        *known_secrets(variables(run_context), run_context.settings),
        *kept_keys(run_context),
        *(secret for part in parts for secret in part.secrets),
    )


def _dependencies(  # noqa: PLR0913, PLR0917 - all parts of a session
    run_context: RunContext,
    log: SessionLog,
    additions: Additions,
    surroundings: Surroundings,
    offer: Offer,
    extension_parts: tuple[ExtensionPart, ...],
    model: Model,
    sandbox: SessionSandbox,
    secrets: tuple[str, ...],
    workspace_in: Callable[[tuple[str, ...]], Workspace],
) -> Dependencies:
    settings, root = run_context.settings, run_context.roots[0]
    allowed = settings.permissions
    clean = redactor(secrets, surroundings.nonce, settings.redact.patterns)
    deps = Dependencies(
        clock=CLOCK,
        jitter=random.random,
        workspace=surroundings.workspace,
        tools=offer.tools,
        model=model,
        open_model=lambda name: _model(run_context, log, surroundings.state, None, additions, name),
        prefix=offer.prefix,
        rules=Rules(allowed.allow, allowed.ask, allowed.deny, root, run_context.home),
        limits=settings.limits,
        options=small_output(settings.tools)
        if is_small(settings.profile, model.budget.window_tokens)
        else settings.tools,
        redact=clean,
        secrets=secrets,
        own_patterns=bool(settings.redact.patterns),
        nested=lambda folder, told: _nested(run_context, folder, told),
        remember_rule=lambda rule: remember_rule(rule, run_context.environ, run_context.home),
        fallback=settings.fallback_model,
        compact_model=settings.compact_model,
        archive=HistoryReader(run_context.state_dir, log.session),
        hook_files=HookFiles(log.folder),
        extension_parts=extension_parts,
        goals=_goals(run_context.state_dir, log.session, root, clean),
        memory=lambda: memory_use(settings.limits.memory_mb * MIB),
        kinds=offer.kinds,
        subagent_model=lambda asked: subagent_model(
            asked, deps.model.name, settings, run_context.key_environ
        ),
        workspace_in=workspace_in,
        worktrees=f"{run_context.state_dir}/worktrees",
        sandbox=sandbox,
        gated=additions.answers_permissions and allowed.confined == "ask",
        task_options=settings.tasks,
        parts=_session_parts(run_context, log, additions, surroundings, offer),
        tells_project=settings.context.git,
        ease=lambda: _ease(deps, log),
    )
    if rates := run_context.environ.get("LONGREIN_RATES"):
        from longrein.agent.shared_rate_limit import SharedRateLimit

        deps.rate_limit = SharedRateLimit(run_context.state_dir, rates, CLOCK.wall_us)
    return deps


def _session_parts(
    run_context: RunContext,
    log: SessionLog,
    additions: Additions,
    surroundings: Surroundings,
    offer: Offer,
) -> dict[type[SessionPart], PartFactory]:
    """Return how to open each part of the session."""
    hooks = hook_table(run_context, run_context.roots, additions.hooks)
    pool = TaskPool(surroundings.spawner, run_context.settings.tasks.running_max)
    parts: dict[type[SessionPart], PartFactory] = {
        BackgroundTasks: lambda: _open_background_tasks(pool),
        SessionHooks: lambda: SessionHooks(hooks),
        Skills: lambda: SessionSkills(offer.library, run_context.settings.skills),
        Subagents: lambda: _open_subagents(run_context, log.session),
    }
    open_checkpoints = checkpoint_opener(run_context, log, surroundings.workspace)
    if open_checkpoints is not None:
        parts[Checkpoints] = open_checkpoints
    return parts


def _extension_parts(run_context: RunContext, additions: Additions) -> tuple[ExtensionPart, ...]:
    """Make the parts of all extensions. Raises `UsageError`, and `SettingsError` for another
    object.
    """
    parts: list[ExtensionPart] = []
    for point in door_points(SESSION_PARTS_DOOR, run_context.settings.plugins):
        part = point.load()(run_context, additions)
        if not isinstance(part, ExtensionPart):
            raise SettingsError(f"{point.value} of {point.extension} made no `ExtensionPart`")
        parts.append(part)
    return tuple(parts)


def _absence_note(run_context: RunContext, additions: Additions) -> str:
    """Return the line about servers that are named for this run and that nothing can use; else
    ''.
    """
    is_asked = additions.servers.entries or run_context.options.mcp_config
    if not is_asked or "mcp" not in absent_extensions():
        return ""
    return "MCP servers are not used: the extension mcp is not installed here"


def _use_weights(run_context: RunContext) -> tuple[str, ...]:
    """Use the weights of `context.weights` for the decisions of this process; return notes."""
    named = run_context.settings.context.weights
    if not named:
        return ()
    from longrein.config.clearing_weights import weights_in_use
    from longrein_context.clear_items import use_tables

    tables, notes = weights_in_use(named, run_context.environ, run_context.home)
    use_tables(tables)
    return notes


def _open_background_tasks(pool: TaskPool) -> BackgroundTasks:
    from longrein.agent.background.task_control import BackgroundControl

    return BackgroundControl(pool)


def _open_subagents(run_context: RunContext, session: str) -> Subagents:
    from longrein.app.subagents import open_subagents

    return open_subagents(run_context, session)


def _notes(
    run_context: RunContext, session: OpenSession, log: SessionLog, later: Iterable[str]
) -> tuple[str, ...]:
    """Return the lines for the user at the start, without secrets."""
    prefix, window_tokens = session.state.prefix, session.deps.model.budget.window_tokens
    fills = schema_diagnosis(prefix, window_tokens) if prefix else ""
    found = (
        *found_notes(run_context),
        _found_note(run_context),
        search_note(run_context, session.deps.model),
        _served_note(run_context, session.deps.model),
    )
    lines = (*found, *run_context.settings.notes, *log.notes, *later, fills)
    return tuple(map(session.deps.redact, filter(None, lines)))


def _served_note(run_context: RunContext, model: Model) -> str:
    """Return the line about the model that stands for the one that the user wrote; '' for none. A
    headless run says it only with `--verbose`.
    """
    name, options = served_as(model), run_context.options
    if not name or (options.print and not options.verbose):
        return ""
    return f"{model.name} is the model {name} of its server"


def _connect_notices(
    session: OpenSession,
    log: SessionLog,
    spawner: SupervisedSpawner,
    plugins: Plugins,
) -> None:
    """Let what happens outside the loop reach the session's user."""
    spawner.notice = session.notice
    session.deps.policy = plugins.guarded_policy(session.notice)
    _tell_damage(log, session)


def _found_note(run_context: RunContext) -> str:
    """Return the line about files of other agents; a headless run says it only where it matters."""
    options = run_context.options
    return found_note(found_in(run_context), quiet=options.print and not options.verbose)


def _tell_damage(log: SessionLog, session: OpenSession) -> None:
    """Notify the user of damage that the check after the start finds."""
    loop = asyncio.get_running_loop()

    def tell(checked: "Future[str]") -> None:
        with contextlib.suppress(
            RuntimeError
        ):  # the event loop has ended: the next open repairs the damage
            if checked.result():
                loop.call_soon_threadsafe(session.notice, checked.result())

    if log.checked is not None:
        log.checked.add_done_callback(tell)


def _model(
    run_context: RunContext,
    log: SessionLog,
    state: State,
    given: Model | ModelOptions | None,
    additions: Additions,
    name: str = "",
) -> Model:
    """Return the model that was given, or `name`, or the one asked for, or the session's."""
    named = name or stored_model(run_context, state)
    given = given or additions.plugins.open_model(named or run_context.settings.model)
    if given is not None and not isinstance(given, ModelOptions):
        return given
    chosen = given or chosen_model(run_context, named)
    return open_model(chosen if name else _sized(chosen, additions), log.read_blob, CLOCK)


def _sized(chosen: ModelOptions, additions: Additions) -> ModelOptions:
    """Apply the window and output limit that a program has named. Raises `UsageError` where they
    clash.
    """
    if not additions.window_tokens and not additions.max_output_tokens:
        return chosen
    known = chosen.budget or look_up(chosen.provider, chosen.model)
    window = additions.window_tokens or known.window_tokens
    output = additions.max_output_tokens or min(known.max_output_tokens, window // 4)
    if not 0 < output < window:
        raise UsageError(
            f"window {window} must be larger than max_output {output}, both above 0 tokens"
        )
    budget = msgspec.structs.replace(
        known,
        window_tokens=window,
        max_output_tokens=output,
        is_window_assumed=known.is_window_assumed and not additions.window_tokens,
    )
    return msgspec.structs.replace(chosen, budget=budget)


def _mode(run_context: RunContext, state: State) -> tuple[str, list[str]]:
    """Return the permission mode to set, '' for the stored session's; and notes for the user.

    `auto` and `bypassPermissions` are never restored: they must be asked for in each run, or by the
    settings.
    """
    mode, was = run_context.settings.permission_mode, state.mode
    if not state.seq or run_context.options.permission_mode or mode == was:
        return mode, []
    if was in RESTORED_MODES:
        return "", []
    again = f"give --permission-mode {was} to have it again"
    return mode, [f"mode {was} is not restored: the session goes on in mode {mode}; {again}"]


def _leave_folders(session: OpenSession, run_context: RunContext, state: State) -> list[str]:
    """Leave the folders of an earlier run that this start does not name; return a note for the
    user.
    """
    look, written = session.deps.workspace.resolve, run_context.roots[0]
    gone = [folder for folder in state.roots if not look(folder, "/").inside]
    if not gone:
        return []
    if not look(state.cwd, "/").inside:
        session.append(CwdSet(written))
    return [
        (
            f"this session worked in {', '.join(gone)}, and goes on in {written}; --add-dir names "
            "further folders"
        )
    ]


def _left_behind(ended: Sequence[str], roots: Sequence[str], state: State) -> list[str]:
    """Describe what a crash left: processes that were ended, temporary files that were removed."""
    told = [f"ended what a crash had left running: {', '.join(ended)}"] if ended else []
    folders = dict.fromkeys((*roots, *(os.path.dirname(path) for path in state.files)))
    return [*told, *(recover_temp_files(folders) if state.seq else ())]


def _ease(deps: Dependencies, log: SessionLog) -> None:
    """Drop caches (encoded items, pages of the reader), collect garbage, return memory to the
    system.
    """
    forget_encoded(deps.model)
    log.reader.close()
    gc.collect()
    release_free_memory()


def _nested(
    run_context: RunContext, folder: str, told: Collection[str]
) -> Iterable[tuple[str, str]]:
    found = nested_instructions(
        folder,
        run_context.cwd,
        told,
        run_context.home,
        run_context.settings,
        run_context.trusted.cover,
    )
    return zip((source.path for source in found.sources), found.texts, strict=True)


def _check_money(deps: Dependencies) -> None:
    if deps.limits.usd_max and deps.model.budget.price is None:
        raise BudgetError(
            f"a money limit needs the price of {deps.model.name}: give it as "
            f'[models."{deps.model.name}"] price_input and price_output in config.toml'
        )


def _opened(run_context: RunContext, session: str, state: State) -> tuple[Opened | None, str]:
    """Return the first entry of a new session, None for a stored one; and the nonce."""
    if state.session == session:
        return None, state.nonce
    nonce, profile = uuid.uuid4().hex[:8], run_context.settings.profile
    one_shot = run_context.options.print
    return Opened(
        SCHEMA_VERSION,
        session,
        nonce,
        run_context.roots,
        run_context.cwd,
        profile,
        one_shot=one_shot,
    ), nonce


def _goals(state_dir: str, session: str, root: str, redact: Callable[[str], str]) -> Goals:
    project = project_key(project_root(root))
    return Goals(state_dir, project, owner_of(session), CLOCK.wall_us, redact=redact)


def _with_branch(opened: Opened, workspace: Workspace) -> Opened:
    branch = current_branch(workspace, find_git_folder(workspace, opened.cwd))
    return msgspec.structs.replace(opened, branch=branch)
