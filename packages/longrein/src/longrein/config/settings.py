"""Settings in layers: built in, the user's file, the project's, environment, command line. The
nearest wins.

Each value knows its origin. A project's file is read only in a trusted folder, and there it may
only narrow: it cannot allow calls, widen the mode, raise a limit or say where requests and keys go.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from longrein.choices import MODES
from longrein.config.claude_settings import OtherSettings, read_own, read_project
from longrein.config.instructions import leads_out, project_root
from longrein.config.model_choice import resolved
from longrein.config.settings_file import (
    FLAGS,
    NAMED_TABLES,
    OTHER_VARIABLES,
    PREFIX,
    Key,
    Schema,
    SettingValue,
    dotted,
    from_text,
    pattern_of,
    problem_with,
    read_file,
    read_text,
    schema,
    shorten_home,
    store_text,
    unknown_tool,
    values_of,
    with_values,
)
from longrein.config.user_environment import project_file, user_file
from longrein.permissions import check_rule
from longrein.settings_schema import SANDBOX_MODES, Settings
from longrein.store.session_store import passwords_in
from longrein_context.events import SettingsError
from longrein_context.events.escape import nearest

SEED_LIMITS: Mapping[tuple[str, ...], Any] = {
    ("limits", "parallel_max"): 10,
    ("limits", "agents_max"): 10,
    ("tasks", "timeout_s"): 300,
}
"""Parallel calls in the `seed` profile where the settings do not say."""


def load_settings(
    *,
    cwd: str,
    home: str,
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
    trusted: bool,
    others_own: bool = True,
    given: OtherSettings | None = None,
) -> Settings:
    """Read and merge all layers.

    `flags`: fields of the command line as in `settings_file.FLAGS`; empty and other fields are
    ignored. Without `trusted` the project's file is not opened, without `others_own` no file of the
    user's other agents. `given`: settings of the command line in the form of another agent. Raises
    `SettingsError`: one line with file, line, key and the nearest valid key.
    """
    path = user_file(environ, home)
    own = read_file(path, shorten_home(path, home)) or ()
    plugins = next((tuple(one.value) for one in own if one.path == ("plugins",)), ())
    merged = _MergedLayers(schema(plugins))
    reads_others = next(
        (value.value for value in own if value.path == ("other_agents", "read")), True
    )
    if reads_others and others_own:
        merged.take_others(read_own(home, environ))
    merged.take(own)
    path = project_file(cwd)
    if trusted and path != user_file(environ, home) and os.path.lexists(path):
        if leads_out(path, project_root(cwd)):
            merged.notes.append(f"{shorten_home(path, home)} leads out of the project: left out.")
        else:
            merged.narrow(read_file(path, shorten_home(path, home), plugins) or ())
    if trusted and reads_others:
        full = merged.values.get(("other_agents", "full"), ())
        for others in read_project(cwd, home, environ, full):
            merged.take_others(others)
    merged.take(_from_environment(environ, merged.notes, merged.schema))
    if given is not None:
        merged.take_others(given)
    merged.take(_from_flags(flags))
    if ("model",) not in merged.values and merged.other_model and environ.get(OTHER_MODEL_KEY):
        merged.take(_other_model(*merged.other_model))
    return merged.settings()


OTHER_MODEL_KEY = "ANTHROPIC_API_KEY"
"""Variable without which the model of another agent's settings cannot be used."""


def _other_model(alias: str, place: str) -> list[SettingValue]:
    """Return the model that an alias of another agent stands for; none where no known model has
    that name.
    """
    name = resolved(alias.partition("[")[0], "anthropic/", Settings())
    return [SettingValue(("model",), name, place)] if name else []


def _from_environment(
    environ: Mapping[str, str], notes: list[str], known: Schema
) -> list[SettingValue]:
    found = []
    variables = known.variables
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES or not environ[name]:
            continue
        key = variables.get(name)
        if key is None:
            names = [variable.removeprefix(PREFIX) for variable in (*variables, *OTHER_VARIABLES)]
            close = nearest(name.removeprefix(PREFIX), names)
            notes.append(
                f"{name} is not a setting"
                + (f": did you mean {PREFIX}{close}?" if close else ".")
                + " It was ignored."
            )
            continue
        declared = known.keys[key]
        found.append(_checked(key, declared, from_text(declared, environ[name]), name))
    return found


def _from_flags(flags: Mapping[str, Any]) -> list[SettingValue]:
    return [
        _checked(key, schema().keys[key], flags[field], flag)
        for field, (key, flag) in FLAGS.items()
        if flags.get(field)
    ]


def _checked(key: str, declared: Key, value: Any, place: str) -> SettingValue:
    """Return the value of a variable or flag, named `place` in messages. Raises `SettingsError`."""
    problem = problem_with(declared, value)
    if problem:
        raise SettingsError(f"{place} {problem}")
    return SettingValue(tuple(key.split(".")), value, place)


class _MergedLayers:
    """Merged layers of settings."""

    def __init__(self, known: Schema) -> None:
        self.schema = known
        self.values: dict[tuple[str, ...], Any] = {}
        self.origin: dict[str, str] = {}
        self.notes: list[str] = []
        self.variables: dict[str, str] = {}
        self.folders: dict[str, None] = {}
        self.other_model: tuple[str, str] | None = None
        """Model that another agent's settings name, and the file."""

    def take_others(self, others: OtherSettings) -> None:
        """Add the settings of another agent."""
        self.take(others.values)
        self.notes += others.notes
        self.variables |= dict(others.variables)
        self.folders |= dict.fromkeys(others.folders)
        if others.model:
            self.other_model = others.model, others.place

    def take(self, layer: list[SettingValue] | tuple[SettingValue, ...]) -> None:
        for value in layer:
            self._put(value)

    def _put(self, given: SettingValue) -> None:
        if given.left_out:
            self.notes.append(f"{given.place}: {given.left_out}")
            return
        name, key = dotted(given.path), self._key(given.path)
        value = tuple(given.value) if isinstance(given.value, list) else given.value
        if key.table == "permissions" and isinstance(value, tuple):
            told = [(rule, unknown_tool(rule)) for rule in value]
            self.notes += [
                f"{given.place}: {name} {rule}: {problem}" for rule, problem in told if problem
            ]
        if key.adds:
            value = tuple(dict.fromkeys((*self.values.get(given.path, ()), *value)))
            self.origin[name] = ", ".join(filter(None, (self.origin.get(name), given.place)))
        else:
            self.origin[name] = given.place
        self.values[given.path] = value

    def _key(self, path: tuple[str, ...]) -> Key:
        return self.schema.keys[pattern_of(path)]

    def narrow(self, layer: tuple[SettingValue, ...]) -> None:
        """Add a project's layer: only what a project may set, and only narrower."""
        for value in layer:
            policy = "" if value.left_out else self._key(value.path).setting.project
            if policy == "nothing":
                self.notes.append(
                    f"{value.place}: {dotted(value.path)} cannot be set by a project; it was "
                    "ignored."
                )
            elif policy == "narrow" and not self._is_narrower(value):
                self.notes.append(
                    f"{value.place}: {dotted(value.path)} can only be narrowed by a project; it "
                    "was ignored."
                )
            else:
                self._put(value)

    def _is_narrower(self, given: SettingValue) -> bool:
        present = self.values.get(given.path, self._key(given.path).default)
        if given.path == ("permission_mode",):
            return MODES.index(given.value) <= MODES.index(present)
        if given.path == ("sandbox", "mode"):
            return SANDBOX_MODES.index(given.value) >= SANDBOX_MODES.index(present)
        return bool(given.value and (not present or given.value <= present))

    def settings(self) -> Settings:
        if str(self.values.get(("profile",))).startswith("seed"):
            for path, value in SEED_LIMITS.items():
                self.values.setdefault(path, value)
        tables: dict[tuple[str, str], dict[str, Any]] = {}
        """By the field of `Settings` and, for a table of tables, the user's name."""
        for path, value in self.values.items():
            key = self._key(path)
            name = path[1] if key.table in NAMED_TABLES else ""
            tables.setdefault((key.table, name), {})[key.field] = _field_value(key, value)
        top = tables.pop(("", ""), {})
        added: dict[str, Any] = {}
        for (table, name), fields in tables.items():
            made = self.schema.structs[table](**fields)
            if name:
                top.setdefault(table, {})[name] = made
            elif table in Settings.__struct_fields__:
                top[table] = made
            else:
                added[table] = made
        variables, folders = tuple(self.variables.items()), tuple(self.folders)
        return Settings(
            **top,
            variables=variables,
            folders=folders,
            origin=self.origin,
            notes=tuple(self.notes),
            tables=added,
        )


def _field_value(key: Key, value: Any) -> Any:
    """Convert a value to the type and units of its field."""
    if key.type in (int, float):
        return key.type(value * key.setting.factor)
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


# --- Secrets --------------------------------------------------------------------------------------
# Values that are never stored: providers' keys and other secrets of the environment.


_SECRET_WORDS = frozenset(
    (
        "KEY",
        "APIKEY",
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "PAT",
    )
)
_VALUE_CHARS_MIN = 8


def known_secrets(environ: Mapping[str, str], settings: Settings) -> tuple[str, ...]:
    """Return the values to redact: of variables with a secret's name, of providers' keys, of
    `redact.env`.

    Longest first. Short values, paths and plain words such as `true` are left out, because
    replacing them would garble text.
    """
    named = {*settings.redact.env, *(p.api_key_env for p in settings.providers.values())}
    values = [
        value.strip()
        for name, value in environ.items()
        if (name in named or (_says_secret(name) and _looks_secret(value)))
        and len(value.strip()) >= _VALUE_CHARS_MIN
    ]
    in_address = passwords_in(settings.sessions.store)
    values += [text for text in in_address if len(text) >= _VALUE_CHARS_MIN]
    return tuple(sorted(dict.fromkeys(values), key=lambda value: (-len(value), value)))


def _says_secret(name: str) -> bool:
    return not _SECRET_WORDS.isdisjoint(name.upper().split("_"))


def _looks_secret(value: str) -> bool:
    """Return False for a path, an address without a password, and an ordinary word or number."""
    if value.startswith(("/", "~", "./")) or ("://" in value and "@" not in value):
        return False
    return not (value.isalpha() and value.islower()) and not value.isdigit()


# --- Permission rules of the user -----------------------------------------------------------------


def remember_rule(rule: str, environ: Mapping[str, str], home: str) -> None:
    """Add `rule` to `[permissions] allow` of the user's settings file. The rest of the file does
    not change.

    `rule` may hold several rules, one per line: all are stored, or none. The file is created where
    it is missing. A rule that is there already is not added again. Raises `SettingsError` when a
    rule or the file is malformed, or when the file's form does not allow a safe edit; the file is
    unchanged then.
    """
    rules = tuple(dict.fromkeys(rule.split("\n")))
    for one in rules:
        problem = check_rule(one, "allow")
        if problem or not one.isprintable():
            raise SettingsError(
                f"{one!r} cannot be stored: {problem or 'it holds invisible characters'}"
            )
    path, shown, text = _users_file(environ, home)
    listed = _listed_rules(text, shown, "allow")
    new = [one for one in rules if one not in listed]
    if new:
        edited = with_values(text, shown, {"permissions.allow": [*listed, *new]})
        store_text(path, shown, edited, f"add {', '.join(new)} to it by hand")


def forget_rule(kind: str, rule: str, environ: Mapping[str, str], home: str) -> None:
    """Remove `rule` from `[permissions] kind` of the user's settings file. The rest of the file
    does not change.

    Raises `SettingsError` when it is not there, or when the file's form does not allow a safe edit;
    the file is unchanged then.
    """
    path, shown, text = _users_file(environ, home)
    listed = _listed_rules(text, shown, kind)
    if rule not in listed:
        raise SettingsError(f"{shown} holds no rule {rule!r} under [permissions] {kind}")
    kept = [one for one in listed if one != rule]
    edited = with_values(text, shown, {f"permissions.{kind}": kept})
    store_text(path, shown, edited, f"remove {rule!r} by hand")


def keep_setting(path: Sequence[str], value: str, environ: Mapping[str, str], home: str) -> str:
    """Write a setting into the user's settings file; return the line as it is written there, with
    the file and what stood there before. The rest of the file does not change.

    Raises `SettingsError` when the file is malformed, or when its form does not allow a safe edit;
    the file is unchanged then.
    """
    file, shown, text = _users_file(environ, home)
    key = dotted(path)
    before = next((one.value for one in values_of(text, shown) if one.path == tuple(path)), "")
    written = f'{key} = "{value}"'
    store_text(file, shown, with_values(text, shown, {key: value}), f"write {written} by hand")
    was = f', in place of "{before}"' if before else ""
    return f"{shown} has {written}{was} for new sessions; /config edit takes it back"


def own_rules(environ: Mapping[str, str], home: str) -> Sequence[tuple[str, str, str]]:
    """Return (kind, rule, place) of each rule in the user's settings file. Raises
    `SettingsError`.
    """
    _, shown, text = _users_file(environ, home)
    return [
        (value.path[1], rule, value.place)
        for value in values_of(text, shown)
        if value.path[0] == "permissions"
        for rule in value.value
    ]


def _users_file(environ: Mapping[str, str], home: str) -> tuple[str, str, str]:
    """Return (path, path for display, text) of the user's settings file; no text where there is
    none.
    """
    path = user_file(environ, home)
    shown = shorten_home(path, home)
    return path, shown, read_text(path, shown) or ""


def _listed_rules(text: str, shown: str, kind: str) -> list[str]:
    values = values_of(text, shown)
    return next((v.value for v in values if v.path == ("permissions", kind)), [])
