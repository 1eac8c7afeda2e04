"""Your own loop with a plain list of messages: three lines keep it inside the window, and
nothing is lost.
"""

import asyncio
import json
from typing import Any

import httpx2

import longrein
from longrein.testing import Call, Limits, LoopbackProvider, Turn

numbers = iter(range(25))


def model(_: object) -> Turn:
    """What stands in for a model: it reads one big file after the other."""
    number = next(numbers, None)
    return (
        Turn(text="Read.")
        if number is None
        else Turn(calls=(Call("read_file", {"path": f"src/f{number}.py"}),))
    )


def read_file(path: str) -> str:
    return "\n".join(f"def line_{n}_of(text='{path}'): return {n}" for n in range(100))


async def ask(
    client: httpx2.AsyncClient, chat: list[dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One request; the answer's message and usage, put together from the stream."""
    wish = {
        "model": "loopback",
        "messages": chat,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answer = await client.post("/v1/chat/completions", json=wish)
    answer.raise_for_status()
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    usage: dict[str, Any] = {}
    for line in answer.text.splitlines():
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line[6:])
        usage = chunk.get("usage") or usage
        for delta in (choice["delta"] for choice in chunk["choices"]):
            message["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                calls = message.setdefault("tool_calls", [])
                if call["index"] == len(calls):
                    calls.append(
                        {
                            "id": call["id"],
                            "type": "function",
                            "function": {"name": "", "arguments": ""},
                        }
                    )
                for key in ("name", "arguments"):
                    calls[call["index"]]["function"][key] += call["function"].get(key) or ""
    return message, usage


async def main() -> None:
    limits = Limits(window_tokens=12_000)
    async with (
        LoopbackProvider(model, limits=limits) as server,
        httpx2.AsyncClient(base_url=server.url) as client,
    ):
        chat = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Read all the files."},
        ]
        engine = longrein.engine(window=12_000, max_output=1_000)  # 1: one for each conversation
        while True:
            view = engine.prepare(chat)  # 2: what to send in place of the whole list
            message, usage = await ask(client, view)
            engine.observe(usage)  # 3: what the provider counted
            chat.append(message)
            if not message.get("tool_calls"):
                break
            for call in message["tool_calls"]:
                arguments = json.loads(call["function"]["arguments"])
                chat.append(
                    {"role": "tool", "tool_call_id": call["id"], "content": read_file(**arguments)}
                )
        whole = sum(len(json.dumps(one)) for one in chat) // 4
        largest = max(
            sum(request.usage[k] for k in ("input", "cache_read")) for request in server.requests
        )
        print(
            f"the list has about {whole:,} tokens; the largest request had {largest:,} in a "
            "window of 12,000"
        )
        print(
            "requests:",
            len(server.requests),
            "refused:",
            len(server.refused),
            "breaks:",
            engine.state.breaks,
        )


asyncio.run(main())
