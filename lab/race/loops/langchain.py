"""LangChain's agent (`create_agent`) over Chat Completions, with its own middleware and
deepagents'.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from deepagents.backends import FilesystemBackend
from deepagents.middleware.summarization import create_summarization_middleware
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain_core.exceptions import ContextOverflowError
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from lab.race.loops.client import MODEL, new_client
from lab.race.played import SESSION, Played
from lab.race.workspace import REQUIRED, SCHEMAS, SYSTEM
from longrein.integrations.langchain import ContextMiddleware

RECURSION_LIMIT = 5_000
"""Steps of a run; LangChain's default would end a turn early."""
Middleware = Callable[[Played, Any], list[Any]]


class CutWhenRefused(AgentMiddleware):
    """Outermost middleware: what no policy could avert is answered by a list cut in half."""

    def __init__(self, played: Played) -> None:
        super().__init__()
        self.played = played

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Make a request; after a refusal make it again, cut."""
        for _ in range(3):
            try:
                return await handler(request)
            except ContextOverflowError:
                self.played.served.cut_next = True
        return await handler(request)


def keep_all(_played: Played, _model: Any) -> list[Any]:
    """Return no middleware."""
    return []


def summarization(_played: Played, model: Any) -> list[Any]:
    """Trigger and keep are the fractions of LangChain's documentation; the rest are its
    defaults.
    """
    return [SummarizationMiddleware(model, trigger=("fraction", 0.8), keep=("fraction", 0.3))]


def context_editing(played: Played, _model: Any) -> list[Any]:
    """Defaults (100,000 tokens, 3 results stay), but at most half of the window, so that it can
    act in small ones.
    """
    return [
        ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=min(100_000, played.limit // 2))])
    ]


def deepagents(played: Played, model: Any) -> list[Any]:
    """Return the middleware of `create_deep_agent`: 85 % and 10 % of the window, all history for
    the summary.
    """
    backend = FilesystemBackend(root_dir=played.folder, virtual_mode=True)
    return [create_summarization_middleware(model, backend)]


def longrein(played: Played, _model: Any) -> list[Any]:
    """The middleware of docs/library.md."""
    return [ContextMiddleware(**played.engine_options)]


async def play(middleware: Middleware, played: Played) -> None:
    """Play a session."""
    logging.getLogger("langchain").setLevel(logging.ERROR)
    async with new_client(played.base_url) as client:
        model = ChatOpenAI(
            model=MODEL,
            base_url=played.base_url,
            api_key="none",
            async_client=client.chat.completions,
            root_async_client=client,
            max_retries=0,
            profile={"max_input_tokens": played.limit, "tool_calling": True},
        )
        agent = create_agent(
            model,
            _tools(played),
            system_prompt=SYSTEM,
            middleware=[CutWhenRefused(played), *middleware(played, model)],
            checkpointer=InMemorySaver(),
        )
        config = {"recursion_limit": RECURSION_LIMIT, "configurable": {"thread_id": SESSION}}
        for user in played.users:
            await agent.ainvoke({"messages": [("user", user)]}, config, durability="exit")


def _tools(played: Played) -> list[StructuredTool]:
    def tool(name: str, description: str, fields: dict[str, str]) -> StructuredTool:
        async def run(**arguments: Any) -> str:
            return played.run_tool(name, arguments)

        schema = {
            "type": "object",
            "title": name,
            "properties": {field: {"type": kind} for field, kind in fields.items()},
            "required": REQUIRED[name],
        }
        return StructuredTool(name=name, description=description, args_schema=schema, coroutine=run)

    return [tool(*one) for one in SCHEMAS]


POLICIES: dict[str, Callable[[Played], Awaitable[None]]] = {
    "keep all": partial(play, keep_all),
    "SummarizationMiddleware": partial(play, summarization),
    "ContextEditingMiddleware": partial(play, context_editing),
    "deepagents": partial(play, deepagents),
    "longrein": partial(play, longrein),
}
