"""Settings of other agents in the form of `.claude/settings.json`: rules, folders, mode, variables,
model.

The user's own file counts like settings below longrein's own. A project's file can only narrow: its
`deny` and `ask` rules apply, the rest is named and not used, unless the user has listed the project
in `other_agents.full`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longrein.config.hook_files import HookFile, project_files
from longrein.config.instructions import project_root
from longrein.config.settings_file import COUNT_MAX, SettingValue, shorten_home
from longrein.config.user_environment import agent_folder, parse_table, read_table
from longrein.permissions import check_rule, escape
from longrein_context.events import UsageError
from longrein_context.events.escape import nearest

MISSPELT_RATIO = 0.75
"""Likeness from which a key is taken for a misspelt one; others may be keys of that agent."""
RULES_MAX = 1_000
"""Rules of one list."""
TAKEN_MODES = ("plan", "dontAsk", "default", "acceptEdits")
"""Modes that another agent's file may set; wider ones are for longrein's own settings and flags."""
WIDENING = ("allow", "additionalDirectories", "defaultMode")
"""Keys of `permissions` that a project's file may not use."""


class OtherSettings(msgspec.Struct, frozen=True):
    """Contents of one file of another agent."""

    values: tuple[SettingValue, ...] = ()
    """In the keys of longrein."""
    variables: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()
    model: str = ""
    """Name or alias of a model, as written."""
    notes: tuple[str, ...] = ()
    place: str = ""
    """The file, for display."""


def own_file(home: str, environ: Mapping[str, str]) -> HookFile:
    """Return the user's own settings file of that form, which may not exist."""
    path = f"{agent_folder('claude', environ, home)}/settings.json"
    return HookFile(path, shorten_home(path, home), is_own=True)


def read_own(home: str, environ: Mapping[str, str]) -> OtherSettings:
    """Read the user's own file."""
    file = own_file(home, environ)
    table, problem = read_table(file.path, file.shown)
    return _Reader(file, home).read(table, problem, narrow=False)


GIVEN = "--settings"
NO_SKILL_COMMANDS = "disableSkillShellExecution"
"""Key that keeps the commands in skills from running."""
USED_KEYS = (
    "permissions",
    "env",
    "model",
    "hooks",
    "disableAllHooks",
    NO_SKILL_COMMANDS,
    "$schema",
)
"""Keys of such a file that longrein uses."""
OWN_KEYS = (*USED_KEYS, "statusLine")
"""The same for a file of the user."""


def read_given(given: str, cwd: str, home: str) -> tuple[OtherSettings, dict[str, Any]]:
    """Read the value of `--settings`, a file or a JSON object: (what it brings, its fields).

    It comes from the user, so nothing of it is narrowed. Raises `UsageError`.
    """
    path = "" if given.lstrip().startswith("{") else os.path.join(cwd, os.path.expanduser(given))
    if path and not os.path.lexists(path):
        raise UsageError(f"{GIVEN}: there is no file {given}")
    table, problem = read_table(path, GIVEN) if path else _inline(given)
    if problem:
        raise UsageError(problem.partition(": mend")[0])
    file = HookFile(path or f"{cwd}/{GIVEN}", GIVEN, is_own=True)
    found = _Reader(file, home).read(table, "", narrow=False)
    unused = ", ".join(key for key in table if key not in OWN_KEYS)
    note = (escape(f"{GIVEN}: {unused} has no effect")[:200],) if unused else ()
    return msgspec.structs.replace(found, notes=(*found.notes, *note)), table


def _inline(text: str) -> tuple[dict[str, Any], str]:
    try:
        return parse_table(text.encode("utf-8", "surrogateescape")), ""
    except ValueError as error:
        return {}, f"{GIVEN} is no JSON object: {error}"


def read_project(
    cwd: str, home: str, environ: Mapping[str, str], full: Sequence[str]
) -> list[OtherSettings]:
    """Read the files of a trusted project. `full`: folders of projects that may also widen."""
    root = os.path.realpath(project_root(cwd))
    may_widen = any(
        os.path.realpath(folder.replace("~", home, 1)) == root for folder in full if folder
    )
    return [
        read_file_of_project(file, home, narrow=not may_widen)
        for file in project_files(cwd, home, environ)
    ]


def read_file_of_project(file: HookFile, home: str, *, narrow: bool = True) -> OtherSettings:
    """Read one file of a project; a file of hooks alone brings nothing here."""
    if file.path.endswith("/hooks.json"):
        return OtherSettings()
    table, problem = read_table(file.path, file.shown)
    return _Reader(file, home).read(table, problem, narrow=narrow)


class _Reader:
    """Reads one file."""

    def __init__(self, file: HookFile, home: str) -> None:
        self._file, self._home = file, home
        self._notes: list[str] = []

    def read(self, table: dict[str, Any], problem: str, *, narrow: bool) -> OtherSettings:
        """Return what the file brings; with `narrow` only what makes less possible."""
        self._note_misspelt(table, OWN_KEYS)
        rules = self._table(table, "permissions")
        self._note_misspelt(rules, ("ask", "deny", *WIDENING), "permissions.")
        values = [value for name in ("ask", "deny") for value in self._rules(rules, name)]
        if table.get(NO_SKILL_COMMANDS) is True:
            values.append(SettingValue(("skills", "disable_commands"), True, self._file.shown))
        if problem or narrow:
            unused = [f"permissions.{name}" for name in WIDENING if rules.get(name)]
            unused += [name for name in ("env", "model") if table.get(name)]
            if unused:
                self._note(
                    f"{', '.join(unused)} not used: a project can only narrow (other_agents.full "
                    "changes that)"
                )
            return OtherSettings(tuple(values), notes=(*filter(None, (problem,)), *self._notes))
        values += self._rules(rules, "allow")
        values += self._mode(rules.get("defaultMode"))
        values += self._status_line(table)
        variables = self._table(table, "env")
        wrong = [
            name
            for name, value in variables.items()
            if not isinstance(value, str) or "\0" in name + value or "=" in name or not name
        ]
        if wrong:
            self._note(f"env.{wrong[0][:60]} is no variable with a text")
        model = table.get("model")
        return OtherSettings(
            tuple(values),
            tuple((name, value) for name, value in variables.items() if name not in wrong),
            tuple(self._folders(rules.get("additionalDirectories"))),
            model if isinstance(model, str) else "",
            tuple(self._notes),
            self._file.shown,
        )

    def _note_misspelt(
        self, table: dict[str, Any], known: tuple[str, ...], where: str = ""
    ) -> None:
        """Name the keys that are nearly those that are used: a misspelt `deny` denies nothing."""
        for key in table:
            if key not in known and (meant := nearest(key.lower(), known, MISSPELT_RATIO)):
                self._note(f"{where}{key[:60]} is not known and not used: did you mean {meant}?")

    def _table(self, table: dict[str, Any], name: str) -> dict[str, Any]:
        found = table.get(name)
        if found is not None and not isinstance(found, dict):
            self._note(f"{name} is no object")
        return found if isinstance(found, dict) else {}

    def _rules(self, rules: dict[str, Any], kind: str) -> list[SettingValue]:
        """Return the rules of one list; invalid ones are left out with a note."""
        listed = rules.get(kind)
        if listed is None:
            return []
        if not isinstance(listed, list):
            self._note(f"permissions.{kind} is no list")
            return []
        kept = []
        for rule in listed[:RULES_MAX]:
            problem = (
                check_rule(rule, "allow" if kind == "allow" else "rules")
                if isinstance(rule, str)
                else "is no text"
            )
            if problem and (kind != "deny" or not isinstance(rule, str)):
                self._note(f"permissions.{kind} {str(rule)[:80]!r}: {problem}")
            elif isinstance(rule, str):  # an invalid deny rule denies its whole tool
                kept.append(self._placed(rule, kind))
        return [SettingValue(("permissions", kind), kept, self._file.shown)] if kept else []

    def _placed(self, rule: str, kind: str) -> str:
        """Return a rule with `/path` relative to the folder that it means: of the file, or of the
        project.

        A rule of the user's own file that asks or denies is also meant for the project at hand, so
        it stays as it is.
        """
        tool, bracket, spec = rule.partition("(")
        folder = os.path.dirname(self._file.path)
        folder = folder if self._file.is_own else os.path.dirname(folder)
        stays = self._file.is_own and kind != "allow"
        if (
            stays
            or not spec.startswith("/")
            or spec.startswith("//")
            or any(sign in folder for sign in "*?[]\\!")
        ):
            return rule
        return f"{tool}{bracket}/{folder}{spec}"

    def _mode(self, mode: Any) -> list[SettingValue]:
        if mode is None:
            return []
        if mode not in TAKEN_MODES:
            self._note(
                f"permissions.defaultMode {str(mode)[:40]!r} not used: set permission_mode in "
                "config.toml"
            )
            return []
        return [SettingValue(("permission_mode",), mode, self._file.shown)]

    def _status_line(self, table: dict[str, Any]) -> list[SettingValue]:
        given, place = self._table(table, "statusLine"), self._file.shown
        command = given.get("command")
        if (
            given.get("type", "command") != "command"
            or not isinstance(command, str)
            or not command.strip()
        ):
            return []
        found = [SettingValue(("terminal", "status_line"), command, place)]
        for name, key, kind in (
            ("padding", "padding", int),
            ("refreshInterval", "refresh_s", (int, float)),
        ):
            value = given.get(name)
            if isinstance(value, kind) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX:
                found.append(SettingValue(("terminal", f"status_line_{key}"), value, place))
        return found

    def _folders(self, listed: Any) -> list[str]:
        found = []
        for name in listed if isinstance(listed, list) else []:
            folder = str(name)
            folder = self._home + folder[1:] if folder.startswith("~") else folder
            if os.path.isabs(folder) and os.path.isdir(folder):
                found.append(os.path.abspath(folder))
            else:
                self._note(f"permissions.additionalDirectories {str(name)[:80]!r} is no folder")
        return found

    def _note(self, text: str) -> None:
        self._notes.append(escape(f"{self._file.shown}: {text}"))
