"""An "always allow" goes into the user's settings file, and not one other character of it changes."""

import os
import re
from collections.abc import Mapping

from longrein.config.places import user_file
from longrein.config.reading import Value, read_file, read_text, short, values_of
from longrein.config.writing import replace_file
from longrein.events import SettingsError
from longrein.permissions import check_rule

_HEADER = r"(?m)^[ \t]*\[[ \t]*permissions[ \t]*\][ \t]*(?:#.*)?$"
_ANY_HEADER = r"(?m)^[ \t]*\["
_ALLOW = r"(?m)^[ \t]*allow[ \t]*=[ \t]*\["
_DOTTED = r"(?m)^[ \t]*permissions[ \t]*\.[ \t]*allow[ \t]*=[ \t]*\["
_TOKEN = r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]]|[^\s]'


def remember_rule(rule: str, environ: Mapping[str, str], home: str) -> None:
    """Add `rule` to `[permissions] allow` of the user's settings file, which is made where it is missing.

    Nothing happens where it stands there already. Raises SettingsError when the rule or the file is malformed, or when
    the file is written in a way that cannot be added to safely; it is unchanged then.
    """
    path = user_file(environ, home)
    shown = short(path, home)
    problem = check_rule(rule, "allow")
    if problem or not rule.isprintable():
        raise SettingsError(f"{rule!r} cannot be stored: {problem or 'it holds invisible characters'}")
    before = read_file(path, shown) or ()
    listed: list[str] = next((v.value for v in before if v.path == ("permissions", "allow")), [])
    if rule in listed:
        return
    text = with_rule(read_text(path, shown) or "", rule, bool(listed))
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        _try_out(text, path, {*listed, rule}, before)
        replace_file(path, text.encode())
    except OSError as error:
        raise SettingsError(f"{shown}: cannot be written ({error.strerror}): add {rule} to it by hand") from None
    except _Unsafe:
        raise SettingsError(f"{shown}: add {rule} to [permissions] allow by hand: its form is unusual") from None


class _Unsafe(Exception):
    """The text would not say what it should."""


def _try_out(text: str, path: str, rules: set[str], before: tuple[Value, ...]) -> None:
    """Read the new text: it must hold what the old one held, and the rule."""
    try:
        after = values_of(text, path)
    except SettingsError as error:
        raise _Unsafe(path) from error
    key = ("permissions", "allow")
    same = [v.value for v in after if v.path != key] == [v.value for v in before if v.path != key]
    if not same or [set(v.value) for v in after if v.path == key] != [rules]:
        raise _Unsafe(path)


def with_rule(text: str, rule: str, any_before: bool) -> str:
    """TOML text with `rule` at the end of `[permissions] allow`."""
    quoted = '"' + rule.replace("\\", "\\\\").replace('"', '\\"') + '"'
    header = re.compile(_HEADER).search(text)
    end = len(text)
    if header:
        following = re.compile(_ANY_HEADER).search(text, header.end())
        end = following.start() if following else end
    listed = re.compile(_ALLOW).search(text, header.end(), end) if header else re.compile(_DOTTED).search(text)
    if listed:
        return _into_list(text, listed.end(), quoted, any_before)
    if header:
        return f"{text[: header.end()]}\nallow = [{quoted}]{text[header.end() :]}"
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{gap}[permissions]\nallow = [{quoted}]\n"


def _into_list(text: str, start: int, quoted: str, any_before: bool) -> str:
    """Add an element before the bracket that closes the list whose content begins at `start`."""
    comma_wanted, last = any_before, start
    for token in re.compile(_TOKEN).finditer(text, start):
        if token[0] == "]":
            break
        if not token[0].startswith("#"):
            comma_wanted, last = token[0] != ",", token.end()
    line = re.search(r"\n([ \t]*)[^\n]*\Z", text[start:last])
    between = ("," if comma_wanted else "") + (f"\n{line[1]}" if line else " " if any_before else "")
    return f"{text[:last]}{between}{quoted}{text[last:]}"
