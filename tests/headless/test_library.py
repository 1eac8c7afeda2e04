"""Subagents and tasks through the library API."""

from pathlib import Path
from typing import Any

import pytest

from longrein import Session
from longrein.agent import FromSubagent
from longrein.models import Failure, Reply
from longrein.testing.harness import said
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein_context import Request
from longrein_context.events import (
    Entry,
    PermissionAsked,
    TaskStarted,
    TurnEnded,
    UsageError,
    UserSpoke,
)

pytestmark = pytest.mark.anyio


class Two(ScriptedModel):
    """The session starts a subagent, which wants to write a file."""

    def _next(self, request: Request) -> Reply | Failure:
        self.requests.append(request)
        child = any("TASK" in text for text in said(request))
        results = sum(type(item.part).__name__ == "ToolResult" for item in request.items)
        if child:
            return (
                says("written")
                if results
                else says(call("Write", file_path="n.txt", content="one"))
            )
        if results:
            return says("done")
        return says(call("Agent", description="write it", prompt="TASK"))


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("HOME", str(tmp_path))
    return {"folder": str(tmp_path), "state_dir": str(tmp_path / "state")}


async def test_subagents_are_followed_told_answered_and_seen(here: dict[str, str]) -> None:
    session = await Session.open(Two(), **here)
    await session.send("go")
    heard: list[Any] = []
    async for update in session.follow(children=True):
        heard.append(update)
        match update:
            case FromSubagent(heard=Entry(event=PermissionAsked(call=call)), child=child):
                [view] = session.agents()
                assert (view.state, view.kind, view.description) == (
                    "asking",
                    "general",
                    "write it",
                )
                await session.send("be quick", to=child)
                await session.answer(call, "allow", child=child)
    assert Path(here["folder"], "n.txt").read_text() == "one"
    assert [view.state for view in session.agents()] == ["done"]
    told = [
        of.heard.event
        for of in heard
        if isinstance(of, FromSubagent) and isinstance(of.heard, Entry)
    ]
    assert [event.origin for event in told if isinstance(event, UserSpoke)] == ["prompt", "steer"]
    own = [entry.seq for entry in heard if isinstance(entry, Entry)]
    assert own == list(range(1, heard[-1].seq + 1))
    assert [entry.seq async for entry in session.follow()] == own
    await session.close()


async def test_tasks_are_seen(here: dict[str, str]) -> None:
    model = ScriptedModel(
        says(call("Bash", command="sleep 30", run_in_background=True)), says("It runs.")
    )
    session = await Session.open(model, **here, permission_mode="bypassPermissions")
    await session.send("go")
    entries = [entry async for entry in session.follow()]
    assert any(isinstance(entry.event, TaskStarted) for entry in entries)
    assert isinstance(entries[-1].event, TurnEnded)
    assert [(task.id, task.state, task.command) for task in session.tasks()] == [
        ("b1", "running", "sleep 30")
    ]
    await session.leave("stop")
    assert [task.state for task in session.tasks()] == ["killed"]
    await session.close()


async def test_a_folder_that_is_not_there_is_refused_before_anything_is_made(
    here: dict[str, str],
) -> None:
    nowhere = f"{here['folder']}/nowhere"
    with pytest.raises(UsageError, match=r"^folder: .*/nowhere is not a folder$"):
        await Session.open(Two(), folder=nowhere, state_dir=here["state_dir"])
    assert list(Path(here["folder"]).iterdir()) == []
