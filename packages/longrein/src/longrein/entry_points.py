"""Entry points, one for each way to use longrein: build the parts, run one frontend, exit."""

import asyncio
import os
import sys
from collections.abc import Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from longrein.agent import Rewind
from longrein.app import Additions, App, AppSession, ProgramServers
from longrein.app.run_context import (
    RunContext,
    read_run_context,
)
from longrein.extension_points import load_object
from longrein.frontends.argv import find_command
from longrein.frontends.headless import BufferedOutput, OutputOptions, run_headless
from longrein.frontends.headless.control_lines import (
    ControlChannel,
    ControlOptions,
    error_line,
    success_line,
)
from longrein.frontends.headless.stream_json_blocks import encode
from longrein.frontends.loop_streams import read_lines
from longrein.frontends.stdio import say, show
from longrein.options import Options
from longrein.tools import structured_output_tool
from longrein_context.events import (
    LongreinError,
    Opened,
    Text,
    TurnEnded,
    UsageError,
    UserSpoke,
    entry_uuid,
)

if TYPE_CHECKING:
    from longrein.frontends.headless.initialize import Initialize


IN_WORKTREE = "longrein.commands.worktree_session:run_in_worktree"


def run_print(options: Options) -> int:
    """Run headless once, or list the tools; return the exit code."""
    if options.list_tools:
        return _leave(_list_tools(options))
    if options.worktree is None:
        return _leave(_print(options))
    run_context = read_run_context(options)
    return _leave(load_object(IN_WORKTREE)(run_context, lambda inner: _print(options, inner)))


async def _list_tools(options: Options) -> int:
    """Print name and bytes of each tool of a request, then the names of those found by search."""
    app = App(read_run_context(options), say)
    opened = await app.open()
    offered = opened.deps.prefix(opened.deps.model, "start")
    sizes = {spec.name: len(msgspec.json.encode(spec.sent)) for spec in offered.tools}
    rows = [f"{name:<20}{size:>6} bytes" for name, size in sizes.items()]
    late = ", ".join(spec.name for spec in offered.deferred)
    count = f"{len(sizes)} tools, {sum(sizes.values())} bytes"
    show("\n".join([*rows, count, *[f"found by ToolSearch: {late}"] * bool(late)]) + "\n")
    await opened.session.close()
    await opened.finish()
    await opened.discard_unused()
    return 0


async def _print(options: Options, run_context: RunContext | None = None) -> int:
    """Run headless; `run_context` is the run context where it is not that of the current folder."""
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
        opened = await _opened(options, given, channel, run_context)
    except LongreinError as error:
        if given is not None:  # else the program would wait for the answer
            out.put(encode(error_line(given.id, str(error))))
            await out.drain()
        raise
    session = opened.session
    if given is not None:
        from longrein.frontends.headless.initialize import offer_fields

        out.put(encode(success_line(given.id, offer_fields(opened))))
        for line in given.notes:
            say(line)
    attached = opened.attachments().read(options.typed) if "@" in options.typed else None
    for note in attached.notes if attached else ():
        say(note)
    parts = attached.parts if attached else ()
    try:
        return await run_headless(
            opened,
            prompt=(Text(options.prompt), *parts) if options.prompt else (),
            options=output_options(opened.app.context),
            out=out,
            err=say,
            lines=lines,
            control=ControlOptions(
                channel=channel,
                waits=given is not None,
                terminal_commands=_terminal_commands,
            ),
        )
    finally:
        await session.close()
        await opened.finish()
        await opened.discard_unused()


async def _opened(
    options: Options,
    given: "Initialize | None",
    channel: ControlChannel,
    run_context: RunContext | None,
) -> AppSession:
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
    known = run_context.trusted if run_context is not None else None
    app = App(read_run_context(options, trusted=known), say)
    opened = await app.open(additions=more)
    try:
        if options.resume_session_at:
            await opened.session.tell(Rewind(resume_point(opened, options.resume_session_at)))
    except LongreinError:
        await opened.session.close()
        raise
    if given is not None and opened.deps.extension_parts:
        from longrein.frontends.headless.hook_callbacks import elicitation

        opened.let_user_answer(elicitation(channel))
    return opened


def _with_program(
    options: Options, given: "Initialize | None", channel: ControlChannel
) -> tuple[Options, Additions]:
    """Return the options with those of `initialize`, and what the program that writes stdin
    adds: hooks and servers.
    """
    if given is None:
        return options, Additions(servers=ProgramServers(ask=channel.request))
    from longrein.frontends.headless.hook_callbacks import callback_handlers
    from longrein.frontends.headless.initialize import with_initialize

    hooks = tuple(callback_handlers(given, channel))
    names = given.fields.get("sdkMcpServers")
    listed = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    more = Additions(
        hooks=hooks,
        servers=ProgramServers(
            {name: {"type": "sdk"} for name in listed}, "initialize", ask=channel.request
        ),
        skills=given.skills,
    )
    return with_initialize(options, given), more


def output_options(context: RunContext) -> OutputOptions:
    """Return the output options of a headless run."""
    options = context.options
    tasks = context.settings.tasks
    return OutputOptions(
        options.output_format,
        options.include_partial_messages,
        tasks.background,
        tasks.background_s,
        options.debug or (options.verbose and options.output_format != "stream-json"),
        structured=bool(options.json_schema),
        hook_events=options.include_hook_events,
        replay=options.replay_user_messages,
        waits_for_promoted=bool(options.background or options.wait_tasks),
    )


def resume_point(opened: AppSession, message: str) -> int:
    """Return the entry to go back to, so that the message with this id is the last one. Raises
    `UsageError`.
    """
    session = opened.session
    entries = list(opened.log.history(1, session.state.seq))
    first = entries[0].event if entries else None
    parent = first.parent.session if isinstance(first, Opened) and first.parent else session.id
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


def _terminal_commands() -> Collection[str]:
    from longrein.frontends.terminal.command_table import BY_NAME

    return BY_NAME


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
    run_context = load_object("longrein.commands.trust:trusted_run_context")(options)
    if run_context is None:
        return 0
    run = load_object("longrein.commands.interactive:run_interactive")
    if options.worktree is None:
        return _leave(run(run_context))
    return _leave(load_object(IN_WORKTREE)(run_context, run))


def run_command(name: str, options: Options, words: Sequence[str], /, **flags: Any) -> int:
    """Run a subcommand. Its module is imported here: importing all of them would double the start
    time.
    """
    command = find_command(name)
    run: Any = command.run if command is not None else ""
    if isinstance(run, str):
        run = load_object(run or f"longrein.commands.{name}:{name}")
    run_context = None if name in WITHOUT_SETTINGS else read_run_context(options)
    return int(run(run_context, words, **flags))


WITHOUT_SETTINGS = ("completion", "demo", "help")
"""Subcommands that read no settings: wrong ones must not stop them. The demo has its own."""
