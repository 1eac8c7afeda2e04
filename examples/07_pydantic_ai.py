"""Pydantic AI with the engine as a capability. Needs `pip install longrein[pydantic-ai]` and
`openai`.
"""

import asyncio

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from longrein.integrations.pydantic_ai import EngineCapability, engine
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
    """Read a file."""
    return "\n".join(f"def line_{n}_of(text='{path}'): return {n}" for n in range(100))


async def listen(_ctx: object, events: object) -> None:
    """Listening makes Pydantic AI stream, which is all that the loopback provider does."""
    async for _ in events:
        pass


async def main() -> None:
    limits = Limits(window_tokens=12_000)
    async with LoopbackProvider(model, limits=limits) as server:
        client = AsyncOpenAI(base_url=server.url + "/v1", api_key="none")
        mine = engine(window=12_000, max_output=1_000)
        agent = Agent(
            OpenAIChatModel("loopback", provider=OpenAIProvider(openai_client=client)),
            tools=[read_file],
            capabilities=[EngineCapability(mine)],
        )
        result = await agent.run("Read all the files.", event_stream_handler=listen)
        print(result.output, "requests:", len(server.requests), "refused:", len(server.refused))
        print(
            "breaks:", mine.state.breaks, "history:", len(result.all_messages()), "messages, whole"
        )
        await client.close()


asyncio.run(main())
