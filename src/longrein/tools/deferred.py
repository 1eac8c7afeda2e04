"""Foreign tools that the model looks up instead of being told of each: their schemas cost nothing until they are used.

The list of tools is frozen with the prefix, since growing it would break the provider's cache of everything after it.
So what was looked up comes as a result of `ToolSearch` and is called through `CallTool`, which `events.unwrapped` takes
apart before anybody judges, runs, logs or draws the call.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from longrein.context import by_server, spec_tokens
from longrein.events import CALL_TOOL, ToolSpec
from longrein.tools.arguments import show, unknown_tool
from longrein.tools.nearest import nearest
from longrein.tools.port import Hands, Outcome, Tool
from longrein.tools.registry import make_tool
from longrein.tools.tool_search import SEARCH_TOOL, catalogue, tool_search

FOREIGN = "mcp__"
"""How the names of tools from servers begin."""


class Deferral(msgspec.Struct, frozen=True):
    """When foreign tools are deferred: all of them, or none."""

    tokens_max: int = 2_000
    """Their schemas together may cost this much and still be listed …"""
    share_max: float = 0.10
    """… as long as it is no larger share of the usable window."""


class Offer(msgspec.Struct, frozen=True):
    """What a model is told of its tools."""

    listed: tuple[ToolSpec, ...]
    """In full, in each request."""
    deferred: tuple[ToolSpec, ...] = ()
    """By name, in the description of `ToolSearch`."""


def is_foreign(tool: Tool) -> bool:
    """Whether `tool` may be deferred. Built-in ones never are."""
    return tool.deferred or tool.spec.name.startswith(FOREIGN)


def offer(tools: Iterable[Tool], usable_tokens: int, options: Deferral | None = None) -> Offer:
    """What to tell a model of `tools` whose view may fill `usable_tokens`. Same input, same bytes.

    Of two tools of one name the later one stands.
    """
    options, every = options or Deferral(), list({tool.spec.name: tool for tool in tools}.values())
    foreign = tuple(tool.spec for tool in every if is_foreign(tool))
    if sum(map(spec_tokens, foreign)) <= min(options.tokens_max, options.share_max * usable_tokens):
        return Offer(tuple(map(told, every)))
    own = tuple(told(tool) for tool in every if not is_foreign(tool))
    search = msgspec.structs.replace(SEARCH_TOOL, description=f"{SEARCH_TOOL.description}\n{catalogue(foreign)}")
    return Offer((*own, _short(search), _short(CALLER.spec)), foreign)


def told(tool: Tool) -> ToolSpec:
    """What the model is told of a tool: of our own without what says only that there is nothing more."""
    return tool.spec if is_foreign(tool) else _short(tool.spec)


def _short(spec: ToolSpec) -> ToolSpec:
    return msgspec.structs.replace(spec, schema=_lean(spec.schema, spec.schema, {}))


def _lean(schema: Mapping[str, Any], call: Mapping[str, Any], same: Mapping[str, Any]) -> dict[str, Any]:
    """`schema`, which stands in `call`, without `additionalProperties`, an empty `required` and the values that an
    argument of the call, `same`, has too. What comes is checked against the whole."""
    kept = {key: value for key, value in schema.items() if key != "additionalProperties" and value != []}
    if kept.get("enum") == same.get("enum"):
        kept.pop("enum", None)
    if "properties" in kept:
        own = call["properties"] if schema is not call else {}
        kept["properties"] = {name: _lean(one, call, own.get(name, {})) for name, one in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = _lean(kept["items"], call, {})
    return kept


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """`tools` by name, in their order, and what finds and calls the foreign ones among them."""
    found = {tool.spec.name: tool for tool in tools}
    foreign = [tool.spec for tool in found.values() if is_foreign(tool)]
    if foreign:
        search = tool_search(foreign)
        found.update({search.spec.name: search, CALLER.spec.name: CALLER})
    return found


def unknown_call(name: str, names: Sequence[str], deferred: Sequence[ToolSpec]) -> str:
    """What the model is told of a tool that does not exist. Deferred ones are not enumerated: there may be hundreds."""
    if not deferred:
        return unknown_tool(name, names)
    near = nearest(name, names)
    hint = f" Did you mean {near}?" if near else ""
    late = {spec.name for spec in deferred}
    listed = ", ".join(known for known in names if known not in late)
    servers = ", ".join(f"{server or 'others'} ({len(specs)})" for server, specs in by_server(deferred).items())
    found = f"ToolSearch finds those that are called with {CALL_TOOL}: {servers}."
    return f"[unknown-tool] There is no tool {show(name)}.{hint} Tools: {listed}. {found}"


def misfit_call(tool: Tool, problem: str, deferred: Sequence[ToolSpec]) -> str:
    """`problem` with a call's arguments; of a deferred tool the model may not have the schema at hand any more."""
    if tool.spec not in deferred:
        return problem
    return f"{problem}\nThe arguments of {tool.spec.name}: {msgspec.json.encode(tool.spec.schema).decode()}"


async def CallTool(hands: Hands, name: str, args: dict[str, object] | None = None) -> Outcome:  # noqa: ARG001
    """Call a tool that ToolSearch has found. It is judged, run and shown as if it were listed here.

    name: The tool's full name.
    args: Its arguments, as the schema that ToolSearch gave wants them.
    """
    return Outcome.fail(f"[unknown-tool] There is no tool {show(name)}; find one with ToolSearch.")


CALLER = make_tool(CallTool, access="none")
"""`CallTool` itself runs only when it names no tool."""
