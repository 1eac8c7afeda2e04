"""When the work tree is kept, what a checkpoint tells of changes by others, and what is dropped."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest

from longrein.agent import checkpoints
from longrein.agent.checkpoints import SessionCheckpoints, needs_checkpoint, place_of
from longrein.events import CheckpointTaken
from longrein.workspace.tree_records import CheckpointError, TreeRecord
from tests.timeouts import until

pytestmark = pytest.mark.anyio
ROOT = "/work"


class Store:
    """Stands for the repositories: the next look finds `touched`, or fails with `problem`."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.done: list[str] = []
        self.touched: list[str] = []
        self.problem: Exception | None = None

    def take(
        self, roots: Sequence[str], *, trusts_watch: bool = False
    ) -> tuple[str, dict[str, TreeRecord]]:
        assert self.lock.locked()
        self.done.append("watch" if trusts_watch else "look")
        if self.problem:
            raise self.problem
        return "name", {ROOT: TreeRecord("tree", 0)}

    def take_touched(self) -> list[str]:
        found, self.touched = self.touched, []
        return found

    def shrink(self, bytes_max: int) -> int:
        self.done.append(f"shrink {bytes_max}")
        return 0

    def give_up(self) -> None:
        self.done.append("give up")

    def forget_indexes(self) -> None:
        self.done.append("forget")

    def close(self) -> None:
        self.done.append("close")


class Session:
    """Stands for a session with one root, whose commands are traced."""

    def __init__(self, **options: Any) -> None:
        self.store = Store()
        self.events: list[CheckpointTaken] = []
        self.said: list[str] = []
        self.claimed: set[str] = set()
        self.untraced, self.complete = False, True
        self.checkpoints = SessionCheckpoints(self.store, 100, **options)  # type: ignore[arg-type]
        self.checkpoints.session = self  # type: ignore[assignment]
        writers = SimpleNamespace(
            of=lambda path, _digest: path in self.claimed, take_untraced=lambda: self.untraced
        )
        self.deps = SimpleNamespace(workspace=self, writers=writers)
        self.roots = [ROOT]
        self.spawner = self
        self.append, self.notice, self.interrupting = self.events.append, self.said.append, False

    async def unwritten(self, touched: Sequence[str]) -> tuple[list[str], bool]:
        return [path for path in touched if "command" not in path], self.complete

    async def run_in_thread(self, work: Any) -> Any:
        return work()

    def hash(self, path: str) -> str:
        return "" if "link" in path else "digest"

    async def keep(self, when: str, calls: str = "", touched: str = "") -> str:
        """Keep the tree; return what is told of changes by others: `?` where it is not known."""
        self.store.touched += touched.split()
        await self.checkpoints.keep(when, calls.split())
        event = self.events[-1]
        assert (event.when, event.calls) == (when, tuple(calls.split()))
        return " ".join(event.unclaimed) if event.traced else "?"


def test_a_place_has_an_id_that_stays(tmp_path: Path) -> None:
    one = place_of(str(tmp_path / "a"), "/work")
    assert place_of(str(tmp_path / "a"), "/work") == one
    assert len({one, place_of(str(tmp_path / "a"), "/else"), place_of(str(tmp_path), "/work")}) == 3
    assert place_of(str(tmp_path / "a"), "/else").partition("-")[0] == one.partition("-")[0]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("access", "kind", "changes", "is_shared", "needed"),
    [
        ("read", "read", False, False, False),
        ("read", "read", False, True, False),
        ("write", "edit", False, False, False),  # the log records it
        ("write", "edit", False, True, True),  # other machines take it from the store
        ("execute", "run", True, False, True),
        ("execute", "run", False, False, False),
        ("read", "agent", False, False, True),
    ],
)
def test_calls_that_may_change_files_unrecorded_need_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
    access: str,
    kind: str,
    changes: bool,
    is_shared: bool,
    needed: bool,
) -> None:
    monkeypatch.setattr(checkpoints, "may_change", lambda *_: changes)
    tool: Any = SimpleNamespace(access=access, traits=SimpleNamespace(kind=kind))
    now: Any = None
    assert needs_checkpoint(now, tool, {}, is_shared=is_shared) is needed


async def test_only_around_calls_the_watch_is_trusted() -> None:
    session = Session()
    for when in ("opened", "before", "after", "rewind", "rewound"):
        await session.keep(when, "c")
    assert (await session.checkpoints.copy_tree())[0] == "name"
    assert session.store.done == ["look", "watch", "watch", "look", "look", "look"]
    assert session.said == []


async def test_the_space_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SHRINK_EVERY", 3)
    session = Session()
    for _ in range(7):
        await session.keep("before")
    looks = ["watch", "watch", "shrink 100", "watch"]
    assert session.store.done == [*looks, *looks, "watch"]


@pytest.mark.parametrize(
    ("touched", "claimed", "unclaimed"),
    [
        ("", "", ""),
        ("/work/a /work/b", "", "/work/a /work/b"),
        ("/work/b /work/a", "", "/work/a /work/b"),
        ("/work/a /work/b", "/work/a", "/work/b"),
        ("/work/a /work/command", "", "/work/a"),
        ("/work/link", "", "/work/link"),
        ("/work/link", "/work/link", ""),
        ("/work/a /work/b /work/c", "", "/work/"),
        ("/work/a /work/b /work/c", "/work/a", "/work/"),
    ],
)
async def test_what_others_changed_while_a_call_ran_is_named(
    monkeypatch: pytest.MonkeyPatch, touched: str, claimed: str, unclaimed: str
) -> None:
    monkeypatch.setattr(checkpoints, "UNCLAIMED_MAX", 2)
    session = Session()
    session.claimed = {*claimed.split()}
    await session.keep("before", "c")
    assert await session.keep("after", "c", touched) == unclaimed


async def test_what_changed_while_no_call_ran_is_not_named() -> None:
    session = Session()
    assert await session.keep("opened", "", "/work/a") == "?"
    assert await session.keep("before", "c d", "/work/a") == "?"
    assert await session.keep("after", "c", "/work/a") == "/work/a"
    assert await session.keep("after", "d", "/work/b") == "/work/b"
    assert await session.keep("before", "e", "/work/c") == "?"
    session.untraced = True
    assert await session.keep("after", "e", "/work/c") == "?"
    session.untraced = False
    await session.keep("before", "f")
    session.complete = False
    assert await session.keep("after", "f", "/work/c") == "?"


@pytest.mark.parametrize("problem", [CheckpointError("git is gone"), OSError(28, "git is gone")])
async def test_the_look_after_one_that_failed_tells_what_changed(problem: Exception) -> None:
    session = Session()
    await session.keep("before", "c")
    session.store.problem = problem
    assert await session.keep("after", "c") == "?"
    assert (session.events[-1].checkpoint, "git is gone" in session.events[-1].problem) == (
        "",
        True,
    )
    assert await session.keep("before", "d") == "?"
    session.store.problem = None
    assert await session.keep("after", "d", "/work/a") == "/work/a"
    assert await session.keep("before", "e", "/work/b") == "?"
    (said,) = session.said
    assert said.startswith("a rewind cannot undo what commands change (")


async def test_a_checkpoint_after_a_call_is_given_up_only_when_the_turn_is() -> None:
    session = Session()
    for session.interrupting in (True, False):
        task = asyncio.create_task(session.checkpoints.keep_after("c"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() is not session.interrupting
    await session.checkpoints.run(lambda _: None)


@pytest.mark.parametrize(
    ("keeps_index", "looks", "done"),
    [
        (True, 0, "close"),
        (True, 1, "watch close"),
        (False, 0, "give up forget close"),
        (False, 1, "watch forget close"),
    ],
)
async def test_the_end_of_a_session_waits_for_no_look_that_nobody_needs(
    keeps_index: bool, looks: int, done: str
) -> None:
    session = Session(keeps_index=keeps_index)
    for _ in range(looks):
        await session.keep("before")
    await session.checkpoints.release()
    assert " ".join(session.store.done) == done


async def test_the_first_look_is_made_once_and_a_failure_is_told_when_a_call_needs_it() -> None:
    session = Session()
    session.store.problem = CheckpointError("git is gone")
    for _ in range(2):
        session.checkpoints.warm()
    await until(lambda: bool(session.store.done))
    assert session.said == []
    await session.keep("before", "c")
    await session.keep("after", "c")
    assert len(session.said) == 1
    assert session.store.done == ["look", "watch", "watch"]
