"""Hooks that are functions of the program that runs longrein: the control request
`hook_callback`.
"""

from collections.abc import Iterator

import msgspec

from longrein.agent.hooks import HookHandler, HookOutput, HookPlace
from longrein.frontends.headless.control import ControlChannel, ControlError
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

    async def run(self, data: bytes, _place: HookPlace) -> HookOutput:
        """See `HookHandler.run`."""
        event = msgspec.json.decode(data)
        fields = {
            "callback_id": self.hook.name,
            "input": event,
            "tool_use_id": event.get("tool_use_id"),
        }
        try:
            answer = await self._channel.request("hook_callback", fields)
        except ControlError as error:
            if self._blocks_on_failure:
                return HookOutput(code=BLOCKED, stderr=f"the hook failed: {error}")
            return HookOutput() if self._channel.is_closed else HookOutput(problem=str(error))
        return HookOutput(
            stdout=msgspec.json.encode(answer).decode()
            if isinstance(answer, dict) and answer
            else ""
        )


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
