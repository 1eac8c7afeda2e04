"""A running longrein: its settings and folders, the sessions it has stored, and how to open one."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TypeVar

import msgspec

from longrein import __version__
from longrein.app.additions import NOTHING_ADDED, Additions
from longrein.app.app_session import AppSession
from longrein.app.builder import build
from longrein.app.run_context import (
    CLOCK,
    RunContext,
    chosen_model,
    fork,
    model_names,
    named_budget,
    read_run_context,
)
from longrein.config import full_model_name, keep_setting, user_file
from longrein.options import Options
from longrein.store import (
    Reader,
    SessionInfo,
    find_session,
    is_open,
    list_sessions,
)
from longrein.store.daemon_threads import run_in_thread
from longrein.store.session_store import existing_folder
from longrein.workspace import spooled_tasks
from longrein_context import Budget
from longrein_context.events import SessionBusy

T = TypeVar("T")


class App:
    """A longrein of which terminal, headless runs, editors and programs are clients."""

    version = __version__

    def __init__(self, context: RunContext, say: Callable[[str], None]) -> None:
        """`say` tells the user a line where no session is open."""
        self.context = context
        self.say = say

    def in_folder(self, folder: str, add_dirs: Sequence[str] = ()) -> "App":
        """Return the same longrein in another folder, with the settings of that folder."""
        options = Options(state_dir=self.context.state_dir, add_dirs=tuple(add_dirs))
        there = read_run_context(options, folder=folder)
        is_interactive = self.context.is_interactive
        return App(msgspec.structs.replace(there, is_interactive=is_interactive), self.say)

    def with_folder(self, folder: str) -> "App":
        """Return the same longrein, whose sessions may also work in `folder`."""
        roots = (*self.context.roots, folder)
        return App(msgspec.structs.replace(self.context, roots=roots), self.say)

    # --- Sessions ---------------------------------------------------------------------------------

    async def open(
        self, session: str = "", *, fresh: bool = False, additions: Additions = NOTHING_ADDED
    ) -> AppSession:
        """Open the session that the options ask for, or `session`, or with `fresh` a new one.

        Raises longrein's own errors: `ModelUnknown`, `SessionUnknown`, `SessionBusy`,
        `StoreDamaged`, `BudgetError` …
        """
        return await build(self, session, fresh=fresh, additions=additions)

    def sessions(self) -> Sequence[SessionInfo]:
        """Return all stored sessions, newest first."""
        return list_sessions(self.context.state_dir)

    def find(self, written: str) -> str:
        """Return the id of the session that the user names. Raises `SessionUnknown`."""
        return find_session(self.context.state_dir, written)

    def is_open(self, written: str) -> bool:
        """Return True for a session that a process has open."""
        return is_open(self.context.state_dir, self.find(written))

    async def read(self, session: str, work: Callable[[Reader], T]) -> T:
        """Run `work` on the log of a stored session, in a thread."""

        def read() -> T:
            with closing(Reader(self.context.state_dir, session)) as reader:
                return work(reader)

        return await asyncio.wrap_future(run_in_thread(read, "preview"))

    async def fork(self, session: str) -> str:
        """Copy a stored session; return the id of the copy."""
        return await fork(self.context, session)

    async def delete(self, session: str) -> None:
        """Delete a stored session. Raises `SessionUnknown`, `SessionBusy` where it is open or has
        running tasks.
        """
        folder = existing_folder(self.context.state_dir, session)
        if any(task.state == "running" for task in spooled_tasks(folder)):
            raise SessionBusy(
                f"session {session} has background tasks that still run; stop them first"
            )
        from longrein.store.deletion import delete_session

        await delete_session(self.context.state_dir, session, wall_us=CLOCK.wall_us)

    async def export(self, session: str, path: str) -> None:
        """Write a stored session to a new file, in the format of its ending. Raises
        `LongreinError`.
        """
        from longrein.app.session_export import export_file

        settings = self.context.settings
        work = partial(export_file, self.context.state_dir, settings.plugins, session, path)
        await asyncio.wrap_future(run_in_thread(work, "export"))

    # --- Models -----------------------------------------------------------------------------------

    def check_model(self) -> None:
        """Raise `ModelUnknown` when neither settings nor keys offer a model.

        Settings are read anew, as the user may just have changed them.
        """
        chosen_model(read_run_context(self.context.options, folder=self.context.cwd))

    def models(self, present: str) -> Sequence[str]:
        """Return the models to choose from, `present` first."""
        return model_names(self.context, present)

    def resolve_model(self, name: str) -> str:
        """Return `provider/model` of a model, '' for the default. Raises `LongreinError`."""
        full = full_model_name(name, self.context.settings, self.context.key_environ)
        chosen = chosen_model(self.context, full)
        return f"{chosen.provider}/{chosen.model}"

    def budget(self, name: str) -> Budget:
        """Return the budget of the model `provider/model`."""
        return named_budget(self.context, name)

    # --- Settings and files -----------------------------------------------------------------------

    @property
    def settings_file(self) -> str:
        """The user's settings file."""
        return user_file(self.context.environ, self.context.home)

    def keep_setting(self, path: Sequence[str], value: str) -> str:
        """Write a setting into the user's file; return what is written there. Raises
        `SettingsError`.
        """
        return keep_setting(path, value, self.context.environ, self.context.home)

    @property
    def leave_policy(self) -> str:
        """Policy for running tasks when the user leaves: `ask`, `stop` or `keep`."""
        return self.context.settings.tasks.policy or "ask"

    @property
    def is_root(self) -> bool:
        """True if longrein runs as root."""
        return os.geteuid() == 0

    def is_first_run(self) -> bool:
        """Return True if no session has been stored yet but the present one."""
        try:
            return len(os.listdir(f"{self.context.state_dir}/sessions")) <= 1
        except OSError:
            return True

    def kept_file(self, folder: str) -> str:
        """Return the path in `folder` of the state at which something is kept for this project."""
        name = self.context.cwd.strip("/").replace("/", "-")[-200:] or "root"
        return os.path.join(self.context.state_dir, folder, name)

    def note_files(self) -> Sequence[tuple[str, str]]:
        """Return (label, path) of the instruction files that notes are added to: that of the
        project, which may not exist yet, and the user's own.
        """
        from longrein.app.session_details import note_files

        return note_files(self.context)
