"""Every command a shell line could possibly run, for deny and ask rules: read too much rather than too little.

No shell is understood here. The line is read several ways (with its quotes, without expansions, and, once it nests
one command in another, with quotes as if they were blanks), wrappers are followed, and there is no limit after which
reading stops. A deny rule is a convenience all the same: a program can always be reached by another name.
"""

import re
from collections.abc import Iterator

import msgspec

from longrein.permissions.plain import spelled


def word_set(text: str) -> frozenset[str]:
    """A table of words, written as one text."""
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
_NESTING = r"\$\(|`|[<>]\(|<<"
_CRUDE = r"[;&|()<>{}\n`'\"$]+"
_ASSIGNMENT = r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?="
_EXPANSION = r"\$(?:\{[^{}]*\}|[A-Za-z_]\w*|[@*#?$!0-9-])"
_IFS = r"\$(?:IFS\b|\{IFS[^}]*\})"
_BRACES = r"\{([^{}\s]*,[^{}\s]*)\}"
_GIT_VALUED = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"))


class Reading(msgspec.Struct, frozen=True):
    """One simple command a line may run."""

    words: tuple[str, ...]
    """Its words without quotes; assignments in front taken off."""
    reads: tuple[str, ...] = ()
    """Targets of `<`."""
    writes: tuple[str, ...] = ()
    """Targets of `>` and `>>`."""


class Line(msgspec.Struct, frozen=True):
    """A text in which a command may begin at each of `starts`."""

    text: str
    starts: tuple[int, ...]


def readings(command: str) -> list[Reading]:
    """Everything `command` may run, in several readings; the same may occur twice."""
    found: list[Reading] = []
    todo = [command]
    seen: set[str] = set()
    while todo:
        text = todo.pop()
        if text in seen:
            continue
        seen.add(text)
        todo.extend(_variants(text))
        fresh = _quoted(text)
        if re.compile(_NESTING).search(text) or any(_runs_text(r.words) for r in fresh):
            fresh.extend(Reading(tuple(part.split())) for part in re.compile(_CRUDE).split(text) if part.strip())
        for reading in fresh:
            todo.extend(_inner(reading.words))
        found.extend(fresh)
    return [bare for reading in found if (bare := _bare(reading)).words or bare.reads or bare.writes]


def _variants(text: str) -> Iterator[str]:
    """The same line with `$IFS` as a blank, with expansions as nothing and with `{a,b}` as `a b`."""
    if "$" in text:
        yield re.compile(_EXPANSION).sub("", re.compile(_IFS).sub(" ", text))
    if "{" in text:
        yield re.compile(_BRACES).sub(lambda m: m[1].replace(",", " "), text)


def _runs_text(words: tuple[str, ...]) -> bool:
    return any(_program(word) in _SHELLS for word in words)


def _inner(words: tuple[str, ...]) -> Iterator[str]:
    """Arguments that are commands themselves, where the command runs text."""
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
    """Texts to match a rule on: as spelled, with programs by their last name, and without options."""
    if not words:
        return
    seen = []
    for form in (words, tuple(map(_last_name, words)), _without_options(tuple(map(_last_name, words)))):
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


def _without_options(words: tuple[str, ...]) -> tuple[str, ...]:
    kept, skip = list(words[:1]), False
    for word in words[1:]:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in _GIT_VALUED and words[0] == "git"
        else:
            kept.append(word)
    return tuple(kept)


# --- a line with its quotes --------------------------------------------------------------------------------------


class _Words:
    """Words and redirects as they are read off a line."""

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
    """Read `text` as a shell splits it: quotes, backslashes, operators, redirects. Never fails."""
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
    """Add what stands between the quotes that begin at `i`; where reading goes on."""
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
    r"""`\x72m` in `$'…'` as `rm`; left as it is where it cannot be read."""
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError:
        return text
