"""A plain loop over the `openai` library: a list of dicts and Chat Completions."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import openai

import longrein
from lab.race.loops.client import MODEL, new_client
from lab.race.played import Played
from lab.race.workspace import SYSTEM, tool_schemas
from longrein.integrations import did_not_fit

Chat = list[dict[str, Any]]
CLEARED = "[Old tool result content cleared]"
SUMMARISE = (
    "Summarise the conversation so far: goals, decisions, files, open work. Your summary "
    "replaces it."
)


class KeepAll:
    """Policy that sends the whole list."""

    tools: tuple[dict[str, Any], ...] = ()

    def __init__(self, played: Played) -> None:
        self.played = played

    async def view(self, chat: Chat, _ask: Callable[[Chat], Awaitable[str]]) -> Chat:
        """Return the list to send."""
        return chat

    def observe(self, usage: Any) -> None:
        """Take the usage of an answer."""

    def refused(self, _error: openai.BadRequestError) -> bool:
        """Return whether the policy answers a refusal with a shorter list."""
        return False

    def recall(self, arguments: dict[str, Any]) -> str:
        """Answer a call of `Recall`."""
        return f"there is no tool Recall ({arguments})"


class BatchClearing(KeepAll):
    """At 80 % of the window replace all results but the last ten by a fixed text; in one go, so
    rarely.
    """

    size = 0

    async def view(self, chat: Chat, _ask: Callable[[Chat], Awaitable[str]]) -> Chat:
        if self.size > 0.8 * self.played.limit:
            self.size = 0
            results = [one for one in chat if one["role"] == "tool"]
            for one in results[:-10]:
                one["content"] = CLEARED
        return chat

    def observe(self, usage: Any) -> None:
        self.size = usage.prompt_tokens + usage.completion_tokens


class Summary(BatchClearing):
    """At 85 % of the window replace all but the last 15 % by a summary, asked for with the
    cached list.
    """

    async def view(self, chat: Chat, ask: Callable[[Chat], Awaitable[str]]) -> Chat:
        if self.size <= 0.85 * self.played.limit:
            return chat
        text = await ask([*chat, {"role": "user", "content": SUMMARISE}])
        self.size = 0
        goal = sum(len(json.dumps(one)) for one in chat) * 0.15
        at = len(chat)
        while at > 2 and goal > 0:
            at -= 1
            goal -= len(json.dumps(chat[at]))
        while at < len(chat) and chat[at]["role"] == "tool":
            at += 1
        chat[1:at] = [{"role": "user", "content": f"Summary of the conversation so far:\n\n{text}"}]
        return chat


class Longrein(KeepAll):
    """longrein's engine, as docs/library.md shows it."""

    def __init__(
        self, played: Played, *, recall: bool = True, summaries: bool = False, **options: Any
    ) -> None:
        super().__init__(played)
        summarise = self._summarise if summaries else None
        self.engine = longrein.engine(**played.engine_options, summarise=summarise, **options)
        self.tools = (self.engine.recall_tool("openai-chat"),) if recall else ()

    async def _summarise(self, chat: Chat) -> str:
        return await self._ask(chat)

    async def view(self, chat: Chat, ask: Callable[[Chat], Awaitable[str]]) -> Chat:
        self._ask = ask
        return await self.engine.aprepare(chat, [*tool_schemas("openai-chat"), *self.tools])

    def observe(self, usage: Any) -> None:
        self.engine.observe(usage)

    def refused(self, error: openai.BadRequestError) -> bool:
        return did_not_fit(self.engine, error)

    def recall(self, arguments: dict[str, Any]) -> str:
        return self.engine.recall(**arguments)


async def play(make: Callable[[Played], KeepAll], played: Played) -> None:
    """Play a session."""
    policy = make(played)
    tools = [*tool_schemas("openai-chat"), *policy.tools]
    async with new_client(played.base_url) as client:

        async def ask(messages: Chat) -> str:
            reply = await client.chat.completions.create(
                model=MODEL, messages=messages, tools=tools, tool_choice="none"
            )
            return reply.choices[0].message.content or ""

        chat: Chat = [{"role": "system", "content": SYSTEM}]
        for user in played.users:
            chat.append({"role": "user", "content": user})
            while True:
                message = await _answer(client, policy, chat, tools, ask)
                chat.append(_as_dict(message))
                for call in message.tool_calls or ():
                    name, given = call.function.name, call.function.arguments
                    text = (
                        policy.recall(json.loads(given))
                        if name == "Recall"
                        else played.run_tool(name, given)
                    )
                    chat.append({"role": "tool", "tool_call_id": call.id, "content": text})
                if not message.tool_calls:
                    break


async def _answer(client: Any, policy: KeepAll, chat: Chat, tools: Any, ask: Any) -> Any:
    for attempt in range(4):
        try:
            reply = await client.chat.completions.create(
                model=MODEL, messages=await policy.view(chat, ask), tools=tools
            )
        except openai.BadRequestError as error:
            if not policy.refused(error) or attempt == 2:
                policy.played.served.cut_next = True
            continue
        policy.observe(reply.usage)
        return reply.choices[0].message
    raise RuntimeError("the provider refused a list four times")


def _as_dict(message: Any) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function.name, "arguments": call.function.arguments},
        }
        for call in message.tool_calls or ()
    ]
    return {
        "role": "assistant",
        "content": message.content,
        **({"tool_calls": calls} if calls else {}),
    }


POLICIES: dict[str, Callable[[Played], Awaitable[None]]] = {
    "keep all": partial(play, KeepAll),
    "clear results at 80 %": partial(play, BatchClearing),
    "summary at 85 %": partial(play, Summary),
    "longrein": partial(play, Longrein),
    "longrein, no Recall": partial(play, partial(Longrein, recall=False)),
    "longrein, summaries": partial(play, partial(Longrein, summaries=True)),
    "longrein, clears all kinds": partial(
        play, partial(Longrein, clears=("result", "call", "text"))
    ),
}
