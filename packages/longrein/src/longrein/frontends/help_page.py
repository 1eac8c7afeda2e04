"""`longrein help` and `--help`: the page of a command, or the man page of all of them, from the
tables of flags.
"""

import os
import textwrap
from collections.abc import Sequence

from longrein import __version__
from longrein.extension_points import Command, Flag
from longrein.frontends.argv import bundled_commands, find_command, known_commands, parse
from longrein.frontends.stdio import show
from longrein.frontends.subcommands import MAIN
from longrein.options import MAIN_GROUPS
from longrein_context.events import UsageError

EXIT_CODES = (
    ("0", "done"),
    ("1", "error"),
    ("2", "the command line or a settings file is wrong"),
    ("3", "blocked: a permission was missing"),
    ("4", "limit reached: --max-turns or --max-budget-usd"),
    ("75", "trouble with the provider: worth trying again"),
    ("130, 143", "ended by Ctrl-C, by SIGTERM"),
)
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
    """Return the command called `word`. Raises `UsageError`, as the parser does for a word that is
    nearly a command.
    """
    command = find_command(word)
    if command is None:
        parse([word])
        raise UsageError(f"no command {word!r}; `longrein help` lists them")
    return command


# --- Help page ------------------------------------------------------------------------------------


def help_columns() -> int:
    """Return the columns of a help page: those of the terminal, at most 120; 100 without one."""
    try:
        return min(os.get_terminal_size(1).columns or 100, 120)
    except OSError:
        return 100


_EXAMPLES = (
    ("longrein", "talk in this folder"),
    ('longrein -p "why does the build fail?" < build.log', "one answer, and out"),
    ("longrein -c", "go on where you stopped, also after a crash"),
    ("longrein -p -c", "finish the turn that was cut"),
    ('longrein -p "mend the tests" --allowedTools "Edit,Bash(make)"', "nobody there to ask"),
)

_PROMPT = (
    "A PROMPT of several words is put in quotes and may begin with any word. One word alone that "
    "is a command of other "
    "agents, such as `init`, is sent to the model only after `--` or with -p, -c or -r."
)

_STDIN = (
    "What is piped in is added to PROMPT (10 MB at most). With a PROMPT, a pipe that says nothing "
    "for 3 seconds is "
    "left alone; once it has spoken, it is read to its end. "
    "The prompt - takes all of stdin as the prompt, however long that takes."
)


COLUMN_MAX = 34
"""Widest first column of a help page; what follows a longer word begins on the next line."""


def help_page(command: Command, width: int = 100) -> str:
    """Help page of `command`, at most `width` columns (at least 60 are used)."""
    width = max(width, 60)
    usage = f"Usage: longrein {command.name}".rstrip() + " "
    page = textwrap.wrap(
        command.usage, width, initial_indent=usage, subsequent_indent=" " * len(usage)
    )
    page += ["", *textwrap.wrap(command.help, width)]
    for title, rows in _sections(command):
        page += ["", f"{title}:"]
        column = min(max(len(word) for word, _ in rows), COLUMN_MAX) + 2
        margin = " " * (column + 2)
        for word, told in rows:
            start = f"  {word:{column}}"
            if len(start) > len(margin):
                page.append(start)
                start = margin
            page += textwrap.wrap(told, width, initial_indent=start, subsequent_indent=margin)
    for title, text in (("Prompt", _PROMPT), ("Stdin", _STDIN)) if command is MAIN else ():
        page += [
            "",
            f"{title}:",
            *textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  "),
        ]
    return "\n".join(page) + "\n"


def _sections(command: Command) -> list[tuple[str, list[tuple[str, str]]]]:
    """Headings with their rows of (spelling, description)."""
    if command is not MAIN:
        return [("Flags", [(_spelling(f), f.help) for f in command.flags])]
    flags = [
        (group, [(_spelling(f), f.help) for f in flags]) for group, flags in MAIN_GROUPS.items()
    ]
    commands = [(c.name, c.help) for c in known_commands().values() if c.name]
    return [
        ("Examples", list(_EXAMPLES)),
        ("Commands", commands),
        *flags,
        ("Exit codes", list(EXIT_CODES)),
    ]


def _spelling(flag: Flag) -> str:
    value = f"[{flag.metavar}]" if flag.kind == "maybe" else flag.metavar
    names = [name for name in flag.names if len(name) == 2]
    return f"{', '.join((*names, flag.name))} {value}".rstrip()


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
