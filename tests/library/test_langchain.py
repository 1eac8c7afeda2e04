"""C1 under LangChain: a long turn of tool calls in a small window, against the real package."""

from typing import Any

import httpx2
import pytest

from longrein.context import Engine
from longrein.testing.loopback import LoopbackProvider, Turn
from tests.library.story import LIMITS, OUTPUT, SMALLER, WINDOW, answer, check, check_learned, read_file

pytest.importorskip("langchain", reason="needs `make library` (pip install longrein[langchain])")

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from longrein.library.langchain import ContextMiddleware, engine

pytestmark = pytest.mark.anyio


def model(server: LoopbackProvider, client: httpx2.AsyncClient) -> ChatOpenAI:
    return ChatOpenAI(
        model="loopback",
        base_url=server.url + "/v1",
        api_key="k",
        streaming=True,
        stream_usage=True,
        http_async_client=client,  # LangChain's own outlives this test's event loop
    )


async def test_C1_thirty_calls_under_a_middleware() -> None:
    mine = engine(WINDOW, OUTPUT)
    async with LoopbackProvider(answer, limits=LIMITS) as server, httpx2.AsyncClient() as client:
        middleware = [ContextMiddleware(mine)]
        agent = create_agent(model(server, client), [read_file], system_prompt="Be brief.", middleware=middleware)
        done = await agent.ainvoke({"messages": [("user", "Read all.")]}, {"recursion_limit": 200})
    check(server, mine, done["messages"][-1].text)
    assert "NEEDLE_7 = 55433" in str(done["messages"]), "the state of the agent is whole"


async def test_a_window_smaller_than_said_is_learned_from_the_refusal() -> None:
    mine = engine(WINDOW, OUTPUT)
    async with LoopbackProvider(answer, limits=SMALLER) as server, httpx2.AsyncClient() as client:
        agent = create_agent(model(server, client), [read_file], middleware=[ContextMiddleware(mine)])
        done = await agent.ainvoke({"messages": [("user", "Read all.")]}, {"recursion_limit": 200})
    check_learned(server, mine, done["messages"][-1].text)


async def test_one_agent_has_many_conversations_each_with_its_engine() -> None:
    engines: dict[str, Engine] = {}

    def of(runtime: Any) -> Engine:
        return engines.setdefault(runtime.context, engine(WINDOW, OUTPUT))

    script = [Turn(text="Hello Ann."), Turn(text="Hello Bob.")]
    async with LoopbackProvider(script, limits=LIMITS) as server, httpx2.AsyncClient() as client:
        agent = create_agent(model(server, client), [], middleware=[ContextMiddleware(of)], context_schema=str)
        for name in ("ann", "bob"):
            await agent.ainvoke({"messages": [("user", f"I am {name}.")]}, context=name)
    assert [made.original("r3") for made in engines.values()] == ["I am ann.", "I am bob."]
