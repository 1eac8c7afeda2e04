"""The log of a fleet on disk: one process writes it, everybody may read it."""

import asyncio
import os
from collections.abc import Callable

import msgspec

from longrein.atomic_file import flush_path
from longrein.store.session_folder import LOCK, LockHolder, SessionLock, is_held, take_lock
from longrein_context.events import LongreinError, SessionBusy, UsageError
from longrein_fleet.fleet_state import (
    AnyEvent,
    FleetState,
    decode_events,
    encode_event,
    fold,
    state_of,
)
from longrein_fleet.fleet_tasks import ID, ID_FORM

EVENTS = "events.jsonl"
POLL_S = 0.05


def fleet_folder(state_dir: str, name: str) -> str:
    """Return the folder of a fleet. Raises `UsageError` for what is no name."""
    if not ID.match(name):
        raise UsageError(f"{name!r} is no name of a fleet: use {ID_FORM}")
    return os.path.join(state_dir, "fleets", name)


def read_fleet(state_dir: str, name: str) -> FleetState:
    """Return the state of a stored fleet. Raises `UsageError`, and `LongreinError` if its log is
    damaged.
    """
    folder = fleet_folder(state_dir, name)
    state, _ = _read(folder, name)
    if state is None:
        raise UsageError(
            f"there is no fleet {name!r} in {os.path.dirname(folder)}: "
            "`longrein fleet run TASKS --name NAME` starts one"
        )
    return state


def _read(folder: str, name: str) -> tuple[FleetState | None, int]:
    path = os.path.join(folder, EVENTS)
    try:
        with open(path, "rb") as file:
            events, size = decode_events(file.read())
        return state_of(events), size
    except FileNotFoundError:
        return None, 0
    except ValueError as error:
        raise LongreinError(
            f"the log of the fleet {name} is damaged ({path}, {error}): mend that line, or run "
            "its tasks under another name"
        ) from None


async def wait_until(is_free: Callable[[], bool], limit_s: float) -> bool:
    """Wait until another process has let go of a lock or a socket, which tell nobody; return
    whether it has.
    """
    for _ in range(round(limit_s / POLL_S)):
        if is_free():
            return True
        await asyncio.sleep(POLL_S)
    return is_free()


def holder_of(folder: str) -> int:
    """Return the process that runs the fleet; 0 for none."""
    if not is_held(folder):
        return 0
    try:
        with open(os.path.join(folder, LOCK), "rb") as file:
            return msgspec.json.decode(file.read(), type=LockHolder).pid
    except (OSError, msgspec.DecodeError):
        return 0


class FleetLog:
    """The log of a fleet, open for writing, with the state after its last event."""

    def __init__(self, folder: str, state: FleetState | None, size: int, lock: SessionLock) -> None:
        """Open the file and drop what is behind `size` bytes. See `open_fleet_log`."""
        self.folder = folder
        self._state = state
        self._lock = lock
        path = os.path.join(folder, EVENTS)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._descriptor, size)
        flush_path(folder)

    @property
    def state(self) -> FleetState:
        """State after the last event."""
        assert self._state is not None
        return self._state

    @property
    def is_new(self) -> bool:
        """True if nothing was written yet."""
        return self._state is None

    def append(self, event: AnyEvent) -> None:
        """Write an event, flush it, then let it count. Raises `LongreinError`."""
        before = os.fstat(self._descriptor).st_size
        line = encode_event(event)
        try:
            if os.write(self._descriptor, line) < len(line):
                raise OSError("the disk is full")
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, before)
            raise LongreinError(
                f"the log in {self.folder} cannot be written: {error.strerror or error}; make "
                "room, then `longrein fleet resume` goes on"
            ) from None
        if self._state is None:
            self._state = state_of([event])
        else:
            fold(self._state, event)

    def close(self) -> None:
        """Close the file and give the fleet free."""
        os.close(self._descriptor)
        self._lock.release()


async def open_fleet_log(state_dir: str, name: str, wall_us: Callable[[], int]) -> FleetLog:
    """Open the log of a fleet, new or stored. Raises `UsageError` if a process runs it."""
    folder = fleet_folder(state_dir, name)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    try:
        lock = await take_lock(folder, wall_us)
    except SessionBusy:
        raise UsageError(
            f"the fleet {name} is run by process {holder_of(folder)}: `longrein fleet status "
            f"{name}` shows it, `longrein fleet stop {name}` ends it"
        ) from None
    try:
        return FleetLog(folder, *_read(folder, name), lock)
    except BaseException:
        lock.release()
        raise
