"""Minimal Python agent loop for comparison: asyncio, httpx, the standard `json`, no feature.

One prompt goes to an Anthropic-shaped endpoint. The loop prints text, runs `Bash` and `Read` calls
side by side and returns their results, until a reply holds no call. No log, permissions, limits or
retries. Run: `python lab/floor.py BASE_URL PROMPT [httpx2]`; the client is httpx, which most
loops use, or the one named.
"""

import asyncio
import importlib
import json
import sys
from typing import Any

sys.modules["click"] = None  # type: ignore[assignment]  # no command line of httpx, twice as slow
CLIENT = importlib.import_module(sys.argv[3] if len(sys.argv) > 3 else "httpx")

TOOLS = [
    {
        "name": "Bash",
        "description": "Run a shell command.",
        "input_schema": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
    {
        "name": "Read",
        "description": "Read a file.",
        "input_schema": {
            "type": "object",
            "properties": {"file_path": {"type": "string"}},
            "required": ["file_path"],
        },
    },
]


async def bash(command: str) -> str:
    process = await asyncio.create_subprocess_shell(
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    text = output.decode("utf-8", "replace")
    return text if len(text) <= 12_000 else text[:5_000] + "\n...\n" + text[-5_000:]


async def read(file_path: str) -> str:
    with open(file_path, encoding="utf-8") as file:
        return "".join(f"{n}\t{line}" for n, line in enumerate(file, 1))


RUN = {"Bash": bash, "Read": read}


async def ask(client: Any, url: str, messages: list[dict]) -> list[dict]:
    body = {
        "model": "small",
        "max_tokens": 8192,
        "stream": True,
        "system": "You are a coding agent.",
        "tools": TOOLS,
        "messages": messages,
    }
    blocks: list[dict] = []
    partial: list[str] = []
    headers = {
        "x-api-key": "none",
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
    }
    async with client.stream(
        "POST", f"{url}/v1/messages", content=json.dumps(body), headers=headers
    ) as response:
        async for line in response.aiter_lines():
            if not line.startswith("data:"):
                continue
            event = json.loads(line[5:])
            match event["type"]:
                case "content_block_start":
                    blocks.append(event["content_block"])
                    partial = []
                case "content_block_delta":
                    delta = event["delta"]
                    if delta["type"] == "text_delta":
                        blocks[-1]["text"] += delta["text"]
                    elif delta["type"] == "input_json_delta":
                        partial.append(delta["partial_json"])
                case "content_block_stop":
                    if blocks[-1]["type"] == "tool_use":
                        blocks[-1]["input"] = json.loads("".join(partial) or "{}")
    return blocks


async def main(url: str, prompt: str) -> None:
    messages: list[dict] = [{"role": "user", "content": prompt}]
    async with CLIENT.AsyncClient(timeout=600) as client:
        while True:
            blocks = await ask(client, url, messages)
            messages.append({"role": "assistant", "content": blocks})
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if not calls:
                print("".join(block.get("text", "") for block in blocks))
                return
            results = await asyncio.gather(*(RUN[call["name"]](**call["input"]) for call in calls))
            content = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": result}
                for call, result in zip(calls, results, strict=True)
            ]
            messages.append({"role": "user", "content": content})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
