"""The page of a fleet: figures of all its tasks, and when it is served the page of each session.

The breaks of a session's cache are counted from a few of its entries, one session after the other.
"""

import os
import threading
from collections.abc import Callable
from contextlib import closing
from functools import cache

import msgspec

from longrein.app.run_context import RunContext, named_budget
from longrein.extensions.inspector.inspect_command import (
    PAGE,
    StoredLogs,
    deliver,
    has_browser,
    read_session,
    serve_page,
)
from longrein.extensions.inspector.inspection import inspect_session
from longrein.extensions.inspector.model_requests import BREAK_EVENTS, causes_of_breaks
from longrein.extensions.inspector.page import render
from longrein.extensions.inspector.page_data import VERSION, FleetInspection, FleetTask
from longrein.store import Reader
from longrein_context import Budget
from longrein_context.events import LongreinError, PrefixSet, SessionUnknown, UsageError

__all__ = ["VERSION", "FleetInspection", "FleetPage", "FleetTask", "show_fleet"]

ENDED = ("done", "failed")


class FleetPage:
    """The pages of a fleet. Thread-safe; makes one page at a time."""

    def __init__(
        self, run_context: RunContext, read: Callable[[], FleetInspection], *, live: bool
    ) -> None:
        """`read` returns the present state of the fleet, without breaks."""
        self._place, self._read, self._live = run_context, read, live
        self._known: dict[str, FleetTask] = {}
        """Tasks that have ended, by session."""
        self._lock = threading.Lock()
        self._budget = cache(lambda name: named_budget(run_context, name))

    def inspection(self) -> FleetInspection:
        """Return the present state of the fleet. Raises what `read` raises."""
        found = self._read()
        tasks = [self._with_breaks(task) for task in found.tasks]
        return msgspec.structs.replace(found, tasks=tasks, live=self._live)

    def html(self, path: str, token: str) -> bytes | None:  # noqa: ARG002 - no events are asked for
        """Return the page of the fleet, or at `/SESSION` that of a session of it."""
        session = path[1:]
        try:
            with self._lock:
                if not session:
                    return render(msgspec.json.encode(self.inspection()))
                if session in [task.session for task in self._read().tasks]:
                    return self._session_page(session)
        except LongreinError:
            pass  # it has been deleted since its link was made
        return None

    def live(self, path: str) -> None:
        """See `Pages.live`: no page of a fleet sends events."""

    def end(self) -> None:
        """See `Pages.end`: no browser waits for events."""

    def _session_page(self, session: str) -> bytes:
        with closing(StoredLogs(self._place.state_dir, session)) as logs:
            return render(msgspec.json.encode(inspect_session(read_session(self._place, logs))))

    def _with_breaks(self, task: FleetTask) -> FleetTask:
        known = self._known.get(task.session)
        if known is not None and msgspec.structs.replace(known, breaks=[], missing="") == task:
            return known
        breaks = list[str]()
        missing = ""
        try:
            if task.session:
                breaks = self._breaks(task.session)
        except SessionUnknown:
            missing = "not stored"
        except LongreinError:
            missing = "damaged"
        task = msgspec.structs.replace(task, breaks=breaks, missing=missing)
        if task.outcome in ENDED:
            self._known[task.session] = task
        return task

    def _breaks(self, session: str) -> list[str]:
        with closing(Reader(self._place.state_dir, session)) as reader:
            entries = list(reader.of_kind(*BREAK_EVENTS))
        return causes_of_breaks(reversed(entries), self._budget_of)

    def _budget_of(self, prefix: PrefixSet | None) -> Budget:
        return self._budget(f"{prefix.provider}/{prefix.model}" if prefix else "/")


def show_fleet(
    run_context: RunContext,
    read: Callable[[], FleetInspection],
    folder: str,
    *,
    out: str,
    no_open: bool,
    live: bool,
) -> int:
    """Write the page of a fleet, by default into `folder`, or with `live` serve it; return the
    exit code.
    """
    if live and out:
        raise UsageError("--live writes no file: leave out --out")
    opens = not no_open and has_browser(run_context.environ)
    page = FleetPage(run_context, read, live=live)
    if live:
        serve_page(
            page, "the fleet as it is when it is loaded", threading.Event().wait, opens=opens
        )
        return 0
    data = render(msgspec.json.encode(page.inspection()))
    deliver(data, out or os.path.join(folder, PAGE), is_new=bool(out), opens=opens)
    return 0
