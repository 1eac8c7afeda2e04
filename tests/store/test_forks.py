"""Forks: they refer to the entries and blobs of their original, whatever becomes of it."""

import asyncio
import io
import os
import shutil
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lab.support.postgresql import both_stores
from longrein.store import (
    Reader,
    SessionHistory,
    SessionLog,
    Snapshot,
    delete_session,
    export_jsonl,
    fork_log,
    freed_bytes,
    latest_session,
    list_sessions,
    read_bundle,
    read_entries,
    write_bundle,
)
from longrein_context.events import (
    Entry,
    Opened,
    Parent,
    Reminded,
    SessionError,
    SessionUnknown,
    StoreDamaged,
)
from tests.store.fixtures import (
    ID,
    OTHER,
    add,
    entries,
    entry,
    filled,
    folder,
    make,
    new_log,
    run_in_process,
    seqs,
    start_subagent,
    stored_log,
    wait_status,
    wall_us,
)

pytestmark = pytest.mark.anyio

THIRD = "6f9d0000-0000-4000-8000-000000000003"


def fork_of(to: int, original: str = ID, fork: str = OTHER) -> Entry:
    opened = Opened(1, fork, "n0nce", ("/work",), "/fork", parent=Parent(original, to))
    return Entry(1, 5, opened)


async def fork(state: Path, to: int, original: str = ID, session: str = OTHER) -> None:
    await fork_log(str(state), original, to, fork_of(to, original, session))


async def delete(state: Path, session: str = ID) -> None:
    await delete_session(str(state), session, wall_us=wall_us)


def stored(state: Path, session: str = ID) -> list[Entry]:
    return list(read_entries(str(state), session))


def kept(state: Path, session: str = ID) -> Path:
    return state / "sessions" / ".kept" / session


def size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


async def written(state: Path) -> tuple[list[Entry], str, str]:
    """Make a session of ten entries, entry 5 in a file; return them, and a small and a large
    blob.
    """
    async with new_log(state) as log:
        small, large = log.put_blob(b"small"), log.put_blob(b"l" * 100_000)
        await add(log, [*entries(1, 4), entry(5, "x" * 100_000), *entries(6, 10)])
    return stored(state), small, large


# --- what a fork refers to ------------------------------------------------------------------------


@both_stores
async def test_a_fork_has_what_its_original_had_and_copies_nothing(tmp_path: Path) -> None:
    log = await make(tmp_path)
    small, large = log.put_blob(b"small"), log.put_blob(b"l" * 100_000)
    await add(log, [*entries(1, 4), entry(5, "x" * 100_000), *entries(6, 9)])
    await fork(tmp_path, 6)  # the original is open and stays so
    await add(log, [entry(10)])
    original = stored(tmp_path)
    assert size(folder(tmp_path, OTHER)) < 80_000
    async with stored_log(tmp_path, OTHER) as copy:
        assert list(copy.entries) == [fork_of(6), *original[1:6]]
        assert (copy.read_blob(small), copy.read_blob(large)) == (b"small", b"l" * 100_000)
        assert copy.blob_path(large) == log.blob_path(large)
        await add(copy, [entry(7)])
        await add(log, [entry(11)])
    await log.close()
    [info] = [info for info in list_sessions(str(tmp_path)) if info.session == OTHER]
    assert (info.cwd, info.title, info.entries, list(copy.notes)) == (
        "/fork",
        "fork of hello",
        7,
        [],
    )
    async with stored_log(tmp_path, OTHER) as copy:
        assert (seqs(copy), list(copy.notes)) == ([*range(1, 8)], [])
        assert list(copy.history(3, 7)) == stored(tmp_path, OTHER)[2:]
    assert len(stored(tmp_path)) == 11


@both_stores
async def test_a_fork_that_cannot_be_leaves_nothing(tmp_path: Path) -> None:
    await filled(tmp_path, 5)
    with pytest.raises(SessionError, match=f"cannot fork at entry 9: session {ID} has 5"):
        await fork(tmp_path, 9)
    with pytest.raises(SessionUnknown):
        await fork(tmp_path, 3, ID.replace("6", "7"))
    assert os.listdir(tmp_path / "sessions") == [ID]
    assert not [*folder(tmp_path).glob("forks/*")]
    await fork(tmp_path, 5)
    with pytest.raises(SessionError, match="there is already a session"):
        await fork(tmp_path, 3)
    assert len(stored(tmp_path, OTHER)) == 5


@pytest.mark.parametrize(("first", "second"), [(6, 9), (9, 6), (9, 9), (2, 2), (1, 5)])
async def test_a_fork_of_a_fork(tmp_path: Path, first: int, second: int) -> None:
    original, small, large = await written(tmp_path)
    await fork(tmp_path, first)
    async with stored_log(tmp_path, OTHER) as log:
        await add(log, [entry(seq, f"own {seq}") for seq in range(first + 1, 11)])
    middle = stored(tmp_path, OTHER)
    assert middle[1:first] == original[1:first]
    await fork(tmp_path, second, OTHER, THIRD)
    async with stored_log(tmp_path, THIRD) as log:
        assert list(log.entries) == [fork_of(second, OTHER, THIRD), *middle[1:second]]
        await add(log, [entry(second + 1, "the third")])
        if first > 1:
            assert log.read_blob(small) == b"small"
            assert log.read_blob(large) == b"l" * 100_000
    whole = stored(tmp_path, THIRD)
    with_history = SessionHistory(str(tmp_path), THIRD)
    assert [hit.seq for hit in with_history.search("third", 9).hits] == [second + 1]
    assert len(with_history.search("hello", 9).hits) == (first > 1)
    with_history.close()
    await delete(tmp_path, OTHER)
    await delete(tmp_path)
    assert stored(tmp_path, THIRD) == whole
    assert sorted(os.listdir(tmp_path / "sessions")) == [".kept", THIRD]
    await delete(tmp_path, THIRD)
    assert os.listdir(tmp_path / "sessions") == []


@both_stores
async def test_readers_by_time_kind_and_end_see_one_log(tmp_path: Path) -> None:
    original, _, _ = await written(tmp_path)
    await fork(tmp_path, 6)
    async with stored_log(tmp_path, OTHER) as log:
        await add(log, entries(7, 9))
    whole = stored(tmp_path, OTHER)
    reader = Reader(str(tmp_path), OTHER)
    assert reader.tail() == (9, whole[-1].at)
    assert [one.seq for one in reader.of_kind("ToolEnded")] == [9, 8, 7, 6, 5, 4, 3]
    assert reader.seq_at(original[3].at) == 4
    assert [reader.entry(seq) for seq in range(1, 11)] == [*whole, None]
    out = io.BytesIO()
    assert export_jsonl(reader, out) == 9
    reader.close()


@both_stores
async def test_a_subagent_of_a_fork_shares_what_the_fork_shares(tmp_path: Path) -> None:
    original, _, _ = await written(tmp_path)
    await fork(tmp_path, 6)
    async with stored_log(tmp_path, OTHER) as log:
        child = await start_subagent(log, 7, shares=5)
        assert [one.seq for one in child.entries] == [*range(1, 6)]
    async with stored_log(tmp_path, OTHER) as log:
        child = log.child(child.session)
        assert list(child.entries)[:5] == [fork_of(6), *original[1:5]]
        assert [one.seq for one in child.entries] == [*range(1, 8)]


async def test_a_whole_export_of_a_fork_is_self_contained(tmp_path: Path) -> None:
    _, small, large = await written(tmp_path)
    await fork(tmp_path, 6)
    async with stored_log(tmp_path, OTHER) as log:
        await add(log, [entry(7)])
    bundle = tmp_path / "bundle.zip"
    with bundle.open("wb") as file:
        told = write_bundle(str(tmp_path), OTHER, file, "0")
    assert (told.entries, told.blobs, told.missing) == (7, 3, 0)
    elsewhere = tmp_path / "elsewhere"
    read_bundle(str(elsewhere), str(bundle), ["/work"])
    assert stored(elsewhere, OTHER)[1:] == stored(tmp_path, OTHER)[1:]
    async with stored_log(elsewhere, OTHER) as log:
        assert (seqs(log), log.notes) == ([*range(1, 8)], [])
        assert (log.read_blob(small), log.read_blob(large)) == (b"small", b"l" * 100_000)


async def test_a_fork_of_an_older_longrein_has_its_copies(tmp_path: Path) -> None:
    original, _, _ = await written(tmp_path)
    shutil.copytree(folder(tmp_path), folder(tmp_path, OTHER))
    with sqlite3.connect(folder(tmp_path, OTHER) / "log.sqlite") as database:
        database.execute("DELETE FROM entries WHERE key & 1099511627775 IN (1, 7, 8, 9, 10)")
        database.execute("PRAGMA user_version=3")
    database.close()
    (folder(tmp_path, OTHER) / "high-water-mark").unlink()
    await fork(tmp_path, 6, ID, THIRD)
    first = sqlite3.connect(folder(tmp_path, THIRD) / "log.sqlite").execute("SELECT * FROM entries")
    with sqlite3.connect(folder(tmp_path, OTHER) / "log.sqlite") as database:
        database.executemany("INSERT INTO entries VALUES(?, ?, ?, ?, ?)", first.fetchall())
    database.close()
    await delete(tmp_path, THIRD)
    await delete(tmp_path)
    async with stored_log(tmp_path, OTHER) as log:
        assert [one.seq for one in log.entries] == [*range(1, 7)]
        assert list(log.entries)[1:] == original[1:6]
        await add(log, [entry(7)])
        assert log.notes == []


# --- snapshots ------------------------------------------------------------------------------------


@both_stores
async def test_a_fork_at_the_tip_begins_with_the_snapshot_of_its_original(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 10))
        assert await asyncio.wrap_future(log.keep_snapshot(Snapshot(10, b"the state")) or None)
    first = stored(tmp_path)[0]
    opened = first.event
    assert isinstance(opened, Opened)

    async def forked(copy: str, to: int, **changed: object) -> Snapshot | None:
        event = Opened(**{**{n: getattr(opened, n) for n in opened.__struct_fields__}, **changed})
        await fork_log(str(tmp_path), ID, to, Entry(1, first.at, event))
        async with stored_log(tmp_path, copy) as log:
            return log.snapshot

    assert await forked(OTHER, 10, session=OTHER) == Snapshot(10, b"the state", ID)
    assert await forked(THIRD, 9, session=THIRD) is None
    fourth = THIRD[:-1] + "4"
    assert await forked(fourth, 10, session=fourth, cwd="/elsewhere") is None
    async with stored_log(tmp_path, OTHER) as log:
        await add(log, [entry(11)])
        assert await asyncio.wrap_future(log.keep_snapshot(Snapshot(11, b"its own")) or None)
    async with stored_log(tmp_path, OTHER) as log:
        assert log.snapshot == Snapshot(11, b"its own")
        assert len(log.entries) == 11


# --- deletion -------------------------------------------------------------------------------------


async def test_a_deleted_original_keeps_what_its_forks_need(tmp_path: Path) -> None:
    original, small, large = await written(tmp_path)
    async with stored_log(tmp_path) as log:
        await start_subagent(log, 11)
    (folder(tmp_path) / "transcript.jsonl").write_text("words")
    await fork(tmp_path, 6)
    async with stored_log(tmp_path, OTHER) as log:  # open while its original goes
        await delete(tmp_path)
        assert [info.session for info in list_sessions(str(tmp_path))] == [OTHER]
        assert list(log.entries)[1:] == original[1:6]
        assert (log.read_blob(small), log.read_blob(large)) == (b"small", b"l" * 100_000)
        await add(log, [entry(7)])
    with pytest.raises(SessionUnknown):
        Reader(str(tmp_path), ID)
    with sqlite3.connect(kept(tmp_path) / "log.sqlite") as database:
        assert database.execute("SELECT count(*) FROM entries").fetchone() == (6,)
    database.close()
    assert not (kept(tmp_path) / "transcript.jsonl").exists()
    async with stored_log(tmp_path, OTHER) as log:
        assert (seqs(log), log.notes) == ([*range(1, 8)], [])
        assert list(log.entries)[1:6] == original[1:6]
        assert (log.read_blob(small), log.read_blob(large)) == (b"small", b"l" * 100_000)
    await delete(tmp_path, OTHER)
    assert os.listdir(tmp_path / "sessions") == []


async def test_what_a_deletion_frees(tmp_path: Path) -> None:
    await written(tmp_path)
    alone = freed_bytes(str(folder(tmp_path)))
    assert alone > 200_000
    await fork(tmp_path, 10)
    assert freed_bytes(str(folder(tmp_path, OTHER))) < 80_000
    assert freed_bytes(str(folder(tmp_path))) < 10_000
    await delete(tmp_path, OTHER)
    assert freed_bytes(str(folder(tmp_path))) == alone


async def test_an_original_that_was_imported_again_is_another_session(tmp_path: Path) -> None:
    await written(tmp_path)
    with (tmp_path / "bundle.zip").open("wb") as file:
        write_bundle(str(tmp_path), ID, file, "0")
    await fork(tmp_path, 6)
    before = stored(tmp_path, OTHER)
    await delete(tmp_path)
    read_bundle(str(tmp_path), str(tmp_path / "bundle.zip"), ["/work"])
    await fork(tmp_path, 10, ID, THIRD)
    assert stored(tmp_path, OTHER) == before
    with pytest.raises(SessionError, match="delete its forks first"):
        await delete(tmp_path)
    await delete(tmp_path, THIRD)
    await delete(tmp_path)
    assert stored(tmp_path, OTHER) == before


# --- kills ----------------------------------------------------------------------------------------

STEPS = {
    "open",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.scandir",
    "shutil.rmtree",
    "sqlite3.connect",
}
"""Acts on the disk at which a process is killed."""


def killed_at(step: int, work: Callable[[], Awaitable[None]]) -> bool:
    """Run `work` in a process that is killed at its `step`-th act on the disk; return False when
    it has ended before.
    """

    async def run() -> None:
        count = 0

        def act(event: str, _: object) -> None:
            nonlocal count
            count += event in STEPS
            if count > step:
                os._exit(9)

        sys.addaudithook(act)
        await work()

    return os.waitstatus_to_exitcode(wait_status(run_in_process(run))) == 9


async def test_a_fork_killed_at_any_instant_is_whole_or_not_there(tmp_path: Path) -> None:
    await filled(tmp_path, 8)
    original, step, ended = stored(tmp_path), 0, False
    while not ended:
        ended = not killed_at(step, lambda: fork(tmp_path, 8))
        there = folder(tmp_path, OTHER).exists()
        assert there >= ended
        listed = [info.session for info in list_sessions(str(tmp_path))]
        assert sorted(listed) == sorted([ID, OTHER] if there else [ID])
        assert latest_session(str(tmp_path), "/fork") == (OTHER if there else "")
        if there:
            assert stored(tmp_path, OTHER)[1:] == original[1:]
            await delete(tmp_path, OTHER)
        step += 1
    assert step > 10
    for left in tmp_path.glob("sessions/.new/*"):
        os.utime(left, (0, 0))
    await fork(tmp_path, 8)
    assert sorted(os.listdir(tmp_path / "sessions")) == sorted([ID, OTHER])


async def test_a_deletion_killed_at_any_instant_loses_nothing_of_the_forks(tmp_path: Path) -> None:
    await written(tmp_path)
    await fork(tmp_path, 6)
    async with stored_log(tmp_path, OTHER) as log:
        await add(log, entries(7, 9))
    await fork(tmp_path, 9, OTHER, THIRD)
    wanted, first = stored(tmp_path, THIRD), tmp_path / "first"
    shutil.copytree(tmp_path / "sessions", first / "sessions")
    step, ended = 0, False
    while not ended:
        state = tmp_path / str(step)
        shutil.copytree(first, state)

        async def both(state: Path = state) -> None:
            await delete(state, OTHER)
            await delete(state)

        ended = not killed_at(step * 3, both)
        assert stored(state, THIRD) == wanted
        for session in (OTHER, ID):
            if folder(state, session).exists():
                await delete(state, session)
        assert stored(state, THIRD) == wanted
        await delete(state, THIRD)
        assert os.listdir(state / "sessions") == []
        step += 1
    assert step > 5


# --- damage ---------------------------------------------------------------------------------------


async def goes_on(state: Path, note: str, left: list[int]) -> SessionLog:
    """Check that the fork opens with the entries `left` of seven and goes on behind them."""
    async with stored_log(state, OTHER) as log:
        assert [one.seq for one in log.entries] == left
        assert len(log.notes) == 1
        assert note in log.notes[0]
        assert "\n" not in log.notes[0]
        await add(log, [entry(len(log.entries) + 1)])
    return log


async def test_a_fork_whose_original_is_gone_has_its_own_entries(tmp_path: Path) -> None:
    await written(tmp_path)
    await fork(tmp_path, 6)
    async with stored_log(tmp_path, OTHER) as log:
        await add(log, [entry(7)])
    shutil.rmtree(folder(tmp_path))
    note = f"entries 2 to 6 of this session are missing: session {ID}, from which it was forked, is"
    await goes_on(tmp_path, f"{note} gone", [1, 7])
    await goes_on(tmp_path, f"{note} gone", [1, 7, 8])
    assert [one.seq for one in stored(tmp_path, OTHER)] == [1, 7, 8, 9]
    await filled(tmp_path, 9)  # another session with this id
    await goes_on(tmp_path, f"{note} gone", [1, 7, 8, 9])


async def test_a_fork_without_entries_of_its_own_whose_original_is_gone(tmp_path: Path) -> None:
    await written(tmp_path)
    await fork(tmp_path, 6)
    shutil.rmtree(folder(tmp_path))
    await goes_on(tmp_path, "is gone", [1])
    await goes_on(tmp_path, "is gone", [1, 7])


def spoil(state: Path, seq: int) -> None:
    with sqlite3.connect(folder(state) / "log.sqlite") as database:
        database.execute("UPDATE entries SET body = 'x' WHERE key & 1099511627775 = ?", (seq,))
    database.close()


async def test_a_fork_whose_original_is_damaged_has_what_is_left(tmp_path: Path) -> None:
    original, _, _ = await written(tmp_path)
    await fork(tmp_path, 6)
    async with stored_log(tmp_path, OTHER) as log:
        await add(log, [entry(7)])
    spoil(tmp_path, 4)
    why = f"is damaged (entry 4 is not what was written); `longrein -r {ID}` repairs it"
    await goes_on(tmp_path, why, [1, 2, 3, 7])
    with pytest.raises(StoreDamaged):
        stored(tmp_path, OTHER)
    async with stored_log(tmp_path) as log:
        assert len(log.notes) == 1
    async with stored_log(tmp_path, OTHER) as log:
        assert (seqs(log), log.notes) == ([*range(1, 9)], [])
        found = list(log.entries)
    assert isinstance(found[3].event, Reminded)
    assert [*found[1:3], *found[4:6]] == [*original[1:3], *original[4:6]]


@pytest.mark.parametrize("how", ["no database", "no SQLite"])
async def test_a_fork_whose_original_cannot_be_opened(tmp_path: Path, how: str) -> None:
    await written(tmp_path)
    await fork(tmp_path, 6)
    path = folder(tmp_path) / "log.sqlite"
    path.unlink() if how == "no database" else path.write_bytes(b"rubbish" * 4096)
    await goes_on(tmp_path, "is damaged", [1])
    assert [one.seq for one in stored(tmp_path, OTHER)] == [1, 7]
    with pytest.raises(SessionError):
        await fork(tmp_path, 6, ID, THIRD)


async def test_entries_written_in_place_of_lost_ones_are_not_the_forks(tmp_path: Path) -> None:
    await filled(tmp_path, 10)
    await fork(tmp_path, 8)
    before = stored(tmp_path, OTHER)
    with sqlite3.connect(folder(tmp_path) / "log.sqlite") as database:
        database.execute("DELETE FROM entries WHERE key & 1099511627775 > 5")
    database.close()
    async with stored_log(tmp_path) as log:
        assert log.was_cut
        await add(log, [entry(seq, "another") for seq in range(6, 12)])
    await goes_on(tmp_path, "entries 6 to 8 of this session are missing", [1, 2, 3, 4, 5])
    assert stored(tmp_path, OTHER)[:5] == before[:5]


async def test_a_damaged_fork_is_repaired_and_still_refers_to_its_original(tmp_path: Path) -> None:
    original, _, large = await written(tmp_path)
    await fork(tmp_path, 6)
    async with stored_log(tmp_path, OTHER) as log:
        await add(log, entries(7, 20))
    with sqlite3.connect(folder(tmp_path, OTHER) / "log.sqlite") as database:
        database.execute("UPDATE entries SET body = 'x' WHERE key & 1099511627775 IN (7, 12)")
    database.close()
    async with stored_log(tmp_path, OTHER) as log:
        found = list(log.entries)
        assert [one.seq for one in found] == [*range(1, 21)]
        lost = [one.seq for one in found if isinstance(one.event, Reminded)]
        assert (lost, len(log.notes)) == ([7, 12], 1)
        assert found[1:6] == original[1:6]
        assert log.read_blob(large) == b"l" * 100_000


async def test_a_fork_that_has_lost_its_own_entries_says_so(tmp_path: Path) -> None:
    await written(tmp_path)
    await fork(tmp_path, 6)
    async with stored_log(tmp_path, OTHER) as log:
        await add(log, entries(7, 9))
    with sqlite3.connect(folder(tmp_path, OTHER) / "log.sqlite") as database:
        database.execute("DELETE FROM entries WHERE key & 1099511627775 > 6")
    database.close()
    async with stored_log(tmp_path, OTHER) as log:
        assert (seqs(log), log.was_cut) == ([*range(1, 7)], True)
        assert "lost the last 3 of its 9 entries" in log.notes[0]
        await add(log, [entry(7)])
