"""`longrein sessions`, `export`, `context` and `search`: read stored sessions, which may be open
elsewhere.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import BinaryIO

from longrein import __version__
from longrein.agent import StoredStates
from longrein.app.app import App
from longrein.app.run_context import CLOCK, RunContext, budget_of
from longrein.app.session_export import exporters, write_new_file, write_page
from longrein.frontends.argv import clean
from longrein.frontends.reports import context as context_page
from longrein.frontends.reports import session_lists as listing
from longrein.frontends.reports.open_sessions import OpenSessionList, OpenSessionRow
from longrein.frontends.secret_input import is_confirmed
from longrein.frontends.stdio import say, show, stdout_file
from longrein.steps.human_text import counted, escape_line
from longrein.store import (
    BundleReport,
    Reader,
    export_jsonl,
    find_session,
    freed_bytes,
    list_sessions,
    session_info,
    write_bundle,
    write_transcript,
)
from longrein_context import State, fold, next_compacted, report, state_at
from longrein_context.events import Asked, Entry, LongreinError, SessionError, UsageError

USAGE = (
    "longrein sessions [delete ID... | prune --days N | prune --keep-mb N]; "
    "see longrein sessions --help"
)
DAY_US = 86_400_000_000
QUESTION = "Delete them? [y/n] "
LOOK_S = 1.0
"""Pause between two looks at the open sessions."""


def sessions(  # noqa: PLR0913 - one for each flag
    run_context: RunContext,
    words: Sequence[str],
    *,
    json: bool = False,
    days: int = -1,
    keep_mb: int = -1,
    here: bool = False,
    one_shot: bool = False,
    yes: bool = False,
    watch: bool = False,
) -> int:
    """List the sessions, newest first, or delete some; 1 when one could not be deleted."""
    if watch:
        asyncio.run(_watch_open_sessions(run_context))
    infos = list_sessions(run_context.state_dir)
    if [*words] != ["prune"] and (days >= 0 or keep_mb >= 0 or here or one_shot or yes):
        raise UsageError("--days, --keep-mb, --here, --one-shot and --yes are for `prune`")
    if not words:
        show(listing.as_json(infos) if json else listing.as_table(infos))
        return 0
    if words[0] == "delete" and words[1:]:
        ids = [find_session(run_context.state_dir, word) for word in words[1:]]
        return _delete(run_context, ids)
    if [*words] != ["prune"]:
        raise UsageError(f"what is to be done with {escape_line(' '.join(words))}? {USAGE}")
    one_shot_days = run_context.settings.sessions.one_shot_days
    if days < 0 and keep_mb < 0 and not one_shot_days:
        raise UsageError("say which sessions go: --days N, --keep-mb N, or both")
    candidates = [
        info
        for info in infos
        if not info.open
        and not info.damaged
        and (not here or info.cwd == run_context.cwd)
        and info.one_shot >= one_shot
    ]
    chosen = listing.to_prune(
        [(info, freed_bytes(info.folder)) for info in candidates],
        CLOCK.wall_us() - days * DAY_US if days >= 0 else 0,
        CLOCK.wall_us() - one_shot_days * DAY_US if one_shot_days else 0,
        keep_mb * 1_000_000 if keep_mb >= 0 else None,
    )
    if not chosen:
        say("no session is that old or too much")
        return 0
    show(listing.pruned_table(chosen))
    if not (yes or is_confirmed(QUESTION)):
        say("nothing was deleted; --yes deletes it without a question")
        return 0
    still = {info.session: info.updated_at for info in list_sessions(run_context.state_dir)}
    gone = [info for info, _ in chosen if still.get(info.session) == info.updated_at]
    return _delete(run_context, [info.session for info in gone])


async def _watch_open_sessions(run_context: RunContext) -> None:
    """Show the open sessions whenever that has changed, until Ctrl-C."""
    before = None
    sessions = OpenSessionList(run_context.state_dir)
    while True:
        rows = [*map(_open_row, sessions.look())]
        if rows != before:
            heads = ("session", "state", "folder", "title")
            show(listing.table([heads, *rows, ("",) * 4]) if rows else b"no session is open\n")
            before = rows
        await CLOCK.sleep(LOOK_S)


def _open_row(one: OpenSessionRow) -> tuple[str, ...]:
    words = f"{one.state}: {one.question}" if one.question else one.state
    return one.session, *map(escape_line, (words, one.cwd, one.title))


def _delete(run_context: RunContext, ids: Sequence[str]) -> int:
    app, failed = App(run_context, say), 0
    for session in ids:
        try:
            asyncio.run(app.delete(session))
        except SessionError as error:
            say(str(error))
            failed = 1
        else:
            show(f"{session} is gone\n")
    return failed


def export(
    run_context: RunContext,
    words: Sequence[str],
    *,
    format: str = "",  # noqa: A002
    output: str = "",
    whole: bool = False,
) -> int:
    """Export one session in one of the formats, or with `whole` as a bundle for another machine."""
    known = exporters(run_context.settings.plugins)
    session = find_session(run_context.state_dir, words[0])
    if whole:
        return _export_whole(run_context.state_dir, session, format, output)
    with closing(Reader(run_context.state_dir, session)) as reader:
        if format == "transcript":
            say(f"written to {write_transcript(output or '.transcripts', reader.entries())}")
        elif format in known:
            page = known[format].load()(reader)
            _export(lambda file: write_page(page, file), output)
        else:
            _export(lambda file: export_jsonl(reader, file), output)
    return 0


def _export_whole(state_dir: str, session: str, form: str, output: str) -> int:
    if form:
        raise UsageError("--whole has a format of its own: leave out --format")
    if not output and os.isatty(1):
        raise UsageError("--whole writes a file: name it with -o, such as -o session.zip")
    reports: list[BundleReport] = []
    _export(
        lambda file: reports.append(write_bundle(state_dir, session, file, __version__)),
        output,
    )
    for done in reports:
        missing = f"; {counted(done.missing, 'blob')} gone or damaged" if done.missing else ""
        say(f"{counted(done.entries, 'entry')}, {counted(done.blobs, 'blob')} written{missing}")
    return 0


def _export(write: Callable[[BinaryIO], object], out: str) -> None:
    """Write to the new file `out`, or to stdout."""
    if out:
        write_new_file(write, out)
        return
    try:
        with stdout_file() as file:
            write(file)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise LongreinError(f"stdout cannot be written: {error.strerror}") from None


def context(
    run_context: RunContext, words: Sequence[str], *, json: bool = False, as_sent: int = 0
) -> int:
    """Show what fills the context of one session, or one of its requests (`as_sent`, from 1)."""
    with closing(
        Reader(run_context.state_dir, find_session(run_context.state_dir, words[0]))
    ) as reader:
        if as_sent:
            entries = list(reader.entries())
            show(context_page.as_sent(_state_of_request(entries, as_sent)))
            return 0
        stored = StoredStates(
            reader.session, lambda first, last: reader.entries(first - 1, last), reader.snapshot
        )
        state = state_at(stored, reader.tail()[0])
    budget = budget_of(run_context, state)
    told = report(state, budget, next_compacted(state, budget))
    model = f"{state.prefix.provider}/{state.prefix.model}" if state.prefix else ""
    show(context_page.as_json(told, state, model) if json else context_page.as_text(told))
    return 0


def _state_of_request(entries: Sequence[Entry], number: int) -> State:
    """Return the state with which a request was made. Raises `UsageError` where there is none."""
    asked = [
        at
        for at, entry in enumerate(entries, 1)
        if isinstance(entry.event, Asked) and entry.event.purpose == "turn"
    ]
    if number > len(asked):
        raise UsageError(f"the session has {counted(len(asked), 'request')}; there is no {number}")
    return fold(entries[: asked[number - 1]])


def search(
    run_context: RunContext,
    words: Sequence[str],
    *,
    session: str = "",
    every: bool = False,
    json: bool = False,
    page: int = 1,
) -> int:
    """Search stored sessions; 1 when nothing is found."""
    query = clean(" ".join(words))
    if every and session:
        raise UsageError("--session and --all say two things: give one of them")
    if not query.strip('" '):
        raise UsageError("what is to be found? longrein search QUERY")
    if session:
        one = session_info(run_context.state_dir, find_session(run_context.state_dir, session))
        infos = [one] if one is not None else []
    else:
        infos = [
            info
            for info in list_sessions(run_context.state_dir)
            if every or info.cwd == run_context.cwd
        ]
    found = listing.search_sessions(run_context.state_dir, infos, query, say)
    show(listing.hits_as_json(found) if json else listing.hits_as_text(found, page))
    if not found:
        say(listing.no_hits_text(query, len(infos), widest=every or bool(session)))
    return 0 if found else 1
