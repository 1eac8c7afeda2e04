"""Read a Bash command line with tree-sitter: the simple commands it runs, their words, folders and
redirects.

    script = parse_command("cd src && grep -n 'a b' *.py > out.txt", cwd="/w", home="/home/me")
    script.parts[1].words    # grep, -n, "a b" (literals), *.py (a glob)
    script.parts[1].folders  # ("/w/src",)

Everything that the parser does not know for certain is a *problem*: a syntax error, an unknown
node, an expansion in command position, arithmetic over variables. A script or part with a problem
is never allowed by itself.
"""

import math
import re
from collections.abc import Iterator, Sequence
from functools import cache, reduce
from itertools import pairwise, product
from typing import Any, Literal

import msgspec

LENGTH_MAX = 30_000
"""Longest command, in characters, that is parsed. A longer one is a problem as a whole."""
PARTS_MAX = 400
"""Most simple commands of one line."""
DEPTH_MAX = 40
"""Deepest nesting of syntax nodes and of scripts in arguments (`bash -c`)."""
TREE_DEPTH_MAX = 100
"""Deepest syntax tree that is walked; in a script inside a script a half, a third …"""
NODES_MAX = 6_000
"""Most nodes of a syntax tree that is walked."""
VALUES_DEPTH_MAX = 8
"""Longest chain of variables whose values name each other."""
LOOKUPS_MAX = 2_000
"""Most values of variables that are read for one script."""
NESTED_STARTS_MAX = 8
"""Most words of `ssh` and its kind that are tried as the beginning of a command."""
WRAPPERS_MAX = 10
"""Most wrappers in front of one program."""
ALTERNATIVES_MAX = 16
"""Most values of one word with braces and variables."""


class Word(msgspec.Struct, frozen=True):
    """An argument of a command."""

    text: str
    """The argument itself; the pattern of a glob; the known beginning of an open word."""
    kind: Literal["literal", "glob", "open"] = "literal"
    """`open`: the rest is known only when the command runs, and may be several words."""
    single: bool = False
    """True if an open word is surely one word: it is quoted, or a number."""

    @property
    def may_split(self) -> bool:
        """True if it may stand for several arguments, of which the later ones can be options."""
        return self.kind == "open" and not self.single

    @property
    def may_be_option(self) -> bool:
        """True if the argument can begin with `-`."""
        first = self.text[:1]
        return (
            first == "-"
            or (self.kind == "open" and not first)
            or (self.kind == "glob" and first in ("*", "?", "["))
        )


class Part(msgspec.Struct, frozen=True):
    """A simple command, or the redirects or assignments of one."""

    words: tuple[Word, ...]
    """Program and arguments, wrappers (`timeout 5`, `env A=1`) taken off; () for a redirect or
    an assignment alone.
    """
    text: str
    """Source text."""
    folders: tuple[str, ...]
    """Absolute folders in which it may run; () where they are not known."""
    reads: tuple[Word, ...] = ()
    """Targets of `<`."""
    writes: tuple[Word, ...] = ()
    """Targets of `>`."""
    assigned: tuple[str, ...] = ()
    """Variables that the command's environment gets."""
    wrappers: tuple[str, ...] = ()
    """Wrappers in front of the program, outermost first."""
    problem: str = ""
    """Reason why the part is not known; '' for none."""

    @property
    def program(self) -> str:
        """Name of the program as written; '' for a redirect, an assignment or an unknown one."""
        return self.words[0].text if self.words and self.words[0].kind == "literal" else ""


class Script(msgspec.Struct, frozen=True):
    """All simple commands of a command line, in the order of the text."""

    parts: tuple[Part, ...]
    problem: str = ""
    """Reason why the line as a whole is not known; '' for none."""


def parse_command(command: str, cwd: str, home: str) -> Script:
    """Read `command` as Bash would, started in the absolute folder `cwd`. Never raises."""
    if len(command) > LENGTH_MAX:
        return Script((), f"it has more than {LENGTH_MAX:,} characters")
    if found := re.search(
        r"[^\S "
        r"\t\n]|[\x00-\x08\x0e-\x1f\x7f\ufeff\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff]",
        command,
    ):
        return Script((), f"it holds the invisible character U+{ord(found[0]):04X}")
    reader = _Reader(command, cwd, home)
    if re.search(r"\n[ \t]*\\\n", command):
        reader.fail(
            "a line holds nothing but a backslash"
        )  # the grammar overlooks the line break in front
    reader.run()
    return Script(tuple(reader.parts), reader.problem)


def join_path(folder: str, path: str) -> str:
    """Return `path` as an absolute path without `.` and `..`, relative to `folder`."""
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{folder}/{path}").split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


# --- Words ----------------------------------------------------------------------------------------


OPEN = Word("", "open")
ONE_OPEN = Word("", "open", single=True)
PIPE = Word("/dev/fd/63")
"""Path that Bash puts in the place of `<(…)`; the number may differ."""
STREAMS = frozenset(
    (PIPE, *(Word(f"/dev/{name}") for name in ("null", "stdout", "stderr", "stdin", "tty", "zero")))
)
"""Files that stand for nothing stored."""
_GLOB_CHARACTERS = re.compile(r"[*?\[]")
_RARE_PATTERN = re.compile(r"\[[:=.][^]]{0,20}[:=.]\]|[@!+?*]\(")
"""Patterns that are not compared with names: `[[:alpha:]]` and `@(a|b)`."""
_DOT_GLOB = re.compile(r"(?:^|/)\.\.?(?:[*?]|\[[^\]]*\])+(?:/|$)")
"""Patterns that also match `..`."""
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b",
    "f": "\f", "v": "\v",
            "\\": "\\", "'": "'", '"': '"', "?": "?"}  # fmt: skip


def may_run_subscript(word: Word) -> bool:
    """True for `a[$(…)]`: Bash runs it where it takes the text for the name of a variable."""
    return "[" in word.text and ("$(" in word.text or "`" in word.text)


def _joined(first: Word, second: Word) -> Word:
    """Concatenate two pieces of one word."""
    if first.kind == "open":
        return first if second.kind == "literal" or second.single else Word(first.text, "open")
    text = first.text + second.text
    if second.kind == "open":
        text = _GLOB_CHARACTERS.split(text)[0] if first.kind == "glob" else text
        return Word(text, "open", second.single and first.kind != "glob")
    if "glob" in (first.kind, second.kind) and _DOT_GLOB.search(text):
        return Word(first.text, "open")
    return Word(text, "glob" if "glob" in (first.kind, second.kind) else "literal")


def _products(pieces: Sequence[Sequence[Word]]) -> list[Word]:
    """Return all words made of one alternative of each piece; one open word where there are too
    many.
    """
    count = 1
    for piece in pieces:
        count *= len(piece)
    if count > ALTERNATIVES_MAX or count == 0:
        return [OPEN]
    return [reduce(_joined, choice, Word("")) for choice in product(*pieces)]


def _braces(text: str) -> list[str] | None:
    """Expand `{a,b}` in a text without quotes; None where it is not that simple."""
    found = [text]
    if re.search(r"\{[^}]*\{", text):
        return None
    while first := next((one for one in found if "," in one and "{" in one), ""):
        match = _BRACES.search(first)
        if match is None or len(found) > ALTERNATIVES_MAX:
            return None
        at = found.index(first)
        found[at : at + 1] = [
            first[: match.start()] + one + first[match.end() :] for one in match[1].split(",")
        ]
    return None if any(re.search(r"\{[^}]*\.\.", one) for one in found) else found


def _unescaped(text: str) -> tuple[str, bool]:
    """Remove the backslashes of an unquoted text; return the text, and True if glob characters
    are left unquoted.
    """
    glob = bool(_GLOB_CHARACTERS.search(re.sub(r"(?s)\\.", "", text)))
    return re.sub(r"(?s)\\(.)", lambda m: "" if m[1] == "\n" else m[1], text), glob


def _glob_or_literal(text: str) -> Word:
    """Return the word of an unquoted text without braces."""
    if _RARE_PATTERN.search(text):
        return Word(_unescaped(re.split(r"[@!+?*\[]", text)[0])[0], "open")
    bare, glob = _unescaped(text)
    return _joined(Word("", "glob"), Word(bare, "glob")) if glob else Word(bare)


def decode_ansi(text: str) -> str | None:
    """Decode the text between `$'` and `'`; None for an escape that is not known."""

    def decode(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            return chr(int(code[1:], 16))
        return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _ESCAPES[code]

    try:
        decoded = re.sub(
            r"(?s)\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|.)",
            decode,
            text,
        )
    except (KeyError, ValueError, OverflowError):
        return None
    return decoded if decoded.isascii() and "\0" not in decoded else None


# --- Wrappers: programs that run the command in their arguments -----------------------------------


class _Options(msgspec.Struct, frozen=True):
    """Options of a wrapper: letters without and with a value, long options without and with a
    value.
    """

    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    operands: int = 0
    """Arguments of its own before the command."""


def word_set(text: str) -> frozenset[str]:
    """Split a text into a set of words."""
    return frozenset(text.split())


_TIMEOUT = _Options(
    "v",
    "ks",
    word_set("--foreground --preserve-status --verbose"),
    word_set("--kill-after --signal"),
    1,
)
WRAPPERS = {
    "env": _Options("i0v", "uC", word_set("--ignore-environment --null"),
    word_set("--unset --chdir")),
    "timeout": _TIMEOUT,
    "gtimeout": _TIMEOUT,
    "nice": _Options("", "n", frozenset(), word_set("--adjustment")),
    "ionice": _Options("t", "cn", word_set("--ignore"), word_set("--class --classdata")),
    "nohup": _Options(),
    "setsid": _Options("cfw", "", word_set("--ctty --fork --wait")),
    "time": _Options("p"),
    "stdbuf": _Options("", "ioe", frozenset(), word_set("--input --output --error")),
    "command": _Options("p"),
    "builtin": _Options(),
    "exec": _Options(),
    "unbuffer": _Options(),
    "sudo": _Options("nEHS", "ugC", word_set("--non-interactive --preserve-env"),
    word_set("--user --group")),
    "doas": _Options("n", "u"),
    "xargs": _Options(
        "0rtxp", "nPLIdEsa", word_set("--null --no-run-if-empty --verbose --exit"),
        word_set("--max-args --max-procs --max-lines --replace --delimiter --arg-file --max-chars"),
    ),
}  # fmt: skip
"""Programs that run the command in their arguments, with the options before it."""
UNPRIVILEGED = frozenset(WRAPPERS) - {"sudo", "doas", "exec", "setsid", "env", "xargs"}
"""Wrappers that change nothing about what the command can do."""
_BASH_ONLY = re.compile(
    r"[{}]|\$['\"]|&>|>&|\[\[|[<>]\(|<<<|\(\(|\|&|;&|\b(?:function|time|select|coproc)\b"
)
"""Syntax that other shells read differently."""
SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh"))
RESERVED = word_set(
    "! if then elif else fi for while until do done case esac function select in coproc { } [[ ]]"
)


def _after_options(words: Sequence[Word], options: _Options) -> int | None:
    """Return the index of the first word after the options of a wrapper; None where they are not
    known.
    """
    at = 1
    while at < len(words):
        word = words[at]
        if word.kind != "literal":
            return None if word.may_be_option else at
        text = word.text
        if text == "--":
            return at + 1
        if not text.startswith("-") or text == "-":
            return at
        step = _option_length(text, options)
        if step is None:
            return None
        at += step
    return at


def _option_length(text: str, options: _Options) -> int | None:
    """Return the number of words that an option takes, 1 or 2; None for an unknown option."""
    if text.startswith("--"):
        name, sign, _ = text.partition("=")
        if name in options.long:
            return None if sign else 1
        return (1 if sign else 2) if name in options.long_valued else None
    for i, letter in enumerate(text[1:], 1):
        if letter in options.valued:
            return 2 if i == len(text) - 1 else 1
        if letter not in options.flags:
            return None
    return 1


# --- Reader ---------------------------------------------------------------------------------------


_STATEMENTS = frozenset((
    "program", "list", "pipeline", "compound_statement", "subshell", "if_statement", "elif_clause",
    "else_clause",
    "while_statement", "do_group", "case_statement", "case_item", "negated_command",
    "redirected_statement",
    "variable_assignments",
))  # fmt: skip
_TOKENS = frozenset((
    "\n", *word_set("; & && || | |& ;; ;& ;;& ( ) { } ! [ ] [[ ]] (( )) = == != =~ < > -a -o"),
    *word_set("if then elif else fi while until do done for in case esac select test_operator comment regex"),  # noqa: E501
))  # fmt: skip
_WORDS = frozenset((
    "word", "number", "string", "raw_string", "ansi_c_string", "concatenation", "simple_expansion",
    "expansion",
    "command_substitution", "process_substitution", "arithmetic_expansion", "brace_expression",
    "extglob_pattern",
))  # fmt: skip
_WITHOUT_GAPS = word_set(
    "redirected_statement heredoc_redirect file_redirect herestring_redirect for_statement "
    "case_statement case_item "
    "if_statement while_statement do_group command_substitution process_substitution "
    "negated_command pipeline list "
    "declaration_command subshell compound_statement elif_clause else_clause concatenation "
    "variable_assignment"
)
"""Nodes whose text is that of their children, but for blanks."""
_ONE_LINE = frozenset(
    (
        "command",
        "file_redirect",
        "herestring_redirect",
        "variable_assignments",
        "declaration_command",
    )
)
"""Nodes that a line break ends; the grammar reads on where `\\` stands alone in the next line."""
_JOINED_TO_NUMBERS = _WORDS | {"command", "command_name"}
_WITHOUT_BLANKS = word_set("simple_expansion concatenation variable_assignment")
"""Nodes in which no blank may stand between two children: `$ a` is a dollar and a word."""
_LISTS_OF_WORDS = frozenset(
    ("command", "for_statement", "array", "file_redirect", "case_statement")
)
_NUMERIC_TESTS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_NUMERIC_EXPANSION = re.compile(r"\"?\$(?:[#?$!]|\{[#?$!]\}|\{#\w+\})\"?")
SPECIAL_VARIABLES = re.compile(
    r"PATH|HOME|IFS|ENV|CDPATH|GLOBIGNORE|FIGNORE|SHELL|SHELLOPTS|POSIXLY_CORRECT|PS\d|PROMPT_COMMAND|HIST\w*|EXECIGNORE|"
    r"FCEDIT|OPTARG|OPTIND|S?RANDOM|SECONDS|TMOUT|LINENO|DIRSTACK|FUNCNAME|GROUPS|(?:BASH|COMP|LD|DYLD|GIT|LC|MALLOC|GLIBC)_?\w*|\w*(?:PAGER|EDITOR|COMMAND)"
)
"""Variables with a meaning to Bash or the loader, which a script may not set unnoticed."""


_CHANGES_NAMES = word_set("alias enable declare typeset local export readonly")
"""Builtins that change what later words mean; most are read as declarations, not here."""
_ASSIGNING = re.compile(
    r"^(?:builtin|command|exec|time|!|\w+=\S*|\s)*"
    r"(read|mapfile|readarray|printf|getopts|let|wait|declare|local|typeset|export|readonly|unset|eval|source|\.)\s"
)
"""Commands that give variables values by their arguments."""


def _assigned_by_arguments(command: str) -> set[str]:
    """Return the variables that a simple command may set; `*` where it may set any."""
    match = _ASSIGNING.match(re.sub(r"[\\'\"]", "", command))
    if match is None:
        return set()
    return (
        {"*"}
        if match[1] in ("eval", "source", ".")
        else set(re.findall(r"[A-Za-z_]\w*", command)) | {"REPLY", "MAPFILE"}
    )


@cache
def _parser() -> Any:
    """Return the parser; imported at the first command: 21 ms."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _Reader:
    """Walk of one syntax tree that collects parts."""

    def __init__(self, source: str, cwd: str, home: str, depth: int = 0) -> None:
        self.source = source.encode()
        self.home = home
        self.folders: tuple[str, ...] = (cwd,) if cwd else ()
        self.depth = depth
        self.parts: list[Part] = []
        self.problem = ""
        self.values: dict[str, list[Any]] = {}
        """Nodes of all values that the script gives to its variables."""
        self.unknown: set[str] = set()
        """Variables that also get values in other ways; `*` for all."""
        self.certain: frozenset[str] = frozenset()
        """Variables that have one of their values at this point of the walk; others may be unset
        or inherited.
        """
        self.certain_at: dict[int, frozenset[str]] = {}
        """The certain variables at each value, by node."""
        self.busy: set[str] = set()
        self.lookups = 0
        self.counts: dict[str, int] | None = None
        """Number of values of each variable with several that the present command uses; None
        outside a command.
        """
        self.chosen: dict[str, int] = {}
        """The value of each of them that is tried now."""

    def run(self) -> None:
        root = _parser().parse(self.source).root_node
        if root.has_error:
            self.problem = "it does not read as Bash"
        if root.descendant_count > NODES_MAX:
            self.fail("it has too many words")
        elif self.collect_variables(root):
            self.statement(root, 0)

    def fail(self, problem: str) -> None:
        self.problem = self.problem or problem

    def text(self, node: Any) -> str:
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")

    # -- variables

    def collect_variables(self, root: Any) -> bool:
        """Note all values that the script gives to its variables; check what lies between the
        nodes.

        Returns False for a tree that is too deep to walk.
        """
        todo = [(root, 0)]
        while todo:
            node, depth = todo.pop()
            if depth > TREE_DEPTH_MAX // (self.depth + 1):
                self.fail("it is nested too deeply")
                return False
            todo += [(child, depth + 1) for child in node.children]
            self.check_gaps(node)
            self.collect_variable(node)
        return True

    def collect_variable(self, node: Any) -> None:
        """Note the values that one node gives to variables."""
        match node.type:
            case "variable_assignment":
                name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
                if name is not None and self.text(node).startswith(f"{self.text(name)}="):
                    self.values.setdefault(self.text(name), []).append(value)
                elif name is not None:
                    self.unknown.add(self.text(name).partition("[")[0])
            case "for_statement":
                name = node.child_by_field_name("variable")
                words = [child for child in node.children if child.type in _WORDS]
                if name is not None and words:
                    self.values.setdefault(self.text(name), []).extend(words)
                elif name is not None:
                    self.unknown.add(self.text(name))
            case (
                "declaration_command"
                | "unset_command"
                | "c_style_for_statement"
                | "unary_expression"
            ):
                self.unknown |= {
                    self.text(c) for c in node.children if c.type in ("variable_name", "word")
                }
            case "postfix_expression":
                self.unknown |= {
                    self.text(c) for c in node.children if c.type in ("variable_name", "word")
                }
            case "expansion" if match := re.match(r"\$\{(\w+)(?:\[[^]]*\])?:?=", self.text(node)):
                self.unknown.add(match[1])
            case "command":
                self.unknown |= _assigned_by_arguments(self.text(node))

    def check_gaps(self, node: Any) -> None:
        """A comment must follow a blank; `\\` and a line break must not split a word or an
        operator in two.
        """
        if node.type == "comment" and self.source[node.start_byte - 1 : node.start_byte].strip(
            b" \t\n;&|()"
        ):
            self.fail(f"`{self.text(node)[:40]}` is not read")
        for before, after in pairwise(node.children):
            gap = self.source[before.end_byte : after.start_byte]
            joins = before.type in ("&&", "||", "|", "|&", ";", "(", "\n", "$(") and after.is_named
            if gap and not gap.replace(b"\\\n", b"") and not joins:
                self.fail("a line is continued inside a word")
            if node.type in _ONE_LINE and b"\n" in gap.replace(b"\\\n", b""):
                self.fail("words of one command stand in two lines")
            if gap and node.type in _WITHOUT_GAPS and gap.replace(b"\\\n", b"").strip(b" \t\n"):
                self.fail(f"`{gap.decode(errors='replace')[:40]}` is not read")
            if gap and (node.type in _WITHOUT_BLANKS or before.type == "file_descriptor"):
                self.fail(f"`{self.text(node)[:40]}` is not read")
            if not gap and after.type.endswith("_redirect"):
                numbered = (
                    after.children[0].type == "file_descriptor"
                    and before.type in _JOINED_TO_NUMBERS
                )
                if numbered or re.search(r"(?:^|\s)\d+$", self.text(before)[-12:]):
                    self.fail("a file descriptor that reads as a word")
            if (
                not gap
                and node.type in _LISTS_OF_WORDS
                and {before.type, after.type} <= _WORDS | {"command_name"}
            ):
                self.fail(f"`{self.text(node)[:40]}` is not read")

    def variable(self, name: str, quoted: bool) -> list[Word]:
        """Return the values that a variable of the script may have."""
        if name in ("?", "#", "$", "!"):
            return [ONE_OPEN]
        if name == "HOME" and name not in self.values and self.home:
            return [Word(self.home)]
        if name == "PWD" and len(self.folders) == 1 and name not in self.values:
            return [Word(self.folders[0])]
        if name not in self.certain or name in self.busy or self.unknown & {name, "*"}:
            return [OPEN]
        self.lookups += 1
        if self.lookups > LOOKUPS_MAX or len(self.busy) >= VALUES_DEPTH_MAX:
            return [OPEN]
        self.busy.add(name)
        here = self.certain
        found = []
        for node in self.values.get(name, []):
            self.certain = self.certain_at.get(node.id, frozenset()) if node is not None else here
            found += self.value(node) if node is not None else [Word("")]
        self.certain = here
        self.busy.discard(name)
        found = list(dict.fromkeys(found))
        if len(found) > ALTERNATIVES_MAX:
            return [OPEN]
        if self.counts is not None and len(found) > 1:
            self.counts[name] = len(found)
            found = [found[self.chosen.get(name, 0) % len(found)]]
        split = (
            word.kind == "literal" and re.search(r"[\s*?\[\\]|^$", word.text) for word in found
        )
        return [OPEN] if not quoted and any(split) else found

    def value(self, node: Any) -> list[Word]:
        """Return the values of an assignment or of a word of `for`; an assignment expands no
        braces.
        """
        if (
            node.parent is not None
            and node.parent.type == "variable_assignment"
            and re.search("[{]|:~", self.text(node))
        ):
            return [OPEN]
        return self.word(node)

    # -- words

    def word(self, node: Any, quoted: bool = False) -> list[Word]:  # noqa: PLR0911 - one line a kind of word
        """Return the words that a node may stand for: several for braces and variables."""
        match node.type:
            case "word" | "extglob_pattern":
                return self.plain(self.text(node))
            case "number":
                return (
                    [Word(self.text(node))] if not node.named_children else self.visit_inside(node)
                )
            case "raw_string":
                return [Word(self.text(node)[1:-1])]
            case "ansi_c_string":
                decoded = decode_ansi(self.text(node)[2:-1])
                return [OPEN] if decoded is None else [Word(decoded)]
            case "string":
                several = "@" in self.text(node)  # `"$@"`, `"${a[@]}"`
                words = _products(self.string(node))
                return (
                    words
                    if several
                    else [msgspec.structs.replace(w, single=w.kind == "open") for w in words]
                )
            case "concatenation":
                return self.concatenation(node)
            case "simple_expansion":
                return self.variable(self.text(node)[1:], quoted)
            case "expansion":
                return self.expansion(node, quoted)
            case "command_substitution" | "process_substitution":
                self.substitution(node)
                return [OPEN] if node.type == "command_substitution" else [PIPE]
            case "arithmetic_expansion":
                self.arithmetic(node)
                return [ONE_OPEN]
            case _:
                return self.visit_inside(node)

    def visit_inside(self, node: Any) -> list[Word]:
        """Visit a word whose value is not known."""
        if node.type not in ("brace_expression", "number"):
            self.fail(f"`{node.type.replace('_', ' ')}` is not read")
        for child in node.named_children:
            if child.type in _WORDS:
                self.word(child)
        return [OPEN]

    def plain(self, text: str, begins: bool = True) -> list[Word]:
        """Return the words of an unquoted text: braces, globs, and `~` where the text `begins` a
        word.
        """
        if re.search(r"['\"`\\\s]|\$[\w({@*#?!$\[-]", re.sub(r"(?s)\\.", "", text)) or re.match(
            r"\{\w+(\[|\}\Z)", text
        ):
            self.fail(f"`{text[:40]}` is not read")
            return [OPEN]
        if text.startswith("~") and begins:
            user, sign, rest = text.partition("/")
            if user != "~" or not self.home:
                return [OPEN]
            return (
                [_joined(Word(self.home + sign), word) for word in self.plain(rest, begins=False)]
                if rest
                else [Word(self.home + sign)]
            )
        if "~" in text and re.search(
            r"[=:]~", text
        ):  # Bash expands it in what looks like an assignment
            return [Word(_unescaped(re.split(r"[~{*?\[]", text)[0])[0], "open")]
        if re.search(r"\{[^}]*(,|\.\.)", re.sub(r"(?s)\\.", "", text)):
            expanded = _braces(text) if "\\" not in text else None
            if expanded is None:
                return [Word(_unescaped(text.partition("{")[0])[0], "open")]
            if expanded == [text]:
                return [Word(text)]
            return [word for one in expanded if one for word in self.plain(one, begins)]
        return [_glob_or_literal(text)]

    def concatenation(self, node: Any) -> list[Word]:
        if all(child.type in ("word", "brace_expression", "number") for child in node.children):
            return self.plain(self.text(node))
        if re.match(r"\{\w+\[", self.text(node)):  # `{a[…]}>` evaluates a subscript
            self.fail(f"`{self.text(node)[:40]}` is not read")
        text = "".join(self.text(child) for child in node.children if child.type == "word")
        open_braces = "{" in text and ("," in text or ".." in text)
        first = node.children[0]
        pieces = [self.word(first)]
        pieces += [
            self.plain(self.text(c), begins=False) if c.type == "word" else self.word(c)
            for c in node.children[1:]
        ]
        words = _products(pieces)
        if "~" in text and re.search(r"[=:]~", self.text(node)):
            return [OPEN]
        if open_braces:  # Bash expands the braces first: `$a{b,c}` is `$ab $ac`
            before = re.split(r"[{*?\[~]", self.text(first))[0] if first.type == "word" else ""
            return [Word(_unescaped(before)[0], "open")]
        if (
            first.type == "word"
            and self.text(first).startswith("~")
            and "/" not in self.text(first)
        ):
            return [OPEN]
        return words

    def string(self, node: Any) -> list[list[Word]]:
        """Return the pieces of a double-quoted text. Blanks between expansions stand in no node."""
        pieces: list[list[Word]] = []
        at = node.start_byte + 1

        def literal(end: int) -> None:
            text = self.source[at:end].decode(errors="replace")
            if "$\\\n" in text:
                self.fail("a line is continued inside a word")
            if text:
                pieces.append(
                    [
                        Word(
                            re.sub(
                                r'(?s)\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], text
                            )
                        )
                    ]
                )

        for child in node.named_children:
            if child.type == "string_content":
                continue
            literal(child.start_byte)
            pieces.append(self.word(child, quoted=True))
            at = child.end_byte
        literal(node.end_byte - 1)
        return pieces or [[Word("")]]

    def expansion(self, node: Any, quoted: bool) -> list[Word]:
        """`${name}` and the forms that only cut or replace; the others run or change things."""
        text = self.text(node)
        plain = re.fullmatch(r"\$\{(\w+|[?#$!@*-])\}", text)
        if plain:
            return self.variable(plain[1], quoted)
        operator = re.match(
            r"\$\{#?[A-Za-z_]\w*(?:\[[@*\d]+\])?(:?[-+?]|##?|%%?|//?|\^\^?|,,?|: "
            r"?-?\d+(?::-?\d+)?\}|\})",
            text,
        ) or re.match(r"\$\{\d+(:?[-+?])", text)
        if not operator or (quoted and "'" in text):  # inside double quotes, `'` does not quote
            self.fail(f"`{text[:40]}` is not read")
        for child in node.named_children:
            if child.type in _WORDS:
                self.word(child)
            elif child.type not in ("variable_name", "special_variable_name", "regex", "subscript"):
                self.fail(f"`{text[:40]}` is not read")
        if re.search(r"\$\(|`", text) and not any(c.type in _WORDS for c in node.named_children):
            self.fail(f"`{text[:40]}` is not read")
        return [OPEN]

    def arithmetic(self, node: Any) -> None:
        """Arithmetic over numbers only: the value of a variable can run commands (`a[$(…)]`)."""
        if not re.fullmatch(r"[\s\d+*/%()<>=!&|^~?:$-]+", self.text(node)):
            self.fail("arithmetic over variables")
            for child in self.descendants(node):
                if child.type == "command_substitution":
                    self.substitution(child)

    def descendants(self, node: Any) -> Iterator[Any]:
        todo = list(node.children)
        while todo:
            child = todo.pop()
            yield child
            if child.type != "command_substitution":
                todo += child.children

    def substitution(self, node: Any) -> None:
        if self.text(node).startswith("`") and "\\" in self.text(node):
            self.fail("a backslash in backquotes, which Bash removes first")
        folders, certain, counts = self.folders, self.certain, self.counts
        self.counts = None
        for child in node.children:
            if child.type not in ("$(", ")", "`", "<(", ">(", "\n"):
                self.statement(child, 1)
        self.folders, self.certain, self.counts = folders, certain, counts

    # -- statements

    def statement(self, node: Any, level: int) -> None:
        """Visit a statement; anything unknown is a problem."""
        if level + self.depth > DEPTH_MAX or len(self.parts) > PARTS_MAX:
            self.fail("it is nested too deeply or has too many commands")
            return
        match node.type:
            case "command":
                self.command(node)
            case "for_statement":
                self.for_statement(node, level)
            case "test_command":
                self.test_command(node)
            case "variable_assignment" | "declaration_command":
                self.assignments(node)
            case "subshell":
                folders, certain = self.folders, self.certain
                self.children(node, level)
                self.folders, self.certain = folders, certain
            case "pipeline" | "if_statement" | "while_statement" | "case_statement":
                before = self.folders
                self.children(node, level)
                self.add_folders(before)
            case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
                self.redirect(node)
            case kind if kind in _STATEMENTS:
                self.children(node, level)
            case kind if kind in _TOKENS:
                pass
            case kind if kind in _WORDS:
                self.word(node)  # the word of `case` and its patterns
            case _:
                self.fail(f"`{self.text(node)[:40]}` is not read ({node.type.replace('_', ' ')})")

    def children(self, node: Any, level: int) -> None:
        if node.type == "compound_statement" and self.text(node).startswith("(("):
            self.arithmetic(node)
            return
        if node.type == "redirected_statement" and node.children[0].type == "command":
            self.redirected_command(node)
            return
        children = node.children
        at = node.start_byte
        certain = first = self.certain
        for index, child in enumerate(children):
            if node.type == "pipeline" or child.type in ("elif_clause", "else_clause", "case_item"):
                self.certain = certain
            if gap := re.sub(
                r"\\\n|[ \t\n]", "", self.source[at : child.start_byte].decode(errors="replace")
            ):
                self.fail(f"`{gap[:40]}` is not read")
            at = child.end_byte
            before = self.folders
            known = self.certain
            self.statement(child, level + 1)
            first = self.certain if index == 0 else first
            after = children[index + 1].type if index + 1 < len(children) else ""
            if self.folders != before and after not in ("&&", "") and node.type != "pipeline":
                self.add_folders(before)
            if after == "&":
                self.certain = known
        if node.type == "list":
            self.certain = first  # the rest may not run
        elif node.type in (
            "pipeline",
            "if_statement",
            "while_statement",
            "case_statement",
            "redirected_statement",
        ):
            self.certain = certain

    def add_folders(self, before: tuple[str, ...]) -> None:
        """The next commands may run in the folders of before as well as in the present ones."""
        if self.folders and before:
            self.folders = tuple(dict.fromkeys((*self.folders, *before)))[:ALTERNATIVES_MAX]
        else:
            self.folders = ()

    def for_statement(self, node: Any, level: int) -> None:
        name = node.child_by_field_name("variable")
        if name is not None and SPECIAL_VARIABLES.fullmatch(self.text(name)):
            self.fail(f"it sets {self.text(name)}")
        certain = self.certain
        for child in node.children:
            if child.type in _WORDS:
                self.certain_at[child.id] = certain
                self.word(child)
            elif child.type == "do_group":
                before = self.folders
                self.certain |= {self.text(name)} if name is not None else set()
                self.statement(child, level + 1)
                if self.folders != before:
                    self.folders = ()
            elif child.type not in (*_TOKENS, "variable_name"):
                self.fail(f"`{self.text(child)[:40]}` is not read")
        self.certain = certain

    def test_command(self, node: Any) -> None:
        """`[ … ]` and `[[ … ]]`: no effect, but arithmetic comparisons and `-v` evaluate their
        operands.
        """
        text = self.text(node)
        if text.startswith("(("):
            self.arithmetic(node)
            return
        todo = list(node.children)
        words = text.split()
        evaluates = any(re.fullmatch(r"['\"\\]*-[vR]['\"]*", word) for word in words)
        numeric = text.startswith("[[") and any(operator in words for operator in _NUMERIC_TESTS)
        while todo:
            child = todo.pop()
            if child.type in _WORDS:
                found = self.word(child)
                plain = all(
                    word.kind == "literal" for word in found
                ) or _NUMERIC_EXPANSION.fullmatch(self.text(child))
                splits = not text.startswith("[[") and any(
                    word.may_split for word in found
                )  # into `-v 'a[$(…)]'`
                if (evaluates or numeric or splits) and not plain:
                    self.fail("a test that evaluates an unknown value")
                if numeric and plain and any(re.search(r"[A-Za-z_]", word.text) for word in found):
                    self.fail("a test that evaluates the value of a variable")
                if any(map(may_run_subscript, found)):
                    self.fail("a test that may run what stands in a subscript")
            elif child.type not in (*_TOKENS, "variable_name"):
                todo += child.children
                if child.type not in (
                    "binary_expression",
                    "unary_expression",
                    "parenthesized_expression",
                ):
                    self.fail(f"`{self.text(child)[:40]}` is not read")
        self.parts.append(Part((Word("["),), text, self.folders))

    def assignments(self, node: Any) -> None:
        """Assignments without a command; `export` and `declare` also reach the commands that
        follow.
        """
        names = []
        for child in node.children if node.type == "declaration_command" else [node]:
            match child.type:
                case "variable_assignment":
                    names.append(self.assignment(child))
                case "export" | "declare" | "local" | "readonly" | "typeset" | "variable_name":
                    pass
                case "word" if self.text(child) in ("-x", "-r", "-g", "-gx"):
                    pass
                case _:
                    self.fail(f"`{self.text(child)[:40]}` is not read")
        self.certain |= set(names)
        exported = tuple(names) if node.type == "declaration_command" else ()
        special = [name for name in names if not exported and SPECIAL_VARIABLES.fullmatch(name)]
        problem = f"it sets {special[0]}" if special else ""
        self.parts.append(
            Part((), self.text(node), self.folders, assigned=exported, problem=problem)
        )

    def assignment(self, node: Any) -> str:
        """Visit one assignment and return its variable."""
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            self.fail(f"`{self.text(node)[:40]}` is not read")
            return ""
        if value is not None:
            self.certain_at[value.id] = self.certain
        for child in value.children if value is not None and value.type == "array" else [value]:
            if (
                child is not None
                and child.type in _WORDS
                and not (child.parent == value and self.text(child)[0] == "[")
            ):
                self.word(child)
            elif child is not None and child.type not in (
                "(",
                ")",
            ):  # also `([…]=1)`: it evaluates the subscript
                self.fail(f"`{self.text(node)[:40]}` is not read")
        return self.text(name)

    def redirect(self, node: Any, *, trailing: bool = False) -> None:
        """Note the file of one redirect as a part of its own; visit here-documents.

        With `trailing`, words after the target belong to the command in front, which has read them.
        """
        if node.type == "herestring_redirect":
            for child in node.named_children:
                self.word(child)
            return
        if node.type == "heredoc_redirect":
            self.heredoc(node)
            return
        operator = next((c.type for c in node.children if not c.is_named), "")
        destinations = self.destinations(node, operator, trailing=trailing)
        targets = [word for child in destinations for word in self.word(child)]
        if operator in (">&", "<&") and all(
            w.kind == "literal" and re.fullmatch(r"\d+-?|-", w.text) for w in targets
        ):
            return
        targets = [word for word in targets if word not in STREAMS]
        if not targets:
            return
        known = operator in ("<", ">", ">>", ">|", "&>", "&>>", ">&")
        problem = "" if known else f"`{operator}` is not read"
        if any(word.text.startswith(("/dev/tcp", "/dev/udp")) for word in targets):
            problem = "it opens a network connection"
        read = operator == "<"
        self.parts.append(Part((), self.text(node), self.folders, tuple(targets) if read else (),
                               () if read else tuple(targets), problem=problem))  # fmt: skip

    def destinations(self, node: Any, operator: str, *, trailing: bool) -> list[Any]:
        """Return the target of a redirect; none for `>&-`. Words after it fail unless
        `trailing`.
        """
        found = [child for child in node.named_children if child.type != "file_descriptor"]
        descriptors = [
            self.text(child) for child in node.children if child.type == "file_descriptor"
        ]
        if not all(map(str.isdigit, descriptors)):
            self.fail(f"`{descriptors[0][:40]}` is not read")
        closes = operator in (">&-", "<&-")
        extra = found if closes else found[1:]
        dashed = operator in (">&", "<&") and any(
            self.text(child).startswith("-") for child in found
        )
        if sum(not c.is_named for c in node.children) > 1 or (extra and not trailing) or dashed:
            self.fail("words after a redirect")  # `>& -x` closes the output, and `x` is an argument
        return [] if closes else found[:1]

    def heredoc(self, node: Any) -> None:
        for child in node.children:
            match child.type:
                case "<<" | "<<-" | "heredoc_end" | "file_descriptor":
                    pass
                case "heredoc_start":
                    if not re.fullmatch(r"\w+|'\w+'|\"\w+\"", self.text(child)):
                        self.fail(f"`<<{self.text(child)[:40]}` is not read")
                case "heredoc_body":
                    self.heredoc_body(child, self.text(node))
                case "file_redirect" | "herestring_redirect":
                    self.redirect(child)
                case kind if kind in _STATEMENTS | _TOKENS or kind in (
                    "command",
                    "heredoc_redirect",
                    "test_command",
                ):
                    self.statement(child, 1)
                case kind if kind in _WORDS:
                    self.fail("words after a here-document")
                    self.word(child)
                case _:
                    self.fail(f"`{self.text(child)[:40]}` is not read")

    def heredoc_body(self, node: Any, redirect: str) -> None:
        """Visit the expansions of a here-document; what the tree leaves out of them must hold
        none.
        """
        text, at = "", node.start_byte
        for inner in node.named_children:
            if inner.type != "heredoc_content":
                text += self.source[at : inner.start_byte].decode(errors="replace") + " "
                at = inner.end_byte
                self.word(inner, quoted=True)
        text += self.source[at : node.end_byte].decode(errors="replace")
        is_quoted = re.match(r"<<-?\s*['\"\\]", redirect)
        if not is_quoted and re.search(r"`|\$[\[({]", re.sub(r"(?s)\\.", "", text)):
            self.fail("an expansion in a here-document is not read")

    # -- simple commands

    def redirected_command(self, node: Any) -> None:
        """Read a command with redirects; the words after a target (`grep x 2>o file`) are
        arguments.
        """
        command, *redirects = node.children
        after = []
        for child in redirects:
            if child.type == "file_redirect":
                words = [c for c in child.named_children if c.type != "file_descriptor"]
                closes = any(c.type in (">&-", "<&-") for c in child.children)
                after += words if closes else words[1:]
        self.command(command, after)
        for child in redirects:
            if child.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                self.redirect(child, trailing=True)
            else:
                self.fail(f"`{self.text(child)[:40]}` is not read")

    def command(self, node: Any, after: Sequence[Any] = ()) -> None:
        """Note a simple command once for each value of its variables: `for f in a b; do rm $f;
        done`.
        """
        outer = self.counts, self.chosen
        self.counts, self.chosen = {}, {}
        words, assigned = self.command_words(node, after)
        choices = [range(count) for count in self.counts.values()]
        if math.prod(map(len, choices)) > ALTERNATIVES_MAX:
            words = [OPEN]
            choices = []
        names = list(self.counts)
        for choice in product(*choices):
            self.chosen = dict(zip(names, choice, strict=True))
            if any(choice):
                words, assigned = self.command_words(node, after)
            self.simple(words, self.text(node), tuple(assigned), ())
        self.counts, self.chosen = outer

    def command_words(self, node: Any, after: Sequence[Any]) -> tuple[list[Word], list[str]]:
        """Return the words of a simple command and the variables it sets; visit its redirects."""
        words: list[Word] = []
        assigned: list[str] = []
        at = node.start_byte
        for child in node.children:
            if re.sub(
                r"\\\n|[ \t]", "", self.source[at : child.start_byte].decode(errors="replace")
            ):
                self.fail(f"`{self.text(node)[:40]}` is not read")
            at = child.end_byte
            match child.type:
                case "variable_assignment":
                    assigned.append(self.assignment(child))
                case "command_name":
                    words += self.program_name(child)
                case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
                    self.redirect(child)
                case kind if kind in _WORDS:
                    words += self.word(child)
                case _:
                    self.fail(f"`{self.text(child)[:40]}` is not read")
        for child in after:
            words += self.word(child)
        return words, assigned

    def program_name(self, node: Any) -> list[Word]:
        words = [word for child in node.children for word in self.word(child)]
        if all(word.kind == "literal" for word in words) and words[0].text:
            if words[0].text in RESERVED:
                self.fail(f"`{words[0].text}` is not read here")
            return words
        return [OPEN]

    def simple(
        self, words: list[Word], text: str, assigned: tuple[str, ...], wrappers: tuple[str, ...]
    ) -> None:
        """Note a simple command, with the commands in its arguments as parts of their own."""
        if not words or words[0].kind != "literal":
            problem = "an expansion stands in the place of the program" if words else ""
            self.parts.append(
                Part(tuple(words), text, self.folders, (), (), assigned, wrappers, problem)
            )
            return
        name = words[0].text.rpartition("/")[2]
        if name in WRAPPERS:
            self.wrapped(name, words, text, assigned, wrappers)
            return
        if name in _CHANGES_NAMES and len(words) > 1:
            self.fail(f"{name} changes what later words mean")
        if name in SHELLS or name in (
            "eval",
            "su",
            "trap",
            "source",
            ".",
            "watch",
            "parallel",
            "ssh",
            "script",
            "flock",
        ):
            if self.nested(name, words):  # its script is read as parts
                return
        elif name in ("find", "fd", "fdfind"):
            self.found_commands(words, text, wrappers)
        self.parts.append(Part(tuple(words), text, self.folders, (), (), assigned, wrappers))
        if name in ("cd", "pushd", "popd"):
            self.change_folder(name, words[1:])

    def wrapped(
        self,
        name: str,
        words: list[Word],
        text: str,
        assigned: tuple[str, ...],
        wrappers: tuple[str, ...],
    ) -> None:
        if (
            name == "command" and len(words) > 1 and words[1].text in ("-v", "-V")
        ):  # it prints what the name means
            self.parts.append(
                Part((Word("type"), *words[2:]), text, self.folders, (), (), assigned, wrappers)
            )
            return
        options = WRAPPERS[name]
        at = _after_options(words, options)
        wrappers = (*wrappers, name)
        folders = self.folders
        if at is None or at > len(words) or len(wrappers) > WRAPPERS_MAX:
            self.parts.append(
                Part(
                    tuple(words),
                    text,
                    folders,
                    (),
                    (),
                    assigned,
                    wrappers,
                    f"an unknown use of {name}",
                )
            )
            return
        if any(word.text.startswith(("-C", "--chdir")) for word in words[1:at]):
            self.folders = ()
        at += options.operands
        at += name == "env" and at < len(words) and words[at].text == "-"  # the same as `-i`
        while (
            name in ("env", "time")
            and at < len(words)
            and (match := re.match(r"([^=]*)=", words[at].text))
        ):
            assigned, at = (*assigned, match[1]), at + 1
        inner = words[at:]
        if name == "xargs":
            files = [w for flag, w in pairwise(words[:at]) if flag.text in ("-a", "--arg-file")]
            files += [
                Word(m[1])
                for w in words[1:at]
                if (m := re.match(r"(?:--arg-file=|-\w*a)(.+)", w.text))
            ]
            self.parts += [Part((), text, folders, (file,)) for file in files]
            replaced = next(
                (name.text for flag, name in pairwise(words[:at]) if flag.text == "-I"), ""
            )
            replaced = replaced or next(
                (w.text[2:] for w in words[:at] if w.text.startswith("-I")), ""
            )
            inner = [
                Word(w.text.partition(replaced)[0], "open")
                if replaced and replaced in w.text
                else w
                for w in inner
            ]
            inner = [*(inner or [Word("echo")]), *([] if replaced else [OPEN])]
        if inner:
            self.simple(inner, text, assigned, wrappers)
        else:
            self.parts.append(Part((Word(name),), text, folders, (), (), assigned, wrappers[:-1]))
        self.folders = folders

    def nested(self, name: str, words: list[Word]) -> bool:
        """Read the script in the arguments of a shell; return True if the parts are all that it
        runs.
        """
        literal = [word.text for word in words if word.kind == "literal"]
        whole = len(literal) == len(words)
        if name == "eval" and whole:
            return self.read_script(" ".join(literal[1:]))
        if (
            name in SHELLS
            and whole
            and len(words) >= 3
            and words[1].text in ("-c", "-lc", "-ec", "-euc", "-exc", "-xc")
        ):
            return self.read_script(words[2].text) and (
                name == "bash" or not _BASH_ONLY.search(words[2].text)
            )
        for text in literal[1:]:  # for deny rules, which match when in doubt
            if any(c in text for c in " \t\n;&|"):
                self.read_script(text)
        if name in ("ssh", "su", "flock", "watch", "parallel", "script"):
            rest = [w for w in words[1:] if not w.text.startswith("-")]
            for start in range(
                1 if name in ("ssh", "su", "flock") else 0, min(len(rest), NESTED_STARTS_MAX)
            ):
                self.parts.append(Part(tuple(rest[start : start + 50]), "", (), wrappers=(name,)))
        return False

    def read_script(self, source: str) -> bool:
        """Read a script in an argument with the same parser; return False if it has a problem."""
        if self.depth >= DEPTH_MAX // 8:
            return False
        inner = _Reader(source, "", self.home, self.depth + 1)
        inner.folders = self.folders
        inner.run()
        self.parts += inner.parts
        self.add_folders(inner.folders)
        return not inner.problem

    def found_commands(self, words: list[Word], text: str, wrappers: tuple[str, ...]) -> None:
        """Note the commands after `-exec` as parts; the found file is an open word."""
        at = 1
        options = [
            i
            for i, w in enumerate(words)
            if i and w.text[:1] in ("-", "(", "!") and w.text not in ("-H", "-L", "-P")
        ]
        starts = [
            w for w in words[1 : min(options, default=1)] if w.text not in ("-H", "-L", "-P")
        ] or [Word(".")]
        found = [
            Word(f"{w.text.rstrip('/')}/**", "glob") if w.kind == "literal" else OPEN
            for w in dict.fromkeys(starts)
        ][:ALTERNATIVES_MAX]
        while at < len(words):
            if words[at].text not in (
                "-exec",
                "-execdir",
                "-ok",
                "-okdir",
                "-x",
                "--exec",
                "-X",
                "--exec-batch",
            ):
                at += 1
                continue
            end = next(
                (i for i in range(at, len(words)) if words[i].text in (";", "+")), len(words)
            )
            inner = [
                w for word in words[at + 1 : end] for w in (found if word.text == "{}" else [word])
            ]
            inner = [
                Word(w.text.partition("{}")[0], "open") if "{}" in w.text else w for w in inner
            ]
            folders = self.folders
            if words[at].text in ("-execdir", "-okdir"):  # it runs beside the found file
                self.folders = ()
            self.simple(inner, text, (), (*wrappers, words[0].text.rpartition("/")[2]))
            self.folders = folders
            at = end + 1

    def change_folder(self, name: str, arguments: list[Word]) -> None:
        """Follow `cd`. A folder that is not known leaves no folders."""
        while (
            arguments
            and arguments[0].text in ("-P", "-L", "--", "-e")
            and arguments[0].kind == "literal"
        ):
            arguments = arguments[1:]
        if not arguments and name == "cd" and self.home:
            self.folders = (self.home,)
        elif (
            name == "popd"
            or len(arguments) != 1
            or arguments[0].kind != "literal"
            or arguments[0].text in ("-", "")
        ):
            self.folders = ()
        elif arguments[0].text.startswith("/") or self.folders:
            self.folders = tuple(
                dict.fromkeys(join_path(f, arguments[0].text) for f in self.folders or ("/",))
            )
