"""longrein as the program of `claude-agent-sdk`, with a scripted provider. Needs `pip install
claude-agent-sdk`.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
)

from longrein.testing import Call, LoopbackProvider, Turn

TURNS = [
    Turn(calls=(Call("Write", {"file_path": "notes.txt", "content": "4\n"}),)),
    Turn(calls=(Call("Write", {"file_path": "secret.txt", "content": "x\n"}),)),
    Turn(calls=(Call("StructuredOutput", {"answer": 4}),)),
    Turn(text="Done."),
]
ANSWER = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}


async def approve(name: str, arguments: dict[str, Any], _context: object) -> Any:
    """Decide each call that needs permission."""
    print("may this run?", name, arguments["file_path"])
    if "secret" in arguments["file_path"]:
        return PermissionResultDeny(message="secrets stay as they are")
    return PermissionResultAllow()


async def note(event: dict[str, Any], _call: str | None, _context: object) -> dict[str, Any]:
    """See each tool before it runs."""
    print("hook:", event["hook_event_name"], event["tool_name"])
    return {}


async def main() -> None:
    async with LoopbackProvider(TURNS) as server:
        with tempfile.TemporaryDirectory() as home:
            settings = Path(home, ".config", "longrein", "config.toml")
            settings.parent.mkdir(parents=True)
            settings.write_text(
                'model = "anthropic/claude-sonnet-4-5"\n[providers.anthropic]\nbase_url = '
                f'"{server.url}"\n'
            )
            options = ClaudeAgentOptions(
                cli_path=Path(sys.executable).with_name("longrein"),
                cwd=home,
                env={
                    "HOME": home,
                    "LONGREIN_STATE_DIR": f"{home}/state",
                    "ANTHROPIC_API_KEY": "none",
                },
                can_use_tool=approve,
                hooks={"PreToolUse": [HookMatcher(matcher="Write", hooks=[note])]},
                output_format={"type": "json_schema", "schema": ANSWER},
            )
            async with ClaudeSDKClient(options) as client:
                await client.query("What is 2 + 2? Note it.")
                async for message in client.receive_response():
                    if isinstance(message, ResultMessage):
                        print(message.subtype, message.structured_output)
            print("written:", [path.name for path in Path(home).glob("*.txt")])


asyncio.run(main())
