"""Look up commands of the core and of extensions, for the parser, the help and the completion."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from longrein.config import environment, home_folder, named_plugins
from longrein.extension_points import (
    COMMANDS_DOOR,
    EXPORTERS_DOOR,
    HELP,
    Command,
    Point,
    absence_of,
    bundled_points,
    installed_points,
)
from longrein.frontends.subcommands import COMMANDS, OWN_FORMATS
from longrein_context.events import LongreinError, UsageError


def find_command(word: str) -> Command | None:
    """Return the command called `word`, of the core or an extension; None if there is none.

    Raises `UsageError` for one of an installed package that cannot be loaded.
    """
    if word == "export":
        return _with_formats(COMMANDS[word], [*bundled_points(), *_installed_points()])
    if word in COMMANDS or not re.fullmatch(r"[a-z][a-z0-9-]*", word):
        return COMMANDS.get(word)
    points = _commands_in([*bundled_points(), *_installed_points()])
    found = next((point for point in points if point.name == word), None)
    return _loaded(found) if found is not None else None


def bundled_commands() -> dict[str, Command]:
    """Return the commands of longrein and its bundled extensions, in the order of the help."""
    points = bundled_points()
    own = [_with_formats(command, points) for command in COMMANDS.values()]
    return _in_order(own, [_loaded(point) for point in _commands_in(points)])


def known_commands() -> dict[str, Command]:
    """Return all commands, also those of installed packages, without what cannot be loaded."""
    found, installed = bundled_commands(), list(_installed_points())
    for point in _commands_in(installed):
        try:
            found.setdefault(point.name, _loaded(point))
        except LongreinError:  # `longrein doctor` says why
            continue
    found["export"] = _with_formats(COMMANDS["export"], [*bundled_points(), *installed])
    return found


def _in_order(commands: Sequence[Command], more: Sequence[Command]) -> dict[str, Command]:
    """Return `commands` by name with `more` among them, each behind the one that it names."""
    found: dict[str, Command] = {}
    for command in commands:
        found[command.name] = command
        found |= {one.name: one for one in more if one.after == command.name and one.after}
    return found | {one.name: one for one in more if one.name not in found}


def command_problems() -> Iterator[str]:
    """Yield why commands of installed packages cannot be used."""
    own = bundled_commands()
    for point in _commands_in(_installed_points()):
        try:
            if point.name in own:
                raise UsageError(f"{point.extension}: longrein has a command {point.name} already")
            _loaded(point)
        except LongreinError as error:
            yield str(error)


def _commands_in(points: Iterable[Point]) -> list[Point]:
    return [point for point in points if point.door == COMMANDS_DOOR]


def _with_formats(command: Command, points: Iterable[Point]) -> Command:
    """Return the command `export` with the formats of extensions; any other as it is."""
    if command.name != "export":
        return command
    formats = [point.name for point in points if point.door == EXPORTERS_DOOR]
    choices = tuple(dict.fromkeys((OWN_FORMATS[0], *formats, *OWN_FORMATS[1:])))
    format_flag, *others = command.flags
    return command._replace(flags=(format_flag._replace(choices=choices), *others))


def _installed_points() -> Iterator[Point]:
    environ = environment()
    for package in named_plugins(environ, home_folder(environ)):
        try:
            yield from installed_points(package)
        except LookupError:  # a session and `longrein doctor` say so
            continue


def _loaded(point: Point) -> Command:
    """Import a command. Raises `UsageError`."""
    try:
        command = point.load()
    except Exception as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UsageError(
            f"the command {point.name} of {point.extension} cannot be loaded: {why}"
        ) from error
    if not isinstance(command, Command) or command.name != point.name or not command.run:
        raise UsageError(
            f"{point.extension}: {point.value} is no command {point.name} with a function"
        )
    if HELP in command.flags:
        return command
    return command._replace(flags=(*command.flags, HELP))


# --- Words that are no commands -------------------------------------------------------------------


RESERVED: Mapping[str, str] = {
    word: told
    for told, words in (
        (
            (
                "`longrein help` shows commands and flags, `longrein help COMMAND` those of one "
                "command"
            ),
            "commands",
        ),
        (
            "`longrein login` keeps a key; others come from variables such as ANTHROPIC_API_KEY",
            (
                "signin signout auth account whoami setup-token providers provider key keys "
                "credentials"
            ),
        ),
        (
            (
                "settings stand in ~/.config/longrein/config.toml, see docs/settings.md; `longrein "
                "doctor` says what holds"
            ),
            (
                "config configure configuration settings setup set env permissions sandbox "
                "features "
                "hooks hook"
            ),
        ),
        (
            "nothing needs to be set up; instructions for a project stand in its AGENTS.md",
            "init onboard memory",
        ),
        (
            "`longrein -c` goes on with the newest session, `longrein -r` lets you choose one",
            "continue resume",
        ),
        ("`longrein -r ID --fork-session` goes on in a copy", "fork"),
        ('`longrein -p "…"` answers one prompt and exits', "run exec print ask"),
        ("plain `longrein` begins a session", "new chat start interactive tui repl cli"),
        (
            "`longrein sessions` lists the sessions",
            "list ls ps history threads thread projects project",
        ),
        ("`longrein export ID` writes a session out", "log logs share"),
        (
            "`longrein context ID` shows what fills a session; /cost in a session what it cost",
            "stats usage cost",
        ),
        ("--model PROVIDER/MODEL or /model chooses the model", "model models"),
        (
            "it is a command within a session: type it there after a /",
            "compact rewind clear pin goals queue",
        ),
        ("`longrein --version` shows it", "version about"),
        (
            "install or update longrein by the tool that installed it, such as pip",
            "install update upgrade uninstall",
        ),
        ("`longrein doctor` says what is here and what is missing", "status info debug"),
        (
            (
                "longrein has no server; programs use `longrein -p --input-format stream-json "
                "--output-format stream-json`"
            ),
            (
                "serve server web app desktop ide daemon gateway attach connect remote "
                "remote-control "
                "app-server"
            ),
        ),
        (
            "it is not available yet",
            (
                "mcp-server plugin plugins extension extensions skill skills recipe cloud review "
                "apply pr"
            ),
        ),
    )
    for word in words.split()
}
"""Commands of other agents, each with the longrein equivalent; a lone one is not sent to a model
as a prompt.
"""


def reserved(word: str) -> str:
    """Return what to use in place of the command `word`, which is not here; '' if it may be a
    prompt.
    """
    return RESERVED.get(word) or absence_of(word)
