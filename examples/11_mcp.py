"""Give an agent the tools of an MCP server. The server of this example is this file itself,
started with `serve`.
"""

import asyncio
import sys

import longrein
from longrein.testing import ScriptedModel, call, says
from longrein_context.events import ToolEnded, text_of


def serve() -> None:
    """Be the server: any program that speaks MCP on its standard input and output will do."""
    from mcp.server import MCPServer

    server = MCPServer("weather")

    @server.tool()
    def forecast(city: str) -> str:
        """Forecast the weather of tomorrow."""
        return f"{city}: dry, 21 degrees"

    server.run()


async def main() -> None:
    model = ScriptedModel(says(call("mcp__weather__forecast", city="Porto")), says("It stays dry."))
    servers = {"weather": {"command": sys.executable, "args": [__file__, "serve"]}}
    async with longrein.Session.open(model, mcp_servers=servers, allow=["mcp__weather"]) as session:
        await session.send("Do I need an umbrella in Porto tomorrow?")
        async for entry in session.follow():
            if isinstance(entry.event, ToolEnded):
                print(entry.event.name, "->", text_of(entry.event.parts))


if sys.argv[1:] == ["serve"]:
    serve()
else:
    asyncio.run(main())
