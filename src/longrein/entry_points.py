"""Entry points, one for each way to use longrein: build the parts, run one frontend, exit."""

import asyncio
import importlib
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from longrein import __version__
from longrein.composition import Composition, build
from longrein.events import Image, Text
from longrein.frontends.argv import Options
from longrein.frontends.headless import BufferedOutput, OutputOptions, SessionFacts, run_headless
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
            options=OutputOptions(
                options.output_format,
                options.include_partial_messages,
                built.run_context.settings.tasks.background,
                built.run_context.settings.tasks.background_s,
                options.verbose,
            ),
            out=BufferedOutput(1),
            err=say,
            lines=read_lines(0) if options.input_format == "stream-json" else None,
            keep_image=lambda data, media: Image(built.log.put_blob(data), media, len(data)),
        )
    finally:
        await session.close()
        await discard_unused(built.run_context, session.id, said=bool(session.state.words or session.pending))


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
        tools=tuple(built.deps.tools),
        mode=built.session.state.mode,
        version=__version__,
        api_key_source=built.key_source,
        window_tokens=model.budget.window_tokens,
        max_output_tokens=model.budget.max_output_tokens,
        sizes=sizes,
        notes=built.notes,
        slash_commands=tuple(one.name for one in commands if one.for_user),
        skills=tuple(one.name for one in commands if one.kind == "skill"),
        left_out=built.run_context.left_out,
        sandbox=built.deps.sandbox.rung.name if built.deps.sandbox is not None else "none",
        nested=nesting_depth(built.run_context.environ) > 0,
    )


def _leave(work: Coroutine[Any, Any, int]) -> int:
    """Run to the end and exit at once: everything is on disk, so freeing memory would only take time."""
    code = asyncio.run(work)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None when longrein was started without it
            stream.flush()
    os._exit(code)


def run_interactive(options: Options) -> int:
    """Run the terminal, session after session, until the user leaves."""
    place = _command("trust").trusted_run_context(options)
    return _leave(_command("interactive").run_interactive(place)) if place else 0


def run_command(name: str, options: Options, words: Sequence[str], /, **flags: Any) -> int:
    """Run a subcommand: the function of that name in `longrein.commands`."""
    run = getattr(_command(MODULES.get(name, name)), name)
    place = None if name == "demo" else read_run_context(options)  # the demo has its own settings
    return int(run(place, words, **flags))


MODULES = {"export": "sessions", "context": "sessions", "search": "sessions", "agents": "tasks"}
"""Subcommand -> the module with its function, where that has another name."""


def _command(module: str) -> Any:
    """Import the module of one subcommand: importing all of them would double the start time."""
    return importlib.import_module(f"longrein.commands.{module}")
