"""Harness for a root session and its subagents in memory and virtual time; one model plays all
of them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from longrein.agent import InboxMessage, Limits, OpenSession, UserMessage, builtin_kinds
from longrein.context import Request
from longrein.events import SubagentStarted, Text
from longrein.models import Delta, Failure, Reply
from longrein.permissions import Rules
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import (
    memory_dependencies,
    memory_tools,
    open_test_session,
    results,
    said,
)
from longrein.testing.scripted_model import ScriptedModel, call
from longrein.testing.store import MemoryDisk
from longrein.testing.workspace import MemorySpawner, MemoryWorkspace, Ran
from longrein.tools import SubagentType, Tool, agent_tool

Answer = Callable[[Request], Reply | Failure]


class ScriptedAgents(ScriptedModel):
    """A model for all agents: a conversation plays the part that its first text names."""

    def __init__(
        self, clock: VirtualClock, parts: dict[str, Sequence[Reply | Failure | Answer]], **more: Any
    ) -> None:
        super().__init__(**more)
        self.clock, self.parts = clock, {name: list(steps) for name, steps in parts.items()}
        self.names: dict[str, str] = {}
        """Text -> part of conversations that begin with it, where the part is not named."""
        self.latency_s: dict[str, float] = {}
        self.by_part: dict[str, list[Request]] = {name: [] for name in parts}
        self.at_once = self.most = 0

    def _next(self, request: Request) -> Reply | Failure:
        first = next(
            (text for text in said(request) if not text.startswith(("# ", "[longrein:"))), ""
        )
        named = next((part for words, part in self.names.items() if words in first), "")
        part = named or next((name for name in self.parts if name in first), "main")
        self.by_part[part].append(request)
        step = self.parts[part].pop(0)
        return step(request) if callable(step) else step

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            first = " ".join(said(request))
            await self.clock.sleep(
                next((s for name, s in self.latency_s.items() if name in first), 0.1)
            )
            async for batch in super().stream(request):
                yield batch
        finally:
            self.at_once -= 1

    def check_done(self) -> None:
        left = {name: len(steps) for name, steps in self.parts.items() if steps}
        assert not left, f"not played: {left}"


class SubagentHarness:
    """A root session with scripted subagents."""

    def __init__(
        self, *, limits: Limits | None = None, **parts: Sequence[Reply | Failure | Answer]
    ) -> None:
        self.clock = VirtualClock()
        self.disk = MemoryDisk()
        self.commands: dict[str, Ran | str] = {}
        self.spawner = MemorySpawner(self.commands, self.clock)
        self.space = MemoryWorkspace({"/w/a.py": "a = 1\n"}, spawner=self.spawner)
        self.rules: Rules | None = None
        self.limits = limits or Limits()
        self.model = ScriptedAgents(self.clock, parts)
        self.heard: list[Any] = []
        self.more: Sequence[Tool] = ()
        self.first: Sequence[InboxMessage] = ()
        """Messages before the prompt."""
        self.kinds: tuple[SubagentType, ...] = ()
        self.models: Sequence[ScriptedModel] = ()

    def open(self, mode: str = "bypassPermissions") -> OpenSession:
        tools = (*memory_tools(), agent_tool((*builtin_kinds(), *self.kinds)), *self.more)
        deps = memory_dependencies(
            self.model,
            self.disk,
            workspace=self.space,
            clock=self.clock,
            tools=tools,
            rules=self.rules,
            models=self.models,
        )
        deps.kinds = (*builtin_kinds(), *self.kinds)
        deps.limits = self.limits
        return open_test_session(self.model, disk=self.disk, deps=deps, mode=mode)

    def play(
        self,
        words: str = "go",
        mode: str = "bypassPermissions",
        meanwhile: Callable[[OpenSession], Awaitable[None]] | None = None,
        *,
        at: dict[float, Callable[[OpenSession], Any]] | None = None,
        stay: bool = False,
    ) -> None:
        """Send `words` and run the turn to its end; meanwhile call the functions of `at` at
        their seconds.
        """

        async def act(session: OpenSession) -> None:
            for second, function in sorted((at or {}).items()):
                await self.clock.sleep(second - self.clock.elapsed_s)
                done = function(session)
                if isinstance(done, Awaitable):
                    await done

        async def main() -> None:
            session = self.open(mode)
            listening = asyncio.ensure_future(self.listen(session))
            if stay:
                session.stay("steer", 3600)
            for word in self.first:
                session.tell(word)
            if words:
                session.tell(UserMessage((Text(words),)))
            beside = asyncio.ensure_future((meanwhile or act)(session))
            await session.run(once=True)
            await beside
            await session.close()
            await listening

        run_virtual(main(), clock=self.clock)
        self.model.check_done()

    async def listen(self, session: OpenSession) -> None:
        async for heard in session.follow():
            self.heard.append(heard)

    def result(self) -> str:
        """Return the last result that the root's model was shown."""
        return results(self.model.by_part["main"][-1])[-1]

    def labels(self) -> list[str]:
        """Return the labels of the root's subagents."""
        return [
            f"a{e.seq}"
            for e in self.disk.entries()
            if isinstance(e.event, SubagentStarted) and not e.event.again
        ]

    def events(self, kind: type) -> list[Any]:
        return [e.event for e in self.disk.entries() if isinstance(e.event, kind)]


def agent(prompt: str, **more: Any) -> Any:
    return call("Agent", description=more.pop("description", "look around"), prompt=prompt, **more)


def tasks(*prompts: str, **more: Any) -> Any:
    listed = [{"description": f"part {n}", "prompt": prompt} for n, prompt in enumerate(prompts, 1)]
    return call("Agent", description="several", tasks=listed, **more)
