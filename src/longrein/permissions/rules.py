"""One rule, `Tool` or `Tool(spec)`: read, checked for sense."""

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from longrein.permissions.plain import META

READING = ("Read", "Grep", "Glob")
"""Tools that a `Read` rule speaks for."""
WRITING = ("Edit", "Write", "MultiEdit", "NotebookEdit")
"""Tools that an `Edit` rule speaks for."""

_NAME = r"\*|[A-Za-z][\w.-]*\*?"


class Rule(msgspec.Struct, frozen=True):
    """A rule taken apart."""

    text: str
    """As written."""
    tool: str
    """Tool it speaks of; may end in `*`."""
    spec: str = ""
    """Between the brackets; '' for all calls of the tool."""
    problem: str = ""
    """Why it makes no sense; such an allow rule allows nothing, such a deny rule denies the tool altogether."""


@lru_cache(maxsize=2048)
def parse_rule(text: str) -> Rule:
    """`Tool` or `Tool(spec)`. Never raises: a rule without sense carries its problem."""
    name, bracket, rest = text.strip().partition("(")
    name, spec = name.strip(), rest.rstrip().removesuffix(")").strip()
    return Rule(text, name, spec, _problem(name, bracket, rest.rstrip(), spec))


def check_rule(text: str, kind: str = "") -> str | None:
    """What is wrong with a rule, in words that follow its text; None when nothing is.

    With `kind` "allow" also what would keep it from ever allowing anything.
    """
    rule = parse_rule(text)
    if rule.problem:
        return rule.problem
    if kind == "allow" and rule.tool == "Bash":
        bad = next((c for c in rule.spec if c in META and c != "*"), "")
        if bad:
            shown = "a line break" if bad == "\n" else f"`{bad}`"
            return f"an allow rule covers plain words only, so it cannot hold {shown}"
    return None


def rule_tool(text: str) -> str:
    """The tool that a rule speaks of."""
    return parse_rule(text).tool


def _problem(name: str, bracket: str, rest: str, spec: str) -> str:
    web, paths = name == "WebFetch", name in READING + WRITING
    checks = (
        (not name, "no tool is named: write Tool or Tool(what)"),
        (not re.compile(_NAME).fullmatch(name), f"{name!r} is not a tool name: write Tool or Tool(what)"),
        (bracket and not rest.endswith(")"), "the closing bracket is missing"),
        (bracket and not spec, f"nothing stands between the brackets: write {name} for all its calls"),
        (paths and spec.startswith("!"), "a path that starts with ! cannot be excepted: name what is meant"),
        (web and bracket and not spec.startswith("domain:"), "write WebFetch(domain:example.com)"),
        (web and spec == "domain:", "no domain is named: write WebFetch(domain:example.com)"),
    )
    return next((problem for wrong, problem in checks if wrong), "")


class Glob:
    """Pieces of text with anything between them, found from left to right, in time linear in the text."""

    def __init__(self, pieces: list[str], *, open_end: bool, loose: bool) -> None:
        """`open_end`: after the last piece a blank and anything may follow. `loose`: case does not count."""
        self._first, *self._rest = [_folded(piece) if loose else piece for piece in pieces]
        self._open_end, self._loose = open_end, loose

    def match(self, text: str, starts: Iterable[int] = (0,)) -> bool:
        """Whether `text`, from one of `starts` to its end, is what the pattern means."""
        text = _folded(text) if self._loose else text
        return any(self._matches(text, start) for start in starts)

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
    """`text` without case, as long as it was."""
    if text.isascii():
        return text.lower()
    return "".join(fold if len(fold := c.casefold()) == 1 else c for c in text)


@lru_cache(maxsize=1024)
def glob(pattern: str, loose: bool) -> Glob:
    """`*` stands for anything; ` *` or `:*` at the end for nothing or for a blank and anything.

    `loose`, for deny and ask: case and the width of blanks do not count, and more words may always follow.
    """
    pattern = pattern.removesuffix(":*") + " *" if pattern.endswith(":*") else pattern
    if loose:
        pattern = " ".join(pattern.split())
    head = pattern.removesuffix(" *")
    open_end = head != pattern or (loose and not pattern.endswith("*"))
    return Glob(re.split(r"\*+", head), open_end=open_end, loose=loose)


def names(rule: Rule, tool: str) -> bool:
    """Whether a rule's tool is `tool`: equal, a `*` at its end, or an MCP server's name for its tools."""
    if rule.tool.endswith("*"):
        return tool.startswith(rule.tool[:-1])
    return rule.tool == tool or (rule.tool.startswith("mcp__") and tool.startswith(rule.tool + "__"))
