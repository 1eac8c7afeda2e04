"""Look up commands of the core and of extensions, for the parser, the help and the completion."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from longrein.config import environment, home_folder, named_plugins
from longrein.events import LongreinError, UsageError
from longrein.extension_points import (
    COMMANDS_DOOR,
    EXPORTERS_DOOR,
    HELP,
    Command,
    Point,
    bundled_points,
    installed_points,
)
from longrein.frontends.flags import COMMANDS, OWN_FORMATS


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
    return msgspec.structs.replace(
        command, flags=(msgspec.structs.replace(format_flag, choices=choices), *others)
    )


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
    return msgspec.structs.replace(command, flags=(*command.flags, HELP))
