"""Commands that are nothing but words: the only ones an allow rule can cover.

Whatever a shell could expand, join or redirect makes a command not plain, and a command that is not plain asks. So a
rule is never trusted with text whose meaning this code would have to guess.
"""

import re

META = frozenset(";&|<>$(){}*?[~#!\\`\n")
"""Characters that mean something to a shell anywhere but between single quotes."""

LENGTH_MAX = 30_000
"""Characters of a command that is read; a longer one is unknown: no rule allows it, each rule that forbids or asks for
some commands reaches it. A system starts no command line over 131,072 bytes in any case."""
TOO_LONG = f"more than {LENGTH_MAX:,} characters"

_ASSIGNMENT = r"(?s)[A-Za-z_]\w*(\[.*\])?\+?="
_BARE = r"[\w@%+=:,./^\]*-]+"
_NUMBER = r"\d+(\.\d+)?[smhd]?"
_WRAPPERS = ("timeout", "time", "nice", "nohup", "stdbuf")


def plain_words(command: str, meta: frozenset[str] = META) -> tuple[tuple[str, ...], str]:
    """The words of a command and '', or () and what it holds that makes it not plain, such as "`;`"."""
    if len(command) > LENGTH_MAX:
        return (), TOO_LONG
    words: list[list[str]] = []
    inside = False  # a word has begun
    quote = ""
    for c in command:
        problem = _problem(c, quote, meta)
        if problem:
            return (), problem
        if not quote and c in " \t":
            inside = False
            continue
        if not inside:
            words.append([])
            inside = True
        if quote and c == quote:
            quote = ""
        elif not quote and c in "'\"":
            quote = c
        else:
            words[-1].append(c)
    if quote:
        return (), f"an open {quote}"
    return _checked(tuple("".join(word) for word in words))


def _problem(c: str, quote: str, meta: frozenset[str]) -> str:
    if quote == "'":
        return "" if c.isprintable() or c in "\n\t" else "an invisible character"
    if c in meta:
        return "a line break" if c == "\n" else f"`{c}`" if c != "`" else "a backquote"
    return "" if c.isprintable() or c == "\t" else "an invisible character"


def _checked(words: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    if not words:
        return (), "no command"
    if re.compile(_ASSIGNMENT).match(words[0]):
        return (), "an assignment in front"
    return words, ""


def spelled(words: tuple[str, ...]) -> str:
    """Words as one text, each quoted where it must be: equal words give equal text, other words another."""
    return " ".join(w if re.compile(_BARE).fullmatch(w) else "'" + w.replace("'", "'\\''") + "'" for w in words)


def unwrapped(words: tuple[str, ...]) -> tuple[str, ...]:
    """`words` without `timeout 5`, `time`, `nice -n 5`, `nohup`, `stdbuf -oL` in front; only these plain forms."""
    while words and words[0] in _WRAPPERS:
        rest = _after_wrapper(words[0], words[1:])
        if not rest:
            return words
        words = rest
    return words


def _after_wrapper(name: str, rest: tuple[str, ...]) -> tuple[str, ...]:
    if name == "timeout":
        return rest[1:] if rest and re.compile(_NUMBER).fullmatch(rest[0]) else ()
    if name == "nice":
        return rest[2:] if rest[:1] == ("-n",) and len(rest) > 1 and rest[1].lstrip("-").isdigit() else _no_option(rest)
    if name == "stdbuf":
        while rest and re.fullmatch(r"-[ioe](0|L|\d+[KM]?)", rest[0]):
            rest = rest[1:]
    return _no_option(rest)


def _no_option(rest: tuple[str, ...]) -> tuple[str, ...]:
    return rest if rest and not rest[0].startswith("-") else ()
