"""Control requests that a program makes of longrein, each answered at once."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from longrein.agent import Rewind, SessionPort, SetMode, SetModel, StopChild, StopTask
from longrein.context import Budget, report
from longrein.events import LongreinError, entry_uuid
from longrein.frontends.flags import MODES
from longrein.frontends.headless.control import ControlChannel, ControlError, ControlRequest, error_line, success_line
from longrein.frontends.headless.stream_json_blocks import Line
from longrein.tools.mcp.servers import McpToolset, ServerView

Handler = Callable[[Mapping[str, Any]], Awaitable[Line]]


class ControlOptions(msgspec.Struct, frozen=True):
    """Parts that answer the requests of a program."""

    channel: ControlChannel | None = None
    """For requests to the program, if the caller has begun to use one."""
    mcp: McpToolset | None = None
    """The MCP servers of the session; None where there are none."""
    asks_permission: bool = False
    """Whether permission questions go to the program: `--permission-prompt-tool stdio`."""
    waits: bool = False
    """Whether a turn that was cut is continued by the first message only, and not at once."""
    resolve_model: Callable[[str], str] = str
    """Name of a model, '' for the default -> `provider/model`. Raises `LongreinError`."""
    budget: Callable[[], Budget] | None = None
    """Budget of the model that the session has now."""
    reports_state: bool = False
    """Whether the program wants to know when the session is idle, by lines `session_state_changed`."""
    state_for_host_only: bool = True
    """Whether those lines are for its SDK only."""


class HostRequests:
    """Serves the requests of the program that runs longrein."""

    def __init__(self, session: SessionPort, options: ControlOptions, wake: Callable[[], None]) -> None:
        """`wake` lets the session take what was put into its inbox."""
        self._session, self._options, self._wake = session, options, wake
        self._handlers: dict[str, Handler] = {
            "initialize": self._initialize,
            "interrupt": self._interrupt,
            "set_permission_mode": self._set_permission_mode,
            "set_model": self._set_model,
            "get_context_usage": self._context_usage,
            "mcp_status": self._mcp_status,
            "mcp_reconnect": self._mcp_reconnect,
            "mcp_toggle": self._mcp_toggle,
            "rewind_files": self._rewind_files,
            "stop_task": self._stop_task,
        }
        self.served = 0
        """Number of requests."""

    async def answer(self, request: ControlRequest) -> Line:
        """Return the line that answers a request; an error for one that is not known or cannot be done."""
        self.served += 1
        handler = self._handlers.get(request.subtype)
        if handler is None:
            told = f"longrein has no control request {request.subtype[:60]!r}; it has {', '.join(self._handlers)}"
            return error_line(request.id, told)
        try:
            return success_line(request.id, await handler(request.request))
        except (ControlError, LongreinError) as error:
            return error_line(request.id, str(error))

    async def _initialize(self, _request: Mapping[str, Any]) -> Line:
        raise ControlError("initialize must be the first line on stdin, as the session is open already")

    async def _interrupt(self, _request: Mapping[str, Any]) -> Line:
        self._session.interrupt()
        return {}

    async def _set_permission_mode(self, request: Mapping[str, Any]) -> Line:
        mode = request.get("mode")
        if mode not in MODES:
            raise ControlError(f"{mode!r} is no permission mode; there are {', '.join(MODES)}")
        await self._session.tell(SetMode(str(mode)))
        self._wake()
        return {"mode": mode}

    async def _set_model(self, request: Mapping[str, Any]) -> Line:
        wanted = request.get("model")
        name = self._options.resolve_model("" if wanted in (None, "default") else str(wanted))
        await self._session.tell(SetModel(name))
        self._wake()
        return {"model": name}

    async def _context_usage(self, _request: Mapping[str, Any]) -> Line:
        if self._options.budget is None:
            raise ControlError("the size of the context is not known")
        return context_usage(self._session, self._options.budget())

    async def _mcp_status(self, _request: Mapping[str, Any]) -> Line:
        servers = self._options.mcp.views() if self._options.mcp is not None else []
        return {"mcpServers": [_mcp_server(view) for view in servers]}

    async def _mcp_reconnect(self, request: Mapping[str, Any]) -> Line:
        self._servers(request).reconnect(str(request.get("serverName")))
        return {}

    async def _mcp_toggle(self, request: Mapping[str, Any]) -> Line:
        act = self._servers(request).enable if request.get("enabled") else self._servers(request).disable
        act(str(request.get("serverName")))
        return {}

    def _servers(self, request: Mapping[str, Any]) -> McpToolset:
        name = str(request.get("serverName"))
        if self._options.mcp is None or name not in self._options.mcp.servers:
            raise ControlError(f"there is no MCP server {name[:60]!r}")
        return self._options.mcp

    async def _rewind_files(self, request: Mapping[str, Any]) -> Line:
        wanted = str(request.get("user_message_id") or "")
        session = self._session
        seq = next((n for n in range(session.state.seq, 0, -1) if entry_uuid(session.id, n) == wanted), 0)
        if not seq:
            raise ControlError(f"no message of this session has the id {wanted!r}")
        if session.busy:
            raise ControlError("files can be put back when the turn has ended; interrupt it first")
        if not request.get("dry_run"):
            await session.tell(Rewind(seq, files=True, conversation=False))
            self._wake()
        return {"canRewind": True}

    async def _stop_task(self, request: Mapping[str, Any]) -> Line:
        wanted = str(request.get("task_id") or "")
        agent = next((one for one in self._session.agents() if one.label == wanted), None)
        if agent is not None:
            await self._session.tell(StopChild(agent.child))
        elif any(task.id == wanted for task in self._session.tasks()):
            await self._session.tell(StopTask(wanted))
        else:
            raise ControlError(f"no task {wanted!r} is known here")
        self._wake()
        return {}


STATUSES = {"connecting": "pending", "needs login": "needs-auth"}
"""Status of an MCP server -> spelling in the protocol, where that differs."""


def _mcp_server(view: ServerView) -> Line:
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
COLORS = {"System prompt": "cyan", "System tools": "blue", "MCP tools": "green", "Messages": "magenta"}


def context_usage(session: SessionPort, budget: Budget) -> Line:
    """Return what fills the context, as the answer to `get_context_usage`."""
    told = report(session.state, budget)
    sums: dict[str, int] = {}
    for row in told.shown:
        name = CATEGORIES.get(row.kind, "Messages")
        name = "MCP tools" if row.kind == "tool" and row.name.startswith("mcp__") else name
        sums[name] = sums.get(name, 0) + row.tokens
    free = max(0, told.usable_tokens - told.total_tokens)
    categories: list[Line] = [{"name": name, "tokens": n, "color": COLORS[name]} for name, n in sums.items()]
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
            {"name": row.name, "serverName": row.name.split("__")[1], "tokens": row.tokens, "isLoaded": True}
            for row in tools
            if row.name.startswith("mcp__") and row.name.count("__") > 1
        ],
        "agents": [],
        "systemTools": [{"name": row.name, "tokens": row.tokens} for row in tools if not row.name.startswith("mcp__")],
        "gridRows": [],
    }
