"""Read a simple Bash command line with tree-sitter: its commands, their words, folders, redirects.

    script = parse_command("cd src && grep -n 'a b' *.py > out.txt", cwd="/w", home="/home/me")
    script.parts[1].words    # grep, -n, "a b" (literals), *.py (a glob)
    script.parts[1].folders  # ("/w/src",)

Simple syntax is read: words, quotes, plain variables, pipes, lists, redirects, leading assignments,
`$(…)`, `(…)` and here-documents without expansions. All other syntax is a *problem*: loops,
functions, conditions, arithmetic, braces. A script or part with a problem is never allowed by
itself. The commands inside such syntax still become parts, so that deny rules can match them.
"""

import re
from collections.abc import Sequence
from functools import cache, reduce
from itertools import pairwise
from typing import Any, Literal

import msgspec

LENGTH_MAX = 30_000
"""Longest command, in characters, that is parsed. A longer one is a problem as a whole."""
PARTS_MAX = 400
"""Most simple commands of one line."""
SCRIPTS_MAX = 5
"""Most scripts inside each other: `bash -c "bash -c '…'"`."""
TREE_DEPTH_MAX = 100
"""Deepest syntax tree that is walked; in a script inside a script a half, a third …"""
NODES_MAX = 6_000
"""Most nodes of a syntax tree that is walked."""
WRAPPERS_MAX = 10
"""Most wrappers in front of one program."""
FOLDERS_MAX = 16
"""Most folders in which one command may run."""


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
        if self.kind == "open":
            return first in ("", "-")
        return first == "-" or (self.kind == "glob" and first in ("*", "?", "["))


class WordPart(msgspec.Struct, frozen=True):
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
    """Variables that the command's environment gets, as `NAME=value`; `NAME=$` where the value
    is not known.
    """
    wrappers: tuple[str, ...] = ()
    """Wrappers in front of the program, outermost first."""
    problem: str = ""
    """Reason why the part is not known; '' for none."""

    @property
    def program(self) -> str:
        """Name of the program as written; '' for a redirect, an assignment or an unknown one."""
        return self.words[0].text if self.words and self.words[0].kind == "literal" else ""


class ShellScript(msgspec.Struct, frozen=True):
    """All simple commands of a command line, in the order of the text."""

    parts: tuple[WordPart, ...]
    problem: str = ""
    """Reason why the line as a whole is not known; '' for none."""


_INVISIBLE = re.compile(
    "[^\\S \\t\\n]|"
    r"[\x00-\x08\x0e-\x1f\x7f\ufeff\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff]"
)


def parse_command(command: str, cwd: str, home: str) -> ShellScript:
    """Read `command` as Bash would, started in the absolute folder `cwd`. Never raises."""
    if len(command) > LENGTH_MAX:
        return ShellScript((), f"it has more than {LENGTH_MAX:,} characters")
    if found := _INVISIBLE.search(command):
        return ShellScript((), f"it holds the invisible character U+{ord(found[0]):04X}")
    reader = _Reader(command, (cwd,) if cwd else (), home)
    if re.search(r"\n[ \t]*\\\n", command):  # the grammar overlooks the line break in front
        reader.fail("a line holds nothing but a backslash")
    reader.run()
    return ShellScript(tuple(reader.parts), reader.problem)


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
STREAMS = frozenset(
    Word(f"/dev/{name}") for name in ("null", "stdout", "stderr", "stdin", "tty", "zero")
)
"""Files that stand for nothing stored."""
_GLOB_CHARACTERS = re.compile(r"[*?\[]")
_NOT_PLAIN = re.compile(
    r"['\"`\\\s]|\$[\w({@*#?!$\[-]|\{[^}]*(?:,|\.\.)|[@!+?*]\(|\[[:=.]|[=:]~|^\{\w+(?:\[|\}\Z)"
)
"""What an unquoted text does not hold, its escaped characters aside: quotes, braces, extended
patterns, `~` inside a word, and a variable that gets the number of a redirect.
"""
_DOT_GLOB = re.compile(r"(?:^|/)\.\.?(?:[*?]|\[[^\]]*\])+(?:/|$)")
"""Patterns that also match `..`."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b",
            "f": "\f", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?"}  # fmt: skip


def may_run_subscript(word: Word) -> bool:
    """True for `a[$(…)]`: Bash runs it where it takes the text for the name of a variable."""
    return "[" in word.text and ("$(" in word.text or "`" in word.text)


def _joined(first: Word, second: Word) -> Word:
    """Concatenate two pieces of one word."""
    single = (first.kind != "open" or first.single) and (second.kind != "open" or second.single)
    if first.kind == "open":
        return Word(first.text, "open", single and second.kind != "glob")
    text = first.text + second.text
    is_glob = "glob" in (first.kind, second.kind)
    if second.kind == "open" or (is_glob and _DOT_GLOB.search(text)):
        known = _GLOB_CHARACTERS.split(text)[0] if is_glob else text
        return Word(known, "open", single and not is_glob)
    return Word(text, "glob" if is_glob else "literal")


def decode_ansi(text: str) -> str | None:
    """Decode the text between `$'` and `'`; None for an escape that is not known."""

    def decode(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "xuU" and len(code) > 1:
            return chr(int(code[1:], 16))
        return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _ESCAPES[code]

    escape = r"(?s)\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|.)"
    try:
        decoded = re.sub(escape, decode, text)
    except (KeyError, ValueError, OverflowError):
        return None
    return decoded if decoded.isascii() and "\0" not in decoded else None


# --- Variables ------------------------------------------------------------------------------------


_INERT_NAMES = (
    "LANG|LANGUAGE|LC_[A-Z]+|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|CI|TERM|COLUMNS|LINES|"
    "RUST_BACKTRACE|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE"
)
_INERT = rf"(?:{_INERT_NAMES})=[\w.,:+@-]*|TZ=\w[\w+-]*(?:/\w[\w+-]*)*"
_LOCAL = rf"(?!npm_|\w*_proxy$|\w*config)[a-z]\w*|[A-Z]|{_INERT_NAMES}|TZ"


def is_inert_assignment(text: str) -> bool:
    """True if no program runs, loads or opens anything else for `NAME=value` in its environment.

    A value with a `/` may name a file (`LC_ALL=./x`), one with a `$` a command (`make`).
    """
    return bool(re.fullmatch(_INERT, text))


def is_local_variable(name: str) -> bool:
    """True if a script may set a variable without exporting it.

    A variable that was exported before changes the programs that run later: `CC`, `http_proxy`,
    `PATH`. Those of a script itself are usually in small letters.
    """
    return bool(re.fullmatch(_LOCAL, name))


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
    "env": _Options("i0v", "u", word_set("--ignore-environment --null"), word_set("--unset")),
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
        "0rtx", "nPLdEs", word_set("--null --no-run-if-empty --verbose --exit"),
        word_set("--max-args --max-procs --max-lines --delimiter --max-chars"),
    ),
}  # fmt: skip
"""Programs that run the command in their arguments, with the options before it."""
UNPRIVILEGED = frozenset(WRAPPERS) - {"sudo", "doas", "exec", "setsid", "env", "xargs"}
"""Wrappers that change nothing about what the command can do."""
_BASH_ONLY = re.compile(r"\$['\"]|&>|>&\s*[^\d\s]|<<<|\|&")
"""Simple syntax that other shells read differently."""
_RUN_TEXTS = word_set("bash sh dash zsh ksh eval su trap watch parallel ssh script flock")
"""Programs that run the text of an argument."""
_SCRIPT_OPTIONS = frozenset(("-c", "-lc", "-ec", "-euc", "-exc", "-xc"))
RESERVED = word_set(
    "! if then elif else fi for while until do done case esac function select in coproc { } [[ ]]"
)
_CHANGES_NAMES = word_set("alias enable declare typeset local export readonly")
"""Builtins that change what later words mean."""


_SYSTEM_FOLDERS = ("/usr/bin/", "/bin/", "/usr/local/bin/", "/opt/homebrew/bin/")


def is_system_program(name: str) -> bool:
    """True for a name that is looked up on the PATH, or a path in a folder of the system."""
    return "/" not in name or name.startswith(_SYSTEM_FOLDERS)


def _after_options(words: Sequence[Word], options: _Options) -> int | None:
    """Return the index of the first word after the options of a wrapper; None where they are not
    known.
    """
    at = 1
    while at < len(words) and words[at].may_be_option:
        text = words[at].text
        if words[at].kind != "literal":
            return None
        if text == "-":
            break
        if text == "--":
            return at + 1
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
        if name not in options.long_valued:
            return None
        return 1 if sign else 2
    for i, letter in enumerate(text[1:], 1):
        if letter in options.valued:
            return 2 if i == len(text) - 1 else 1
        if letter not in options.flags:
            return None
    return 1


def exec_commands(words: Sequence[Word]) -> tuple[list[Word], list[tuple[str, list[Word]]]]:
    """Return the words of `find` without its commands, and each command with its option.

    A command ends at `;`, and after `-exec` also at a `+` right behind `{}`.
    """
    own: list[Word] = []
    commands: list[tuple[str, list[Word]]] = []
    rest = list(words)
    while rest:
        option = rest.pop(0)
        if option not in map(Word, ("-exec", "-execdir", "-ok", "-okdir")):
            own.append(option)
            continue
        command: list[Word] = []
        while rest and rest[0] != Word(";"):
            word = rest.pop(0)
            if word == Word("+") and command[-1:] == [Word("{}")] and "exec" in option.text:
                rest.insert(0, Word(";"))
            else:
                command.append(word)
        del rest[:1]
        commands.append((option.text, command))
    return own, commands


def _with_found(word: Word) -> Word:
    """Return a word of `find -exec` with the unknown name in the place of `{}`."""
    known, mark, _ = word.text.partition("{}")
    return Word(known, "open") if mark else word


# --- Reader ---------------------------------------------------------------------------------------


_HEREDOC = re.compile(
    r"\$\(cat <<(['\"])(?P<end>\w+)\1\n(?P<body>(?:(?!(?P=end)\n).*\n)*)(?P=end)\n[ \t]*\)"
)
"""`$(cat <<'END' … )`: a long text without expansions, for a message of a commit."""
_REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
_SEPARATORS = frozenset((";", "\n", "&", "(", ")", "$(", "`", "comment"))
_WORDS = word_set(
    "word number string raw_string ansi_c_string concatenation simple_expansion expansion "
    "command_substitution process_substitution arithmetic_expansion brace_expression "
    "extglob_pattern translated_string"
)
_TEXT_NODES = _WORDS - {"concatenation", "command_substitution", "simple_expansion"} | {
    "heredoc_body"
}
"""Nodes whose text is not only that of their children."""
_ONE_LINE = word_set(
    "command file_redirect herestring_redirect variable_assignments concatenation "
    "simple_expansion variable_assignment"
)
"""Nodes that a line break ends; the grammar reads on where `\\` stands alone in the next line."""
_WITHOUT_BLANKS = word_set("simple_expansion concatenation variable_assignment")
"""Nodes in which no blank may stand between two children: `$ a` is a dollar and a word."""
_BLANKS = re.compile(r"(?:[ \t\n]|\\\n)*")

_Folders = tuple[str, ...]
"""Folders in which a command may run; () where they are not known."""
_Outcome = tuple[_Folders, _Folders]
"""Folders after a statement that succeeded, and after one that failed."""


def _either(first: _Folders, second: _Folders) -> _Folders:
    """Return the folders of two possible ways; () where one is not known."""
    both = tuple(dict.fromkeys((*first, *second))) if first and second else ()
    return both if len(both) <= FOLDERS_MAX else ()


@cache
def _parser() -> Any:
    """Return the parser; imported at the first command."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _Reader:
    """Walk of one syntax tree that collects parts."""

    def __init__(self, source: str, folders: _Folders, home: str, level: int = 1) -> None:
        self.source = source.encode()
        self.folders = folders
        self.home = home
        self.level = level
        """Number of scripts around this one, and itself."""
        self.parts: list[WordPart] = []
        self.problem = ""

    def run(self) -> None:
        root = _parser().parse(self.source).root_node
        if root.has_error:
            self.fail("it does not read as Bash")
        if root.descendant_count > NODES_MAX:
            self.fail("it has too many words")
        elif self.check_tree(root):
            self.statement(root)

    def fail(self, problem: str) -> None:
        self.problem = self.problem or problem

    def text(self, node: Any) -> str:
        return self.source[node.start_byte : node.end_byte].decode(errors="replace")

    # -- what the grammar reads otherwise than Bash

    def check_tree(self, root: Any) -> bool:
        """Check what lies between the nodes; return False for a tree that is too deep to walk."""
        todo = [(root, 0)]
        while todo:
            node, depth = todo.pop()
            if depth > TREE_DEPTH_MAX // self.level:
                self.fail("it is nested too deeply")
                return False
            todo += [(child, depth + 1) for child in node.children]
            if not self.is_sound(node):
                self.fail(f"`{self.text(node)[:40]}` is not read")
        return True

    def is_sound(self, node: Any) -> bool:
        """Return False if Bash may divide the text of a node into other words and commands."""
        children = node.children
        if node.type == "comment":
            return not self.source[node.start_byte - 1 : node.start_byte].strip(b" \t\n;&|()")
        if not children or node.type in _TEXT_NODES:
            return True
        starts = [*(child.start_byte for child in children), node.end_byte]
        ends = [node.start_byte, *(child.end_byte for child in children)]
        gaps = [
            self.source[a:b].decode(errors="replace") for a, b in zip(ends, starts, strict=True)
        ]
        if not all(map(_BLANKS.fullmatch, gaps)):
            return False
        pairs = zip(pairwise(children), gaps[1:-1], strict=True)
        return all(self.is_divided(node, *pair, gap) for pair, gap in pairs)

    def is_divided(self, node: Any, before: Any, after: Any, gap: str) -> bool:
        """Return True if the text between two children divides them, or joins them, as in Bash."""
        if gap:
            breaks = gap.replace("\\\n", "")
            joined = node.type in _WITHOUT_BLANKS or before.type == "file_descriptor"
            return bool(breaks) and not joined and not (node.type in _ONE_LINE and "\n" in breaks)
        if after.type in _REDIRECTS:  # `a2>x`
            return not re.search(r"\d\Z", self.text(before)) and not re.match(
                r"\d", self.text(after)
            )
        words = _WORDS | {"command_name"}
        return node.type in _WITHOUT_BLANKS or not (before.type in words and after.type in words)

    # -- statements

    def statement(self, node: Any) -> _Outcome:
        """Read a statement in the present folders; return the folders after it."""
        here = self.folders
        match node.type:
            case "list" if len(node.children) == 3:
                return self.two(*node.children)
            case "pipeline":
                for child in node.named_children:
                    self.folders = here
                    self.statement(child)
            case "program" | "subshell":
                self.sequence(node)
            case "negated_command" if len(node.children) == 2:
                succeeded, failed = self.statement(node.children[1])
                return failed, succeeded
            case "redirected_statement":
                return self.redirected(node)
            case "command":
                return self.command(node)
            case "variable_assignment" | "variable_assignments":
                self.assignments(node)
            case kind if kind in _REDIRECTS:
                self.redirect(node)
            case kind if kind in _WORDS:
                self.word(node)
            case _:
                self.unread(node)
        self.folders = here
        return here, here

    def unread(self, node: Any) -> None:
        """Note a problem, and the commands inside."""
        self.fail(f"`{self.text(node)[:40]}` is not read ({node.type.replace('_', ' ')})")
        for child in node.named_children:
            self.folders = _either(*self.statement(child))

    def sequence(self, node: Any) -> None:
        """Read statements that run one after another."""
        for child, after in pairwise([*node.children, None]):
            if child.type in _SEPARATORS:
                continue
            here = self.folders
            outcome = self.statement(child)
            if after is not None and after.type == "&":
                outcome = here, here
            self.folders = _either(*outcome)

    def two(self, first: Any, operator: Any, second: Any) -> _Outcome:
        """Read `first && second` or `first || second`."""
        if operator.type not in ("&&", "||"):
            self.fail(f"`{operator.type}` is not read")
        succeeded, failed = self.statement(first)
        self.folders = succeeded if operator.type == "&&" else failed
        then, otherwise = self.statement(second)
        if operator.type == "&&":
            return then, _either(failed, otherwise)
        return _either(succeeded, then), otherwise

    def redirected(self, node: Any) -> _Outcome:
        """Read a statement with redirects; words after a target (`grep x 2>o file`) are its
        arguments.
        """
        here = self.folders
        body, *redirects = node.children
        extra = [word for child in redirects for word in self.redirect(child)]
        if body.type == "command":
            return self.command(body, extra)
        if extra:
            self.fail("words after a redirect")
        self.folders = here
        return self.statement(body)

    def redirect(self, node: Any) -> Sequence[Any]:
        """Note the file of one redirect as a part of its own; return the words after it."""
        here = self.folders
        match node.type:
            case "file_redirect":
                return self.file_redirect(node)
            case "herestring_redirect" if len(node.named_children) == 1:
                self.word(node.named_children[0])
            case "heredoc_redirect":
                for child in node.children:
                    self.heredoc(node, child)
            case _:
                self.unread(node)
        self.folders = here
        return ()

    def file_redirect(self, node: Any) -> Sequence[Any]:
        operators = [child.type for child in node.children if not child.is_named]
        words = [child for child in node.named_children if child.type != "file_descriptor"]
        if operators not in [[one] for one in ("<", ">", ">>", ">|", "&>", "&>>", ">&", "<&")]:
            self.fail(f"`{self.text(node)[:40]}` is not read")
        if not re.match(r"\d*[<>&]", self.text(node)) or not words:
            self.fail(f"`{self.text(node)[:40]}` is not read")
            return words
        target, read = self.word(words[0]), operators[0] == "<"
        if operators[0] in (">&", "<&"):
            if re.fullmatch(r"\d+", self.text(words[0])):
                return words[1:]
            self.fail(f"`{self.text(node)[:40]}` is not read")
        is_network = target.text.startswith(("/dev/tcp", "/dev/udp"))
        problem = "it opens a network connection" if is_network else ""
        files = () if target in STREAMS else (target,)
        part = WordPart((), self.text(node), self.folders, problem=problem)
        change = {"reads": files} if read else {"writes": files}
        self.parts += [msgspec.structs.replace(part, **change)] if files else []
        return words[1:]

    def heredoc(self, node: Any, child: Any) -> None:
        """Read one piece of a here-document, which may hold the rest of a pipeline or list."""
        here = self.folders
        match child.type:
            case "<<" | "<<-" | "heredoc_end" | "|" | "&&" | "||":
                pass
            case "heredoc_start" if re.fullmatch(r"\w+|'\w+'|\"\w+\"", self.text(child)):
                pass
            case "heredoc_body":
                is_quoted = re.match(r"<<-?\s*['\"]", self.text(node))
                if not is_quoted and re.search(r"[$`\\]", self.text(child)):
                    self.unread(child)
            case kind if kind in _WORDS:
                self.unread(child)
            case _:
                if self.statement(child) != (here, here):
                    self.fail("a change of the folder behind a here-document")
        self.folders = here

    # -- words

    def word(self, node: Any, quoted: bool = False) -> Word:  # noqa: PLR0911 - a line for each kind
        """Return the word that a node stands for."""
        text = self.text(node)
        match node.type:
            case "word":
                return self.plain(text)
            case "number" if not node.named_children:
                return Word(text)
            case "raw_string":
                return Word(text[1:-1])
            case "ansi_c_string" if (decoded := decode_ansi(text[2:-1])) is not None:
                return Word(decoded)
            case "string":
                return self.string(node)
            case "concatenation":
                return self.concatenation(node)
            case "simple_expansion" | "expansion":
                return self.variable(node, quoted)
            case "command_substitution" if quoted and (said := _HEREDOC.fullmatch(text)):
                return Word(said["body"].rstrip("\n"))
            case "command_substitution" if not ("\\" in text and text.startswith("`")):
                here = self.folders
                self.sequence(node)
                self.folders = here
            case _:
                self.unread(node)
        return OPEN

    def plain(self, text: str, begins: bool = True) -> Word:
        """Return the word of an unquoted text; `~` counts where the text `begins` a word."""
        bare = re.sub(r"(?s)\\.", "", text)
        if _NOT_PLAIN.search(bare):
            self.fail(f"`{text[:40]}` is not read")
            return Word(re.split(r"[{$\\~@!+?*\[]", text)[0], "open")
        if text.startswith("~") and begins:
            user, sign, rest = text.partition("/")
            known = user == "~" and self.home
            return _joined(Word(self.home + sign), self.plain(rest, False)) if known else OPEN
        is_glob = _GLOB_CHARACTERS.search(bare)
        unescaped = re.sub(r"(?s)\\(.)", lambda match: match[1].strip("\n"), text)
        return _joined(Word(""), Word(unescaped, "glob" if is_glob else "literal"))

    def concatenation(self, node: Any) -> Word:
        """Join pieces without a blank between them. Bash expands braces first, and `~` last."""
        first, *rest = node.children
        if all(child.type in ("word", "number", "brace_expression") for child in node.children):
            return self.plain(self.text(node))
        text = "".join(self.text(child) for child in node.children if child.type == "word")
        pieces = [self.word(first)]
        for child in rest:
            is_word = child.type == "word"
            pieces.append(self.plain(self.text(child), False) if is_word else self.word(child))
        word = reduce(_joined, pieces)
        if "{" in text or (text.startswith("~") and "/" not in self.text(first)):
            self.fail(f"`{self.text(node)[:40]}` is not read")
            return Word(re.split(r"[{~$]", word.text)[0], "open")
        if re.search(r"[=:]['\"]*~", self.text(node)):
            return OPEN
        return word

    def string(self, node: Any) -> Word:
        """Join the pieces of a double-quoted text. Blanks between expansions stand in no node."""
        text = ""
        at = node.start_byte + 1
        is_open = False
        if "$\\\n" in self.text(node):
            self.fail("a line is continued inside a word")
        expansions = [child for child in node.named_children if child.type != "string_content"]
        for start, end, child in [
            *((child.start_byte, child.end_byte, child) for child in expansions),
            (node.end_byte - 1, 0, None),
        ]:
            piece = self.source[at:start].decode(errors="replace")
            value = self.word(child, quoted=True) if child is not None else Word("")
            at = end
            if not is_open:
                text += re.sub(r'(?s)\\([$`"\\\n])', lambda match: match[1].strip("\n"), piece)
                text += value.text
            is_open = is_open or value.kind == "open"
        if not is_open:
            return Word(text)
        return Word(text, "open", single="@" not in self.text(node))

    def variable(self, node: Any, quoted: bool) -> Word:
        """Return the value of `$HOME` and `$PWD`, as far as known; other values are open."""
        name = re.fullmatch(r"\$(?:\{(\w+|[?#$!@*-])\}|(\w+|[?#$!@*-]))", self.text(node))
        if name is None:
            self.unread(node)
            return OPEN
        known = {"HOME": self.home, "PWD": self.folders[0] if len(self.folders) == 1 else ""}
        value = known.get(name[1] or name[2], "")
        if value and (quoted or not re.search(r"[\s*?\[\\]", value)):
            return Word(value)
        return ONE_OPEN if (name[1] or name[2]) in ("?", "#", "$") else OPEN

    # -- simple commands

    def assignments(self, node: Any) -> None:
        """Note assignments without a command."""
        todo = [node] if node.type == "variable_assignment" else node.named_children
        names = [self.assignment(child).partition("=")[0] for child in todo]
        problem = next((f"it sets {name}" for name in names if not is_local_variable(name)), "")
        self.parts.append(WordPart((), self.text(node), self.folders, problem=problem))

    def assignment(self, node: Any) -> str:
        """Visit one assignment and return it as `NAME=value`."""
        name, *rest = node.children
        value = rest[1] if len(rest) == 2 else None
        is_plain = value is None or value.type in _WORDS
        if not re.match(r"\w+=", self.text(node)) or len(rest) > 2 or not is_plain:
            self.unread(node)
            return f"{self.text(name)}=$"
        word = self.word(value) if value is not None else Word("")
        return f"{self.text(name)}={word.text if word.kind == 'literal' else '$'}"

    def command(self, node: Any, extra: Sequence[Any] = ()) -> _Outcome:
        """Note a simple command and the commands in its arguments; visit its redirects."""
        words: list[Word] = []
        assigned: list[str] = []
        for child in (*node.children, *extra):
            if child.type == "variable_assignment":
                assigned.append(self.assignment(child))
            elif child.type == "command_name":
                words.append(self.program_name(child))
            elif child.type not in _REDIRECTS:
                words.append(self.word(child))
            elif self.redirect(child):
                self.fail("words after a redirect")
        return self.simple(words, self.text(node), tuple(assigned), ())

    def program_name(self, node: Any) -> Word:
        word = self.word(node.children[0])
        if word.text in RESERVED or len(node.children) > 1:
            self.fail(f"`{self.text(node)[:40]}` is not read here")
        return OPEN if word.kind == "glob" or not word.text else word

    def simple(
        self, words: list[Word], text: str, assigned: tuple[str, ...], wrappers: tuple[str, ...]
    ) -> _Outcome:
        """Note a simple command, with the commands in its arguments as parts of their own."""
        here = self.folders
        part = WordPart(tuple(words), text, here, (), (), assigned, wrappers)
        name = part.program.rpartition("/")[2]
        if len(self.parts) >= PARTS_MAX:
            self.fail("it has too many commands")
            return (), ()
        if not name:
            problem = "an expansion stands in the place of the program" if words else ""
            self.parts.append(msgspec.structs.replace(part, problem=problem))
            return (), ()
        if name in WRAPPERS and is_system_program(part.program):
            return self.wrapped(WRAPPERS[name], part)
        if name in _CHANGES_NAMES and len(words) > 1:
            self.fail(f"{name} changes what later words mean")
        if name == "find":
            self.found_commands(part)
        if not (name in _RUN_TEXTS and self.script_argument(part)):
            self.parts.append(part)
        if name in ("eval", "source", "."):
            return (), ()
        return self.moved(part) if name in ("cd", "pushd", "popd") else (here, here)

    def wrapped(self, options: _Options, part: WordPart) -> _Outcome:
        """Read the command in the arguments of a wrapper."""
        here = self.folders
        words = part.words
        assigned = part.assigned
        name = part.program.rpartition("/")[2]
        wrappers = (*part.wrappers, name)
        if name == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
            self.parts.append(msgspec.structs.replace(part, words=(Word("type"), *words[2:])))
            return here, here
        at = _after_options(words, options)
        own = words[: (at or 0) + options.operands]
        several = any(word.may_split or word.kind == "glob" for word in own)
        if at is None or at > len(words) or several or len(wrappers) > WRAPPERS_MAX:
            problem = f"an unknown use of {name}"
            self.parts.append(msgspec.structs.replace(part, wrappers=wrappers, problem=problem))
            return (), ()
        at += options.operands
        at += name == "env" and words[at : at + 1] == (Word("-"),)  # the same as `-i`
        while name in ("env", "time") and at < len(words) and "=" in words[at].text:
            assigned = (*assigned, words[at].text + "$" * (words[at].kind != "literal"))
            at += 1
        inner = list(words[at:])
        if name == "xargs":  # the words of its input come last
            inner = [*(inner or [Word("echo")]), OPEN]
        if not inner:
            self.parts.append(msgspec.structs.replace(part, words=(Word(name),), assigned=assigned))
            return here, here
        return self.simple(inner, part.text, assigned, wrappers)

    def script_argument(self, part: WordPart) -> bool:
        """Read the script in the arguments of a shell; return True if the parts are all that it
        runs.
        """
        texts = [word.text for word in part.words if word.kind == "literal"]
        known = [self.read_script(text) for text in texts[1:] if re.search(r"[\s;&|]", text)]
        is_script = len(texts) == len(part.words) == 3 and texts[1] in _SCRIPT_OPTIONS
        if part.program not in ("bash", "sh") or not is_script or not any(known):
            return False
        changed = part.assigned or not UNPRIVILEGED.issuperset(part.wrappers)
        return not changed and (part.program == "bash" or not _BASH_ONLY.search(texts[2]))

    def read_script(self, source: str) -> bool:
        """Read a script in an argument with the same parser; return False if it has a problem."""
        if self.level >= SCRIPTS_MAX:
            self.fail("it has too many scripts inside each other")
            return False
        inner = _Reader(source, self.folders, self.home, self.level + 1)
        inner.run()
        self.parts += inner.parts
        self.problem = self.problem or inner.problem
        return not inner.problem

    def found_commands(self, part: WordPart) -> None:
        """Note the commands after `-exec` as parts; the found file is a glob or an open word."""
        here, words = self.folders, part.words
        options = [at for at, word in enumerate(words) if word.text[:1] in ("-", "(", "!")]
        starts = words[1 : options[0]] if options else words[1:]
        found = OPEN
        if len(starts) == 1 and starts[0].kind == "literal":
            found = Word(f"{starts[0].text.rstrip('/')}/**", "glob")
        for option, command in exec_commands(words)[1]:
            is_beside = option in ("-execdir", "-okdir")  # it runs beside the found file
            self.folders = () if is_beside else here
            named = [found if one.text == "{}" else _with_found(one) for one in command]
            self.simple(named, part.text, (), (*part.wrappers, "find"))
            self.folders = here

    def moved(self, part: WordPart) -> _Outcome:
        """Return the folders after `cd`. A folder that is not known leaves no folders."""
        arguments = list(part.words[1:])
        while arguments and arguments[0].text in ("-P", "-L", "--", "-e"):
            arguments.pop(0)
        target = arguments[0] if arguments else Word(self.home)
        is_known = part.program == "cd" and len(arguments) <= 1 and not part.wrappers
        if not is_known or target.kind != "literal" or target.text in ("-", ""):
            return (), self.folders
        starts = ("/",) if target.text.startswith("/") else self.folders
        return tuple(join_path(folder, target.text) for folder in starts), self.folders
