"""The hall: each function is one way of using longrein. It builds the parts (`build`), starts one frontend, leaves."""

import asyncio
import importlib
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from longrein.build import VERSION, Built, build
from longrein.config import distrust, trust
from longrein.context import fold, next_to_go, report
from longrein.events import Image, LongreinError, Text, UsageError
from longrein.frontends.headless import Output, SessionFacts, Style, run_headless
from longrein.frontends.options import Options
from longrein.frontends.stderr import say
from longrein.frontends.stdin import read_lines
from longrein.frontends.stdout import show
from longrein.place import budget_of, survey
from longrein.store import Reader, export_jsonl, find_session, list_sessions, session_info, write_transcript


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
            out=Output(1),
            err=say,
            lines=read_lines(0) if options.input_format == "stream-json" else None,
            keep_image=lambda data, media: Image(built.log.put_blob(data), media, len(data)),
        )
    finally:
        await session.close()


def facts_of(built: Built) -> SessionFacts:
    """What a headless run says of its session."""
    model = built.crew.model
    return SessionFacts(
        session=built.session.id,
        cwd=built.session.state.cwd,
        model=model.name,
        tools=tuple(built.crew.tools),
        mode=built.session.state.mode,
        version=VERSION,
        api_key_source=built.key_source,
        window_tokens=model.budget.window_tokens,
        max_output_tokens=model.budget.max_output_tokens,
        notes=built.notes,
    )


def _leave(work: Coroutine[Any, Any, int]) -> int:
    """Run to the end and leave at once: everything is on disk, so nothing is gained by tidying memory up."""
    code = asyncio.run(work)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it is None where we were started without
            stream.flush()
    os._exit(code)


def run_sessions(options: Options, json: bool) -> int:
    """The list of sessions, newest first."""
    infos = list_sessions(survey(options).state_dir)
    listing = importlib.import_module("longrein.frontends.listing")
    show(listing.as_json(infos) if json else listing.as_table(infos))
    return 0


def run_export(options: Options, session: str, format: str, out: str) -> int:  # noqa: A002 - the flag's name
    """One session as JSON lines, or as the documents' transcript."""
    place = survey(options)
    reader = Reader(place.state_dir, find_session(place.state_dir, session))
    try:
        if format == "transcript":
            say(f"written to {write_transcript(out or '.transcripts', reader.entries())}")
        else:
            _export(reader, out)
    finally:
        reader.close()
    return 0


def _export(reader: Reader, out: str) -> None:
    """To the new file `out`, of which nothing stays when it cannot be written to its end; to stdout without `out`."""
    try:
        with open(out, "xb") if out else open(1, "wb", closefd=False) as file:
            try:
                export_jsonl(reader, file)
            except BaseException:
                if out:
                    os.unlink(out)
                raise
    except FileExistsError:
        raise UsageError(f"{out} is there already; name another file with -o") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise LongreinError(f"{out or 'stdout'} cannot be written: {error.strerror}") from None


def run_context(options: Options, session: str, json: bool) -> int:
    """What fills the context of one session; it may be open elsewhere."""
    place = survey(options)
    reader = Reader(place.state_dir, find_session(place.state_dir, session))
    try:
        state = fold(list(reader.entries()))
    finally:
        reader.close()
    budget = budget_of(place, state)
    page = importlib.import_module("longrein.frontends.context_page")
    told = report(state, budget, next_to_go(state, budget))
    model = f"{state.prefix.provider}/{state.prefix.model}" if state.prefix else ""
    show(page.as_json(told, state, model) if json else page.as_text(told))
    return 0


def run_search(options: Options, query: str, session: str, every: bool, json: bool) -> int:
    """Where words stand in stored sessions; 1 when nowhere."""
    if not query.strip('" '):
        raise UsageError("what is to be found? longrein search QUERY")
    place = survey(options)
    pages = importlib.import_module("longrein.frontends.search_page")
    if session:
        one = session_info(place.state_dir, find_session(place.state_dir, session))
        infos = [one] if one is not None else []
    else:
        infos = [info for info in list_sessions(place.state_dir) if every or info.cwd == place.cwd]
    found = pages.found_in(place.state_dir, infos, query, say)
    show(pages.as_json(found) if json else pages.as_text(found))
    if not found:
        say(pages.nothing(query, len(infos), widest=every or bool(session)))
    return 0 if found else 1


def run_tasks(options: Options, /, words: Sequence[str], tail: int, json: bool) -> int:
    """Background tasks of stored sessions: listed, shown, stopped."""
    return int(importlib.import_module("longrein.company").tasks(survey(options), words, tail, json=json))


def run_agents(options: Options, /, session: str, json: bool) -> int:
    """Subagents of stored sessions."""
    return int(importlib.import_module("longrein.company").agents(survey(options), session, json=json))


def run_worktrees(options: Options, /, words: Sequence[str], unmerged: bool, json: bool) -> int:
    """Worktrees that subagents have left: listed, merged, removed."""
    hall = importlib.import_module("longrein.worktrees")
    return int(hall.worktrees(survey(options), words, unmerged=unmerged, json=json))


def run_simulate(options: Options, /, recorded: Sequence[str], **how: str) -> int:
    """Recorded sessions through policies, offline."""
    return int(importlib.import_module("longrein.simulate").simulate(survey(options).state_dir, recorded, **how))


def run_interactive(options: Options) -> int:
    """The terminal, session after session, until the user leaves."""
    hall = importlib.import_module("longrein.talk")
    return _leave(hall.talk(options))


def run_doctor(options: Options) -> int:
    """What is here, what is missing and what to do about it."""
    return int(importlib.import_module("longrein.doctor").doctor(survey(options)))


def run_trust(options: Options, undo: bool) -> int:
    """Trust the present folder: its own settings file is read from now on; or no longer."""
    place = survey(options)
    if undo:
        distrust(place.state_dir, place.cwd)
    else:
        trust(place.state_dir, place.cwd, place.home)
    say(f"{place.cwd} is {'no longer ' if undo else ''}trusted")
    return 0


def run_demo(argv: Sequence[str]) -> int:
    """A real small job, offline."""
    return int(importlib.import_module("longrein.demo").demo(argv))
