"""Reports of the session for control requests: the context, the MCP servers, the settings. Pure."""

from longrein.agent import SessionPort
from longrein.context import Budget, report
from longrein.frontends.headless.stream_json_blocks import Line
from longrein.tools.mcp.servers import ServerView

STATUSES = {"connecting": "pending", "needs login": "needs-auth"}
"""Status of an MCP server -> spelling in the protocol, where that differs."""


def mcp_server(view: ServerView) -> Line:
    """Return one server as the answer to `mcp_status` has it."""
    return {
        "name": view.name,
        "status": STATUSES.get(view.status, view.status),
        "scope": view.scope,
        "tools": [{"name": name.rpartition("__")[2]} for name in view.tools],
        **({"error": view.problem} if view.problem else {}),
        **({"serverInfo": {"name": view.title, "version": ""}} if view.title else {}),
    }


CATEGORIES = {"system": "System prompt", "tool": "System tools"}
"""Kind of a row of the context report -> category; other rows are messages."""
COLORS = {
    "System prompt": "cyan",
    "System tools": "blue",
    "MCP tools": "green",
    "Messages": "magenta",
}


def context_usage(session: SessionPort, budget: Budget) -> Line:
    """Return what fills the context, as the answer to `get_context_usage`."""
    told = report(session.state, budget)
    sums: dict[str, int] = {}
    for row in told.shown:
        name = CATEGORIES.get(row.kind, "Messages")
        name = "MCP tools" if row.kind == "tool" and row.name.startswith("mcp__") else name
        sums[name] = sums.get(name, 0) + row.tokens
    free = max(0, told.usable_tokens - told.total_tokens)
    categories: list[Line] = [
        {"name": name, "tokens": n, "color": COLORS[name]} for name, n in sums.items()
    ]
    categories.append({"name": "Free space", "tokens": free, "color": "gray"})
    prefix = session.state.prefix
    tools = [row for row in told.shown if row.kind == "tool"]
    return {
        "categories": categories,
        "totalTokens": told.total_tokens,
        "maxTokens": told.usable_tokens,
        "rawMaxTokens": told.window_tokens,
        "percentage": round(100 * told.total_tokens / max(1, told.usable_tokens), 1),
        "model": f"{prefix.provider}/{prefix.model}" if prefix else "",
        "isAutoCompactEnabled": True,
        "autoCompactThreshold": told.usable_tokens,
        "memoryFiles": [],
        "mcpTools": [
            {
                "name": row.name,
                "serverName": row.name.split("__")[1],
                "tokens": row.tokens,
                "isLoaded": True,
            }
            for row in tools
            if row.name.startswith("mcp__") and row.name.count("__") > 1
        ],
        "agents": [],
        "systemTools": [
            {"name": row.name, "tokens": row.tokens}
            for row in tools
            if not row.name.startswith("mcp__")
        ],
        "gridRows": [],
    }
