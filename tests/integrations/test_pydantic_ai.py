"""C1 under Pydantic AI: a long turn of tool calls in a small window, against the real package."""

import pytest

from longrein.testing.loopback import LoopbackProvider
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

pytest.importorskip(
    "pydantic_ai", reason="needs `make library` (pip install longrein[pydantic-ai])"
)

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from longrein.integrations.pydantic_ai import (
    EngineCapability,
    engine,
    history_processor,
    recall_tool,
)

pytestmark = pytest.mark.anyio


async def drain(_ctx: object, events: object) -> None:
    """The loopback provider only streams, and Pydantic AI streams when somebody listens."""
    async for _ in events:  # type: ignore[attr-defined]
        pass


def client(server: LoopbackProvider) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.url + "/v1", api_key="k")


def model(provider: AsyncOpenAI) -> OpenAIChatModel:
    return OpenAIChatModel("loopback", provider=OpenAIProvider(openai_client=provider))


async def test_C1_thirty_calls_as_a_capability() -> None:
    mine = engine(window=WINDOW, max_output=OUTPUT)
    async with LoopbackProvider(answer, limits=LIMITS) as server, client(server) as provider:
        agent = Agent(
            model(provider),
            tools=[read_file],
            capabilities=[EngineCapability(mine)],
            instructions="Be brief.",
        )
        done = await agent.run(
            "Read all.", event_stream_handler=drain, usage_limits=UsageLimits(request_limit=100)
        )
    check(server, mine, done.output)
    assert "NEEDLE_7 = 55433" in str(done.all_messages()), "the history of the run is whole"


async def test_C1_thirty_calls_as_a_history_processor() -> None:
    mine = engine(window=WINDOW, max_output=OUTPUT)
    async with LoopbackProvider(answer, limits=LIMITS) as server, client(server) as provider:
        processor = ProcessHistory(history_processor(mine))
        agent = Agent(
            model(provider), tools=[read_file, recall_tool(mine)], capabilities=[processor]
        )
        done = await agent.run(
            "Read all.", event_stream_handler=drain, usage_limits=UsageLimits(request_limit=100)
        )
    check(server, mine, done.output)
    assert not mine.notes, "it knows its own list again"


async def test_a_window_smaller_than_said_is_learned_from_the_refusal() -> None:
    mine = engine(window=WINDOW, max_output=OUTPUT)
    async with LoopbackProvider(answer, limits=SMALLER) as server, client(server) as provider:
        agent = Agent(model(provider), tools=[read_file], capabilities=[EngineCapability(mine)])
        done = await agent.run(
            "Read all.", event_stream_handler=drain, usage_limits=UsageLimits(request_limit=100)
        )
    check_learned(server, mine, done.output)
