"""The circumstances of a start: options, settings, folders, and the choice of model and session."""

import os
import time
import uuid
from asyncio import sleep
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from longrein.config import (
    FoundFile,
    LoadedHooks,
    Probe,
    StoredKeys,
    TrustedFolders,
    choose_model,
    environment,
    found_files,
    full_model_name,
    home_folder,
    left_out_files,
    load_hooks,
    load_settings,
    read_trusted,
    state_dir,
)
from longrein.config.claude_settings import OtherSettings, read_given
from longrein.config.stored_keys import KeyEnvironment, provider_key
from longrein.config.user_environment import read_bounded
from longrein.extension_points import STORES_DOOR, bundled_points
from longrein.models import (
    ModelOptions,
    find_served,
    known_models,
    known_providers,
    look_up,
)
from longrein.options import Options
from longrein.permissions import escape
from longrein.settings_schema import InstructionOptions, Settings
from longrein.steps.human_text import age
from longrein.store import (
    Reader,
    discard_empty,
    find_session,
    is_open,
    latest_session,
    session_info,
)
from longrein.store.session_store import use_store
from longrein.workspace import end_orphans, nesting_depth
from longrein_context import Budget, State
from longrein_context.events import Entry, LongreinError, Opened, Parent, SessionUnknown, UsageError

PREPARE_AHEAD = 0.02
"""Smallest distance between the thresholds of a compaction, as a share of the usable window."""


class SystemClock:
    """The real clock."""

    def wall_us(self) -> int:
        """Microseconds UTC."""
        return time.time_ns() // 1000

    mono_s = staticmethod(time.monotonic)
    """Seconds on the monotonic clock."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        await sleep(seconds)


CLOCK = SystemClock()
LEFT_OUT_SHOWN_MAX = 8
"""Files named in the line about what was left out."""
INSTRUCTIONS_BYTES_MAX = 1 << 20
"""Largest file of `--system-prompt-file`."""
THINKING_TOKENS = {"none": 0, "minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 24_576}
"""Effort -> tokens of `--max-thinking-tokens` up to which it is chosen; more is `max`."""
STORE_ADDRESSES = ("postgresql://", "postgres://")
"""Beginnings of the addresses of stores."""
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
    hooks: LoadedHooks = LoadedHooks()
    """Hooks of the user and of a trusted project."""
    keys: StoredKeys | None = None
    """Keys that `longrein login` has kept."""
    is_interactive: bool = False
    """True where a person answers, in the terminal or an editor."""
    find_served: Probe = msgspec.field(default_factory=lambda: cache(find_served))
    """How servers of the user's own are asked for a model: once for each name."""

    @property
    def key_environ(self) -> Mapping[str, str]:
        """The environment with the kept keys, for the choice of a model only: no process may get
        them.
        """
        return with_keys(self.environ, self.keys)

    def uses(self, source: str) -> bool:
        """Return True if files of `source` (`user`, `project`, `local`) are used:
        `--setting-sources`.
        """
        return _uses(self.options, source)


def read_run_context(
    options: Options,
    environ: Mapping[str, str] | None = None,
    *,
    folder: str = "",
    trusted: TrustedFolders | None = None,
) -> RunContext:
    """Read settings and folders for `folder`, the current one by default. `trusted`: in place of
    the stored ones.

    Raises `SettingsError` and `UsageError`.
    """
    environ = environment() if environ is None else environ
    home = home_folder(environ)
    cwd = _folder(folder, "folder") if folder else _present_folder()
    roots = (cwd, *(_folder(written, "--add-dir") for written in options.add_dirs))
    for root in roots:
        if any(
            "\udc80" <= char <= "\udcff" for char in root
        ):  # its bytes are no UTF-8, and the log is
            shown = root.encode("utf-8", "backslashreplace").decode()
            raise UsageError(
                f"the name of {shown} is not UTF-8, so no session can be kept there: rename the "
                "folder"
            )
    state = os.path.abspath(options.state_dir) if options.state_dir else state_dir(environ, home)
    options = _with_files(options)
    plugins = tuple(_folder(written, "--plugin-dir") for written in options.plugin_dirs)
    options = options._replace(plugin_dirs=plugins) if plugins else options
    known = read_trusted(state) if trusted is None else trusted
    trusted = known if _uses(options, "project") else TrustedFolders()
    if options.trust:
        trusted = trusted.with_folder(cwd, home)
    is_trusted = trusted.cover(cwd)
    given, table = read_given(options.settings, cwd, home) if options.settings else (None, None)
    settings = _settings(options, cwd, home, environ, trusted=is_trusted, given=given)
    use_store_at(state, settings.sessions.store)
    roots = (*roots, *(folder for folder in settings.folders if folder not in roots))
    if not is_trusted and _uses(options, "project"):
        left_out = left_out_files(cwd, home, environ, settings)
        trusted = msgspec.structs.replace(trusted, left_out=left_out)
    hooks = _hooks(options, settings, cwd, home, environ, trusted, table)
    keys = StoredKeys(environ, home, settings.providers)
    return RunContext(options, settings, environ, home, cwd, state, roots, trusted, hooks, keys)


def use_store_at(state_dir: str, address: str) -> None:
    """Keep the new sessions of `state_dir` in the PostgreSQL database at `address`, '' for files.
    Raises `UsageError`, which does not show the address: it may hold a password.
    """
    if not address:
        use_store(state_dir, None)
        return
    if not address.startswith(STORE_ADDRESSES) or "password=" in address:
        raise UsageError(
            "sessions.store is not an address such as postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    scheme = address.partition("://")[0]
    point = next(
        (one for one in bundled_points() if (one.door, one.name) == (STORES_DOOR, scheme)), None
    )
    missing = "longrein-fleet"
    if point is not None:
        try:
            use_store(state_dir, point.load()(address))
            return
        except ImportError as error:
            missing = f"{error.name}, which cannot be loaded"
    raise UsageError(f"sessions.store needs {missing}: pip install 'longrein[fleet]'")


def with_keys(environ: Mapping[str, str], keys: StoredKeys | None) -> Mapping[str, str]:
    """Return `environ` with the kept keys beside it, to be read only."""
    return KeyEnvironment(environ, keys) if keys else environ


def _hooks(
    options: Options,
    settings: Settings,
    cwd: str,
    home: str,
    environ: Mapping[str, str],
    trusted: TrustedFolders,
    given: Mapping[str, Any] | None,
) -> LoadedHooks:
    """Read the hooks. `trusted` knows the confirmed ones; `--trust` confirms all. `given`:
    fields of `--settings`.
    """
    if settings.hooks.disable:
        return LoadedHooks()
    return load_hooks(
        cwd,
        home,
        environ,
        is_trusted=trusted.cover(cwd),
        confirmed=lambda: None if options.trust else trusted.confirmed_hooks(cwd),
        read_others=settings.other_agents.read,
        own=_uses(options, "user"),
        given=given,
    )


def found_notes(run_context: RunContext) -> tuple[str, ...]:
    """Return the lines about files that were not used."""
    return (left_out_note(run_context), changed_hooks_note(run_context), *run_context.hooks.notes)


def changed_hooks_note(run_context: RunContext) -> str:
    """Return the line about hooks of the project that are not as the user has confirmed them; ''
    for none.
    """
    changed = run_context.hooks.changed
    if not changed:
        return ""
    named = ", ".join(
        f"{hook.event} `{escape(hook.name)[:60]}`" for hook in changed[:LEFT_OUT_SHOWN_MAX]
    )
    return (
        f"hooks that are not as you have confirmed them do not run: {named}; see `longrein trust`"
    )


def _uses(options: Options, source: str) -> bool:
    return options.setting_sources is None or source in options.setting_sources.replace(
        " ", ""
    ).split(",")


def _settings(
    options: Options,
    cwd: str,
    home: str,
    environ: Mapping[str, str],
    *,
    trusted: bool,
    given: OtherSettings | None,
) -> Settings:
    """Load the settings; a flag may name a model without its provider. `given`: those of
    `--settings`.
    """
    flags = {name: getattr(options, name) for name in options._fields}
    named = {field: flags.pop(field) for field in ("model", "fallback_model")}
    if given is not None:
        named["model"] = named["model"] or given.model
    own = _uses(options, "user")

    def load() -> Settings:
        return load_settings(
            cwd=cwd,
            home=home,
            environ=environ,
            flags=flags,
            trusted=trusted,
            others_own=own,
            given=given,
        )

    settings = load() if any(name and "/" not in name for name in named.values()) else None
    keyed = (
        with_keys(environ, StoredKeys(environ, home, settings.providers))
        if settings is not None
        else environ
    )
    flags |= {
        field: full_model_name(name, settings, keyed) if settings is not None else name
        for field, name in named.items()
    }
    return load()


def _with_files(options: Options) -> Options:
    """Replace the flags that name files of instructions by their texts. Raises `UsageError`."""
    if path := options.system_prompt_file:
        options = options._replace(system_prompt=_text_of(path, "--system-prompt-file"))
    if path := options.append_system_prompt_file:
        text = _text_of(path, "--append-system-prompt-file")
        options = options._replace(append_system_prompt=text)
    return options


def _text_of(path: str, flag: str) -> str:
    try:
        return read_bounded(os.path.expanduser(path), INSTRUCTIONS_BYTES_MAX).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{flag}: {path} is not UTF-8 text") from None


def left_out_note(run_context: RunContext) -> str:
    """Return the line about what was left out of a folder that is not trusted; '' for nothing."""
    if not run_context.trusted.left_out:
        return ""
    shown, more = (
        run_context.trusted.left_out[:LEFT_OUT_SHOWN_MAX],
        len(run_context.trusted.left_out) - LEFT_OUT_SHOWN_MAX,
    )
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
            f"commands of longrein have started longrein {above} levels deep already; what is to "
            "be done is done there"
        )


def _present_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError(
            "the folder that this shell is in has been removed: cd to one that is there"
        ) from None


def _folder(written: str, said: str) -> str:
    """Return the absolute path of a folder given as argument `said`. Raises `UsageError`."""
    folder = os.path.abspath(os.path.expanduser(written))
    if not os.path.isdir(folder):
        raise UsageError(f"{said}: {folder} is not a folder")
    return folder


# --- Model ----------------------------------------------------------------------------------------


def chosen_model(run_context: RunContext, name: str = "") -> ModelOptions:
    """Return options of model `name`, else of the default from settings, keys or local servers.

    Raises `ModelUnknown`.
    """
    chosen = choose_model(
        run_context.settings, run_context.key_environ, run_context.find_served, name=name
    )
    effort = _effort(run_context.options)
    chosen = msgspec.structs.replace(
        chosen, effort=effort or chosen.effort, has_pauses=run_context.is_interactive
    )
    return _with_thresholds(chosen, run_context.settings.context)


def _with_thresholds(chosen: ModelOptions, context: InstructionOptions) -> ModelOptions:
    """Apply the thresholds of compaction and the visibility that the settings name."""
    compact = context.compact_at / 100
    prepare = min(context.prepare_at / 100, compact - PREPARE_AHEAD)
    known = chosen.budget or look_up(chosen.provider, chosen.model)
    budget = msgspec.structs.replace(
        known, prepare_share=prepare, compact_share=compact, visibility=context.visibility
    )
    return chosen if budget == known else msgspec.structs.replace(chosen, budget=budget)


def _effort(options: Options) -> str:
    """Return the effort of thinking that the flags ask for; '' for that of the settings."""
    if options.thinking == "disabled":
        return "none"
    if options.max_thinking_tokens:
        tokens = int(options.max_thinking_tokens)
        return next((e for e, most in THINKING_TOKENS.items() if tokens <= most), "max")
    return {"xhigh": "max"}.get(options.effort, options.effort)


def model_names(run_context: RunContext, present: str) -> Sequence[str]:
    """Return the present model, those of the settings, then those of providers with a key."""
    environ = run_context.key_environ
    with_key = [
        known.name
        for known in known_providers()
        if provider_key(known.name, run_context.settings.providers, environ).key
    ]
    offered = [
        f"{name}/{model}"
        for name in with_key
        for model in known_models()
        if look_up(name, model).price
    ]
    return list(dict.fromkeys((present, *run_context.settings.models, *offered)))


def budget_of(run_context: RunContext, state: State) -> Budget:
    """Return the budget of a stored session's model: as configured, else from the table."""
    return named_budget(
        run_context, f"{state.prefix.provider}/{state.prefix.model}" if state.prefix else "/"
    )


def named_budget(run_context: RunContext, name: str) -> Budget:
    """Return the budget of the model `provider/model`: as configured, else from the table."""
    try:
        configured = chosen_model(run_context, name).budget
    except LongreinError:
        configured = None  # its provider is no longer in the settings
    provider, _, model = name.partition("/")
    return configured or look_up(provider, model)


def kept_keys(run_context: RunContext) -> tuple[str, ...]:
    """Return the keys of `longrein login` that are to be masked."""
    return run_context.keys.secrets if run_context.keys is not None else ()


def stored_model(run_context: RunContext, state: State) -> str:
    """Return the model of a resumed session unless the options name another; '' for none."""
    if run_context.options.model or state.prefix is None:
        return ""
    return f"{state.prefix.provider}/{state.prefix.model}"


def new_nonce() -> str:
    """Return the random text that the markers of a new session contain."""
    return uuid.uuid4().hex[:8]


# --- Session --------------------------------------------------------------------------------------


async def session_of(run_context: RunContext, busy: Sequence[str] = ()) -> tuple[str, bool, str]:
    """Choose the session that the options name.

    Returns (session id, True if it is new, note for the user). `busy`: sessions that another
    process has opened since they were chosen. Raises `SessionUnknown`.
    """
    options = run_context.options
    said = ""
    if options.continue_newest:
        found, said = _newest(run_context, busy)
    elif options.resume:
        found = find_session(run_context.state_dir, options.resume)
    else:
        return options.session_id or str(uuid.uuid4()), True, ""
    return (
        (await fork(run_context, found, options.session_id) if options.fork_session else found),
        False,
        said,
    )


def _newest(run_context: RunContext, busy: Sequence[str]) -> tuple[str, str]:
    """Return the newest session of this folder to continue, and a note for the user.

    One that is open elsewhere can only be copied, so the newest that is not open is taken.
    """
    once = (
        run_context.options.print
    )  # the terminal goes on with a one-shot run only when there is nothing else
    newest = latest_session(run_context.state_dir, run_context.cwd, one_shot=once)
    if not newest:
        raise SessionUnknown(
            f"there is no session of {run_context.cwd} to go on with; start one without -c"
        )
    if run_context.options.fork_session or not (busy or is_open(run_context.state_dir, newest)):
        return newest, "" if once else f"going on with {_named(run_context, newest)}"
    free = latest_session(run_context.state_dir, run_context.cwd, closed=True, one_shot=once)
    if not free or free in busy:
        return newest, ""  # opening it reports which process holds it
    watched = "" if once else f" (`longrein watch {newest[:8]}` shows it)"
    return (
        free,
        (
            f"session {newest} is open in another process{watched}; going on with "
            f"{_named(run_context, free)}"
        ),
    )


def _named(run_context: RunContext, session: str) -> str:
    """Return the id of a session, its title and its age."""
    info = session_info(run_context.state_dir, session)
    if info is None:
        return session
    past = "" if run_context.options.print else f", {age(CLOCK.wall_us() - info.updated_at)}"
    return f"{session} ({info.title or 'nothing was said'}{past})"


async def fork(run_context: RunContext, source: str, session: str = "") -> str:
    """Copy session `source`; return the id of the copy."""
    from longrein.store.fork import fork_log

    reader = Reader(run_context.state_dir, source)
    first, last = reader.entry(1), reader.tail()[0]
    reader.close()
    if first is None or not isinstance(first.event, Opened):
        raise SessionUnknown(f"session {source} holds nothing to fork")
    target = session or str(uuid.uuid4())
    copied = first.event.one_shot and run_context.options.print
    opened = msgspec.structs.replace(
        first.event, session=target, parent=Parent(source, last), one_shot=copied
    )
    await fork_log(run_context.state_dir, source, last, Entry(1, first.at, opened))
    return target


async def discard_unused(run_context: RunContext, session: str, *, said: bool) -> None:
    """Delete a session that was left without a message.

    One with a chosen id is kept, since another program may wait for it; so is one where a message
    was `said`, which may not be on disk yet.
    """
    if not said and session != run_context.options.session_id:
        await discard_empty(run_context.state_dir, session, wall_us=CLOCK.wall_us)


def sweep_orphans(state_dir: str) -> list[str]:
    """End processes that a killed longrein left behind. Those of other state folders are left
    alone.
    """
    sessions = os.path.join(state_dir, "sessions")
    if not os.path.isdir(sessions):
        return []
    return end_orphans(
        lambda one: _is_held_or_foreign(state_dir, one),
        lambda one: os.path.join(sessions, one),
    )


def _is_held_or_foreign(folder: str, session: str) -> bool:
    """Return True for a session that is open or belongs to another state folder."""
    try:
        return not os.path.isdir(os.path.join(folder, "sessions", session)) or is_open(
            folder, session
        )
    except LongreinError:
        return True
