"""C1 under LangChain: a long turn of tool calls in a small window, against the real package."""

import httpx2
import pytest

from longrein.testing.loopback import LoopbackProvider
from tests.library.story import LIMITS, OUTPUT, WINDOW, answer, check, read_file

pytest.importorskip("langchain", reason="needs `make library` (pip install longrein[langchain])")

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from longrein.library.langchain import ContextMiddleware, engine

pytestmark = pytest.mark.anyio


async def test_C1_thirty_calls_under_a_middleware() -> None:
    mine = engine(WINDOW, OUTPUT)
    async with LoopbackProvider(answer, limits=LIMITS) as server, httpx2.AsyncClient() as client:
        model = ChatOpenAI(
            model="loopback",
            base_url=server.url + "/v1",
            api_key="k",
            streaming=True,
            stream_usage=True,
            http_async_client=client,  # LangChain's own outlives this test's event loop
        )
        agent = create_agent(model, [read_file], system_prompt="Be brief.", middleware=[ContextMiddleware(mine)])
        done = await agent.ainvoke({"messages": [("user", "Read all.")]}, {"recursion_limit": 200})
    check(server, mine, done["messages"][-1].text)
    assert "NEEDLE_7 = 55433" in str(done["messages"]), "the state of the agent is whole"
