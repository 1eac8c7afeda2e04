"""`longrein sessions`, `export`, `context` and `search`: read stored sessions, which may be open
elsewhere.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import BinaryIO

from longrein import __version__
from longrein.app.run_context import RunContext, budget_of
from longrein.config import door_points
from longrein.context import fold, next_compacted, report
from longrein.events import LongreinError, UsageError
from longrein.extension_points import EXPORTERS_DOOR, Point
from longrein.frontends.argv import clean
from longrein.frontends.reports import context as context_page
from longrein.frontends.reports import session_lists as listing
from longrein.frontends.reports import session_lists as search_page
from longrein.frontends.stdio import say, show, stdout_file
from longrein.steps.human_text import counted
from longrein.store import (
    BundleReport,
    Reader,
    export_jsonl,
    find_session,
    list_sessions,
    session_info,
    write_bundle,
    write_transcript,
)


def sessions(place: RunContext, _words: Sequence[str], *, json: bool = False) -> int:
    """List the sessions, newest first."""
    infos = list_sessions(place.state_dir)
    show(listing.as_json(infos) if json else listing.as_table(infos))
    return 0


def export(
    place: RunContext,
    words: Sequence[str],
    *,
    format: str = "",  # noqa: A002
    output: str = "",
    whole: bool = False,
) -> int:
    """Export one session in one of the formats, or with `whole` as a bundle for another machine."""
    exporters = _exporters(place)
    session = find_session(place.state_dir, words[0])
    if whole:
        return _export_whole(place, session, format, output)
    with closing(Reader(place.state_dir, session)) as reader:
        if format == "transcript":
            say(f"written to {write_transcript(output or '.transcripts', reader.entries())}")
        elif format in exporters:
            page = exporters[format].load()(reader)
            _export(lambda file: file.write(page), output)
        else:
            _export(lambda file: export_jsonl(reader, file), output)
    return 0


def _exporters(place: RunContext) -> dict[str, Point]:
    """Return the formats of extensions, each with the function from a `Reader` to the bytes."""
    points = door_points(EXPORTERS_DOOR, place.settings.plugins)
    return {point.name: point for point in reversed(points)}  # those of longrein come first


ENDINGS = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "atif",
    ".jsonl": "",
}
"""Ending of a file -> its format, '' for the entries of the log. Another ending is the name of the
format.
"""


def export_file(place: RunContext, session: str, path: str) -> None:
    """Write a session to the new file `path`, in the format of its ending. Raises `UsageError`,
    `LongreinError`.
    """
    ending = os.path.splitext(path)[1].lower()
    exporters = _exporters(place)
    name = ENDINGS.get(ending, ending[1:])
    if name and name not in exporters:
        known = [one for one, form in ENDINGS.items() if form in exporters or not form]
        raise UsageError(f"{path}: give it one of the endings {', '.join(known)}")
    if os.path.lexists(path):
        raise UsageError(f"{path} is there already: name another file")
    with closing(Reader(place.state_dir, session)) as reader:
        if name:
            text = exporters[name].load()(reader)
            _export(lambda file: file.write(text), path)
        else:
            _export(lambda file: export_jsonl(reader, file), path)


def _export_whole(place: RunContext, session: str, form: str, output: str) -> int:
    if form:
        raise UsageError("--whole has a format of its own: leave out --format")
    if not output and os.isatty(1):
        raise UsageError("--whole writes a file: name it with -o, such as -o session.zip")
    reports: list[BundleReport] = []
    _export(
        lambda file: reports.append(write_bundle(place.state_dir, session, file, __version__)),
        output,
    )
    for done in reports:
        missing = f"; {counted(done.missing, 'blob')} gone or damaged" if done.missing else ""
        say(f"{counted(done.entries, 'entry')}, {counted(done.blobs, 'blob')} written{missing}")
    return 0


def _export(write: Callable[[BinaryIO], object], out: str) -> None:
    """Write to the new file `out`, or to stdout. A file that cannot be completed is removed."""
    try:
        with open(out, "xb", opener=_private) if out else stdout_file() as file:
            try:
                write(file)
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


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def context(place: RunContext, words: Sequence[str], *, json: bool = False) -> int:
    """Show what fills the context of one session."""
    with closing(Reader(place.state_dir, find_session(place.state_dir, words[0]))) as reader:
        state = fold(list(reader.entries()))
    budget = budget_of(place, state)
    told = report(state, budget, next_compacted(state, budget))
    model = f"{state.prefix.provider}/{state.prefix.model}" if state.prefix else ""
    show(context_page.as_json(told, state, model) if json else context_page.as_text(told))
    return 0


def search(
    place: RunContext,
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
        one = session_info(place.state_dir, find_session(place.state_dir, session))
        infos = [one] if one is not None else []
    else:
        infos = [info for info in list_sessions(place.state_dir) if every or info.cwd == place.cwd]
    found = search_page.search_sessions(place.state_dir, infos, query, say)
    show(search_page.hits_as_json(found) if json else search_page.hits_as_text(found, page))
    if not found:
        say(search_page.no_hits_text(query, len(infos), widest=every or bool(session)))
    return 0 if found else 1
