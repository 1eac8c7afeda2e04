"""Harness for sessions in memory and virtual time: subagents, background tasks, kills.

Disk, supervisor and clock outlive each session.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from lab.support.supervision import MemorySupervision
from longrein.agent import (
    Dependencies,
    InboxMessage,
    Limits,
    OpenSession,
    TaskOptions,
    TaskPool,
    UserMessage,
    builtin_kinds,
)
from longrein.agent.background.task_control import BackgroundControl
from longrein.agent.session_part import BackgroundTasks
from longrein.models import Delta, Failure, Reply
from longrein.permissions import Rules
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import (
    kill,
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
from longrein_context import Request
from longrein_context.events import SubagentStarted, Text

T = TypeVar("T")
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


class MemoryHarness:
    """A root session and its subagents.

    With `commands` a supervisor runs these, also in the background. `parts`: the replies of each
    agent, where one model plays them all.
    """

    def __init__(
        self,
        commands: Any = None,
        *,
        limits: Limits | None = None,
        tasks_max: int = 32,
        options: TaskOptions | None = None,
        **parts: Sequence[Reply | Failure | Answer],
    ) -> None:
        self.clock, self.disk = VirtualClock(), MemoryDisk()
        self.commands: dict[str, Ran | str] = {}
        spawner: Any = MemorySpawner(self.commands, self.clock)
        self.supervision: Any = None
        if commands is not None:
            spawner = self.supervision = MemorySupervision(commands, self.clock)
            self.disk.spool = self.supervision.files
        self.space = MemoryWorkspace({"/w/a.py": "a = 1\n"}, spawner=spawner)
        self.rules: Rules | None = None
        self.limits, self.tasks_max = limits or Limits(), tasks_max
        self.options, self.profile = options or TaskOptions(), "default"
        self.model: Any = ScriptedAgents(self.clock, parts)
        self.heard: list[Any] = []
        self.more: Sequence[Tool] = ()
        self.first: Sequence[InboxMessage] = ()
        """Messages before the prompt."""
        self.kinds: tuple[SubagentType, ...] = ()
        self.models: Sequence[ScriptedModel] = ()

    def deps(self, model: ScriptedModel) -> Dependencies:
        kinds = (*builtin_kinds(), *self.kinds)
        deps = memory_dependencies(
            model,
            self.disk,
            workspace=self.space,
            clock=self.clock,
            tools=(*memory_tools(), agent_tool(kinds), *self.more),
            rules=self.rules,
            models=self.models,
        )
        deps.kinds, deps.limits, deps.task_options = kinds, self.limits, self.options
        if self.supervision is not None:
            pool = TaskPool(self.supervision, self.tasks_max)
            deps.parts[BackgroundTasks] = lambda: BackgroundControl(pool)
        return deps

    def open(
        self, model: ScriptedModel | None = None, mode: str = "bypassPermissions"
    ) -> OpenSession:
        model = model or self.model
        return open_test_session(
            model, disk=self.disk, deps=self.deps(model), mode=mode, profile=self.profile
        )

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return run_virtual(work(), clock=self.clock)

    async def crash(self, session: OpenSession, *tasks: "asyncio.Future[None]") -> None:
        """Kill longrein; the supervisor lives on."""
        await kill(session, self.disk, *tasks)
        self.supervision.leave()
        self.disk.reopen()
        self.disk.kill()

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
            session = self.open(mode=mode)
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

        self.run(main)
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

    def of(self, kind: type) -> list[Any]:
        """Events of a type in the root's log."""
        return [entry.event for entry in self.disk.entries() if isinstance(entry.event, kind)]

    def below(self, kind: type) -> list[Any]:
        """Events of a type in the log of the only subagent."""
        (child,) = self.disk.children()
        return [entry.event for entry in self.disk.entries(child) if isinstance(entry.event, kind)]


def agent(prompt: str, **more: Any) -> Any:
    return call("Agent", description=more.pop("description", "look around"), prompt=prompt, **more)


def tasks(*prompts: str, **more: Any) -> Any:
    listed = [{"description": f"part {n}", "prompt": prompt} for n, prompt in enumerate(prompts, 1)]
    return call("Agent", description="several", tasks=listed, **more)


def background(command: str, **more: Any) -> Any:
    return call("Bash", command=command, run_in_background=True, **more)


def words(text: str) -> UserMessage:
    return UserMessage((Text(text),))


CRASH = object()
"""Step of `take_steps`: longrein is killed, and the session is opened again."""


def take_steps(harness: MemoryHarness, model: ScriptedModel, *steps: Any) -> None:
    """Open a session, take the steps and close it.

    A text is told and its turn run ('' runs what woke the agent), a number sleeps so many seconds,
    a function is called with the session, and its result awaited where it can be.
    """

    async def work() -> None:
        session = harness.open(model)
        for step in steps:
            if isinstance(step, str):
                if step:
                    session.tell(words(step))
                await session.run(once=True)
            elif isinstance(step, int | float):
                await harness.clock.sleep(step)
            elif step is CRASH:
                await harness.crash(session)
                session = harness.open(model)
            elif asyncio.iscoroutine(done := step(session)):
                await done
        await session.close()

    harness.run(work)


def one_turn(harness: MemoryHarness, model: ScriptedModel) -> None:
    """Run one prompt to its end, and end what is left."""
    take_steps(harness, model, "go", lambda session: session.leave("stop"))
    model.check_done()


def talk(
    harness: MemoryHarness,
    model: ScriptedModel,
    seconds: float,
    said_at: dict[float, Any] | None = None,
) -> None:
    """Keep the session open until `seconds`; messages are sent and functions called at their
    times.
    """

    async def work(session: OpenSession) -> None:
        session.tell(words("go"))
        walk = asyncio.ensure_future(session.run(once=False))
        for at, message in sorted((said_at or {}).items()):
            await harness.clock.sleep(at - harness.clock.elapsed_s)
            session.tell(message) if not callable(message) else message(session)
        await harness.clock.sleep(seconds - harness.clock.elapsed_s)
        await session.close()
        await walk

    take_steps(harness, model, work)
