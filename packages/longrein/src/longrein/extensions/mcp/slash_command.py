"""The `/mcp` command: state of the MCP servers, and connecting anew."""

from collections.abc import Callable, Sequence

from longrein.extensions.mcp.servers import McpToolset, ServerView
from longrein.steps.human_text import counted, escape_line
from longrein_context.events import LongreinError
from longrein_context.events.escape import shortened

USAGE = (
    "/mcp [NAME | reconnect NAME | login NAME | disable NAME | enable NAME | answer NAME … | "
    "decline NAME]"
)
NONE = "no MCP server is configured; `longrein mcp add NAME -- COMMAND…` adds one"
SHOWN_CHARS = 90


def server_rows(servers: McpToolset, argument: str) -> Sequence[str]:
    """Run `/mcp ARGUMENT`; return escaped lines. A `LongreinError` becomes a line."""
    word, _, name = argument.strip().partition(" ")
    acts: dict[str, Callable[[str], None]] = {
        "reconnect": servers.reconnect,
        "login": servers.login,
        "disable": servers.disable,
        "enable": servers.enable,
        "answer": servers.questions.answer,
        "decline": servers.questions.decline,
    }
    try:
        if word in acts and name.strip():
            acts[word](name.strip())
            return [f"{escape_line(name.split()[0])}: {word}; /mcp shows what came of it"]
    except LongreinError as error:
        return [escape_line(str(error))]
    views = {view.name: view for view in servers.views()}
    if word in views and not name:
        return _page(views[word])
    if argument.strip():
        return [escape_line(f"no such server; {USAGE}; servers: {', '.join(views)}")]
    return [_row(view) for view in views.values()] or [NONE]


def _row(view: ServerView) -> str:
    what = (
        counted(len(view.tools), "tool")
        if view.status == "connected"
        else shortened(view.problem, SHOWN_CHARS)
    )
    return escape_line(f"{view.name}  {view.status}  {what}".rstrip())


def _page(view: ServerView) -> list[str]:
    rows = [f"{view.name}  {view.status}  ({view.scope})", f"address: {view.address}"]
    rows += [view.problem] if view.problem else []
    rows += [f"server: {view.title}, protocol {view.protocol}"] if view.title else []
    rows += [f"tools: {', '.join(view.tools)}"] if view.tools else []
    rows += [f"prompts: {', '.join(f'/{name}' for name in view.prompts)}"] if view.prompts else []
    rows += [f"resources: mention one as @{view.name}:URI"] if view.resources else []
    return [escape_line(row) for row in rows]
