"""Sessions in which nobody said anything are removed when they are left; all others stay."""

from collections.abc import Callable
from pathlib import Path

import pytest

from longrein.events import AnyEvent, Entry, ModeSet, Opened, Parent, PinsSet, PrefixSet, TaskStarted, Text, UserSpoke
from longrein.store import discard_empty, leave_message, list_sessions
from tests.store.fixtures import ID, add, new_log, opened, stored_log, wall_us

pytestmark = pytest.mark.anyio
PREFIX = PrefixSet("start", "p", "m", "scripted", "Be good.", ())


def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / ID


async def stored(tmp_path: Path, *events: AnyEvent) -> None:
    async with new_log(tmp_path) as log:
        await add(log, [Entry(seq, wall_us(), event) for seq, event in enumerate(events, 1)])


@pytest.mark.parametrize(
    "events", [(), (opened(ID, "/a"),), (opened(ID, "/a"), PREFIX), (opened(ID, "/a"), PREFIX, ModeSet("plan"))]
)
async def test_what_holds_nothing_but_its_beginning_goes(tmp_path: Path, events: tuple[AnyEvent, ...]) -> None:
    await stored(tmp_path, *events)
    assert await discard_empty(str(tmp_path), ID, wall_us=wall_us)
    assert not folder(tmp_path).exists()
    assert list_sessions(str(tmp_path)) == []
    assert not await discard_empty(str(tmp_path), ID, wall_us=wall_us)


def copied() -> Opened:
    return Opened(1, ID, "n", ("/a",), "/a", parent=Parent("6f1d", 7))


@pytest.mark.parametrize(
    "last",
    [UserSpoke((Text("keep me"),)), PinsSet(("never push",)), TaskStarted("b1", "make"), copied()],
    ids=lambda last: type(last).__name__,
)
async def test_what_holds_anything_else_stays(tmp_path: Path, last: AnyEvent) -> None:
    await stored(tmp_path, opened(ID, "/a"), PREFIX, last)
    assert not await discard_empty(str(tmp_path), ID, wall_us=wall_us)
    assert len(list_sessions(str(tmp_path))) == 1


async def _waits(tmp_path: Path) -> None:
    async with stored_log(tmp_path) as log:
        log.put(b"a word that was never taken")


async def _left(tmp_path: Path) -> None:
    leave_message(str(tmp_path), ID, b"a word from another process")


async def _spool(tmp_path: Path) -> None:
    (folder(tmp_path) / "tasks").mkdir()


async def _damage(tmp_path: Path) -> None:
    (folder(tmp_path) / "log.sqlite").write_bytes(b"no database")


@pytest.mark.parametrize("befalls", [_waits, _left, _spool, _damage])
async def test_what_may_hold_something_stays(tmp_path: Path, befalls: Callable[[Path], object]) -> None:
    await stored(tmp_path, opened(ID, "/a"), PREFIX)
    await befalls(tmp_path)  # type: ignore[misc]
    assert not await discard_empty(str(tmp_path), ID, wall_us=wall_us)
    assert (folder(tmp_path) / "log.sqlite").exists()


async def test_what_somebody_has_open_stays(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, [Entry(1, wall_us(), opened(ID, "/a"))])
        assert not await discard_empty(str(tmp_path), ID, wall_us=wall_us)
    assert await discard_empty(str(tmp_path), ID, wall_us=wall_us)
