"""Simple commands that a shell line may run: plain words for allow rules, all possible readings for deny and ask rules.

This is no shell parser. For deny and ask rules the line is read several ways: with its quotes, without expansions and,
when one command nests another, with quotes as blanks. Wrappers such as `sudo` are followed. Still, a deny rule is only
a convenience: a program can always be run by another name.
"""

import re
from collections.abc import Iterator

import msgspec

# --- Commands of plain words, for allow rules ------------------------------------------------------------------------
#
# Anything that a shell could expand, join or redirect makes a command not plain, and a command that is not plain asks.


META = frozenset(";&|<>$(){}*?[~#!\\`\n")
"""Characters with a meaning to a shell outside single quotes."""

LENGTH_MAX = 30_000
"""Maximum length of a command that is parsed. No allow rule covers a longer one, and every deny and ask rule about
commands matches it. The system starts no command line over 131,072 bytes."""
TOO_LONG = f"more than {LENGTH_MAX:,} characters"

_LEADING_ASSIGNMENT = r"(?s)[A-Za-z_]\w*(\[.*\])?\+?="
_BARE = r"[\w@%+=:,./^\]*-]+"
_NUMBER = r"\d+(\.\d+)?[smhd]?"
_WRAPPERS = ("timeout", "time", "nice", "nohup", "stdbuf")


def plain_words(command: str, meta: frozenset[str] = META) -> tuple[tuple[str, ...], str]:
    """Return the words of a plain command and '', or () and the part that makes it not plain, such as "`;`"."""
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
    if re.compile(_LEADING_ASSIGNMENT).match(words[0]):
        return (), "an assignment in front"
    return words, ""


def spelled(words: tuple[str, ...]) -> str:
    """Join words with quotes where necessary: equal words give equal text, different words different text."""
    return " ".join(w if re.compile(_BARE).fullmatch(w) else "'" + w.replace("'", "'\\''") + "'" for w in words)


def unwrapped(words: tuple[str, ...]) -> tuple[str, ...]:
    """Remove `timeout 5`, `time`, `nice -n 5`, `nohup` and `stdbuf -oL` from the start, in these plain forms only."""
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


# --- All commands that a line may run, for deny and ask rules --------------------------------------------------------


def word_set(text: str) -> frozenset[str]:
    """Split a text into a set of words."""
    return frozenset(text.split())


WRAPPERS = word_set(
    "timeout time nice nohup stdbuf env sudo doas su xargs exec command builtin eval source . setsid ionice chroot "
    "unshare nsenter flock script watch strace ltrace parallel find fd busybox toybox npx ssh entr caffeinate "
    "bash sh zsh dash ksh fish ash if then else elif while until do case coproc function for { } ! trap "
    "systemd-run chrt taskset prlimit setarch linux32 linux64 gtimeout gnice genv rtk proxychains "
    "docker podman kubectl run"
)
"""Words after which another command may begin at any of the following words."""

_SHELLS = word_set("bash sh zsh dash ksh fish ash eval source . trap su ssh watch script parallel")
_OPERATORS = ";&|()\n"
_NESTING = r"\$[({]|`|[<>]\(|<<|#[^\n]*\\\n"
_INNER = r"\$\(|`|[<>]\("
_CRUDE = r"[;&|()<>{}\n`'\"$]+"
_ENDS = r"[;&|()<>{}\n`$]+"
_ASSIGNMENT = r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?="
_EXPANSION = r"\$(?:\{[^{}$`]*\}|[A-Za-z_]\w*|[@*#?$!0-9-])"
_ESCAPE = r"(?s)\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|.)"
_ANSI = r"(?s)\$'((?:\\.|[^'\\])*)'"
_IFS = r"\$(?:IFS\b|\{IFS[^}]*\})"
_BRACES = r"\{([^{}\s]*,[^{}\s]*)\}"
_GIT_VALUED = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"))


READ_CHARS_MAX = 300_000
"""Maximum number of characters over all readings of one command, since nested readings could grow without end."""


class Reading(msgspec.Struct, frozen=True):
    """Simple command that a line may run."""

    words: tuple[str, ...]
    """Words without quotes and without leading assignments."""
    reads: tuple[str, ...] = ()
    """Targets of `<`."""
    writes: tuple[str, ...] = ()
    """Targets of `>` and `>>`."""


class Line(msgspec.Struct, frozen=True):
    """Text in which a command may begin at each of `starts`."""

    text: str
    starts: tuple[int, ...]


def readings(command: str) -> list[Reading] | None:
    """Return all simple commands that `command` may run, possibly repeated; None when there are too many."""
    found: list[Reading] = []
    todo = [command]
    seen: set[str] = set()
    left_chars = READ_CHARS_MAX
    nested = re.search(_NESTING, command) is not None
    while todo:
        text = todo.pop()
        if text in seen:
            continue
        seen.add(text)
        left_chars -= len(text)
        if left_chars < 0:
            return None
        todo.extend(_variants(text))
        fresh = _quoted(text)
        if nested or any(_runs_text(r.words) for r in fresh):
            fresh.extend(_crude(text))
        for reading in fresh:
            todo.extend(_inner(reading.words))
        found.extend(fresh)
    return [bare for reading in found if (bare := _bare(reading)).words or bare.reads or bare.writes]


def _crude(text: str) -> Iterator[Reading]:
    """Yield readings of a nested command in which quotes may not pair.

    Quotes end a command, or are ignored, or pair again inside each `$(` and on each line.
    """
    bare = re.sub(r"\\\n|['\"\\]", "", text)
    for part in (*re.split(_CRUDE, text), *re.split(_ENDS, bare)):
        words = tuple(part.split())
        if words:
            yield Reading(words)
    for part in re.split(r"[<>]+[&|]*", bare)[1:]:  # words after the target of a redirect
        yield Reading(tuple(re.split(_ENDS, part)[0].split()[1:]))
    for piece in (*re.split(_INNER, text)[1:], *(text.split("\n") if "\n" in text else ())):
        yield from _quoted(piece)


def _variants(text: str) -> Iterator[str]:
    """Yield the line with `$'…'` decoded, `$IFS` as a blank, expansions removed, `{a,b}` as `a b`."""
    if "$'" in text:
        yield re.sub(_ANSI, lambda match: _ansi(match[1]), text)
    if "$" in text:
        yield re.compile(_EXPANSION).sub("", re.compile(_IFS).sub(" ", text))
    if "{" in text:
        yield re.compile(_BRACES).sub(lambda m: m[1].replace(",", " "), text)


def _runs_text(words: tuple[str, ...]) -> bool:
    return any(_program(word) in _SHELLS for word in words)


def _inner(words: tuple[str, ...]) -> Iterator[str]:
    """Yield arguments that are commands themselves."""
    if _runs_text(words):
        yield from (word for word in words if any(c in word for c in " \t\n;&|$`'\"\\<>"))
        if "eval" in words:
            yield " ".join(words[words.index("eval") + 1 :])
    elif any(word.startswith(("-S", "--split-string")) for word in words):
        yield " ".join(word.removeprefix("--split-string=").removeprefix("-S") for word in words)


def _bare(reading: Reading) -> Reading:
    words = reading.words
    while words and re.compile(_ASSIGNMENT).match(words[0]):
        words = words[1:]
    return msgspec.structs.replace(reading, words=words)


def lines(words: tuple[str, ...]) -> Iterator[Line]:
    """Yield the texts that rules are matched with: as written, with base names of programs, and without options."""
    if not words:
        return
    seen = []
    for form in (words, tuple(map(_last_name, words)), without_options(tuple(map(_last_name, words)))):
        if form and form not in seen:
            seen.append(form)
            yield _line(form)


def _line(words: tuple[str, ...]) -> Line:
    starts, at, wrapped = [0], 0, False
    pieces = [spelled((word,)) for word in words]
    for word, piece in zip(words, pieces, strict=True):
        if wrapped and at:
            starts.append(at)
        wrapped = wrapped or _program(word) in WRAPPERS
        at += len(piece) + 1
    return Line(" ".join(pieces), tuple(starts))


def _last_name(word: str) -> str:
    return word.rpartition("/")[2] or word


def _program(word: str) -> str:
    return _last_name(word).lower()


def without_options(words: tuple[str, ...]) -> tuple[str, ...]:
    """Remove options, and the values of git's options before the subcommand."""
    kept, skip = list(words[:1]), False
    for word in words[1:]:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in _GIT_VALUED and words[0] == "git"
        else:
            kept.append(word)
    return tuple(kept)


# --- Words and redirects of a line with its quotes -------------------------------------------------------------------


class _Words:
    """Words and redirects of the commands read so far."""

    def __init__(self) -> None:
        self.done: list[Reading] = []
        self.words: list[str] = []
        self.files: dict[str, list[str]] = {"<": [], ">": []}
        self.word: list[str] = []
        self.open = False
        self.redirect = ""

    def add(self, text: str) -> None:
        self.word.append(text)
        self.open = True

    def end_word(self) -> None:
        if not self.open:
            return
        word = "".join(self.word)
        if self.redirect:
            self.files[self.redirect].append(word)
        else:
            self.words.append(word)
        self.word, self.open, self.redirect = [], False, ""

    def end_command(self) -> None:
        self.end_word()
        if self.words or self.files["<"] or self.files[">"]:
            self.done.append(Reading(tuple(self.words), tuple(self.files["<"]), tuple(self.files[">"])))
        self.words, self.files, self.redirect = [], {"<": [], ">": []}, ""

    def begin_redirect(self, sign: str) -> None:
        if "".join(self.word).isdigit():
            self.word, self.open = [], False
        self.end_word()
        self.redirect = sign


def _quoted(text: str) -> list[Reading]:
    """Split `text` like a shell: quotes, backslashes, operators, redirects. Never fails."""
    words, i = _Words(), 0
    while i < len(text):
        c = text[i]
        if c == "\\":
            if text[i + 1 : i + 2] != "\n":
                words.add(text[i + 1 : i + 2])
            i += 2
        elif c in "'\"":
            i = _take_quoted(text, i, words)
        elif c == "$" and text[i + 1 : i + 2] in ("'", '"'):
            i += 1  # $'…' and $"…": the quote that follows is read as a plain one
        elif c in "<>":
            words.begin_redirect(c)
            i += 1 + len(text[i + 1 : i + 3]) - len(text[i + 1 : i + 3].lstrip("<>&|"))
        elif c in _OPERATORS:
            words.end_command()
            i += 1
        elif c.isspace():
            words.end_word()
            i += 1
        else:
            words.add(c)
            i += 1
    words.end_command()
    return words.done


def _take_quoted(text: str, i: int, words: _Words) -> int:
    """Add the text in the quotes that begin at `i`; return the index after them."""
    quote, ansi = text[i], text[i - 1 : i] == "$"
    j, taken = i + 1, []
    while j < len(text) and text[j] != quote:
        if text[j] == "\\" and (quote == '"' or ansi) and j + 1 < len(text):
            j += 1
            taken.append(text[j] if not ansi or text[j] in "'\"\\" else "\\" + text[j])
        else:
            taken.append(text[j])
        j += 1
    inner = "".join(taken)
    words.add(_ansi(inner) if ansi else inner)
    return j + 1


def _ansi(text: str) -> str:
    r"""Decode the escapes of `$'…'`: `\x72m` is `rm`."""
    return re.sub(_ESCAPE, _unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if code[0] in "01234567":
        return chr(int(code, 8))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)
