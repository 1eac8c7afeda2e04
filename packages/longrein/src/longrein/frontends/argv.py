"""The command line: a strict parser, whose errors say what to write instead, and the look-up of
commands of the core and of extensions, which the help and the completion share.

Extensions are looked up only for a word that is no command of the core.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from longrein.config import environment, home_folder, named_plugins
from longrein.extension_points import (
    COMMANDS_DOOR,
    EXPORTERS_DOOR,
    HELP,
    Command,
    Flag,
    Point,
    absence_of,
    bundled_points,
    installed_points,
)
from longrein.frontends.subcommands import COMMANDS, MAIN, NOT_YET, OWN_FORMATS, WITHOUT_EFFECT
from longrein_context.events import LongreinError, UsageError
from longrein_context.events.escape import nearest, shortened


class Parsed:
    """Parsed argv."""

    def __init__(self) -> None:
        self.command = MAIN
        self.values: dict[str, Any] = {}
        """Field of a flag -> value, for the flags given."""
        self.words: list[str] = []
        """Positional words."""


def parse(argv: Sequence[str]) -> Parsed:
    """Parse `argv`, which does not hold the program's name. Raises `UsageError`.

    `--flag VALUE`, `--flag=VALUE`, `-x VALUE`, `-xVALUE` and joined switches are read; `--` ends
    the flags; a word with a blank in it that starts with `-` is no flag.
    """
    parsed = Parsed()
    rest = list(reversed(argv))
    while rest:
        token = rest.pop()
        if token == "--":
            parsed.words += reversed(rest)
            break
        if _is_flag(token):
            _read_flag(parsed, token, rest)
        elif _may_be_command(parsed, token):
            _read_word(parsed, token, rest)
        else:
            parsed.words.append(token)
    _check(parsed, sure="--" in argv)
    return parsed


def _may_be_command(parsed: Parsed, token: str) -> bool:
    is_first = parsed.command is MAIN and not parsed.words and "print" not in parsed.values
    return is_first and token != "" and " " not in token


def _read_word(parsed: Parsed, token: str, rest: Sequence[str]) -> None:
    """Take a word that may be a command; `rest` as in `_is_prompt`. Raises `UsageError`."""
    command = find_command(token)
    if command is not None:
        parsed.command = command
    elif (told := reserved(token.lower())) and not _is_prompt(parsed, rest):
        prompt = f'"{token} …"' if any(not _is_flag(word) for word in rest) else token
        said = f"no command {token!r}: {told}"
        raise UsageError(f"{said} (if it is a prompt: longrein -- {prompt})")
    else:
        parsed.words.append(token)


def clean(text: str) -> str:
    """Make `text` from argv valid Unicode: invalid bytes become the replacement character."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


TYPO_RATIO = 0.76
"""Similarity from which a lone word counts as a mistyped command and not as a prompt."""


def _hint(word: str, known: Iterable[str], ratio: float = 0.65) -> str:
    """`; did you mean X?` for a similar word in `known`, else ''."""
    near = nearest(word, known, ratio)
    return f"; did you mean {near}?" if near else ""


def _is_flag(token: str) -> bool:
    return (
        token.startswith("-")
        and token != "-"
        and not any(map(str.isspace, token.partition("=")[0]))
    )


def _is_prompt(parsed: Parsed, rest: Sequence[str]) -> bool:
    """Return True if a word that is a command of another agent is a prompt; `rest` holds the tokens
    after it, reversed.

    With -p, -c or -r it is one. A prompt of several words is one token with blanks, so it may begin
    with any word.
    """
    flags = rest[rest.index("--") + 1 :] if "--" in rest else rest
    return bool(
        _PROMPTING & parsed.values.keys()
        or any(map(_is_prompting, flags))
        or {"-h", "--help"} & {*flags}
    )


_PROMPTING = frozenset(("print", "continue_newest", "resume"))
"""Fields of the flags after which a lone word is a prompt."""


def _is_prompting(flag: str) -> bool:
    return flag in ("--print", "--continue") or flag.startswith(("-p", "-c", "-r", "--resume"))


def _read_flag(parsed: Parsed, token: str, rest: list[str]) -> None:
    name, equals, joined = token.partition("=")
    flag = _flag(parsed.command, name)
    if flag is None and not name.startswith("--") and len(name) > 2:
        flag = _flag(parsed.command, token[:2])
        equals = ""
        joined = token[2:]
        if flag is not None and flag.kind == "switch":
            rest.append("-" + joined)
            joined = ""
        name = token[:2]
    if flag is None and parsed.command is MAIN and name in WITHOUT_EFFECT:
        _skip_flag(parsed, name, equals, rest)
        return
    if flag is None:
        if parsed.command is MAIN and parsed.words:
            _refuse_near_command(parsed.words[0])
        raise UsageError(_unknown(parsed.command, name))
    if flag.kind == "switch":
        if equals:
            raise UsageError(f"{name} takes no value: leave out {equals}{joined}")
        _set(parsed.values, flag, True)
    else:
        _set(parsed.values, flag, _value(flag, equals, joined, rest))


def _skip_flag(parsed: Parsed, name: str, equals: str, rest: list[str]) -> None:
    """Take a flag that has no effect, with its value, and note the line about it."""
    takes_value, line = WITHOUT_EFFECT[name]
    if takes_value and not equals:
        if not rest:
            raise UsageError(f"{name} needs a value")
        rest.pop()
    told = parsed.values.get("without_effect", ())
    parsed.values["without_effect"] = (*told, f"{name} has no effect: {line}") if line else told


def _value(flag: Flag, equals: str, joined: str, rest: list[str]) -> Any:
    """Value of a flag, from its token or the next one."""
    if equals or joined:
        return convert(flag, joined)
    if flag.kind == "maybe":
        return (
            rest.pop()
            if rest and not rest[-1].startswith("-") and not any(map(str.isspace, rest[-1]))
            else ""
        )
    if not rest or (_is_flag(rest[-1]) and _flag(MAIN, rest[-1].partition("=")[0]) is not None):
        raise UsageError(f"{flag.name} needs a value: {flag.name} {flag.metavar}")
    return convert(flag, rest.pop())


def convert(flag: Flag, text: str) -> Any:
    """Convert `text` to a value of `flag`. Raises `UsageError`."""
    if flag.choices and text not in flag.choices:
        near = _hint(text, flag.choices)
        raise UsageError(f"{flag.name}: {text!r} is not one of {', '.join(flag.choices)}{near}")
    match flag.kind:
        case "count":
            if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0):
                raise UsageError(f"{flag.name}: {text!r} is not a whole number above 0")
            return int(text)
        case "money":
            dollars = _number(text.removeprefix("$"))
            if not (math.isfinite(dollars) and dollars > 0):
                raise UsageError(
                    f"{flag.name}: {text!r} is not an amount of US dollars such as 2.50"
                )
            return dollars
        case "rules":
            return _rules(flag, text)
        case "text":
            return text
        case _:
            if not text:
                raise UsageError(f"{flag.name} needs a value: {flag.name} {flag.metavar}")
            return text


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _rules(flag: Flag, text: str) -> tuple[str, ...]:
    """Split `Edit,Bash(git log) Read` into three rules: at commas and blanks outside of
    brackets.
    """
    rules, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            break
        if depth == 0 and (char == "," or char.isspace()):
            rules.append("")
        else:
            rules[-1] += char
    found = tuple(filter(None, rules))
    if depth != 0 or not found:
        raise UsageError(
            f"{flag.name}: {text!r} is no list of rules such as 'Edit,Bash(git status)'"
        )
    return found


def _set(values: dict[str, Any], flag: Flag, value: Any) -> None:
    if flag.kind == "rules":
        value = (*values.get(flag.field, ()), *value)
    elif flag.kind == "words":
        value = (*values.get(flag.field, ()), value)
    elif values.get(flag.field, value) != value:
        raise UsageError(
            f"{flag.name} is given twice, as {values[flag.field]!r} and {value!r}: give it once"
        )
    values[flag.field] = value


def _flag(command: Command, name: str) -> Flag | None:
    return next((flag for flag in command.flags if name in flag.names), None)


def _unknown(command: Command, name: str) -> str:
    if command is MAIN and name in NOT_YET:
        return f"{name} is not available yet"
    here = f"longrein {command.name}".rstrip()
    spellings = [spelling for flag in command.flags for spelling in flag.names]
    return f"{here} has no flag {name}{_hint(name, spellings) or f'; see {here} --help'}"


def _check(parsed: Parsed, *, sure: bool) -> None:
    """Check flags and words of the command; with `sure`, a word that looks like a command is a
    prompt.
    """
    command, words = parsed.command, parsed.words
    fields = {flag.field for flag in command.flags}
    for flag in MAIN.flags:
        if flag.field in parsed.values and flag.field not in fields:
            raise UsageError(
                f"longrein {command.name} has no flag {flag.name}; see longrein {command.name} "
                "--help"
            )
    if parsed.values.get("help") or parsed.values.get("version"):
        return
    if len(words) > command.words_max:
        raise UsageError(_too_many(command, words))
    if len(words) < command.words_min:
        lists = (
            "; `longrein sessions` lists them"
            if command.usage.startswith(("ID", "SESSION"))
            else ""
        )
        raise UsageError(f"which one? longrein {command.name} {command.usage}{lists}")
    sure = sure or bool(_PROMPTING & parsed.values.keys())
    if command is MAIN and words and not sure:
        _refuse_near_command(words[0])


def _refuse_near_command(word: str) -> None:
    """Raise `UsageError` for a word that is nearly a command: similar, or with letters
    exchanged.
    """
    if any(map(str.isspace, word)):
        return
    names = [name for name in known_commands() if name]
    swapped = next((name for name in names if sorted(name) == sorted(word.lower())), "")
    near = f"; did you mean {swapped}?" if swapped else _hint(word, names, TYPO_RATIO)
    if near:
        raise UsageError(f"no command {word!r}{near} (if it is a prompt: longrein -- {word})")


def _too_many(command: Command, words: Sequence[str]) -> str:
    if command is MAIN:
        first = shortened(words[0], 40)
        return (
            f"one prompt is expected, but {words[1]!r} follows {first!r}: put quotes around "
            "the whole"
        )
    return f"longrein {command.name} does not know what to do with {words[command.words_max]!r}"


# --- Commands -------------------------------------------------------------------------------------


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
            "stats cost",
        ),
        ("--model PROVIDER/MODEL or /model chooses the model", "model models"),
        (
            "it is a command within a session: type it there after a /",
            "compact rewind clear pin goals queue",
        ),
        ("`python -m lab.fit` and `lab.simulate` run in a checkout of longrein", "fit simulate"),
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
