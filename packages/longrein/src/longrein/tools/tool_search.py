"""Deferred tools: `ToolSearch` finds them and `CallTool` calls them, so their schemas cost nothing
until used.

`offer_tools` decides which tools are listed in each request and which are deferred: of longrein's
own those that few requests use, of others all of them where they would fill the window.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from longrein.tools.arguments import nearest, quote_value
from longrein.tools.registry import make_tool
from longrein.tools.tool_port import Outcome, Tool, ToolContext
from longrein_context import spec_tokens, specs_by_server
from longrein_context.events import CALL_TOOL, ToolSpec

LIMIT_MAX = 20
"""Maximum number of tools in one answer."""
ANSWER_CHARS_MAX = 24_000
"""Maximum length of one answer; further tools are only named. The first tool is always complete."""
CATALOGUE_CHARS_MAX = 3_000
"""Maximum length of the names in the description of `ToolSearch`: about a thousand tokens."""
EXACT_NAME_SCORE = 1_000
NAME_WORD = 12
NAME_BEGINNING = 6
NAME_PIECE = 4
DESCRIBED_WORD = 3
DESCRIBED_PIECE = 1
ARGUMENT_WORD = 2
"""Scores of a word of the query, by where it is found."""
EMPTY_WORDS = frozenset(
    (
        "a",
        "an",
        "and",
        "for",
        "from",
        "in",
        "mcp",
        "of",
        "on",
        "or",
        "the",
        "this",
        "to",
        "tool",
        "tools",
        "with",
    )
)
"""Words of a query that are ignored."""


def tool_search(specs: Sequence[ToolSpec]) -> Tool:
    """Return a `ToolSearch` over `specs`; its description does not name them."""

    async def ToolSearch(context: ToolContext, query: str, limit: int = 5) -> Outcome:  # noqa: ARG001
        """Look up tools that are not listed here. CallTool calls them, without a search where the
        arguments are clear.

        query: What it should do, or full names.
        """
        return Outcome.of(search_answer(query, specs, limit))

    return make_tool(
        ToolSearch, access="none", together=True, kind="search", quiet=True, key_argument="query"
    )


def catalogue(specs: Sequence[ToolSpec]) -> str:
    """List the names of `specs` by server, within a budget shared evenly by the servers."""
    servers = specs_by_server(specs)
    lines, left = ["They are, by server (full name mcp__SERVER__TOOL):"], CATALOGUE_CHARS_MAX
    for n, (server, found) in enumerate(servers.items()):
        if left < 40:
            lines.append(f"- and {len(servers) - n} more servers")
            break
        line = _server_row(server, found, left // (len(servers) - n))
        left -= len(line) + 1
        lines.append(line)
    return "\n".join(lines)


def _server_row(server: str, specs: Sequence[ToolSpec], chars: int) -> str:
    names = [spec.name.removeprefix(f"mcp__{server}__") for spec in specs]
    row = f"- {server or 'others (full names)'}: "
    shown = len(names)
    while shown and len(row) + len(_joined(names, shown)) > chars:
        shown -= 1
    return row + (_joined(names, shown) if shown else f"{len(names)} tools")


def _joined(names: Sequence[str], shown: int) -> str:
    rest = f", and {len(names) - shown} more" if shown < len(names) else ""
    return ", ".join(names[:shown]) + rest


# --- Search ---------------------------------------------------------------------------------------


def search_answer(query: str, specs: Sequence[ToolSpec], limit: int) -> str:
    """Return the result of a search: the best matches with their schemas, further ones by name."""
    found = rank_tools(query, specs)
    if not found:
        return _no_match_message(query, specs)
    best = found[: max(1, min(limit, LIMIT_MAX))]
    pages = list[str]()
    size = 0
    for spec in best:
        page = _tool_page(spec)
        size += len(page)
        if pages and size > ANSWER_CHARS_MAX:
            break
        pages.append(page)
    also = [spec.name for spec in found[len(pages) : len(pages) + LIMIT_MAX]]
    more = f"\n\nLess likely: {', '.join(also)}" if also else ""
    head = f"{len(found)} of {len(specs)} tools match; call one with CallTool(name, args)."
    return "\n\n".join([head, *pages]) + more


def _tool_page(spec: ToolSpec) -> str:
    return f"## {spec.name}\n{spec.description}\nargs: {msgspec.json.encode(spec.schema).decode()}"


def _no_match_message(query: str, specs: Sequence[ToolSpec]) -> str:
    near = nearest(query, [spec.name for spec in specs])
    hint = f" Did you mean {near}?" if near else ""
    return (
        f"None of {len(specs)} tools matches {query[:80]!r}.{hint} They come from: "
        f"{server_counts(specs)}."
    )


def rank_tools(query: str, specs: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Return the matching `specs`, best first; ties keep their order."""
    whole = {name.lower() for name in re.split(r"[\s,]+", query.removeprefix("select:")) if name}
    words = [word for word in _words(query) if word not in EMPTY_WORDS] or _words(query)
    scored = [(_score(whole, words, spec), -at) for at, spec in enumerate(specs)]
    return [specs[-at] for score, at in sorted(scored, reverse=True) if score]


def _score(whole: set[str], words: Sequence[str], spec: ToolSpec) -> int:
    name, described = spec.name.lower(), spec.description.lower()
    exact = name in whole or name.rpartition("__")[2] in whole
    named, described_words = _words(spec.name), frozenset(_words(described))
    arguments = frozenset(word for key in spec.schema.get("properties", ()) for word in _words(key))
    score = EXACT_NAME_SCORE * exact
    for word in words:
        telling = len(word) > 2 or not word.isascii()
        if word in named:
            score += NAME_WORD
        elif telling and any(
            part.startswith(word) or (len(part) > 2 and word.startswith(part)) for part in named
        ):
            score += NAME_BEGINNING
        elif telling and word in name:
            score += NAME_PIECE
        score += (
            DESCRIBED_WORD
            if word in described_words
            else DESCRIBED_PIECE * (telling and word in described)
        )
        score += ARGUMENT_WORD * (word in arguments)
    return score


def _words(text: str) -> list[str]:
    """Split into lower-case words; `createIssue` and `create_issue` have two."""
    return re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())


# --- Listed and deferred tools --------------------------------------------------------------------
#
# The list of tools is part of the prefix: a change would lose the provider's cache of everything
# after it. So a tool that was looked up is called through `CallTool`, which `events.unwrapped`
# replaces by the call it names before the call is judged, run, logged or shown.


EDITORS = ("Edit", "apply_patch")
"""Tools that change parts of files, of which a model gets one."""
PAIR = ("ToolSearch", CALL_TOOL)
"""Names of the tools through which deferred ones are found and called."""
MCP_PREFIX = "mcp__"
"""Prefix of the names of tools from MCP servers."""


class DeferralPolicy(msgspec.Struct, frozen=True):
    """Limits up to which foreign tools are listed; beyond either limit all of them are deferred."""

    tokens_max: int = 2_000
    """Maximum size of their schemas together."""
    share_max: float = 0.10
    """Maximum share of the usable window."""


class ToolOffer(msgspec.Struct, frozen=True):
    """Tools offered to a model."""

    listed: tuple[ToolSpec, ...]
    """Tools with their schemas in each request."""
    deferred: tuple[ToolSpec, ...] = ()
    """Tools that are only named in the description of `ToolSearch`."""


def is_foreign(tool: Tool) -> bool:
    """Return True if `tool` comes from outside, so that the size of its schema is not known."""
    return tool.listing == "deferred" or tool.spec.name.startswith(MCP_PREFIX)


def may_be_deferred(tool: Tool) -> bool:
    """Return True if requests may leave out the schema of `tool`."""
    return tool.listing == "unlisted" or is_foreign(tool)


def named_tools(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Return `tools` that somebody has asked for by name: longrein's own are then all listed."""
    return tuple(
        msgspec.structs.replace(tool, listing="listed") if tool.listing == "unlisted" else tool
        for tool in tools
    )


def found_by_search(tools: Iterable[Tool]) -> list[ToolSpec]:
    """Return the specs of the tools that `ToolSearch` may find."""
    return [tool.spec for tool in tools if may_be_deferred(tool) and not tool.withdrawn]


def alias_names(tools: Iterable[Tool]) -> dict[str, str]:
    """Return alias -> name of the tool, for the aliases that are no name of another tool."""
    known = list(tools)
    found = {alias: tool.spec.name for tool in known for alias in tool.aliases}
    for tool in known:
        found.pop(tool.spec.name.lower(), None)
    return found


def _folded(name: str) -> str:
    """Return a name as agents that write it differently have it: `read_file`, `ReadFile`."""
    return name.lower().replace("_", "").replace("-", "")


def own_name(name: str, tools: Mapping[str, Tool]) -> str:
    """Return the name in `tools` that a model means by `name`: itself, the same in other case
    (`bash`), or that of the tool with such an alias (`read_file`, `ReadFile`); else `name`.
    """
    if name in tools:
        return name
    aliases = alias_names(tools.values())
    same = {_folded(other): own for other, own in aliases.items()}
    same |= {_folded(own): own for own in tools}
    return same.get(_folded(name), name)


_PASSAGE = re.compile(r"\{\{([\w, ]+):[ \n]?(.*?)\}\}", re.DOTALL)


def for_offered(text: str, names: Collection[str]) -> str:
    """Return `text` without the passages `{{Tool, Other: …}}` whose tools are not all in `names`.

    >>> for_offered("Find files{{Grep: , not with Grep}}.", ["Grep"])
    'Find files, not with Grep.'
    """
    return _PASSAGE.sub(
        lambda found: found[2] if names and set(found[1].split(", ")) <= {*names} else "", text
    )


SMALL_TOOLS: Mapping[str, Sequence[str]] = {
    "Read": ("offset", "limit"),
    "Write": (),
    "Edit": ("replace_all",),
    "apply_patch": (),
    "Bash": ("run_in_background",),
    "Grep": ("path", "glob"),
    "Glob": ("path",),
}
"""Tools that the profile `small` lists -> their optional arguments that it tells."""


def _small_spec(spec: ToolSpec) -> ToolSpec:
    """Return a spec of one line, without descriptions of arguments."""
    known = spec.schema["properties"]
    names = (*spec.schema["required"], *SMALL_TOOLS[spec.name])
    properties = {name: {"type": known[name]["type"]} for name in names}
    line = re.split(r"(?<=[\w)])\. ", spec.description.replace("\n", " "), maxsplit=1)[0]
    schema = {"type": "object", "properties": properties, "required": spec.schema["required"]}
    return msgspec.structs.replace(spec, description=line.rstrip(".") + ".", schema=schema)


def offer_tools(
    tools: Iterable[Tool],
    usable_tokens: int,
    options: DeferralPolicy | None = None,
    *,
    search: bool = False,
    patches: bool = False,
    small: Collection[str] = (),
) -> ToolOffer:
    """Decide which of `tools` to list and which to defer, for a usable window of `usable_tokens`.
    Deterministic.

    Of two tools with one name the later one is used; withdrawn ones are left out. With `search`,
    `ToolSearch` and `CallTool` are always listed: more tools may come later. With `patches`,
    `apply_patch` stands in place of `Edit`; a call of the other one is run all the same, as after a
    change of the model. `small`: names of tools of which only `SMALL_TOOLS` are listed, in a line
    each.
    """
    options = options or DeferralPolicy()
    found = {tool.spec.name: tool for tool in tools if not tool.withdrawn}
    wanted, other = EDITORS[::-1] if patches else EDITORS
    if wanted in found:
        found.pop(other, None)
    every = [tool for name, tool in found.items() if name not in PAIR]
    unlisted = tuple(
        tool.spec
        for tool in every
        if tool.listing == "unlisted"
        or (tool.spec.name in small and tool.spec.name not in SMALL_TOOLS)
    )
    foreign = tuple(tool.spec for tool in every if is_foreign(tool) and tool.listing != "always")
    tokens_max = min(options.tokens_max, options.share_max * usable_tokens)
    if sum(map(spec_tokens, foreign)) <= tokens_max:
        foreign = ()
    deferred = (*unlisted, *foreign)
    late = {spec.name for spec in deferred}
    listed = tuple(listed_spec(tool, found, small) for tool in every if tool.spec.name not in late)
    if not deferred and not search and CALL_TOOL not in found:
        return ToolOffer(listed)
    finder = tool_search(deferred).spec
    names = [_own_names(unlisted)] * bool(unlisted) + [catalogue(foreign)] * bool(foreign)
    finder = msgspec.structs.replace(finder, description="\n".join([finder.description, *names]))
    return ToolOffer((*listed, _short_spec(finder), _short_spec(CALL_TOOL_ENTRY.spec)), deferred)


def _own_names(specs: Sequence[ToolSpec]) -> str:
    """Name longrein's own deferred tools with the arguments they need: `TaskOutput(task_id, …)`."""
    return f"Of longrein: {', '.join(map(_signature, specs))}."


def _signature(spec: ToolSpec) -> str:
    required = spec.schema["required"]
    return f"{spec.name}({', '.join(required)})" if required else spec.name


def listed_spec(tool: Tool, names: Collection[str], small: Collection[str] = ()) -> ToolSpec:
    """Return the spec to list beside tools of these `names`: for a built-in tool without the
    redundant parts of its schema.
    """
    if is_foreign(tool):
        return tool.spec
    if tool.spec.name not in SMALL_TOOLS:
        return _short_spec(tool.spec)
    words = for_offered(tool.spec.description, names)
    spec = msgspec.structs.replace(tool.spec, description=words)
    return _small_spec(spec) if tool.spec.name in small else _short_spec(spec)


def _short_spec(spec: ToolSpec) -> ToolSpec:
    return msgspec.structs.replace(spec, schema=_without_redundancy(spec.schema, spec.schema, {}))


def _without_redundancy(
    schema: Mapping[str, Any], call: Mapping[str, Any], same: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `schema` without `additionalProperties`, empty values and what is repeated: an `enum`,
    and optional arguments of an item that the call has too; and without deprecated arguments.

    `call` is the schema of all arguments, `same` the argument of that name in it. Arguments are
    still checked against the full schema.
    """
    kept = {
        key: value for key, value in schema.items() if key != "additionalProperties" and value != []
    }
    if kept.get("enum") == same.get("enum"):
        kept.pop("enum", None)
    if "properties" in kept:
        own = call["properties"] if schema is not call else {}
        kept["properties"] = {
            name: _without_redundancy(one, call, own.get(name, {}))
            for name, one in kept["properties"].items()
            if (name not in own or name in schema["required"]) and not one.get("deprecated")
        }
    if "items" in kept:
        kept["items"] = _without_redundancy(kept["items"], call, {})
    return kept


def tools_by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return `tools` by name, in order, and with them `ToolSearch` and `CallTool` if some of them
    may be deferred.
    """
    found = {tool.spec.name: tool for tool in tools}
    deferred = found_by_search(found.values())
    if deferred:
        search = tool_search(deferred)
        found.update({search.spec.name: search, CALL_TOOL_ENTRY.spec.name: CALL_TOOL_ENTRY})
    return found


def unknown_call_message(name: str, names: Sequence[str], deferred: Sequence[ToolSpec]) -> str:
    """Return the error for a tool that does not exist. Deferred tools are not listed: there may
    be hundreds.
    """
    near, late = nearest(name, names), {spec.name for spec in deferred}
    hint = f" Did you mean {near}?" if near else ""
    listed = ", ".join(known for known in names if known not in late)
    found = (
        f" ToolSearch finds those that are called with {CALL_TOOL}: {server_counts(deferred)}."
        if deferred
        else ""
    )
    return f"[unknown-tool] There is no tool {quote_value(name)}.{hint} Tools: {listed}.{found}"


def server_counts(specs: Sequence[ToolSpec]) -> str:
    """Return the servers of `specs` with their numbers of tools."""
    return ", ".join(
        f"{server or 'others'} ({len(found)})" for server, found in specs_by_server(specs).items()
    )


def bad_arguments_message(tool: Tool, problem: str, deferred: Sequence[ToolSpec]) -> str:
    """Return `problem` with a call's arguments; of a deferred tool with its schema, which may be
    out of view.
    """
    if tool.spec not in deferred:
        return problem
    return (
        f"{problem}\nThe arguments of {tool.spec.name}: "
        f"{msgspec.json.encode(tool.spec.schema).decode()}"
    )


async def CallTool(
    context: ToolContext,  # noqa: ARG001
    name: str,
    args: dict[str, object] | None = None,  # noqa: ARG001
) -> Outcome:
    """Call a tool that is not listed here."""
    return Outcome.fail(
        f"[unknown-tool] There is no tool {quote_value(name)}; find one with ToolSearch."
    )


CALL_TOOL_ENTRY = make_tool(CallTool, access="none")
"""Tool for calls of `CallTool` that do not name a known tool; all others are unwrapped before
they run.
"""
