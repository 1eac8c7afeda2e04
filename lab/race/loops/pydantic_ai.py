"""Pydantic AI's agent over Chat Completions, with history processors and longrein's capability."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pydantic_ai import Agent, RetryModelRequest, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability, ProcessHistory
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from lab.race.loops.client import MODEL, new_client
from lab.race.played import Played
from lab.race.workspace import REQUIRED, SCHEMAS, SYSTEM
from longrein.integrations.pydantic_ai import EngineCapability, engine

Chat = list[ModelMessage]
Capabilities = Callable[[Played, Any], list[Any]]
TRIGGER, KEEP = 0.8, 0.3
"""Shares of the window: when a history processor acts, and what it keeps."""


class CutWhenRefused(AbstractCapability[Any]):
    """Outermost capability: what no policy could avert is answered by a list cut in half."""

    def __init__(self, played: Played) -> None:
        self.played = played

    async def on_model_request_error(
        self, _ctx: Any, *, request_context: Any, error: Exception
    ) -> Any:
        """Repeat a refused request, cut."""
        if isinstance(error, ModelContextWindowExceededError) and request_context.attempt < 4:
            self.played.served.cut_next = True
            raise RetryModelRequest from error
        raise error


def keep_all(_played: Played, _model: Any) -> list[Any]:
    """Return no capability."""
    return []


def keep_recent(played: Played, _model: Any) -> list[Any]:
    """The documentation's processor that keeps recent messages by the usage so far; calls stay
    with their results.
    """

    def process(_ctx: RunContext[Any], chat: Chat) -> Chat:
        at = _cut(chat, played)
        return chat if not at else [chat[0], *chat[at:]]

    return [ProcessHistory(process)]


def summarise(played: Played, model: Any) -> list[Any]:
    """The documentation's processor that summarises old messages by an agent; calls stay with
    their results.
    """
    summarizer = Agent(
        model,
        instructions="Summarize this conversation, omitting small talk. Keep technical details.",
    )

    async def process(_ctx: RunContext[Any], chat: Chat) -> Chat:
        at = _cut(chat, played)
        if not at:
            return chat
        done = await summarizer.run(
            "Summarize the conversation.", message_history=_completed(chat[:at])
        )
        return [*done.new_messages(), *chat[at:]]

    return [ProcessHistory(process)]


def longrein(played: Played, _model: Any) -> list[Any]:
    """The capability of docs/library.md."""
    return [EngineCapability(engine(**played.engine_options))]


def _cut(chat: Chat, played: Played) -> int:
    """Return where the kept messages begin when the last request was beyond the trigger; 0 to
    keep all.
    """
    last = next((one for one in reversed(chat) if isinstance(one, ModelResponse)), None)
    if last is None or last.usage.input_tokens + last.usage.output_tokens < TRIGGER * played.limit:
        return 0
    sizes = [len(str(one.parts)) for one in chat]
    goal = sum(sizes) / TRIGGER * KEEP
    at = len(chat) - 1
    while at > 1 and goal > sizes[at]:
        goal -= sizes[at]
        at -= 1
    while at < len(chat) - 1 and not isinstance(chat[at], ModelResponse):
        at += 1  # a request with results needs the response with their calls
    while at > 1 and _has_results(chat[at]):
        at -= 1
    return at


def _has_results(one: ModelMessage) -> bool:
    return isinstance(one, ModelRequest) and any(
        isinstance(part, ToolReturnPart) for part in one.parts
    )


def _completed(chat: Chat) -> Chat:
    """Return a history whose last message is a response without calls, or a request."""
    while chat and isinstance(chat[-1], ModelResponse) and chat[-1].tool_calls:
        chat = chat[:-1]
    return chat


async def play(capabilities: Capabilities, played: Played) -> None:
    """Play a session."""
    async with new_client(played.base_url) as client:
        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
        agent = Agent(
            model,
            instructions=SYSTEM,
            tools=_tools(played),
            capabilities=[CutWhenRefused(played), *capabilities(played, model)],
        )
        history: Chat = []
        for user in played.users:
            done = await agent.run(
                user, message_history=history, usage_limits=UsageLimits(request_limit=None)
            )
            history = done.all_messages()


def _tools(played: Played) -> list[Tool[Any]]:
    def tool(name: str, description: str, fields: dict[str, str]) -> Tool[Any]:
        async def run(**arguments: Any) -> str:
            return played.run_tool(name, arguments)

        schema = {
            "type": "object",
            "properties": {field: {"type": kind} for field, kind in fields.items()},
            "required": REQUIRED[name],
        }
        return Tool.from_schema(run, name, description, schema, sequential=True)

    return [tool(*one) for one in SCHEMAS]


POLICIES: dict[str, Callable[[Played], Awaitable[None]]] = {
    "keep all": partial(play, keep_all),
    "ProcessHistory, recent": partial(play, keep_recent),
    "ProcessHistory, summary": partial(play, summarise),
    "longrein": partial(play, longrein),
}
