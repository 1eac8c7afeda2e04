"""The circumstances of a start: options, settings, folders, and the choice of model and session."""

import os
import time
import uuid
from asyncio import sleep
from collections.abc import Mapping, Sequence

import msgspec

from longrein.config import (
    FoundFile,
    TrustedFolders,
    choose_model,
    environment,
    found_files,
    home_folder,
    left_out_files,
    load_settings,
    read_trusted,
    state_dir,
)
from longrein.context import Budget, State
from longrein.events import Entry, LongreinError, Opened, Parent, SessionUnknown, UsageError
from longrein.frontends.argv import Options
from longrein.models import ModelOptions, known_provider, look_up, offered_models
from longrein.settings_schema import Settings
from longrein.store import Reader, discard_empty, find_session, fork_log, is_open, latest_session, session_info
from longrein.workspace import end_orphans, nesting_depth


class SystemClock:
    """The real clock."""

    def wall_us(self) -> int:
        """Microseconds UTC."""
        return time.time_ns() // 1000

    def mono_s(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        await sleep(seconds)


CLOCK = SystemClock()
LEFT_OUT_SHOWN_MAX = 8
"""Files named in the line about what was left out."""
NESTED_MAX = 3
"""Levels of longrein started by commands of longrein, below the first."""


class RunContext(msgspec.Struct, frozen=True):
    """Options, settings, environment and folders of one start; the same for all its sessions."""

    options: Options
    settings: Settings
    environ: Mapping[str, str]
    home: str
    cwd: str
    state_dir: str
    roots: tuple[str, ...]
    trusted: TrustedFolders = TrustedFolders()
    left_out: tuple[str, ...] = ()
    """Files of the current folder that were not read because it is not trusted, for display."""


def read_run_context(options: Options, environ: Mapping[str, str] | None = None, *, folder: str = "") -> RunContext:
    """Read settings and folders for `folder`, the current one by default.

    Raises `SettingsError` and `UsageError`.
    """
    environ = environment() if environ is None else environ
    home = home_folder(environ)
    cwd = _folder(folder, "folder") if folder else _present_folder()
    roots = (cwd, *(_folder(written, "--add-dir") for written in options.add_dirs))
    state = os.path.abspath(options.state_dir) if options.state_dir else state_dir(environ, home)
    flags = {name: getattr(options, name) for name in options.__struct_fields__}
    trusted = read_trusted(state)
    if options.trust:
        trusted = trusted.with_folder(cwd, home)
    is_trusted = trusted.cover(cwd)
    settings = load_settings(cwd=cwd, home=home, environ=environ, flags=flags, trusted=is_trusted)
    left_out = () if is_trusted else left_out_files(cwd, home, environ, settings)
    return RunContext(options, settings, environ, home, cwd, state, roots, trusted, left_out)


def left_out_note(run_context: RunContext) -> str:
    """Return the line about what was left out of a folder that is not trusted; '' for nothing."""
    if not run_context.left_out:
        return ""
    shown, more = run_context.left_out[:LEFT_OUT_SHOWN_MAX], len(run_context.left_out) - LEFT_OUT_SHOWN_MAX
    named = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    why = run_context.trusted.why_not(run_context.cwd)
    because = f"this folder is not trusted ({why})" if why else "this folder is not trusted"
    return f"not read, because {because}: {named}; `longrein trust` or --trust changes that"


def found_in(run_context: RunContext) -> tuple[FoundFile, ...]:
    """Return the files of other agents in the folder and in the home, and whether they are used."""
    trusted = run_context.trusted.cover(run_context.cwd)
    return found_files(run_context.cwd, run_context.home, trusted=trusted)


def check_depth(run_context: RunContext) -> None:
    """Raise `UsageError` where longreins have started longreins too often through commands.

    No tool list ends such a chain, since a command may start anything.
    """
    above = nesting_depth(run_context.environ)
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
    """Return the absolute path of a folder given as argument `said`. Raises `UsageError`."""
    folder = os.path.abspath(os.path.expanduser(written))
    if not os.path.isdir(folder):
        raise UsageError(f"{said}: {folder} is not a folder")
    return folder


# --- Model -----------------------------------------------------------------------------------------------------------


def chosen_model(run_context: RunContext, name: str = "") -> ModelOptions:
    """Return options of model `name`, else of the default from settings, keys or local servers.

    Raises `ModelUnknown`.
    """
    return choose_model(run_context.settings, run_context.environ, offered_models, name=name)


def budget_of(run_context: RunContext, state: State) -> Budget:
    """Return the budget of a stored session's model: as configured, else from the table."""
    return named_budget(run_context, f"{state.prefix.provider}/{state.prefix.model}" if state.prefix else "/")


def named_budget(run_context: RunContext, name: str) -> Budget:
    """Return the budget of the model `provider/model`: as configured, else from the table."""
    try:
        configured = chosen_model(run_context, name).budget
    except LongreinError:
        configured = None  # its provider is no longer in the settings
    provider, _, model = name.partition("/")
    return configured or look_up(provider, model)


def key_source(run_context: RunContext, chosen: ModelOptions) -> str:
    """Return the variable that the key came from; `none` without a key."""
    known, given = known_provider(chosen.provider), run_context.settings.providers.get(chosen.provider)
    names = ((given.api_key_env,) if given and given.api_key_env else ()) + (known.keys if known else ())
    return next((name for name in names if chosen.api_key and run_context.environ.get(name) == chosen.api_key), "none")


def stored_model(run_context: RunContext, state: State) -> str:
    """Return the model of a resumed session unless the options name another; '' for none."""
    if run_context.options.model or state.prefix is None:
        return ""
    return f"{state.prefix.provider}/{state.prefix.model}"


# --- Session ---------------------------------------------------------------------------------------------------------


async def session_of(run_context: RunContext, busy: Sequence[str] = ()) -> tuple[str, bool, str]:
    """Choose the session that the options name.

    Returns (session id, True if it is new, note for the user). `busy`: sessions that another process has opened since
    they were chosen. Raises `SessionUnknown`.
    """
    options = run_context.options
    said = ""
    if options.continue_newest:
        found, said = _newest(run_context, busy)
    elif options.resume:
        found = find_session(run_context.state_dir, options.resume)
    else:
        return options.session_id or str(uuid.uuid4()), True, ""
    return (await fork(run_context, found, options.session_id) if options.fork_session else found), False, said


def _newest(run_context: RunContext, busy: Sequence[str]) -> tuple[str, str]:
    """Return the newest session of this folder to continue, and a note for the user.

    One that is open elsewhere can only be copied, so the newest that is not open is taken.
    """
    newest = latest_session(run_context.state_dir, run_context.cwd)
    if not newest:
        raise SessionUnknown(f"there is no session of {run_context.cwd} to go on with; start one without -c")
    if run_context.options.fork_session or not (busy or is_open(run_context.state_dir, newest)):
        return newest, ""
    free = latest_session(run_context.state_dir, run_context.cwd, closed=True)
    if not free or free in busy:
        return newest, ""  # opening it reports which process holds it
    info = session_info(run_context.state_dir, free)
    title = info.title if info else ""
    return free, f"session {newest} is open in another process; going on with {free} ({title or 'nothing was said'})"


async def fork(run_context: RunContext, source: str, session: str = "") -> str:
    """Copy session `source`; return the id of the copy."""
    reader = Reader(run_context.state_dir, source)
    first, last = reader.entry(1), reader.tail()[0]
    reader.close()
    if first is None or not isinstance(first.event, Opened):
        raise SessionUnknown(f"session {source} holds nothing to fork")
    target = session or str(uuid.uuid4())
    opened = msgspec.structs.replace(first.event, session=target, parent=Parent(source, last))
    await fork_log(run_context.state_dir, source, last, Entry(1, first.at, opened))
    return target


async def discard_unused(run_context: RunContext, session: str, *, said: bool) -> None:
    """Delete a session that was left without a message.

    One with a chosen id is kept, since another program may wait for it; so is one where a message was `said`, which
    may not be on disk yet.
    """
    if not said and session != run_context.options.session_id:
        await discard_empty(run_context.state_dir, session, wall_us=CLOCK.wall_us)


def sweep_orphans(run_context: RunContext) -> list[str]:
    """End processes that a killed longrein left behind. Those of other state folders are left alone."""
    sessions = os.path.join(run_context.state_dir, "sessions")
    if not os.path.isdir(sessions):
        return []
    return end_orphans(
        lambda one: _is_held_or_foreign(run_context.state_dir, one), lambda one: os.path.join(sessions, one)
    )


def _is_held_or_foreign(folder: str, session: str) -> bool:
    """Return True for a session that is open or belongs to another state folder."""
    try:
        return not os.path.isdir(os.path.join(folder, "sessions", session)) or is_open(folder, session)
    except LongreinError:
        return True
