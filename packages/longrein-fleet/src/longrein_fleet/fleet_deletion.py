"""Deletion of a fleet that nobody runs: its folder, and the sessions of its attempts."""

import os

import msgspec

from longrein.app.app import App
from longrein.app.run_context import CLOCK, RunContext
from longrein.folder_trees import remove_tree
from longrein.store.deletion import stored_bytes
from longrein.store.session_folder import session_folder
from longrein.store.session_store import store_with
from longrein_context.events import LongreinError, SessionError
from longrein_fleet.fleet_log import EVENTS, fleet_folder, open_fleet_log, read_fleet
from longrein_fleet.fleet_state import TaskStarted, decode_events


class Deletion(msgspec.Struct, frozen=True):
    """A fleet and the sessions that go with it."""

    name: str
    folder: str
    size_bytes: int
    sessions: tuple[str, ...]
    """Stored sessions of all its attempts, the oldest first."""
    sessions_bytes: int


def planned_deletion(run_context: RunContext, name: str) -> Deletion:
    """Return what goes with a fleet. Raises `UsageError` if there is none of that name."""
    read_fleet(run_context.state_dir, name)
    folder = fleet_folder(run_context.state_dir, name)
    with open(os.path.join(folder, EVENTS), "rb") as file:
        events, _ = decode_events(file.read())
    started = dict.fromkeys(one.session for one in events if isinstance(one, TaskStarted))
    folders = {one: session_folder(run_context.state_dir, one) for one in started}
    stored = {one: stored_bytes(path) for one, path in folders.items() if _is_stored(one, path)}
    return Deletion(name, folder, stored_bytes(folder), tuple(stored), sum(stored.values()))


def _is_stored(session: str, folder: str) -> bool:
    store = store_with(folder)
    return store.has_session(session) if store else os.path.isdir(folder)


async def delete_fleet(run_context: RunContext, planned: Deletion) -> list[str]:
    """Delete a fleet and those sessions of `planned`; return the problems with sessions.

    A fleet whose sessions cannot all be deleted stays, so that this can be done again. Raises
    `UsageError` if a process runs it, `LongreinError`.
    """
    log = await open_fleet_log(run_context.state_dir, planned.name, CLOCK.wall_us)
    try:
        problems = list[str]()
        app = App(run_context, problems.append)
        for session in planned.sessions:
            try:
                await app.delete(session)
            except SessionError as error:
                problems.append(str(error))
        if not problems:
            remove_tree(planned.folder)
        return problems
    except OSError as error:
        raise LongreinError(
            f"{error.filename} cannot be deleted: {error.strerror}; make it writable, then delete "
            f"the fleet {planned.name} again"
        ) from None
    finally:
        log.close()
