"""The parts a subagent works with: its parent's, narrowed. What is immutable is shared, so that one costs little."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from longrein.events import CALL_TOOL, PrefixSet, ToolError, ToolSpec
from longrein.models import Model
from longrein.tools import Hands, Kind, Outcome, Tool, by_name, offer

AGENT = "Agent"
"""The tool that starts subagents."""
SEARCH = "ToolSearch"
"""The tool that finds deferred ones; made anew for the tools there are."""


def tools_of(kind: Kind, above: Mapping[str, Tool], *, spawns: bool) -> dict[str, Tool]:
    """The tools of `above` that a subagent of this type may use, in their order."""
    given = [tool for name, tool in above.items() if name not in (SEARCH, CALL_TOOL) and may_use(kind, name, spawns)]
    return by_name(given)


def may_use(kind: Kind, name: str, spawns: bool) -> bool:
    """Whether the type may use the tool `name`."""
    if name == AGENT:
        return spawns
    listed = kind.tools is None or any(_named(name, pattern) for pattern in kind.tools)
    return listed and not any(_named(name, pattern) for pattern in kind.without)


def _named(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def refusing(kind: Kind, above: Mapping[str, Tool], *, spawns: bool) -> dict[str, Tool]:
    """The very tools of `above`, as a fork's request lists them; those it may not use refuse by their own words."""
    return {
        name: tool if name in (SEARCH, CALL_TOOL) or may_use(kind, name, spawns) else _refused(tool, kind.name)
        for name, tool in above.items()
    }


def _refused(tool: Tool, kind: str) -> Tool:
    text = f"[not-yours] {tool.spec.name} is not for a subagent of type {kind}; do your task without it."

    async def refuse(_hands: Hands, **_arguments: object) -> Outcome:
        raise ToolError(text)

    return msgspec.structs.replace(tool, access="none", run=refuse, together=lambda _: True, paths=lambda _: ())


def prefix_of(
    tools: Mapping[str, Tool], system: str, context: Sequence[str], sources: PrefixSet | None
) -> Callable[[Model, str], PrefixSet]:
    """What stands before the conversation of a subagent: its own text and tools, its parent's static context."""
    found = sources.sources if sources is not None else ()
    made: dict[str, tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]] = {}

    def prefix(model: Model, reason: str) -> PrefixSet:
        if model.name not in made:
            told = offer(tools.values(), model.budget.usable_tokens)
            made[model.name] = told.listed, told.deferred
        listed, deferred = made[model.name]
        names = model.provider, model.model, model.wire
        return PrefixSet(reason, *names, system, listed, tuple(context), found, deferred)

    return prefix
