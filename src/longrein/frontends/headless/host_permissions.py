"""Asks the program that runs longrein about calls that need permission, and hands its answers to
the session.
"""

import asyncio
from collections.abc import Callable

from longrein.agent import SessionPort
from longrein.events import PermissionAsked, ToolCall
from longrein.frontends.headless.control_lines import ControlChannel, ControlError
from longrein.frontends.headless.permission_prompt import (
    HostVerdict,
    question_fields,
    read_verdict,
    refused,
)
from longrein.frontends.headless.run_state import RunState
from longrein.frontends.stdio import cancel_all


class HostPermissions:
    """The open questions of one session and its subagents."""

    def __init__(
        self,
        session: SessionPort,
        channel: ControlChannel,
        notice: Callable[[str], None],
        report_state: Callable[[str], None],
    ) -> None:
        """`notice` takes lines for the user, `report_state` the states `requires_action` and
        `running`.
        """
        self._session, self._channel = session, channel
        self._notice, self._report_state = notice, report_state
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}

    def ask(self, asked: PermissionAsked, call: ToolCall, run_state: RunState, child: str) -> None:
        """Ask about `call`; the session gets the answer when it comes. `child`: session of the
        subagent that asks.
        """
        self.forget(asked.call, child)
        fields = question_fields(asked, call, run_state.qualified_id(asked.call), run_state.label)
        self._report_state("requires_action")
        run_state.decided.add(asked.call)
        self._asking[child, asked.call] = asyncio.create_task(
            self._ask(asked, call, child, fields, run_state.decided)
        )

    async def _ask(
        self,
        asked: PermissionAsked,
        call: ToolCall,
        child: str,
        fields: dict[str, object],
        decided: set[str],
    ) -> None:
        try:
            verdict = read_verdict(
                await self._channel.request("can_use_tool", fields), asked, call, child
            )
        except ControlError as error:
            if self._channel.is_closed:
                decided.discard(asked.call)
            verdict = refused(asked, str(error), child)
        await self._apply(verdict)

    async def _apply(self, verdict: HostVerdict) -> None:
        for line in verdict.notes:
            self._notice(line)
        if len(self._asking) < 2:
            self._report_state("running")
        told = [self._session.tell(word) for word in verdict.words]
        if verdict.interrupt:
            # before the answer is taken, so that the model is not asked again
            self._session.interrupt()
        for written in told:
            await written

    def forget(self, call: str, child: str = "") -> None:
        """Take back the question about a call that has ended."""
        task = self._asking.pop((child, call), None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Take back all questions."""
        asking, self._asking = list(self._asking.values()), {}
        await cancel_all(asking)
