"""Where longrein was started: options, settings, folders, which model and which session are meant."""

import os
import time
import uuid
from asyncio import sleep
from collections.abc import Mapping, Sequence

import msgspec

from longrein.config import Settings, choose_model, environment, home_folder, is_trusted, load_settings, state_dir
from longrein.context import Budget, State
from longrein.events import Entry, LongreinError, Opened, Parent, SessionUnknown, UsageError
from longrein.frontends.argv import Options
from longrein.models import ModelOptions, known_provider, look_up, offered_models
from longrein.store import Reader, discard_empty, find_session, fork_log, is_open, latest_session, session_info
from longrein.workspace import end_orphans, nesting_depth


class SystemClock:
    """Real time."""

    def wall_us(self) -> int:
        """Microseconds UTC."""
        return time.time_ns() // 1000

    def mono_s(self) -> float:
        """Seconds, monotonic."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await sleep(seconds)


CLOCK = SystemClock()
NESTED_MAX = 3
"""Longreins that commands start, one below the other; the first is above them all."""


class Place(msgspec.Struct, frozen=True):
    """Where longrein was started and what it was told: the same for every session of one start."""

    options: Options
    settings: Settings
    environ: Mapping[str, str]
    home: str
    cwd: str
    state_dir: str
    roots: tuple[str, ...]


def survey(options: Options, environ: Mapping[str, str] | None = None, *, folder: str = "") -> Place:
    """Look around in `folder` (by default the present one). Raises `SettingsError` and `UsageError`."""
    environ = environment() if environ is None else environ
    home = home_folder(environ)
    cwd = _folder(folder, "folder") if folder else _present_folder()
    roots = (cwd, *(_folder(written, "--add-dir") for written in options.add_dirs))
    state = os.path.abspath(options.state_dir) if options.state_dir else state_dir(environ, home)
    flags = {name: getattr(options, name) for name in options.__struct_fields__}
    settings = load_settings(cwd=cwd, home=home, environ=environ, flags=flags, trusted=is_trusted(state, cwd))
    return Place(options, settings, environ, home, cwd, state, roots)


def check_depth(place: Place) -> None:
    """Raises `UsageError` where commands of longreins have started longreins too often: no tool list ends such a
    chain, since a command may start anything."""
    above = nesting_depth(place.environ)
    if above > NESTED_MAX:
        raise UsageError(
            f"commands of longrein have started longrein {above} levels deep already; what is to be done is done there"
        )


def _present_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the folder that this shell is in has been removed: cd to one that is there") from None


def _folder(written: str, said: str) -> str:
    """Absolute path of a folder that was named under `said`."""
    folder = os.path.abspath(os.path.expanduser(written))
    if not os.path.isdir(folder):
        raise UsageError(f"{said}: {folder} is not a folder")
    return folder


# --- which model ---------------------------------------------------------------------------------------------------


def chosen_model(place: Place, name: str = "") -> ModelOptions:
    """Options of the model `name`, else of what settings, keys or local servers offer. Raises `ModelUnknown`."""
    return choose_model(place.settings, place.environ, offered_models, name=name)


def budget_of(place: Place, state: State) -> Budget:
    """What the model of a stored session offers: as configured, else by the table."""
    return named_budget(place, f"{state.prefix.provider}/{state.prefix.model}" if state.prefix else "/")


def named_budget(place: Place, name: str) -> Budget:
    """What the model `provider/model` offers: as configured, else by the table."""
    try:
        configured = chosen_model(place, name).budget
    except LongreinError:
        configured = None  # its provider is no longer in the settings
    provider, _, model = name.partition("/")
    return configured or look_up(provider, model)


def key_source(place: Place, chosen: ModelOptions) -> str:
    """Name of the variable that the key came from; `none` without a key."""
    known, given = known_provider(chosen.provider), place.settings.providers.get(chosen.provider)
    names = ((given.api_key_env,) if given and given.api_key_env else ()) + (known.keys if known else ())
    return next((name for name in names if chosen.api_key and place.environ.get(name) == chosen.api_key), "none")


def stored_model(place: Place, state: State) -> str:
    """A resumed session keeps its model unless another is asked for."""
    if place.options.model or state.prefix is None:
        return ""
    return f"{state.prefix.provider}/{state.prefix.model}"


# --- which session -----------------------------------------------------------------------------------------------


async def session_of(place: Place, busy: Sequence[str] = ()) -> tuple[str, bool, str]:
    """(id of the session that the options name, whether it is a new one, what is to be said of the choice).

    `busy`: sessions that another process has opened since they were chosen. Raises `SessionUnknown`.
    """
    options = place.options
    said = ""
    if options.continue_newest:
        found, said = _newest(place, busy)
    elif options.resume:
        found = find_session(place.state_dir, options.resume)
    else:
        return options.session_id or str(uuid.uuid4()), True, ""
    return (await fork(place, found, options.session_id) if options.fork_session else found), False, said


def _newest(place: Place, busy: Sequence[str]) -> tuple[str, str]:
    """The newest session of this folder, and what is to be said. One that is open elsewhere can be copied; to be gone
    on with, the newest that is not is taken."""
    newest = latest_session(place.state_dir, place.cwd)
    if not newest:
        raise SessionUnknown(f"there is no session of {place.cwd} to go on with; start one without -c")
    if place.options.fork_session or not (busy or is_open(place.state_dir, newest)):
        return newest, ""
    free = latest_session(place.state_dir, place.cwd, closed=True)
    if not free or free in busy:
        return newest, ""  # whoever opens it is told by whom it is held
    info = session_info(place.state_dir, free)
    title = info.title if info else ""
    return free, f"session {newest} is open in another process; going on with {free} ({title or 'nothing was said'})"


async def fork(place: Place, source: str, session: str = "") -> str:
    """Make a copy of session `source`; gives its id."""
    reader = Reader(place.state_dir, source)
    first, last = reader.entry(1), reader.tail()[0]
    reader.close()
    if first is None or not isinstance(first.event, Opened):
        raise SessionUnknown(f"session {source} holds nothing to fork")
    target = session or str(uuid.uuid4())
    opened = msgspec.structs.replace(first.event, session=target, parent=Parent(source, last))
    await fork_log(place.state_dir, source, last, Entry(1, first.at, opened))
    return target


async def discard_unused(place: Place, session: str, *, said: bool) -> None:
    """What was opened and left without a word is not kept. One whose id was chosen may be waited for, and what
    was `said` may not have come to be written down."""
    if not said and session != place.options.session_id:
        await discard_empty(place.state_dir, session, wall_us=CLOCK.wall_us)


def sweep_orphans(place: Place) -> list[str]:
    """End processes that a killed longrein left behind; those of other state folders are not ours to judge."""
    sessions = os.path.join(place.state_dir, "sessions")
    if not os.path.isdir(sessions):
        return []
    return end_orphans(lambda one: _is_held_or_foreign(place.state_dir, one), lambda one: os.path.join(sessions, one))


def _is_held_or_foreign(folder: str, session: str) -> bool:
    """Whether processes of `session` must be left alone: it is open, or not one of this state folder."""
    try:
        return not os.path.isdir(os.path.join(folder, "sessions", session)) or is_open(folder, session)
    except LongreinError:
        return True
