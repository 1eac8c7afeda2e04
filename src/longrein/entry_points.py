"""Entry points, one for each way to use longrein: build the parts, run one frontend, exit."""

import asyncio
import importlib
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from longrein import __version__
from longrein.agent import Rewind
from longrein.agent.extension_part import ControlHandler
from longrein.app import Additions, Composition, build
from longrein.app.run_context import (
    CLOCK,
    RunContext,
    budget_of,
    chosen_model,
    discard_unused,
    model_names,
    named_budget,
    read_run_context,
)
from longrein.config import full_model_name
from longrein.events import (
    Document,
    Image,
    LongreinError,
    Opened,
    Text,
    TurnEnded,
    UsageError,
    UserSpoke,
    entry_uuid,
)
from longrein.extension_points import load_object
from longrein.frontends.headless import BufferedOutput, OutputOptions, SessionFacts, run_headless
from longrein.frontends.headless.control_lines import ControlChannel, error_line, success_line
from longrein.frontends.headless.control_requests import ControlOptions
from longrein.frontends.headless.slash_commands import COMMANDS
from longrein.frontends.headless.stream_json_blocks import encode
from longrein.frontends.stdio import read_lines, say, show
from longrein.models import open_model
from longrein.options import Options
from longrein.tools import structured_output_tool
from longrein.workspace import nesting_depth

if TYPE_CHECKING:
    from longrein.frontends.headless.initialize import Initialize, Offer


def run_print(options: Options) -> int:
    """Run headless once, or list the tools; return the exit code."""
    if options.list_tools:
        return _leave(_list_tools(options))
    if options.worktree is None:
        return _leave(_print(options))
    place = read_run_context(options)
    return _leave(
        _command("worktree_session").run_in_worktree(place, lambda inner: _print(options, inner))
    )


async def _list_tools(options: Options) -> int:
    """Print name and bytes of each tool of a request, then the names of those found by search."""
    built = await build(read_run_context(options))
    offered = built.deps.prefix(built.deps.model, "start")
    sizes = {spec.name: len(msgspec.json.encode(spec.sent)) for spec in offered.tools}
    rows = [f"{name:<20}{size:>6} bytes" for name, size in sizes.items()]
    late = ", ".join(spec.name for spec in offered.deferred)
    count = f"{len(sizes)} tools, {sum(sizes.values())} bytes"
    show("\n".join([*rows, count, *[f"found by ToolSearch: {late}"] * bool(late)]) + "\n")
    await built.session.close()
    await built.finish()
    await discard_unused(built.run_context, built.session.id, said=False)
    return 0


async def _print(options: Options, place: RunContext | None = None) -> int:
    """Run headless; `place` is the run context where it is not that of the current folder."""
    out = BufferedOutput(1)
    given = None
    lines = None
    channel = ControlChannel(lambda line: out.put(encode(line)))
    if options.input_format == "stream-json":
        from longrein.frontends.headless.initialize import read_initialize

        given, lines, stopped = await read_initialize(read_lines(0))
        if stopped:
            return 128 + stopped
    try:
        built = await _opened(options, given, channel, place)
    except LongreinError as error:
        if given is not None:  # else the program would wait for the answer
            out.put(encode(error_line(given.id, str(error))))
            await out.drain()
        raise
    session, control = built.session, control_options(built, channel, waits=given is not None)
    if given is not None:
        out.put(encode(success_line(given.id, control.offer().fields())))
        for line in given.notes:
            say(line)
    attached = built.attachments().read(options.typed) if "@" in options.typed else None
    for note in attached.notes if attached else ():
        say(note)
    parts = attached.parts if attached else ()
    try:
        return await run_headless(
            session,
            prompt=(Text(options.prompt), *parts) if options.prompt else (),
            facts=facts_of(built),
            options=output_options(built),
            out=out,
            err=say,
            lines=lines,
            control=control,
            keep=lambda data, media: _kept(built.log.put_blob(data), media, len(data)),
        )
    finally:
        await session.close()
        await built.finish()
        await discard_unused(
            built.run_context, session.id, said=bool(session.state.words or session.pending)
        )


def _kept(blob: str, media: str, size_bytes: int) -> Image | Document:
    kind = Image if media.startswith("image/") else Document
    return kind(blob, media, size_bytes)


async def _opened(
    options: Options, given: "Initialize | None", channel: ControlChannel, place: RunContext | None
) -> Composition:
    """Open the session, with what a program adds by `initialize` and flags."""
    more = Additions()
    if options.input_format == "stream-json":
        options, more = _with_program(options, given, channel)
    more = msgspec.structs.replace(
        more,
        tools=(structured_output_tool(options.json_schema),) if options.json_schema else (),
        asks_user=options.permission_prompt_tool == "stdio",
        answers_permissions=options.permission_prompt_tool == "stdio",
    )
    known = place.trusted if place is not None else None
    built = await build(read_run_context(options, trusted=known), additions=more)
    try:
        if options.resume_session_at:
            await built.session.tell(Rewind(resume_point(built, options.resume_session_at)))
    except LongreinError:
        await built.session.close()
        raise
    if given is not None and built.deps.extension_parts:
        from longrein.frontends.headless.server_questions import elicitation

        for part in built.deps.extension_parts:
            part.let_user_answer(elicitation(channel))
    return built


def _with_program(
    options: Options, given: "Initialize | None", channel: ControlChannel
) -> tuple[Options, Additions]:
    """Return the options with those of `initialize`, and what the program that writes stdin
    adds: hooks and servers.
    """
    if given is None:
        return options, Additions(channel=channel)
    from longrein.frontends.headless.hook_callbacks import callback_handlers
    from longrein.frontends.headless.initialize import with_initialize

    hooks = tuple(callback_handlers(given, channel))
    names = given.fields.get("sdkMcpServers")
    listed = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    more = Additions(
        hooks=hooks,
        mcp_servers={name: {"type": "sdk"} for name in listed},
        servers_source="initialize",
        channel=channel,
        skills=given.skills,
    )
    return with_initialize(options, given), more


def output_options(built: Composition) -> OutputOptions:
    """Return the output options of a headless run."""
    options, tasks = built.run_context.options, built.run_context.settings.tasks
    return OutputOptions(
        options.output_format,
        options.include_partial_messages,
        tasks.background,
        tasks.background_s,
        options.debug or (options.verbose and options.output_format != "stream-json"),
        structured=bool(options.json_schema),
        hook_events=options.include_hook_events,
        replay=options.replay_user_messages,
    )


def resume_point(built: Composition, message: str) -> int:
    """Return the entry to go back to, so that the message with this id is the last one. Raises
    `UsageError`.
    """
    session = built.session
    entries = list(built.deps.history(1, session.state.seq))
    opened = entries[0].event if entries else None
    parent = opened.parent.session if isinstance(opened, Opened) and opened.parent else session.id
    found = next(
        (
            e
            for e in entries
            if message in (entry_uuid(session.id, e.seq), entry_uuid(parent, e.seq))
        ),
        None,
    )
    if found is None:
        raise UsageError(
            f"--resume-session-at: no message of session {session.id} has the id {message}"
        )
    if isinstance(found.event, UserSpoke):
        return found.seq
    return next(
        (e.seq for e in entries if e.seq >= found.seq and isinstance(e.event, TurnEnded)), found.seq
    )


STATE_VARIABLES = ("CLAUDE_CODE_SDK_READS_SESSION_STATE", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")
"""Variables with which a program asks for lines `session_state_changed`: for its SDK, and for
itself.
"""


def control_options(built: Composition, channel: ControlChannel, *, waits: bool) -> ControlOptions:
    """Return what a session is given for the requests of a program that runs it. For `waits` see
    there.
    """

    run_context, deps = built.run_context, built.deps
    for_sdk, for_all = (
        run_context.environ.get(name, "").lower() in ("1", "true") for name in STATE_VARIABLES
    )

    def resolve(name: str) -> str:
        chosen = chosen_model(
            run_context, full_model_name(name, run_context.settings, run_context.key_environ)
        )
        return f"{chosen.provider}/{chosen.model}"

    def think(tokens: int | None) -> str:
        options = msgspec.structs.replace(
            run_context.options,
            thinking="",
            max_thinking_tokens="" if tokens is None else str(tokens),
        )
        changed = msgspec.structs.replace(run_context, options=options)
        chosen_model(changed, deps.model.name)  # raises for one that a plugin opens
        deps.open_model = lambda name: open_model(
            chosen_model(changed, name), built.log.read_blob, CLOCK
        )
        return deps.model.name

    def terminal_commands() -> set[str]:
        from longrein.frontends.terminal.command_table import BY_NAME

        own = built.session.skills.all() if built.session.skills is not None else ()
        added = (one.name for part in deps.extension_parts for one in part.slash_commands())
        return {*BY_NAME, *added} - {one.name for one in own}

    def added() -> dict[str, ControlHandler]:
        found: dict[str, ControlHandler] = {}
        for part in deps.extension_parts:
            found |= part.control_requests()
        return found

    return ControlOptions(
        terminal_commands=terminal_commands,
        offer=lambda: offer_of(built),
        channel=channel,
        added=added,
        asks_permission=run_context.options.permission_prompt_tool == "stdio",
        waits=waits,
        resolve_model=resolve,
        think=think,
        budget=lambda: budget_of(run_context, built.session.state),
        reports_state=for_sdk or for_all,
        state_for_host_only=not for_all,
    )


def offer_of(built: Composition) -> "Offer":
    """Return what a session offers to a program that runs it, as it is on disk and in the
    settings now.
    """
    from longrein.frontends.headless.initialize import Offer

    deps, run_context = built.deps, built.run_context
    skills = built.session.skills.all() if built.session.skills is not None else ()
    present = deps.model.name
    return Offer(
        tuple((one.name, one.description, one.argument_hint) for one in skills if one.for_user),
        tuple(one.name for one in skills if one.kind == "skill"),
        tuple((kind.name, kind.description, kind.model) for kind in deps.kinds),
        present,
        tuple(
            (name, named_budget(run_context, name).window_tokens)
            for name in model_names(run_context, present)
        ),
        built.key_source,
        __version__,
        bool(run_context.options.plugin_dirs),
    )


def facts_of(built: Composition) -> SessionFacts:
    """Return the facts of a session that a headless run prints."""
    model = built.deps.model
    commands = built.session.skills.all() if built.session.skills is not None else ()

    def sizes(name: str) -> tuple[int, int]:
        budget = named_budget(built.run_context, name)
        return budget.window_tokens, budget.max_output_tokens

    return SessionFacts(
        session=built.session.id,
        cwd=built.session.state.cwd,
        model=model.name,
        tools=tuple(name for name, tool in built.deps.tools.items() if not tool.withdrawn),
        mode=built.session.state.mode,
        version=__version__,
        api_key_source=built.key_source,
        window_tokens=model.budget.window_tokens,
        max_output_tokens=model.budget.max_output_tokens,
        sizes=sizes,
        notes=built.notes,
        agents=tuple(kind.name for kind in built.deps.kinds),
        plugins=built.run_context.options.plugin_dirs,
        slash_commands=(*COMMANDS, *(one.name for one in commands if one.for_user)),
        skills=tuple(one.name for one in commands if one.kind == "skill"),
        left_out=built.run_context.left_out,
        sandbox=built.deps.sandbox.rung.name if built.deps.sandbox is not None else "none",
        nested=nesting_depth(built.run_context.environ) > 0,
        mcp_servers=_mcp_servers(built),
    )


def _mcp_servers(built: Composition) -> tuple[tuple[str, str], ...]:
    found = [one for part in built.deps.extension_parts for one in part.connections()]
    return tuple((name, status.replace("connecting", "pending")) for name, status in found)


def _leave(work: Coroutine[Any, Any, int]) -> int:
    """Run to the end and exit at once: everything is on disk, so freeing memory would only take
    time.
    """
    code = asyncio.run(work)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None when longrein was started without it
            stream.flush()
    os._exit(code)


def run_interactive(options: Options) -> int:
    """Run the terminal, session after session, until the user leaves."""
    place = _command("trust").trusted_run_context(options)
    if place is None:
        return 0
    run = _command("interactive").run_interactive
    if options.worktree is None:
        return _leave(run(place))
    return _leave(_command("worktree_session").run_in_worktree(place, run))


def run_command(name: str, options: Options, words: Sequence[str], /, **flags: Any) -> int:
    """Run a subcommand: that of an extension, or the function of that name in
    `longrein.commands`.
    """
    from longrein.frontends.command_lookup import find_command

    command = find_command(name)
    run: Any = command.run if command is not None else ""
    if isinstance(run, str):
        run = load_object(run) if run else _own_command(name)
    place = None if name in WITHOUT_SETTINGS else read_run_context(options)
    return int(run(place, words, **flags))


WITHOUT_SETTINGS = ("completion", "demo", "help")
"""Subcommands that read no settings: wrong ones must not stop them. The demo has its own."""
MODULES = {
    "export": "sessions",
    "context": "sessions",
    "search": "sessions",
    "agents": "tasks",
    "import": "import_settings",
    "happened": "report_event",
    "logout": "login",
}
"""Subcommand -> the module with its function, where that has another name."""
FUNCTIONS = {"import": "import_named", "happened": "report_event"}
"""Subcommand -> its function, where that has another name."""


def _own_command(name: str) -> Any:
    return getattr(_command(MODULES.get(name, name)), FUNCTIONS.get(name, name))


def _command(module: str) -> Any:
    """Import the module of one subcommand: importing all of them would double the start time."""
    return importlib.import_module(f"longrein.commands.{module}")
