"""`ToolSearch`: names, descriptions and schemas of deferred tools, as a result. Simple and the same each time."""

import re
from collections.abc import Sequence

import msgspec

from longrein.context import by_server
from longrein.events import ToolSpec
from longrein.tools.nearest import nearest
from longrein.tools.port import Hands, Outcome, Tool
from longrein.tools.registry import make_tool

LIMIT_MAX = 20
"""Tools of one answer."""
ANSWER_CHARS_MAX = 24_000
"""Of one answer; what comes after is only named. The first one is always whole."""
CATALOGUE_CHARS_MAX = 3_000
"""Names that stand in the description of `ToolSearch`: about a thousand tokens."""
WHOLE_NAME = 1_000
NAME_WORD, NAME_BEGINNING, NAME_PIECE = 12, 6, 4
DESCRIBED_WORD, DESCRIBED_PIECE, ARGUMENT_WORD = 3, 1, 2
"""What a word of the query is worth, by where it is found."""
EMPTY_WORDS = frozenset("a an and for from in mcp of on or the this to tool tools with".split())  # noqa: SIM905
"""Words of a query that say nothing."""


async def ToolSearch(hands: Hands, query: str, limit: int = 5) -> Outcome:  # noqa: ARG001 - made anew for each session
    """Look up tools that are not listed here, with the schemas of their arguments; then call them with CallTool.

    query: What it should do, in a few words, or full names separated by commas.
    limit: How many tools at most.
    """
    raise AssertionError("tool_search makes the one that runs")


SEARCH_TOOL = make_tool(ToolSearch, access="none").spec
"""What the model is told of it, before the catalogue."""


def tool_search(specs: Sequence[ToolSpec]) -> Tool:
    """`ToolSearch` over `specs`."""

    async def ToolSearch(hands: Hands, query: str, limit: int = 5) -> Outcome:  # noqa: ARG001
        return Outcome.of(answer(query, specs, limit))

    made = make_tool(ToolSearch, access="none", together=True)
    return msgspec.structs.replace(made, spec=SEARCH_TOOL)


def catalogue(specs: Sequence[ToolSpec]) -> str:
    """The names of `specs` by server within a budget, shared evenly; a server's prefix stands once."""
    servers = by_server(specs)
    lines, left = ["They are, by server (full name mcp__SERVER__TOOL):"], CATALOGUE_CHARS_MAX
    for n, (server, found) in enumerate(servers.items()):
        if left < 40:
            lines.append(f"- and {len(servers) - n} more servers")
            break
        line = _row(server, found, left // (len(servers) - n))
        left -= len(line) + 1
        lines.append(line)
    return "\n".join(lines)


def _row(server: str, specs: Sequence[ToolSpec], chars: int) -> str:
    names = [spec.name.removeprefix(f"mcp__{server}__") for spec in specs]
    row = f"- {server or 'others (full names)'}: "
    shown = len(names)
    while shown and len(row) + len(_joined(names, shown)) > chars:
        shown -= 1
    return row + (_joined(names, shown) if shown else f"{len(names)} tools")


def _joined(names: Sequence[str], shown: int) -> str:
    rest = f", and {len(names) - shown} more" if shown < len(names) else ""
    return ", ".join(names[:shown]) + rest


# --- searching ---------------------------------------------------------------------------------------------------


def answer(query: str, specs: Sequence[ToolSpec], limit: int) -> str:
    """What the model is given: the best matches whole, further ones by name."""
    found = ranked(query, specs)
    if not found:
        return _nothing(query, specs)
    best, pages, size = found[: max(1, min(limit, LIMIT_MAX))], list[str](), 0
    for spec in best:
        page = _page(spec)
        size += len(page)
        if pages and size > ANSWER_CHARS_MAX:
            break
        pages.append(page)
    also = [spec.name for spec in found[len(pages) : len(pages) + LIMIT_MAX]]
    more = f"\n\nLess likely: {', '.join(also)}" if also else ""
    head = f"{len(found)} of {len(specs)} tools match; call one with CallTool(name, args)."
    return "\n\n".join([head, *pages]) + more


def _page(spec: ToolSpec) -> str:
    return f"## {spec.name}\n{spec.description}\nargs: {msgspec.json.encode(spec.schema).decode()}"


def _nothing(query: str, specs: Sequence[ToolSpec]) -> str:
    near = nearest(query, [spec.name for spec in specs])
    hint = f" Did you mean {near}?" if near else ""
    servers = ", ".join(f"{server or 'others'} ({len(found)})" for server, found in by_server(specs).items())
    return f"None of {len(specs)} tools matches {query[:80]!r}.{hint} They come from: {servers}."


def ranked(query: str, specs: Sequence[ToolSpec]) -> list[ToolSpec]:
    """The `specs` that match, best first; ties in their own order."""
    whole = {name.lower() for name in re.split(r"[\s,]+", query.removeprefix("select:")) if name}
    words = [word for word in _words(query) if word not in EMPTY_WORDS] or _words(query)
    scored = [(_score(whole, words, spec), -at) for at, spec in enumerate(specs)]
    return [specs[-at] for score, at in sorted(scored, reverse=True) if score]


def _score(whole: set[str], words: Sequence[str], spec: ToolSpec) -> int:
    name, described = spec.name.lower(), spec.description.lower()
    exact = name in whole or name.rpartition("__")[2] in whole
    named, told = _words(spec.name), frozenset(_words(described))
    arguments = frozenset(word for key in spec.schema.get("properties", ()) for word in _words(key))
    score = WHOLE_NAME * exact
    for word in words:
        telling = len(word) > 2 or not word.isascii()
        if word in named:
            score += NAME_WORD
        elif telling and any(part.startswith(word) or (len(part) > 2 and word.startswith(part)) for part in named):
            score += NAME_BEGINNING
        elif telling and word in name:
            score += NAME_PIECE
        score += DESCRIBED_WORD if word in told else DESCRIBED_PIECE * (telling and word in described)
        score += ARGUMENT_WORD * (word in arguments)
    return score


def _words(text: str) -> list[str]:
    """Words in small letters; `createIssue` and `create_issue` are two."""
    return re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())
