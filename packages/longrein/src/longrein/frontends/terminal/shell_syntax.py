"""Colours of shell commands."""

from functools import lru_cache
from typing import Any

from longrein.frontends.terminal.event_lines import Line, Span

CHARS_MAX = 20_000
"""A longer text has no colours."""
STYLES = {
    "Comment": "dim",
    "Literal.String": "ok",
    "Keyword": "bold",
    "Name.Builtin": "bold",
    "Name.Variable": "run",
    "Literal.String.Interpol": "run",
    "Operator": "warn",
    "Punctuation": "warn",
}
"""Kind of a token of pygments -> style word."""


@lru_cache(maxsize=256)
def shell_lines(text: str) -> tuple[Line, ...]:
    """Lines of an escaped shell text; plain where the colours would change a character."""
    rows: list[list[Span]] = [[]]
    for kind, part in _tokens(text):
        style = _style(str(kind).removeprefix("Token."))
        first, *more = part.split("\n")
        rows[-1].append((style, first))
        rows += [[(style, one)] for one in more]
    return tuple(tuple(span for span in row if span[1]) for row in rows)


def _tokens(text: str) -> list[tuple[Any, str]]:
    from pygments.lexers.shell import BashLexer  # type: ignore[import-untyped]

    if len(text) > CHARS_MAX:
        return [("", text)]
    found = list(BashLexer(stripnl=False, ensurenl=False).get_tokens(text))
    return found if "".join(part for _, part in found) == text else [("", text)]


def _style(kind: str) -> str:
    """Style of a kind of token, or of the wider kind that it belongs to."""
    while kind:
        if kind in STYLES:
            return STYLES[kind]
        kind = kind.rpartition(".")[0]
    return ""
