"""The loops of the engine's README, against providers that enforce their rules."""

import asyncio
import json
import re
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from lab.source_tree import PACKAGES
from longrein.testing import Call, Limits, LoopbackProvider, Turn

pytestmark = pytest.mark.anyio

README = (PACKAGES / "longrein-context/README.md").read_text(encoding="utf-8")
LOOPS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
CHAT_TOOL = {"name": "read_file", "description": "Read.", "parameters": SCHEMA}
WIRES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "chat_loop": ({"type": "function", "function": CHAT_TOOL}, {}),
    "messages_loop": (
        {"name": "read_file", "description": "Read.", "input_schema": SCHEMA},
        {"anthropic-version": "2023-06-01", "x-api-key": "k"},
    ),
    "responses_loop": ({"type": "function", **CHAT_TOOL}, {}),
}
FILES, LINES = 30, 150
WINDOW = 24_000


def code(name: str) -> str:
    """Return the block of the README that defines a function, for a small window."""
    block = next(block for block in LOOPS if f"def {name}(" in block)
    return re.sub(r"window=[\d_]+", f"window={WINDOW}", block)


def loop(name: str) -> Callable[..., str]:
    """Return the function of this name from the README."""
    names: dict[str, Any] = {}
    exec(code(name), names)
    found: Callable[..., str] = names[name]
    return found


@pytest.mark.parametrize("name", WIRES)
async def test_a_loop_of_the_readme_never_overflows(name: str) -> None:
    """Files of three windows are read, and no request is refused."""
    turns = [Turn(calls=(Call("read_file", {"path": f"f{n}.py"}),)) for n in range(FILES)]
    tool, headers = WIRES[name]
    limits = Limits(window_tokens=WINDOW)
    async with LoopbackProvider([*turns, Turn(text="Read.")], limits=limits) as server:

        def post(path: str, body: dict[str, Any]) -> Any:
            request = urllib.request.Request(
                server.url + path,
                json.dumps(body).encode(),
                {"Content-Type": "application/json", "Authorization": "Bearer k", **headers},
            )
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)

        def read_file(_: str, arguments: dict[str, Any]) -> str:
            return "\n".join(f"def line_{n}_of_{arguments['path']}(): ..." for n in range(LINES))

        arguments = (post, "loopback", "Read all files.", [tool], read_file)
        text = await asyncio.to_thread(loop(name), *arguments)
        assert (text, len(server.requests), server.refused) == ("Read.", FILES + 1, [])
