"""Subagents and tasks through the library API."""

from pathlib import Path
from typing import Any

import pytest

from longrein import Session
from longrein.agent import FromSubagent
from longrein.context import Request
from longrein.events import Entry, PermissionAsked, TaskStarted, TurnEnded, UsageError, UserSpoke
from longrein.models import Failure, Reply
from longrein.testing.harness import said
from longrein.testing.scripted_model import ScriptedModel, call, says

pytestmark = pytest.mark.anyio


class Two(ScriptedModel):
    """The session starts a subagent, which wants to write a file."""

    def _next(self, request: Request) -> Reply | Failure:
        self.requests.append(request)
        child = any("TASK" in text for text in said(request))
        results = sum(type(item.part).__name__ == "ToolResult" for item in request.items)
        if child:
            return says("written") if results else says(call("Write", file_path="n.txt", content="one"))
        if results:
            return says("done")
        return says(call("Agent", description="write it", prompt="TASK"))


async def test_subagents_are_followed_answered_and_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    session = await Session.open(Two(), folder=str(tmp_path), state_dir=str(tmp_path / "state"))
    await session.send("go")
    heard: list[Any] = []
    async for one in session.follow(children=True):
        heard.append(one)
        if (
            isinstance(one, FromSubagent)
            and isinstance(one.heard, Entry)
            and isinstance(one.heard.event, PermissionAsked)
        ):
            [view] = session.agents()
            assert (view.state, view.kind, view.description) == ("asking", "general", "write it")
            await session.answer(one.heard.event.call, "allow", child=one.child)
    assert (tmp_path / "n.txt").read_text() == "one"
    assert [view.state for view in session.agents()] == ["done"]
    assert [one.seq for one in heard if isinstance(one, Entry)] == list(range(1, heard[-1].seq + 1))
    plain = [entry async for entry in session.follow()]
    assert [entry.seq for entry in plain] == [one.seq for one in heard if isinstance(one, Entry)]
    await session.close()


async def test_tasks_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    model = ScriptedModel(says(call("Bash", command="sleep 30", run_in_background=True)), says("It runs."))
    session = await Session.open(
        model, folder=str(tmp_path), state_dir=str(tmp_path / "state"), permission_mode="bypassPermissions"
    )
    await session.send("go")
    entries = [entry async for entry in session.follow()]
    assert any(isinstance(entry.event, TaskStarted) for entry in entries)
    assert isinstance(entries[-1].event, TurnEnded)
    assert [(task.id, task.state, task.command) for task in session.tasks()] == [("b1", "running", "sleep 30")]
    await session.leave("stop")
    assert [task.state for task in session.tasks()] == ["killed"]
    await session.close()


async def test_words_for_a_subagent_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    session = await Session.open(Two(), folder=str(tmp_path), state_dir=str(tmp_path / "state"))
    await session.send("go")
    told: list[str] = []
    async for one in session.follow(children=True):
        event = one.heard.event if isinstance(one, FromSubagent) and isinstance(one.heard, Entry) else None
        if isinstance(event, PermissionAsked) and isinstance(one, FromSubagent):
            await session.send("be quick", to=one.child)
            await session.answer(event.call, "deny", child=one.child)
        if isinstance(event, UserSpoke):
            told.append(event.origin)
    assert told == ["prompt", "steer"]
    await session.close()


async def test_a_folder_that_is_not_there_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"^folder: .*/nowhere is not a folder$"):
        await Session.open(Two(), folder=str(tmp_path / "nowhere"), state_dir=str(tmp_path / "state"))
    assert list(tmp_path.iterdir()) == []
