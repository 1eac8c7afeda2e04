"""Commands that read all files below a folder without naming them: `grep -r`, `tar`, `find … -exec cat`.

A deny rule such as `Read(.env)` applies to them, too. This module finds the folders that a command may read, matching
when in doubt; the caller looks on disk whether a forbidden file is there.
"""

import re
from collections.abc import Iterator

import msgspec

from longrein.permissions.rules import glob, parse_rule
from longrein.permissions.shell_parser import LENGTH_MAX, WRAPPERS, Reading, readings, without_options, word_set
from longrein.permissions.types import Rules, Touched
from longrein.permissions.verdict import READERS, absolute, path_matches_rule


class RecursiveRead(msgspec.Struct, frozen=True):
    """Files that one command may read recursively. Paths are absolute and may not exist."""

    paths: tuple[str, ...]
    """Arguments that may be starting folders."""
    otherwise: tuple[str, ...]
    """Starting folders when none of `paths` exists."""
    names: tuple[str, ...] = ()
    """Globs of the file names that it reads; () for all."""
    dotted: bool = True
    """Whether it also reads hidden files."""
    ignored: bool = True
    """Whether it also reads files that `.gitignore` excludes."""


_GREPS = word_set("grep egrep fgrep zgrep bzgrep xzgrep zstdgrep ggrep pcregrep pcre2grep")
"""Searches that are recursive with an option."""
_SEARCHES = word_set("rg ag ack ack-grep rgrep ugrep ripgrep")
"""Searches that are recursive by default."""
_COPIES = {
    "cp": "rRa",
    "gcp": "rRa",
    "rsync": "ra",
    "scp": "r",
    "zip": "r",
    "diff": "r",
    "gdiff": "r",
    "pax": "w",
    "tar": "cru",
    "gtar": "cru",
    "bsdtar": "cru",
}
"""Program -> short options that make it read folders recursively."""
_COPIES_LONG = word_set("--recursive --archive --recurse-paths --create --append --update")
_INTO = word_set("cp gcp scp rsync")
"""Programs whose last operand is the target."""
_LISTS = word_set("find gfind fd fdfind bfs")
_VALUED = {"rg": "ABCmgtTjdMrEef"}
_VALUED_ELSE = "ABCmedfD"
"""Short options of searches that take the next word as their value."""
_VALUED_LONG = word_set(
    "--glob --iglob --type --type-not --include --exclude --exclude-dir --max-count --context --after-context "
    "--before-context --color --replace --max-depth --max-filesize --sort --threads --regexp --file --ignore"
)
_ONLY = ("--include=", "--glob=", "--iglob=")
_FEEDS = r"\$\(|`|\b(?:xargs|parallel|cpio|read|mapfile|readarray|exec(?:dir)?|ok(?:dir)?|exec-batch)\b|-[xXT]\b"
"""Signs that listed files are also opened, as a regular expression."""
_OPENERS = READERS - word_set("find fd stat readlink git docker .") | word_set("sh bash zsh dash cpio pax")


def find_recursive_reads(command: str, cwd: str, home: str) -> tuple[RecursiveRead, ...]:
    """Return what `command`, run in `cwd`, may read recursively; () for nothing. Pure; never raises."""
    found = (
        readings(command) if len(command) <= LENGTH_MAX else None
    )  # a command that is too long is denied by the rule itself
    if not found:
        return ()
    bases = _bases(found, cwd, home)
    opens = bool(re.search(_FEEDS, command)) and any(_name(word) in _OPENERS for r in found for word in r.words)
    made: dict[RecursiveRead, None] = {}
    for reading in found:
        for words in _programs(reading.words):
            swept = _read_by_program(words, opens)
            if swept is not None:
                paths = dict.fromkeys(absolute(word, base, home) for base in bases for word in swept.paths)
                made[msgspec.structs.replace(swept, paths=tuple(paths), otherwise=bases)] = None
    return tuple(made)


def _bases(found: list[Reading], cwd: str, home: str) -> tuple[str, ...]:
    """Return the folders that a command line works in: its starting folder and the target of each `cd`.

    The starting folder is left out when the line begins with `cd`.
    """
    moves = [
        absolute(r.words[1], cwd, home) for r in found if r.words[:1] in (("cd",), ("pushd",)) and len(r.words) > 1
    ]
    leaves = moves and found[0].words[:1] == ("cd",)
    return tuple(dict.fromkeys(moves if leaves else (cwd, *moves)))


def _programs(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield a command, and each command that it may run itself, with its arguments."""
    wrapped = False
    for at, word in enumerate(words):
        if wrapped or not at:
            yield words[at:]
        wrapped = wrapped or _name(word) in WRAPPERS


def read_deny_rule(path: str, real: str, rules: Rules, cwd: str) -> str:
    """Return the deny rule with a path that forbids reading a file or folder; '' for none."""
    touched = Touched(path, path, real, inside=True, writes=False)
    for text in rules.deny:
        rule = parse_rule(text)
        if rule.tool == "Read" and rule.spec and not rule.problem and path_matches_rule(touched, rule, rules, cwd):
            return text
    return ""


def _read_by_program(words: tuple[str, ...], opens: bool) -> RecursiveRead | None:
    """Return what one program reads recursively, with paths as given; None for nothing."""
    program, rest = _name(words[0]), words[1:]
    if program in _SEARCHES and ("--files" not in rest or opens):
        return _search(program, rest)
    if program in _GREPS and _recursive(rest):
        return _search(program, rest)
    if program == "git":
        return _git(without_options(words)[1:2], rest, opens)
    if program in _COPIES and _takes_folders(program, rest):
        operands = _operands(rest)
        return RecursiveRead(operands[:-1] if program in _INTO and len(operands) > 1 else operands, ())
    if program in _LISTS and opens:
        return _listing(program, rest)
    if program == "ls" and opens and any(_short(word, "R") for word in rest):
        return RecursiveRead(_operands(rest), ())
    return None


def _git(command: tuple[str, ...], rest: tuple[str, ...], opens: bool) -> RecursiveRead | None:
    """Return what a git command reads recursively; tracked files are hardly ever ignored by `.gitignore`."""
    if command in (("grep",), ("archive",)) or (opens and command == ("ls-files",)):
        loose = any(word.startswith(("--no-i", "--no-e", "--oth", "--ign")) or _short(word, "oi") for word in rest)
        return RecursiveRead(_operands(rest), (), ignored=loose and command != ("archive",))
    return None


def _name(word: str) -> str:
    return word.rpartition("/")[2].lower()


def _operands(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if word and not word.startswith("-"))


def _short(word: str, letters: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and any(c in word[1:] for c in letters)


def _recursive(words: tuple[str, ...]) -> bool:
    return any(
        _short(word, "rR") or word.startswith(("--recurs", "--deref", "--directories=r")) or word == "recurse"
        for word in words
    )


def _takes_folders(program: str, words: tuple[str, ...]) -> bool:
    bare = program.endswith("tar") and words[:1] and any(c in words[0] for c in "cru")  # tar czf: without a dash
    return bool(bare) or any(_short(word, _COPIES[program]) or word in _COPIES_LONG for word in words)


def _search(program: str, words: tuple[str, ...]) -> RecursiveRead:
    """Return what a search reads. The first operand is the pattern, unless an option gives the pattern."""
    operands: list[str] = []
    names: list[str] = []
    brought, awaited = False, ""
    for word in words:
        if awaited:
            names += [word] if awaited in ("-g", "--glob", "--iglob", "--include") else []
            awaited = ""
        elif word.startswith("-") and word != "-":
            brought = brought or word.startswith(("--regexp", "--file")) or _short(word, "ef")
            names += [word.partition("=")[2]] if word.startswith(_ONLY) else []
            awaited = word if word in _VALUED_LONG else _last_valued(word, _VALUED.get(program, _VALUED_ELSE))
        else:
            operands.append(word)
    only = () if any(name.startswith("!") for name in names) else tuple(_name(name) for name in names)
    polite = program in ("rg", "ripgrep", "ag")
    return RecursiveRead(
        tuple(operands if brought else operands[1:]),
        (),
        only,
        dotted=not polite or _says(words, ("--hidden", "--unr"), ".u"),
        ignored=not polite or _says(words, ("--no-ig", "--unr", "--skip-vcs"), "uU"),
    )


def _says(words: tuple[str, ...], long: tuple[str, ...], short: str) -> bool:
    return any(word.startswith(long) or _short(word, short) for word in words)


def _last_valued(word: str, valued: str) -> str:
    return f"-{word[-1]}" if not word.startswith("--") and word[-1] in valued else ""


def _listing(program: str, words: tuple[str, ...]) -> RecursiveRead:
    if program in ("fd", "fdfind"):
        dotted, ignored = _says(words, ("--hidden", "--unr"), "Hu"), _says(words, ("--no-ig", "--unr"), "Iu")
        return RecursiveRead(_operands(words), (), dotted=dotted, ignored=ignored)
    names: list[str] = []
    for branch in _branches(words):
        own = list(_names(branch))
        if not own and "-prune" not in branch:
            return RecursiveRead(_operands(words), ())
        names += own
    return RecursiveRead(_operands(words), (), tuple(names))


def _branches(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Split the arguments of `find` at `-o`."""
    start = 0
    for at, word in enumerate(words):
        if word in ("-o", "-or", ","):
            yield words[start:at]
            start = at + 1
    yield words[start:]


def _names(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the names that files must have, without negated ones."""
    for at, word in enumerate(words[:-1]):
        if word in ("-name", "-iname") and words[at - 1 : at] not in (("!",), ("-not",)):
            yield words[at + 1]


def reads_file_name(sweep: RecursiveRead, name: str) -> bool:
    """Whether files of this name are read. Square brackets match anything."""
    return not sweep.names or any(glob(re.sub(r"\[.*\]|\?|\{.*\}", "*", one), True).match(name) for one in sweep.names)
