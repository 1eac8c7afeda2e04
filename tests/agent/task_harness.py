"""Harness for a session with background tasks in virtual time; disk, supervisor and clock
outlive the session.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from longrein.agent import Dependencies, OpenSession, TaskOptions, TaskPool, UserMessage
from longrein.agent.background.task_control import BackgroundControl
from longrein.agent.session_part import BackgroundTasks
from longrein.events import Text
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import kill, memory_dependencies, open_test_session
from longrein.testing.scripted_model import ScriptedModel, call
from longrein.testing.store import MemoryDisk
from longrein.testing.workspace import MemoryWorkspace
from tests.support.supervision import MemorySupervision

T = TypeVar("T")


class TaskHarness:
    """A disk, a supervisor and a clock that outlive each session."""

    def __init__(self, commands: Any, *, tasks_max: int = 32, **options: Any) -> None:
        self.clock, self.disk = VirtualClock(), MemoryDisk()
        self.supervision = MemorySupervision(commands, self.clock)
        self.disk.spool = self.supervision.files
        self.tasks_max, self.options = tasks_max, TaskOptions(**options)
        self.profile = "default"

    def deps(self, model: ScriptedModel) -> Dependencies:
        space = MemoryWorkspace(spawner=self.supervision)
        deps = memory_dependencies(model, self.disk, workspace=space, clock=self.clock)
        pool = TaskPool(self.supervision, self.tasks_max)
        deps.parts[BackgroundTasks] = lambda: BackgroundControl(pool)
        deps.task_options = self.options
        return deps

    def open(self, model: ScriptedModel) -> OpenSession:
        deps = self.deps(model)
        return open_test_session(
            model, disk=self.disk, deps=deps, mode="bypassPermissions", profile=self.profile
        )

    def of(self, kind: type) -> list[Any]:
        return [entry.event for entry in self.disk.entries() if isinstance(entry.event, kind)]

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return run_virtual(work(), clock=self.clock)

    async def crash(self, session: OpenSession, *tasks: "asyncio.Future[None]") -> None:
        """Kill longrein; the supervisor lives on."""
        await kill(session, self.disk, *tasks)
        self.supervision.leave()
        self.disk.reopen()
        self.disk.kill()


def background(command: str, **more: Any) -> Any:
    return call("Bash", command=command, run_in_background=True, **more)


def words(text: str) -> UserMessage:
    return UserMessage((Text(text),))


CRASH = object()
"""Step of `play`: longrein is killed, and the session is opened again."""


def play(harness: TaskHarness, model: ScriptedModel, *steps: Any) -> None:
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

    harness.play(work)


def one_turn(harness: TaskHarness, model: ScriptedModel) -> None:
    """Run one prompt to its end, and end what is left."""
    play(harness, model, "go", lambda session: session.leave("stop"))
    model.check_done()


def talk(
    harness: TaskHarness,
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

    play(harness, model, work)
