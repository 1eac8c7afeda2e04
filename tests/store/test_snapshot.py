"""A snapshot is valid only for the log and the code it was made from."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from lab.support.postgresql import both_stores
from longrein.store import Snapshot, fork_log, read_entries
from longrein.store import snapshot as module
from longrein.store.database import row_checksum
from longrein_context.events import Entry, Opened
from tests.store.fixtures import (
    ID,
    OTHER,
    add,
    entries,
    entry,
    filled,
    folder,
    new_log,
    reopen,
    seqs,
    stored_log,
)

pytestmark = pytest.mark.anyio

STATE = b"the folded state " * 500
LARGE = "x" * 100_000


async def kept(state: Path, last: int = 20, session: str = ID) -> None:
    """Create a closed session of `last` entries, the third one large, with a snapshot of all."""
    async with new_log(state, session) as log:
        new = [entry(seq, LARGE if seq == 3 else "", session) for seq in range(1, last + 1)]
        await add(log, new)
        writing = log.keep_snapshot(Snapshot(last, STATE))
        assert writing is not None
    assert writing.result()


async def found(state: Path, session: str = ID) -> Snapshot | None:
    log = await reopen(state, session)
    await log.close()
    return log.snapshot


async def test_a_snapshot_is_there_at_each_open_until_the_next_is_kept(tmp_path: Path) -> None:
    await kept(tmp_path)
    for last in (21, 22):
        async with stored_log(tmp_path) as log:
            assert log.snapshot == Snapshot(20, STATE)
            assert len(log.entries) == last - 1
            await add(log, [entry(last)])
    async with stored_log(tmp_path) as log:
        writing = log.keep_snapshot(Snapshot(22, b"newer"))
        assert writing is not None
        assert await asyncio.wrap_future(writing)
    assert await found(tmp_path) == Snapshot(22, b"newer")
    assert os.stat(path(tmp_path)).st_mode & 0o777 == 0o600
    names = "blobs high-water-mark lock log.sqlite state-20.snapshot state.snapshot"
    assert sorted(os.listdir(folder(tmp_path))) == names.split()


async def test_what_a_kill_left_of_the_last_one_is_in_nobodys_way(tmp_path: Path) -> None:
    await kept(tmp_path)
    Path(f"{path(tmp_path)}.new").write_bytes(path(tmp_path).read_bytes()[:3_000])
    assert await found(tmp_path) == Snapshot(20, STATE)
    async with stored_log(tmp_path) as log:
        log.keep_snapshot(Snapshot(20, b"again"))
    assert await found(tmp_path) == Snapshot(20, b"again")
    assert "state.snapshot.new" not in os.listdir(folder(tmp_path))


async def test_a_folder_that_cannot_be_written_to_leaves_the_session_without_one(
    tmp_path: Path,
) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 5))
        Path(f"{path(tmp_path)}.new").mkdir()
        writing = log.keep_snapshot(Snapshot(5, STATE))
        assert writing is not None
    assert not writing.result()
    assert await found(tmp_path) is None


@both_stores
async def test_one_that_is_not_of_the_last_entry_is_not_kept(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 5))
        for seq in (4, 6):
            writing = log.keep_snapshot(Snapshot(seq, STATE))
            assert writing is not None
            assert not await asyncio.wrap_future(writing)
    assert await found(tmp_path) is None


# --- Invalid snapshots ----------------------------------------------------------------------------


def path(state: Path, session: str = ID) -> Path:
    return folder(state, session) / "state.snapshot"


def rows(state: Path, *statements: str, sound: bool = True) -> None:
    """Change the stored log directly; with `sound`, keep the checksum of each row right."""
    connection = sqlite3.connect(folder(state) / "log.sqlite")
    connection.create_function("checksum", 4, row_checksum)
    for statement in statements:
        connection.execute(statement)
    if sound:
        connection.execute("UPDATE entries SET crc = checksum(key, at, version, body)")
    connection.commit()
    connection.close()


LAST = "(SELECT max(key) FROM entries)"
DAMAGE: dict[str, Callable[[Path], None]] = {
    "it is gone": lambda state: path(state).unlink(),
    "it is empty": lambda state: path(state).write_bytes(b""),
    "it was cut": lambda state: os.truncate(path(state), 5_000),
    "it grew": lambda state: path(state).write_bytes(path(state).read_bytes() + b"x"),
    "it is a folder": lambda state: (path(state).unlink(), path(state).mkdir())[0],
    "the log is shorter": lambda state: rows(state, f"DELETE FROM entries WHERE key = {LAST}"),
    "a time in the log is another": lambda state: rows(
        state, f"UPDATE entries SET at = at + 1 WHERE key = {LAST} - 9"
    ),
    "an entry of the log is another": lambda state: rows(
        state,
        f"UPDATE entries SET body = (SELECT body FROM entries WHERE key = {LAST} - 2) WHERE key = "
        f"{LAST}",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
async def test_it_is_passed_over_when(what: str, tmp_path: Path) -> None:
    await kept(tmp_path)
    DAMAGE[what](tmp_path)
    async with stored_log(tmp_path) as log:
        assert log.snapshot is None
        last = 19 if what == "the log is shorter" else 20
        assert seqs(log) == list(range(1, last + 1))
        await add(log, [entry(last + 1)])


@pytest.mark.parametrize("at", [*range(0, 60, 3), 4_000, -1])
async def test_it_is_passed_over_when_a_byte_of_it_is_another(at: int, tmp_path: Path) -> None:
    await kept(tmp_path, 3)
    data = bytearray(path(tmp_path).read_bytes())
    data[at] ^= 4
    path(tmp_path).write_bytes(data)
    assert await found(tmp_path) is None


async def test_that_of_other_code_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "code_version", lambda: b"other code")
    await kept(tmp_path)
    monkeypatch.undo()
    assert await found(tmp_path) is None


async def test_that_of_another_session_is_passed_over(tmp_path: Path) -> None:
    await kept(tmp_path)
    shutil.copytree(folder(tmp_path), folder(tmp_path, OTHER))
    assert await found(tmp_path, OTHER) is None


async def test_an_older_log_put_back_is_not_taken_for_the_newer(tmp_path: Path) -> None:
    await filled(tmp_path, 10)
    shutil.copy(folder(tmp_path) / "log.sqlite", tmp_path / "backup")
    log = await reopen(tmp_path)
    await add(log, entries(11, 20))
    log.keep_snapshot(Snapshot(20, STATE))
    await log.close()
    shutil.copy(tmp_path / "backup", folder(tmp_path) / "log.sqlite")
    async with stored_log(tmp_path) as log:
        await add(log, entries(11, 20))
        assert log.snapshot is None
    assert await found(tmp_path) is None


# --- Long logs ------------------------------------------------------------------------------------


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every log counts as long, and is checked right after open."""
    monkeypatch.setattr("longrein.store.repair.KEEP_BYTES_MAX", 1000)
    monkeypatch.setattr("longrein.store.log.CHECK_AFTER_S", 0.0)


@pytest.mark.usefixtures("long")
async def test_a_long_log_is_looked_through_after_the_open(tmp_path: Path) -> None:
    await kept(tmp_path)
    async with stored_log(tmp_path) as log:
        assert log.snapshot == Snapshot(20, STATE)
        assert log.checked is not None
        assert log.checked.result(60) == ""
        assert seqs(log) == list(range(1, 21))
        assert [one.seq for one in log.history(18, 20)] == [18, 19, 20]


@pytest.mark.usefixtures("long")
async def test_damage_that_the_snapshot_stands_for_is_told_after_the_open_and_repaired_by_the_next(
    tmp_path: Path,
) -> None:
    await kept(tmp_path)
    rows(tmp_path, f"UPDATE entries SET body = x'7b7d' WHERE key = {LAST} - 8", sound=False)
    async with stored_log(tmp_path) as log:
        assert log.snapshot == Snapshot(20, STATE)
        assert log.checked is not None
        assert (
            "damaged (entry 12 is not what was written); open the session again to repair it"
            in log.checked.result(60)
        )
    async with stored_log(tmp_path) as log:
        assert log.snapshot is None
        assert log.notes


async def test_earlier_snapshots_are_few_and_found_by_their_entry(tmp_path: Path) -> None:
    state, step = b"s" * 100, 50
    async with new_log(tmp_path) as log:
        for last in range(step, 5_001, step):
            await add(log, entries(last - step + 1, last), flush=False)
            writing = log.keep_snapshot(Snapshot(last, b"%d" % last + state))
            assert writing is not None
            assert await asyncio.wrap_future(writing)
        kept = sorted(int(one.stem[6:]) for one in folder(tmp_path).glob("state-*.snapshot"))
        assert len(kept) <= 6
        for seq in (*kept, 4_999):
            found = log.snapshot_before(seq)
            assert found == Snapshot(max(one for one in kept if one <= seq), found.state)
        assert log.snapshot_before(5_000) == Snapshot(5_000, b"5000" + state)
        assert log.snapshot_before(kept[0] - 1) is None
        assert 5_000 - max(kept) < 1_000
    rows(tmp_path, "UPDATE entries SET at = at + 1 WHERE key & 1099511627775 = 4900")
    async with stored_log(tmp_path) as log:
        assert log.snapshot_before(5_000) == log.snapshot_before(4_899)
        assert log.snapshot_before(4_899) is not None


def written(folder: Path, seqs: list[int]) -> list[int]:
    """Write snapshots one after the other; return the entries of those beside the last one."""
    for seq in seqs:
        assert module.write_snapshot(str(folder), ID, Snapshot(seq, STATE), b"log")
    return sorted(int(path.stem[6:]) for path in folder.glob("state-*.snapshot"))


FAR = [1, 9, 13, 17, 21, 25, 27, 29, 31, 33, 34, 35, 36, 37, 38, 39]
"""Of forty thousand entries four for each doubling of the distance."""


@pytest.mark.parametrize(("seqs", "left"), [
    ([], []),
    ([20], []),
    ([1_000, 2_000], [1_000]),
    ([1_000, 1_500, 1_999, 2_000], [1_000, 1_999]),
    ([500 * n for n in range(1, 12)], [500, 1_500, 2_500, 3_500, 4_500, 5_000]),
    ([1_000 * n for n in range(1, 41)], [1_000 * n for n in FAR]),
    ([1_000, 2_000, 3_000, 3_000], [1_000, 2_000]),  # written again
    ([1_000, 2_000, 3_000, 2_500], [1_000, 2_000]),  # of a log that was put back
    ([1_000, 2_000, 3_000, 2_000], [1_000]),
])  # fmt: skip
def test_few_earlier_snapshots_are_left(tmp_path: Path, seqs: list[int], left: list[int]) -> None:
    assert written(tmp_path, seqs) == left
    assert module.snapshot_seq(str(tmp_path)) == (seqs[-1] if seqs else 0)


@pytest.mark.parametrize(("less", "count"), [(0, 3), (1, 2)])
def test_the_newest_snapshots_are_left_within_the_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, less: int, count: int
) -> None:
    seqs = [1_000 * n for n in range(1, 8)]
    written(tmp_path, seqs[:1])
    size_bytes = (tmp_path / module.SNAPSHOT).stat().st_size
    monkeypatch.setattr(module, "EARLIER_BYTES_MAX", 3 * size_bytes - less)
    assert written(tmp_path, seqs[1:]) == seqs[-1 - count : -1]


def test_snapshots_of_other_code_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written(tmp_path, [1_000, 2_000, 3_000]) == [1_000, 2_000]
    monkeypatch.setattr(module, "code_version", lambda: b"other")
    assert written(tmp_path, [4_000]) == []
    monkeypatch.setattr(module, "code_version", lambda: b"")
    assert not module.write_snapshot(str(tmp_path), ID, Snapshot(5_000, STATE), b"log")
    assert module.snapshot_seq(str(tmp_path)) == 4_000


async def test_a_fork_finds_the_earlier_snapshots_of_its_original(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        for last in (10, 20, 30):
            await add(log, entries(last - 9, last))
            writing = log.keep_snapshot(Snapshot(last, b"%d" % last))
            assert writing is not None
            assert await asyncio.wrap_future(writing)
    first = next(read_entries(str(tmp_path), ID))
    assert isinstance(first.event, Opened)
    opened = msgspec.structs.replace(first.event, session=OTHER)
    await fork_log(str(tmp_path), ID, 15, Entry(1, first.at, opened))
    async with stored_log(tmp_path, OTHER) as copy:
        assert copy.snapshot == copy.snapshot_before(14) == Snapshot(10, b"10", ID)
        assert copy.snapshot_before(9) is None
