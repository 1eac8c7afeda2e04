"""C1 under LangChain: a long turn of tool calls in a small window, against the real package."""

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from longrein.testing.loopback import Call, Limits, LoopbackProvider, Turn
from longrein_context import Engine
from tests.integrations.long_session import (
    LIMITS,
    OUTPUT,
    SMALLER,
    WINDOW,
    answer,
    check,
    check_learned,
    read_file,
)

pytest.importorskip("langchain", reason="needs `make library` (pip install longrein[langchain])")

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from longrein import UsageError
from longrein.integrations.langchain import ContextMiddleware, engine
from longrein_context.integrations.langchain import SUMMARISED_ELSEWHERE

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


@asynccontextmanager
async def agent_of(
    script: Any, middleware: Any, limits: Limits = LIMITS, *, tools: Any = (), **options: Any
) -> AsyncIterator[tuple[Any, LoopbackProvider]]:
    """An agent of LangChain on a loopback provider, and that provider."""
    async with LoopbackProvider(script, limits=limits) as server, httpx2.AsyncClient() as client:
        yield (
            create_agent(model(server, client), list(tools), middleware=[middleware], **options),
            server,
        )


async def talk(script: list[Turn], middleware: Any, *said: tuple[str, str]) -> Any:
    """Say each (thread, text) to one agent that keeps its threads, and return its last state."""
    async with agent_of(script, middleware, checkpointer=InMemorySaver()) as (agent, _):
        for thread, text in said:
            done = await agent.ainvoke(
                {"messages": [("user", text)]}, {"configurable": {"thread_id": thread}}
            )
    return done


async def test_C1_thirty_calls_under_a_middleware() -> None:
    mine = engine(window=WINDOW, max_output=OUTPUT)
    async with agent_of(
        answer, ContextMiddleware(mine), tools=[read_file], system_prompt="Be brief."
    ) as (agent, server):
        done = await agent.ainvoke({"messages": [("user", "Read all.")]}, {"recursion_limit": 200})
    check(server, mine, done["messages"][-1].text)
    assert "NEEDLE_7 = 55433" in str(done["messages"]), "the state of the agent is whole"


async def test_a_window_smaller_than_said_is_learned_from_the_refusal() -> None:
    mine = engine(window=WINDOW, max_output=OUTPUT)
    async with agent_of(answer, ContextMiddleware(mine), SMALLER, tools=[read_file]) as (
        agent,
        server,
    ):
        done = await agent.ainvoke({"messages": [("user", "Read all.")]}, {"recursion_limit": 200})
    check_learned(server, mine, done["messages"][-1].text)


async def test_one_agent_has_many_conversations_each_with_its_engine() -> None:
    engines: dict[str, Engine] = {}

    def of(runtime: Any) -> Engine:
        return engines.setdefault(runtime.context, engine(window=WINDOW, max_output=OUTPUT))

    script = [Turn(text="Hello Ann."), Turn(text="Hello Bob.")]
    async with agent_of(script, ContextMiddleware(of), context_schema=str) as (agent, _):
        for name in ("ann", "bob"):
            await agent.ainvoke({"messages": [("user", f"I am {name}.")]}, context=name)
    assert [made.original("r3") for made in engines.values()] == ["I am ann.", "I am bob."]


async def test_each_thread_has_an_engine_of_its_own() -> None:
    script = [Turn(text="Hello Ann."), Turn(text="Hello Bob."), Turn(text="Ann.")]
    middleware = ContextMiddleware(window=WINDOW, max_output=OUTPUT)
    await talk(script, middleware, ("ann", "I am Ann."), ("bob", "I am Bob."), ("ann", "Who am I?"))
    ann, bob = middleware.engine_of("ann"), middleware.engine_of("bob")
    assert ann is not None
    assert bob is not None
    assert (ann.original("r3"), bob.original("r3")) == ("I am Ann.", "I am Bob.")
    assert (ann.notes, bob.notes) == ([], [])
    assert "Bob" not in str([entry.event for entry in ann.entries])


async def test_the_model_recalls_from_its_own_thread() -> None:
    script = [
        Turn(text="Hello."),
        Turn(calls=(Call("Recall", {"handle": "r3"}),)),
        Turn(text="You are Bob."),
    ]
    middleware = ContextMiddleware(window=WINDOW, max_output=OUTPUT)
    done = await talk(script, middleware, ("ann", "I am Ann."), ("bob", "I am Bob."))
    assert [one.text for one in done["messages"] if one.type == "tool"] == [
        "[r3: lines 1-1 of 1]\nI am Bob."
    ]


async def test_one_engine_does_not_serve_two_threads() -> None:
    middleware = ContextMiddleware(engine(window=WINDOW, max_output=OUTPUT))
    with pytest.raises(
        UsageError, match="this engine belongs to the thread 'ann', and 'bob' needs one of its own"
    ):
        await talk([Turn(text="Hello.")], middleware, ("ann", "I am Ann."), ("bob", "I am Bob."))


async def test_a_summarisation_beside_ours_is_noticed_and_told_once() -> None:
    def reply(request: Any) -> Turn:
        return Turn(text="A summary." if "summar" in str(request).lower() else "Hello.")

    async with LoopbackProvider(reply, limits=LIMITS) as server, httpx2.AsyncClient() as client:
        theirs = SummarizationMiddleware(
            model(server, client), trigger=("messages", 3), keep=("messages", 1)
        )
        middleware = ContextMiddleware(window=WINDOW, max_output=OUTPUT)
        agent = create_agent(
            model(server, client), [], middleware=[theirs, middleware], checkpointer=InMemorySaver()
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for said in ("one", "two", "three", "four"):
                await agent.ainvoke(
                    {"messages": [("user", said)]}, {"configurable": {"thread_id": "ann"}}
                )
    assert len([one for one in told if "SummarizationMiddleware" in str(one.message)]) == 1
    made = middleware.engine_of("ann")
    assert made is not None
    assert made.notes.count(SUMMARISED_ELSEWHERE) == 1


def test_wrong_arguments_are_told_when_the_middleware_is_made() -> None:
    with pytest.raises(UsageError, match="nothing is known of the model 'no/such'"):
        ContextMiddleware("no/such")
