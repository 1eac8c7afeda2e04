"""Permission rules, `Tool` or `Tool(spec)`: parsing, validation, and the patterns for text and
paths.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

import msgspec

from longrein.permissions.types import Rules

FILE_RULES = ("Read", "Edit", "Write")
"""Rules whose spec is a path that holds for every way to read or change the file."""
PATH_RULES = (*FILE_RULES, "Grep", "Glob", "MultiEdit", "NotebookEdit")
"""Rules whose spec is a path."""

_NAME = r"\*|[A-Za-z][\w.-]*\*?"


class Rule(msgspec.Struct, frozen=True):
    """Parsed rule."""

    text: str
    """The rule as written."""
    tool: str
    """Tool name; may end in `*`."""
    spec: str = ""
    """Text between the brackets; '' for all calls of the tool."""
    problem: str = ""
    """Reason for an invalid rule. An invalid allow rule allows nothing; an invalid deny rule
    denies the whole tool.
    """


@lru_cache(maxsize=2048)
def parse_rule(text: str) -> Rule:
    """Parse `Tool` or `Tool(spec)`. Never raises: an invalid rule has `problem` set."""
    name, bracket, rest = text.strip().partition("(")
    name, spec = name.strip(), rest.rstrip().removesuffix(")").strip()
    return Rule(text, name, spec, _problem(name, bracket, rest.rstrip(), spec))


def check_rule(text: str, kind: str = "") -> str | None:
    """Return the problem of a rule, in words that follow its text; None for a valid rule.

    With `kind` "allow", a rule that can never allow anything is a problem too.
    """
    rule = parse_rule(text)
    joined = re.search(r"[;&|\n]", rule.spec) if kind == "allow" and rule.tool == "Bash" else None
    if joined and not rule.problem:
        shown = "a line break" if joined[0] == "\n" else f"`{joined[0]}`"
        return f"a rule covers one command of a line, so it cannot hold {shown}"
    return rule.problem or None


def rule_tool(text: str) -> str:
    """Return the tool name of a rule."""
    return parse_rule(text).tool


def _problem(name: str, bracket: str, rest: str, spec: str) -> str:
    web, paths = name == "WebFetch", name in PATH_RULES
    checks = (
        (not name, "no tool is named: write Tool or Tool(what)"),
        (
            not re.compile(_NAME).fullmatch(name),
            f"{name!r} is not a tool name: write Tool or Tool(what)",
        ),
        (bracket and not rest.endswith(")"), "the closing bracket is missing"),
        (
            bracket and not spec,
            f"nothing stands between the brackets: write {name} for all its calls",
        ),
        (
            paths and spec.startswith("!"),
            "a path that starts with ! cannot be excepted: name what is meant",
        ),
        (web and bracket and not spec.startswith("domain:"), "write WebFetch(domain:example.com)"),
        (web and spec == "domain:", "no domain is named: write WebFetch(domain:example.com)"),
    )
    return next((problem for wrong, problem in checks if wrong), "")


class Glob:
    """Pattern of text pieces with anything between them, matched in time linear in the text."""

    def __init__(self, pieces: list[str], *, open_end: bool, loose: bool) -> None:
        """`open_end`: a blank and anything may follow the last piece. `loose`: ignore case."""
        self._first, *self._rest = [_folded(piece) if loose else piece for piece in pieces]
        self._open_end, self._loose = open_end, loose

    def match(self, text: str, starts: Iterable[int] = (0,)) -> bool:
        """Return True if the pattern matches `text` from one of `starts` to the end."""
        text = _folded(text) if self._loose else text
        return any(self._matches(text, start) for start in starts)

    def search(self, text: str, starts: frozenset[int]) -> bool:
        """Return True as `match` does; fast for many starts."""
        text = _folded(text) if self._loose else text
        at = text.find(self._first)
        while at >= 0:
            if at in starts and self._matches(text, at):
                return True
            at = text.find(self._first, at + 1)
        return False

    def _matches(self, text: str, start: int) -> bool:
        if not text.startswith(self._first, start):
            return False
        at = start + len(self._first)
        if not self._rest:
            return self._ends(text, at)
        for piece in self._rest[:-1]:
            found = text.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        return self._last(text, at)

    def _last(self, text: str, at: int) -> bool:
        last = self._rest[-1]
        if at <= len(text) - len(last) and text.endswith(last):
            return True
        found = text.find(last, at) if self._open_end else -1
        while found >= 0:
            if self._ends(text, found + len(last)):
                return True
            found = text.find(last, found + 1)
        return False

    def _ends(self, text: str, at: int) -> bool:
        return at == len(text) or (self._open_end and text[at].isspace())


def _folded(text: str) -> str:
    """Fold case without changing the length."""
    if text.isascii():
        return text.lower()
    return "".join(fold if len(fold := c.casefold()) == 1 else c for c in text)


@lru_cache(maxsize=1024)
def glob(pattern: str, loose: bool) -> Glob:
    """Compile a pattern: `*` matches anything; ` *` or `:*` at the end matches nothing, or a blank
    and anything.

    `loose`, for deny and ask: ignores case and the width of blanks, and more words may always
    follow.
    """
    pattern = pattern.removesuffix(":*") + " *" if pattern.endswith(":*") else pattern
    if loose:
        pattern = " ".join(pattern.split())
    head = pattern.removesuffix(" *")
    open_end = head != pattern or (loose and not pattern.endswith("*"))
    return Glob(re.split(r"\*+", head), open_end=open_end, loose=loose)


def names(rule: Rule, tool: str) -> bool:
    """Return True if a rule's tool matches `tool`: equal, by a `*` at the end, or by the name of
    its MCP server.
    """
    if rule.tool.endswith("*"):
        return tool.startswith(rule.tool[:-1])
    return rule.tool == tool or (
        rule.tool.startswith("mcp__") and tool.startswith(rule.tool + "__")
    )


def with_tool_names(rules: Rules, aliases: Mapping[str, str]) -> Rules:
    """Return `rules` with the tool's own name for an alias: `Agent(explore)` for `Task(explore)`.

    `aliases`: alias in lower case -> name of the tool.
    """
    changed = {
        kind: tuple(_with_tool_name(text, aliases) for text in getattr(rules, kind))
        for kind in ("allow", "ask", "deny")
    }
    return msgspec.structs.replace(rules, **changed)


def _with_tool_name(text: str, aliases: Mapping[str, str]) -> str:
    written, bracket, rest = text.strip().partition("(")
    name = aliases.get(written.strip().lower(), "")
    return f"{name}{bracket}{rest}" if name else text


def denies_every_call(deny: Iterable[str], tool: str, rule_name: str = "") -> bool:
    """Return True if a deny rule forbids every call of a tool, so that no model need know of it.

    `rule_name`: the rule that covers the paths of the tool too; '' for none.
    """
    for rule in map(parse_rule, deny):
        is_whole = rule.problem or not rule.spec or (rule.tool, rule.spec) == ("Bash", "*")
        is_about = names(rule, tool) or (rule.tool == rule_name and not rule.problem)
        if is_whole and is_about:
            return True
    return False


# --- Path patterns: gitignore syntax over absolute paths ------------------------------------------
#
# `//abs` starts at the root of the file system, `~/x` at home, `/x` at the folder of the rules, and
# anything else at the folder where the session started. A pattern without a slash matches a name at
# any depth below that folder.


_STAR = "*"
"""Matches any characters of a name."""


def folded(path: str) -> str:
    """Fold case and Unicode form, so that two spellings of one file compare equal."""
    return path.lower() if path.isascii() else normalize("NFC", path.casefold())


class PathPattern:
    """Pattern over absolute paths, matched name by name in time linear in the path for any
    number of `**`.
    """

    def __init__(self, root: str, names: list[re.Pattern[str] | None], *, below: bool) -> None:
        """`root` is a folder; `names` follow below it, None for any number of names (`**`).

        Everything below a match is matched, too; with `below`, only that.
        """
        self._root = root.rstrip("/")
        self._names = names
        self._below = below

    def match(self, path: str) -> bool:
        """Return True if the pattern matches `path`."""
        if path == self._root:
            return not self._names and not self._below
        if not path.startswith(self._root + "/"):
            return False
        names = path[len(self._root) + 1 :].split("/")
        if (
            self._names
            and (last := self._names[-1]) is not None
            and not any(map(last.fullmatch, names))
        ):
            return False  # most paths end here, without the states
        states = self._open({0})
        for name in names:
            if len(self._names) in states:  # `name` is below a match; it is empty for a final `/`
                return bool(name) or not self._below
            states = self._open({after for state in states for after in self._after(state, name)})
        return len(self._names) in states and not self._below

    def _after(self, state: int, name: str) -> tuple[int, ...]:
        wanted = self._names[state]
        if wanted is None:
            return (state,)
        return (state + 1,) if wanted.fullmatch(name) else ()

    def _open(self, states: set[int]) -> set[int]:
        """Add the states after each `**`, which may match nothing."""
        for at, wanted in enumerate(self._names):
            if wanted is None and at in states:
                states.add(at + 1)
        return states


def name_pattern(text: str, loose: bool) -> re.Pattern[str]:
    """Compile one name of a pattern. The atomic groups around what follows a `*` keep matching
    linear.
    """
    pieces = [""]
    i = 0
    while i < len(text):
        piece, i = _piece(text, i, loose)
        if piece == _STAR:
            pieces.append("")
        else:
            pieces[-1] += piece
    first, *rest = pieces
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    return re.compile(f"(?s:{first}{middle}{'.*' + rest[-1] if rest else ''})")


@lru_cache(maxsize=1024)
def path_pattern(pattern: str, base: str, home: str, loose: bool) -> PathPattern | None:
    """Compile a path pattern; None when its root (home or base) is unknown.

    `loose`, for deny and ask: ignores case (match `folded` paths), and `a/**` also matches `a`.
    """
    root, rest, anchored = rooted(pattern, base, home)
    if root is None:
        return None
    folder_only = rest.endswith("/") and not loose
    rest = rest.rstrip("/")
    if loose:
        root, rest = folded(root), folded(rest)
        rest = rest.removesuffix("/**") or "**"
    if not rest:
        return PathPattern(root, [], below=folder_only)
    *names, last = rest.split("/")
    parts = [None if name == "**" else name_pattern(name, loose) for name in names]
    deep = [] if anchored or names else [None]
    return PathPattern(root, [*deep, *parts, name_pattern(last, loose)], below=folder_only)


def rooted(pattern: str, base: str, home: str) -> tuple[str | None, str, bool]:
    """Return (root folder, rest of the pattern, whether the rest starts exactly there)."""
    pattern = pattern.strip()
    if pattern.startswith("//"):
        return "/", pattern.lstrip("/"), True
    if pattern == "~" or pattern.startswith("~/"):
        return home or None, pattern[2:], True
    if pattern.startswith("/"):
        return base or None, pattern[1:], True
    anchored, folder = False, base
    while pattern.startswith(("./", "../")) or pattern in (".", ".."):
        first, _, pattern = pattern.partition("/")
        folder = folder.rstrip("/").rpartition("/")[0] if first == ".." else folder
        anchored = True
    return (folder or "/") if base else None, pattern, anchored


def _piece(pattern: str, i: int, loose: bool) -> tuple[str, int]:
    """Return one character or class of a pattern as a regex, and the index of the next.

    A class without members, such as `[6-0]`, is plain text; for `loose` it is any character, since
    folding may have turned its range.
    """
    c = pattern[i]
    if c == "*":
        return _STAR, i + len(pattern[i:]) - len(pattern[i:].lstrip("*"))
    if c == "?":
        return "[^/]", i + 1
    if c == "\\" and i + 1 < len(pattern):
        return re.escape(pattern[i + 1]), i + 2
    end = pattern.find("]", i + 2) if c == "[" else -1
    if end > 0:
        inner = pattern[i + 1 : end]
        sign = "^" if inner[0] in "!^" else ""
        inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", inner[len(sign) :]).replace("--", r"-\-")
        if _is_class(f"[{sign}{inner}]"):
            return f"(?!/)[{sign}{inner}]", end + 1
        if loose:
            return "[^/]", end + 1
    return re.escape(c), i + 1


def _is_class(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


# --- Files that programs obey ---------------------------------------------------------------------
#
# Files that programs run or obey later: who writes one acts outside the sandbox at a later time.
#
# One table for all: file tools ask before they change a protected one, commands in the sandbox
# cannot make or change it, and new ones of the others are reported after the command that made
# them.


class ObeyedFile(NamedTuple):
    """A file or folder, and what obeys it. A folder stands for all in it."""

    name: str
    """One name or two consecutive ones (`.github/workflows`), at any depth; `*x` for an ending."""
    by: str
    """Program that runs or obeys it."""


def _rows(by: str, names: str) -> tuple[ObeyedFile, ...]:
    return tuple(ObeyedFile(name, by) for name in names.split())


PROTECTED = (
    *_rows("git", ".git .githooks .gitconfig .gitmodules .gitattributes .config/git"),
    *_rows("git hooks", ".husky .lefthook lefthook.yml .lefthook.yml lefthook.yaml .lefthook.yaml"),
    *_rows("git hooks", ".pre-commit-config.yaml .pre-commit-config.yml"),
    *_rows("ssh and gpg", ".ssh .gnupg"),
    *_rows("development containers", ".devcontainer .devcontainer.json"),
    *_rows("VS Code and its kin", ".vscode *.code-workspace"),
    *_rows("other editors", ".idea .zed .fleet .exrc .nvimrc .nvim.lua .vimrc .dir-locals.el"),
    *_rows("longrein", ".longrein .config/longrein"),
    *_rows("Claude Code", ".claude .mcp.json"),
    *_rows("other coding agents", ".codex .cursor .gemini .opencode opencode.json opencode.jsonc"),
    *_rows("other coding agents", ".kimi .vibe .crush crush.json .windsurf .kiro .qwen .amazonq"),
    *_rows("other coding agents", ".agents/agents .agents/skills .agents/commands .agents/plugins"),
    *_rows("other coding agents", ".github/skills .pi/skills .goose/skills .continue .roo .cline"),
    *_rows("GitHub and its kin", ".github/workflows .github/actions .gitea/workflows"),
    *_rows("GitHub and its kin", ".forgejo/workflows"),
    *_rows("other CI services", ".gitlab-ci.yml .circleci .travis.yml .buildkite .cirrus.yml"),
    *_rows("other CI services", "azure-pipelines.yml bitbucket-pipelines.yml Jenkinsfile"),
    *_rows(
        "other CI services", ".drone.yml .woodpecker .woodpecker.yml appveyor.yml .appveyor.yml"
    ),
    *_rows("other CI services", ".teamcity .semaphore cloudbuild.yaml"),
    *_rows("direnv, mise and debuggers", ".envrc .mise.toml mise.toml .lldbinit .gdbinit"),
    *_rows("cargo", ".cargo/config.toml .cargo/config"),
    *_rows("package managers", ".npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs"),
    *_rows("ripgrep", ".ripgreprc"),
    *_rows("Python", "sitecustomize.py"),
    *_rows("shells", ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile"),
    *_rows("shells", ".inputrc .zshrc .zprofile .zshenv .zlogin .zlogout .kshrc .cshrc .tcshrc"),
    *_rows("shells", ".login .logout .config/fish"),
)
"""Protected files. The sources are the manuals of the programs."""
REPORTED = (
    *_rows("coding agents", "AGENTS.md CLAUDE.md GEMINI.md QWEN.md .cursorrules .windsurfrules"),
    *_rows("coding agents", ".clinerules .github/copilot-instructions.md"),
    *_rows("git, in its folder", ".git"),
)
"""Files that a command may make in folders of the project; new ones are told to the model and the
user. A `.git` is one of them below the first folder.
"""
INSTALLED_PROGRAMS = frozenset(
    (folder, name)
    for folder, name in (
        ("node_modules", ".bin"),
        (".venv", "bin"),
        ("venv", "bin"),
        (".venv", "scripts"),
        ("venv", "scripts"),
    )
)
"""Folders, as pairs of consecutive names, into which package managers install programs."""
UNPROTECTED_SUBFOLDERS = {".claude": frozenset(("worktrees",))}
"""Unprotected folders inside protected ones."""
_SINGLE = [one.name for one in PROTECTED if "/" not in one.name]
PROTECTED_NAMES = frozenset(name.lower() for name in _SINGLE if not name.startswith("*"))
"""Protected files and folders, in lower case; a folder protects everything below it."""
PROTECTED_ENDINGS = tuple(name[1:] for name in _SINGLE if name.startswith("*"))
"""Endings of the names of protected files."""
NAMED_PAIRS = frozenset(
    (one.name.partition("/")[0], one.name.partition("/")[2]) for one in PROTECTED if "/" in one.name
)
"""Protected pairs of consecutive names."""
PROTECTED_PAIRS = INSTALLED_PROGRAMS | NAMED_PAIRS
"""Protected pairs of consecutive names, with the folders of installed programs."""


def obeyed_by(path: str) -> str:
    """Return what obeys a file that is only reported; '' for other files."""
    above, _, name = path.rpartition("/")
    pair = f"{above.rpartition('/')[2]}/{name}"
    return next((one.by for one in REPORTED if one.name in (name, pair)), "")
