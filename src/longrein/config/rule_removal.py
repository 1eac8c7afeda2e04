"""Permission rules in the user's settings file: list and remove them."""

from collections.abc import Mapping, Sequence

from longrein.config.environ import user_file
from longrein.config.settings_file import (
    SettingValue,
    read_file,
    read_text,
    shorten_home,
    values_of,
    with_value,
    write_settings_file,
)
from longrein.events import SettingsError


def own_rules(environ: Mapping[str, str], home: str) -> Sequence[tuple[str, str, str]]:
    """Return (kind, rule, place) of each rule in the user's settings file. Raises
    `SettingsError`.
    """
    path = user_file(environ, home)
    found = read_file(path, shorten_home(path, home)) or ()
    return [
        (value.path[1], rule, value.place)
        for value in found
        if value.path[0] == "permissions"
        for rule in value.value
    ]


def forget_rule(kind: str, rule: str, environ: Mapping[str, str], home: str) -> None:
    """Remove `rule` from `[permissions] kind` of the user's settings file. The rest of the file
    does not change.

    Raises `SettingsError` when it is not there, or when the file's form does not allow a safe edit;
    the file is unchanged then.
    """
    path = user_file(environ, home)
    shown = shorten_home(path, home)
    before = read_file(path, shown) or ()
    key = ("permissions", kind)
    listed: list[str] = next((list(value.value) for value in before if value.path == key), [])
    if rule not in listed:
        raise SettingsError(f"{shown} holds no rule {rule!r} under [permissions] {kind}")
    kept = [one for one in listed if one != rule]
    text = with_value(read_text(path, shown) or "", f"permissions.{kind}", kept, replace=True)
    try:
        after = values_of(text, shown)
    except SettingsError:
        after = ()
    if _rest(after, key) != _rest(before, key) or [
        list(v.value) for v in after if v.path == key
    ] != [kept]:
        raise SettingsError(
            f"{shown}: remove {rule!r} from [permissions] {kind} by hand: its form is unusual"
        )
    try:
        write_settings_file(path, text.encode())
    except OSError as error:
        raise SettingsError(
            f"{shown}: cannot be written ({error.strerror}): remove {rule!r} by hand"
        ) from None


def _rest(
    values: Sequence[SettingValue], key: tuple[str, ...]
) -> list[tuple[tuple[str, ...], object]]:
    return [(value.path, value.value) for value in values if value.path != key]
