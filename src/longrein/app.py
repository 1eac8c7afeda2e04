"""The hall: each function is one way of using longrein. It builds the parts (`build`), starts one frontend, leaves."""

import asyncio
import importlib
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from longrein import __version__
from longrein.composition import Built, build
from longrein.config import distrust, trust
from longrein.events import Image, Text
from longrein.frontends.argv import Options
from longrein.frontends.headless import BufferedOutput, SessionFacts, Style, run_headless
from longrein.frontends.stdio import read_lines, say
from longrein.run_context import discard_unused, named_budget, survey
from longrein.workspace import depth_of


def run_print(options: Options) -> int:
    """One headless run; gives its exit code."""
    return _leave(_print(options))


async def _print(options: Options) -> int:
    built = await build(survey(options))
    session = built.session
    try:
        return await run_headless(
            session,
            prompt=(Text(options.prompt),) if options.prompt else (),
            facts=facts_of(built),
            style=Style(
                options.output_format,
                options.include_partial_messages,
                built.place.settings.background,
                built.place.settings.background_s,
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


def facts_of(built: Built) -> SessionFacts:
    """What a headless run says of its session."""
    model = built.crew.model

    def sizes(name: str) -> tuple[int, int]:
        budget = named_budget(built.place, name)
        return budget.window_tokens, budget.max_output_tokens

    return SessionFacts(
        session=built.session.id,
        cwd=built.session.state.cwd,
        model=model.name,
        tools=tuple(built.crew.tools),
        mode=built.session.state.mode,
        version=__version__,
        api_key_source=built.key_source,
        window_tokens=model.budget.window_tokens,
        max_output_tokens=model.budget.max_output_tokens,
        sizes=sizes,
        notes=built.notes,
        nested=depth_of(built.place.environ) > 0,
    )


def _leave(work: Coroutine[Any, Any, int]) -> int:
    """Run to the end and leave at once: everything is on disk, so nothing is gained by tidying memory up."""
    code = asyncio.run(work)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it is None where we were started without
            stream.flush()
    os._exit(code)


def _command(name: str) -> Any:
    """Import the module of one subcommand: a start needs one of them, and together they cost as much as the rest."""
    return importlib.import_module(f"longrein.commands.{name}")


def run_sessions(options: Options, json: bool) -> int:
    """The list of sessions, newest first."""
    return int(_command("sessions").sessions(survey(options), json=json))


def run_export(options: Options, session: str, format: str, out: str) -> int:  # noqa: A002 - the flag's name
    """One session as JSON lines, or as the documents' transcript."""
    return int(_command("sessions").export(survey(options), session, format, out))


def run_context(options: Options, session: str, json: bool) -> int:
    """What fills the context of one session; it may be open elsewhere."""
    return int(_command("sessions").context(survey(options), session, json=json))


def run_search(options: Options, query: str, session: str, every: bool, json: bool, page: int) -> int:
    """Where words stand in stored sessions; 1 when nowhere."""
    return int(_command("sessions").search(survey(options), query, session, every=every, json=json, page=page))


def run_tasks(options: Options, /, words: Sequence[str], tail: int, json: bool) -> int:
    """Background tasks of stored sessions: listed, shown, stopped."""
    return int(_command("tasks").tasks(survey(options), words, tail, json=json))


def run_agents(options: Options, /, session: str, json: bool) -> int:
    """Subagents of stored sessions."""
    return int(_command("tasks").agents(survey(options), session, json=json))


def run_worktrees(options: Options, /, words: Sequence[str], unmerged: bool, json: bool) -> int:
    """Worktrees that subagents have left: listed, merged, removed."""
    return int(_command("worktrees").worktrees(survey(options), words, unmerged=unmerged, json=json))


def run_simulate(options: Options, /, recorded: Sequence[str], **how: str) -> int:
    """Recorded sessions through policies, offline."""
    return int(_command("simulate").simulate(survey(options).state_dir, recorded, **how))


def run_interactive(options: Options) -> int:
    """The terminal, session after session, until the user leaves."""
    return _leave(_command("interactive").talk(options))


def run_doctor(options: Options) -> int:
    """What is here, what is missing and what to do about it."""
    return int(_command("doctor").doctor(survey(options)))


def run_trust(options: Options, undo: bool) -> int:
    """Trust the present folder: its own settings file is read from now on; or no longer."""
    place = survey(options)
    if undo:
        distrust(place.state_dir, place.cwd)
    else:
        trust(place.state_dir, place.cwd, place.home)
    say(f"{place.cwd} is {'no longer ' if undo else ''}trusted")
    return 0


def run_demo(*, keep: bool) -> int:
    """A real small job, offline."""
    return int(_command("demo").demo(keep=keep))
