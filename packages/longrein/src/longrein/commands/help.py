"""`longrein help`: the help page of a command, or the man page of all of them, from the tables
of flags.
"""

from collections.abc import Sequence

from longrein import __version__
from longrein.extension_points import Command, Flag
from longrein.frontends.command_lookup import (
    bundled_commands,
    find_command,
    known_commands,
    reserved,
)
from longrein.frontends.help_page import EXIT_CODES, help_columns, help_page
from longrein.frontends.stdio import show
from longrein.frontends.subcommands import MAIN
from longrein.options import MAIN_GROUPS
from longrein_context.events import UsageError
from longrein_context.events.escape import nearest

NEAR = 0.65
FILES = (
    (
        "~/.config/longrein/config.toml",
        "settings; .longrein/config.toml in a project that is trusted",
    ),
    (
        "~/.config/longrein/credentials.json",
        "keys that `longrein login` has kept, where there is no keyring",
    ),
    ("~/.local/state/longrein", "sessions (LONGREIN_STATE_DIR)"),
)


def help(_place: object, words: Sequence[str], *, man: bool = False) -> int:  # noqa: A001 - the name of the command
    """Show the page of a command, that of longrein itself without one, or with `man` the man
    page.
    """
    if man:
        show(man_page())
    else:
        show(help_page(_command(words[0]) if words else MAIN, help_columns()))
    return 0


def _command(word: str) -> Command:
    """Return the command called `word`. Raises `UsageError`."""
    if word and (command := find_command(word)) is not None:
        return command
    if told := reserved(word.lower()):
        raise UsageError(f"no command {word!r}: {told}")
    near = nearest(word, filter(None, known_commands()), NEAR)
    raise UsageError(
        f"no command {word!r}; "
        + (f"did you mean {near}?" if near else "`longrein help` lists them")
    )


# --- Man page -------------------------------------------------------------------------------------


def man_page() -> str:
    """Return the man page in roff, the same at any time and place."""
    commands = [command for command in bundled_commands().values() if command.name]
    rows = [
        f'.TH LONGREIN 1 "" "longrein {__version__}" "User Commands"',
        ".SH NAME",
        _roff("longrein - a coding agent for the terminal"),
        ".SH SYNOPSIS",
        r".B longrein",
        _roff(MAIN.usage),
        ".br",
        r".B longrein",
        _roff("COMMAND [FLAGS]"),
        ".SH DESCRIPTION",
        _roff(MAIN.help),
        ".SH COMMANDS",
    ]
    for command in commands:
        rows += [".TP", rf"\fB{_roff(command.name)}\fR {_roff(command.usage)}", _roff(command.help)]
        for flag in command.flags[:-1]:  # the last one is --help
            rows += [".RS", ".TP", _flag(flag), _roff(flag.help), ".RE"]
    rows.append(".SH OPTIONS")
    for group, flags in MAIN_GROUPS.items():
        rows.append(f".SS {_roff(group)}")
        for flag in flags:
            rows += [".TP", _flag(flag), _roff(flag.help)]
    for title, pairs in (("EXIT STATUS", EXIT_CODES), ("FILES", FILES)):
        rows.append(f".SH {title}")
        for name, told in pairs:
            rows += [".TP", rf"\fB{_roff(name)}\fR", _roff(told)]
    return "\n".join(rows) + "\n"


def _flag(flag: Flag) -> str:
    names = ", ".join(rf"\fB{_roff(name)}\fR" for name in flag.names)
    value = f"[{flag.metavar}]" if flag.kind == "maybe" else flag.metavar
    return f"{names} {_roff(value)}".rstrip()


def _roff(text: str) -> str:
    """Escape text for roff: backslashes, hyphens, what is not ASCII, and a dot or quote that
    begins a line.
    """
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    escaped = "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in escaped)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
