"""C1 under the OpenAI Agents SDK: a long turn of tool calls in a small window, against the real
package.
"""

import pytest

from longrein.testing.loopback import LoopbackProvider
from tests.integrations.long_session import LIMITS, OUTPUT, WINDOW, answer, check, read_file

pytest.importorskip("agents", reason="needs `make library` (pip install longrein[openai-agents])")

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI

from longrein.integrations.openai_agents import EngineHooks, engine, input_filter, recall_tool

pytestmark = pytest.mark.anyio


def client(server: LoopbackProvider) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.url + "/v1", api_key="k")


@pytest.mark.parametrize("wire", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
async def test_C1_thirty_calls_under_an_input_filter(wire: type) -> None:
    mine = engine(window=WINDOW, max_output=OUTPUT)
    async with LoopbackProvider(answer, limits=LIMITS) as server, client(server) as provider:
        model = wire("loopback", provider)
        tools = [function_tool(read_file), recall_tool(mine)]
        agent = Agent("reader", instructions="Be brief.", model=model, tools=tools)
        config = RunConfig(call_model_input_filter=input_filter(mine), tracing_disabled=True)
        run = Runner.run_streamed(
            agent, "Read all.", max_turns=100, hooks=EngineHooks(mine), run_config=config
        )
        async for _ in run.stream_events():
            pass
    check(server, mine, str(run.final_output))
