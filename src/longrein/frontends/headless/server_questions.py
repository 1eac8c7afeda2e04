"""Questions that other programs, such as MCP servers, have for the user: `elicitation`."""

from collections.abc import Mapping
from typing import Any

from longrein.agent.extension_part import AskUser, user_answer
from longrein.frontends.headless.control_lines import ControlChannel, ControlError


def elicitation(channel: ControlChannel) -> AskUser:
    """Return the function that lets the program answer for the user; one that cannot declines."""

    async def ask(server: str, message: str, schema: Mapping[str, Any], url: str) -> Any:
        mode: Mapping[str, Any] = (
            {"mode": "url", "url": url} if url else {"mode": "form", "requested_schema": schema}
        )
        try:
            answer = await channel.request(
                "elicitation", {"mcp_server_name": server, "message": message, **mode}
            )
        except ControlError:
            return "decline", {}
        return user_answer(answer)

    return ask
