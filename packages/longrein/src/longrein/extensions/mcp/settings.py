"""Table `mcp` of the settings."""

from typing import Annotated

import msgspec

from longrein.settings_schema import Setting


class McpOptions(msgspec.Struct, frozen=True):
    """Table `mcp`: MCP servers."""

    startup_s: Annotated[
        float, Setting("seconds that a server has to connect", "narrow", least=1)
    ] = 30.0
    wait_s: Annotated[
        float,
        Setting(
            "seconds that the first request waits for servers; later ones are found with "
            "`ToolSearch`"
        ),
    ] = 10.0
    call_s: Annotated[
        float, Setting("seconds of one call; a server's own `timeout` counts before it", least=1)
    ] = 600.0
    background_s: Annotated[
        float, Setting("seconds after which a call goes on as a background task; 0 for never")
    ] = 120.0
    listed_tokens_max: Annotated[
        int,
        Setting(
            "schemas of servers' tools above this size are deferred: the model finds them with "
            "`ToolSearch`"
        ),
    ] = 2_000
    listed_share: Annotated[
        int, Setting("the same as a share of the usable window, in percent")
    ] = 10
