"""The interactive hall: one session after another in the terminal, until the user leaves."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime

from longrein import __version__
from longrein.build import Built, build
from longrein.config import project_root
from longrein.context import analyse, analysis_lines, next_to_go, reasons, report
from longrein.events import LongreinError
from longrein.frontends.options import Options
from longrein.frontends.stderr import say
from longrein.frontends.tasks_page import tail_of
from longrein.frontends.terminal import Outcome, SessionRow, TerminalFacts, run_terminal
from longrein.models import known_models, known_providers, look_up
from longrein.place import CLOCK, Place, discard_unused, fork, survey
from longrein.store import USER, Archive, Goals, SessionInfo, list_sessions, project_key
from longrein.workspace import run_git, spooled_tasks, stop_spooled

FILES_MAX = 50_000
"""Paths offered after `@`."""
ROWS_MAX = 30
"""Sessions shown by `/resume`."""


async def talk(options: Options) -> int:
    """Open what the options ask for, then what the user asks for; gives the exit code."""
    place = survey(options)
    built = await build(place)
    prompt, choosing = options.prompt, options.resume == ""
    while True:
        outcome = await _one(place, built, prompt, choosing=choosing)
        left = built.session
        if outcome.kind == "exit":
            await discard_unused(place, left.id, said=bool(left.state.words or left.pending))
            return outcome.code
        try:
            copied = choosing and options.fork_session and outcome.kind == "switch"
            session = await fork(place, outcome.session) if copied else outcome.session
            built, prompt, choosing = await build(place, session, fresh=outcome.kind == "new"), "", False
            await discard_unused(place, left.id, said=bool(left.state.words or left.pending))
        except LongreinError as error:
            say(str(error))
            built, prompt = await build(place, built.session.id), ""


async def _one(place: Place, built: Built, prompt: str, *, choosing: bool) -> Outcome:
    folder = os.path.join(place.state_dir, "history")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    outcome = await run_terminal(
        built.session,
        facts=_facts(place, built, choosing=choosing),
        complete_files=lambda typed: _files(built, typed),
        history=os.path.join(folder, place.cwd.strip("/").replace("/", "-")[-200:] or "root"),
        plain=place.options.plain or place.environ.get("TERM", "dumb") in ("dumb", ""),
        prompt=prompt,
    )
    if outcome.tasks == "stop":
        await _end_tasks(built.log.folder)
    return outcome


async def _end_tasks(folder: str) -> None:
    """End what still runs of a session that is closed; its next start takes the ends into the log."""
    running = [one.task for one in spooled_tasks(folder) if one.state == "running"]
    if running:
        say(f"ending {', '.join(running)}")
        await asyncio.gather(*(stop_spooled(folder, task, "stopped by longrein on leaving") for task in running))


def _facts(place: Place, built: Built, *, choosing: bool) -> TerminalFacts:
    crew, session = built.crew, built.session
    return TerminalFacts(
        model=crew.model.name,
        cwd=session.state.cwd,
        version=__version__,
        notices=built.notes,
        colour=not place.environ.get("NO_COLOR"),
        window_tokens=lambda: crew.model.budget.usable_tokens,
        context_report=lambda: report(session.state, crew.model.budget, next_to_go(session.state, crew.model.budget)),
        reasons=lambda handle: reasons(session.state, crew.model.budget, handle),
        analysis=lambda: analysis_lines(analyse(session.state, crew.model.budget)),
        sessions=lambda: _sessions(place),
        models=lambda: _models(place, crew.model.name),
        file_text=lambda path: _text(built, path),
        wall_us=CLOCK.wall_us,
        task_tail=lambda task, lines: _tail(place, built, task, lines),
        goals=Goals(
            place.state_dir, project_key(project_root(crew.workspace.roots[0])), USER, CLOCK.wall_us, redact=crew.redact
        ),
        leave_policy=place.settings.task_policy or "ask",
        choosing=choosing,
    )


async def _tail(place: Place, built: Built, task: str, lines: int) -> str:
    archive = Archive(place.state_dir, built.session.id)
    return await archive.reading(lambda past: tail_of(past, built.log.folder, task, lines))


async def _sessions(place: Place) -> Sequence[SessionRow]:
    """Those of this folder in which something was said."""
    infos = [info for info in list_sessions(place.state_dir) if info.cwd == place.cwd and info.title]
    return [SessionRow(info.session, info.title, _when(info)) for info in infos[:ROWS_MAX]]


def _when(info: SessionInfo) -> str:
    return datetime.fromtimestamp(info.updated_at / 1e6, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _models(place: Place, present: str) -> Sequence[str]:
    """The present model, those of the settings, then those of providers whose key is here."""
    with_key = [known.name for known in known_providers() if any(place.environ.get(key) for key in known.keys)]
    offered = [f"{name}/{model}" for name in with_key for model in known_models() if look_up(name, model).price]
    return list(dict.fromkeys((present, *place.settings.models, *offered)))


def _text(built: Built, path: str) -> str | None:
    workspace = built.crew.workspace
    try:
        found = workspace.look(path, built.session.state.cwd)
        return workspace.read(found.real, 1_000_000).decode("utf-8", "replace") if found.kind == "file" else None
    except OSError:
        return None


async def _files(built: Built, typed: str) -> Sequence[str]:
    """Paths that hold `typed`: those git knows, else those of a walk that stops in time."""
    workspace, cwd = built.crew.workspace, built.session.state.cwd
    code, listed = await run_git(workspace, ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd)
    if code == 0:
        paths = listed.decode("utf-8", "surrogateescape").split("\0")[:FILES_MAX]
    else:
        paths = []
        workspace.walk(cwd, lambda path, folder: _note(paths, path, folder, cwd), limit_s=0.3)
    wanted = typed.lower()
    return sorted((path for path in paths if wanted in path.lower()), key=lambda path: (len(path), path))[:50]


def _note(paths: list[str], path: str, folder: bool, cwd: str) -> bool:
    if not folder:
        paths.append(os.path.relpath(path, cwd))
    return len(paths) < FILES_MAX
