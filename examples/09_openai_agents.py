"""The OpenAI Agents SDK with the engine as an input filter. Needs `pip install
longrein[openai-agents]`.
"""

import asyncio

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

from longrein.integrations.openai_agents import EngineHooks, engine, input_filter, recall_tool
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


@function_tool
def read_file(path: str) -> str:
    """Read a file."""
    return "\n".join(f"def line_{n}_of(text='{path}'): return {n}" for n in range(100))


async def main() -> None:
    limits = Limits(window_tokens=12_000)
    async with LoopbackProvider(model, limits=limits) as server:
        client = AsyncOpenAI(base_url=server.url + "/v1", api_key="none")
        mine = engine(window=12_000, max_output=1_000)
        agent = Agent(
            "reader",
            model=OpenAIResponsesModel("loopback", client),
            tools=[read_file, recall_tool(mine)],
        )
        config = RunConfig(call_model_input_filter=input_filter(mine), tracing_disabled=True)
        run = Runner.run_streamed(
            agent, "Read all the files.", max_turns=50, hooks=EngineHooks(mine), run_config=config
        )
        async for _ in run.stream_events():
            pass
        print(run.final_output, "requests:", len(server.requests), "refused:", len(server.refused))
        print("breaks:", mine.state.breaks, "session:", len(run.to_input_list()), "items, whole")
        await client.close()


asyncio.run(main())
