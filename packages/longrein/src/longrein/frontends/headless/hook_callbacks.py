"""Answers of the program that runs longrein besides permissions: hooks that are functions of it
(`hook_callback`), and questions to the user of other programs, such as MCP servers (`elicitation`).
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from longrein.agent.extension_part import AskUser, user_answer
from longrein.agent.hooks import HookHandler, HookOutput, HookPlace
from longrein.frontends.headless.control_lines import ControlChannel, ControlError
from longrein.frontends.headless.initialize import Initialize
from longrein.frontends.headless.run_state import PROGRAM
from longrein.permissions import Hook

BLOCKED = 2
"""Exit code of a hook that blocks."""


class CallbackHandler:
    """Hook handler that is a function of the program."""

    def __init__(self, hook: Hook, channel: ControlChannel, *, blocks_on_failure: bool) -> None:
        self.hook = hook
        self._channel, self._blocks_on_failure = channel, blocks_on_failure

    async def run(self, data: bytes, place: HookPlace) -> HookOutput:
        event = msgspec.json.decode(data)
        fields = {
            "callback_id": self.hook.name,
            "input": event,
            "tool_use_id": event.get("tool_use_id"),
        }
        try:
            async with asyncio.timeout(place.limit_s):
                answer = await self._channel.request("hook_callback", fields)
        except TimeoutError:
            return self._failed(f"no answer within {place.limit_s:g} s")
        except ControlError as error:
            if self._channel.is_closed and not self._blocks_on_failure:
                return HookOutput()
            return self._failed(str(error))
        return HookOutput(
            stdout=msgspec.json.encode(answer).decode()
            if isinstance(answer, dict) and answer
            else ""
        )

    def _failed(self, why: str) -> HookOutput:
        """Return the outcome of a function that failed: it blocks where it is to."""
        if self._blocks_on_failure:
            return HookOutput(code=BLOCKED, stderr=f"the hook failed: {why}")
        return HookOutput(problem=why)


def callback_handlers(given: Initialize, channel: ControlChannel) -> Iterator[HookHandler]:
    """Yield a handler for each function that `given` names."""
    for group in given.hooks:
        for callback in group.callbacks:
            hook = Hook(
                group.event,
                callback,
                PROGRAM,
                group.matcher,
                timeout_s=group.timeout_s,
                kind="callback",
            )
            yield CallbackHandler(hook, channel, blocks_on_failure=group.blocks_on_failure)


def elicitation(channel: ControlChannel) -> AskUser:
    """Return the function that lets the program answer for the user; one that cannot declines."""

    async def ask(server: str, message: str, schema: Mapping[str, Any], url: str) -> Any:
        mode: Mapping[str, Any] = (
            {"mode": "url", "url": url} if url else {"mode": "form", "requested_schema": schema}
        )
        try:
            answer = await channel.request(
                "elicitation", {"mcp_server_name": server, "message": message, **mode}
            )
        except ControlError:
            return "decline", {}
        return user_answer(answer)

    return ask
