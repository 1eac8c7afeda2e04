"""The OpenAI Agents SDK over Responses, with its compaction session and longrein's input filter."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import openai
from agents import (
    Agent,
    FunctionTool,
    ModelSettings,
    OpenAIResponsesCompactionSession,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
)

from lab.race.loops.client import MODEL, new_client
from lab.race.played import SESSION, Played
from lab.race.workspace import REQUIRED, SCHEMAS, SYSTEM
from longrein.integrations import did_not_fit
from longrein.integrations.openai_agents import EngineHooks, engine, input_filter, recall_tool

MAX_TURNS = 1_000
"""Requests of a run; the SDK's default would end a turn early."""


class RefusableModel(OpenAIResponsesModel):
    """Model that repeats a refused request: prepared anew by `prepare`, and at last cut in half."""

    played: Played
    prepare: Callable[[openai.BadRequestError], Awaitable[Any]] | None = None

    async def get_response(self, **options: Any) -> Any:
        """Make a request."""
        for attempt in range(3):
            try:
                return await super().get_response(**options)
            except openai.BadRequestError as error:
                shorter = await self.prepare(error) if self.prepare and not attempt else None
                if shorter is None:
                    self.played.served.cut_next = True
                else:
                    options["input"] = shorter
        return await super().get_response(**options)


async def play(policy: str, played: Played) -> None:
    """Play a session under `keep all`, `compaction` or `longrein`."""
    async with new_client(played.base_url) as client:
        model = RefusableModel(MODEL, client)
        model.played = played
        tools, hooks, filtered = _tools(played), None, None
        session: Any = SQLiteSession(SESSION)
        if policy == "compaction":
            session = OpenAIResponsesCompactionSession(SESSION, session, client=client, model=MODEL)
        if policy == "longrein":
            mine = engine(**played.engine_options)
            tools, hooks = [*tools, recall_tool(mine)], EngineHooks(mine)
            filtered = _RememberingFilter(mine)
            model.prepare = filtered.again
        # `store=False`: the provider of the race keeps no conversations
        agent = Agent(
            "engineer",
            instructions=SYSTEM,
            model=model,
            tools=tools,
            model_settings=ModelSettings(store=False),
        )
        config = RunConfig(call_model_input_filter=filtered, tracing_disabled=True)
        for user in played.users:
            await Runner.run(
                agent, user, session=session, max_turns=MAX_TURNS, hooks=hooks, run_config=config
            )


class _RememberingFilter:
    """longrein's input filter, which can prepare the same list again after a refusal."""

    def __init__(self, mine: Any) -> None:
        self.mine, self._filter = mine, input_filter(mine)
        self._data: Any = None

    async def __call__(self, data: Any) -> Any:
        self._data = data
        return await self._filter(data)

    async def again(self, error: openai.BadRequestError) -> Any:
        """Return the shorter list, or None when the error is another one."""
        return (await self._filter(self._data)).input if did_not_fit(self.mine, error) else None


def _tools(played: Played) -> list[FunctionTool]:
    def tool(name: str, description: str, fields: dict[str, str]) -> FunctionTool:
        async def run(_context: Any, arguments: str) -> str:
            return played.run_tool(name, json.loads(arguments))

        schema = {
            "type": "object",
            "properties": {field: {"type": kind} for field, kind in fields.items()},
            "required": REQUIRED[name],
            "additionalProperties": False,
        }
        return FunctionTool(name, description, schema, run, strict_json_schema=False)

    return [tool(*one) for one in SCHEMAS]


POLICIES: dict[str, Callable[[Played], Awaitable[None]]] = {
    "keep all": partial(play, "keep all"),
    "compaction session": partial(play, "compaction"),
    "longrein": partial(play, "longrein"),
}
