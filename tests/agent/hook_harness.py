"""Harness for sessions with hooks: real processes and files, hooks from a settings file, a
scripted model.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longrein.agent import InboxMessage, OpenSession, UserMessage
from longrein.agent.hooks import HookTable
from longrein.agent.messages import UserNotice
from longrein.agent.model_hooks import handler_of
from longrein.config.hook_files import HookFile, expanded_headers, parse_hooks
from longrein.events import HookAnswered, Text, ToolCall, ToolEnded, ToolStarted, text_of
from longrein.permissions import Rules
from longrein.testing.harness import Approver
from longrein.testing.scripted_model import ScriptedModel, call, says

from .disk_harness import DiskHarness

NO_RULES = Rules()
TOUCH = call("Bash", command="touch ran.txt")
ALLOW = {"Bash": "allow", "Write": "allow"}


def command(event: str, line: str, matcher: str = "", **more: Any) -> dict[str, Any]:
    """One command hook, in the shape of `.claude/settings.json`."""
    return {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": line, **more}]}]}


def joined(*tables: dict[str, Any]) -> dict[str, Any]:
    """Several tables of hooks as one."""
    table: dict[str, Any] = {}
    for one in tables:
        for event, groups in one.items():
            table.setdefault(event, []).extend(groups)
    return table


class HookHarness(DiskHarness):
    """A session with hooks. After `run`: what the user saw, was asked, and the log.

    `made` is the call of `play_call`.
    """

    def __init__(self, folder: Path, made: ToolCall = TOUCH) -> None:
        super().__init__(folder)
        self.made = made
        self.notices: list[str] = []
        self.approver = Approver()
        self.table = HookTable()

    def load(self, hooks: dict[str, Any], *, is_own: bool = True, **options: Any) -> HookTable:
        """Read a table of hooks as from a settings file."""
        read = json.loads(json.dumps(hooks))
        file = HookFile("settings.json", "settings.json", is_own=is_own)
        found, notes = parse_hooks(read, file, str(self.tree))
        assert notes == [], notes
        handlers = [
            handler_of(hook, expanded_headers(hook, {"KEY": "k1", "OTHER": "no"})) for hook in found
        ]
        return HookTable(handlers, env={"CLAUDE_PROJECT_DIR": str(self.tree)}, **options)

    async def run(
        self,
        hooks: dict[str, Any] | HookTable,
        model: ScriptedModel,
        *prompts: str | InboxMessage,
        answers: Any = None,
        create: bool = True,
        **more: Any,
    ) -> OpenSession:
        """Play `prompts`; questions are answered from `answers`."""
        self.table = hooks if isinstance(hooks, HookTable) else self.load(hooks)
        self.approver = Approver(answers)
        more.setdefault("rules", NO_RULES)
        async with self.session(model, create=create, hooks=self.table, **more) as session:
            listening = asyncio.ensure_future(self._listen(session))
            async with self.approver.answering(session):
                for prompt in prompts:
                    session.tell(
                        UserMessage((Text(prompt),)) if isinstance(prompt, str) else prompt
                    )
                    await session.run(once=True)
            await asyncio.sleep(0)
            listening.cancel()
        return session

    async def play_call(
        self,
        hooks: dict[str, Any] | HookTable,
        *replies: Any,
        made: Sequence[ToolCall] = (),
        **more: Any,
    ) -> ScriptedModel:
        """Play a reply with calls, `replies` and the end of the turn."""
        model = ScriptedModel(says(*(made or (self.made,))), *replies, says("done"))
        await self.run(hooks, model, "go", **{"answers": ALLOW, **more})
        return model

    async def _listen(self, session: OpenSession) -> None:
        async for heard in session.follow(0, streaming=False):
            if isinstance(heard, UserNotice):
                self.notices.append(heard.text)

    def of(self, kind: type) -> list[Any]:
        """All events of a type in the log."""
        return [entry.event for entry in self.entries() if isinstance(entry.event, kind)]

    @property
    def answered(self) -> list[tuple[str, str]]:
        """(event, decision) of each answer in the log."""
        return [(one.event, one.decision) for one in self.of(HookAnswered)]

    @property
    def started(self) -> list[str]:
        """Names of the tools that ran."""
        return [one.name for one in self.of(ToolStarted)]

    @property
    def results(self) -> list[str]:
        """`status: text` of each result."""
        return [f"{one.status}: {text_of(one.parts)}" for one in self.of(ToolEnded)]
