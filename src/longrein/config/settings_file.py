"""Settings files: read as flat values with their place, written whole or not at all."""

import errno
import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from longrein.atomic_file import replace_file
from longrein.config.settings_keys import (
    NAMED_TABLES,
    Schema,
    dotted,
    nearest,
    pattern_of,
    problem_with,
    schema,
)
from longrein.config.user_environment import read_bounded
from longrein.events import SettingsError

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


def plugins_in(text: str, shown: str) -> tuple[str, ...]:
    """Return the packages that a TOML text names. Raises `SettingsError` for what is not TOML."""
    return _plugins(_parsed(text, shown))


def _plugins(table: dict[str, Any]) -> tuple[str, ...]:
    named = table.get("plugins")
    return tuple(filter(None, map(str, named))) if isinstance(named, list) else ()


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
    except tomllib.TOMLDecodeError as error:
        said = re.fullmatch(
            r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error), re.DOTALL
        )
        what = said[1] if said else str(error)
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
    known = schema(_plugins(table) if plugins is None else plugins)
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
            *tables, name = key.split(".")
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
