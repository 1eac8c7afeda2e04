"""Runs a client of `claude-agent-sdk`, which others wrote, with longrein as its `cli_path` and a
scripted provider.
"""

import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from longrein.testing.loopback import LoopbackProvider, read_play
from tests.tables import record

CLI = Path(sys.executable).with_name("longrein")
NEEDS_CLI = [
    pytest.mark.anyio,
    pytest.mark.skipif(not CLI.exists(), reason="longrein is not installed as a command"),
]
MODEL = "anthropic/claude-sonnet-4-5"
MADE = Path(__file__).resolve().parents[2] / ".venv" / "agent-sdk"
"""What `make library` gets for these tests."""
EXAMPLES = Path(os.environ.get("CLAUDE_AGENT_SDK_EXAMPLES", MADE / "examples"))
"""Folder with the examples that come with the SDK in Python."""
NODE = Path(os.environ.get("CLAUDE_AGENT_SDK_NODE", MADE))
"""Folder in which the SDK in TypeScript is installed."""
NODE_SDK = NODE / "node_modules" / "@anthropic-ai" / "claude-agent-sdk"


def say(text: str) -> dict[str, Any]:
    """A reply of text."""
    return {"text": text}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


class SdkSetup:
    """A home, a project folder and a provider that plays scripted turns."""

    def __init__(self, home: Path, server: LoopbackProvider) -> None:
        self.home, self.tree, self.server = home, home / "tree", server
        self.errors: list[str] = []
        """Lines of stderr."""

    @property
    def env(self) -> dict[str, str]:
        return record(
            HOME=str(self.home), ANTHROPIC_API_KEY="k", LONGREIN_STATE_DIR=str(self.home / "state")
        )

    def options(self, **fields: Any) -> Any:
        """`ClaudeAgentOptions` with longrein as the program."""
        from claude_agent_sdk import ClaudeAgentOptions

        env = self.env | fields.pop("env", {})
        told = record(cli_path=str(CLI), cwd=str(self.tree), stderr=self.errors.append, env=env)
        return ClaudeAgentOptions(**(told | fields))

    def sent(self, at: int = -1) -> str:
        """The request `at` as text."""
        return self.server.requests[at].body.decode()


@asynccontextmanager
async def sdk_setup(
    home: Path, turns: Sequence[dict[str, Any]], config: str = "", *, unused: int | None = 0
) -> AsyncIterator[SdkSetup]:
    """Make a setup; at its end all but `unused` turns (None: any) have been asked for, and none
    was refused.
    """
    async with LoopbackProvider(read_play(json.dumps({"turns": list(turns)}).encode())) as server:
        folder = home / ".config" / "longrein"
        folder.mkdir(parents=True, exist_ok=True)
        (home / "tree").mkdir(exist_ok=True)
        provider = f'[providers.anthropic]\nbase_url = "{server.url}"\n'
        (folder / "config.toml").write_text(f'model = "{MODEL}"\n{config}{provider}')
        yield SdkSetup(home, server)
        assert not server.refused
        assert unused is None or len(server.unused()) == unused


async def ask(setup: SdkSetup, prompt: str, **options: Any) -> list[Any]:
    """Run `query` and return all messages."""
    from claude_agent_sdk import query

    return [message async for message in query(prompt=prompt, options=setup.options(**options))]


async def answers(client: Any, prompt: str) -> list[Any]:
    """Send `prompt` to an open client and return the messages up to the result."""
    await client.query(prompt)
    return [message async for message in client.receive_response()]


async def ask_client(setup: SdkSetup, prompt: str, **options: Any) -> list[Any]:
    """Send `prompt` to a client of its own and return the messages up to the result."""
    from claude_agent_sdk import ClaudeSDKClient

    async with ClaudeSDKClient(setup.options(**options)) as client:
        return await answers(client, prompt)


def of(messages: Sequence[Any], name: str) -> list[Any]:
    """The messages of one class."""
    return [message for message in messages if type(message).__name__ == name]
