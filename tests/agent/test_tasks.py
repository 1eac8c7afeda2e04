"""Background tasks in virtual time: what is written down, when the model is told, and what a crash leaves of it."""

from collections.abc import Callable
from typing import Any

import msgspec

from longrein.agent import Crew, OpenSession, Said, TaskOptions, TaskPool
from longrein.events import Entry, Reminded, TaskEnded, TaskStarted, Text
from longrein.testing.clock import SimLoop, VirtualClock, run_virtual
from longrein.testing.house import kill, memory_crew, open_test_session, results, said, story
from longrein.testing.model import ScriptedModel, Step, call, says
from longrein.testing.store import MemoryDisk
from longrein.testing.supervision import MemorySupervision
from longrein.testing.workspace import MemoryWorkspace, Ran


class Stage:
    """A disk, a supervisor and a clock that outlive each session."""

    def __init__(self, commands: Any, *, tasks_max: int = 32, **options: Any) -> None:
        self.clock, self.disk = VirtualClock(), MemoryDisk()
        self.supervision = MemorySupervision(commands, self.clock)
        self.disk.spool = self.supervision.files
        self.tasks_max, self.options = tasks_max, TaskOptions(**options)

    def crew(self, model: ScriptedModel) -> Crew:
        space = MemoryWorkspace(spawner=self.supervision)
        crew = memory_crew(model, self.disk, workspace=space, clock=self.clock)
        crew.pool = TaskPool(self.supervision, self.tasks_max)
        crew.task_options = self.options
        return crew

    def open(self, model: ScriptedModel) -> OpenSession:
        return open_test_session(model, disk=self.disk, crew=self.crew(model), mode="bypassPermissions")

    def of(self, kind: type) -> list[Any]:
        return [entry.event for entry in self.disk.entries() if isinstance(entry.event, kind)]

    def play(self, work: Callable[[], Any]) -> Any:
        return run_virtual(work(), clock=self.clock)


def background(command: str, **more: Any) -> Any:
    return call("Bash", command=command, run_in_background=True, **more)


def words(text: str) -> Said:
    return Said((Text(text),))


def test_a_task_runs_while_the_turn_ends_and_its_end_wakes_the_agent() -> None:
    stage = Stage({"make": Ran("built\n", delay_s=40)})
    model = ScriptedModel(says(background("make")), says("it builds"), says("it is built"))

    async def work() -> None:
        session = stage.open(model)
        session.tell(words("build"))
        await session.run(once=True)
        assert stage.clock.elapsed_s < 1
        assert [view.state for view in session.tasks()] == ["running"]
        await stage.clock.sleep(60)
        await session.run(once=True)
        assert [view.state for view in session.tasks()] == ["done"]
        await session.close()

    stage.play(work)
    model.check_done()
    assert "Started in the background as b1." in results(model.requests[1])[0]
    assert story(stage.disk.entries()).endswith("TurnEnded TaskEnded Reminded Reminded Asked Replied TurnEnded")
    notice = said(model.requests[2])[-1]
    assert notice.startswith("[longrein:n0nce bg_done: background tasks have ended]\n* b1 (make): done, exit code 0")
    assert notice.endswith("\n| built")
    ended = stage.of(TaskEnded)[0]
    assert (ended.task, ended.state, ended.code, ended.elapsed_ms, ended.tail) == ("b1", "done", 0, 40_000, "built")
    assert stage.disk.blobs()[ended.output] == b"built\n"
    assert not stage.supervision.spool, "settled"
