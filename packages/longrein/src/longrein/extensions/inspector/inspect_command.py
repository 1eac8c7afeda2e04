"""`longrein inspect`: a session as a page in the browser, as a file or served while the session
runs.
"""

import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from longrein.app.run_context import RunContext, named_budget
from longrein.atomic_file import replace_file
from longrein.extensions.inspector.inspection import SessionInspector, inspect_session
from longrein.extensions.inspector.page import render
from longrein.extensions.inspector.page_data import Comparison, Inspection, OpenSessionsData
from longrein.extensions.inspector.page_server import (
    InspectorServer,
    LivePage,
    Pages,
    session_page,
)
from longrein.extensions.inspector.shorten import PAGE_BYTES_MAX, fit
from longrein.frontends.reports.open_sessions import OpenSessionList
from longrein.frontends.stdio import say, show
from longrein.steps.human_text import counted, size
from longrein.store import Reader, chosen_session, is_open
from longrein_context.events import Entry, LongreinError, SessionUnknown, UsageError

PAGE, COMPARISON = "inspect.html", "compare.html"
"""Names of the pages in the folder of a session."""
POLL_S = 1.0
"""Time between two looks at the logs of a live page."""


class StoredLogs:
    """Reads the logs of a session and its subagents from its database. For one thread at a time."""

    def __init__(self, state_dir: str, session: str) -> None:
        """Raises `SessionUnknown`."""
        self._state_dir, self._session = state_dir, session
        self._reader = Reader(state_dir, session)
        self._children: dict[str, Reader] = {}

    def entries(self, session: str, after: int) -> Iterable[Entry] | None:
        """Return the entries of a subagent, or with '' of the session, after seq `after`; None if
        there is no log.

        Entries that a subagent shares with its parent are left out. Raises `StoreDamaged`,
        `SessionReadOnly`.
        """
        if not session:
            return self._reader.entries(after)
        if session not in self._children:
            found = self._reader.subagent(session)
            if found is None:
                return None
            self._children[session] = found
        reader = self._children[session]
        return reader.entries(max(after, reader.first - 1))

    def is_open(self) -> bool:
        return is_open(self._state_dir, self._session)

    def title(self) -> str:
        return self._reader.about()[2]

    @property
    def folder(self) -> str:
        return self._reader.folder

    def close(self) -> None:
        self._reader.close()


def inspect(
    run_context: RunContext,
    words: Sequence[str],
    *,
    out: str = "",
    no_open: bool = False,
    live: bool = False,
    compare: bool = False,
) -> int:
    """Write the page of a session, or with `live` serve it; return the exit code."""
    if live and (compare or out):
        raise UsageError(
            "--live writes no file and shows one session or all open ones: leave out --compare "
            "and --out"
        )
    opens = not no_open and has_browser(run_context.environ)
    if compare:
        return _compare(run_context, words, out, opens=opens)
    if len(words) > 1:
        raise UsageError("one session at a time; two side by side: longrein inspect --compare A B")
    if live and not words:
        pages = OpenSessionsPages(run_context)
        serve_page(pages, "all open sessions", pages.look, opens=opens)
        return 0
    with closing(_logs(run_context, words)) as logs:
        if live:
            session = FollowedSession(run_context, logs)
            serve_page(session.page, "the session as it grows", session.look, opens=opens)
            return 0
        found = inspect_session(read_session(run_context, logs))
        page = render(msgspec.json.encode(found))
        deliver(page, out or os.path.join(logs.folder, PAGE), is_new=bool(out), opens=opens)
    _tell_left_out(found)
    return 0


def _logs(run_context: RunContext, words: Sequence[str]) -> StoredLogs:
    """Open the logs of the session that `words` name, else of the folder's newest."""
    found = chosen_session(run_context.state_dir, run_context.cwd, words[0] if words else "")
    if not found:
        raise SessionUnknown(
            f"there is no session of {run_context.cwd}; `longrein sessions` lists those of other "
            "folders"
        )
    return StoredLogs(run_context.state_dir, found)


def read_session(run_context: RunContext, logs: StoredLogs) -> SessionInspector:
    """Return the inspector of a session that has read its logs."""
    inspector = SessionInspector(logs, lambda name: named_budget(run_context, name))
    inspector.read()
    return inspector


# --- Files ----------------------------------------------------------------------------------------


def deliver(page: bytes, path: str, *, is_new: bool, opens: bool) -> None:
    """Write a page for its owner alone and open it. `is_new`: refuse to replace a file."""
    path = os.path.abspath(path)
    if is_new and os.path.lexists(path):
        raise UsageError(f"{path} is there already; name another file with --out")
    try:
        replace_file(path, [page], durable=False)
    except OSError as error:
        raise LongreinError(
            f"{path} cannot be written: {error.strerror}; name another file with --out"
        ) from None
    say(f"{size(len(page))} written:")
    show(f"{path}\n")
    if opens:
        webbrowser.open(Path(path).as_uri())


def _tell_left_out(found: Inspection) -> None:
    left = found.left_out
    if left.bodies:
        say(
            f"{counted(left.bodies, 'text')} above {size(left.above_bytes)} were shortened, "
            f"{size(left.bytes)} in all"
        )
    if left.rows:
        say(f"the oldest {counted(left.rows, 'row')} of the transcript were left out")
    if left.subagents:
        say(f"the logs of {counted(left.subagents, 'subagent')} were left out")


def has_browser(environ: Mapping[str, str]) -> bool:
    """Return True if there is a browser with windows of its own, so that none takes the
    terminal.
    """
    named = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(environ.get(name) for name in named)


# --- Two side by side -----------------------------------------------------------------------------


def _compare(run_context: RunContext, words: Sequence[str], out: str, *, opens: bool) -> int:
    """Write the page of two sessions."""
    if len(words) != 2:
        raise UsageError("--compare takes two sessions")
    with (
        closing(_logs(run_context, words)) as logs,
        closing(_logs(run_context, words[1:])) as others,
    ):
        found = Comparison(
            _half(read_session(run_context, logs)), _half(read_session(run_context, others))
        )
        page = render(msgspec.json.encode(found))
        deliver(page, out or os.path.join(logs.folder, COMPARISON), is_new=bool(out), opens=opens)
    return 0


def _half(inspector: SessionInspector) -> Inspection:
    return fit(inspect_session(inspector), PAGE_BYTES_MAX // 2)


# --- Live -----------------------------------------------------------------------------------------


def serve_page(page: Pages, shown: str, look: Callable[[], object], *, opens: bool) -> None:
    """Tell the address of a page and serve it until Ctrl-C. `look` shows what is new in it."""
    pause = threading.Event()
    with InspectorServer(page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            say(
                f"the page shows {shown}; Ctrl-C ends it. Whoever has this address can read all "
                "that is shown:"
            )
            show(f"{server.url}\n")
            if opens:
                webbrowser.open(server.url)
            while not pause.wait(POLL_S):
                look()
        except KeyboardInterrupt:
            pass
        finally:
            server.finish()


class FollowedSession:
    """A stored session with its live page, also while no process has it open."""

    def __init__(self, run_context: RunContext, logs: StoredLogs, path: str = "/") -> None:
        self._logs = logs
        self._inspector = read_session(run_context, logs)
        self.page = session_page(inspect_session(self._inspector), path)

    def look(self) -> None:
        """Show new entries, of this run of the session and of later ones."""
        is_open = self._logs.is_open()
        if self._inspector.read() or is_open != self.page.current()[1].session.open:
            self.page.show(self._inspector.inspection())


class OpenSessionsPages:
    """The page of the open sessions, and at `/SESSION` that of each session that was shown there.

    `look` may run in one thread while others ask for pages.
    """

    def __init__(self, run_context: RunContext) -> None:
        self._run_context = run_context
        self._list = OpenSessionList(run_context.state_dir)
        first = OpenSessionsData(self._list.look())
        self._page: LivePage[OpenSessionsData] = LivePage(first, lambda _, now: (now, now))
        self._followed: dict[str, FollowedSession] = {}
        self._reading = threading.Lock()

    def look(self) -> None:
        """Show what is new in the list and in the sessions that were opened."""
        with self._reading:
            now = OpenSessionsData(self._list.look())
            for session in self._followed.values():
                with suppress(LongreinError):  # it has been deleted
                    session.look()
        if now != self._page.current()[1]:
            self._page.show(now)

    def html(self, path: str, token: str) -> bytes | None:
        """See `Pages.html`."""
        with self._reading, suppress(LongreinError):
            if path not in self._followed and path[1:] in self._list.states:
                logs = StoredLogs(self._run_context.state_dir, path[1:])
                self._followed[path] = FollowedSession(self._run_context, logs, path)
        page = self.live(path)
        return page.html(path, token) if page else None

    def live(self, path: str) -> LivePage[Any] | None:
        """See `Pages.live`."""
        return self._followed[path].page if path in self._followed else self._page.live(path)

    def end(self) -> None:
        """See `Pages.end`."""
        self._page.end()
        for session in self._followed.values():
            session.page.end()
