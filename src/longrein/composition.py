"""Build an open session with everything around it: every part is made here, once, and handed to its users."""

import asyncio
import contextlib
import gc
import importlib.util
import os
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from longrein import __version__
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
from longrein.agent.git_repository import current_branch, find_git_folder
from longrein.agent.hooks import CommandHandler, HookHandler, HookTable, HttpHandler
from longrein.agent.skills import SessionSkills
from longrein.agent.subagents.runner import SubagentRunner
from longrein.config import (
    Plugins,
    SkillFiles,
    describe_environment,
    expanded_headers,
    found_note,
    known_secrets,
    load_instructions,
    load_mcp_servers,
    load_plugins,
    load_subagent_types,
    nested_instructions,
    project_root,
    remember_rule,
    server_secrets,
    subagent_model,
    weights_in_use,
)
from longrein.context import State, schema_diagnosis, use_tables
from longrein.events import (
    SCHEMA_VERSION,
    BudgetError,
    CwdSet,
    Opened,
    PrefixSet,
    SessionBusy,
    UsageError,
    redactor,
)
from longrein.frontends.stdio import say
from longrein.frontends.traces import wanted_signals
from longrein.models import Model, ModelOptions, look_up, open_model
from longrein.permissions import Rules
from longrein.run_context import (
    CLOCK,
    RunContext,
    check_depth,
    chosen_model,
    found_in,
    found_notes,
    key_source,
    session_of,
    stored_model,
    sweep_orphans,
)
from longrein.settings_schema import MIB, SandboxOptions
from longrein.store import Goals, HistoryReader, SessionLog, open_log, owner_of, project_key, transcript_in
from longrein.tools import (
    ASK_USER,
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
from longrein.tools.mcp import McpServer
from longrein.tools.mcp.port import ServerHost
from longrein.tools.mcp.server_config import token_folder
from longrein.tools.mcp.servers import MISSING, McpToolset
from longrein.workspace import (
    SPOOL,
    CollectingSink,
    SupervisedSpawner,
    SupervisionOptions,
    Workspace,
    memory_use,
    open_workspace,
    recover_temp_files,
    release_free_memory,
    run_in_background,
)
from longrein.workspace.sandbox import SessionSandbox

HELPER_S, HELPER_BYTES_MAX = 10.0, 64_000
"""Limits of a `headersHelper`."""

if TYPE_CHECKING:
    from longrein.frontends.traces.exporter import SessionTraces
    from longrein.tools.editor import Editor


class Composition(msgspec.Struct):
    """An open session with the parts that a frontend needs."""

    run_context: RunContext
    session: OpenSession
    deps: Dependencies
    log: SessionLog
    key_source: str
    notes: tuple[str, ...]
    traces: "SessionTraces | None" = None

    async def finish(self) -> None:
        """Wait until the last traces are sent, for a second at most. Call it when the session has closed."""
        if self.traces is not None:
            await self.traces.finish()


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
    editor: "Editor | None" = None
    """Editor whose buffers and terminals the tools use."""
    hooks: tuple[HookHandler, ...] = ()
    """Hooks of the program, besides those of files."""
    asks_user: bool = False
    """Whether somebody is there to answer questions of the model; decided once, when the session begins."""
    mcp_servers: tuple[McpServer, ...] = ()
    """MCP servers in addition to the configured ones."""
    mcp_tunnel: Callable[[str, Mapping[str, Any]], Awaitable[Any]] | None = None
    """Carries messages to MCP servers inside the program; see `ServerHost.tunnel`."""
    plugins: Plugins = msgspec.field(default_factory=Plugins)


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
    additions = _with_plugins(run_context, additions)
    given: Model | ModelOptions | None = additions.model
    if given is None and (fresh or not (session or run_context.options.continue_newest or run_context.options.resume)):
        # first, so that a start without a model leaves no session behind
        given = additions.plugins.open_model(run_context.settings.model) or chosen_model(run_context)
    ended = sweep_orphans(run_context)
    log = await _open_log(run_context, session, create=fresh)
    try:
        built = _around(run_context, log, ended, given, additions)
    except BaseException:
        await log.close()
        raise
    built.traces = _start_traces(run_context, built.session)
    return built


def _with_plugins(run_context: RunContext, additions: Additions) -> Additions:
    """Add the plugins that the user's settings name. Raises `SettingsError`."""
    settings = run_context.settings
    if not settings.plugins:
        return additions
    known = [tool.spec.name for tool in (*_builtin((), None), *additions.tools)]
    plugins = load_plugins(settings.plugins, known, settings.providers)
    return msgspec.structs.replace(additions, tools=(*plugins.tools, *additions.tools), plugins=plugins)


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
    roots = run_context.roots  # never those of the log, which could be edited
    opened, nonce = _opened(run_context, log.session, state)
    servers, told_of_servers = _servers(run_context, additions)
    secrets = (*known_secrets(_variables(run_context), settings), *server_secrets(servers))
    clean = redactor(secrets, nonce, settings.redact.patterns)
    spawner = _spawner(run_context, log, roots, nonce, secrets)
    workspace, in_roots = _workspace(run_context, roots, spawner, additions.editor)
    opened = opened and _with_branch(opened, workspace)
    mcp = mcp_toolset(run_context, servers, spawner, workspace, log.session)
    offer = _offer(run_context, additions, state, mcp, opened.branch if opened else "", nonce)
    deps = Dependencies(
        clock=CLOCK,
        jitter=random.random,
        workspace=workspace,
        tools=offer.tools,
        model=model,
        open_model=lambda name: _model(run_context, log, state, None, additions, name)[0],
        prefix=offer.prefix,
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
        hooks=_hooks(run_context, roots, additions.hooks),
        transcript=transcript_in(log.folder),
        mcp=mcp if servers else None,
        goals=_goals(run_context, log.session, roots[0], clean),
        memory=lambda: memory_use(settings.limits.memory_mb * MIB),
        kinds=offer.kinds,
        skills=lambda session: SessionSkills(session, offer.library),
        child_model=lambda asked: subagent_model(asked, deps.model.name, settings, run_context.environ),
        workspace_in=in_roots,
        worktrees=f"{run_context.state_dir}/worktrees",
        sandbox=_sandbox(run_context, log, roots),
        pool=TaskPool(spawner, settings.tasks.running_max),
        task_options=settings.tasks,
        background_tasks=BackgroundControl,
        subagents=SubagentRunner,
        tells_project=settings.context.git,
    )
    deps.ease = lambda: _ease(deps, log)
    _check_money(deps)
    mode, lapsed = _mode(run_context, state)
    session = open_session(log, deps, state=state, opened=opened, mode=mode)
    _connect_notices(session, log, spawner, mcp, additions.plugins)
    moved = (*_use_weights(run_context), *_leave_folders(session, run_context, state))
    later = (*offer.notes, *lapsed, *told_of_servers, *moved, *_left_behind(ended, roots, state))
    return Composition(run_context, session, deps, log, key_from, _notes(run_context, session, log, later))


def _use_weights(run_context: RunContext) -> tuple[str, ...]:
    """Use the weights of `context.weights` for the decisions of this process; return notes."""
    tables, notes = weights_in_use(run_context.settings.context.weights, run_context.environ, run_context.home)
    use_tables(tables)
    return notes


class _Offer(NamedTuple):
    """What the model is offered: the prefix of the conversation and what stands behind it."""

    prefix: Callable[[Model, str], PrefixSet]
    tools: dict[str, Tool]
    kinds: tuple[SubagentType, ...]
    library: SkillFiles
    notes: tuple[str, ...]


def _offer(
    run_context: RunContext, additions: Additions, state: State, mcp: McpToolset, branch: str, nonce: str
) -> _Offer:
    mcp.host.tunnel = additions.mcp_tunnel
    library, listed = _skills(run_context)
    before = [spec.name for spec in state.prefix.tools] if state.prefix else []
    asks = ASK_USER.spec.name in before if state.prefix else additions.asks_user
    without = {tool.spec.name for tool, offered in ((SKILL, bool(listed)), (ASK_USER, asks)) if not offered}
    kinds, tools, unread = _kinds_and_tools(run_context, additions, without)
    registry = tools_by_name(tools)
    mcp.attach(registry, nonce, state.prefix, state.seq)
    prefix, told = _prefix(run_context, branch, state, tools, mcp, listed)
    return _Offer(prefix, registry, kinds, library, (*told, *unread, *library.notes))


def _notes(run_context: RunContext, session: OpenSession, log: SessionLog, later: Iterable[str]) -> tuple[str, ...]:
    """Return the lines for the user at the start, without secrets."""
    prefix, window_tokens = session.state.prefix, session.deps.model.budget.window_tokens
    fills = schema_diagnosis(prefix, window_tokens) if prefix else ""
    found = (*found_notes(run_context), _found_note(run_context))
    lines = (*found, *run_context.settings.notes, *log.notes, *later, fills)
    return tuple(map(session.deps.redact, filter(None, lines)))


def _connect_notices(
    session: OpenSession, log: SessionLog, spawner: SupervisedSpawner, mcp: McpToolset, plugins: Plugins
) -> None:
    """Let what happens outside the loop reach the session's user."""
    spawner.notice = session.notice
    session.deps.policy = plugins.guarded_policy(session.notice)
    changed, updated = mcp.host.changed, mcp.host.resource_updated

    def note_change(server: str) -> None:
        changed(server)
        session.poke()

    def note_update(server: str, uri: str) -> None:
        updated(server, uri)
        session.poke()

    mcp.host.notice, mcp.host.changed, mcp.host.resource_updated = session.notice, note_change, note_update
    _tell_damage(log, session)


def _workspace(
    run_context: RunContext, roots: tuple[str, ...], spawner: SupervisedSpawner, editor: "Editor | None"
) -> tuple[Workspace, Callable[[tuple[str, ...]], Workspace]]:
    """Return the workspace of the session, over the editor's buffers if there are any; and how to open others."""
    environ, settings = _environ(run_context), run_context.settings
    keep_env = (*settings.env.keep, *(name for name, _ in settings.variables))
    in_roots = partial(open_workspace, spawner=spawner, environment=environ, keep_env=keep_env)
    if editor is None:
        return in_roots(roots), in_roots
    return editor.open_workspace(roots, spawner=spawner, environment=environ, keep_env=keep_env), in_roots


def _start_traces(run_context: RunContext, session: OpenSession) -> "SessionTraces | None":
    """Send traces and metrics of the session, if the user has named an endpoint."""
    environ, options = run_context.environ, run_context.settings.traces
    signals = wanted_signals(environ, options)
    if not signals:
        return None
    from longrein.frontends.traces.exporter import start_traces

    def notice(line: str) -> None:
        (say if session.closed else session.notice)(line)

    return start_traces(session, notice, environ, options, signals, CLOCK.wall_us)


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


def _variables(run_context: RunContext) -> dict[str, str]:
    """Return the environment with the variables that settings of other agents add."""
    return {**run_context.environ, **dict(run_context.settings.variables)}


def _environ(run_context: RunContext) -> Mapping[str, str]:
    """Return the environment of commands; a longrein they start uses the same state folder if one was named."""
    environ = _variables(run_context)
    named = run_context.options.state_dir or run_context.environ.get("LONGREIN_STATE_DIR")
    return {**environ, "LONGREIN_STATE_DIR": run_context.state_dir} if named else environ


def _model(
    run_context: RunContext,
    log: SessionLog,
    state: State,
    given: Model | ModelOptions | None,
    additions: Additions,
    name: str = "",
) -> tuple[Model, str]:
    """Return the model that was given, or `name`, or the one asked for, or the session's; and the source of its key."""
    named = name or stored_model(run_context, state)
    given = given or additions.plugins.open_model(named or run_context.settings.model)
    if given is not None and not isinstance(given, ModelOptions):
        return given, "none"
    chosen = given or chosen_model(run_context, named)
    return open_model(chosen if name else _sized(chosen, additions), log.read_blob, CLOCK), key_source(
        run_context, chosen
    )


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


def _builtin(kinds: Sequence[SubagentType], chosen: Sequence[str] | None) -> list[Tool]:
    """Return the built-in tools named in `chosen`, in their usual order; all for None.

    Raises `UsageError` for an unknown name.
    """
    tools = [*builtin_tools(), agent_tool(tuple(kinds)), *goal_tools(), SKILL]
    if chosen is None:
        return tools
    names = [tool.spec.name for tool in tools]
    if unknown := [name for name in chosen if name not in names]:
        raise UsageError(f"there is no built-in tool {unknown[0]!r}; there are {', '.join(names)}")
    return [tool for tool in tools if tool.spec.name in chosen]


def _chosen_tools(
    kinds: Sequence[SubagentType], flag: str | None, named: Sequence[str] | None
) -> tuple[Sequence[str] | None, str]:
    """Return the names of the built-in tools to offer, None for all, and a note on names that `--tools` has wrong.

    `flag`: the value of `--tools`. `named`: what a program names in its place.
    """
    if named is not None or flag is None or flag.strip() == "default":
        return named, ""
    wanted = [name.strip() for name in flag.split(",") if name.strip()]
    spelled = {name: tool.spec.name for tool in _builtin(kinds, None) for name in (*tool.aliases, tool.spec.name)}
    missing = ", ".join(name for name in wanted if name not in spelled)
    note = f"--tools: there is no {missing}; there are {', '.join(dict.fromkeys(spelled.values()))}" if missing else ""
    return [spelled[name] for name in wanted if name in spelled], note


def _kinds_and_tools(
    run_context: RunContext, additions: Additions, without: Collection[str]
) -> tuple[tuple[SubagentType, ...], tuple[Tool, ...], tuple[str, ...]]:
    """Return the subagent types, all tools of the session, and notes on what was ignored of files and of `--tools`.

    Where there is an editor, the tools work in it. `without`: built-in tools that only a program can ask for.
    """
    kinds, unread = _kinds(run_context, additions.tools)
    chosen, missing = _chosen_tools(kinds, run_context.options.tools, additions.builtin)
    offered = [tool for tool in _builtin(kinds, chosen) if chosen is not None or tool.spec.name not in without]
    tools = (*offered, *additions.tools)
    tools = tools if additions.editor is None else tuple(map(additions.editor.wrap, tools))
    return kinds, tools, (*unread, missing)


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


def _leave_folders(session: OpenSession, run_context: RunContext, state: State) -> list[str]:
    """Leave the folders of an earlier run that this start does not name; return a note for the user."""
    look, written = session.deps.workspace.resolve, run_context.roots[0]
    gone = [folder for folder in state.roots if not look(folder, "/").inside]
    if not gone:
        return []
    if not look(state.cwd, "/").inside:
        session.append(CwdSet(written))
    return [f"this session worked in {', '.join(gone)}, and goes on in {written}; --add-dir names further folders"]


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
    if options.network:
        from longrein.permissions.network_hosts import entry_problem

        for entry in options.network:
            if problem := entry_problem(entry):
                raise UsageError(f"sandbox.network names {entry!r}: {problem}")
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
        own=run_context.uses("user"),
        given=run_context.options.agents,
        known_tools=(*builtin_tools(), *goal_tools(), SKILL, *more),
    )


def _hooks(run_context: RunContext, roots: Sequence[str], more: Sequence[HookHandler]) -> HookTable:
    """Build the table of hooks: those of files, then `more`."""
    options, environ = run_context.settings.hooks, run_context.environ
    handlers: list[HookHandler] = [
        CommandHandler(hook) if hook.kind == "command" else HttpHandler(hook, expanded_headers(hook, environ))
        for hook in run_context.hooks.hooks
    ]
    project = project_root(roots[0])
    return HookTable(
        (*handlers, *more),
        env={"CLAUDE_PROJECT_DIR": project, "LONGREIN_PROJECT_DIR": project},
        timeout_s=options.timeout_s,
        may_allow=options.may_allow,
    )


# --- MCP servers -----------------------------------------------------------------------------------------------------


def _servers(run_context: RunContext, additions: Additions) -> tuple[tuple[McpServer, ...], list[str]]:
    """Return the servers to use, and notes for the user."""
    options = run_context.options
    found = load_mcp_servers(
        run_context.cwd,
        run_context.home,
        run_context.environ,
        run_context.state_dir,
        trusted=run_context.trusted.cover(run_context.cwd),
        approved=options.trust,
        given=options.mcp_config,
        strict=options.strict_mcp_config,
    )
    servers = {server.name: server for server in (*found.servers, *additions.mcp_servers)}
    notes = [*found.notes]
    if waiting := ", ".join(server.name for server in found.unapproved):
        notes.append(f"not started, because you have not approved them: MCP servers {waiting}; `longrein mcp approve`")
    notes += [f"MCP server {one.name} ({one.source}): {one.problem}" for one in servers.values() if one.problem]
    usable = any(not (one.problem or one.disabled) for one in servers.values())
    if usable and importlib.util.find_spec("mcp") is None:
        notes.append(MISSING)
    return tuple(servers.values()), notes


def mcp_toolset(
    run_context: RunContext,
    servers: Sequence[McpServer],
    spawner: SupervisedSpawner,
    workspace: Workspace,
    session: str,
) -> McpToolset:
    """Return the servers, not connected yet, of a session or of '' for one look at them."""
    options = run_context.settings.mcp

    async def run_line(line: str, more: Mapping[str, str]) -> bytes:
        sink = CollectingSink()
        env = {**workspace.environment(session), **more}
        await spawner.run(
            line, cwd=run_context.cwd, env=env, sink=sink, timeout_s=HELPER_S, output_bytes_max=HELPER_BYTES_MAX
        )
        return bytes(sink.data)

    host = ServerHost(
        start_process=lambda words, cwd, env, confinement: spawner.start_streams(
            words, cwd=cwd, env=env, confinement=confinement
        ),
        environment=lambda: workspace.environment(session),
        run_line=run_line,
        cwd=project_root(run_context.cwd),
        token_folder=token_folder(run_context.state_dir),
        version=__version__,
        roots=lambda: workspace.roots,
        startup_s=options.startup_s,
        call_s=options.call_s,
    )
    toolset = McpToolset(servers, host, options, run_in_background)
    toolset.missing = MISSING if importlib.util.find_spec("mcp") is None else ""
    return toolset


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


def _opened(run_context: RunContext, session: str, state: State) -> tuple[Opened | None, str]:
    """Return the first entry of a new session, None for a stored one; and the nonce."""
    if state.session == session:
        return None, state.nonce
    nonce, profile = uuid.uuid4().hex[:8], run_context.settings.profile
    return Opened(SCHEMA_VERSION, session, nonce, run_context.roots, run_context.cwd, profile), nonce


def _goals(run_context: RunContext, session: str, root: str, redact: Callable[[str], str]) -> Goals:
    project = project_key(project_root(root))
    return Goals(run_context.state_dir, project, owner_of(session), CLOCK.wall_us, redact=redact)


def _with_branch(opened: Opened, workspace: Workspace) -> Opened:
    branch = current_branch(workspace, find_git_folder(workspace, opened.cwd))
    return msgspec.structs.replace(opened, branch=branch)


# --- Prefix of the conversation --------------------------------------------------------------------------------------


def _prefix(
    run_context: RunContext, branch: str, state: State, tools: Sequence[Tool], mcp: McpToolset, skills: str
) -> tuple[Callable[[Model, str], PrefixSet], Iterable[str]]:
    """Return (model, reason) -> prefix of the conversation; and notes on the files read for it."""
    context, sources, notes = _static_context(run_context, branch, state, skills)
    system = compose_system(
        replaced=run_context.options.system_prompt, appended=run_context.options.append_system_prompt
    )

    def prefix(model: Model, reason: str) -> PrefixSet:
        names, usable_tokens = (model.provider, model.model, model.wire), model.budget.usable_tokens
        told = offer_tools((*tools, *mcp.offered), usable_tokens, mcp.policy, search=bool(mcp.servers))
        around = (*context, mcp.instructions) if mcp.instructions else context
        return PrefixSet(reason, *names, system, told.listed, around, sources, told.deferred)

    return prefix, notes


def _static_context(
    run_context: RunContext, branch: str, state: State, skills: str
) -> tuple[tuple[str, ...], Any, Iterable[str]]:
    """Return environment, instruction files and skills: read once, at the start of a session, then frozen."""
    if state.prefix is not None:
        return state.prefix.context, state.prefix.sources, ()
    texts, sources, notes = load_instructions(
        run_context.cwd,
        run_context.home,
        run_context.environ,
        run_context.settings,
        run_context.trusted.cover,
        own=run_context.uses("user"),
    )
    around = describe_environment(
        cwd=run_context.cwd,
        day=time.strftime("%Y-%m-%d"),
        roots=run_context.roots,
        branch=branch,
    )
    return (around, *texts, *((skills,) if skills else ())), sources, notes
