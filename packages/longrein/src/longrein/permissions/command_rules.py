"""Bash rules and the parts of a command: allow rules that cover a part, deny rules that match,
rules to suggest.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from longrein.permissions.bash_parser import (
    LENGTH_MAX,
    ShellScript,
    Word,
    WordPart,
    decode_ansi,
    is_inert_assignment,
    join_path,
    may_run_subscript,
    parse_command,
    word_set,
)
from longrein.permissions.program_table import (
    Effect,
    effect_of,
    has_known_arguments,
    is_in_table,
)
from longrein.permissions.rules import glob

_BARE = re.compile(r"[\w@%+=:,./^\]*?\[~{}-]+")
_UNKNOWN = "\x01"
"""Stands for the unknown rest of an open word; no rule holds it."""
_MAY_RUN_ANYTHING = word_set(
    "bash sh zsh dash ksh fish eval source . exec env sudo doas su xargs find fd ssh python "
    "python3 node deno "
    "ruby perl php lua awk gawk sed tar rsync git docker podman kubectl parallel watch script "
    "nohup timeout make "
    "npx bunx uvx pipx gdb strace curl wget nc"
)
"""Programs for which no rule `program *` is suggested: their arguments can run or send anything.
"""


class KnownCommand(msgspec.Struct, frozen=True):
    """A command line read once for all rules."""

    text: str
    script: ShellScript
    effects: tuple[Effect, ...]
    """Effect of each part of the script."""


def read_command(text: str, cwd: str, home: str) -> KnownCommand:
    """Read a command line and look up the effects of its parts. Never raises."""
    script = parse_command(text, cwd, home)
    return KnownCommand(text, script, tuple(effect_of(part) for part in script.parts))


def spelled(words: Sequence[str]) -> str:
    """Join words with quotes where necessary: equal words give equal text, different words
    different text.
    """
    return " ".join(w if _BARE.fullmatch(w) else "'" + w.replace("'", "'\\''") + "'" for w in words)


# --- Allow rules ----------------------------------------------------------------------------------


def covers(spec: str, part: WordPart) -> bool:
    """True if the allow rule `Bash(spec)` covers a part.

    Without `*` the words must be equal. With `*` the program must be called with known options
    only, or with options that the rule names, where the table knows the program: `Bash(find *)`
    does not cover `find -exec`.
    """
    if part.problem or not part.program or not all(map(is_inert_assignment, part.assigned)):
        return False
    another_user = not {"sudo", "doas"}.isdisjoint(part.wrappers)
    if another_user and spec.split(maxsplit=1)[0] not in part.wrappers:
        return False
    text = spelled([word.text + _UNKNOWN * (word.kind == "open") for word in part.words])
    if "*" not in spec:
        return _UNKNOWN not in text and text == spelled(_spec_words(spec))
    if not glob(spec, False).match(text):
        return False
    named = spec.partition("*")[0].rstrip(": ").split()  # `sort -o` of `sort -o *`
    begins = [word.text for word in part.words[: len(named)]] == named
    words = (*part.words[:1], *part.words[len(named) :]) if begins else part.words
    rest = msgspec.structs.replace(part, words=words)
    return has_known_arguments(rest) or has_known_arguments(part)


def _spec_words(spec: str) -> list[str]:
    words = parse_command(spec, "", "").parts
    return [word.text for word in words[0].words] if len(words) == 1 else [spec]


# --- Deny and ask rules: a match when in doubt ----------------------------------------------------


def matches(spec: str, command: KnownCommand) -> bool:
    """True if the deny or ask rule `Bash(spec)` may match a command line."""
    if not spec:
        return True
    regex = glob(spec, True)
    if regex.match(" ".join(command.text.split())):
        return True
    first = re.split(r"[\s*:]", spec.strip(), maxsplit=1)[0].casefold()
    parts = [part for part in command.script.parts if part.words]
    begun = [part.words[0].text for part in parts if part.words[0].kind != "literal"]
    if any(word and spec.startswith(word) for word in begun):  # `r$X` may be `rm`
        return True
    if any(
        regex.match(text) for part in parts if _may_begin_with(first, part) for text in _forms(part)
    ):
        return True
    runs_text = any(part.problem or part.program.rpartition("/")[2] in _RUNS_TEXT for part in parts)
    runs_text = runs_text or any(may_run_subscript(word) for part in parts for word in part.words)
    if not command.script.problem and not runs_text and all(part.program for part in parts):
        return False
    if len(command.text) > LENGTH_MAX:
        return True
    return any(regex.search(text, starts) for text, starts in _word_starts(command.text))


def _may_begin_with(first: str, part: WordPart) -> bool:
    """Return True if one of the forms of a part may begin with the first word of a rule."""
    program = part.words[0].text
    names = (program, program.rpartition("/")[2] or program, *part.wrappers)
    return any(spelled([name]).casefold().startswith(first) for name in names)


_RUNS_TEXT = word_set(
    "bash sh dash zsh ksh fish eval source . exec xargs busybox toybox su ssh watch parallel "
    "script trap env flock fd fdfind alias"
)
"""Programs that run what stands in their arguments or input: for deny rules every word may begin
a command.
"""


def _forms(part: WordPart) -> Iterator[str]:
    """Yield the texts of a part: as written, with base names, without options, and with its
    wrappers.
    """
    if not part.words:
        return
    words = [word.text for word in part.words]
    based = [word.rpartition("/")[2] or word for word in words]
    verbs = [word for word in based[1:] if not word.startswith("-")]
    for form in (words, based, [*based[:1], *verbs], [*based[:1], *_after_git_options(based)]):
        yield spelled(form)
        for wrapper in part.wrappers:
            yield spelled([wrapper, *form])


def _after_git_options(words: Sequence[str]) -> list[str]:
    """Return the arguments of git from the subcommand on."""
    if not words or words[0] != "git":
        return list(words[1:])
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += (
            2
            if words[at]
            in (
                "-C",
                "-c",
                "--git-dir",
                "--work-tree",
                "--namespace",
                "--exec-path",
                "--config-env",
            )
            else 1
        )
    return list(words[at:])


@lru_cache(maxsize=8)
def _word_starts(text: str) -> tuple[tuple[str, frozenset[int]], ...]:
    """Return readings of a command line that cannot be read, without quotes, and where their
    words begin.
    """
    text = re.sub(r"\$'((?:[^'\\]|\\.)*)'", lambda match: decode_ansi(match[1]) or match[0], text)
    text = text.replace("\\\n", "").replace('$"', '"')
    expansion = r"\$(?:\{[^{}]*\}|[A-Za-z_]\w*|[@*#?$!0-9-])"
    bare = re.sub(r"\d*[<>]+[&|]*\s*\S+", " ", text)  # words may follow a redirect
    braces = re.sub(r"\{([^{}\s]*,[^{}\s]*)\}", lambda match: match[1].replace(",", " "), text)
    plain = re.sub(expansion, "", re.sub(r"\$(?:IFS\b|\{IFS[^}]*\})", " ", text))
    value = r"\$\{!?\w+(?:\[[^]]*\])?:?[-=+?]([^{}]*)\}"
    values, glued = (re.sub(value, one, text) for one in (r" \1 ", r"\1"))
    gone = re.sub(r"\$\([^()]*\)|`(?:\\.|[^`\\])*`", "", text)
    given = dict(re.findall(r"([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s;&|()'\"]*)", text))
    filled = re.sub(r"\$\{?([A-Za-z_]\w*)\}?", lambda m: given.get(m[1], m[0]).strip("'\""), text)
    assigned = text.replace("=", " ")
    found = {}
    variants = (text, bare, gone, braces, plain, values, glued, filled, assigned)
    for variant in dict.fromkeys(variants):
        for quotes in ("", " "):
            spaced = re.sub(r"['\"]", quotes, re.sub(r"[;&|()<>{}\n`$]+", " ", variant)).replace(
                "\\", ""
            )
            joined = " ".join(spaced.split())
            names = re.finditer(r"(?:^| )((?:[^ /]*/)*)", joined)
            found[joined] = frozenset(at for name in names for at in name.span(1))
    return tuple(found.items())


RAW_WORDS_MAX = 2_000
"""Most words of an unreadable command that are compared with the files of a rule; more of them
match.
"""


@lru_cache(maxsize=8)
def raw_words(text: str) -> tuple[str, ...]:
    """Return what may be the words of a command that cannot be read, without quotes; extended
    patterns as `*`.
    """
    text = re.sub(r"[@!+?*]\([^()]*\)|\$\{[^{}]*\}|\$\w+", "*", re.sub(r"['\"\\]", "", text))
    expanded: list[str] = []
    for word in dict.fromkeys(text.split()):
        expanded += _brace_words(word) if "{" in word else []
        if len(expanded) >= RAW_WORDS_MAX:  # too many to compare
            return tuple(map(str, range(RAW_WORDS_MAX + 1)))
    words = re.split(r"[\s;&|()<>{}`$,]+", " ".join([text, *expanded]))
    return tuple(dict.fromkeys(word for word in words if word.strip("*")))


def _brace_words(word: str) -> list[str]:
    """Return the words of a text with braces: `a{b,c}` is `ab ac`."""
    found = [word]
    while len(found) < RAW_WORDS_MAX and (match := re.search(r"\{([^{}]*,[^{}]*)\}", found[0])):
        first = found.pop(0)
        ways = match[1].split(",")
        found += [first[: match.start()] + way + first[match.end() :] for way in ways]
    return found


# --- Folders that a command reads -----------------------------------------------------------------


_NAMES_ONLY = word_set(
    "ls find gfind fd du df tree stat cd mkdir rmdir rm mv touch realpath readlink basename "
    "dirname pwd test [ echo"
)
"""Programs that show or change names, not contents."""


def glob_base(pattern: str) -> str:
    """Return the folder above the first name of a pattern that holds `*`, `?` or `[`."""
    return re.split(r"[*?\[]", pattern)[0].rpartition("/")[0] or (
        "/" if pattern.startswith("/") else "."
    )


def read_folders(command: KnownCommand, cwd: str) -> tuple[str, ...]:
    """Return the absolute paths, perhaps folders, whose contents the parts of a command may
    read.
    """
    found: list[str] = []
    for part, effect in zip(command.script.parts, command.effects, strict=True):
        if part.program.rpartition("/")[2] in _NAMES_ONLY:
            continue
        words = part.words[1:] if effect.problem else effect.reads
        if "xargs" in part.wrappers or (
            effect.problem and part.program.rpartition("/")[2] == "git"
        ):
            words = (
                *words,
                Word("."),
            )  # names from the input; `git grep --no-index` reads all files
        for word in words:
            base = glob_base(word.text) if word.kind == "glob" else word.text
            if word.kind != "open" and not word.may_be_option:
                found += [join_path(folder, base) for folder in part.folders or (cwd,)]
    return tuple(dict.fromkeys(found))


# --- Suggested rules ------------------------------------------------------------------------------


SUGGESTIONS_MAX = 5
"""Most rules that "always" stores for one command."""
SUGGESTION_LENGTH_MAX = 200
"""Longest suggested rule, in characters."""


CHANGING_PROGRAMS = word_set(
    "rm rmdir mv cp ln install touch mkdir tee truncate dd chmod chown chgrp patch shred unlink"
)
"""Programs that change files, whatever their arguments are. A rule `Bash(rm:*)` would cover every
file of the machine, so that only the exact command is suggested.
"""


def suggest_part_rule(part: WordPart) -> str:
    """Return `Bash(program verb:*)` where that is safe, else the exact command; '' for none."""
    if is_in_table(part) and part.program.endswith("git") and not has_known_arguments(part):
        return ""
    verb = part.words[1] if len(part.words) > 1 else None
    is_verb = (
        verb is not None and verb.kind == "literal" and re.fullmatch(r"[a-z][\w:-]*", verb.text)
    )
    name = part.program.rpartition("/")[2]
    may_do_anything = name in _MAY_RUN_ANYTHING or name in CHANGING_PROGRAMS
    if verb is not None and is_verb and (name == "git" or not may_do_anything):
        pair = part.words[2] if name in _SUBCOMMANDED and len(part.words) > 2 else None
        third = (
            f" {pair.text}"
            if pair and pair.kind == "literal" and re.fullmatch(r"[a-z][\w:.-]*", pair.text)
            else ""
        )
        spec = f"{part.program} {verb.text}{third}:*"
    elif not may_do_anything and not re.search(r"[*()]", part.program):
        spec = f"{part.program}:*"
    else:
        words = [word.text for word in part.words]
        if len(words) == 1 or any(
            word.kind != "literal" or "*" in word.text or "\n" in word.text for word in part.words
        ):
            return ""
        spec = spelled(words)
    rule = f"Bash({spec})"
    return (
        rule
        if rule.isprintable() and len(rule) <= SUGGESTION_LENGTH_MAX and covers(spec, part)
        else ""
    )


def exact_rule(parts: Sequence[WordPart]) -> str:
    """Return the rule that covers a command of one part word for word and no other; '' when
    there is none.
    """
    if (
        len(parts) != 1 or len(parts[0].words) < 2
    ):  # a shell or an interpreter alone runs what its input says
        return ""
    part = parts[0]
    if any(word.kind != "literal" or "*" in word.text or "\n" in word.text for word in part.words):
        return ""
    spec = spelled([word.text for word in part.words])
    rule = f"Bash({spec})"
    return (
        rule
        if rule.isprintable() and len(rule) <= SUGGESTION_LENGTH_MAX and covers(spec, part)
        else ""
    )


_SUBCOMMANDED = word_set(
    "npm pnpm yarn bun gh mise rtk cargo go aws kubectl terraform docker uv poetry"
)
"""Programs whose second word is a group: the rule names the third word too (`gh pr view`, `npm
run test`).
"""
