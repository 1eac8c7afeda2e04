"""Keys of the settings, as `settings_schema` declares them; and settings files: read as flat values
with their place, written whole or not at all.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from longrein.atomic_file import replace_file
from longrein.config.user_environment import plugins_of, read_bounded
from longrein.extension_points import (
    SETTINGS_DOOR,
    absent_extensions,
    bundled_points,
    installed_points,
)
from longrein.permissions import check_rule, rule_tool
from longrein.settings_schema import Setting, Settings
from longrein.tools import alias_names, own_tools
from longrein_context.events import SettingsError
from longrein_context.events.escape import nearest, regular_expression, shortened


class Key(msgspec.Struct, frozen=True):
    """A key of the settings, as its field declares it."""

    table: str
    """Field of `Settings` that holds its struct; '' for `Settings` itself."""
    field: str
    """Field of that struct."""
    type: type
    """Type of that field: `str`, `bool`, `int`, `float` or `tuple`."""
    default: Any
    """Built-in value, in units of the setting."""
    setting: Setting

    @property
    def adds(self) -> bool:
        """True for a list to which a nearer layer adds."""
        return self.type is tuple and not self.setting.replaces


NAMED_TABLES = ("providers", "models")
"""Tables of tables, each under a name that the user chooses."""


def _core_tables() -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield (field of `Settings`, struct in it) for each table, '' for `Settings` itself."""
    yield "", Settings
    for name, declared in Settings.__annotations__.items():
        if name in NAMED_TABLES:
            yield name, declared.__args__[1]
        elif isinstance(declared, type(msgspec.Struct)):
            yield name, declared


def _keys(table: str, struct: type[msgspec.Struct]) -> Iterator[tuple[str, Key]]:
    """Yield (key, its description) for each field of a struct that is a setting."""
    if table in NAMED_TABLES:
        prefix = f"{table}.*."
    elif table:
        prefix = f"{table}."
    else:
        prefix = ""
    for name, default in zip(struct.__struct_fields__, struct.__struct_defaults__, strict=True):
        declared = struct.__annotations__[name]
        setting = next(iter(getattr(declared, "__metadata__", ())), None)
        if setting is not None:
            kind = declared.__origin__
            value = default / setting.factor if setting.factor > 1 else default
            yield (
                prefix + (setting.key or name),
                Key(table, name, getattr(kind, "__origin__", kind), value, setting),
            )


class Schema(msgspec.Struct, frozen=True):
    """Settings that there are, those of extensions among them."""

    structs: dict[str, type[msgspec.Struct]]
    """Table -> its struct; '' for the settings without a table."""
    keys: dict[str, Key]
    """Key, such as `limits.max_turns` or `providers.*.wire`, -> its description."""
    absent: tuple[str, ...] = ()
    """Extensions and packages that are not here or whose settings cannot be loaded."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variable -> key, for all single values."""
        return {
            _variable(name): name
            for name, key in self.keys.items()
            if "*" not in name and key.type not in (bool, tuple)
        }

    def leaves_out(self, path: Sequence[str]) -> bool:
        """Return True for a setting in a table that may be one of an absent extension."""
        return bool(self.absent) and len(path) > 1 and path[0] not in self.structs


@cache
def schema(plugins: tuple[str, ...] = ()) -> Schema:
    """Return the settings of longrein, of the extensions that are here and of the packages
    `plugins`. A table that exists already is not replaced.
    """
    tables = dict(_core_tables())
    keys = {key: found for name, struct in tables.items() for key, found in _keys(name, struct)}
    absent = list(absent_extensions())
    points = list(bundled_points())
    for package in plugins:
        try:
            points += installed_points(package)
        except LookupError:
            absent.append(package)
    for point in points:
        if point.door == SETTINGS_DOOR and point.name not in tables:
            try:
                struct = point.load()
                keys |= dict(_keys(point.name, struct))
            except Exception:  # whatever the module of another raises
                absent.append(point.extension)
            else:
                tables[point.name] = struct
    return Schema(tables, keys, tuple(absent))


KEYS: Mapping[str, Key] = schema().keys
"""Keys without those of plugins."""

FLAGS: Mapping[str, tuple[str, str]] = {
    key.setting.flag[2:].replace("-", "_"): (name, key.setting.flag)
    for name, key in KEYS.items()
    if key.setting.flag
}
"""Field of the command line's options -> (key, flag)."""


PREFIX = "LONGREIN_"
"""Beginning of the variables' names."""


def _variable(key: str) -> str:
    """Name the variable of a key: by its last word, in `tasks`, `sandbox` and the tables of
    plugins by both.
    """
    by_both = key.startswith(("tasks.", "sandbox.")) or key not in KEYS
    return PREFIX + (key if by_both else key.rpartition(".")[2]).replace(".", "_").upper()


OTHER_VARIABLES = (
    "LONGREIN_STATE_DIR",
    "LONGREIN_CALL_ID",
    "LONGREIN_RATES",
    "LONGREIN_SESSION",
    "LONGREIN_COMMAND",
    "LONGREIN_DEPTH",
    "LONGREIN_SANDBOX",
    "LONGREIN_TEST_TAG",
    "LONGREIN_SUBAGENT_MODEL",
)
"""Variables that are not settings."""


def pattern_of(path: Sequence[str]) -> str:
    """Return the key of `KEYS` for a path: `providers.mock.wire` becomes `providers.*.wire`."""
    if len(path) == 3 and path[0] in NAMED_TABLES:
        return f"{path[0]}.*.{path[2]}"
    return ".".join(path)


def dotted(path: Sequence[str]) -> str:
    """Return a path as TOML spells it: `models."mock/small".window`."""
    return ".".join(
        n if n.replace("_", "").replace("-", "").isalnum() and n.isascii() else f'"{n}"'
        for n in path
    )


# --- Checking values ------------------------------------------------------------------------------


COUNT_MAX = 2**53
"""Larger numbers are typos."""


def problem_with(declared: Key, value: Any) -> str:
    """Return the problem of a value of a key, to follow the key in a message; '' without one."""
    wanted = _wanted(declared.type, declared.setting, value)
    return (
        f"must be {wanted}, not {_shown_value(value)}"
        if wanted
        else _item_problem(declared.setting.check, value)
    )


def _wanted(kind: type, setting: Setting, value: Any) -> str:
    """Return what a value should be; '' where it is that."""
    most = setting.most or COUNT_MAX
    is_number = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and setting.least <= value <= most
    )
    limits = f"{setting.least} to {most}" if setting.most else f"{setting.least} or more"
    if setting.choices:
        right, wanted = value in setting.choices, f"one of {', '.join(setting.choices)}"
    elif setting.check == "model":
        right, wanted = isinstance(value, str) and _is_model(value), "PROVIDER/MODEL"
    elif setting.check == "headers":
        right = isinstance(value, dict) and all(
            isinstance(v, str) and "\n" not in v for v in value.values()
        )
        wanted = "a table of texts"
    elif kind is bool:
        right, wanted = isinstance(value, bool), "true or false"
    elif kind is str:
        right, wanted = isinstance(value, str), "a text"
    elif kind is tuple:
        right = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        wanted = "a list of texts"
    elif kind is float:
        right, wanted = is_number, f"a number of {limits}"
    else:
        right, wanted = is_number and isinstance(value, int), f"a whole number of {limits}"
    return "" if right else wanted


def _item_problem(check: str, value: Any) -> str:
    """Return the problem of the first wrong item of a list of rules or patterns; '' without one."""
    if check in ("allow", "rules", "patterns"):
        for item in value:
            problem = _pattern_problem(item) if check == "patterns" else check_rule(item, check)
            if problem:
                return f"{_shown_value(item)}: {problem}"
    return ""


def _pattern_problem(pattern: str) -> str:
    try:
        compiled = regular_expression(pattern)
    except re.error as error:
        return f"is no regular expression ({error})"
    return "matches the empty text" if compiled.match("") else ""


def _is_model(name: str) -> bool:
    provider, slash, model = name.partition("/")
    return bool(provider and slash and model) and name.isprintable() and " " not in name


def _shown_value(value: Any) -> str:
    if isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = repr(value)
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return shortened(text, 60)


def from_text(declared: Key, text: str) -> Any:
    """Convert the value of an environment variable. Invalid numbers stay text and are refused
    later.
    """
    for kind in (int, float):
        if declared.type in (kind, float):
            with contextlib.suppress(ValueError):
                return kind(text)
    return text


# --- Tool names in rules --------------------------------------------------------------------------
# A typo in a tool's name would make a rule without effect.


OWN_TOOLS = tuple(tool.spec.name for tool in own_tools())
"""Tools of longrein."""
ALIASES = alias_names(own_tools())
"""Names in other agents -> tools of longrein that they mean."""
OTHER_NAMES = ("WebSearch", "Network", "ListMcpResourcesTool", "ReadMcpResourceTool")
"""Names in rules for a tool of the provider, for hosts of commands, and for tools of servers."""


def unknown_tool(rule: str) -> str:
    """Return a warning for a rule of an unknown tool; '' for known tools, their names in other
    agents, and those of servers (`mcp__…`).
    """
    name, known = rule_tool(rule), (*OWN_TOOLS, *OTHER_NAMES)
    if name.startswith("mcp_") or name in known or name.lower() in ALIASES:
        return ""
    if name.endswith("*") and any(one.startswith(name[:-1]) for one in known):
        return ""
    same = next((one for one in OWN_TOOLS if one.lower() == name.lower()), "") or nearest(
        name, OWN_TOOLS
    )
    return (
        f"no tool is called {name}{f': did you mean {same}?' if same else '.'} The rule has no "
        "effect."
    )


# --- Files ----------------------------------------------------------------------------------------

SIZE_MAX_BYTES = 1_000_000
"""Larger files are no settings files."""


class SettingValue(msgspec.Struct, frozen=True):
    """A setting of one layer."""

    path: tuple[str, ...]
    """Names from the top, such as `("providers", "mock", "wire")`."""
    value: Any
    place: str
    """Origin: `file:line`, a variable or a flag."""
    left_out: str = ""
    """Reason why it is not used; '' for one that is."""


def shorten_home(path: str, home: str) -> str:
    """Return a path for display: `~/…` below the home."""
    return "~" + path[len(home) :] if home and path.startswith(home.rstrip("/") + "/") else path


def read_file(
    path: str, shown: str, plugins: tuple[str, ...] | None = None
) -> tuple[SettingValue, ...] | None:
    """Read the values of a TOML file; None when it does not exist. Raises `SettingsError` (one
    line).

    `plugins`: packages whose settings it may hold; None for the user's own file, which names them.
    """
    text = read_text(path, shown)
    if text is None:
        return None
    return _values(_parsed(text, shown), text, shown, plugins)


def keys_in(text: str, shown: str) -> tuple[tuple[str, ...], ...]:
    """Return the paths of all keys of a TOML text, also unknown ones. Raises `SettingsError` for
    what is not TOML.
    """
    return tuple(path for path, _ in _flat(_parsed(text, shown), (), schema()))


def values_of(text: str, shown: str) -> tuple[SettingValue, ...]:
    """Parse the values of the text of the user's own file. `shown`: its name in messages. Raises
    `SettingsError`.
    """
    return _values(_parsed(text, shown), text, shown)


def read_text(path: str, shown: str) -> str | None:
    """Read a text file; None when it does not exist. Raises `SettingsError` for an unreadable or
    binary file.
    """
    try:
        data = read_bounded(path, SIZE_MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise SettingsError(
                f"{shown}: larger than 1 MB, that is no settings file: mend or remove it"
            ) from None
        raise SettingsError(
            f"{shown}: cannot be read ({error.strerror}): mend or remove it"
        ) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SettingsError(f"{shown}:{line}: not UTF-8 text: save the file as UTF-8") from None


def _parsed(text: str, shown: str) -> dict[str, Any]:
    import tomllib  # slow to import, and most starts have no file

    try:
        return tomllib.loads(text)
    except ValueError as error:  # of `tomllib`, or of Python for a number of 4,300 digits
        said = re.fullmatch(
            r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error), re.DOTALL
        )
        what = said[1] if said else str(error).partition(";")[0]
        line = (said and said[2]) or str(text.count("\n") + 1)
        raise SettingsError(f"{shown}:{line}: not TOML: {what[:1].lower()}{what[1:]}") from None
    except RecursionError:
        raise SettingsError(
            f"{shown}: nested too deep, that is no settings file: mend or remove it"
        ) from None


def _values(
    table: dict[str, Any], text: str, shown: str, plugins: tuple[str, ...] | None = None
) -> tuple[SettingValue, ...]:
    found = list[SettingValue]()
    known = schema(plugins_of(table) if plugins is None else plugins)
    for path, value in _flat(table, (), known):
        place = f"{shown}:{line_of(text, path)}"
        key = known.keys.get(pattern_of(path))
        if key is None and known.leaves_out(path):
            absent = ", ".join(known.absent)
            left_out = f"{dotted(path)} was left out: not installed here: {absent}"
            found.append(SettingValue(path, value, place, left_out))
            continue
        if key is None:
            raise SettingsError(f"{place}: {_unknown(path, known)}")
        problem = problem_with(key, value)
        if problem:
            raise SettingsError(f"{place}: {dotted(path)} {problem}")
        found.append(SettingValue(path, value, place))
    return tuple(found)


def _flat(
    table: dict[str, Any], path: tuple[str, ...], known: Schema
) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in table.items():
        here = (*path, name)
        if (
            isinstance(value, dict)
            and value
            and pattern_of(here) not in known.keys
            and len(here) < 4
        ):
            found.extend(_flat(value, here, known))
        elif not (value == {} and _is_table(here, known)):
            found.append((here, value))
    return found


def _is_table(path: tuple[str, ...], known: Schema) -> bool:
    if len(path) == 2:
        return path[0] in NAMED_TABLES
    return len(path) == 1 and path[0] in known.structs


def _unknown(path: tuple[str, ...], known: Schema) -> str:
    if (
        path[0] == "models" and len(path) == 4 and "/" not in path[1]
    ):  # the name's slash was written as a dot
        path = (path[0], f"{path[1]}/{path[2]}", path[3])
        return (
            f"models.{'.'.join(path[1].split('/'))}.{path[2]} is not a setting: did you mean "
            f"{dotted(path)}?"
        )
    keys = [] if _is_table(path, known) else [_spelled_like(path, key) for key in known.keys]
    close = nearest(dotted(path), keys) or next(
        (k for k in keys if k.rpartition(".")[2] == path[-1]), ""
    )
    close = close or nearest(
        path[-1], [k.rpartition(".")[2] for k in keys if k.startswith(f"{path[0]}.")]
    )
    return f"{dotted(path)} is not a setting" + (f": did you mean {close}?" if close else "")


def _spelled_like(path: tuple[str, ...], key: str) -> str:
    """Return a key with the user's name in place of its star."""
    if "*" not in key:
        return key
    return key.replace("*", dotted(path[1:2]) if len(path) > 2 else "NAME")


def line_of(text: str, path: tuple[str, ...]) -> int:
    """Return the line (1-based) of a setting, or the nearest one that can be told."""
    table: tuple[str, ...] = ()
    best, depth = 1, 0
    for number, line in enumerate(text.splitlines(), 1):
        header = line.strip().startswith("[")
        names = (
            _names(line.strip(" \t[").partition("]")[0])
            if header
            else (*table, *_names(line.partition("=")[0]))
        )
        if header:
            table = names
        elif "=" not in line:
            continue
        if names and names == path[: len(names)] and len(names) > depth:
            best, depth = number, len(names)
    return best


def _names(text: str) -> tuple[str, ...]:
    """Split `models."mock/small"` into its names. Without a regular expression, which is slow to
    compile at start.
    """
    names, rest = list[str](), text.strip()
    while rest:
        if rest[0] in "\"'":
            name, _, rest = rest[1:].partition(rest[0])
            rest = rest.strip().removeprefix(".").strip()
        else:
            name, _, rest = map(str.strip, rest.partition("."))
        names.append(name)
    return tuple(names)


# --- Writing --------------------------------------------------------------------------------------


def write_settings_file(path: str, data: bytes) -> None:
    """Replace the content of a file atomically, following links and keeping its mode; 0600 for a
    new file.

    Raises `OSError`.
    """
    path = os.path.realpath(path)
    mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o600
    replace_file(path, (data,), durable=True, mode=mode, temporary=f"{path}.{os.getpid()}.new")


def with_values(text: str, shown: str, values: Mapping[str, Any]) -> str:
    """Return the TOML text with `values`, by keys such as `permissions.deny`, set. Comments and
    layout stay, also those in lists that only gain and lose items.

    Raises `SettingsError` when the text is malformed, or when the new one would not hold the old
    values and the new.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import Array

    wanted = {dotted(one.path): one.value for one in values_of(text, shown)} | dict(values)
    try:
        document = tomlkit.parse(text)
        for key, value in values.items():
            *tables, name = _names(key)
            table: Any = document
            for one in tables:
                table = table.setdefault(one, tomlkit.table())
            present = table.get(name)
            if isinstance(present, Array):
                for item in set(present) - set(value):
                    present.remove(item)
                for index, item in enumerate(value):
                    if item not in present:
                        present.insert(index, item)
            else:
                table[name] = value
        edited = tomlkit.dumps(document)
        held = {dotted(one.path): one.value for one in values_of(edited, shown)}
    except (TOMLKitError, SettingsError):
        held = {}
    if held != wanted:
        raise SettingsError(
            f"{shown}: its form is unusual: change {', '.join(values)} in it by hand"
        )
    return edited


def store_text(path: str, shown: str, text: str, by_hand: str) -> None:
    """Write a settings file and its folder. Raises `SettingsError`, which says what to do
    `by_hand`.
    """
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_settings_file(path, text.encode())
    except OSError as error:
        raise SettingsError(f"{shown}: cannot be written ({error.strerror}): {by_hand}") from None
