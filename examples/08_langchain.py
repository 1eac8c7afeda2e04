"""LangChain with the engine as a middleware. Needs `pip install longrein[langchain]
langchain-openai`.
"""

import asyncio

import httpx2
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from longrein.integrations.langchain import ContextMiddleware
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


async def main() -> None:
    limits = Limits(window_tokens=12_000)
    async with LoopbackProvider(model, limits=limits) as server, httpx2.AsyncClient() as client:
        middleware = ContextMiddleware(window=12_000, max_output=1_000)
        agent = create_agent(
            ChatOpenAI(
                model="loopback",
                base_url=server.url + "/v1",
                api_key="none",
                streaming=True,
                stream_usage=True,
                http_async_client=client,
            ),
            [read_file],
            middleware=[middleware],
        )
        result = await agent.ainvoke(
            {"messages": [("user", "Read all the files.")]}, {"recursion_limit": 100}
        )
        print(
            result["messages"][-1].text,
            "requests:",
            len(server.requests),
            "refused:",
            len(server.refused),
        )
        mine = middleware.engine_of("")  # this agent has a single thread
        print("breaks:", mine.state.breaks, "state:", len(result["messages"]), "messages, whole")


asyncio.run(main())
