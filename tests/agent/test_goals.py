"""Goals in whole sessions: one adds and claims, a later one is told of the tools and finishes,
the logs know it all.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from longrein.agent import UserMessage
from longrein.app import Additions, App, AppSession
from longrein.app.run_context import read_run_context
from longrein.options import Options
from longrein.store import Goals, project_key, read_entries
from longrein.testing.harness import results
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein_context.events import Entry, GoalChanged, PrefixSet, Text
from tests.agent.disk_harness import events_of

pytestmark = pytest.mark.anyio


async def run_session(
    tmp_path: Path,
    *steps: object,
    folder: str = "work",
    look: Callable[[AppSession], Awaitable[None]] | None = None,
) -> tuple[ScriptedModel, list[Entry]]:
    """One session from its start to its end; the model and the log. `look` sees it before its
    end.
    """
    (tmp_path / folder).mkdir(exist_ok=True)
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    run_context = read_run_context(
        Options(state_dir=str(tmp_path / "state")), environ, folder=str(tmp_path / folder)
    )
    model = ScriptedModel(*steps)  # type: ignore[arg-type]
    built = await App(run_context, print).open(fresh=True, additions=Additions(model=model))
    built.session.tell(UserMessage((Text("go on with the goals"),)))
    await built.session.run(once=True)
    if look is not None:
        await look(built)
    await built.session.close()
    model.check_done()
    return model, list(read_entries(str(tmp_path / "state"), built.session.id))


def told(entries: list[Entry]) -> list[str]:
    """The goal tools that the model was told of at the start."""
    prefix = next(entry.event for entry in entries if isinstance(entry.event, PrefixSet))
    return [spec.name for spec in prefix.deferred if spec.name.startswith("Goal")]


def changes(entries: list[Entry]) -> list[tuple[int, str]]:
    return [(e.goal.id, e.goal.status) for e in events_of(entries, GoalChanged)]


async def test_s12_goals_outlive_the_session_that_made_them(tmp_path: Path) -> None:
    model, log = await run_session(
        tmp_path,
        says(call("GoalAdd", title="Design"), call("GoalAdd", title="Build", blocked_by=[1])),
        says(call("GoalUpdate", id=1, claim=True)),
        says("to be continued"),
    )
    assert told(log) == ["GoalAdd", "GoalUpdate", "GoalList"]
    assert changes(log) == [(1, "pending"), (2, "pending"), (1, "in_progress")]
    assert results(model.requests[-1]) == [
        "GoalAdd ok: Added goal 1.",
        "GoalAdd ok: Added goal 2, waits for 1.",
        "GoalUpdate ok: Goal 1 is in progress, yours.",
    ]
    model, log = await run_session(
        tmp_path,
        says(call("GoalList")),
        says(call("GoalUpdate", id=1, status="completed")),  # whoever had claimed it has left
        says("I go on"),
    )
    assert told(log) == ["GoalAdd", "GoalUpdate", "GoalList"]
    # what it has learnt
    assert changes(log) == [(1, "in_progress"), (2, "pending"), (1, "completed"), (2, "pending")]
    listed, done = results(model.requests[-1])
    assert listed == "GoalList ok: 1. Design [in progress, ready]\n2. Build [pending, waits for 1]"
    assert done == "GoalUpdate ok: Goal 1 is completed. Nothing blocks now: 2 (Build)."
    _, log = await run_session(tmp_path, says("nothing to do"), folder="elsewhere")
    assert changes(log) == []  # another project


async def test_a_claim_is_made_in_the_name_of_the_session(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    key, now = project_key(str(tmp_path / "work")), 0
    other = Goals(str(tmp_path / "state"), key, "6f9d0000-0000-4000-8000-000000000002", lambda: now)
    await other.add("Design", "", ())

    async def look(built: AppSession) -> None:
        nonlocal now
        now = built.deps.clock.wall_us()
        held = (await other.goals())[0]
        assert held.owner == built.session.id
        assert held.lease_until > now

    await run_session(tmp_path, says(call("GoalUpdate", id=1, claim=True)), says("ok"), look=look)
