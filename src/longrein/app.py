"""Entry points, one for each way to use longrein: build the parts, run one frontend, exit."""

import asyncio
import importlib
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from longrein import __version__
from longrein.composition import Composition, build
from longrein.config import distrust, trust
from longrein.events import Image, Text
from longrein.frontends.argv import Options
from longrein.frontends.headless import BufferedOutput, SessionFacts, Style, run_headless
from longrein.frontends.stdio import read_lines, say
from longrein.run_context import discard_unused, named_budget, read_run_context
from longrein.workspace import nesting_depth


def run_print(options: Options) -> int:
    """Run headless once; return the exit code."""
    return _leave(_print(options))


async def _print(options: Options) -> int:
    built = await build(read_run_context(options))
    session = built.session
    try:
        return await run_headless(
            session,
            prompt=(Text(options.prompt),) if options.prompt else (),
            facts=facts_of(built),
            style=Style(
                options.output_format,
                options.include_partial_messages,
                built.place.settings.tasks.background,
                built.place.settings.tasks.background_s,
                options.verbose,
            ),
            out=BufferedOutput(1),
            err=say,
            lines=read_lines(0) if options.input_format == "stream-json" else None,
            keep_image=lambda data, media: Image(built.log.put_blob(data), media, len(data)),
        )
    finally:
        await session.close()
        await discard_unused(built.place, session.id, said=bool(session.state.words or session.pending))


def facts_of(built: Composition) -> SessionFacts:
    """Return the facts of a session that a headless run prints."""
    model = built.deps.model

    def sizes(name: str) -> tuple[int, int]:
        budget = named_budget(built.place, name)
        return budget.window_tokens, budget.max_output_tokens

    return SessionFacts(
        session=built.session.id,
        cwd=built.session.state.cwd,
        model=model.name,
        tools=tuple(built.deps.tools),
        mode=built.session.state.mode,
        version=__version__,
        api_key_source=built.key_source,
        window_tokens=model.budget.window_tokens,
        max_output_tokens=model.budget.max_output_tokens,
        sizes=sizes,
        notes=built.notes,
        nested=nesting_depth(built.place.environ) > 0,
    )


def _leave(work: Coroutine[Any, Any, int]) -> int:
    """Run to the end and exit at once: everything is on disk, so freeing memory would only take time."""
    code = asyncio.run(work)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None when longrein was started without it
            stream.flush()
    os._exit(code)


def _command(name: str) -> Any:
    """Import the module of one subcommand: importing all of them would double the start time."""
    return importlib.import_module(f"longrein.commands.{name}")


def run_sessions(options: Options, json: bool) -> int:
    """List stored sessions, newest first."""
    return int(_command("sessions").sessions(read_run_context(options), json=json))


def run_export(options: Options, session: str, format: str, out: str) -> int:  # noqa: A002 - the flag's name
    """Export one session as JSON lines or as a transcript."""
    return int(_command("sessions").export(read_run_context(options), session, format, out))


def run_context(options: Options, session: str, json: bool) -> int:
    """Show the use of the context of one session, which may be open elsewhere."""
    return int(_command("sessions").context(read_run_context(options), session, json=json))


def run_search(options: Options, query: str, session: str, every: bool, json: bool, page: int) -> int:
    """Search stored sessions; return 1 when nothing is found."""
    return int(
        _command("sessions").search(read_run_context(options), query, session, every=every, json=json, page=page)
    )


def run_tasks(options: Options, /, words: Sequence[str], tail: int, json: bool) -> int:
    """List, show or stop background tasks of stored sessions."""
    return int(_command("tasks").tasks(read_run_context(options), words, tail, json=json))


def run_agents(options: Options, /, session: str, json: bool) -> int:
    """List subagents of stored sessions."""
    return int(_command("tasks").agents(read_run_context(options), session, json=json))


def run_worktrees(options: Options, /, words: Sequence[str], unmerged: bool, json: bool) -> int:
    """List, merge or remove worktrees that subagents have left."""
    return int(_command("worktrees").worktrees(read_run_context(options), words, unmerged=unmerged, json=json))


def run_simulate(options: Options, /, recorded: Sequence[str], **how: str) -> int:
    """Replay recorded sessions through policies, offline."""
    return int(_command("simulate").simulate(read_run_context(options).state_dir, recorded, **how))


def run_interactive(options: Options) -> int:
    """Run the terminal, session after session, until the user leaves."""
    return _leave(_command("interactive").run_interactive(options))


def run_doctor(options: Options) -> int:
    """Check the installation and say how to fix problems."""
    return int(_command("doctor").doctor(read_run_context(options)))


def run_trust(options: Options, undo: bool) -> int:
    """Trust the current folder, so that its own settings file is read; or stop trusting it."""
    context = read_run_context(options)
    if undo:
        distrust(context.state_dir, context.cwd)
    else:
        trust(context.state_dir, context.cwd, context.home)
    say(f"{context.cwd} is {'no longer ' if undo else ''}trusted")
    return 0


def run_demo(*, keep: bool) -> int:
    """Run a small real job offline."""
    return int(_command("demo").demo(keep=keep))
