"""Context engine as an input filter of the OpenAI Agents SDK. The SDK's session stays whole.

    from longrein_context.integrations.openai_agents import EngineHooks, engine, input_filter
    mine = engine(window=200_000, max_output=8_192)
    agent = Agent("reader", tools=[...])
    config = RunConfig(call_model_input_filter=input_filter(mine))
    await Runner.run(agent, "…", hooks=EngineHooks(mine), run_config=config)

Needs `pip install longrein[openai-agents]`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from agents import FunctionTool, RunHooks
from agents.run import CallModelData, ModelInputData

from longrein_context.integrations import engine
from longrein_context.message_list import RECALL, RECALL_DESCRIPTION, RECALL_SCHEMA, Engine

__all__ = ["EngineHooks", "engine", "input_filter", "recall_tool"]

Filter = Callable[[CallModelData[Any]], Awaitable[ModelInputData]]


def input_filter(engine: Engine) -> Filter:
    """Create the filter for `RunConfig.call_model_input_filter`. Its list must be the whole
    conversation so far.
    """

    async def filter_input(data: CallModelData[Any]) -> ModelInputData:
        front = (
            [{"role": "system", "content": data.model_data.instructions}]
            if data.model_data.instructions
            else []
        )
        view = await engine.aprepare([*front, *data.model_data.input])
        return ModelInputData(input=view[len(front) :], instructions=data.model_data.instructions)

    return filter_input


class EngineHooks(RunHooks[Any]):
    """Hooks that report the provider's token usage to the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def on_llm_end(self, _context: Any, _agent: Any, response: Any) -> None:
        self._engine.observe(response)


class _RecallArguments(msgspec.Struct):
    handle: str
    lines: str = ""


def recall_tool(engine: Engine) -> FunctionTool:
    """Create the tool `Recall`."""

    async def recall(_context: Any, arguments: str) -> str:
        try:
            wanted = msgspec.json.decode(arguments, type=_RecallArguments)
        except (msgspec.DecodeError, RecursionError) as error:
            return f"[bad-arguments] {error}; correct the call and send it again"
        return engine.recall(wanted.handle, wanted.lines)

    schema = {**msgspec.to_builtins(RECALL_SCHEMA), "additionalProperties": False}
    return FunctionTool(RECALL, RECALL_DESCRIPTION, schema, recall, strict_json_schema=False)
