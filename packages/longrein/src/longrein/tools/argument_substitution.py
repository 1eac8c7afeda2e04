"""Substitutions in the text of a skill or custom command: arguments, variables, commands and files.

One pass over the text, so that nothing that an argument or a command brings is read again. Each
agent has its own placeholders: in files of Claude Code `$0` is the first argument, in those of
opencode and Codex `$1` is.
"""

import re
import shlex
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from longrein.tools.skill import Style


class Piece(NamedTuple):
    """A piece of the text: kept, replaced by the output of a command, or by the content of a
    file.
    """

    kind: Literal["text", "command", "file"]
    text: str


class Arguments(NamedTuple):
    """The arguments of an invocation."""

    text: str
    words: Sequence[str]
    """Split like in a shell, quotes removed."""


def read_arguments(text: str) -> Arguments:
    """Split arguments like a shell; at blanks where the quotes do not fit."""
    text = text.strip()
    try:
        return Arguments(text, shlex.split(text))
    except ValueError:
        return Arguments(text, text.split())


def substitute(
    style: Style, body: str, arguments: str, variables: Mapping[str, str], names: Sequence[str] = ()
) -> list[Piece]:
    """Return the pieces of `body` with arguments and variables inserted.

    `variables`: name -> value of each `${NAME}`. `names`: declared names of the positional
    arguments. Where the text has no place for arguments that are given, they follow at its end.
    """
    given = read_arguments(arguments)
    if style == "gemini":
        pieces, used = _gemini(body, given)
    else:
        values = {"claude": _ClaudeValues, "opencode": _OpencodeValues, "codex": _CodexValues}[
            style
        ]
        pieces, used = _dollar(body, values(body, given, variables, names))
    if given.text and not used:
        pieces.append(
            Piece("text", f"\n\n{'' if style == 'opencode' else 'ARGUMENTS: '}{given.text}")
        )
    return _joined(pieces)


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Join neighbouring texts."""
    found: list[Piece] = []
    for piece in pieces:
        if found and piece.kind == found[-1].kind == "text":
            found[-1] = Piece("text", found[-1].text + piece.text)
        elif piece.text:
            found.append(piece)
    return found


# --- Placeholders with a dollar sign --------------------------------------------------------------


_COMMAND = r"(?:^|(?<=\s))!`(?P<command>[^`\n]+)`"
_PLACE = r"\$(?:ARGUMENTS(?:\[\d{1,4}\])?|\{\w{1,64}\}|\d{1,4}|[A-Za-z_]\w{0,63}|\$)"
_TOKEN = rf"(?m){_COMMAND}|(?P<place>\\?{_PLACE})"
_PLACES = rf"\\?{_PLACE}"


class _ClaudeValues:
    """Values of the placeholders of Claude Code: the first argument is `$0`."""

    first = 0

    def __init__(
        self, body: str, given: Arguments, variables: Mapping[str, str], names: Sequence[str]
    ) -> None:
        self.given, self.variables = given, variables
        self.named = {name: self._word(n) for n, name in enumerate(names)}
        self.last = max((int(n) for n in re.findall(r"(?<!\\)\$(\d{1,4})", body)), default=-1)
        self.used = False

    def _word(self, index: int) -> str:
        words = self.given.words
        return words[index] if 0 <= index < len(words) else ""

    def all(self) -> str:
        """Return the value of `$ARGUMENTS`."""
        return self.given.text

    def number(self, number: int) -> str | None:
        """Return the value of `$N`; None to leave it: a text about `$5` that is called without
        arguments.
        """
        return self._word(number) if self.given.text else None

    def name(self, name: str) -> str | None:
        """Return the value of `$name`; None for an unknown name."""
        return self.named.get(name)

    def value(self, place: str) -> str:
        """Return the text for a placeholder as written; a backslash before it keeps it."""
        escaped, inner = place.startswith("\\"), place.lstrip("\\")[1:]
        if inner == "ARGUMENTS":
            found: str | None = self.all()
        elif inner.startswith("ARGUMENTS["):
            found = self._word(int(inner[10:-1]))
        elif inner.startswith("{"):
            found = self.variables.get(inner[1:-1])
        elif inner.isdigit():
            found = self.number(int(inner))
        else:
            found = self.name(inner)
        if found is None:
            return place
        if escaped:
            return place[1:]
        self.used = self.used or not inner.startswith("{")
        return found


class _OpencodeValues(_ClaudeValues):
    """Values of opencode: the first argument is `$1`, and the last placeholder takes all that is
    left.
    """

    def number(self, number: int) -> str | None:
        if number == self.last:
            return " ".join(self.given.words[max(0, number - 1) :])
        return self._word(number - 1)


class _CodexValues(_ClaudeValues):
    """Values of Codex: `$1` to `$9`, `$NAME` from `NAME=value`, and `$$` for a dollar sign."""

    def __init__(
        self, body: str, given: Arguments, variables: Mapping[str, str], names: Sequence[str]
    ) -> None:
        pairs = [word.partition("=") for word in given.words if re.match(r"[A-Za-z_]\w*=", word)]
        super().__init__(body, given, variables, names)
        self.named = {name: value for name, _, value in pairs}

    def all(self) -> str:
        return " ".join(self.given.words)

    def number(self, number: int) -> str | None:
        first, rest = str(number)[0], str(number)[1:]  # `$12` is `$1` and a 2
        return self._word(int(first) - 1) + rest if number else None

    def name(self, name: str) -> str | None:
        return "$" if name == "$" else self.named.get(name)


def _with_values(text: str, values: _ClaudeValues) -> str:
    """Return a command with its placeholders replaced."""
    return re.compile(_PLACES).sub(lambda place: values.value(place[0]), text).strip()


def _dollar(body: str, values: _ClaudeValues) -> tuple[list[Piece], bool]:
    """Return (pieces, whether the text has a place for the arguments)."""
    pieces: list[Piece] = []
    for script, text in _scripts(body):
        if script:
            pieces.append(Piece("command", _with_values(text, values)))
        else:
            pieces += _filled(text, values)
    return pieces, values.used


def _filled(text: str, values: _ClaudeValues) -> Iterator[Piece]:
    at = 0
    for match in re.compile(_TOKEN).finditer(text):
        yield Piece("text", text[at : match.start()])
        at = match.end()
        if match["command"] is None:
            yield Piece("text", values.value(match["place"]))
        else:
            yield Piece("command", _with_values(match["command"], values))
    yield Piece("text", text[at:])


def _scripts(body: str) -> Iterator[tuple[bool, str]]:
    """Yield (is a script, text): the insides of fenced blocks that open with ```` ```! ````, and
    what is between.
    """
    lines = body.splitlines(keepends=True)
    closing = [n for n, line in enumerate(lines) if line.rstrip() == "```"]
    start = 0
    for n, line in enumerate(lines):
        if n < start or not re.fullmatch(r"```!\w*", line.rstrip()):
            continue
        found = bisect(closing, n)
        if found == len(closing):
            break
        end = closing[found]
        yield False, "".join(lines[start:n])
        yield True, "".join(lines[n + 1 : end])
        start = end + 1
        if lines[end].endswith("\n"):
            yield False, "\n"
    yield False, "".join(lines[start:])


# --- Gemini CLI -----------------------------------------------------------------------------------


def _gemini(body: str, given: Arguments) -> tuple[list[Piece], bool]:
    """Return (pieces, whether the text has a place for the arguments) of `{{args}}`,
    `!{command}` and `@{path}`.
    """
    used = "{{args}}" in body
    pieces: list[Piece] = []
    for kind, text in _braces(body):
        quoted: Callable[[str], str] = shlex.quote if kind == "command" else str
        filled = quoted(given.text).join(text.split("{{args}}"))
        pieces.append(Piece(kind, filled if kind == "text" else filled.strip()))
    return pieces, used


def _braces(body: str) -> Iterator[Piece]:
    """Yield texts, and the insides of `!{…}` and `@{…}`, whose braces must be balanced."""
    closing = _closing_braces(body)
    start = 0
    for match in re.finditer(r"[!@]\{", body):
        end = closing.get(match.end() - 1)
        if match.start() < start or end is None:
            continue
        yield Piece("text", body[start : match.start()])
        yield Piece("command" if match[0] == "!{" else "file", body[match.end() : end])
        start = end + 1
    yield Piece("text", body[start:])


def _closing_braces(body: str) -> dict[int, int]:
    """Return the place of the closing brace for each opening one that has one."""
    opened: list[int] = []
    found: dict[int, int] = {}
    for match in re.finditer(r"[{}]", body):
        if match[0] == "{":
            opened.append(match.start())
        elif opened:
            found[opened.pop()] = match.start()
    return found
