"""What tool schemas cost, and whose they are: a server's tools are named `mcp__SERVER__TOOL`."""

from collections.abc import Iterable

from longrein.context.tokens import ITEM_TOKENS, estimate_text
from longrein.events import PrefixSet, ToolSpec

DIAGNOSED_SHARE_MIN = 0.10
"""Schemas that take less of the window are not worth a line."""


def spec_tokens(spec: ToolSpec) -> int:
    """Guess of what one tool costs when it is listed in full."""
    return estimate_text(spec.name + spec.description + str(spec.schema)) + ITEM_TOKENS


def server_of(name: str) -> str:
    """The server of the tool `name`; '' when it comes from none."""
    words = name.split("__", 2)
    return words[1] if len(words) == 3 and words[0] == "mcp" else ""


def by_server(specs: Iterable[ToolSpec]) -> dict[str, list[ToolSpec]]:
    """`specs` by server, in the order of first appearance; '' holds those of none."""
    found: dict[str, list[ToolSpec]] = {}
    for spec in specs:
        found.setdefault(server_of(spec.name), []).append(spec)
    return found


def schema_diagnosis(prefix: PrefixSet, window_tokens: int) -> str:
    """One line on the server whose schemas would fill most of the window; '' when none fills a tenth of it."""
    deferred = {spec.name for spec in prefix.deferred}
    costs = {
        server: (sum(map(spec_tokens, specs)), specs[0].name in deferred)
        for server, specs in by_server((*prefix.tools, *prefix.deferred)).items()
        if server
    }
    server, (tokens, late) = max(costs.items(), key=lambda cost: cost[1][0], default=("", (0, False)))
    if not server or tokens < DIAGNOSED_SHARE_MIN * window_tokens:
        return ""
    fills = f"server {server}'s schemas fill {_thousands(tokens)} of your {_thousands(window_tokens)} window"
    return f"{fills}; these are deferred now" if late else f"{fills}; switch off what you do not need of it"


def _thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f}k" if tokens >= 10_000 else f"{tokens / 1000:.1f}k" if tokens >= 1_000 else str(tokens)
