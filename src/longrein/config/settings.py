"""Settings in layers: built in, the user's file, the project's, environment, command line. The nearest wins.

Each value knows its origin. A project's file is read only in a trusted folder, and there it may only narrow: it cannot
allow calls, widen the mode, raise a limit or say where requests and keys go.
"""

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from longrein.config.environment import project_file, user_file
from longrein.config.settings_file import SettingValue, read_file, shorten_home
from longrein.config.settings_schema import (
    FLAGS,
    KEYS,
    LISTS,
    MODES,
    OTHER_VARIABLES,
    TASK_OPTIONS,
    VARIABLES,
    dotted,
    from_text,
    nearest,
    pattern_of,
    problem_with,
    unknown_tool,
)
from longrein.events import SettingsError
from longrein.permissions import Rules

INSTRUCTION_FILES = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""Names of instruction files; at most the first that exists is read per folder."""
MIB = 1024 * 1024
INSTRUCTION_BYTES_MAX = 32 * 1024
"""Limit of all instruction files together, as in other agents."""

BUILT_IN: Mapping[str, Any] = {
    "permission_mode": "default",
    "profile": "default",
    "limits.parallel_max": 32,
    "limits.agents_max": 20,
    "limits.agents_depth": 1,
    "limits.agents_spawns": 200,
    "tasks.keep_hours": 24,
    "tasks.quota_mb": 64,
    "tasks.max": 32,
    "tasks.background": "steer",
    "tasks.background_s": 600,
    "context.files": INSTRUCTION_FILES,
    "context.bytes_max": INSTRUCTION_BYTES_MAX,
}
_RULES = ("permissions.allow", "permissions.ask", "permissions.deny")
SEED_PARALLEL_MAX = 10
"""Parallel calls in the `seed` profile where the settings do not say."""


class Provider(msgspec.Struct, frozen=True):
    """Settings of one provider; '' and () where not set."""

    wire: str = ""
    """`anthropic`, `openai-chat`, `openai-responses`, `gemini` or `scripted`."""
    base_url: str = ""
    """Address of requests; for `scripted` the path of the script."""
    api_key_env: str = ""
    """Variable that holds the key."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers."""
    text_tools: bool = False
    """Use the text tool-call protocol."""
    idle_timeout_s: int = 120
    """Longest pause inside an answer, seconds."""
    content_timeout_s: int = 900
    """Longest time without content of the answer, seconds."""


class ModelSettings(msgspec.Struct, frozen=True):
    """Settings of one model; negative where not set."""

    window: int = -1
    """Tokens, input and output together."""
    max_output: int = -1
    """Tokens."""
    price_input: float = -1.0
    """US dollars for a million tokens, as are the other prices."""
    price_output: float = -1.0
    price_cache_read: float = -1.0
    price_cache_write: float = -1.0
    cache_ttl_s: float = -1.0
    """Seconds a cached prefix lives after its last use."""
    effort: str = ""
    """Effort of thinking: `none`, `minimal`, `low`, `medium`, `high` or `max`."""


class Settings(msgspec.Struct, frozen=True):
    """All settings, merged."""

    model: str = ""
    """`provider/model`; '' when none was named."""
    fallback_model: str = ""
    """Model to change to after three overloads in a row."""
    compact_model: str = ""
    """Model that writes summaries; '' for the session's own."""
    permission_mode: str = "default"
    profile: str = "default"
    allow: tuple[str, ...] = ()
    """Permission rules."""
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    providers: Mapping[str, Provider] = {}
    """By name."""
    models: Mapping[str, ModelSettings] = {}
    """By `provider/model`."""
    tools: Mapping[str, Any] = {}
    """Limits of tools, by the fields of `tools.ToolOptions`; only those that were set."""
    turns_max: int = 0
    """Requests for one prompt; 0 for no limit."""
    usd_max: float = 0.0
    """Money for a session; 0 for no limit."""
    parallel_max: int = 32
    """Calls that run at once."""
    memory_mb: int = 0
    """Memory limit of longrein itself, MB; 0: only the system's limits apply."""
    agents_max: int = 20
    """Subagents that run at once."""
    agents_depth: int = 1
    """Levels of subagents."""
    agents_spawns: int = 200
    """Subagents that one session may start, on all levels together."""
    task_keep_s: float = 24 * 3600.0
    """Seconds that background tasks run on without longrein."""
    task_quota_bytes: int = 64 * MIB
    """Bytes of output kept per task: the first and the newest half."""
    task_memory_bytes: int = 0
    """Memory limit of one task with its child processes; 0 for no limit."""
    task_cpu_s: float = 0
    """CPU seconds of one task with its child processes; 0 for no limit."""
    tasks_max: int = 32
    """Background tasks that run at once."""
    task_options: Mapping[str, Any] = {}
    """Other task settings, by the fields of `agent.TaskOptions`; only those that were set."""
    background: str = "steer"
    """Background work at the end of a headless run: `exit`, `drain` or `steer`."""
    background_s: float = 600.0
    """Longest time a headless run waits for background work, seconds."""
    task_policy: str = ""
    """Background tasks when longrein exits: `ask`, `keep` or `stop`; '': ask a user who is there, else keep."""
    instruction_files: tuple[str, ...] = INSTRUCTION_FILES
    """Names looked for in each folder, in this order."""
    instruction_bytes_max: int = INSTRUCTION_BYTES_MAX
    """Limit of all instruction files together."""
    env_keep: tuple[str, ...] = ()
    """Variables that commands get beside the usual ones; a final `*` matches anything."""
    redact_patterns: tuple[str, ...] = ()
    """Regular expressions of secrets."""
    redact_env: tuple[str, ...] = ()
    """Variables whose values are secret."""
    origin: Mapping[str, str] = {}
    """Origin of each value: key to `file:line`, variable, flag or `built in`."""
    notes: tuple[str, ...] = ()
    """Lines for the user: values that were left out, and why."""

    def rules(self, base: str, home: str) -> Rules:
        """Return the permission rules. `base`: the first root, absolute; `home`: the user's home."""
        return Rules(self.allow, self.ask, self.deny, base, home)


def load_settings(
    *, cwd: str, home: str, environ: Mapping[str, str], flags: Mapping[str, Any], trusted: bool
) -> Settings:
    """Read and merge all layers.

    `flags`: fields of the command line as in `settings_schema.FLAGS`; empty and other fields are ignored. Without
    `trusted` the project's file is not opened; a note says so where it exists. Raises `SettingsError`: one line with
    file, line, key and the nearest valid key.
    """
    merged = _MergedLayers()
    merged.take([SettingValue(tuple(k.split(".")), v, "built in") for k, v in BUILT_IN.items()])
    path = user_file(environ, home)
    merged.take(read_file(path, shorten_home(path, home)) or ())
    path = project_file(cwd)
    if trusted and path != user_file(environ, home):
        merged.narrow(read_file(path, shorten_home(path, home)) or ())
    elif path != user_file(environ, home) and os.path.lexists(path):
        merged.notes.append(
            f"{shorten_home(path, home)} was not read: this folder is not trusted; `longrein trust` changes that."
        )
    merged.take(_from_environment(environ, merged.notes))
    merged.take(_from_flags(flags))
    return merged.settings()


def _from_environment(environ: Mapping[str, str], notes: list[str]) -> list[SettingValue]:
    found = []
    for name in sorted(environ):
        if not name.startswith("LONGREIN_") or name in OTHER_VARIABLES or not environ[name]:
            continue
        key = VARIABLES.get(name)
        if key is None:
            close = nearest(name, (*VARIABLES, *OTHER_VARIABLES))
            notes.append(
                f"{name} is not a setting" + (f": did you mean {close}?" if close else ".") + " It was ignored."
            )
            continue
        found.append(_checked(key, from_text(KEYS[key][0], environ[name]), name))
    return found


def _from_flags(flags: Mapping[str, Any]) -> list[SettingValue]:
    return [_checked(key, flags[field], flag) for field, (key, flag) in FLAGS.items() if flags.get(field)]


def _checked(key: str, value: Any, place: str) -> SettingValue:
    """Return the value of a variable or flag, named `place` in messages. Raises `SettingsError`."""
    problem = problem_with(KEYS[key][0], value)
    if problem:
        raise SettingsError(f"{place} {problem}")
    return SettingValue(tuple(key.split(".")), value, place)


class _MergedLayers:
    """Merged layers of settings."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], Any] = {}
        self.origin: dict[str, str] = {}
        self.notes: list[str] = []

    def take(self, layer: list[SettingValue] | tuple[SettingValue, ...]) -> None:
        for value in layer:
            self._put(value)

    def _put(self, given: SettingValue) -> None:
        key = dotted(given.path)
        if key in _RULES:
            told = [(rule, unknown_tool(rule)) for rule in given.value]
            self.notes += [f"{given.place}: {key} {rule}: {problem}" for rule, problem in told if problem]
        if key in LISTS:
            before = self.values.get(given.path, ())
            self.values[given.path] = tuple(dict.fromkeys((*before, *given.value)))
            self.origin[key] = ", ".join(filter(None, (self.origin.get(key), given.place)))
        else:
            self.values[given.path] = tuple(given.value) if isinstance(given.value, list) else given.value
            self.origin[key] = given.place

    def narrow(self, layer: tuple[SettingValue, ...]) -> None:
        """Add a project's layer: only what a project may set, and only narrower."""
        for value in layer:
            policy = KEYS[pattern_of(value.path)][1]
            if policy == "no":
                self.notes.append(f"{value.place}: {dotted(value.path)} cannot be set by a project; it was ignored.")
            elif policy == "narrow" and not self._is_narrower(value):
                self.notes.append(
                    f"{value.place}: {dotted(value.path)} can only be narrowed by a project; it was ignored."
                )
            else:
                self._put(value)

    def _is_narrower(self, given: SettingValue) -> bool:
        present = self.values.get(given.path, 0)
        if given.path == ("permission_mode",):
            return MODES.index(given.value) <= MODES.index(present)
        return bool(given.value and (not present or given.value <= present))

    def settings(self) -> Settings:
        def value(key: str, default: Any) -> Any:
            return self.values.get(tuple(key.split(".")), default)

        if str(value("profile", "")).startswith("seed") and self.origin["limits.parallel_max"] == "built in":
            self.values["limits", "parallel_max"] = SEED_PARALLEL_MAX
        return Settings(
            model=value("model", ""),
            fallback_model=value("fallback_model", ""),
            compact_model=value("compact_model", ""),
            permission_mode=value("permission_mode", ""),
            profile=value("profile", ""),
            allow=value("permissions.allow", ()),
            ask=value("permissions.ask", ()),
            deny=value("permissions.deny", ()),
            providers={name: _provider(table) for name, table in self._tables("providers").items()},
            models={name: ModelSettings(**table) for name, table in self._tables("models").items()},
            tools={path[1]: v for path, v in self.values.items() if path[0] == "tools"},
            turns_max=value("limits.max_turns", 0),
            usd_max=float(value("limits.max_budget_usd", 0.0)),
            parallel_max=value("limits.parallel_max", 1),
            memory_mb=value("limits.memory_mb", 0),
            agents_max=value("limits.agents_max", 1),
            agents_depth=value("limits.agents_depth", 1),
            agents_spawns=value("limits.agents_spawns", 1),
            task_keep_s=value("tasks.keep_hours", 0) * 3600.0,
            task_quota_bytes=value("tasks.quota_mb", 0) * MIB,
            task_memory_bytes=value("tasks.memory_mb", 0) * MIB,
            task_cpu_s=value("tasks.cpu_s", 0),
            tasks_max=value("tasks.max", 1),
            task_options={n: self.values["tasks", n] for n in TASK_OPTIONS if ("tasks", n) in self.values},
            background=value("tasks.background", ""),
            background_s=float(value("tasks.background_s", 0)),
            task_policy=value("tasks.policy", ""),
            instruction_files=value("context.files", ()),
            instruction_bytes_max=value("context.bytes_max", 0),
            env_keep=value("env.keep", ()),
            redact_patterns=value("redact.patterns", ()),
            redact_env=value("redact.env", ()),
            origin=self.origin,
            notes=tuple(self.notes),
        )

    def _tables(self, top: str) -> dict[str, dict[str, Any]]:
        tables: dict[str, dict[str, Any]] = {}
        for path, value in self.values.items():
            if path[0] == top:
                tables.setdefault(path[1], {})[path[2]] = value
        return tables


def _provider(table: dict[str, Any]) -> Provider:
    return Provider(**{**table, "headers": tuple(sorted(table.get("headers", {}).items()))})


# --- Secrets ---------------------------------------------------------------------------------------------------------
# Values that are never stored: providers' keys and other secrets of the environment.


_SECRET_WORDS = frozenset(
    ("KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "PAT")
)
_VALUE_CHARS_MIN = 8


def known_secrets(environ: Mapping[str, str], settings: Settings) -> tuple[str, ...]:
    """Return the values to redact: of variables with a secret's name, of providers' keys, of `redact_env`.

    Longest first. Short values, paths and plain words such as `true` are left out, because replacing them would garble
    text.
    """
    named = {*settings.redact_env, *(p.api_key_env for p in settings.providers.values())}
    values = [
        value.strip()
        for name, value in environ.items()
        if (name in named or (_says_secret(name) and _looks_secret(value))) and len(value.strip()) >= _VALUE_CHARS_MIN
    ]
    return tuple(sorted(dict.fromkeys(values), key=lambda value: (-len(value), value)))


def _says_secret(name: str) -> bool:
    return not _SECRET_WORDS.isdisjoint(name.upper().split("_"))


def _looks_secret(value: str) -> bool:
    """Return False for a path, an address without a password, and an ordinary word or number."""
    if value.startswith(("/", "~", "./")) or ("://" in value and "@" not in value):
        return False
    return not (value.isalpha() and value.islower()) and not value.isdigit()
