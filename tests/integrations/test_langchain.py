"""C1 under LangChain: a long turn of tool calls in a small window, against the real package."""

import warnings
from typing import Any

import httpx2
import pytest

from longrein.context import Engine
from longrein.testing.loopback import Call, LoopbackProvider, Turn
from tests.integrations.long_session import LIMITS, OUTPUT, SMALLER, WINDOW, answer, check, check_learned, read_file

pytest.importorskip("langchain", reason="needs `make library` (pip install longrein[langchain])")

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from longrein import UsageError
from longrein.integrations.langchain import SUMMARISED_ELSEWHERE, ContextMiddleware, engine

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
    mine = engine(window=WINDOW, max_output=OUTPUT)
    async with LoopbackProvider(answer, limits=LIMITS) as server, httpx2.AsyncClient() as client:
        middleware = [ContextMiddleware(mine)]
        agent = create_agent(model(server, client), [read_file], system_prompt="Be brief.", middleware=middleware)
        done = await agent.ainvoke({"messages": [("user", "Read all.")]}, {"recursion_limit": 200})
    check(server, mine, done["messages"][-1].text)
    assert "NEEDLE_7 = 55433" in str(done["messages"]), "the state of the agent is whole"


async def test_a_window_smaller_than_said_is_learned_from_the_refusal() -> None:
    mine = engine(window=WINDOW, max_output=OUTPUT)
    async with LoopbackProvider(answer, limits=SMALLER) as server, httpx2.AsyncClient() as client:
        agent = create_agent(model(server, client), [read_file], middleware=[ContextMiddleware(mine)])
        done = await agent.ainvoke({"messages": [("user", "Read all.")]}, {"recursion_limit": 200})
    check_learned(server, mine, done["messages"][-1].text)


async def test_one_agent_has_many_conversations_each_with_its_engine() -> None:
    engines: dict[str, Engine] = {}

    def of(runtime: Any) -> Engine:
        return engines.setdefault(runtime.context, engine(window=WINDOW, max_output=OUTPUT))

    script = [Turn(text="Hello Ann."), Turn(text="Hello Bob.")]
    async with LoopbackProvider(script, limits=LIMITS) as server, httpx2.AsyncClient() as client:
        agent = create_agent(model(server, client), [], middleware=[ContextMiddleware(of)], context_schema=str)
        for name in ("ann", "bob"):
            await agent.ainvoke({"messages": [("user", f"I am {name}.")]}, context=name)
    assert [made.original("r3") for made in engines.values()] == ["I am ann.", "I am bob."]


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


async def test_each_thread_has_an_engine_of_its_own() -> None:
    script = [Turn(text="Hello Ann."), Turn(text="Hello Bob."), Turn(text="Ann.")]
    async with LoopbackProvider(script, limits=LIMITS) as server, httpx2.AsyncClient() as client:
        middleware = ContextMiddleware(window=WINDOW, max_output=OUTPUT)
        agent = create_agent(model(server, client), [], middleware=[middleware], checkpointer=InMemorySaver())
        await agent.ainvoke({"messages": [("user", "I am Ann.")]}, thread("ann"))
        await agent.ainvoke({"messages": [("user", "I am Bob.")]}, thread("bob"))
        await agent.ainvoke({"messages": [("user", "Who am I?")]}, thread("ann"))
    ann, bob = middleware.engine_of("ann"), middleware.engine_of("bob")
    assert ann is not None
    assert bob is not None
    assert (ann.original("r3"), bob.original("r3")) == ("I am Ann.", "I am Bob.")
    assert (ann.notes, bob.notes) == ([], [])
    assert "Bob" not in str([entry.event for entry in ann.entries])


async def test_the_model_recalls_from_its_own_thread() -> None:
    script = [Turn(text="Hello."), Turn(calls=(Call("Recall", {"handle": "r3"}),)), Turn(text="You are Bob.")]
    async with LoopbackProvider(script, limits=LIMITS) as server, httpx2.AsyncClient() as client:
        middleware = ContextMiddleware(window=WINDOW, max_output=OUTPUT)
        agent = create_agent(model(server, client), [], middleware=[middleware], checkpointer=InMemorySaver())
        await agent.ainvoke({"messages": [("user", "I am Ann.")]}, thread("ann"))
        done = await agent.ainvoke({"messages": [("user", "I am Bob.")]}, thread("bob"))
    assert [one.text for one in done["messages"] if one.type == "tool"] == ["[r3: lines 1-1 of 1]\nI am Bob."]


async def test_one_engine_does_not_serve_two_threads() -> None:
    script = [Turn(text="Hello.")]
    async with LoopbackProvider(script, limits=LIMITS) as server, httpx2.AsyncClient() as client:
        middleware = [ContextMiddleware(engine(window=WINDOW, max_output=OUTPUT))]
        agent = create_agent(model(server, client), [], middleware=middleware, checkpointer=InMemorySaver())
        await agent.ainvoke({"messages": [("user", "I am Ann.")]}, thread("ann"))
        with pytest.raises(UsageError, match="this engine belongs to the thread 'ann', and 'bob' needs one of its own"):
            await agent.ainvoke({"messages": [("user", "I am Bob.")]}, thread("bob"))


async def test_a_summarisation_beside_ours_is_noticed_and_told_once() -> None:
    def reply(request: Any) -> Turn:
        return Turn(text="A summary." if "summar" in str(request).lower() else "Hello.")

    async with LoopbackProvider(reply, limits=LIMITS) as server, httpx2.AsyncClient() as client:
        theirs = SummarizationMiddleware(model(server, client), trigger=("messages", 3), keep=("messages", 1))
        middleware = ContextMiddleware(window=WINDOW, max_output=OUTPUT)
        agent = create_agent(model(server, client), [], middleware=[theirs, middleware], checkpointer=InMemorySaver())
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for said in ("one", "two", "three", "four"):
                await agent.ainvoke({"messages": [("user", said)]}, thread("ann"))
    assert len([one for one in told if "SummarizationMiddleware" in str(one.message)]) == 1
    made = middleware.engine_of("ann")
    assert made is not None
    assert made.notes.count(SUMMARISED_ELSEWHERE) == 1


def test_wrong_arguments_are_told_when_the_middleware_is_made() -> None:
    with pytest.raises(UsageError, match="nothing is known of the model 'no/such'"):
        ContextMiddleware("no/such")
